//! Takes what was measured at each interval, and puts it into the queues.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::queue::{Dropped, Queue};
use super::state::Board;
use super::thread::Feed;
use crate::config::push::Signal;
use crate::export::otlp::attribute::Resource;
use crate::export::otlp::{Payload, metrics, profiles};
use crate::profile::{Asked, NoProfile, Profile, Selection};

/// How long the last collection may take when the exporter stops.
const LAST: Duration = Duration::from_secs(2);

/// How soon it is looked again whether something is sampled.
const SOON: Duration = Duration::from_secs(1);

/// Where payloads are put, and what is said of it.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    pub(super) signal: Signal,
    pub(super) queue: Arc<Queue>,
    pub(super) board: Arc<Board>,
}

impl Outlet {
    /// So many items fit no request.
    fn left_out(&self, items: u64) {
        let payloads = u64::from(items > 0);
        self.board.dropped(self.signal, Dropped { items, payloads });
    }

    fn put(&self, payloads: Vec<Payload>) {
        for payload in payloads {
            self.board.crowded_out(self.signal, self.queue.push(payload));
        }
        self.board.queued(self.signal, &self.queue);
    }
}

/// Pushes a collection at once, at each interval, and when it is to stop.
pub(super) async fn metrics<F: Feed>(
    feed: Arc<F>,
    encoder: Arc<Mutex<metrics::Encoder>>,
    resource: Arc<Resource>,
    outlet: Outlet,
    every: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        let collected = match last {
            true => timeout(LAST, feed.snapshot()).await.ok(),
            false => Some(feed.snapshot().await),
        };
        match collected {
            Some(Ok(snapshot)) => {
                let mut encoder = encoder.lock().unwrap_or_else(PoisonError::into_inner);
                let encoded = encoder.encode(&snapshot, &resource);
                outlet.left_out(encoded.left_out);
                outlet.put(encoded.payloads);
            }
            Some(Err(error)) => tracing::warn!("no metrics are pushed this time: {error}"),
            None => tracing::warn!("the last metrics are not pushed: collecting them takes too long"),
        }
        if last {
            return;
        }
    }
}

/// Pushes the profiles of each interval, and of what there was of the last one when it is to stop.
pub(super) async fn profiles<F: Feed>(
    feed: Arc<F>,
    (resource, options): (Arc<Resource>, profiles::Options),
    outlet: Outlet,
    every: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let mut windows = Windows::default();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            () = sleep(SOON), if windows.nothing => {
                ticks.reset();
                false
            }
            _ = stop.wait_for(|stop| *stop) => true,
        };
        let (feed, resource) = (Arc::clone(&feed), Arc::clone(&resource));
        // Looking names up takes as long as reading files does.
        let turned = spawn_blocking(move || {
            let profiles = windows.turn(&*feed, last);
            (profiles::encode(&profiles, &resource, &options), windows)
        });
        match turned.await {
            Ok((encoded, rest)) => {
                windows = rest;
                outlet.left_out(encoded.left_out);
                outlet.put(encoded.payloads);
            }
            Err(error) => {
                tracing::error!(%error, "profiles are not pushed any more");
                return;
            }
        }
        if last {
            return;
        }
    }
}

/// What is recorded of each kind of profile.
#[derive(Debug, Default)]
struct Windows {
    open: Vec<(Arc<str>, Asked)>,
    /// Nothing is sampled, or not yet: events are opened after this has begun.
    nothing: bool,
}

impl Windows {
    /// The profiles since the last turn, without a gap to those that begin now; kinds that are new have none yet.
    fn turn<F: Feed>(&mut self, feed: &F, last: bool) -> Vec<Profile> {
        let ask = feed.profiles();
        let mut profiles = Vec::new();
        let mut open = std::mem::take(&mut self.open);
        let kinds = ask.entries();
        self.nothing = kinds.is_empty();
        for kind in kinds {
            let known = open.iter().position(|(known, _)| *known == kind);
            let asked = known.map(|place| open.swap_remove(place).1);
            let next = match asked {
                // What processes say about themselves is only in what is renewed.
                Some(asked) if last => ask.renew(asked, &Selection::default()).map(|(profile, asked)| {
                    ask.abandon(asked);
                    (Some(profile), None)
                }),
                Some(asked) => ask
                    .renew(asked, &Selection::default())
                    .map(|(profile, asked)| (Some(profile), Some(asked))),
                None if last => continue,
                None => ask.begin(&kind).map(|asked| (None, Some(asked))),
            };
            match next {
                Ok((profile, asked)) => {
                    profiles.extend(profile);
                    self.open.extend(asked.map(|asked| (kind, asked)));
                }
                // It was reloaded in between; at the next turn it begins anew.
                Err(NoProfile::Gone) => {}
                Err(error) => tracing::warn!(%kind, "no profile is pushed this time: {error}"),
            }
        }
        // Kinds that are sampled no more.
        open.into_iter().for_each(|(_, asked)| ask.abandon(asked));
        profiles
    }
}
