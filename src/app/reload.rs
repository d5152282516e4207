//! Reload of the configuration without delaying collections. A thread reads and checks the file, another one reads the rules of access with
//! their files, and the collection thread polls for the results. If either fails, nothing changes.

use std::path::Path;
use std::time::Duration;

use tokio::sync::oneshot;

use super::web::{PendingRules, RulesReader};
use crate::clock::Monotonic;
use crate::config::{self, Config, LoadError, Loaded, Loader, Pending, Problem};
use crate::plan::Plan;
use crate::status::FailedReload;

/// Sends the outcome of a reload to the client.
pub(super) type Answer = oneshot::Sender<Result<String, String>>;

/// Interval between polls for the result.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Requested reloads.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    loader: Loader,
    /// Reads the rules of access; `None` without an HTTP server.
    rules: Option<RulesReader>,
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
    /// The file is read. This result is not checked yet.
    Loaded(Box<Loaded>),
    /// The configuration is valid. Its rules of access are being read.
    ReadingRules(Box<(Config, Vec<Problem>)>, PendingRules),
}

/// State of a reload after a poll.
enum Step {
    Ended(Box<Loaded>),
    /// The reload waits since this time.
    Waiting(State, Monotonic),
}

impl Step {
    fn ended(loaded: Loaded) -> Self {
        Self::Ended(Box::new(loaded))
    }
}

impl Reloads {
    /// Reloads the rules of access together with the configuration.
    pub(super) fn with_rules(self, rules: RulesReader) -> Self {
        Self { rules: Some(rules), ..self }
    }

    /// Returns the last attempt to read changed files of the rules of access, if it failed.
    pub(super) fn failed_rules(&self) -> Option<FailedReload> {
        self.rules.as_ref().and_then(RulesReader::failure)
    }

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
            None => State::Loaded(Box::new(Ok((Config::default(), Vec::new())))),
            Some(path) => match self.loader.begin(path.to_owned()) {
                Ok(pending) => State::Reading(pending),
                Err(error) => State::Loaded(Box::new(Err(error))),
            },
        };
        self.under_way = Some(PendingReload { state, since: now, answers });
    }

    /// Returns a reload that has completed or timed out, with the clients that requested it. Begins the next reload. `accept` checks a
    /// configuration before its rules of access are put in force.
    pub(super) fn ended(
        &mut self,
        file: Option<&Path>,
        now: Monotonic,
        accept: impl FnOnce(&Config) -> Result<(), LoadError>,
    ) -> Option<(Loaded, Vec<Answer>)> {
        let PendingReload { state, since, answers } = self.under_way.take()?;
        let is_late = now.since(since) >= config::DEADLINE;
        let step = match state {
            State::Loaded(loaded) => self.read_rules(*loaded, accept, now),
            State::Reading(pending) => match pending.poll() {
                Some(loaded) => self.read_rules(loaded, accept, now),
                None if is_late => Step::ended(pending.give_up()),
                None => Step::Waiting(State::Reading(pending), since),
            },
            State::ReadingRules(config, rules) => match rules.poll(is_late) {
                Some(Ok(warnings)) => Step::ended(Ok((config.0, [config.1, warnings].concat()))),
                Some(Err(error)) => Step::ended(Err(error)),
                None => Step::Waiting(State::ReadingRules(config, rules), since),
            },
        };
        let loaded = match step {
            Step::Ended(loaded) => *loaded,
            Step::Waiting(state, since) => {
                self.under_way = Some(PendingReload { state, since, answers });
                return None;
            }
        };
        if !self.next.is_empty() {
            let next = std::mem::take(&mut self.next);
            self.begin(file, next, now);
        }
        Some((loaded, answers))
    }

    /// Begins to read the rules of access of a configuration, if it is valid.
    fn read_rules(
        &self,
        loaded: Loaded,
        accept: impl FnOnce(&Config) -> Result<(), LoadError>,
        now: Monotonic,
    ) -> Step {
        let accepted = loaded.and_then(|loaded| accept(&loaded.0).map(|()| loaded));
        match (accepted, &self.rules) {
            (Ok(loaded), Some(reader)) => {
                let rules = reader.ask(loaded.0.web.clone());
                Step::Waiting(State::ReadingRules(Box::new(loaded), rules), now)
            }
            (loaded, _) => Step::ended(loaded),
        }
    }

    /// Returns the time that the collector may block: `due`, or the poll interval during a reload.
    pub(super) fn patience(&self, due: Duration) -> Duration {
        if self.under_way.is_some() { due.min(POLL_INTERVAL) } else { due }
    }
}

/// Describes changed settings that only take effect after a restart, because the socket, the budget and the capabilities stay the same.
pub(super) fn later(old: &Config, new: &Config, lacks_capabilities: bool) -> String {
    let changed = [
        ("listen", old.listen.all != new.listen.all),
        ("admin", old.listen.admin != new.listen.admin),
        ("socket_mode", old.listen.socket_mode != new.listen.socket_mode),
        ("limits.connections", old.limits.connections != new.limits.connections),
        ("limits.descriptors", old.limits.descriptors != new.limits.descriptors),
        ("probes or tracefs.mount, which need CAP_SYS_ADMIN", lacks_capabilities),
    ];
    let changed: Vec<&str> =
        changed.into_iter().filter_map(|(name, changed)| changed.then_some(name)).collect();
    if changed.is_empty() {
        return String::new();
    }
    format!("; restart to apply the new {}", changed.join(", "))
}

/// Logs that this host does not have everything that the configuration names.
pub(super) fn warn_of_mistakes(plan: &Plan) {
    let mistakes = plan.refusals.iter().filter(|refused| refused.mistake).count();
    if mistakes > 0 {
        tracing::warn!(
            mistakes,
            "this host does not have everything that the configuration names; the rest is in force; perf-exporter check lists each with \
             its line and what to write"
        );
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
            if let Some(ended) = reloads.ended(file, at(0), |_| Ok(())) {
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
        assert!(reloads.ended(Some(file.path()), at(0), |_| Ok(())).is_none());
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
