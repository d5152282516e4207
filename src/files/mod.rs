//! Access to files of other processes: executables, debug files, perf maps, mappings, memory.
//!
//! ```text
//! Files ─► Client ─── socket ───► Helper (a child process) ─► one thread per operation in progress
//!   └► Opened ◄── descriptor of a file on a local file system, or number of a file that the helper keeps open
//! ```
//!
//! An operation on such a file can block forever: on a FUSE daemon or NFS server that does not respond, or on a page fault of the process.
//! A thread that waits for a FUSE request that the daemon has read is uninterruptible, so that even SIGKILL does not end it. Therefore a
//! child process, which this process can abandon, runs the operations. The child executes the same binary.
//!
//! * Each operation has a deadline. After it the caller gets [`RootError::Stuck`], and the mount (or the process, for files of `/proc`) is
//!   quarantined: operations on it fail immediately until the stuck one has ended.
//! * File systems that can block are recognized by their types in `mountinfo`, before the path is followed into them. At most one operation
//!   at a time is in progress on each such mount, so that each costs at most one stuck thread.
//! * Files on local file systems are passed as descriptors and read by this process. The helper reads the contents of all others.
//!
//! Threads that a scrape, a collection, a health check or shutdown waits for must not use this module.

mod client;
mod connection;
mod find;
mod helper;
mod metrics;
mod mounts;
mod opened;
mod owner;
mod root;
mod starter;
mod stat;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::Roots;
use client::Client;
pub use helper::serve;
pub use metrics::Metrics;
pub use opened::{Contents, Opened};
pub(crate) use owner::{is_of_process, is_readable_by};
pub use root::{Root, RootError};
pub use stat::Stat;
use wire::{OpenRequest, Purpose};

/// Opens and reads files of other processes. Clones share one helper.
#[derive(Debug, Clone)]
pub struct Files {
    roots: Arc<Roots>,
    client: Option<Arc<Client>>,
}

/// A file of a process below `/proc/PID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProcessFile {
    /// `maps`
    Maps,
    /// `maps` of one thread.
    ThreadMaps(u32),
    /// `mem`
    Memory,
}

impl ProcessFile {
    fn path(self, dir: &Path) -> PathBuf {
        match self {
            Self::Maps => dir.join("maps"),
            Self::ThreadMaps(tid) => dir.join("task").join(tid.to_string()).join("maps"),
            Self::Memory => dir.join("mem"),
        }
    }
}

/// Operation that has missed its deadline and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// Mount point as seen by the process; for files of `/proc`, the directory of the process.
    pub mount: String,
    /// Type of the file system, as in `mountinfo`.
    pub filesystem: String,
    /// Process to which the file belongs, if there is one.
    pub pid: Option<u32>,
    /// Path of the file.
    pub path: String,
    /// Time since the start of the operation.
    #[serde(rename = "since_seconds", with = "crate::clock::seconds")]
    pub since: Duration,
}

/// Status of [`Files`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Process ID of the helper, if one is running.
    pub helper: Option<u32>,
    /// Number of helpers started after the first, because previous ones exited or were abandoned.
    pub restarts: u64,
    /// Number of operations that missed their deadline since the start.
    pub late: u64,
    /// Stuck operations, at most [`MAX_STUCK`]. Files on the same mounts are skipped until they end.
    pub stuck: Vec<Stuck>,
    /// Number of files that the helper keeps open for this process.
    #[serde(skip)]
    pub kept: u64,
}

/// Maximum number of stuck operations. At this limit, all operations on file systems that can block fail.
pub const MAX_STUCK: usize = 8;

impl Files {
    /// Runs all operations on the calling thread: for tests, and for machines on which no child can be started.
    pub fn here(roots: &Roots) -> Self {
        Self { roots: Arc::new(roots.clone()), client: None }
    }

