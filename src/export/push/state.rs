//! The account of what was pushed: metrics of the exporter itself, and what the status page says.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::outcome::Outcome;
use super::queue::{Dropped, Queue};
use super::settings::Target;
use crate::clock::{Clock, Timestamp};
use crate::config::push::{Protocol, Signal};
use crate::export::status::{PushFailure, PushStatus};

/// Upper bounds in seconds of `perf_exporter_push_duration_seconds`.
const DURATION_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0];

/// What became of pushes. Shared by those who push and those who tell of it.
#[derive(Debug)]
pub struct Board {
    clock: Clock,
    requests: IntCounterVec,
    items: IntCounterVec,
    bytes: IntCounterVec,
    duration: HistogramVec,
    waiting: IntGaugeVec,
    failing: IntGaugeVec,
    states: Mutex<BTreeMap<Signal, PushStatus>>,
}

impl Board {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When they are registered there already.
    pub fn new(registry: &Registry, clock: Clock) -> prometheus::Result<Self> {
        let counter = |name, help, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let gauge = |name, help| IntGaugeVec::new(Opts::new(name, help), &["signal"]);
        let board = Self {
            clock,
            requests: counter(
                "perf_exporter_push_requests_total",
                "Requests that were sent to a receiver of OTLP, by what came of them: taken; partial, some items were not \
                 taken; retried, to be sent again; refused, never to be taken",
                &["signal", "outcome"],
            )?,
            items: counter(
                "perf_exporter_push_items_total",
                "Data points, samples or log records: taken; rejected, taken but for these (of profiles, whole \
                 ones); refused with their request; dropped, the queue was full or the exporter stopped",
                &["signal", "outcome"],
            )?,
            bytes: counter(
                "perf_exporter_push_bytes_total",
                "Bytes of requests that were taken, not compressed",
                &["signal"],
            )?,
            duration: HistogramVec::new(
                HistogramOpts::new("perf_exporter_push_duration_seconds", "From a request until its answer")
                    .buckets(DURATION_BUCKETS.to_vec()),
                &["signal"],
            )?,
            waiting: gauge("perf_exporter_push_queue_bytes", "Bytes of requests that wait to be sent")?,
            failing: gauge(
                "perf_exporter_push_failing",
                "1 where the last request was not taken; /status tells why",
            )?,
            states: Mutex::default(),
        };
        registry.register(Box::new(board.requests.clone()))?;
        registry.register(Box::new(board.items.clone()))?;
        registry.register(Box::new(board.bytes.clone()))?;
        registry.register(Box::new(board.duration.clone()))?;
        registry.register(Box::new(board.waiting.clone()))?;
        registry.register(Box::new(board.failing.clone()))?;
        Ok(board)
    }

    /// How things are, by signal.
    pub fn states(&self) -> Vec<PushStatus> {
        self.lock().values().cloned().collect()
    }

    /// A signal is pushed to this target from now on.
    pub(super) fn begins(&self, target: &Target, queue: &Queue) {
        let signal = target.signal.as_str();
        let protocol = match target.protocol {
            Protocol::Grpc => "grpc",
            Protocol::Http => "http/protobuf",
        };
        let endpoint = target.uri.to_string();
        let mut states = self.lock();
        let state = states
            .entry(target.signal)
            .or_insert_with(|| PushStatus { signal: signal.into(), ..PushStatus::default() });
        (state.endpoint, state.protocol) = (endpoint, protocol.into());
        state.failing = None;
        drop(states);
        // So that there is a zero to compute rates from.
        for outcome in ["taken", "rejected", "refused", "dropped"] {
            self.items.with_label_values(&[signal, outcome]).inc_by(0);
        }
        for outcome in ["taken", "partial", "retried", "refused"] {
            self.requests.with_label_values(&[signal, outcome]).inc_by(0);
        }
        self.bytes.with_label_values(&[signal]).inc_by(0);
        drop(self.duration.with_label_values(&[signal]));
        self.failing.with_label_values(&[signal]).set(0);
        self.queued(target.signal, queue);
    }

