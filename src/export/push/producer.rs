//! Reads the measurements at each interval and puts them into the queues.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::payload::{Encoded, Payload};
use super::queue::{Dropped, Queue};
use super::route::Flow;
use super::state::Board;
use crate::export::http::Unavailable;
use crate::metrics::Snapshot;
use crate::profile::{NoProfile, Profile, ProfileRecorder, RecordingId, Selection};

/// Time limit of the last collection during shutdown.
const LAST: Duration = Duration::from_secs(2);

/// Maximum time to wait until requests of one collection are sent, if the queue cannot hold all of them.
const LONGEST: Duration = Duration::from_secs(30);

/// Pause before checking again whether anything is sampled.
const SOON: Duration = Duration::from_secs(1);

/// Source of the pushed data.
pub trait Feed: Send + Sync + 'static {
    /// Returns the latest collection if it is fresh enough, otherwise a new one.
    fn snapshot(&self) -> impl Future<Output = Result<Arc<Snapshot>, Unavailable>> + Send;

    /// Returns the interface for requesting profiles.
    fn profiles(&self) -> Arc<dyn ProfileRecorder>;
}

/// Queue and accounting of payloads.
#[derive(Debug, Clone)]
pub(in crate::export) struct PayloadSink {
    pub(super) flow: Flow,
    pub(super) queue: Arc<Queue>,
    pub(super) board: Arc<Board>,
}

impl PayloadSink {
    /// Adds one payload, without waiting for space.
    pub(in crate::export) fn put_at_once(&self, payload: Payload) {
        self.board.dropped_when_full(self.flow, self.queue.push(payload, self.queue.new_batch()));
        self.board.queued(self.flow, &self.queue);
    }

    /// Records items that were dropped before they were put into a request.
    pub(in crate::export) fn drop_items(&self, items: u64) {
        self.board.dropped(self.flow, Dropped { items, payloads: 0 });
    }

    /// Adds all payloads. If together they exceed the queue limit, waits until earlier ones are sent, but at most until the next ones are
    /// due.
    async fn put(&self, Encoded { payloads, left_out }: Encoded, every: Duration) {
        self.board.dropped(self.flow, Dropped { items: left_out, payloads: u64::from(left_out > 0) });
        let batch = self.queue.new_batch();
        let deadline = Instant::now() + every.min(LONGEST);
        for payload in payloads {
            // After that time payloads of the batch displace each other, which is counted.
            drop(timeout_at(deadline, self.queue.admits(payload.bytes.len(), batch)).await);
            self.board.dropped_when_full(self.flow, self.queue.push(payload, batch));
        }
        self.board.queued(self.flow, &self.queue);
    }
}

/// Puts measurements into an outlet: immediately, at each interval, and on shutdown.
#[derive(Debug)]
pub(super) struct Producer<F> {
    pub(super) feed: Arc<F>,
    pub(super) sink: PayloadSink,
    pub(super) every: Duration,
    pub(super) stop: watch::Receiver<bool>,
}

impl<F: Feed> Producer<F> {
    fn ticks(&self) -> Interval {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// Pushes collections.
    pub(super) async fn metrics(mut self, mut encode: impl FnMut(&Arc<Snapshot>) -> Encoded) {
        let mut ticks = self.ticks();
        let mut pushed: Option<Arc<Snapshot>> = None;
        loop {
            let last = tokio::select! {
                _ = ticks.tick() => false,
                _ = self.stop.wait_for(|stop| *stop) => true,
            };
            let collected = match last {
                true => timeout(LAST, self.feed.snapshot()).await.ok(),
                false => Some(self.feed.snapshot().await),
            };
            match collected {
                // There was no newer collection in the meantime, so the data would be a duplicate.
                Some(Ok(snapshot))
                    if pushed.as_ref().is_some_and(|pushed| Arc::ptr_eq(pushed, &snapshot)) => {}
                Some(Ok(snapshot)) => {
                    let encoded = encode(&snapshot);
                    pushed = Some(snapshot);
                    self.sink.put(encoded, self.every).await;
                }
                Some(Err(error)) => tracing::warn!("no metrics pushed in this interval: {error}"),
                None => tracing::warn!("last metrics not pushed: the collection timed out"),
            }
            if last {
                return;
            }
        }
    }

    /// Pushes the profiles of each interval, and on shutdown those of the last, incomplete one.
    pub(super) async fn profiles(mut self, encode: impl Fn(&[Profile]) -> Encoded + Send + Sync + 'static) {
        let (encode, mut windows) = (Arc::new(encode), Windows::default());
        let mut ticks = self.ticks();
        loop {
            let last = tokio::select! {
                _ = ticks.tick() => false,
                () = sleep(SOON), if windows.incomplete => {
                    if windows.open.is_empty() {
                        ticks.reset();
                    }
                    windows.begin(&*self.feed);
                    continue;
                }
                _ = self.stop.wait_for(|stop| *stop) => true,
            };
            let (feed, encode) = (Arc::clone(&self.feed), Arc::clone(&encode));
            // Symbolization takes as long as reading files does.
            let turned = spawn_blocking(move || {
                let profiles = windows.turn(&*feed, last);
                (encode(&profiles), windows)
            });
            match turned.await {
                Ok((encoded, rest)) => {
                    windows = rest;
                    self.sink.put(encoded, self.every).await;
                }
                Err(error) => {
                    tracing::error!(%error, "pushing profiles stopped");
                    return;
                }
            }
            if last {
                return;
            }
        }
    }
}

/// Recordings of each kind of profile. They end when the value is dropped.
#[derive(Debug, Default)]
struct Windows {
    recorder: Option<Arc<dyn ProfileRecorder>>,
    open: Vec<(Arc<str>, RecordingId)>,
    /// Whether some kind is not recorded, or nothing is sampled yet: events are opened after the start of the push.
    incomplete: bool,
    /// Whether a failure to record was logged.
    complained: bool,
}

impl Windows {
    /// Returns the profiles since the last call and starts the next recordings without a gap. New kinds have no profile yet.
    fn turn<F: Feed>(&mut self, feed: &F, last: bool) -> Vec<Profile> {
        let recorder = feed.profiles();
        let kinds = recorder.entries();
        let mut profiles = Vec::new();
        for (kind, recording) in std::mem::take(&mut self.open) {
            if !kinds.contains(&kind) {
                recorder.abandon(recording);
                continue;
            }
            // Only a renewal includes metadata that processes provide, so the last recording is renewed as well.
            match recorder.renew(recording, &Selection::default()) {
                Ok((profile, recording)) => {
                    profiles.push(profile);
                    self.open.push((kind, recording));
                }
                // The sampling changed at a reload: the recording was discarded, and the next one starts immediately.
                Err(NoProfile::Gone) => {}
                // Nothing is lost: the recorded samples are part of a later profile.
                Err(error @ NoProfile::Stalled) => {
                    tracing::warn!(%kind, "no profile pushed in this interval: {error}");
                    self.open.push((kind, recording));
                }
                Err(error) => tracing::warn!(%kind, "no profile pushed in this interval: {error}"),
            }
        }
        if last {
            self.open.drain(..).for_each(|(_, recording)| recorder.abandon(recording));
        } else {
            self.begin(feed);
        }
        profiles
    }

