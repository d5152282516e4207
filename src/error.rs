//! Errors shared by several modules: an errno, and a file that could not be used.
//!
//! This module does not interpret an errno. Its meaning depends on the operation and on the host; see [`health`](crate::health).

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An errno, as returned by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident),+ $(,)?) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Self = Self(libc::$name);)+

            /// Returns the symbolic name (`"ENOENT"`), or `None` for an errno that is not in the list.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $(libc::$name => Some(stringify!($name)),)+ _ => None }
            }
        }
    };
}

errnos!(
    EPERM,
    ENOENT,
    ESRCH,
    EINTR,
    EIO,
    E2BIG,
    EBADF,
    EAGAIN,
    ENOMEM,
    EACCES,
    EFAULT,
    EBUSY,
    EEXIST,
    ENODEV,
    ENOTDIR,
    EISDIR,
    EINVAL,
    ENFILE,
    EMFILE,
    ENOTTY,
    EFBIG,
    ENOSPC,
    EROFS,
    ERANGE,
    ENOSYS,
    ELOOP,
    EOVERFLOW,
    EILSEQ,
    EOPNOTSUPP,
    ETIMEDOUT,
    EADDRINUSE,
    EADDRNOTAVAIL,
);

impl Errno {
    /// Returns the errno of an I/O error; `EIO` for errors created by the Rust standard library.
    pub fn of(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Returns the errno of the last system call of this thread.
    pub fn last() -> Self {
        Self::of(&io::Error::last_os_error())
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = io::Error::from_raw_os_error(self.0).to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        match self.name() {
            Some(name) => write!(f, "{name}: {text}"),
            None => write!(f, "errno {}: {text}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl std::error::Error for Errno {}

/// A file or directory that could not be used, with its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileError {
    /// The path as it was opened, including the root.
    pub path: PathBuf,
    /// The reason.
    pub kind: FileErrorKind,
}

/// Reason why a file could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileErrorKind {
    /// The kernel returned an error.
    Errno(Errno),
    /// The file is larger than the limit of the reader.
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The content is invalid, with a description.
    Malformed(String),
}

impl FileError {
    /// Creates an error from an I/O error.
    pub fn io(path: impl Into<PathBuf>, error: &io::Error) -> Self {
        Self { path: path.into(), kind: FileErrorKind::Errno(Errno::of(error)) }
    }

    /// Creates an error for invalid content.
    pub fn malformed(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self { path: path.into(), kind: FileErrorKind::Malformed(what.into()) }
    }

    /// Returns the errno, if the kernel returned one.
    pub fn errno(&self) -> Option<Errno> {
        match self.kind {
            FileErrorKind::Errno(errno) => Some(errno),
            _ => None,
        }
    }

    /// Reports whether the file does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self.errno(), Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ESRCH | Errno::ENODEV))
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable(&self.path.to_string_lossy());
        match &self.kind {
            FileErrorKind::Errno(errno) => write!(f, "{path}: {errno}"),
            FileErrorKind::TooLarge { limit } => write!(f, "{path}: larger than {limit} bytes"),
            FileErrorKind::Malformed(what) => write!(f, "{path}: {what}"),
        }
    }
}

impl std::error::Error for FileError {}

/// Escapes a text from untrusted input, such as the name of a cgroup, for one line of a terminal or a log. Control characters and
/// bidirectional formatting characters become `\n`, `\u{1b}`, …
pub fn printable(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_prints_its_name_and_its_meaning() {
        assert_eq!(Errno::ENOENT.to_string(), "ENOENT: No such file or directory");
        assert_eq!(format!("{:?}", Errno::EMFILE), "EMFILE");
        assert_eq!(Errno(4095).to_string(), "errno 4095: Unknown error 4095");
    }

    #[test]
    fn a_file_error_names_its_path() {
        let error = FileError::io("/proc/1/x", &io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(error.to_string(), "/proc/1/x: EACCES: Permission denied");
        assert!(!error.is_absent());
    }

    #[test]
    fn what_others_named_cannot_write_to_a_terminal() {
        assert_eq!(printable("a\nb\u{1b}[2J\u{202e}c"), "a\\nb\\u{1b}[2J\\u{202e}c");
        assert_eq!(printable("/système/é.slice"), "/système/é.slice");
        let error = FileError::malformed("/cg/a\nb", "x");
        assert_eq!(error.to_string(), "/cg/a\\nb: x");
    }
}
