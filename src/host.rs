//! Facts about the machine, and its file system roots. All access to `/proc`, `/sys`, tracefs and cgroup file systems uses [`Roots`], so
//! that the program can also run on a directory of fixtures.

mod cgroup_path;
mod cpu_time;
mod cpuset;
mod environment;
mod facts;
mod nodes;
mod online;
mod topology;

pub use cgroup_path::is_within;
pub use cpu_time::CpuTime;
pub use cpuset::{CpuSet, CpuSetError};
pub use environment::Environment;
pub(crate) use facts::online_cpus;
pub use facts::{Capabilities, Facts, KernelVersion, cpu_model};
pub use nodes::{Cpu, Nodes};
pub(crate) use online::Online;
pub use topology::{CpuPosition, SharedCache};

use std::ffi::OsString;
use std::fs::{File, ReadDir};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{FileError, FileErrorKind};
use crate::lock;

/// Maximum size of a file of `/proc` or `/sys`, in bytes. The largest file in use, `/proc/mounts` of a node with thousands of containers,
/// is much smaller.
const FILE_LIMIT: u64 = 16 << 20;
/// Maximum length of a line, in bytes; also the size of the read buffer.
const LINE_LIMIT: usize = 64 << 10;

/// Mount points of the kernel's file systems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// procfs, usually `/proc`.
    pub proc: PathBuf,
    /// sysfs, usually `/sys`.
    pub sys: PathBuf,
    /// tracefs, usually `/sys/kernel/tracing`; found through the mount table by [`Roots::under`].
    pub tracing: PathBuf,
    /// Prefix of paths in the mount table; empty on the host, `/host` in a container with the host's file systems mounted there.
    pub prefix: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self::under(Path::new("/"))
    }
}

impl Roots {
    /// Returns the name of the machine. In a container `/proc` contains the name of the container; the host's file is below its root.
    pub fn host_name(&self) -> Option<String> {
        let name_in = |path: &Path| {
            let text = read_text(path).ok()?;
            Some(text.trim().to_owned()).filter(|name| !name.is_empty())
        };
        let file = || name_in(&self.mounted("etc/hostname"));
        let kernel = || name_in(&self.proc.join("sys/kernel/hostname"));
        if self.prefix == Path::new("/") { kernel().or_else(file) } else { file().or_else(kernel) }
    }

    /// Returns the usual mount points below `prefix` (`/` for this machine).
    pub fn under(prefix: &Path) -> Self {
        let sys = prefix.join("sys");
        let tracing = [sys.join("kernel/tracing"), sys.join("kernel/debug/tracing")]
            .into_iter()
            .find(|dir| dir.join("events").is_dir())
            .unwrap_or_else(|| sys.join("kernel/tracing"));
        Self { proc: prefix.join("proc"), sys, tracing, prefix: prefix.to_owned() }
    }

    /// Converts a path of the mount table (absolute on the host) to a path that this process can open.
    pub fn mounted(&self, path: &str) -> PathBuf {
        self.prefix.join(path.trim_start_matches('/'))
    }
}

/// Reverses the kernel's `mangle()` in a field of `mountinfo`, which writes blank, tab, newline, backslash and `#` as `\` and three octal
/// digits.
pub fn unescaped(field: &str) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if byte == b'\\' => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Reads an open file at any offset; the file may be open in this process or in another one.
pub trait ReadAt {
    /// Reads bytes at `offset`; returns 0 at the end of the file.
    ///
    /// # Errors
    /// See `pread(2)`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns the length of the file, in bytes.
    ///
    /// # Errors
    /// See `fstat(2)`.
    fn length(&self) -> io::Result<u64>;

    /// Fills the whole buffer.
    ///
    /// # Errors
    /// See [`read_at`](Self::read_at); [`ErrorKind::UnexpectedEof`] if the file ends first.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (mut filled, mut at) = (0, offset);
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.read_at(room, at) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => (filled, at) = (filled + read, at.saturating_add(read as u64)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }
}

/// Reads from memory.
impl ReadAt for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

/// Reads a whole file of at most 16 MiB.
///
/// # Errors
/// The error of the kernel, or [`FileErrorKind::TooLarge`].
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    read_at_most(path, FILE_LIMIT)
}

/// Reads a whole file of at most `limit` bytes.
///
/// # Errors
/// The error of the kernel, or [`FileErrorKind::TooLarge`].
pub fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    lock::assert_may_block("reading a file");
    let file = File::open(path).map_err(|error| FileError::io(path, &error))?;
    let mut content = Vec::new();
    // One byte more than the limit distinguishes a file at the limit from one above it.
    file.take(limit + 1).read_to_end(&mut content).map_err(|error| FileError::io(path, &error))?;
    if content.len() as u64 > limit {
        return Err(FileError { path: path.to_owned(), kind: FileErrorKind::TooLarge { limit } });
    }
    Ok(content)
}

