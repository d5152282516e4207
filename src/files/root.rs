//! Whose file system a path is in, and why a file in it cannot be opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Stuck;
use crate::error::{Errno, FileError, printable};

/// Whose file system a path is in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Root {
    /// The host's.
    #[default]
    Host,
    /// That of a process (`/proc/PID/root`).
    Process(u32),
    /// That of the processes of a cgroup, by its path.
    Cgroup(Arc<str>),
}

/// Why a file cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum RootError {
    /// The path does not begin at the root.
    #[error("{} is not an absolute path: begin it with /", printable(.0))]
    NotAbsolute(String),
    /// There is no such process.
    #[error("there is no process {0}, or it has ended: its files can be found only while it runs")]
    NoProcess(u32),
    /// There is no such cgroup.
    #[error("there is no cgroup {}: it appears when its first process starts; start it and reload", printable(.0))]
    NoCgroup(String),
    /// Neither the cgroup nor any below it has a process.
    #[error(
        "no process is in cgroup {}: the files of a container are found through one; start it and reload",
        printable(.0)
    )]
    NoProcesses(String),
    /// This process may not look into that of others.
    #[error("the file system of process {pid} cannot be looked at ({errno}): that needs CAP_SYS_PTRACE")]
    ProcessForbidden {
        /// The process.
        pid: u32,
        /// The kernel's answer.
        errno: Errno,
    },
    /// This process may not look up the files that others have mapped.
    #[error(
        "{} cannot be looked at ({errno}): that needs CAP_CHECKPOINT_RESTORE (Linux 5.9) or CAP_SYS_ADMIN", shown(.path)
    )]
    MappingForbidden {
        /// The mapping.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// This process may not read the file.
    #[error("{} cannot be read ({errno}): give this user the right to, or CAP_DAC_READ_SEARCH", shown(.path))]
    FileForbidden {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The file is not there, or a directory on the way to it.
    #[error("{} is not there{}", shown(.missing), remark(.link.as_deref(), .near.as_deref()))]
    Absent {
        /// The first part of the path that is missing.
        missing: PathBuf,
        /// What it leads to, if it is a symbolic link; that is what is missing then.
        link: Option<PathBuf>,
        /// A name much like it in the same directory.
        near: Option<String>,
    },
    /// It cannot hold code.
    #[error("{} is {what}, not a regular file: name the program or library", shown(.path))]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// The path leads through a link of `/proc`, or through links without end.
    #[error(
        "{} leads through a link that is not followed: one of /proc, which leads out of a container, or too many; name \
         the file without it",
        shown(.0)
    )]
    Link(PathBuf),
    /// The kernel cannot look up a path within a root.
    #[error(
        "paths inside of containers need the system call openat2 (Linux 5.6), which this kernel, or the seccomp filter \
         of this container, refuses: name the file by a path of the host"
    )]
    NoOpenat2,
    /// Something else is wrong.
    #[error("{0}")]
    Unreadable(#[from] FileError),
    /// The file system does not answer, or the process cannot be read now.
    #[error(
        "{} is not available: the {} file system at {} has not answered for {} s; the file is opened when it answers",
        printable(&.0.path), printable(&.0.filesystem), printable(&.0.mount), .0.since.as_secs()
    )]
    Stuck(Stuck),
    /// The helper process cannot do it now.
    #[error("files of other processes are not available: {0}")]
    Unavailable(String),
}

impl RootError {
    /// Whether the same operation may succeed later without any change to the file: nothing is known about it now.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Stuck(_) | Self::Unavailable(_))
    }
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

fn remark(link: Option<&Path>, near: Option<&str>) -> String {
    match (link, near) {
        (Some(link), _) => format!(", as a symbolic link to {} that leads nowhere in this root", shown(link)),
        (None, Some(near)) => format!("; the directory has {}", printable(near)),
        (None, None) => String::new(),
    }
}
