//! Everything that runs by some settings: it is started by formats, and stopped as a whole.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::payload::Encoded;
use super::pump::{Feed, Outlet, Pump};
use super::queue::Queue;
use super::retry::Backoff;
use super::route::{Flow, Route};
use super::sender::{Sender, Transport};
use super::state::Board;
use super::surroundings::Surroundings;
use crate::metrics::Snapshot;
use crate::profile::Profile;

/// How long what is queued may take when the exporter stops, or its configuration changes. An exporter that stops has 5 s in
/// all.
const FLUSH: Duration = Duration::from_millis(2500);

/// The largest request, in bytes before compression: less than the 4 MiB that gRPC's receivers accept unless they are
/// configured otherwise.
const REQUEST: usize = 4_000_000;
/// The same where there is little memory for queues.
const SMALLEST: usize = 256 << 10;

/// How often data is pushed whose route has no interval.
const INTERVAL: Duration = Duration::from_secs(15);

/// What a format starts to push with: one call for each route.
pub(in crate::export) struct Starter<'a, F> {
    pub(super) format: &'static str,
    feed: &'a Arc<F>,
    surroundings: &'a Surroundings,
    running: &'a mut Running,
}

impl<F: Feed> Starter<'_, F> {
    /// How large a request may be, in bytes before compression: several have room in the queues.
    pub(in crate::export) fn request_limit(&self) -> usize {
        let limit = usize::try_from(self.surroundings.memory.limit() / 4).unwrap_or(usize::MAX);
        limit.clamp(SMALLEST, REQUEST)
    }

    /// Pushes a snapshot at once, at each interval, and when it is to stop.
    pub(in crate::export) fn metrics(
        &mut self,
        route: &Route,
        transport: impl Transport,
        encode: impl FnMut(&Arc<Snapshot>) -> Encoded + Send + 'static,
    ) {
        let pump = self.pump(route, transport);
        self.running.pumps.spawn(pump.metrics(encode));
    }

    /// Pushes the profiles of each interval, and the rest when it is to stop. `encode` is called on blocking threads.
    pub(in crate::export) fn profiles(
        &mut self,
        route: &Route,
        transport: impl Transport,
        encode: impl Fn(&[Profile]) -> Encoded + Send + Sync + 'static,
    ) {
        let pump = self.pump(route, transport);
        self.running.pumps.spawn(pump.profiles(encode));
    }

    /// Pushes what the format puts into the outlet that is returned. When it is to stop, `flush` is called on a blocking thread
    /// and puts in the rest.
    pub(in crate::export) fn as_it_comes(
        &mut self,
        route: &Route,
        transport: impl Transport,
        flush: impl FnOnce() + Send + 'static,
    ) -> Outlet {
        self.running.flushes.push(Box::new(flush));
        self.queue(route, transport)
    }

    fn pump(&mut self, route: &Route, transport: impl Transport) -> Pump<F> {
        Pump {
            feed: Arc::clone(self.feed),
            outlet: self.queue(route, transport),
            every: route.interval.unwrap_or(INTERVAL),
            stop: self.running.stop.subscribe(),
        }
    }

    /// Opens a queue, and starts to send what comes into it.
    fn queue<T: Transport>(&mut self, route: &Route, transport: T) -> Outlet {
        let Surroundings { board, clock, memory, .. } = self.surroundings;
        let flow = Flow { format: self.format, signal: route.signal };
        let queue = Arc::new(Queue::new(route.queue, memory));
        board.begins(flow, route, &queue);
        let outlet = Outlet { flow, queue, board: Arc::clone(board) };
        let sender = Sender {
            outlet: outlet.clone(),
            transport,
            patience: route.timeout,
            connection: None,
            clock: clock.clone(),
            backoff: Backoff::new(seed()),
            hurry: self.running.hurry.subscribe(),
        };
        self.running.senders.push(tokio::spawn(sender.run()));
        self.running.outlets.push(outlet.clone());
        tracing::info!(signal = route.signal.as_str(), endpoint = %route.uri, format = flow.format, "pushing");
        outlet
    }
}

/// A number that differs between nodes, and between processes of one node: in containers many have the same process ID.
pub(in crate::export) fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// The tasks that push by some settings.
#[derive(Default)]
pub(super) struct Running {
    pumps: JoinSet<()>,
    senders: Vec<JoinHandle<()>>,
    outlets: Vec<Outlet>,
    /// Put in what is left elsewhere.
    flushes: Vec<Box<dyn FnOnce() + Send>>,
    stop: watch::Sender<bool>,
    hurry: watch::Sender<bool>,
}

impl Running {
    /// Starts what `start` asks for.
    pub(super) fn start<F: Feed>(
        feed: &Arc<F>,
        surroundings: &Surroundings,
        start: impl FnOnce(&mut Starter<'_, F>),
    ) -> Self {
        let mut running = Self::default();
        start(&mut Starter { format: "", feed, surroundings, running: &mut running });
        running
    }

    /// Pushes what there is by now and what is queued, as far as that is possible in time; the rest is dropped and counted.
    pub(super) async fn stop(mut self, board: &Board) {
        self.stop.send_replace(true);
        self.hurry.send_replace(true);
        let flushed = timeout(FLUSH, async {
            for flush in self.flushes.drain(..) {
                drop(spawn_blocking(flush).await);
            }
            while self.pumps.join_next().await.is_some() {}
            for outlet in &self.outlets {
                outlet.queue.emptied().await;
            }
        });
        if flushed.await.is_err() {
            tracing::warn!("what could not be pushed within {FLUSH:?} is dropped");
        }
        self.senders.iter().for_each(JoinHandle::abort);
        self.pumps.abort_all();
        for Outlet { flow, queue, .. } in &self.outlets {
            board.dropped(*flow, queue.clear());
            board.ends(*flow);
        }
    }
}
