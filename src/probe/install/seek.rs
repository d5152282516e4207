//! Lookup of probe locations, which opens files of other processes. In the service it runs on a separate thread, so that no collection
//! blocks on a file system.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::kernel::Kernel;
use super::place::{self, Site};
use super::{Entry, Wish, cgroups};
use crate::event::FileId;
use crate::files::Files;
use crate::health::{Cause, Refusal};

/// Maximum time that a reload and the start wait for probe locations. Later results are used by a later collection.
const PATIENCE: Duration = Duration::from_secs(2);

/// The location of a probe.
#[derive(Debug)]
pub(super) struct Sought {
    pub(super) wish: Wish,
    /// The file at its path, whether it can be probed or not.
    pub(super) seen: Option<FileId>,
    pub(super) site: Result<Site, Refusal>,
}

impl Sought {
    /// Returns the result for a probe whose file has not been opened yet.
    pub(super) fn pending(wish: &Wish) -> Self {
        let reason =
            "the file has not been opened yet; the probe will be installed when it is open".to_owned();
        Self { wish: wish.clone(), seen: None, site: Err(place::refused(wish, Cause::Absent, reason)) }
    }
}

/// Finds the locations of probes, on the calling thread.
pub(super) fn seek(wishes: &[Wish], files: &Files) -> Vec<Sought> {
    let mut kernel = Kernel::ask(files.roots(), wishes);
    let cgroups = cgroups(files.roots());
    let sought = |wish: &Wish| Sought {
        wish: wish.clone(),
        seen: place::file_of(&wish.definition, cgroups.as_deref(), files),
        site: place::find(wish, cgroups.as_deref(), &mut kernel, files),
    };
    wishes.iter().map(sought).collect()
}

/// Returns the files that the paths of probes currently refer to.
pub(super) fn files_of(wishes: &[Wish], files: &Files) -> Vec<(Entry, Option<FileId>)> {
    let cgroups = cgroups(files.roots());
    let now = |wish: &Wish| (wish.entry(), place::file_of(&wish.definition, cgroups.as_deref(), files));
    wishes.iter().map(now).collect()
}

/// A request to the thread.
type Question = Box<dyn FnOnce(&Files) -> Answer + Send>;

/// A result from the thread.
pub(super) enum Answer {
    Places(Vec<Sought>),
    Files(Vec<(Entry, Option<FileId>)>),
}

/// Handle of the thread. The thread ends after this is dropped and its last request is done. Dropping does not wait for it.
#[derive(Debug)]
pub(super) struct Seeker {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    /// Number of pending answers.
    asked: usize,
}

impl Seeker {
    /// Starts the thread. `None` if it cannot be created.
    pub(super) fn start(files: &Files) -> Option<Self> {
        let (questions, asked) = channel::<Question>();
        let (given, answers) = channel();
        let files = files.clone();
        let look = move || {
            for question in asked {
                if given.send(question(&files)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("probe-files".into()).spawn(look).ok()?;
        Some(Self { questions, answers, asked: 0 })
    }

    /// Requests the locations of probes, and waits up to [`PATIENCE`] for each pending answer. Later results are returned by
    /// [`answer`](Self::answer).
    pub(super) fn places(&mut self, wishes: Vec<Wish>) -> Vec<Answer> {
        if wishes.is_empty() {
            return Vec::new();
        }
        let mut answers = Vec::new();
        self.ask(move |files| Answer::Places(seek(&wishes, files)));
        while self.asked > 0
            && let Ok(answer) = self.answers.recv_timeout(PATIENCE)
        {
            self.asked -= 1;
            answers.push(answer);
        }
        answers
    }

    /// Requests a check of the current files, unless the thread is busy. Does not block.
    pub(super) fn files(&mut self, wishes: Vec<Wish>) {
        if self.asked == 0 && !wishes.is_empty() {
            self.ask(move |files| Answer::Files(files_of(&wishes, files)));
        }
    }

    fn ask(&mut self, question: impl FnOnce(&Files) -> Answer + Send + 'static) {
        self.asked += usize::from(self.questions.send(Box::new(question)).is_ok());
    }

    /// Returns the next available result, if there is one. Does not block.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let answer = self.answers.try_recv().ok()?;
        self.asked = self.asked.saturating_sub(1);
        Some(answer)
    }
}
