//! Reads the configuration again without holding up collections: a thread reads and checks the file, the collector looks
//! between two collections whether it is done.

use std::path::Path;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Monotonic;
use crate::config::{self, Config, LoadError, Loaded, Loader, Pending};

/// Tells whoever asked for a reload what became of it.
pub(super) type Answer = oneshot::Sender<Result<String, String>>;

/// How often it is looked whether a configuration was read.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The reloads that were asked for.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    loader: Loader,
    under_way: Option<UnderWay>,
    /// Asked for while a file was read, which may have changed since: it is read once more for all of them.
    next: Vec<Answer>,
}

#[derive(Debug)]
struct UnderWay {
    state: State,
    since: Monotonic,
    answers: Vec<Answer>,
}

#[derive(Debug)]
enum State {
    Reading(Pending),
    /// It ended at once.
    Done(Box<Loaded>),
}

impl Reloads {
    /// Asks for a reload of a file; without one, of the built-in configuration.
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
        self.under_way = Some(UnderWay { state, since: now, answers });
    }

    /// A reload that has ended or missed its deadline, and those who asked for it. Begins the next one.
    pub(super) fn ended(&mut self, file: Option<&Path>, now: Monotonic) -> Option<(Loaded, Vec<Answer>)> {
        let UnderWay { state, since, answers } = self.under_way.take()?;
        let loaded = match state {
            State::Done(loaded) => *loaded,
            State::Reading(pending) => match pending.poll() {
                Some(loaded) => loaded,
                None if now.since(since) >= config::DEADLINE => pending.give_up(),
                None => {
                    self.under_way = Some(UnderWay { state: State::Reading(pending), since, answers });
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

    /// How long the collector may wait for something else to do, of the time that it would.
    pub(super) fn patience(&self, due: Duration) -> Duration {
        if self.under_way.is_some() { due.min(LOOK_EVERY) } else { due }
    }
}

/// What a failed reload is answered with.
pub(super) fn refused(error: &LoadError) -> Result<String, String> {
    Err(error.lines().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    /// What ended; a thread needs time.
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
        assert_eq!((first.unwrap().0.listen.port(), answers.len()), (1, 1));
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
