//! Finds the places of probes, which opens files of other processes: on a thread of its own in the service, where no
//! collection waits for a file system.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::kernel::Kernel;
use super::place::{self, Site};
use super::{Entry, Wish, cgroups};
use crate::event::FileId;
use crate::files::Files;
use crate::health::{Cause, Refusal};

/// How long a reload and the start wait for the places of probes. Those that take longer follow at a later collection.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a probe is.
#[derive(Debug)]
pub(super) struct Sought {
    pub(super) wish: Wish,
    /// The file at its path, whether it can be probed or not.
    pub(super) seen: Option<FileId>,
    pub(super) site: Result<Site, Refusal>,
}

impl Sought {
    /// What is known of a probe whose file has not been opened yet.
    pub(super) fn pending(wish: &Wish) -> Self {
        let reason = "its file has not been opened yet; the probe is placed as soon as it is".to_owned();
        Self { wish: wish.clone(), seen: None, site: Err(place::refused(wish, Cause::Absent, reason)) }
    }
}

/// Finds where probes are, on the calling thread.
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

/// The files that the paths of probes lead to now.
pub(super) fn files_of(wishes: &[Wish], files: &Files) -> Vec<(Entry, Option<FileId>)> {
    let cgroups = cgroups(files.roots());
    let now = |wish: &Wish| (wish.entry(), place::file_of(&wish.definition, cgroups.as_deref(), files));
    wishes.iter().map(now).collect()
}

/// What the thread is to find.
type Question = Box<dyn FnOnce(&Files) -> Answer + Send>;

/// What the thread has found.
pub(super) enum Answer {
    Places(Vec<Sought>),
    Files(Vec<(Entry, Option<FileId>)>),
}

/// The thread. It ends when this is dropped and its last look is done, which nobody waits for.
#[derive(Debug)]
pub(super) struct Seeker {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    /// How many answers are to come.
    asked: usize,
}

impl Seeker {
    /// `None` if there are no threads left.
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

    /// Has the places of probes found, and waits for them a moment. What is not there then comes with a later
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

    /// Has it found out which files there are, unless it is busy. Waits for nothing.
    pub(super) fn files(&mut self, wishes: Vec<Wish>) {
        if self.asked == 0 && !wishes.is_empty() {
            self.ask(move |files| Answer::Files(files_of(&wishes, files)));
        }
    }

    fn ask(&mut self, question: impl FnOnce(&Files) -> Answer + Send + 'static) {
        self.asked += usize::from(self.questions.send(Box::new(question)).is_ok());
    }

    /// What has been found since, if there is anything. Waits for nothing.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let answer = self.answers.try_recv().ok()?;
        self.asked = self.asked.saturating_sub(1);
        Some(answer)
    }
}
