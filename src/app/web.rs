//! Rules of access to the HTTP server. They are read from the section `web` of the configuration, from the web configuration file and from
//! certificates, and read again when one of these files changes.
//!
//! A thread of its own reads the files, because a file system can block forever.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::Failure;
use crate::config::{self, LoadError, OpenedWeb, Web};
use crate::export::http::Rules;
use crate::host::{Environment, Roots};

/// Interval at which the files are checked for changes.
const INTERVAL: Duration = Duration::from_secs(5);

/// The rules in force, and their reader.
#[derive(Debug)]
pub(super) struct WebAccess {
    /// The rules in force.
    pub(super) rules: watch::Receiver<Arc<Rules>>,
    /// Sends a reloaded section `web` to the reader.
    pub(super) settings: Sender<Web>,
}

/// Reads the rules, and starts a thread that keeps them up to date.
///
/// # Errors
/// Returns an error if the thread cannot be started, or if a file cannot be read within [`config::DEADLINE`] or is invalid.
pub(super) fn start(
    web: Web,
    file: Option<PathBuf>,
    (roots, environment): (&Roots, &Environment),
) -> Result<WebAccess, Failure> {
    let (settings, received) = channel();
    let (publisher, rules) = watch::channel(Arc::default());
    let (first, outcome) = channel();
    let (names, environment) = (own_names(roots, environment), environment.clone());
    let mut reader = Reader { file, names, environment, web, seen: Vec::new(), rules: publisher };
    let read = move || {
        let read = reader.read();
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
    let too_late = || {
        let text = format!(
            "the web configuration and its certificates were not read within {} s; check whether their file systems respond",
            config::DEADLINE.as_secs()
        );
        LoadError::Web(text)
    };
    outcome.recv_timeout(config::DEADLINE).unwrap_or_else(|_| Err(too_late())).map_err(Failure::Config)?;
    Ok(WebAccess { rules, settings })
}

/// Returns the names of this server in the header `Host`: those of the machine, and of the node in its cluster.
fn own_names(roots: &Roots, environment: &Environment) -> Vec<String> {
    let node = ["NODE_NAME", "K8S_NODE_NAME"].into_iter().find_map(|name| environment.get(name));
    roots.host_name().into_iter().chain(node.map(str::to_owned)).collect()
}

/// Identity and change time of a file: device, inode, size, and modification time. `None`: the file does not exist.
type Version = Option<(u64, u64, u64, i64, i64)>;

#[derive(Debug)]
struct Reader {
    file: Option<PathBuf>,
    names: Vec<String>,
    environment: Environment,
    /// The section `web` of the configuration.
    web: Web,
    /// The files that were read, with their versions.
    seen: Vec<(PathBuf, Version)>,
    rules: watch::Sender<Arc<Rules>>,
}

impl Reader {
    /// Reads the files and puts the rules in force.
    fn read(&mut self) -> Result<(), LoadError> {
        let mut seen: Vec<_> = self.file.iter().map(|path| (path.clone(), version(path))).collect();
        let opened = config::open_web(self.file.as_deref(), &self.web, |path| {
            seen.push((path.to_owned(), version(path)));
        });
        self.seen = seen;
        let OpenedWeb { web, tls, warnings } = opened?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let reviewer = web.kubernetes.as_ref().map(|reviewer| reviewer.server(&self.environment)).transpose();
        let reviewer = reviewer.map_err(|why| LoadError::Web(format!("web.kubernetes: {why}")))?;
        let rules = Rules::new(&web, self.names.iter().map(String::as_str), tls).with_reviews_by(reviewer);
        self.rules.send_replace(Arc::new(rules));
        Ok(())
    }

    /// Reads the files again after each reload and each change, until the settings' sender is gone.
    fn follow(&mut self, settings: &Receiver<Web>) {
        loop {
            match settings.recv_timeout(INTERVAL) {
                Ok(web) if web == self.web => continue,
                Ok(web) => self.web = web,
                Err(RecvTimeoutError::Timeout) if self.is_changed() => {}
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            match self.read() {
                Ok(()) => tracing::info!("web configuration and certificates read again"),
                Err(error) => tracing::error!("the previous rules of access stay in force: {error}"),
            }
        }
    }

    fn is_changed(&self) -> bool {
        self.seen.iter().any(|(path, seen)| version(path) != *seen)
    }
}

fn version(path: &Path) -> Version {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}
