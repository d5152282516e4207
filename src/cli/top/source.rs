//! The profiles of consecutive tables.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;

use super::samples::Samples;
use crate::profile::{Profile, ProfileRecorder, RecordingId, Selection};

/// Makes the profile of each table: of the last seconds, or of the time since the previous table.
#[derive(Debug)]
pub(super) struct Source {
    recorder: Arc<dyn ProfileRecorder>,
    /// Name of the sampled entry.
    entry: Arc<str>,
    window: Duration,
    /// The profile of the next table, if each table covers only its own time.
    begun: Option<RecordingId>,
}

impl Source {
    /// Creates a source. With `zero`, the first table begins now, and the others at the end of the previous table; otherwise each covers
    /// the last `window`.
    ///
    /// # Errors
    /// None: this is the only consumer of profiles.
    pub(super) fn new(
        recorder: Arc<dyn ProfileRecorder>,
        entry: Arc<str>,
        window: Duration,
        zero: bool,
    ) -> anyhow::Result<Self> {
        let begun = if zero { Some(recorder.begin(&entry, false)?) } else { None };
        Ok(Self { recorder, entry, window, begun })
    }

    /// Returns the profile of the next table. Reads files and symbolizes, which may take seconds.
    ///
    /// # Errors
    /// If a read of a file of a process does not return.
    pub(super) fn next(&mut self) -> anyhow::Result<Profile> {
        let everything = Selection::default();
        let Some(begun) = self.begun.take() else {
            return Ok(self.recorder.last(&self.entry, self.window, &everything)?);
        };
        // Begin the next profile before this one ends: symbolization takes time, and samples taken meanwhile must be included.
        self.begun = Some(self.recorder.begin(&self.entry, false)?);
        Ok(self.recorder.end(begun, &everything)?)
    }

    /// Discards the samples of the next table until now, if each table covers only its own time.
    fn skip(&mut self) -> anyhow::Result<()> {
        if let Some(begun) = self.begun.take() {
            self.recorder.abandon(begun);
            self.begun = Some(self.recorder.begin(&self.entry, false)?);
        }
        Ok(())
    }
}

/// A request to the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Next,
    Skip,
}

/// A thread that makes profiles, so that keys are answered while it symbolizes.
#[derive(Debug)]
pub(super) struct SourceThread {
    requests: mpsc::UnboundedSender<Request>,
    made: mpsc::Receiver<anyhow::Result<Samples>>,
    /// Whether a profile has been requested and has not arrived.
    busy: bool,
}

impl SourceThread {
    /// Starts the thread. It ends with the process, because a read of a file cannot be interrupted.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(mut source: Source) -> anyhow::Result<Self> {
        let (requests, mut asked) = mpsc::unbounded_channel();
        let (sender, made) = mpsc::channel(1);
        let make = move || {
            while let Some(request) = asked.blocking_recv() {
                let answer = match request {
                    Request::Next => source.next().map(Samples::new),
                    Request::Skip => match source.skip() {
                        Ok(()) => continue,
                        Err(error) => Err(error),
                    },
                };
                if sender.blocking_send(answer).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("tables".into()).spawn(make).context("cannot start a thread")?;
        Ok(Self { requests, made, busy: false })
    }

    /// Requests a profile, unless the previous one has not arrived yet.
    pub(super) fn request(&mut self) {
        if !self.busy {
            self.busy = self.requests.send(Request::Next).is_ok();
        }
    }

    /// Discards the samples of the next table until now, if each table covers only its own time.
    pub(super) fn skip(&self) {
        // A thread that has ended is reported by `made`.
        self.requests.send(Request::Skip).ok();
    }

    /// Waits for the requested profile. Never returns without a request.
    ///
    /// # Errors
    /// If no profile can be made.
    pub(super) async fn made(&mut self) -> anyhow::Result<Samples> {
        let made = self.made.recv().await.context("the thread that makes tables has ended")?;
        self.busy = false;
        made
    }
}
