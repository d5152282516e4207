//! A file that was opened.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Stat;
use super::connection::Kept;
use crate::event::FileId;
use crate::host::ReadAt;

/// A regular file, open for reading.
#[derive(Debug)]
pub struct Opened {
    /// The contents. Keep it for as long as [`kernel_path`](Self::kernel_path) is used.
    pub file: Contents,
    /// The place of the file (`O_PATH`), by which the kernel finds it for a probe: no file system hears of this
    /// descriptor, so that closing it cannot hang either.
    pub(super) place: Option<OwnedFd>,
    /// The path by which a person on the host finds it: `/proc/PID/root/…` for a file of a container.
    pub shown: PathBuf,
    /// The process through which it was found.
    pub pid: Option<u32>,
}

/// Who holds an open file.
#[derive(Debug)]
pub enum Contents {
    /// This process: the file is on a local file system.
    Local(File),
    /// The helper, for a file system that can hang. Reading takes a round trip of some 20 µs for 64 KiB.
    Apart(Arc<Kept>),
}

impl Opened {
    /// A file that this program made itself.
    pub fn own(file: File, shown: PathBuf) -> Self {
        Self { file: Contents::Local(file), place: None, shown, pid: None }
    }

    /// Which file it is; `None` if the kernel does not say.
    pub fn id(&self) -> Option<FileId> {
        let stat = self.file.stat().ok()?;
        Some(FileId { device: stat.device, inode: stat.inode })
    }

    /// The path by which the kernel finds exactly this file, while it is open here: its canonical path if it is a file of
    /// the host and its path can be written to `uprobe_events`, else the path of our descriptor, behind which nobody can
    /// put another file. `None` for a file that the helper holds and that was not opened to be probed
    /// ([`Files::open_to_probe`](super::Files::open_to_probe)).
    pub fn kernel_path(&self) -> Option<PathBuf> {
        let descriptor = match (&self.file, &self.place) {
            (Contents::Local(file), _) => descriptor_path(file),
            (Contents::Apart(_), Some(place)) => return Some(descriptor_path(place)),
            (Contents::Apart(_), None) => return None,
        };
        match (&self.file, fs::read_link(&descriptor)) {
            (Contents::Local(file), Ok(path))
                if self.pid.is_none() && is_word(&path) && is_same(file, &path) =>
            {
                Some(path)
            }
            _ => Some(descriptor),
        }
    }
}

impl Contents {
    /// The attributes.
    ///
    /// # Errors
    /// As `fstat(2)`; `ETIMEDOUT` where the file system does not answer, `ESTALE` where the helper that held the file
    /// has ended.
    pub fn stat(&self) -> io::Result<Stat> {
        match self {
            Self::Local(file) => Stat::of(file),
            Self::Apart(kept) => kept.stat(),
        }
    }

    /// Whether nothing can be read of it any more, because the helper that held it has ended.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Apart(kept) if kept.is_gone())
    }

    /// Reads from the beginning on.
    pub fn sequential(&self) -> Sequential<'_> {
        Sequential(self, 0)
    }
}

impl From<File> for Contents {
    fn from(file: File) -> Self {
        Self::Local(file)
    }
}

impl ReadAt for Contents {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::Local(file) => FileExt::read_at(file, buffer, offset),
            Self::Apart(kept) => kept.read_at(buffer, offset),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.stat()?.size)
    }
}

impl ReadAt for Opened {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

/// Reads an open file from its beginning to its end.
#[derive(Debug)]
pub struct Sequential<'f>(&'f Contents, u64);

impl io::Read for Sequential<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read_at(buffer, self.1)?;
        self.1 += read as u64;
        Ok(read)
    }
}

/// Whether the parser of `uprobe_events` takes it for one word: it splits at blanks, and `#` begins a comment.
fn is_word(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().all(|&byte| byte.is_ascii_graphic() && byte != b'#')
}

/// The path of a descriptor of this process. That is always below our own `/proc`, wherever the host's is mounted.
pub(super) fn descriptor_path(fd: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Whether a path still leads to an open file.
pub(super) fn is_same(file: &File, path: &Path) -> bool {
    let [Ok(own), Ok(there)] = [file.metadata(), fs::metadata(path)] else { return false };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}
