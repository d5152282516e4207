//! The machine as facts: where its files are, and what it is. Everything that reads `/proc`, `/sys`, tracefs or a
//! cgroup file system does so through [`Roots`], so that the whole program runs on a directory of fixtures too.

mod cpuset;
mod environment;
mod facts;
mod nodes;
mod online;

pub use cpuset::{CpuSet, CpuSetError};
pub use environment::Environment;
pub(crate) use facts::online_cpus;
pub use facts::{Capabilities, Facts, KernelVersion};
pub use nodes::{Cpu, Nodes};
pub(crate) use online::Online;

use std::ffi::OsString;
use std::fs::{File, ReadDir};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{FileError, FileErrorKind};
use crate::lock;

/// What one file of `/proc` or `/sys` may hold at most, in bytes, before it is refused. The largest that we read,
/// `/proc/mounts` of a node with thousands of containers, stays far below.
const FILE_LIMIT: u64 = 16 << 20;
/// The longest line of a file that is read by lines, in bytes, and how much of it is held at once.
const LINE_LIMIT: usize = 64 << 10;

/// Where the kernel's file systems are mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// procfs, usually `/proc`.
    pub proc: PathBuf,
    /// sysfs, usually `/sys`.
    pub sys: PathBuf,
    /// tracefs, usually `/sys/kernel/tracing`; found through the mount table by [`Roots::under`].
    pub tracing: PathBuf,
    /// What stands before a path of the mount table; empty on the host itself, `/host` in a container that has the
    /// host's file systems there.
    pub prefix: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self::under(Path::new("/"))
    }
}

impl Roots {
    /// The usual places below `prefix` (`/` for this machine).
    pub fn under(prefix: &Path) -> Self {
        let sys = prefix.join("sys");
        let tracing = [sys.join("kernel/tracing"), sys.join("kernel/debug/tracing")]
            .into_iter()
            .find(|dir| dir.join("events").is_dir())
            .unwrap_or_else(|| sys.join("kernel/tracing"));
        Self { proc: prefix.join("proc"), sys, tracing, prefix: prefix.to_owned() }
    }

    /// A path of the mount table (absolute on the host), as this process can open it.
    pub fn mounted(&self, path: &str) -> PathBuf {
        self.prefix.join(path.trim_start_matches('/'))
    }
}

/// Undoes `mangle()` of the kernel in a field of `mountinfo`: blank, tab, newline, backslash and `#` are written as `\` and
/// three octal digits.
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

/// Reads bytes of an open file at any offset, wherever the file is held: in this process or by another one.
pub trait ReadAt {
    /// Reads some bytes from `offset` on; 0 at the end of the file.
    ///
    /// # Errors
    /// As `pread(2)`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// The length of the file in bytes.
    ///
    /// # Errors
    /// As `fstat(2)`.
    fn length(&self) -> io::Result<u64>;

    /// Fills the whole buffer.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), and [`ErrorKind::UnexpectedEof`] where the file ends before.
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

/// Bytes in memory.
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
/// The kernel's refusal, or [`FileErrorKind::TooLarge`].
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    read_at_most(path, FILE_LIMIT)
}

/// Reads a whole file of at most `limit` bytes.
///
/// # Errors
/// The kernel's refusal, or [`FileErrorKind::TooLarge`].
pub fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    lock::assert_may_block("reading a file");
    let file = File::open(path).map_err(|error| FileError::io(path, &error))?;
    let mut content = Vec::new();
    // One byte more than allowed tells a full file from one that is too large.
    file.take(limit + 1).read_to_end(&mut content).map_err(|error| FileError::io(path, &error))?;
    if content.len() as u64 > limit {
        return Err(FileError { path: path.to_owned(), kind: FileErrorKind::TooLarge { limit } });
    }
    Ok(content)
}

/// Reads a whole file of at most 16 MiB as text, without its last newline. Bytes that are not UTF-8 become U+FFFD.
///
/// # Errors
/// As [`read`].
pub fn read_text(path: &Path) -> Result<String, FileError> {
    let mut text = String::from_utf8_lossy(&read(path)?).into_owned();
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// Reads a file of lines of text, too large to be held at once, and shows each line without its newline. At most `limit`
/// bytes are read, and 64 KiB held.
///
/// # Errors
/// The kernel's refusal; [`FileErrorKind::TooLarge`], after the lines up to the limit; [`FileErrorKind::Malformed`] for
/// a line that is longer than 64 KiB.
pub fn lines(path: &Path, limit: u64, line: impl FnMut(&[u8])) -> Result<(), FileError> {
    lock::assert_may_block("reading a file");
    let mut file = File::open(path).map_err(|error| FileError::io(path, &error))?;
    lines_of(&mut file, path, limit, line)
}

/// The same of a file that is open. `path` is for messages.
///
/// # Errors
/// As [`lines`].
pub fn lines_of(
    file: &mut impl Read,
    path: &Path,
    limit: u64,
    mut line: impl FnMut(&[u8]),
) -> Result<(), FileError> {
    let mut buffer = vec![0; LINE_LIMIT];
    // The beginning of a line whose end has not been read yet is at the beginning of the buffer.
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

/// Reads a file that holds one number, in decimal or with `0x`.
///
/// # Errors
/// As [`read`], or [`FileErrorKind::Malformed`].
pub fn read_number(path: &Path) -> Result<u64, FileError> {
    let text = read_text(path)?;
    let text = text.trim();
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| FileError::malformed(path, format!("expected a number, found {text:?}")))
}

/// The names in a directory, sorted; names that are not UTF-8 are left out, for no file of the kernel has one.
///
/// # Errors
/// The kernel's refusal.
pub fn list(dir: &Path) -> Result<Vec<String>, FileError> {
    let mut names: Vec<String> =
        entries(dir)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// The entries of a directory in the order in which the kernel gives them, for readers that need their types.
///
/// # Errors
/// The kernel's refusal.
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