/// Reads a whole file of at most 16 MiB as text, without its last newline. Bytes that are not UTF-8 become U+FFFD.
///
/// # Errors
/// See [`read`].
pub fn read_text(path: &Path) -> Result<String, FileError> {
    let mut text = String::from_utf8_lossy(&read(path)?).into_owned();
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// Reads a text file by lines, and calls `line` for each without its newline. Reads at most `limit` bytes with a buffer of 64 KiB.
///
/// # Errors
/// The error of the kernel; [`FileErrorKind::TooLarge`], after the lines up to the limit; [`FileErrorKind::Malformed`] for a line longer
/// than 64 KiB.
pub fn lines(path: &Path, limit: u64, line: impl FnMut(&[u8])) -> Result<(), FileError> {
    lock::assert_may_block("reading a file");
    let mut file = File::open(path).map_err(|error| FileError::io(path, &error))?;
    lines_of(&mut file, path, limit, line)
}

/// Reads an open file by lines, like [`lines`]. `path` is for messages.
///
/// # Errors
/// See [`lines`].
pub fn lines_of(
    file: &mut impl Read,
    path: &Path,
    limit: u64,
    mut line: impl FnMut(&[u8]),
) -> Result<(), FileError> {
    let mut buffer = vec![0; LINE_LIMIT];
    // An incomplete line is kept at the start of the buffer.
    let (mut held, mut total) = (0, 0);
    loop {
        let room = &mut buffer[held..];
        if room.is_empty() {
            return Err(FileError::malformed(path, format!("a line of more than {LINE_LIMIT} bytes")));
        }
        let read = match file.read(room) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(FileError::io(path, &error)),
        };
        if read == 0 {
            break;
        }
        total += read as u64;
        let filled = held + read;
        let end = buffer[held..filled].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| held + at + 1);
        if let Some(whole) = buffer[..end].strip_suffix(b"\n") {
            whole.split(|&byte| byte == b'\n').for_each(&mut line);
        }
        if total > limit {
            return Err(FileError { path: path.to_owned(), kind: FileErrorKind::TooLarge { limit } });
        }
        buffer.copy_within(end..filled, 0);
        held = filled - end;
    }
    if held > 0 {
        line(&buffer[..held]);
    }
    Ok(())
}

/// Reads a file that contains one number, in decimal or with `0x`.
///
/// # Errors
/// See [`read`]; also [`FileErrorKind::Malformed`].
pub fn read_number(path: &Path) -> Result<u64, FileError> {
    let text = read_text(path)?;
    let text = text.trim();
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| FileError::malformed(path, format!("expected a number, found {text:?}")))
}

/// Returns the sorted names in a directory. Names that are not UTF-8 are omitted, because no file of the kernel has one.
///
/// # Errors
/// The error of the kernel.
pub fn list(dir: &Path) -> Result<Vec<String>, FileError> {
    let mut names: Vec<String> =
        entries(dir)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Returns the entries of a directory in the order of the kernel, for callers that need their types.
///
/// # Errors
/// The error of the kernel.
#[expect(clippy::disallowed_methods, reason = "this is the place that every other place is sent to")]
pub fn entries(dir: &Path) -> Result<ReadDir, FileError> {
    std::fs::read_dir(dir).map_err(|error| FileError::io(dir, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Errno;

    #[test]
    fn only_three_octal_digits_are_undone() {
        for (field, plain) in [
            (r"/a\040b", "/a b"),
            (r"/a\134", r"/a\"),
            (r"/a\+12", r"/a\+12"),
            (r"/a\04", r"/a\04"),
            (r"/\777", r"/\777"),
        ] {
            assert_eq!(unescaped(field), plain, "{field}");
        }
    }

    #[test]
    fn a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), b"12345");
        let error = read_at_most(&path, 4).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::TooLarge { limit: 4 });
    }

    fn lines_of(content: &[u8], limit: u64) -> (Vec<Vec<u8>>, Result<(), FileErrorKind>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let mut read = Vec::new();
        let end = lines(file.path(), limit, |line| read.push(line.to_vec()));
        (read, end.map_err(|error| error.kind))
    }

    #[test]
    fn lines_are_the_same_however_the_file_is_cut_into_pieces() {
        for content in ["", "\n", "a", "a\n", "a\n\nb\n", "a\nb"] {
            let expected: Vec<Vec<u8>> = content.lines().map(|line| line.as_bytes().to_vec()).collect();
            assert_eq!(lines_of(content.as_bytes(), 100), (expected, Ok(())), "{content:?}");
        }
        let many: Vec<String> = (0..30_000).map(|number| format!("line {number}")).collect();
        let (read, end) = lines_of(many.join("\n").as_bytes(), 1 << 20);
        assert_eq!(end, Ok(()));
        assert!(read.iter().eq(many.iter().map(String::as_bytes)), "{} lines", read.len());
    }

    #[test]
    fn a_file_of_lines_is_bounded_as_a_whole_and_by_line() {
        assert_eq!(lines_of(b"a\nb\n", 4).1, Ok(()));
        assert_eq!(lines_of(b"a\nb\n", 3).1, Err(FileErrorKind::TooLarge { limit: 3 }));
        let longest = vec![b'x'; LINE_LIMIT - 1];
        assert_eq!(lines_of(&longest, 1 << 20), (vec![longest.clone()], Ok(())));
        let longer = vec![b'x'; LINE_LIMIT + 1];
        assert!(
            matches!(lines_of(&longer, 1 << 20), (none, Err(FileErrorKind::Malformed(_))) if none.is_empty())
        );
    }

    #[test]
    fn numbers_are_read_in_both_spellings() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n");
        std::fs::write(&path, "0x1f\n").unwrap();
        assert_eq!(read_number(&path), Ok(31));
        std::fs::write(&path, "42\n").unwrap();
        assert_eq!(read_number(&path), Ok(42));
        std::fs::write(&path, "many").unwrap();
        assert!(read_number(&path).unwrap_err().to_string().ends_with("expected a number, found \"many\""));
    }

    #[test]
    fn an_absent_file_says_so() {
        let error = read_text(Path::new("/nonexistent/x")).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::ENOENT));
        assert!(error.is_absent());
    }
}