    /// Starts recordings of everything that is sampled and not recorded yet.
    fn begin<F: Feed>(&mut self, feed: &F) {
        let recorder = feed.profiles();
        let kinds = recorder.entries();
        self.incomplete = kinds.is_empty();
        for kind in kinds {
            if self.open.iter().any(|(known, _)| *known == kind) {
                continue;
            }
            match recorder.begin(&kind, false) {
                Ok(recording) => self.open.push((kind, recording)),
                Err(error) => {
                    self.incomplete = true;
                    if !self.complained {
                        tracing::warn!(%kind, "recording failed, will be retried: {error}");
                    }
                    self.complained = true;
                }
            }
        }
        self.recorder = Some(recorder);
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        // Recordings that are not ended would continue to count.
        if let Some(recorder) = &self.recorder {
            self.open.drain(..).for_each(|(_, recording)| recorder.abandon(recording));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::http::Unavailable;
    use crate::host::Roots;
    use crate::profile::replayed::idle;

    struct Idle(Arc<dyn ProfileRecorder>);

    impl Feed for Idle {
        async fn snapshot(&self) -> Result<Arc<Snapshot>, Unavailable> {
            Err(Unavailable("there are no metrics".into()))
        }

        fn profiles(&self) -> Arc<dyn ProfileRecorder> {
            Arc::clone(&self.0)
        }
    }

    /// Returns how many more recordings are possible.
    fn free(recorder: &Arc<dyn ProfileRecorder>) -> usize {
        let taken: Vec<RecordingId> = std::iter::from_fn(|| recorder.begin("cpu", false).ok()).collect();
        taken.iter().for_each(|&recording| recorder.abandon(recording));
        taken.len()
    }

    #[test]
    fn each_kind_has_a_profile_of_each_turn_and_nothing_goes_on_after_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let feed = Idle(idle(&Roots::under(dir.path())));
        let all = free(&feed.0);
        let mut windows = Windows::default();
        let mut turn = |last| -> (Vec<String>, usize) {
            let profiles = windows.turn(&feed, last);
            let mut kinds: Vec<String> =
                profiles.iter().map(|profile| profile.kind.name.to_string()).collect();
            kinds.sort();
            (kinds, free(&feed.0))
        };
        assert_eq!(turn(false), (vec![], all - 2), "they have just begun");
        let both = vec!["cpu".to_owned(), "off_cpu".to_owned()];
        assert_eq!(turn(false), (both.clone(), all - 2));
        assert_eq!(turn(true), (both, all));
    }

    #[test]
    fn what_is_recorded_ends_with_whoever_recorded_it() {
        let dir = tempfile::tempdir().unwrap();
        let feed = Idle(idle(&Roots::under(dir.path())));
        let all = free(&feed.0);
        let mut windows = Windows::default();
        windows.begin(&feed);
        assert_eq!((free(&feed.0), windows.incomplete), (all - 2, false));
        drop(windows);
        assert_eq!(free(&feed.0), all);
    }

    #[test]
    fn what_cannot_be_recorded_now_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let feed = Idle(idle(&Roots::under(dir.path())));
        let taken: Vec<RecordingId> = std::iter::from_fn(|| feed.0.begin("cpu", false).ok()).collect();
        let mut windows = Windows::default();
        windows.begin(&feed);
        assert!(windows.incomplete && windows.open.is_empty());
        taken.iter().for_each(|&recording| feed.0.abandon(recording));
        windows.begin(&feed);
        assert!(!windows.incomplete && windows.open.len() == 2);
    }
}
