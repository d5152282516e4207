//! Worker threads of the helper, and their operations. Each operation can block for an unlimited time.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::{Key, path_of};
use crate::clock::{Clock, Monotonic};
use crate::error::Errno;
use crate::files::find::{self, Found};
use crate::files::mounts::{Mount, Mounts, Unlisted};
use crate::files::wire::{Answer, CHUNK, OpenRequest, Purpose};
use crate::files::{Opened, Root, RootError};
use crate::host::{ReadAt, Roots};
use crate::lock::unpoisoned;

/// Stack size of workers in bytes; no operation recurses.
const STACK: usize = 256 << 10;
/// Maximum age of the mount list of a process, unless a path leads into a mount that is missing from it.
const FRESH: Duration = Duration::from_secs(1);
/// Maximum number of mount namespaces with a cached mount list.
const MAX_NAMESPACES: usize = 64;

/// File opened by a worker.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) opened: Opened,
    /// Resource on which it can block; `None` on a local file system.
    pub(super) key: Option<Key>,
}

/// Operation of a worker.
pub(super) enum Job {
    Open(OpenRequest),
    Read(Arc<OpenFile>, u64, usize),
    Stat(Arc<OpenFile>),
    Close(Arc<OpenFile>),
}

/// Job with its operation number, and the resource on which it can block, if known.
pub(super) struct Task {
    pub(super) operation: u64,
    pub(super) key: Option<Key>,
    pub(super) job: Box<Job>,
}

/// Result of a job.
pub(super) enum Outcome {
    /// Not started: the path leads into a file system that can block.
    CanHang(Key, OpenRequest),
    Opened(OpenFile),
    /// Response, and bytes that were read.
    Answer(Answer, Vec<u8>),
    Closed,
}

impl From<RootError> for Outcome {
    fn from(error: RootError) -> Self {
        Self::Answer(Answer::NotOpened(error), Vec::new())
    }
}

impl Job {
    /// Returns the process and the path of the job.
    pub(super) fn subject(&self) -> (Option<u32>, String) {
        match self {
            Self::Open(request) => path_of(request),
            Self::Read(file, ..) | Self::Stat(file) | Self::Close(file) => {
                (file.opened.pid, file.opened.shown.to_string_lossy().into_owned())
            }
        }
    }
}

/// Thread that runs operations, one after the other.
pub(super) struct Worker {
    pub(super) roots: Arc<Roots>,
    pub(super) mounts: Arc<MountCache>,
}

impl Worker {
    /// Starts the thread. `done` receives the operation number, the result, and the channel for the next task. Returns `None` if the thread
    /// cannot be started.
    pub(super) fn start(
        self,
        done: impl Fn(u64, Outcome, Sender<Task>) + Send + 'static,
    ) -> Option<Sender<Task>> {
        let (jobs, arrived) = channel();
        let own = jobs.clone();
        let work = move || {
            for Task { operation, key, job } in arrived {
                let outcome = catch_unwind(AssertUnwindSafe(|| self.do_it(*job, key))).unwrap_or_else(|_| {
                    RootError::Unavailable("the helper process panicked, which is a bug".into()).into()
                });
                done(operation, outcome, own.clone());
            }
        };
        thread::Builder::new().name("files-worker".into()).stack_size(STACK).spawn(work).ok()?;
        Some(jobs)
    }

    fn do_it(&self, job: Job, key: Option<Key>) -> Outcome {
        let answered = match job {
            Job::Open(request) => return self.open(request, key).unwrap_or_else(Outcome::from),
            Job::Read(file, offset, length) => {
                let mut bytes = vec![0; length.min(CHUNK)];
                let read = loop {
                    match file.opened.read_at(&mut bytes, offset) {
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        read => break read,
                    }
                };
                bytes.truncate(*read.as_ref().unwrap_or(&0));
                read.map(|_| (Answer::Read, bytes))
            }
            Job::Stat(file) => file.opened.file.stat().map(|stat| (Answer::Stat(stat), Vec::new())),
            Job::Close(_) => return Outcome::Closed,
        };
        let (answer, bytes) =
            answered.unwrap_or_else(|error| (Answer::Failed(Errno::of(&error)), Vec::new()));
        Outcome::Answer(answer, bytes)
    }

    /// Opens a file. Without a key, first determines whether the file can block.
    fn open(&self, request: OpenRequest, key: Option<Key>) -> Result<Outcome, RootError> {
        if key.is_none()
            && let Some(key) = self.key(&request)
        {
            return Ok(Outcome::CanHang(key, request));
        }
        let found = find::find(&request, &self.roots)?;
        // The actual mount of the file determines which process reads it.
        let (key, keep_place) = match request {
            OpenRequest::Process { .. } => (key, false),
            OpenRequest::Path { purpose, .. } => (self.mount_of(&found), purpose == Purpose::Probe),
            OpenRequest::Mapped { .. } => (self.mount_of(&found), false),
        };
        Ok(Outcome::Opened(OpenFile { opened: found.open(keep_place)?, key }))
    }

