//! This process's end: asks the helper, waits for its answers, starts another one when it has ended.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::opened::{Contents, Opened, Stat};
use super::root::RootError;
use super::wire::{self, Answer, Asked, CHUNK, Notice, Received, Request};
use super::{Report, Stuck};
use crate::clock::{Clock, Monotonic};
use crate::error::printable;
use crate::host::Roots;
use crate::lock;

/// How long an answer is waited for. The helper answers before, whatever a file system does; if it does not, it is left
/// behind.
const PATIENCE: Duration = Duration::from_secs(12);
/// How long after its end a helper is started again.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// How many helpers that cannot end, because an operation of theirs hangs, are left behind before no other is started.
const MOST_LEFT_BEHIND: usize = 3;
/// How many files are remembered to be closed while the helper takes no requests.
const MOST_TO_CLOSE: usize = 1 << 16;

/// Asks the helper.
#[derive(Debug)]
pub(super) struct Client {
    program: PathBuf,
    roots: Arc<Roots>,
    clock: Clock,
    state: Mutex<State>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Arc<Connection>>,
    child: Option<Child>,
    /// Killed, and not ended yet.
    left_behind: Vec<Child>,
    started: Option<Monotonic>,
}

/// What all connections of a client have in common.
#[derive(Debug)]
struct Shared {
    clock: Clock,
    stuck: Mutex<(Monotonic, Vec<Stuck>)>,
    generation: AtomicU64,
    late: AtomicU64,
    kept: AtomicU64,
    /// Helpers that were started.
    starts: AtomicU64,
    /// The process number of the one that runs, or 0.
    helper: AtomicU32,
    stopped: AtomicBool,
}

/// The socket to one helper.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    pid: u32,
    ended: AtomicBool,
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, SyncSender<Received<Answer>>>>,
    to_close: Mutex<Vec<u64>>,
    shared: Arc<Shared>,
}

/// A file that the helper keeps open. It is closed when this is dropped, which waits for nothing.
#[derive(Debug)]
pub struct Kept {
    connection: Arc<Connection>,
    number: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    pub(super) fn new(program: PathBuf, roots: &Arc<Roots>) -> Arc<Self> {
        let clock = Clock::system();
        let shared = Arc::new(Shared {
            clock: clock.clone(),
            stuck: Mutex::default(),
            generation: AtomicU64::new(0),
            late: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            starts: AtomicU64::new(0),
            helper: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
        });
        Arc::new(Self { program, roots: Arc::clone(roots), clock, state: Mutex::default(), shared })
    }

    pub(super) fn open(&self, request: &Request) -> Result<Opened, RootError> {
        let connection = self.connection()?;
        let received = match connection.ask(request.clone()) {
            Ok(received) => received,
            Err(Unanswered::Late) => {
                self.leave_behind(&connection);
                return Err(unavailable("the helper process did not answer and was left behind"));
            }
            Err(Unanswered::Ended) => return Err(unavailable("the helper process has ended")),
            Err(Unanswered::Busy) => return Err(unavailable("too many operations are under way")),
        };
        match (received.message, received.descriptor) {
            (Answer::Opened { shown, pid, file: None }, Some(descriptor)) => {
                Ok(Opened { file: Contents::Local(File::from(descriptor)), place: None, shown, pid })
            }
            (Answer::Opened { shown, pid, file: Some(number) }, place) => {
                self.shared.kept.fetch_add(1, Ordering::Relaxed);
                let file = Contents::Apart(Arc::new(Kept { connection, number }));
                Ok(Opened { file, place, shown, pid })
            }
            (Answer::NotOpened(error), _) => Err(error),
            _ => Err(unavailable("the helper process gave an answer to another question: a bug")),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Relaxed)
    }

    pub(super) fn report(&self) -> Report {
        let shared = &self.shared;
        let stuck = {
            let stuck = locked(&shared.stuck);
            let more = self.clock.monotonic().since(stuck.0);
            stuck.1.iter().map(|one| Stuck { since: one.since + more, ..one.clone() }).collect()
        };
        let helper = shared.helper.load(Ordering::Relaxed);
        Report {
            stuck,
            late: shared.late.load(Ordering::Relaxed),
            restarts: shared.starts.load(Ordering::Relaxed).saturating_sub(1),
            kept: shared.kept.load(Ordering::Relaxed),
            helper: (helper != 0).then_some(helper),
        }
    }

