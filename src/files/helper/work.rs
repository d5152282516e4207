//! The threads of the helper, and the operations that they do. Each may hang for as long as a file system likes.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Key, path_of};
use crate::clock::{Clock, Monotonic};
use crate::error::Errno;
use crate::files::find::{self, Found};
use crate::files::mounts::{Mount, Mounts, Unlisted};
use crate::files::wire::{Answer, CHUNK, OpenRequest};
use crate::files::{Opened, Root, RootError};
use crate::host::{ReadAt, Roots};

/// Stacks of workers are small: no operation recurses.
const STACK: usize = 256 << 10;
/// How long the mounts of a process are believed to be the same, unless a path leads into one that is not among them.
const FRESH: Duration = Duration::from_secs(1);
/// Of how many mount namespaces the mounts are remembered.
const MOST_NAMESPACES: usize = 64;

/// A file that a worker opened.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) opened: Opened,
    /// What it can hang on; `None` on a local file system.
    pub(super) key: Option<Key>,
}

/// What a worker is to do.
pub(super) enum Job {
    Open(OpenRequest),
    Read(Arc<OpenFile>, u64, usize),
    Stat(Arc<OpenFile>),
    Close(Arc<OpenFile>),
}

/// A job under a number, with what is known of where it can hang.
pub(super) struct Task {
    pub(super) operation: u64,
    pub(super) key: Option<Key>,
    pub(super) job: Box<Job>,
}

/// What came of it.
pub(super) enum Outcome {
    /// Not tried: it leads into a file system that can hang.
    CanHang(Key, OpenRequest),
    Opened(OpenFile),
    /// The answer, and bytes that were read.
    Answer(Answer, Vec<u8>),
    Closed,
}

impl From<RootError> for Outcome {
    fn from(error: RootError) -> Self {
        Self::Answer(Answer::NotOpened(error), Vec::new())
    }
}

impl Job {
    /// The process and the path that it is about.
    pub(super) fn subject(&self) -> (Option<u32>, String) {
        match self {
            Self::Open(request) => path_of(request),
            Self::Read(file, ..) | Self::Stat(file) | Self::Close(file) => {
                (file.opened.pid, file.opened.shown.to_string_lossy().into_owned())
            }
        }
    }
}

/// A thread that does operations, one after the other.
pub(super) struct Worker {
    pub(super) roots: Arc<Roots>,
    pub(super) mounts: Arc<MountCache>,
}

impl Worker {
    /// Starts it; `done` gets the number of an operation, what came of it, and where the worker takes the next. `None` if
    /// there are no threads left.
    pub(super) fn start(
        self,
        done: impl Fn(u64, Outcome, Sender<Task>) + Send + 'static,
    ) -> Option<Sender<Task>> {
        let (jobs, arrived) = channel();
        let own = jobs.clone();
        let work = move || {
            for Task { operation, key, job } in arrived {
                let outcome = catch_unwind(AssertUnwindSafe(|| self.do_it(*job, key))).unwrap_or_else(|_| {
                    RootError::Unavailable("the helper process has panicked: a bug".into()).into()
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

    /// Opens a file. Without a key it is found out first whether that can hang.
    fn open(&self, request: OpenRequest, key: Option<Key>) -> Result<Outcome, RootError> {
        if key.is_none()
            && let Some(key) = self.key(&request)
        {
            return Ok(Outcome::CanHang(key, request));
        }
        let found = find::find(&request, &self.roots)?;
        // The mount that the file really is on decides who reads it.
        let (key, keep_place) = match request {
            OpenRequest::Process { .. } => (key, false),
            OpenRequest::Path { place, .. } => (self.mount_of(&found), place),
            OpenRequest::Mapped { .. } => (self.mount_of(&found), false),
        };
        Ok(Outcome::Opened(OpenFile { opened: found.open(keep_place)?, key }))
    }

    /// Where opening a file can hang, found out without asking a file system that can.
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

    /// The file system that can hang and that a file is on. One that nobody lists may hang as well.
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

/// The file system that can hang which a path leads into from the directory `root`; none if that cannot be opened.
fn entered<'m>(mounts: &'m Mounts, root: &Path, path: &Path) -> Result<Option<&'m Mount>, Unlisted> {
    find::open_dir(root).map_or(Ok(None), |root| mounts.entered(root, path))
}

/// The mounts of processes, read again when they are older than [`FRESH`].
pub(super) struct MountCache {
    clock: Clock,
    known: Mutex<HashMap<Namespace, Listed>>,
}

/// The mount namespace and the root of a process.
type Namespace = (PathBuf, PathBuf);

/// Mounts, and from when to when they were read.
struct Listed {
    mounts: Arc<Mounts>,
    begin: Monotonic,
    end: Monotonic,
}

impl Listed {
    /// Whether the list is believed. One that lacks a mount is read again at once, though not for more than half of the time: there
    /// are mounts that no list has, and lists can be long.
    fn is_fresh(&self, lacks_one: bool, now: Monotonic) -> bool {
        let longest = if lacks_one { self.end.since(self.begin) } else { FRESH };
        now.since(self.end) < longest
    }
}

impl MountCache {
    pub(super) fn new() -> Self {
        Self { clock: Clock::system(), known: Mutex::default() }
    }

    /// What is found in the mounts of a process, by its directory in `/proc`, or in those of this one.
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
        // Processes with the same namespace and root see the same mounts.
        let link = |name: &str| std::fs::read_link(dir.join(name)).unwrap_or_else(|_| dir.join(name));
        let key = (link("ns/mnt"), link("root"));
        let begin = self.clock.monotonic();
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listed) = lock().get(&key).filter(|listed| listed.is_fresh(lacks_one, begin)) {
            return Arc::clone(&listed.mounts);
        }
        let mounts = Arc::new(Mounts::read(dir, own));
        let end = self.clock.monotonic();
        let mut known = lock();
        if known.len() >= MOST_NAMESPACES {
            known.retain(|_, listed| listed.is_fresh(false, end));
        }
        if known.len() < MOST_NAMESPACES {
            known.insert(key, Listed { mounts: Arc::clone(&mounts), begin, end });
        }
        mounts
    }
}