    /// A signal is not pushed any more. Its counters stay.
    pub(super) fn ends(&self, signal: Signal) {
        self.lock().remove(&signal);
        // Neither is there if it was never pushed.
        drop(self.waiting.remove_label_values(&[signal.as_str()]));
        drop(self.failing.remove_label_values(&[signal.as_str()]));
    }

    /// What waits has changed.
    pub(super) fn queued(&self, signal: Signal, queue: &Queue) {
        let bytes = queue.bytes();
        self.waiting.with_label_values(&[signal.as_str()]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        if let Some(state) = self.lock().get_mut(&signal) {
            (state.waiting_bytes, state.waiting_requests) = (bytes, queue.len());
        }
    }

    /// Something will not be sent.
    pub(super) fn dropped(&self, signal: Signal, dropped: Dropped) {
        self.items.with_label_values(&[signal.as_str(), "dropped"]).inc_by(dropped.items);
        if let Some(state) = self.lock().get_mut(&signal) {
            state.dropped += dropped.items;
        }
    }

    /// There was no room.
    pub(super) fn crowded_out(&self, signal: Signal, dropped: Dropped) {
        if dropped.payloads == 0 {
            return;
        }
        self.dropped(signal, dropped);
        let first = self.lock().get(&signal).is_some_and(|state| state.dropped == dropped.items);
        if first {
            let signal = signal.as_str();
            tracing::warn!(
                signal,
                items = dropped.items,
                "what could not be pushed is dropped, the oldest first: `export.otlp.queue` is full"
            );
        }
    }

    /// A request was sent.
    pub(super) fn sent(&self, signal: Signal, took: Duration, bytes: u64, items: u64, outcome: &Outcome) {
        let name = signal.as_str();
        self.duration.with_label_values(&[name]).observe(took.as_secs_f64());
        let request = |outcome: &str| self.requests.with_label_values(&[name, outcome]).inc();
        let item = |outcome: &str, count: u64| {
            self.items.with_label_values(&[name, outcome]).inc_by(count);
        };
        let now = self.clock.now();
        let mut states = self.lock();
        let state = states.entry(signal).or_default();
        match outcome {
            Outcome::Taken | Outcome::Partly { .. } => {
                let (rejected, message) = match outcome {
                    Outcome::Partly { rejected, message } => (*rejected.min(&items), Some(message)),
                    _ => (0, None),
                };
                // Of profiles it is told how many whole ones were rejected, and nobody knows how many samples those had.
                let taken = if signal == Signal::Profiles { items } else { items - rejected };
                request(if message.is_some() { "partial" } else { "taken" });
                item("taken", taken);
                item("rejected", rejected);
                self.bytes.with_label_values(&[name]).inc_by(bytes);
                state.taken += taken;
                state.rejected += rejected;
                state.last_taken = Some(now);
                let news = message.is_some() && state.message.as_ref() != message;
                state.message = message.cloned().or_else(|| state.message.take());
                let recovered = state.failing.take();
                drop(states);
                self.failing.with_label_values(&[name]).set(0);
                if recovered.is_some() {
                    tracing::info!(signal = name, "the receiver takes what is pushed again");
                }
                if let Some(message) = message.filter(|_| news) {
                    tracing::warn!(signal = name, rejected, "the receiver took a part: {message}");
                }
            }
            Outcome::Again { why, .. } => {
                request("retried");
                self.fails(states, signal, now, why);
            }
            Outcome::Refused { why } => {
                request("refused");
                item("refused", items);
                state.refused += items;
                self.fails(states, signal, now, why);
            }
        }
    }

    /// Tells of the first failure, and of one for another reason.
    fn fails(
        &self,
        mut states: MutexGuard<'_, BTreeMap<Signal, PushStatus>>,
        signal: Signal,
        now: Timestamp,
        why: &str,
    ) {
        let state = states.entry(signal).or_default();
        let since = state.failing.as_ref().map_or(now, |failure| failure.since);
        let news = state.failing.as_ref().is_none_or(|failure| failure.why != why);
        state.failing = Some(PushFailure { since, why: why.into() });
        let endpoint = state.endpoint.clone();
        drop(states);
        self.failing.with_label_values(&[signal.as_str()]).set(1);
        if news {
            tracing::warn!(signal = signal.as_str(), endpoint, "what was pushed was not taken: {why}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Signal, PushStatus>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
