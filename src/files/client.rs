//! Client of the helper: sends requests, waits for responses, and restarts the helper after it exits.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::connection::{Connection, HelperFile, Shared};
use super::starter::Starter;
use super::wire::{self, Answer, OpenRequest, Request};
use super::{Contents, Opened, RootError};
use crate::clock::{Clock, Monotonic};
use crate::host::Roots;
use crate::lock::unpoisoned;

/// Delay before a restart of the helper.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of abandoned helpers with a stuck operation; at this number, no further helper is started.
const MAX_LEFT_BEHIND: usize = 3;

/// Client of the helper.
#[derive(Debug)]
pub(super) struct Client {
    program: PathBuf,
    roots: Arc<Roots>,
    clock: Clock,
    state: Mutex<State>,
    pub(super) shared: Arc<Shared>,
    stopped: AtomicBool,
    /// Starts helpers; `None` = the calling thread starts them.
    starter: OnceLock<Starter>,
    /// Whether helpers restrict themselves.
    sandbox: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Arc<Connection>>,
    child: Option<Child>,
    /// Helpers that were killed but have not exited yet.
    left_behind: Vec<Child>,
    started: Option<Monotonic>,
}

impl Client {
    pub(super) fn new(program: PathBuf, roots: &Arc<Roots>) -> Arc<Self> {
        let clock = Clock::system();
        Arc::new(Self {
            program,
            roots: Arc::clone(roots),
            shared: Arc::new(Shared::new(clock.clone())),
            clock,
            state: Mutex::default(),
            stopped: AtomicBool::new(false),
            starter: OnceLock::new(),
            sandbox: AtomicBool::new(false),
        })
    }

    /// Starts helpers from a thread that has the restrictions of the calling one, from now on. They restrict themselves further.
    pub(super) fn restrict(&self) -> io::Result<()> {
        self.sandbox.store(true, Ordering::Relaxed);
        let starter = Starter::new()?;
        // A second call keeps the first thread.
        self.starter.set(starter).ok();
        Ok(())
    }

    pub(super) fn open(&self, request: OpenRequest) -> Result<Opened, RootError> {
        let connection = self.connection()?;
        let received = connection.ask(Request::Open(request)).map_err(|errno| match errno {
            Errno::TIMEDOUT => {
                self.leave_behind(&connection);
                unavailable("the helper process did not respond and was abandoned")
            }
            Errno::AGAIN => unavailable("too many operations are in progress"),
            _ => unavailable("the helper process exited"),
        })?;
        match (received.message, received.descriptor) {
            (Answer::Opened { shown, pid, file: None }, Some(descriptor)) => {
                Ok(Opened { file: Contents::Local(File::from(descriptor)), place: None, shown, pid })
            }
            (Answer::Opened { shown, pid, file: Some(number) }, place) => {
                let file = Contents::Apart(HelperFile::new(connection, number));
                Ok(Opened { file, place, shown, pid })
            }
            (Answer::NotOpened(error), _) => Err(error),
            _ => Err(unavailable("the helper process returned an unexpected response, which is a bug")),
        }
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // A thread that is starting a helper may hold the lock for long. The helper exits with this process.
        if let Ok(mut state) = self.state.try_lock() {
            state.end_child(&self.shared);
        }
    }

    /// Returns the connection to the running helper, after starting one if necessary.
    fn connection(&self) -> Result<Arc<Connection>, RootError> {
        let mut state = unpoisoned(self.state.lock());
        if let Some(connection) = state.connection.as_ref().filter(|connection| !connection.has_ended()) {
            return Ok(Arc::clone(connection));
        }
        state.end_child(&self.shared);
        if self.stopped.load(Ordering::Acquire) {
            return Err(unavailable("the program is stopping"));
        }
        if state.left_behind.len() >= MAX_LEFT_BEHIND {
            return Err(unavailable("stuck helper processes cannot be killed, so no more are started"));
        }
        let now = self.clock.monotonic();
        if state.started.is_some_and(|started| now.since(started) < RESTART_AFTER) {
            return Err(unavailable("the helper process exited and is restarted in a second"));
        }
        state.started = Some(now);
        self.shared.starts.fetch_add(1, Ordering::Relaxed);
        match self.start() {
            Ok((child, connection)) => {
                self.shared.helper.store(child.id(), Ordering::Relaxed);
                (state.child, state.connection) = (Some(child), Some(Arc::clone(&connection)));
                Ok(connection)
            }
            Err(error) => Err(unavailable(&format!("the helper process cannot be started: {error}"))),
        }
    }

    fn start(&self) -> io::Result<(Child, Arc<Connection>)> {
        let (socket, other) = wire::pair()?;
        let mut command = Command::new(&self.program);
        let root =
            if self.roots.prefix.as_os_str().is_empty() { "/".as_ref() } else { self.roots.prefix.as_path() };
        command.arg("files-helper").arg("--host-root").arg(root);
        // Ctrl-C at a terminal must not kill the helper, because symbolization continues after it.
        command.process_group(0).stdin(Stdio::from(other)).stdout(Stdio::null());
        if self.sandbox.load(Ordering::Relaxed) {
            command.arg("--sandbox");
        }
        let child = match self.starter.get() {
            Some(starter) => starter.start(command)?,
            None => command.spawn()?,
        };
        let connection = Connection::new(socket, child.id(), &self.shared);
        let reader = Arc::clone(&connection);
        thread::Builder::new().name("files".into()).spawn(move || reader.read())?;
        Ok((child, connection))
    }

    /// Kills a helper that does not respond.
    fn leave_behind(&self, connection: &Arc<Connection>) {
        tracing::warn!(pid = connection.pid, "files helper process does not respond; killed");
        let mut state = unpoisoned(self.state.lock());
        if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            state.end_child(&self.shared);
        }
    }
}

impl State {
    /// Kills the helper, and reaps helpers that have exited. Does not wait: a helper that is blocked in the kernel exits when its file
    /// system responds.
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
