//! The machine as facts: where its files are, and what it is. Everything that reads `/proc`, `/sys`, tracefs or a
//! cgroup file system does so through [`Roots`], so that the whole program runs on a directory of fixtures too.

mod cpuset;
mod facts;

pub use cpuset::{CpuSet, CpuSetError};
pub(crate) use facts::online_cpus;
pub use facts::{Capabilities, Facts, KernelVersion};

use std::fs::{File, ReadDir};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{FileError, FileErrorKind};

/// What one file of `/proc` or `/sys` may hold at most, in bytes, before it is refused. The largest that we read,
/// `/proc/mounts` of a node with thousands of containers, stays far below.
const FILE_LIMIT: u64 = 16 << 20;

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
    fn a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), b"12345");
        let error = read_at_most(&path, 4).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::TooLarge { limit: 4 });
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
