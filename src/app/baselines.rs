//! Keeps what was learned of anomalies in a directory, so that a restart does not begin at nothing.
//!
//! A thread of its own reads and writes the file, because a disk can hang. The history thread hands it the content every few minutes, and
//! never waits for it, except at the end, for which [`stop`](super::stop) sets the limit.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, sync_channel};
use std::thread;

use crate::anomaly::{BaselineFile, Saved, Unloaded, Watch};
use crate::clock::Timestamp;

/// Time between two writes, in milliseconds. At most as much is lost if the exporter is killed.
const EVERY: u64 = 300_000;

/// The side of the history thread.
#[derive(Debug)]
pub(super) struct Baselines {
    /// The directory of the configuration; `None` = nothing is kept.
    directory: Option<Arc<Path>>,
    thread: Option<Link>,
    /// Time of the last write, or of the start of the thread.
    saved: Timestamp,
    /// Dropped at the end, with its clones in the threads: the receiver then knows that everything is written.
    running: Sender<Infallible>,
}

/// Connection to the thread of a directory.
#[derive(Debug)]
struct Link {
    /// What the file contained; nothing is written before it is known.
    loaded: Option<Receiver<Vec<Saved>>>,
    contents: SyncSender<Vec<u8>>,
}

impl Baselines {
    pub(super) fn new(running: Sender<Infallible>) -> Self {
        Self { directory: None, thread: None, saved: Timestamp::default(), running }
    }

    /// Follows the configuration, adds what was loaded, and hands over what is to be written.
    pub(super) fn follow(&mut self, directory: &Option<Arc<Path>>, watch: &mut Watch, now: Timestamp) {
        if *directory != self.directory {
            self.directory.clone_from(directory);
            self.saved = now;
            self.thread = directory.as_ref().and_then(|directory| self.start(directory, now));
        }
        self.restore(watch);
        let is_due = now < self.saved || now.0 - self.saved.0 >= EVERY;
        if let Some(Link { loaded: None, contents }) = self.thread.as_ref().filter(|_| is_due) {
            self.saved = now;
            // Full if the disk is slow: then the next one is written.
            drop(contents.try_send(watch.saved(now)));
        }
    }

    /// Adds what was loaded.
    fn restore(&mut self, watch: &mut Watch) {
        let Some(link) = &mut self.thread else { return };
        match link.loaded.as_ref().map(Receiver::try_recv) {
            Some(Ok(all)) => {
                let (known, restored) = (all.len(), watch.restore(all));
                link.loaded = None;
                tracing::debug!(known, restored, "baselines of anomalies were loaded");
            }
            // The thread has panicked, which is in the log.
            Some(Err(TryRecvError::Disconnected)) => self.thread = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
    }

    /// Hands over what was learned a last time. Waits while the disk hangs.
    pub(super) fn finish(self, watch: &mut Watch, now: Timestamp) {
        let Some(Link { loaded, contents }) = self.thread else { return };
        // What is not loaded yet must not be replaced by less.
        if let Some(all) = loaded.and_then(|loaded| loaded.recv().ok()) {
            watch.restore(all);
        }
        // The thread may have panicked, which is in the log.
        drop(contents.send(watch.saved(now)));
    }

    fn start(&self, directory: &Arc<Path>, now: Timestamp) -> Option<Link> {
        let (loading, loaded) = sync_channel(1);
        let (contents, written) = sync_channel(1);
        let (directory, running) = (Arc::clone(directory), self.running.clone());
        let work = move || {
            let mut file = BaselineFile::new(&directory);
            let all = file.load(now.0).unwrap_or_else(|error| {
                explain(&error);
                Vec::new()
            });
            drop(loading.send(all));
            keep(&mut file, &directory, &written);
            drop(running);
        };
        match thread::Builder::new().name("baselines".into()).spawn(work) {
            Ok(_) => Some(Link { loaded: Some(loaded), contents }),
            Err(error) => {
                tracing::warn!(%error, "cannot start the thread that keeps what was learned of anomalies");
                None
            }
        }
    }
}

/// Writes each content. Logs the first of several failures, and the success after them.
fn keep(file: &mut BaselineFile, directory: &Path, contents: &Receiver<Vec<u8>>) {
    let mut is_failing = false;
    while let Ok(content) = contents.recv() {
        let bytes = content.len();
        match file.save(&content) {
            Ok(true) => {
                tracing::debug!(bytes, "baselines of anomalies were written");
                if std::mem::take(&mut is_failing) {
                    tracing::info!(directory = %directory.display(), "what was learned of anomalies is written again");
                }
            }
            Ok(false) => {}
            Err(error) if !std::mem::replace(&mut is_failing, true) => {
                tracing::warn!(
                    name: "perf_exporter.baselines.failed",
                    directory = %directory.display(),
                    %error,
                    "cannot write what was learned of anomalies, a restart begins with an older state: the directory of \
                     `anomalies_directory` must exist, have free space, and be writable by the user of the exporter"
                );
            }
            Err(_) => {}
        }
    }
}

fn explain(error: &Unloaded) {
    let help = match error {
        Unloaded::Directory { .. } => {
            "create the directory of `anomalies_directory`, writable by the user of the exporter only"
        }
        Unloaded::Unreadable { .. } | Unloaded::Refused { .. } => {
            "the file is left alone, and nothing is written: move or remove it, or set another `anomalies_directory`"
        }
    };
    tracing::warn!(
        name: "perf_exporter.baselines.refused",
        %error,
        "cannot load what was learned of anomalies, learning begins anew; {help}"
    );
}

#[cfg(test)]
mod tests;
