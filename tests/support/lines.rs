//! What a child process says, line by line, without ever waiting for it longer than is sensible.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How long a child may be silent before a test gives up. Guests are slow, and so are machines with much to do; nothing
/// that is alive takes this long.
const PATIENCE: Duration = Duration::from_secs(300);

/// The lines of a pipe, read by a thread that ends with the pipe.
#[derive(Debug)]
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    pub(crate) fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            // A test that has seen enough drops the receiver: the rest is read and thrown away, so that the child
            // never waits for a full pipe.
            BufReader::new(pipe).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Self(receiver)
    }

    /// The next line; `None` once the pipe is closed.
    ///
    /// # Panics
    /// After five minutes of silence.
    pub(crate) fn next(&self) -> Option<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a child process was silent for {PATIENCE:?}"),
        }
    }

    /// The lines that are there already.
    pub(crate) fn ready(&self) -> impl Iterator<Item = String> {
        self.0.try_iter()
    }
}
