//! The threads of the helper, and the operations that they do. Each may hang for as long as a file system likes.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::{Key, path_of};
use crate::clock::{Clock, Monotonic};
use crate::error::Errno;
use crate::files::find::{self, Found};
use crate::files::mounts::{Mount, Mounts, Unlisted};
use crate::files::wire::{Answer, CHUNK, Request};
use crate::files::{Opened, Root, RootError, Stat};
use crate::host::Roots;

/// Stacks of workers are small: no operation recurses.
const STACK: usize = 256 << 10;
/// How long the mounts of a process are believed to be the same, unless a path leads into one that is not among them.
const FRESH: Duration = Duration::from_secs(1);
/// Of how many mount namespaces the mounts are remembered.
const MOST_NAMESPACES: usize = 64;

/// A file on a file system that can hang.
#[derive(Debug)]
pub(super) struct KeptFile {
    file: File,
    shown: PathBuf,
    pid: Option<u32>,
    pub(super) key: Key,
}

/// What a worker is to do.
pub(super) enum Job {
    Open(Request),
    Read(Arc<KeptFile>, u64, usize),
    Stat(Arc<KeptFile>),
    /// Close what it opened.
    Discard(Outcome),
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
    CanHang(Key, Request),
    Local {
        file: File,
        shown: PathBuf,
        pid: Option<u32>,
    },
    Opened {
        file: Arc<KeptFile>,
        shown: PathBuf,
        pid: Option<u32>,
        place: Option<OwnedFd>,
    },
    Read(Vec<u8>),
    Answer(Answer),
    Kept(Arc<KeptFile>),
    Closed,
}

impl Outcome {
    /// Whether dropping it closes a file.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Local { .. } | Self::Opened { .. } | Self::Kept(_))
    }
}

impl Job {
    /// The process and the path that it is about.
    pub(super) fn subject(&self) -> (Option<u32>, String) {
        match self {
            Self::Open(request) => path_of(request, Path::new("/proc")),
            Self::Read(file, ..) | Self::Stat(file) | Self::Discard(Outcome::Kept(file)) => {
                (file.pid, file.shown.to_string_lossy().into_owned())
            }
            Self::Discard(_) => (None, "a file that is closed".into()),
        }
    }

    /// The answer where it is not done.
    pub(super) fn refused(&self, error: RootError) -> Answer {
        Answer::NotOpened(error)
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
                    let error = RootError::Unavailable("the helper process has panicked: a bug".into());
                    Outcome::Answer(Answer::NotOpened(error))
                });
                done(operation, outcome, own.clone());
            }
        };
        thread::Builder::new().name("files-worker".into()).stack_size(STACK).spawn(work).ok()?;
        Some(jobs)
    }

    fn do_it(&self, job: Job, key: Option<Key>) -> Outcome {
        match job {
            Job::Open(request) => {
                self.open(request, key).unwrap_or_else(|error| Outcome::Answer(Answer::NotOpened(error)))
            }
            Job::Read(file, offset, length) => {
                let mut bytes = vec![0; length.min(CHUNK)];
                let read = loop {
                    match file.file.read_at(&mut bytes, offset) {
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        read => break read,
                    }
                };
                match read {
                    Ok(read) => {
                        bytes.truncate(read);
                        Outcome::Read(bytes)
                    }
                    Err(error) => Outcome::Answer(Answer::Failed(Errno::of(&error))),
                }
            }
            Job::Stat(file) => Outcome::Answer(match Stat::of(&file.file) {
                Ok(stat) => Answer::Stat(stat),
                Err(error) => Answer::Failed(Errno::of(&error)),
            }),
            Job::Discard(_) => Outcome::Closed,
        }
    }

    /// Opens a file. Without a key it is found out first whether that can hang.
    fn open(&self, request: Request, key: Option<Key>) -> Result<Outcome, RootError> {
        if key.is_none()
            && let Some(key) = self.key(&request)
        {
            return Ok(Outcome::CanHang(key, request));
        }
        let (found, place) = match &request {
            Request::Open { root, path, cgroup_dir, place } => {
                (find::find(root, path, &self.roots, cgroup_dir.as_deref())?, *place)
            }
            Request::OpenMapped { pid, range, .. } => (find::find_mapped(*pid, *range, &self.roots)?, false),
            Request::OpenProcess { pid, file } => {
                let Opened { file, shown, pid, .. } = find::open_process(*pid, *file, &self.roots)?;
                let super::super::Contents::Local(file) = file else { return Ok(Outcome::Closed) };
                let key = key.unwrap_or(Key::Process(pid.unwrap_or(0)));
                let file = Arc::new(KeptFile { file, shown: shown.clone(), pid, key });
                return Ok(Outcome::Opened { file, shown, pid, place: None });
            }
            _ => return Ok(Outcome::Answer(Answer::Failed(Errno::EINVAL))),
        };
        self.read(found, place)
    }

    /// Opens for reading what was found. The mount that it really is on decides who reads it.
    fn read(&self, found: Found, wants_place: bool) -> Result<Outcome, RootError> {
        let (shown, pid) = (found.shown.clone(), found.pid);
        let mount = self.mount_of(&found);
        let place = if wants_place { found.place.try_clone().ok() } else { None };
        let file = found.open()?.file;
        let super::super::Contents::Local(file) = file else { return Ok(Outcome::Closed) };
        Ok(match mount {
            None => Outcome::Local { file, shown, pid },
            Some(key) => {
                let file = Arc::new(KeptFile { file, shown: shown.clone(), pid, key });
                Outcome::Opened { file, shown, pid, place }
            }
        })
    }

    /// Where opening a file can hang, found out without asking a file system that can.
    fn key(&self, request: &Request) -> Option<Key> {
        let found = match request {
            Request::Open { root: Root::Process(pid), path, .. } => {
                let (dir, path) = (self.proc(*pid), Path::new(path));
                self.mounts.look(Some(&dir), |mounts| entered(mounts, &dir.join("root"), path))
            }
            Request::Open { path, .. } => {
                let path = self.roots.prefix.join(path.trim_start_matches('/'));
                self.mounts.look(None, |mounts| entered(mounts, Path::new("/"), &path))
            }
            Request::OpenMapped { pid, device, .. } => {
                self.mounts.look(Some(&self.proc(*pid)), |mounts| mounts.of_device(*device))
            }
            _ => return None,
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
    open_dir(root).map_or(Ok(None), |root| mounts.entered(root, path))
}

fn open_dir(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
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
