//! Socket to one helper: requests, responses, and files that the helper keeps open.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;

use super::wire::{self, Answer, CHUNK, Notice, NumberedRequest, Received, Request};
use super::{Report, Stat, Stuck};
use crate::clock::{Clock, Monotonic};
use crate::error::printable;
use crate::lock::{self, unpoisoned};

/// Response timeout. The helper always responds earlier, even if a file system blocks; otherwise it is abandoned.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(12);
/// Maximum number of pending close requests while the helper's queue is full.
const MAX_TO_CLOSE: usize = 1 << 16;

/// State shared by all connections of a client.
#[derive(Debug)]
pub(super) struct Shared {
    clock: Clock,
    stuck: Mutex<(Monotonic, Vec<Stuck>)>,
    /// Number of lifted quarantines.
    generation: AtomicU64,
    late: AtomicU64,
    kept: AtomicU64,
    /// Number of started helpers.
    pub(super) starts: AtomicU64,
    /// Process ID of the running helper, or 0.
    pub(super) helper: AtomicU32,
}

/// Socket to one helper.
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

/// File that the helper keeps open. Dropping it closes the file without waiting.
#[derive(Debug)]
pub struct HelperFile {
    connection: Arc<Connection>,
    number: u64,
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

    /// Wakes all threads that wait for a response.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        unpoisoned(self.waiting.lock()).clear();
        // The reader of responses exits, and so does the helper unless it is blocked.
        if let Err(errno) = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both) {
            tracing::debug!(%errno, "socket of the files helper process already closed");
        }
    }

    /// Sends a request and waits for its response.
    ///
    /// # Errors
    /// `ETIMEDOUT` if the response does not arrive in time, `ESTALE` if the helper has exited, `EAGAIN` if too many requests are queued.
    pub(super) fn ask(&self, request: Request) -> Result<Received<Answer>, Errno> {
        lock::assert_may_wait_for_files("a request to the helper process");
        self.close_files();
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, answered) = sync_channel(1);
        unpoisoned(self.waiting.lock()).insert(number, answer);
        let exchange = || {
            if self.has_ended() {
                return Err(Errno::STALE);
            }
            let sent =
                wire::send(self.socket.as_fd(), &NumberedRequest { number, request }, &[], None, false);
            sent.map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => Errno::AGAIN,
                _ => Errno::STALE,
            })?;
            answered.recv_timeout(RESPONSE_TIMEOUT).map_err(|error| match error {
                RecvTimeoutError::Timeout => Errno::TIMEDOUT,
                RecvTimeoutError::Disconnected => Errno::STALE,
            })
        };
        exchange().inspect_err(|_| drop(unpoisoned(self.waiting.lock()).remove(&number)))
    }

    /// Sends the close requests that were postponed because the queue was full.
    fn close_files(&self) {
        let files = std::mem::take(&mut *unpoisoned(self.to_close.lock()));
        files.into_iter().for_each(|file| self.close(file));
    }

    fn close(&self, file: u64) {
        let asked = NumberedRequest { number: 0, request: Request::Close { file } };
        if wire::send(self.socket.as_fd(), &asked, &[], None, false).is_err() && !self.has_ended() {
            let mut to_close = unpoisoned(self.to_close.lock());
            if to_close.len() < MAX_TO_CLOSE {
                to_close.push(file);
            }
        }
    }

    /// Reads messages of the helper until it exits.
    pub(super) fn read(&self) {
        let mut buffer = Vec::new();
        loop {
            match wire::receive::<Notice>(self.socket.as_fd(), &mut buffer) {
                Ok(Some(Received { message: Notice::Answer { number, answer }, bytes, descriptor })) => {
                    if let Some(waiting) = unpoisoned(self.waiting.lock()).remove(&number) {
                        // The channel has capacity 1; a thread that has stopped waiting receives nothing.
                        drop(waiting.try_send(Received { message: answer, bytes, descriptor }));
                    }
                }
                Ok(Some(Received { message: Notice::Stuck { all, lifted }, .. })) => {
                    self.shared.receive_notice(all, lifted);
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "invalid message from the files helper process");
                    break;
                }
            }
        }
        if !self.has_ended() {
            tracing::warn!(pid = self.pid, "files helper process exited; restarting");
        }
        self.end();
        self.shared.receive_notice(Vec::new(), true);
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
            let stuck = unpoisoned(self.stuck.lock());
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

    /// Updates the stuck operations, and logs each mount once when it becomes stuck and once when it recovers.
    fn receive_notice(&self, all: Vec<Stuck>, lifted: bool) {
        let mut stuck = unpoisoned(self.stuck.lock());
        let is_in = |list: &[Stuck], one: &Stuck| list.iter().any(|other| other.mount == one.mount);
        let known = stuck.1.len();
        if !lifted {
            self.late.fetch_add(all.len().saturating_sub(known) as u64, Ordering::Relaxed);
        }
        for one in all.iter().filter(|one| !is_in(&stuck.1, one)) {
            tracing::warn!(
                name: "perf_exporter.file_system.hung",
                mount = %printable(&one.mount),
                filesystem = %printable(&one.filesystem),
                pid = one.pid,
                path = %printable(&one.path),
                "file system does not respond; its files are skipped until it does"
            );
        }
        for one in stuck.1.iter().filter(|one| !is_in(&all, one)) {
            tracing::info!(
                name: "perf_exporter.file_system.recovered",
                mount = %printable(&one.mount),
                "file system responds again"
            );
        }
        *stuck = (self.clock.monotonic(), all);
        drop(stuck);
        if lifted {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl HelperFile {
    /// Creates a handle of a file that the helper has just opened under this number.
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

/// Converts a failed response to an error; a stuck file system becomes `ETIMEDOUT`.
fn failed(answer: &Answer) -> io::Error {
    io::Error::from_raw_os_error(match answer {
        Answer::Failed(errno) => errno.0,
        Answer::NotOpened(_) => libc::ETIMEDOUT,
        _ => libc::EIO,
    })
}

impl Drop for HelperFile {
    fn drop(&mut self) {
        self.connection.shared.kept.fetch_sub(1, Ordering::Relaxed);
        if !self.connection.has_ended() {
            self.connection.close(self.number);
        }
    }
}
