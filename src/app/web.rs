//! Rules of access to the HTTP server. They are read from the section `web` of the configuration, from the web configuration file and from
//! certificates, and read again at a reload and when one of these files changes.
//!
//! A thread of its own reads the files, because a file system can block forever. Only this thread puts rules in force. A reload waits for it
//! with a deadline, and rules that are read later are discarded: they belong to a reload that has failed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::Failure;
use crate::clock::Clock;
use crate::config::{self, LoadError, OpenedWeb, Problem, Web};
use crate::export::http::Rules;
use crate::host::{Environment, Roots};
use crate::lock::Lock;
use crate::status::FailedReload;

/// Interval at which the files are checked for changes.
const INTERVAL: Duration = Duration::from_secs(5);

/// The rules in force, and their reader.
#[derive(Debug)]
pub(super) struct WebAccess {
    /// The rules in force.
    pub(super) rules: watch::Receiver<Arc<Rules>>,
    /// The reader of the files.
    pub(super) reader: RulesReader,
}

/// Connection to the thread that reads the rules.
#[derive(Debug, Clone)]
pub(super) struct RulesReader {
    requests: Sender<Request>,
    failure: SharedFailure,
}

/// The last attempt to read changed files; `None` if it succeeded.
type SharedFailure = Arc<Lock<Option<FailedReload>>>;

/// A request to read the files, with a reloaded section `web`.
#[derive(Debug)]
struct Request {
    web: Web,
    outcome: Arc<Lock<Outcome>>,
}

/// Warnings about the web configuration file, or the reason why the rules are not in force.
type ReadRules = Result<Vec<Problem>, LoadError>;

#[derive(Debug)]
enum Outcome {
    Pending,
    Known(ReadRules),
    /// The reload has failed. The rules must not get into force.
    GivenUp,
}

impl RulesReader {
    /// Requests that the rules are read again and put in force.
    pub(super) fn ask(&self, web: Web) -> PendingRules {
        let outcome = Arc::new(Lock::new(Outcome::Pending));
        if self.requests.send(Request { web, outcome: Arc::clone(&outcome) }).is_err() {
            let text = "the thread that reads the web configuration has ended; see the log for the reason";
            *outcome.lock() = Outcome::Known(Err(LoadError::Web(text.to_owned())));
        }
        PendingRules(outcome)
    }

    /// Returns the last attempt to read changed files, if it failed.
    pub(super) fn failure(&self) -> Option<FailedReload> {
        self.failure.lock().clone()
    }
}

/// Rules that are being read.
#[derive(Debug)]
pub(super) struct PendingRules(Arc<Lock<Outcome>>);

impl PendingRules {
    /// Returns the outcome: the rules are in force, or they will not be. Returns `None` while they are being read, unless it is too late.
    pub(super) fn poll(&self, is_late: bool) -> Option<ReadRules> {
        let mut outcome = self.0.lock();
        match std::mem::replace(&mut *outcome, Outcome::GivenUp) {
            Outcome::Known(read) => Some(read),
            Outcome::Pending if !is_late => {
                *outcome = Outcome::Pending;
                None
            }
            Outcome::Pending | Outcome::GivenUp => Some(Err(too_late())),
        }
    }
}

fn too_late() -> LoadError {
    let text = format!(
        "the web configuration and its certificates were not read within {} s; check whether their file systems respond",
        config::DEADLINE.as_secs()
    );
    LoadError::Web(text)
}

/// Reads the rules, and starts a thread that keeps them up to date.
///
/// # Errors
/// Returns an error if the thread cannot be started, or if a file cannot be read within [`config::DEADLINE`] or is invalid.
pub(super) fn start(
    web: Web,
    file: Option<PathBuf>,
    (roots, environment, clock): (&Roots, &Environment, &Clock),
) -> Result<WebAccess, Failure> {
    let (requests, received) = channel();
    let (publisher, rules) = watch::channel(Arc::default());
    let (first, outcome) = channel();
    let failure = SharedFailure::default();
    let mut reader = Reader {
        file,
        names: own_names(roots, environment),
        environment: environment.clone(),
        clock: clock.clone(),
        web,
        seen: Vec::new(),
        rules: publisher,
        failure: Arc::clone(&failure),
    };
    let read = move || {
        let read = reader.read_again();
        let is_read = read.is_ok();
        // After the deadline there is no receiver.
        if first.send(read).is_ok() && is_read {
            reader.follow(&received);
        }
    };
    thread::Builder::new()
        .name("web-files".into())
        .spawn(read)
        .map_err(Failure::system("cannot start the thread that reads the web configuration"))?;
    outcome.recv_timeout(config::DEADLINE).unwrap_or_else(|_| Err(too_late())).map_err(Failure::Config)?;
    Ok(WebAccess { rules, reader: RulesReader { requests, failure } })
}

