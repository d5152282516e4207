//! Lookup of probe locations, which opens files of other processes. In the service it runs on a separate thread, so that no collection
//! blocks on a file system.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::kernel::Kernel;
use super::place::{self, Sites};
use super::search::{FileKey, FileSources};
use super::{ConfiguredProbe, Entry};
use crate::health::{Cause, Refusal};

/// Maximum time that a reload and the start wait for probe locations. Later results are used by a later collection.
const LOCATE_TIMEOUT: Duration = Duration::from_secs(2);

/// The location of a probe.
#[derive(Debug)]
pub(super) struct LocatedProbe {
    pub(super) configured: ConfiguredProbe,
    /// The files at its path, whether they can be probed or not.
    pub(super) seen: Vec<FileKey>,
    pub(super) sites: Result<Sites, Refusal>,
}

impl LocatedProbe {
    /// Returns the result for a probe whose file has not been opened yet.
    pub(super) fn pending(configured: &ConfiguredProbe) -> Self {
        let reason =
            "the file has not been opened yet; the probe will be installed when it is open".to_owned();
        Self {
            configured: configured.clone(),
            seen: Vec::new(),
            sites: Err(place::refused(configured, Cause::Absent, reason)),
        }
    }
}

/// Finds the locations of probes, on the calling thread.
pub(super) fn locate(configured_probes: &[ConfiguredProbe], sources: &FileSources) -> Vec<LocatedProbe> {
    let mut kernel = Kernel::ask(sources.files.roots(), configured_probes);
    let search = sources.search();
    let located = |configured: &ConfiguredProbe| {
        let (seen, sites) = place::find(configured, &mut kernel, &search);
        LocatedProbe { configured: configured.clone(), seen, sites }
    };
    configured_probes.iter().map(located).collect()
}

/// Returns the files that the paths of probes currently refer to.
pub(super) fn files_of(
    configured_probes: &[ConfiguredProbe],
    sources: &FileSources,
) -> Vec<(Entry, Vec<FileKey>)> {
    let search = sources.search();
    let now =
        |configured: &ConfiguredProbe| (configured.entry(), place::files_of(&configured.definition, &search));
    configured_probes.iter().map(now).collect()
}

/// A request to the thread.
type Question = Box<dyn FnOnce(&FileSources) -> Answer + Send>;

/// A result from the thread.
pub(super) enum Answer {
    Places(Vec<LocatedProbe>),
    Files(Vec<(Entry, Vec<FileKey>)>),
}

/// Handle of the thread. The thread ends after this is dropped and its last request is done. Dropping does not wait for it.
#[derive(Debug)]
pub(super) struct Locator {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    /// Number of pending answers.
    asked: usize,
}

impl Locator {
    /// Starts the thread. `None` if it cannot be created.
    pub(super) fn start(sources: &FileSources) -> Option<Self> {
        let (questions, asked) = channel::<Question>();
        let (given, answers) = channel();
        let sources = sources.clone();
        let look = move || {
            for question in asked {
                if given.send(question(&sources)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("probe-files".into()).spawn(look).ok()?;
        Some(Self { questions, answers, asked: 0 })
    }

    /// Requests the locations of probes, and waits up to [`LOCATE_TIMEOUT`] for each pending answer. Later results are returned by
    /// [`answer`](Self::answer).
    pub(super) fn places(&mut self, configured_probes: Vec<ConfiguredProbe>) -> Vec<Answer> {
        if configured_probes.is_empty() {
            return Vec::new();
        }
        let mut answers = Vec::new();
        self.ask(move |sources| Answer::Places(locate(&configured_probes, sources)));
        while self.asked > 0
            && let Ok(answer) = self.answers.recv_timeout(LOCATE_TIMEOUT)
        {
            self.asked -= 1;
            answers.push(answer);
        }
        answers
    }

    /// Requests a check of the current files, unless the thread is busy. Does not block.
    pub(super) fn files(&mut self, configured_probes: Vec<ConfiguredProbe>) {
        if self.asked == 0 && !configured_probes.is_empty() {
            self.ask(move |sources| Answer::Files(files_of(&configured_probes, sources)));
        }
    }

    fn ask(&mut self, question: impl FnOnce(&FileSources) -> Answer + Send + 'static) {
        self.asked += usize::from(self.questions.send(Box::new(question)).is_ok());
    }

    /// Returns the next available result, if there is one. Does not block.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let answer = self.answers.try_recv().ok()?;
        self.asked = self.asked.saturating_sub(1);
        Some(answer)
    }
}
