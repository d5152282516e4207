//! The helper process: runs operations on a few threads, one at a time on each, and reports stuck ones.

mod work;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::root::{Root, RootError};
use super::wire::{self, Answer, Notice, NumberedRequest, OpenRequest, Received, Request};
use super::{Contents, MAX_STUCK, Opened, Stuck};
use crate::clock::{Clock, Monotonic};
use crate::error::Errno;
use crate::host::Roots;
use work::{Job, OpenFile, Outcome, Task, Worker};

/// Deadline of an operation on a local file system. A disk that is busy for longer is unusable as well.
const LOCAL_DEADLINE: Duration = Duration::from_secs(5);
/// Deadline of an operation on a file system that can block.
const DEADLINE: Duration = Duration::from_secs(1);
/// Maximum number of concurrent operations of each kind (local and other), not counting stuck ones.
const AT_ONCE: usize = 4;
/// Maximum number of queued operations. Each requesting thread of the main process has one request at a time.
const MAX_QUEUED: usize = 256;

/// Resource on which an operation can block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// File system that can block.
    Mount(super::mounts::Mount),
    /// Memory or mappings of a process.
    Process(u32),
    /// Processes of a cgroup, each with its own root.
    Cgroup(Arc<str>),
    /// Path that was considered local.
    Path(String),
}

impl Key {
    /// Returns the mount point and the type of the file system.
    fn place(&self) -> (String, String) {
        match self {
            Self::Mount(mount) => (mount.point.to_string_lossy().into_owned(), mount.kind.clone()),
            Self::Process(pid) => (format!("/proc/{pid}"), "proc".into()),
            Self::Cgroup(path) => (path.to_string(), "cgroup".into()),
            Self::Path(path) => (path.clone(), "unknown".into()),
        }
    }
}

/// Runs the helper: reads requests from its standard input, a socket, until it is closed.
pub fn serve(socket: OwnedFd, roots: Roots) {
    let socket = Arc::new(socket);
    let (events, arrived) = channel();
    let (asked, requests) = (events.clone(), Arc::clone(&socket));
    let reader = thread::Builder::new().name("files-requests".into()).spawn(move || {
        let mut buffer = Vec::new();
        while let Ok(Some(Received { message, .. })) =
            wire::receive::<NumberedRequest>(requests.as_fd(), &mut buffer)
        {
            if asked.send(Event::Request(message)).is_err() {
                return;
            }
        }
        drop(asked.send(Event::End));
    });
    if reader.is_ok() {
        Dispatcher::new(socket, roots, events).run(&arrived);
    }
}

/// Event of the dispatcher.
enum Event {
    Request(NumberedRequest),
    /// The operation on this worker has ended.
    Done(u64, Outcome, Sender<Task>),
    End,
}

/// Queued operation.
struct Waiting {
    number: u64,
    job: Job,
    key: Option<Key>,
}

/// Operation in progress.
struct Running {
    /// Number of the request; `None` if it was already answered as stuck, or requires no response.
    number: Option<u64>,
    key: Option<Key>,
    began: Monotonic,
    pid: Option<u32>,
    path: String,
    is_stuck: bool,
}

/// Dispatcher thread, which tracks all operations. It runs no file operations itself.
struct Dispatcher {
    clock: Clock,
    socket: Arc<OwnedFd>,
    roots: Arc<Roots>,
    events: Sender<Event>,
    mounts: Arc<work::MountCache>,
    idle: Vec<Sender<Task>>,
    running: HashMap<u64, Running>,
    queue: VecDeque<Waiting>,
    files: HashMap<u64, Arc<OpenFile>>,
    /// Last used number of a file or an operation.
    last: u64,
}

impl Dispatcher {
    fn new(socket: Arc<OwnedFd>, roots: Roots, events: Sender<Event>) -> Self {
        Self {
            clock: Clock::system(),
            socket,
            mounts: Arc::new(work::MountCache::new()),
            roots: Arc::new(roots),
            events,
            idle: Vec::new(),
            running: HashMap::new(),
            queue: VecDeque::new(),
            files: HashMap::new(),
            last: 0,
        }
    }

