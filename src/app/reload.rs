//! Reload of the configuration without delaying collections. A thread reads and checks the file, and the collection thread polls for the
//! result.

use std::path::Path;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Monotonic;
use crate::config::{self, Config, LoadError, Loaded, Loader, Pending};

/// Sends the outcome of a reload to the client.
pub(super) type Answer = oneshot::Sender<Result<String, String>>;

/// Interval between polls for the result.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Requested reloads.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    loader: Loader,
    under_way: Option<PendingReload>,
    /// Requests that arrived while the file was being read. The file may have changed since, therefore it is read once more for all of
    /// them.
    next: Vec<Answer>,
}

#[derive(Debug)]
struct PendingReload {
    state: State,
    since: Monotonic,
    answers: Vec<Answer>,
}

#[derive(Debug)]
enum State {
    Reading(Pending),
    /// The result was immediately available.
    Done(Box<Loaded>),
}

impl Reloads {
    /// Requests a reload of a file, or of the built-in configuration if there is no file.
    pub(super) fn ask(&mut self, file: Option<&Path>, answer: Answer, now: Monotonic) {
        if self.under_way.is_some() {
            self.next.push(answer);
        } else {
            self.begin(file, vec![answer], now);
        }
    }

    fn begin(&mut self, file: Option<&Path>, answers: Vec<Answer>, now: Monotonic) {
        let state = match file {
            None => State::Done(Box::new(Ok((Config::default(), Vec::new())))),
            Some(path) => match self.loader.begin(path.to_owned()) {
                Ok(pending) => State::Reading(pending),
                Err(error) => State::Done(Box::new(Err(error))),
            },
        };
        self.under_way = Some(PendingReload { state, since: now, answers });
    }

    /// Returns a reload that has completed or timed out, with the clients that requested it. Begins the next reload.
    pub(super) fn ended(&mut self, file: Option<&Path>, now: Monotonic) -> Option<(Loaded, Vec<Answer>)> {
        let PendingReload { state, since, answers } = self.under_way.take()?;
        let loaded = match state {
            State::Done(loaded) => *loaded,
            State::Reading(pending) => match pending.poll() {
                Some(loaded) => loaded,
                None if now.since(since) >= config::DEADLINE => pending.give_up(),
                None => {
                    self.under_way = Some(PendingReload { state: State::Reading(pending), since, answers });
                    return None;
                }
            },
        };
        if !self.next.is_empty() {
            let next = std::mem::take(&mut self.next);
            self.begin(file, next, now);
        }
        Some((loaded, answers))
    }

    /// Returns the time that the collector may block: `due`, or the poll interval during a reload.
    pub(super) fn patience(&self, due: Duration) -> Duration {
        if self.under_way.is_some() { due.min(POLL_INTERVAL) } else { due }
    }
}

/// Returns the response for a failed reload.
pub(super) fn refused(error: &LoadError) -> Result<String, String> {
    Err(error.lines().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    /// Waits for the end of a reload.
    fn ended(reloads: &mut Reloads, file: Option<&Path>) -> (Loaded, Vec<Answer>) {
        for _ in 0..6000 {
            if let Some(ended) = reloads.ended(file, at(0)) {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }

    #[test]
    fn who_asks_while_a_file_is_read_has_it_read_once_more() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "listen: 127.0.0.1:1\n").unwrap();
        let mut reloads = Reloads::default();
        for _ in 0..3 {
            reloads.ask(Some(file.path()), oneshot::channel().0, at(0));
        }
        let (first, answers) = ended(&mut reloads, Some(file.path()));
        assert_eq!(
            (first.unwrap().0.listen.all[0].to_string(), answers.len()),
            ("127.0.0.1:1".to_owned(), 1)
        );
        let (second, answers) = ended(&mut reloads, Some(file.path()));
        assert_eq!((second.is_ok(), answers.len()), (true, 2));
        assert!(reloads.ended(Some(file.path()), at(0)).is_none());
        assert_eq!(reloads.patience(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn without_a_file_the_built_in_configuration_is_loaded() {
        let mut reloads = Reloads::default();
        reloads.ask(None, oneshot::channel().0, at(0));
        assert!(reloads.patience(Duration::MAX) < Duration::from_secs(1));
        assert_eq!(ended(&mut reloads, None).0.unwrap().0, Config::default());
    }

    #[test]
    fn a_fifo_is_refused_with_what_helps() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("perf-exporter.yaml");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let mut reloads = Reloads::default();
        reloads.ask(Some(&fifo), oneshot::channel().0, at(0));
        let error = ended(&mut reloads, Some(&fifo)).0.unwrap_err();
        assert!(
            refused(&error).unwrap_err().contains("a named pipe (FIFO); give the path of a regular file")
        );
    }
}
