//! The socket to one helper: requests, answers, and the files that the helper keeps open.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::wire::{self, Answer, Asked, CHUNK, Notice, Received, Request};
use super::{Report, Stat, Stuck};
use crate::clock::{Clock, Monotonic};
use crate::error::printable;
use crate::lock;

/// How long an answer is waited for. The helper answers before, whatever a file system does; if it does not, it is left
/// behind.
const PATIENCE: Duration = Duration::from_secs(12);
/// How many files are remembered to be closed while the helper takes no requests.
const MOST_TO_CLOSE: usize = 1 << 16;

/// What all connections of a client have in common.
#[derive(Debug)]
pub(super) struct Shared {
    clock: Clock,
    stuck: Mutex<(Monotonic, Vec<Stuck>)>,
    /// How often a quarantine was lifted.
    generation: AtomicU64,
    late: AtomicU64,
    kept: AtomicU64,
    /// Helpers that were started.
    pub(super) starts: AtomicU64,
    /// The process number of the one that runs, or 0.
    pub(super) helper: AtomicU32,
}

/// The socket to one helper.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    pub(super) pid: u32,
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

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, pid: u32, shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            socket,
            pid,
            ended: AtomicBool::new(false),
            last: AtomicU64::new(0),
            waiting: Mutex::default(),
            to_close: Mutex::default(),
            shared: Arc::clone(shared),
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Lets everybody go who waits for an answer.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        locked(&self.waiting).clear();
        // The reader of answers ends, and the helper too unless it hangs.
        if let Err(errno) = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both) {
            tracing::debug!(%errno, "the socket of the helper process is closed already");
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// `ETIMEDOUT` if the answer does not arrive in time, `ESTALE` if the helper has ended, `EAGAIN` if too many requests
    /// are queued.
    pub(super) fn ask(&self, request: Request) -> Result<Received<Answer>, Errno> {
        lock::assert_may_wait_for_files("a request to the helper process");
        self.close_files();
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, answered) = sync_channel(1);
        locked(&self.waiting).insert(number, answer);
        let exchange = || {
            if self.has_ended() {
                return Err(Errno::STALE);
            }
            let sent = wire::send(self.socket.as_fd(), &Asked { number, request }, &[], None, false);
            sent.map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => Errno::AGAIN,
                _ => Errno::STALE,
            })?;
            answered.recv_timeout(PATIENCE).map_err(|error| match error {
                RecvTimeoutError::Timeout => Errno::TIMEDOUT,
                RecvTimeoutError::Disconnected => Errno::STALE,
            })
        };
        exchange().inspect_err(|_| drop(locked(&self.waiting).remove(&number)))
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
    pub(super) fn read(&self) {
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
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            stuck: Mutex::default(),
            generation: AtomicU64::new(0),
            late: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            starts: AtomicU64::new(0),
            helper: AtomicU32::new(0),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(super) fn report(&self) -> Report {
        let stuck = {
            let stuck = locked(&self.stuck);
            let more = self.clock.monotonic().since(stuck.0);
            stuck.1.iter().map(|one| Stuck { since: one.since + more, ..one.clone() }).collect()
        };
        let helper = self.helper.load(Ordering::Relaxed);
        Report {
            stuck,
            late: self.late.load(Ordering::Relaxed),
            restarts: self.starts.load(Ordering::Relaxed).saturating_sub(1),
            kept: self.kept.load(Ordering::Relaxed),
            helper: (helper != 0).then_some(helper),
        }
    }

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
    /// A file that the helper has just opened, under this number.
    pub(super) fn new(connection: Arc<Connection>, number: u64) -> Arc<Self> {
        connection.shared.kept.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { connection, number })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.connection.has_ended()
    }

    pub(super) fn stat(&self) -> io::Result<Stat> {
        match self.connection.ask(Request::Stat { file: self.number })?.message {
            Answer::Stat(stat) => Ok(stat),
            answer => Err(failed(&answer)),
        }
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = buffer.len().min(CHUNK);
        let received = self.connection.ask(Request::Read { file: self.number, offset, length })?;
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
