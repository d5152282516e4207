//! Accounting of pushes: metrics of the exporter itself, and the status.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::outcome::Outcome;
use super::queue::{Dropped, Queue};
use super::route::{Flow, Route};
use crate::clock::{Clock, Monotonic};
use crate::config::push::Signal;
use crate::lock::Lock;
use crate::metrics::registered;
use crate::status::{PushFailure, PushStatus};

/// Minimum time between log messages about a continuing problem. `/status` and metrics always report it.
const LOG_INTERVAL: Duration = Duration::from_secs(300);

/// Upper bounds in seconds of `perf_exporter_push_duration_seconds`.
const DURATION_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Results of pushes, shared by the push thread and the status page.
#[derive(Debug)]
pub struct Board {
    clock: Clock,
    requests: IntCounterVec,
    items: IntCounterVec,
    bytes: IntCounterVec,
    duration: HistogramVec,
    waiting: IntGaugeVec,
    failing: IntGaugeVec,
    accounts: Lock<BTreeMap<Flow, Account>>,
}

/// Accounting of a signal.
#[derive(Debug, Default)]
struct Account {
    status: PushStatus,
    /// Time of the last log message about failures, partial rejections, and dropped requests.
    logged: [Option<Monotonic>; 3],
}

/// Topic of a log message.
#[derive(Debug, Clone, Copy)]
enum LogTopic {
    Failure,
    Part,
    Crowd,
}

impl Account {
    /// Reports whether a message may be logged, because none was for a while.
    fn should_log(&mut self, about: LogTopic, now: Monotonic) -> bool {
        let Some(logged) = self.logged.get_mut(about as usize) else { return false };
        let news = logged.is_none_or(|logged| now.since(logged) >= LOG_INTERVAL);
        if news {
            *logged = Some(now);
        }
        news
    }
}

impl Board {
    /// Registers the metrics.
    ///
    /// # Errors
    /// Returns an error if the metrics are already registered there.
    pub fn new(registry: &Registry, clock: Clock) -> prometheus::Result<Self> {
        let counter = |name, help, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauge =
            |name, help| registered(registry, IntGaugeVec::new(Opts::new(name, help), &["format", "signal"]));
        let duration = HistogramOpts::new(
            "perf_exporter_push_duration_seconds",
            "Time from a request until its response",
        )
        .buckets(DURATION_BUCKETS.to_vec());
        Ok(Self {
            clock,
            requests: counter(
                "perf_exporter_push_requests_total",
                "Requests sent to a receiver, by outcome: accepted; partial, accepted except for some items; retried, will be \
                 sent again; rejected, will not be sent again",
                &["format", "signal", "outcome"],
            )?,
            items: counter(
                "perf_exporter_push_items_total",
                "Data points, samples, log records or spans, by outcome: accepted; rejected by the receiver, alone (for profiles, the \
                 number of profiles) or with their request; dropped, the queue was full or the exporter stopped",
                &["format", "signal", "outcome"],
            )?,
            bytes: counter(
                "perf_exporter_push_bytes_total",
                "Bytes of accepted requests, before compression",
                &["format", "signal"],
            )?,
            duration: registered(registry, HistogramVec::new(duration, &["format", "signal"]))?,
            waiting: gauge("perf_exporter_push_queue_bytes", "Bytes of queued requests")?,
            failing: gauge(
                "perf_exporter_push_failing",
                "Whether the last request failed: 1 yes, 0 no; see /status for the reason",
            )?,
            accounts: Lock::default(),
        })
    }

    /// Returns the state of all pushes, by format and signal.
    pub fn states(&self) -> Vec<PushStatus> {
        self.accounts.lock().values().map(|account| account.status.clone()).collect()
    }

    /// Adds a signal that is now pushed on this route.
    pub(super) fn begins(&self, flow: Flow, route: &Route, queue: &Queue) {
        let status = PushStatus {
            format: flow.format,
            signal: flow.signal.as_str(),
            endpoint: route.uri.to_string(),
            protocol: route.protocol,
            ..PushStatus::default()
        };
        self.accounts.lock().insert(flow, Account { status, ..Account::default() });
        // Initializes the counters with zero, so that rates can be computed.
        for outcome in ["accepted", "rejected", "dropped"] {
            self.items.with_label_values(&flow.with(outcome)).inc_by(0);
        }
        for outcome in ["accepted", "partial", "retried", "rejected"] {
            self.requests.with_label_values(&flow.with(outcome)).inc_by(0);
        }
        self.bytes.with_label_values(&flow.labels()).inc_by(0);
        drop(self.duration.with_label_values(&flow.labels()));
        self.failing.with_label_values(&flow.labels()).set(0);
        self.queued(flow, queue);
    }

    /// Removes a signal that is no longer pushed. Its counters remain.
    pub(super) fn ends(&self, flow: Flow) {
        self.accounts.lock().remove(&flow);
        // The series do not exist if the signal was never pushed.
        drop(self.waiting.remove_label_values(&flow.labels()));
        drop(self.failing.remove_label_values(&flow.labels()));
    }