    fn run(&mut self, arrived: &Receiver<Event>) {
        loop {
            let event = match self.until_next_deadline() {
                Some(wait) => arrived.recv_timeout(wait),
                None => arrived.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Request(asked)) => self.take(asked),
                Ok(Event::Done(operation, outcome, worker)) => self.finish(operation, outcome, worker),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look_at_deadlines();
            self.start_next();
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Queues a request, or rejects it.
    fn take(&mut self, NumberedRequest { number, request }: NumberedRequest) {
        let (job, key) = match request {
            Request::Read { file, .. } | Request::Stat { file } => {
                let Some(file) = self.files.get(&file).map(Arc::clone) else {
                    return self.answer(number, Answer::Failed(Errno::EBADF));
                };
                let key = file.key.clone();
                match request {
                    Request::Read { offset, length, .. } => (Job::Read(file, offset, length), key),
                    _ => (Job::Stat(file), key),
                }
            }
            Request::Close { file } => match self.files.remove(&file) {
                // Closing is also an operation of the file system.
                Some(file) => (Job::Close(Arc::clone(&file)), file.key.clone()),
                None => return,
            },
            Request::Open(request) => {
                let key = match &request {
                    OpenRequest::Process { pid, .. } => Some(Key::Process(*pid)),
                    OpenRequest::Path { root: Root::Cgroup(path), .. } => Some(Key::Cgroup(Arc::clone(path))),
                    OpenRequest::Path { .. } | OpenRequest::Mapped { .. } => None,
                };
                (Job::Open(request), key)
            }
        };
        self.submit(Waiting { number, job, key });
    }

    fn submit(&mut self, waiting: Waiting) {
        if let Some(hanging) = self.hanging(&waiting) {
            return self.refuse(waiting.number, hanging);
        }
        if self.queue.len() >= MAX_QUEUED && !matches!(waiting.job, Job::Close(_)) {
            let reason = format!("{MAX_QUEUED} operations are queued");
            return self.refuse(waiting.number, RootError::Unavailable(reason));
        }
        self.queue.push_back(waiting);
    }

    /// Returns the error for an operation on a mount that already blocks another operation. A close operation waits until that one has
    /// ended.
    fn hanging(&self, waiting: &Waiting) -> Option<RootError> {
        if matches!(waiting.job, Job::Close(_)) {
            return None;
        }
        let (_, path) = waiting.job.subject();
        let own = waiting.key.clone().unwrap_or_else(|| Key::Path(path.clone()));
        let mut stuck = self.running.values().filter(|running| running.is_stuck);
        if let Some(running) = stuck.clone().find(|running| running.key.as_ref() == Some(&own)) {
            return Some(running.error(path, self.clock.monotonic()));
        }
        let full = stuck.by_ref().count() >= MAX_STUCK && waiting.key.is_some();
        full.then(|| {
            RootError::Unavailable(format!("{MAX_STUCK} operations on files of other processes are stuck"))
        })
    }

    fn refuse(&self, number: u64, error: RootError) {
        self.answer(number, Answer::NotOpened(error));
    }

    /// Starts queued operations that are allowed to run concurrently.
    fn start_next(&mut self) {
        let mut at = 0;
        while at < self.queue.len() {
            let may = self.queue.get(at).is_some_and(|waiting| self.may_start(waiting));
            match may.then(|| self.queue.remove(at)).flatten() {
                Some(waiting) => self.start(waiting),
                None => at += 1,
            }
        }
    }

    fn may_start(&self, waiting: &Waiting) -> bool {
        let local = waiting.key.is_none();
        let alike = |running: &&Running| running.is_local() == local && !running.is_stuck;
        let busy = |running: &Running| waiting.key.is_some() && running.key == waiting.key;
        self.running.values().filter(alike).count() < AT_ONCE && !self.running.values().any(busy)
    }

    fn start(&mut self, Waiting { number, job, key }: Waiting) {
        let operation = self.next_number();
        let (pid, path) = job.subject();
        let wants_answer = !matches!(job, Job::Close(_));
        let running = Running {
            number: wants_answer.then_some(number),
            key: key.clone(),
            began: self.clock.monotonic(),
            pid,
            path,
            is_stuck: false,
        };
        let worker = self.idle.pop().or_else(|| {
            let events = self.events.clone();
            let worker = Worker { roots: Arc::clone(&self.roots), mounts: Arc::clone(&self.mounts) };
            worker
                .start(move |operation, outcome, own| drop(events.send(Event::Done(operation, outcome, own))))
        });
        let task = Task { operation, key, job: Box::new(job) };
        match worker.map(|worker| worker.send(task)) {
            Some(Ok(())) => {
                self.running.insert(operation, running);
            }
            _ => self.refuse(
                number,
                RootError::Unavailable("the helper process cannot start more threads".into()),
            ),
        }
    }

    /// Handles the end of an operation.
    fn finish(&mut self, operation: u64, outcome: Outcome, worker: Sender<Task>) {
        self.idle.push(worker);
        let Some(running) = self.running.remove(&operation) else { return };
        if running.is_stuck {
            self.tell_of_stuck(true);
        }
        let Some(number) = running.number else {
            // The request was already answered; the file is closed on a worker, because that may block.
            if let Outcome::Opened(OpenFile { opened, .. }) = outcome {
                let key = running.key.or(Some(Key::Path(running.path)));
                let opened = Opened { shown: "a file that is closed".into(), pid: None, ..opened };
                let job = Job::Close(Arc::new(OpenFile { opened, key: key.clone() }));
                self.queue.push_back(Waiting { number: 0, job, key });
            }
            return;
        };
        match outcome {
            Outcome::CanHang(key, request) => {
                self.submit(Waiting { number, job: Job::Open(request), key: Some(key) });
            }
            Outcome::Opened(OpenFile {
                opened: Opened { file: Contents::Local(file), shown, pid, .. },
                key: None,
            }) => {
                let answer = Answer::Opened { shown, pid, file: None };
                self.send(number, answer, &[], Some(file.as_fd()));
            }
            Outcome::Opened(mut file) => {
                let Opened { place, shown, pid, .. } = &mut file.opened;
                let (place, shown, pid) = (place.take(), shown.clone(), *pid);
                let name = self.next_number();
                self.files.insert(name, Arc::new(file));
                let answer = Answer::Opened { shown, pid, file: Some(name) };
                self.send(number, answer, &[], place.as_ref().map(AsFd::as_fd));
            }
            Outcome::Answer(answer, bytes) => self.send(number, answer, &bytes, None),
            Outcome::Closed => {}
        }
    }

    /// Fails operations past their deadline, and queued operations that would block on the same resource.
    fn look_at_deadlines(&mut self) {
        let now = self.clock.monotonic();
        let late: Vec<u64> = self
            .running
            .iter()
            .filter(|(_, running)| !running.is_stuck && now.since(running.began) >= running.deadline())
            .map(|(&operation, _)| operation)
            .collect();
        if late.is_empty() {
            return;
        }
        for operation in late {
            let Some(running) = self.running.get_mut(&operation) else { continue };
            running.is_stuck = true;
            running.key = running.key.take().or_else(|| Some(Key::Path(running.path.clone())));
            if let Some(number) = running.number.take() {
                let error = running.error(running.path.clone(), now);
                self.refuse(number, error);
            }
        }
        self.tell_of_stuck(false);
        for waiting in std::mem::take(&mut self.queue) {
            match self.hanging(&waiting) {
                Some(error) => self.refuse(waiting.number, error),
                None => self.queue.push_back(waiting),
            }
        }
    }

    fn until_next_deadline(&self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let waiting = self.running.values().filter(|running| !running.is_stuck);
        waiting.map(|running| running.deadline().saturating_sub(now.since(running.began))).min()
    }

    fn tell_of_stuck(&self, lifted: bool) {
        let now = self.clock.monotonic();
        let all = self.running.values().filter(|running| running.is_stuck).map(|running| running.stuck(now));
        // A closed socket is detected by the next request.
        drop(wire::send(self.socket.as_fd(), &Notice::Stuck { all: all.collect(), lifted }, &[], None, true));
    }

    fn answer(&self, number: u64, answer: Answer) {
        self.send(number, answer, &[], None);
    }

    fn send(&self, number: u64, answer: Answer, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) {
        let notice = Notice::Answer { number, answer };
        // A closed socket is detected by the next request.
        drop(wire::send(self.socket.as_fd(), &notice, bytes, descriptor, true));
    }
}

impl Running {
    fn is_local(&self) -> bool {
        matches!(self.key, None | Some(Key::Path(_)))
    }

    fn deadline(&self) -> Duration {
        if self.is_local() { LOCAL_DEADLINE } else { DEADLINE }
    }

    fn stuck(&self, now: Monotonic) -> Stuck {
        let (mount, filesystem) = self.key.as_ref().map(Key::place).unwrap_or_default();
        Stuck { mount, filesystem, pid: self.pid, path: self.path.clone(), since: now.since(self.began) }
    }

    fn error(&self, path: String, now: Monotonic) -> RootError {
        RootError::Stuck(Stuck { path, ..self.stuck(now) })
    }
}

/// Returns the process and path of a request, for messages.
fn path_of(request: &OpenRequest) -> (Option<u32>, String) {
    match request {
        OpenRequest::Path { root: Root::Process(pid), path, .. } => (Some(*pid), path.clone()),
        OpenRequest::Path { path, .. } => (None, path.clone()),
        OpenRequest::Mapped { pid, range: (start, end), .. } => {
            (Some(*pid), format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
        }
        OpenRequest::Process { pid, file } => {
            let path = file.path(Path::new(&format!("/proc/{pid}")));
            (Some(*pid), path.to_string_lossy().into_owned())
        }
    }
}