    /// Determines on which resource opening a file can block, without a request to a file system that can block.
    fn key(&self, request: &OpenRequest) -> Option<Key> {
        let found = match request {
            OpenRequest::Path { root: Root::Process(pid), path, .. } => {
                let (dir, path) = (self.proc(*pid), Path::new(path));
                self.mounts.look(Some(&dir), |mounts| entered(mounts, &dir.join("root"), path))
            }
            OpenRequest::Path { path, .. } => {
                let path = self.roots.prefix.join(path.trim_start_matches('/'));
                self.mounts.look(None, |mounts| entered(mounts, Path::new("/"), &path))
            }
            OpenRequest::Mapped { pid, device, .. } => {
                self.mounts.look(Some(&self.proc(*pid)), |mounts| mounts.of_device(*device))
            }
            OpenRequest::Process { .. } => return None,
        };
        found.ok().flatten()
    }

    /// Returns the file system of a file, if it can block. A mount that is not listed is assumed to block.
    fn mount_of(&self, found: &Found) -> Option<Key> {
        let look = |of: Option<&Path>| self.mounts.look(of, |mounts| mounts.of_place(&found.place));
        let theirs = found.pid.map_or(Err(Unlisted), |pid| look(Some(&self.proc(pid))));
        let listed = theirs.or_else(|Unlisted| look(None));
        listed.unwrap_or_else(|Unlisted| Some(Key::Path(found.shown.to_string_lossy().into_owned())))
    }

    fn proc(&self, pid: u32) -> PathBuf {
        self.roots.proc.join(pid.to_string())
    }
}

/// Returns the file system that can block on a path from the directory `root`; `None` if that cannot be opened.
fn entered<'m>(mounts: &'m Mounts, root: &Path, path: &Path) -> Result<Option<&'m Mount>, Unlisted> {
    find::open_dir(root).map_or(Ok(None), |root| mounts.entered(root, path))
}

/// Cache of the mounts of processes, refreshed after [`FRESH`].
pub(super) struct MountCache {
    clock: Clock,
    known: Mutex<HashMap<Namespace, Listed>>,
}

/// Mount namespace and root of a process.
type Namespace = (PathBuf, PathBuf);

/// Mount list with the time range of reading it.
struct Listed {
    mounts: Arc<Mounts>,
    begin: Monotonic,
    end: Monotonic,
}

impl Listed {
    /// Reports whether the list is fresh. A list that lacks a mount is read again, but for at most half of the time, because some mounts
    /// are in no list and lists can be long.
    fn is_fresh(&self, lacks_one: bool, now: Monotonic) -> bool {
        let longest = if lacks_one { self.end.since(self.begin) } else { FRESH };
        now.since(self.end) < longest
    }
}

impl MountCache {
    pub(super) fn new() -> Self {
        Self { clock: Clock::system(), known: Mutex::default() }
    }

    /// Looks up a mount in the mount list of `process`, a directory in `/proc`, or of this process if it is `None`.
    fn look(
        &self,
        process: Option<&Path>,
        find: impl Fn(&Mounts) -> Result<Option<&Mount>, Unlisted>,
    ) -> Result<Option<Key>, Unlisted> {
        let found =
            |lacks_one| find(&self.of(process, lacks_one)).map(|mount| mount.cloned().map(Key::Mount));
        found(false).or_else(|Unlisted| found(true))
    }

    fn of(&self, process: Option<&Path>, lacks_one: bool) -> Arc<Mounts> {
        match process {
            None => self.read(Path::new("/proc/self"), None, lacks_one),
            Some(dir) => self.read(dir, Some(&self.of(None, false)), lacks_one),
        }
    }

    fn read(&self, dir: &Path, own: Option<&Mounts>, lacks_one: bool) -> Arc<Mounts> {
        // Processes with the same namespace and root have the same mounts.
        let link = |name: &str| std::fs::read_link(dir.join(name)).unwrap_or_else(|_| dir.join(name));
        let key = (link("ns/mnt"), link("root"));
        let begin = self.clock.monotonic();
        let lock = || unpoisoned(self.known.lock());
        if let Some(listed) = lock().get(&key).filter(|listed| listed.is_fresh(lacks_one, begin)) {
            return Arc::clone(&listed.mounts);
        }
        let mounts = Arc::new(Mounts::read(dir, own));
        let end = self.clock.monotonic();
        let mut known = lock();
        if known.len() >= MAX_NAMESPACES {
            known.retain(|_, listed| listed.is_fresh(false, end));
        }
        if known.len() < MAX_NAMESPACES {
            known.insert(key, Listed { mounts: Arc::clone(&mounts), begin, end });
        }
        mounts
    }
}
