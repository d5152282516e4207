//! A thread that starts the helper.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// A thread that starts child processes for threads that are not allowed to. A child inherits the restrictions of the thread that starts
/// it. The thread ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Starter(Sender<StartRequest>);

type StartRequest = (Command, Sender<io::Result<Child>>);

impl Starter {
    /// Starts the thread, with the restrictions of the calling thread.
    ///
    /// # Errors
    /// When no thread can be created.
    pub(super) fn new() -> io::Result<Self> {
        let (sender, requests) = channel::<StartRequest>();
        thread::Builder::new().name("start-helper".into()).spawn(move || {
            for (mut command, started) in requests {
                // Without a receiver, the child is not wanted any more, and exits because its socket is closed.
                drop(started.send(command.spawn()));
            }
        })?;
        Ok(Self(sender))
    }

    /// Starts a child process.
    ///
    /// # Errors
    /// See [`Command::spawn`].
    pub(super) fn start(&self, command: Command) -> io::Result<Child> {
        let (started, result) = channel();
        let ended = || io::Error::other("the thread that starts processes has ended");
        self.0.send((command, started)).map_err(|_| ended())?;
        result.recv().map_err(|_| ended())?
    }
}
