//! Opened files.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Stat;
use super::connection::HelperFile;
use crate::event::FileId;
use crate::host::ReadAt;

/// Regular file, open for reading.
#[derive(Debug)]
pub struct Opened {
    /// Contents. Must be kept while [`kernel_path`](Self::kernel_path) is used.
    pub file: Contents,
    /// `O_PATH` descriptor, by which the kernel finds the file for a probe. File systems receive no request for it, so closing it cannot
    /// block.
    pub(super) place: Option<OwnedFd>,
    /// Path of the file on the host: `/proc/PID/root/…` for a file of a container.
    pub shown: PathBuf,
    /// Process through whose root the file was found.
    pub pid: Option<u32>,
}

/// Owner of the open file.
#[derive(Debug)]
pub enum Contents {
    /// This process: the file is on a local file system.
    Local(File),
    /// The helper: the file system can block. Reading costs a round trip of about 20 µs per 64 KiB.
    Apart(Arc<HelperFile>),
}

impl Opened {
    /// Creates an `Opened` for a file that this program created.
    pub fn own(file: File, shown: PathBuf) -> Self {
        Self { file: Contents::Local(file), place: None, shown, pid: None }
    }

    /// Returns the device and inode; `None` if `fstat` fails.
    pub fn id(&self) -> Option<FileId> {
        let stat = self.file.stat().ok()?;
        Some(FileId { device: stat.device, inode: stat.inode })
    }

    /// Returns the magic number of its file system (`statfs(2)`); `None` if the helper keeps the file.
    pub fn filesystem_type(&self) -> Option<i64> {
        match &self.file {
            Contents::Local(file) => rustix::fs::fstatfs(file).ok().map(|stat| stat.f_type),
            Contents::Apart(_) => None,
        }
    }

    /// Returns a path that refers to exactly this file in the kernel while it is open here. For a file of the host this is its canonical
    /// path, if `uprobe_events` accepts that. Otherwise it is the path of the descriptor, which cannot be redirected to another file.
    /// Returns `None` for a file that the helper keeps and that was not opened for a probe
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
    /// Returns the attributes.
    ///
    /// # Errors
    /// See `fstat(2)`; `ETIMEDOUT` if the file system does not respond, `ESTALE` if the helper that kept the file has exited.
    pub fn stat(&self) -> io::Result<Stat> {
        match self {
            Self::Local(file) => Stat::of(file),
            Self::Apart(kept) => kept.stat(),
        }
    }

    /// Reports whether the file is no longer readable, because the helper that kept it has exited.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Apart(kept) if kept.is_gone())
    }

    /// Returns a reader that starts at the beginning.
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

/// Reader of an open file from its beginning to its end.
#[derive(Debug)]
pub struct Sequential<'f>(&'f Contents, u64);

impl io::Read for Sequential<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read_at(buffer, self.1)?;
        self.1 += read as u64;
        Ok(read)
    }
}

/// Reports whether the parser of `uprobe_events` treats the path as one word: it splits at whitespace, and `#` begins a comment.
fn is_word(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().all(|&byte| byte.is_ascii_graphic() && byte != b'#')
}

/// Returns the path of a descriptor of this process. It is always below the own `/proc`, wherever that of the host is mounted.
pub(super) fn descriptor_path(fd: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Reports whether a path still refers to an open file.
pub(super) fn is_same(file: &File, path: &Path) -> bool {
    let [Ok(own), Ok(there)] = [file.metadata(), fs::metadata(path)] else { return false };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}
