//! Files of other processes: executables, debug files, perf maps, lists of mappings, memory.
//!
//! ```text
//! Files ─► Client ─── socket ───► Helper (a child process) ─► a thread for each operation that is under way
//!   └► Opened ◄── the descriptor of a file on a local file system, or the number of a file that the helper keeps
//! ```
//!
//! An operation on such a file can hang: a FUSE daemon or an NFS server that does not answer, a page fault of the process
//! itself. A FUSE request that its daemon has read waits uninterruptibly, so that not even SIGKILL ends the thread that
//! waits. Therefore a child process does it, which this process can leave behind. The child executes the same binary.
//!
//! * Each operation has a deadline. After it the caller gets [`RootError::Stuck`], and the mount (or the process, for files
//!   of `/proc`) is quarantined: operations on it fail at once until the one that hangs has ended.
//! * File systems that can hang are recognized by their types in `mountinfo`, before the path is followed into them. At
//!   most one operation at a time is under way on each such mount, so that each costs at most one stuck thread.
//! * Files on local file systems are handed over as descriptors and read by this process. Of all others the helper reads
//!   the contents.
//!
//! No thread that a scrape, a collection, a health check or shutdown waits for may use this.

mod client;
mod connection;
mod find;
mod helper;
mod metrics;
mod mounts;
mod opened;
mod root;
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
pub use root::{Root, RootError};
pub use stat::Stat;
use wire::OpenRequest;

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
    /// `maps` of one of its threads.
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

/// An operation that has missed its deadline and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// The mount point, as the process sees it; for files of `/proc` the directory of the process.
    pub mount: String,
    /// The type of the file system, as in `mountinfo`.
    pub filesystem: String,
    /// The process whose file it is, where there is one.
    pub pid: Option<u32>,
    /// The file.
    pub path: String,
    /// How long ago it began.
    #[serde(rename = "since_seconds", with = "crate::clock::seconds")]
    pub since: Duration,
}

/// What [`Files`] report about themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The process number of the helper, if one runs.
    pub helper: Option<u32>,
    /// Helpers that were started after the first: others had ended, or had to be left behind.
    pub restarts: u64,
    /// Operations that missed their deadline since the start.
    pub late: u64,
    /// Operations that hang, at most [`MOST_STUCK`]. Files on the same mounts are left out until they end.
    pub stuck: Vec<Stuck>,
    /// Files that the helper keeps open for this process.
    #[serde(skip)]
    pub kept: u64,
}

/// The most operations that may hang at a time. Beyond it every operation on a file system that can hang is refused.
pub const MOST_STUCK: usize = 8;

impl Files {
    /// Does everything on the calling thread, in this process: for tests, and for machines where no child can be started.
    pub fn here(roots: &Roots) -> Self {
        Self { roots: Arc::new(roots.clone()), client: None }
    }

    /// Does everything in a child process, which is `program` with the sub-command `files-helper`. It is started by the
    /// first operation.
    pub fn apart(roots: &Roots, program: PathBuf) -> Self {
        let roots = Arc::new(roots.clone());
        Self { client: Some(Client::new(program, &roots)), roots }
    }

    /// Where the kernel's file systems are.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Opens a regular file by its path in a root; `mount` is where cgroups are mounted, for a root that names one.
    ///
    /// # Errors
    /// Says which part of the path is missing, forbidden or of the wrong kind; [`RootError::Stuck`] and [`RootError::Unavailable`] where that hangs or cannot be tried.
    pub fn open(&self, root: &Root, path: &str, mount: Option<&Path>) -> Result<Opened, RootError> {
        self.open_file(root, path, mount, false)
    }

    /// The same for a file that gets a probe: [`Opened::kernel_path`] leads to it wherever it lies.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_probe(&self, root: &Root, path: &str, mount: Option<&Path>) -> Result<Opened, RootError> {
        self.open_file(root, path, mount, true)
    }

    fn open_file(
        &self,
        root: &Root,
        path: &str,
        mount: Option<&Path>,
        place: bool,
    ) -> Result<Opened, RootError> {
        let cgroup_dir = match (root, mount) {
            (Root::Cgroup(cgroup), Some(mount)) => Some(mount.join(cgroup.trim_start_matches('/'))),
            _ => None,
        };
        let (root, path) = (root.clone(), path.to_owned());
        self.ask(OpenRequest::Path { root, path, cgroup_dir, place })
    }

    /// Opens the file that a process has mapped at exactly these addresses, whatever has become of its path.
    ///
    /// # Errors
    /// The process or the mapping is gone, or this process may not look; and as [`open`](Self::open).
    pub fn open_mapped(&self, pid: u32, range: (u64, u64), device: (u32, u32)) -> Result<Opened, RootError> {
        self.ask(OpenRequest::Mapped { pid, range, device })
    }

    /// Opens a file of `/proc/PID`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_process(&self, pid: u32, file: ProcessFile) -> Result<Opened, RootError> {
        self.ask(OpenRequest::Process { pid, file })
    }

    fn ask(&self, request: OpenRequest) -> Result<Opened, RootError> {
        match &self.client {
            None => find::find(&request, &self.roots)?.open(false),
            Some(client) => client.open(request),
        }
    }

    /// How often a quarantine was lifted: an operation that was [`RootError::Stuck`] is worth another try when this has
    /// changed. Costs one atomic load.
    pub fn generation(&self) -> u64 {
        self.client.as_ref().map_or(0, |client| client.shared.generation())
    }

    /// What hangs, and what came of it. Waits for nothing.
    pub fn report(&self) -> Report {
        self.client.as_ref().map(|client| client.shared.report()).unwrap_or_default()
    }

    /// Leaves the helper behind: it is killed, and not waited for. Every operation fails from here on.
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