    pub(super) fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        // A thread that starts a helper just now may take long. The helper ends with this process.
        if let Ok(mut state) = self.state.try_lock() {
            state.end_child(&self.shared);
        }
    }

    /// The connection to a helper that runs, which is started if there is none.
    fn connection(&self) -> Result<Arc<Connection>, RootError> {
        let mut state = locked(&self.state);
        if let Some(connection) = state.connection.as_ref().filter(|connection| !connection.has_ended()) {
            return Ok(Arc::clone(connection));
        }
        state.end_child(&self.shared);
        if self.shared.stopped.load(Ordering::Acquire) {
            return Err(unavailable("the program is stopping"));
        }
        if state.left_behind.len() >= MOST_LEFT_BEHIND {
            return Err(unavailable(
                "helper processes that hang cannot be ended, and no other one is started",
            ));
        }
        let now = self.clock.monotonic();
        if state.started.is_some_and(|started| now.since(started) < RESTART_AFTER) {
            return Err(unavailable("the helper process has ended and is started again in a second"));
        }
        state.started = Some(now);
        self.shared.starts.fetch_add(1, Ordering::Relaxed);
        match self.start() {
            Ok((child, connection)) => {
                self.shared.helper.store(child.id(), Ordering::Relaxed);
                (state.child, state.connection) = (Some(child), Some(Arc::clone(&connection)));
                Ok(connection)
            }
            Err(error) => {
                Err(RootError::Unavailable(format!("the helper process cannot be started: {error}")))
            }
        }
    }

    fn start(&self) -> io::Result<(Child, Arc<Connection>)> {
        let (socket, other) = wire::pair()?;
        let mut command = Command::new(&self.program);
        let root =
            if self.roots.prefix.as_os_str().is_empty() { "/".as_ref() } else { self.roots.prefix.as_path() };
        command.arg("files-helper").arg("--host-root").arg(root);
        // Ctrl-C at a terminal is for the process that was typed; names are wanted after it.
        command.process_group(0).stdin(Stdio::from(other)).stdout(Stdio::null());
        let child = command.spawn()?;
        let connection = Arc::new(Connection {
            socket,
            pid: child.id(),
            ended: AtomicBool::new(false),
            last: AtomicU64::new(0),
            waiting: Mutex::default(),
            to_close: Mutex::default(),
            shared: Arc::clone(&self.shared),
        });
        let reader = Arc::clone(&connection);
        thread::Builder::new().name("files".into()).spawn(move || reader.read())?;
        Ok((child, connection))
    }

    /// Kills a helper that does not answer.
    fn leave_behind(&self, connection: &Arc<Connection>) {
        tracing::warn!(
            pid = connection.pid,
            "the helper process for files of other processes does not answer: killed"
        );
        let mut state = locked(&self.state);
        if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            state.end_child(&self.shared);
        }
    }
}

impl State {
    /// Ends the helper, and takes note of those that have ended. Waits for none: one that hangs in the kernel ends when
    /// its file system answers.
    fn end_child(&mut self, shared: &Shared) {
        shared.helper.store(0, Ordering::Relaxed);
        if let Some(connection) = self.connection.take() {
            connection.end();
        }
        if let Some(mut child) = self.child.take() {
            if let Err(error) = child.kill() {
                tracing::debug!(%error, "the helper process cannot be killed");
            }
            self.left_behind.push(child);
        }
        self.left_behind.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop();
    }
}

fn unavailable(reason: &str) -> RootError {
    RootError::Unavailable(reason.into())
}

/// Why there is no answer.
enum Unanswered {
    Late,
    Ended,
    Busy,
}