    /// Runs all operations in a child process: `program` with the subcommand `files-helper`. The first operation starts it.
    pub fn apart(roots: &Roots, program: PathBuf) -> Self {
        let roots = Arc::new(roots.clone());
        Self { client: Some(Client::new(program, &roots)), roots }
    }

    /// Starts child processes from a thread of its own, which has the restrictions of the calling thread, from now on. The child processes
    /// restrict their system calls. Without a child process, there is nothing to do.
    ///
    /// # Errors
    /// When no thread can be created.
    pub fn restrict(&self) -> std::io::Result<()> {
        self.client.as_ref().map_or(Ok(()), |client| client.restrict())
    }

    /// Returns the paths of the kernel's file systems.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Opens a regular file by its path in a root. `mount` is the mount point of cgroups, for a root of a cgroup.
    ///
    /// # Errors
    /// The part of the path that is missing, forbidden or of the wrong kind; [`RootError::Stuck`] and [`RootError::Unavailable`] if the
    /// operation blocks or cannot be run.
    pub fn open(&self, root: &Root, path: &str, mount: Option<&Path>) -> Result<Opened, RootError> {
        self.open_file(root, path, mount, Purpose::Read)
    }

    /// Opens a file in a directory to which any user can write, like [`open`](Self::open), but not if the path is a symbolic link: it could
    /// refer to a file that the user may not read.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn open_public(&self, root: &Root, path: &str) -> Result<Opened, RootError> {
        self.open_file(root, path, None, Purpose::ReadPublic)
    }

    /// Opens a file for a probe, like [`open`](Self::open). [`Opened::kernel_path`] is valid for it on any file system.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn open_to_probe(&self, root: &Root, path: &str, mount: Option<&Path>) -> Result<Opened, RootError> {
        self.open_file(root, path, mount, Purpose::Probe)
    }

    fn open_file(
        &self,
        root: &Root,
        path: &str,
        mount: Option<&Path>,
        purpose: Purpose,
    ) -> Result<Opened, RootError> {
        let cgroup_dir = match (root, mount) {
            (Root::Cgroup(cgroup), Some(mount)) => Some(mount.join(cgroup.trim_start_matches('/'))),
            _ => None,
        };
        let (root, path) = (root.clone(), path.to_owned());
        self.ask(OpenRequest::Path { root, path, cgroup_dir, purpose })
    }

    /// Opens the file that a process has mapped at exactly this address range, whatever its path refers to now.
    ///
    /// # Errors
    /// The process or the mapping does not exist, or access is not permitted; see also [`open`](Self::open).
    pub fn open_mapped(&self, pid: u32, range: (u64, u64), device: (u32, u32)) -> Result<Opened, RootError> {
        self.ask(OpenRequest::Mapped { pid, range, device })
    }

    /// Opens a file of `/proc/PID`.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn open_process(&self, pid: u32, file: ProcessFile) -> Result<Opened, RootError> {
        self.ask(OpenRequest::Process { pid, file })
    }

    fn ask(&self, request: OpenRequest) -> Result<Opened, RootError> {
        match &self.client {
            None => find::find(&request, &self.roots)?.open(false),
            Some(client) => client.open(request),
        }
    }

    /// Returns the number of lifted quarantines. If it has changed, an operation that failed with [`RootError::Stuck`] may succeed. Costs
    /// one atomic load.
    pub fn generation(&self) -> u64 {
        self.client.as_ref().map_or(0, |client| client.shared.generation())
    }

    /// Returns the status, without waiting.
    pub fn report(&self) -> Report {
        self.client.as_ref().map(|client| client.shared.report()).unwrap_or_default()
    }

    /// Abandons the helper: kills it without waiting for its exit. All later operations fail.
    pub fn stop(&self) {
        if let Some(client) = &self.client {
            client.stop();
        }
    }
}

impl From<&Roots> for Files {
    fn from(roots: &Roots) -> Self {
        Self::here(roots)
    }
}

impl From<&Self> for Files {
    fn from(files: &Self) -> Self {
        files.clone()
    }
}