    /// Updates the size of the queue.
    pub(super) fn queued(&self, flow: Flow, queue: &Queue) {
        let (bytes, requests) = (queue.bytes(), queue.len());
        self.waiting.with_label_values(&flow.labels()).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        if let Some(account) = self.accounts.lock().get_mut(&flow) {
            (account.status.waiting_bytes, account.status.waiting_requests) = (bytes, requests);
        }
    }

    /// Records items that will not be sent.
    pub(super) fn dropped(&self, flow: Flow, dropped: Dropped) {
        self.items.with_label_values(&flow.with("dropped")).inc_by(dropped.items);
        if let Some(account) = self.accounts.lock().get_mut(&flow) {
            account.status.dropped += dropped.items;
        }
    }

    /// Records items that were dropped because the queue is full.
    pub(super) fn dropped_when_full(&self, flow: Flow, dropped: Dropped) {
        if dropped.payloads == 0 {
            return;
        }
        self.dropped(flow, dropped);
        let now = self.clock.monotonic();
        let mut accounts = self.accounts.lock();
        let news = accounts.get_mut(&flow).is_some_and(|account| account.should_log(LogTopic::Crowd, now));
        drop(accounts);
        if news && flow.signal != Signal::Logs {
            let (format, signal, items) = (flow.format, flow.signal.as_str(), dropped.items);
            tracing::warn!(
                name: "perf_exporter.push.queue_full",
                format,
                signal,
                items,
                "`export.{format}.queue` is full: oldest requests dropped"
            );
        }
    }

    /// Records the outcome of a request.
    pub(super) fn sent(&self, flow: Flow, took: Duration, bytes: u64, items: u64, outcome: &Outcome) {
        self.duration.with_label_values(&flow.labels()).observe(took.as_secs_f64());
        let request = |outcome: &str| self.requests.with_label_values(&flow.with(outcome)).inc();
        match outcome {
            Outcome::Accepted => self.accepts(flow, (bytes, items), 0, None),
            Outcome::Partly { rejected, message } => {
                self.accepts(flow, (bytes, items), (*rejected).min(items), Some(message));
            }
            Outcome::Again { why, .. } => {
                request("retried");
                self.fails(flow, 0, why);
            }
            Outcome::Rejected { why } => {
                request("rejected");
                self.items.with_label_values(&flow.with("rejected")).inc_by(items);
                self.fails(flow, items, why);
            }
        }
    }

    /// Records a request that was accepted, except for some items. A receiver that rejects none and returns a message only warns.
    fn accepts(&self, flow: Flow, (bytes, items): (u64, u64), rejected: u64, message: Option<&String>) {
        // For profiles the receiver reports the number of rejected profiles; their number of samples is unknown.
        let accepted = if flow.signal == Signal::Profiles { items } else { items - rejected };
        self.requests.with_label_values(&flow.with(if rejected > 0 { "partial" } else { "accepted" })).inc();
        self.items.with_label_values(&flow.with("accepted")).inc_by(accepted);
        self.items.with_label_values(&flow.with("rejected")).inc_by(rejected);
        self.bytes.with_label_values(&flow.labels()).inc_by(bytes);
        self.failing.with_label_values(&flow.labels()).set(0);
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(flow).or_default();
        let status = &mut account.status;
        status.accepted += accepted;
        status.partly_rejected += rejected;
        status.last_accepted = Some(self.clock.now());
        status.message = message.cloned();
        let recovered = status.failing.take().is_some();
        let news = message.is_some() && account.should_log(LogTopic::Part, self.clock.monotonic());
        drop(accounts);
        if flow.signal == Signal::Logs {
            // A message about the push of logs would itself be pushed and answered.
            return;
        }
        let (format, signal) = (flow.format, flow.signal.as_str());
        if recovered {
            tracing::info!(name: "perf_exporter.push.recovered", format, signal, "push recovered");
        }
        if let Some(message) = message.filter(|_| news) {
            tracing::warn!(format, signal, rejected, "message from the receiver: {message}");
        }
    }

    /// Records a failed request. It is logged when failures start, and again if they continue.
    fn fails(&self, flow: Flow, rejected: u64, why: &str) {
        self.failing.with_label_values(&flow.labels()).set(1);
        let now = self.clock.now();
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(flow).or_default();
        account.status.rejected += rejected;
        let since = account.status.failing.as_ref().map_or(now, |failure| failure.since);
        account.status.failing = Some(PushFailure { since, why: why.into() });
        let endpoint = account.status.endpoint.clone();
        let news = account.should_log(LogTopic::Failure, self.clock.monotonic());
        drop(accounts);
        if news && flow.signal != Signal::Logs {
            let (format, signal) = (flow.format, flow.signal.as_str());
            tracing::warn!(name: "perf_exporter.push.failed", format, signal, endpoint, "push failed: {why}");
        }
    }
}
