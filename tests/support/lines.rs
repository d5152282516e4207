//! Output of a child process, line by line, with a limit on each wait.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Maximum silence of a child before a test fails. Guests and loaded machines are slow, but no working child is silent for this long.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Lines of a pipe, read by a thread that ends with the pipe.
#[derive(Debug)]
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    pub(crate) fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            // A test may drop the receiver early. The rest of the pipe is then read and discarded, so that the child does not block on a
            // full pipe.
            BufReader::new(pipe).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Self(receiver)
    }

    /// Returns the next line, or `None` once the pipe is closed.
    ///
    /// # Panics
    /// After five minutes of silence.
    pub(crate) fn next(&self) -> Option<String> {
        match self.0.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a child process was silent for {TIMEOUT:?}"),
        }
    }

    /// Returns the lines that are available now.
    pub(crate) fn ready(&self) -> impl Iterator<Item = String> {
        self.0.try_iter()
    }
}
