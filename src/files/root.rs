//! Roots of paths, and errors of opening files in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Stuck;
use crate::error::{Errno, FileError, printable};

/// Root directory of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Root {
    /// Root of the host.
    #[default]
    Host,
    /// Root of a process (`/proc/PID/root`).
    Process(u32),
    /// Roots of the processes of a cgroup, by its path.
    Cgroup(Arc<str>),
}

/// Reason why a file cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum RootError {
    /// The path is not absolute.
    #[error("{} is not an absolute path: begin it with /", printable(.0))]
    NotAbsolute(String),
    /// The process does not exist.
    #[error("process {0} does not exist or has exited; its files are accessible only while it runs")]
    NoProcess(u32),
    /// The cgroup does not exist.
    #[error("cgroup {} does not exist; start its first process and reload", printable(.0))]
    NoCgroup(String),
    /// Neither the cgroup nor its descendants have processes.
    #[error(
        "cgroup {} has no processes, which are required to access its files; start one and reload",
        printable(.0)
    )]
    NoProcesses(String),
    /// Access to the root of another process is not permitted.
    #[error("the root directory of process {pid} cannot be opened ({errno}): CAP_SYS_PTRACE is required")]
    ProcessForbidden {
        /// Process ID.
        pid: u32,
        /// Error of the kernel.
        errno: Errno,
    },
    /// Access to mapped files of another process is not permitted.
    #[error(
        "{} cannot be opened ({errno}): CAP_CHECKPOINT_RESTORE (Linux 5.9) or CAP_SYS_ADMIN is required", shown(.path)
    )]
    MappingForbidden {
        /// Path of the mapping.
        path: PathBuf,
        /// Error of the kernel.
        errno: Errno,
    },
    /// Reading the file is not permitted.
    #[error("{} cannot be read ({errno}): give this user read permission or CAP_DAC_READ_SEARCH", shown(.path))]
    FileForbidden {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        errno: Errno,
    },
    /// The file, or a parent directory, does not exist.
    #[error("{} does not exist{}", shown(.missing), remark(.link.as_deref(), .near.as_deref()))]
    Absent {
        /// First missing part of the path.
        missing: PathBuf,
        /// Target of the missing part, if it is a symbolic link; the target is then missing.
        link: Option<PathBuf>,
        /// Similar name in the same directory.
        near: Option<String>,
    },
    /// The file is not regular, so it cannot contain code.
    #[error("{} is {what}, not a regular file: give the path of the program or library", shown(.path))]
    NotRegular {
        /// Path.
        path: PathBuf,
        /// Kind of the file.
        what: String,
    },
    /// The path contains a magic link of `/proc`, or too many links.
    #[error(
        "{} contains a link that is not followed: a link of /proc, which can leave a container, or too many links; use \
         a path without it",
        shown(.0)
    )]
    Link(PathBuf),
    /// The kernel cannot resolve paths within a root.
    #[error(
        "paths inside of containers need the system call openat2 (Linux 5.6), which this kernel or the seccomp filter \
         of this container rejects: use a path of the host"
    )]
    NoOpenat2,
    /// Other error.
    #[error("{0}")]
    Unreadable(#[from] FileError),
    /// The file system does not respond, or the process cannot be read now.
    #[error(
        "{} is not available: the {} file system at {} has not responded for {} s; the file is opened when it responds",
        printable(&.0.path), printable(&.0.filesystem), printable(&.0.mount), .0.since.as_secs()
    )]
    Stuck(Stuck),
    /// The helper process cannot run the operation now.
    #[error("files of other processes are not available: {0}")]
    Unavailable(String),
}

impl RootError {
    /// Reports whether the operation may succeed later without a change to the file.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Stuck(_) | Self::Unavailable(_))
    }
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

fn remark(link: Option<&Path>, near: Option<&str>) -> String {
    match (link, near) {
        (Some(link), _) => {
            format!(": it is a symbolic link to {}, which is missing in this root", shown(link))
        }
        (None, Some(near)) => format!("; the directory contains {}", printable(near)),
        (None, None) => String::new(),
    }
}