impl Connection {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Lets everybody go who waits for an answer.
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        locked(&self.waiting).clear();
        // The reader of answers ends, and the helper too unless it hangs.
        if let Err(errno) = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both) {
            tracing::debug!(%errno, "the socket of the helper process is closed already");
        }
    }

    fn ask(&self, request: Request) -> Result<Received<Answer>, Unanswered> {
        lock::assert_may_wait_for_files("a request to the helper process");
        self.close_files();
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, answered) = sync_channel(1);
        locked(&self.waiting).insert(number, answer);
        if self.has_ended() {
            locked(&self.waiting).remove(&number);
            return Err(Unanswered::Ended);
        }
        if let Err(error) = wire::send(self.socket.as_fd(), &Asked { number, request }, &[], None, false) {
            locked(&self.waiting).remove(&number);
            return Err(if error.kind() == io::ErrorKind::WouldBlock {
                Unanswered::Busy
            } else {
                Unanswered::Ended
            });
        }
        answered.recv_timeout(PATIENCE).map_err(|error| {
            locked(&self.waiting).remove(&number);
            match error {
                RecvTimeoutError::Timeout => Unanswered::Late,
                RecvTimeoutError::Disconnected => Unanswered::Ended,
            }
        })
    }

    /// Has the helper close what was dropped while it took no requests.
    fn close_files(&self) {
        let files = std::mem::take(&mut *locked(&self.to_close));
        files.into_iter().for_each(|file| self.close(file));
    }

    fn close(&self, file: u64) {
        let asked = Asked { number: 0, request: Request::Close { file } };
        if wire::send(self.socket.as_fd(), &asked, &[], None, false).is_err() && !self.has_ended() {
            let mut to_close = locked(&self.to_close);
            if to_close.len() < MOST_TO_CLOSE {
                to_close.push(file);
            }
        }
    }

    /// Reads what the helper writes, until it ends.
    fn read(&self) {
        let mut buffer = Vec::new();
        loop {
            match wire::receive::<Notice>(self.socket.as_fd(), &mut buffer) {
                Ok(Some(Received { message: Notice::Answer { number, answer }, bytes, descriptor })) => {
                    if let Some(waiting) = locked(&self.waiting).remove(&number) {
                        // There is room for one; a thread that waits no longer gets nothing.
                        drop(waiting.try_send(Received { message: answer, bytes, descriptor }));
                    }
                }
                Ok(Some(Received { message: Notice::Stuck { all, lifted }, .. })) => {
                    self.shared.hear(all, lifted);
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "invalid message from the helper process that opens files of other processes");
                    break;
                }
            }
        }
        if !self.has_ended() {
            tracing::warn!(
                pid = self.pid,
                "the helper process for files of other processes has ended; it is started again"
            );
        }
        self.end();
        self.shared.hear(Vec::new(), true);
    }
}

impl Shared {
    /// Takes note of what hangs, and logs each mount once when it begins to and once when it has ended.
    fn hear(&self, all: Vec<Stuck>, lifted: bool) {
        let mut stuck = locked(&self.stuck);
        let is_in = |list: &[Stuck], one: &Stuck| list.iter().any(|other| other.mount == one.mount);
        let known = stuck.1.len();
        if !lifted {
            self.late.fetch_add(all.len().saturating_sub(known) as u64, Ordering::Relaxed);
        }
        for one in all.iter().filter(|one| !is_in(&stuck.1, one)) {
            tracing::warn!(
                mount = %printable(&one.mount),
                filesystem = %printable(&one.filesystem),
                pid = one.pid,
                path = %printable(&one.path),
                "a file system does not answer: files on it are left out until it does"
            );
        }
        for one in stuck.1.iter().filter(|one| !is_in(&all, one)) {
            tracing::info!(mount = %printable(&one.mount), "file system responds again");
        }
        *stuck = (self.clock.monotonic(), all);
        drop(stuck);
        if lifted {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Kept {
    fn ask(&self, request: Request) -> io::Result<Received<Answer>> {
        self.connection.ask(request).map_err(|unanswered| {
            io::Error::from_raw_os_error(match unanswered {
                Unanswered::Late => libc::ETIMEDOUT,
                Unanswered::Ended => libc::ESTALE,
                Unanswered::Busy => libc::EAGAIN,
            })
        })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.connection.has_ended()
    }

    pub(super) fn stat(&self) -> io::Result<Stat> {
        match self.ask(Request::Stat { file: self.number })?.message {
            Answer::Stat(stat) => Ok(stat),
            answer => Err(failed(&answer)),
        }
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = buffer.len().min(CHUNK);
        let received = self.ask(Request::Read { file: self.number, offset, length })?;
        match received.message {
            Answer::Read => {
                let read = received.bytes.len().min(length);
                if let (Some(to), Some(from)) = (buffer.get_mut(..read), received.bytes.get(..read)) {
                    to.copy_from_slice(from);
                }
                Ok(read)
            }
            answer => Err(failed(&answer)),
        }
    }
}

/// The file system said no, or nothing in time.
fn failed(answer: &Answer) -> io::Error {
    io::Error::from_raw_os_error(match answer {
        Answer::Failed(errno) => errno.0,
        Answer::NotOpened(_) => libc::ETIMEDOUT,
        _ => libc::EIO,
    })
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.connection.shared.kept.fetch_sub(1, Ordering::Relaxed);
        if !self.connection.has_ended() {
            self.connection.close(self.number);
        }
    }
}