/// Returns the names of this server in the header `Host`: those of the machine, and of the node in its cluster.
fn own_names(roots: &Roots, environment: &Environment) -> Vec<String> {
    let node = ["NODE_NAME", "K8S_NODE_NAME"].into_iter().find_map(|name| environment.get(name));
    roots.host_name().into_iter().chain(node.map(str::to_owned)).collect()
}

/// Identity and change time of a file: device, inode, size, and modification time. `None`: the file does not exist.
type Version = Option<(u64, u64, u64, i64, i64)>;

/// The files that were read, with their versions.
type Seen = Vec<(PathBuf, Version)>;

#[derive(Debug)]
struct Reader {
    file: Option<PathBuf>,
    names: Vec<String>,
    environment: Environment,
    clock: Clock,
    /// The section `web` in force.
    web: Web,
    seen: Seen,
    rules: watch::Sender<Arc<Rules>>,
    failure: SharedFailure,
}

impl Reader {
    /// Reads the files, and notes them in `seen`. Returns the rules, and warnings about the web configuration file.
    fn read(&self, web: &Web, seen: &mut Seen) -> Result<(Rules, Vec<Problem>), LoadError> {
        seen.extend(self.file.iter().map(|path| (path.clone(), version(path))));
        let opened = config::open_web(self.file.as_deref(), web, |path| {
            seen.push((path.to_owned(), version(path)));
        });
        self.rules(opened?)
    }

    fn rules(&self, OpenedWeb { web, tls, warnings }: OpenedWeb) -> Result<(Rules, Vec<Problem>), LoadError> {
        let reviewer = web.kubernetes.as_ref().map(|reviewer| reviewer.server(&self.environment)).transpose();
        let reviewer = reviewer.map_err(|why| LoadError::Web(format!("web.kubernetes: {why}")))?;
        let rules = Rules::new(&web, self.names.iter().map(String::as_str), tls).with_reviews_by(reviewer);
        Ok((rules, warnings))
    }

    /// Reads the files of the section in force again, and puts the rules in force.
    fn read_again(&mut self) -> Result<(), LoadError> {
        let mut seen = Seen::new();
        let read = self.read(&self.web, &mut seen);
        self.seen = seen;
        let (rules, warnings) = read?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        self.rules.send_replace(Arc::new(rules));
        Ok(())
    }

    /// Reads the files again at each reload and after each change, until the sender of requests is gone.
    fn follow(&mut self, requests: &Receiver<Request>) {
        loop {
            match requests.recv_timeout(INTERVAL) {
                Ok(request) => self.reload(request),
                Err(RecvTimeoutError::Timeout) if self.is_changed() => self.follow_change(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn follow_change(&mut self) {
        let failed = match self.read_again() {
            Ok(()) => {
                tracing::info!("web configuration and certificates read again");
                None
            }
            Err(error) => {
                tracing::error!("the previous rules of access stay in force: {error}");
                Some(FailedReload { at: self.clock.now(), problems: error.lines() })
            }
        };
        *self.failure.lock() = failed;
    }

    /// Puts the rules of a reload in force, unless the reload has failed in the meantime. Unchanged rules stay: they remember right passwords
    /// and reviewed tokens.
    fn reload(&mut self, Request { web, outcome }: Request) {
        if matches!(*outcome.lock(), Outcome::GivenUp) {
            return;
        }
        let has_failed = self.failure.lock().is_some();
        let is_same = web == self.web && !has_failed && !self.is_changed();
        let mut seen = Seen::new();
        let read = if is_same { Ok(None) } else { self.read(&web, &mut seen).map(Some) };
        if read.is_ok() {
            *self.failure.lock() = None;
        }
        let mut outcome = outcome.lock();
        if matches!(*outcome, Outcome::GivenUp) {
            return;
        }
        *outcome = Outcome::Known(read.map(|read| match read {
            Some((rules, warnings)) => {
                self.rules.send_replace(Arc::new(rules));
                (self.web, self.seen) = (web, seen);
                warnings
            }
            None => Vec::new(),
        }));
    }

    fn is_changed(&self) -> bool {
        self.seen.iter().any(|(path, seen)| version(path) != *seen)
    }
}

fn version(path: &Path) -> Version {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

#[cfg(test)]
mod tests;
