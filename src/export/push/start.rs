//! Tasks that run with the current settings: formats start them, and they are stopped together.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::context::PushContext;
use super::payload::Encoded;
use super::producer::{Feed, PayloadSink, Producer};
use super::queue::Queue;
use super::retry::Backoff;
use super::route::{Flow, Route};
use super::sender::{Sender, Transport};
use super::span::RequestSpans;
use super::state::Board;
use crate::metrics::Snapshot;
use crate::profile::Profile;

/// Time limit for flushing the queues when the exporter stops or its configuration changes. Shutdown is limited to 5 s in total.
const FLUSH: Duration = Duration::from_millis(2500);

/// Maximum request size in bytes before compression: below the 4 MiB that gRPC receivers accept by default.
const REQUEST: usize = 4_000_000;
/// Lower bound of that size if the memory for queues is small.
const SMALLEST: usize = 256 << 10;

/// Push interval of routes without an interval.
const INTERVAL: Duration = Duration::from_secs(15);

/// Starts the routes of a format: one call per route.
pub(in crate::export) struct Starter<'a, F> {
    pub(super) format: &'static str,
    feed: &'a Arc<F>,
    push_context: &'a PushContext,
    running: &'a mut Running,
}

impl<F: Feed> Starter<'_, F> {
    /// Returns the maximum request size in bytes before compression. Several requests fit into the queues.
    pub(in crate::export) fn request_limit(&self) -> usize {
        let limit = usize::try_from(self.push_context.memory.limit() / 4).unwrap_or(usize::MAX);
        limit.clamp(SMALLEST, REQUEST)
    }

    /// Pushes a snapshot immediately, at each interval, and on shutdown.
    pub(in crate::export) fn metrics(
        &mut self,
        route: &Route,
        transport: impl Transport,
        encode: impl FnMut(&Arc<Snapshot>) -> Encoded + Send + 'static,
    ) {
        let producer = self.producer(route, transport);
        self.running.producers.spawn(producer.metrics(encode));
    }

    /// Pushes the profiles of each interval, and the rest on shutdown. `encode` is called on blocking threads.
    pub(in crate::export) fn profiles(
        &mut self,
        route: &Route,
        transport: impl Transport,
        encode: impl Fn(&[Profile]) -> Encoded + Send + Sync + 'static,
    ) {
        let producer = self.producer(route, transport);
        self.running.producers.spawn(producer.profiles(encode));
    }

    /// Pushes the payloads that the format puts into the returned outlet. On shutdown, `flush` is called on a blocking thread to add the
    /// rest.
    pub(in crate::export) fn as_it_comes(
        &mut self,
        route: &Route,
        transport: impl Transport,
        flush: impl FnOnce() + Send + 'static,
    ) -> PayloadSink {
        self.running.flushes.push(Box::new(flush));
        self.queue(route, transport)
    }

    fn producer(&mut self, route: &Route, transport: impl Transport) -> Producer<F> {
        Producer {
            feed: Arc::clone(self.feed),
            sink: self.queue(route, transport),
            every: route.interval.unwrap_or(INTERVAL),
            stop: self.running.stop.subscribe(),
        }
    }

    /// Creates a queue and starts sending its payloads.
    fn queue<T: Transport>(&mut self, route: &Route, transport: T) -> PayloadSink {
        let PushContext { board, clock, memory, spans, .. } = self.push_context;
        let flow = Flow { format: self.format, signal: route.signal };
        let queue = Arc::new(Queue::new(route.queue, memory));
        board.begins(flow, route, &queue);
        let sink = PayloadSink { flow, queue, board: Arc::clone(board) };
        let sender = Sender {
            sink: sink.clone(),
            spans: RequestSpans::of(route, flow, spans),
            transport,
            patience: route.timeout,
            connection: None,
            clock: clock.clone(),
            backoff: Backoff::new(seed()),
            hurry: self.running.hurry.subscribe(),
        };
        self.running.senders.push(tokio::spawn(sender.run()));
        self.running.sinks.push(sink.clone());
        tracing::info!(signal = route.signal.as_str(), endpoint = %route.uri, format = flow.format, "pushing");
        sink
    }
}

/// Returns a number that differs between nodes and between processes of a node. In containers many processes have the same ID.
pub(in crate::export) fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// The push tasks of some settings.
#[derive(Default)]
pub(super) struct Running {
    producers: JoinSet<()>,
    senders: Vec<JoinHandle<()>>,
    sinks: Vec<PayloadSink>,
    /// Functions that add data buffered elsewhere.
    flushes: Vec<Box<dyn FnOnce() + Send>>,
    stop: watch::Sender<bool>,
    hurry: watch::Sender<bool>,
}

impl Running {
    /// Runs `start` and returns the tasks that it started.
    pub(super) fn start<F: Feed>(
        feed: &Arc<F>,
        push_context: &PushContext,
        start: impl FnOnce(&mut Starter<'_, F>),
    ) -> Self {
        let mut running = Self::default();
        start(&mut Starter { format: "", feed, push_context, running: &mut running });
        running
    }

    /// Pushes current data and queued requests within the time limit. The rest is dropped and counted.
    pub(super) async fn stop(mut self, board: &Board) {
        self.stop.send_replace(true);
        self.hurry.send_replace(true);
        let flushed = timeout(FLUSH, async {
            for flush in self.flushes.drain(..) {
                drop(spawn_blocking(flush).await);
            }
            while self.producers.join_next().await.is_some() {}
            for sink in &self.sinks {
                sink.queue.emptied().await;
            }
        });
        if flushed.await.is_err() {
            tracing::warn!("push flush timed out after {FLUSH:?}, queued requests dropped");
        }
        self.senders.iter().for_each(JoinHandle::abort);
        self.producers.abort_all();
        for PayloadSink { flow, queue, .. } in &self.sinks {
            board.dropped(*flow, queue.clear());
            board.ends(*flow);
        }
    }
}
