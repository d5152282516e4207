//! The account of what was pushed: metrics of the exporter itself, and what the status page says.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::outcome::Outcome;
use super::queue::{Dropped, Queue};
use super::route::{Flow, Route};
use crate::clock::{Clock, Monotonic};
use crate::config::push::Signal;
use crate::metrics::registered;
use crate::status::{PushFailure, PushStatus};

/// How long nothing more is said in the log of what goes on going wrong; `/status` and metrics always say it.
const SILENCE: Duration = Duration::from_secs(300);

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
    accounts: Mutex<BTreeMap<Flow, Account>>,
}

/// What is known of a signal.
#[derive(Debug, Default)]
struct Account {
    status: PushStatus,
    /// When the log spoke last of what was not taken, of a part that was not, and of what was crowded out.
    told: [Option<Monotonic>; 3],
}

/// What the log speaks of.
#[derive(Debug, Clone, Copy)]
enum About {
    Failure,
    Part,
    Crowd,
}

impl Account {
    /// Whether something is worth a line, for nothing was said of it for a while.
    fn is_news(&mut self, about: About, now: Monotonic) -> bool {
        let Some(told) = self.told.get_mut(about as usize) else { return false };
        let news = told.is_none_or(|told| now.since(told) >= SILENCE);
        if news {
            *told = Some(now);
        }
        news
    }
}

impl Board {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When they are registered there already.
    pub fn new(registry: &Registry, clock: Clock) -> prometheus::Result<Self> {
        let counter = |name, help, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauge =
            |name, help| registered(registry, IntGaugeVec::new(Opts::new(name, help), &["format", "signal"]));
        let duration =
            HistogramOpts::new("perf_exporter_push_duration_seconds", "From a request until its answer")
                .buckets(DURATION_BUCKETS.to_vec());
        Ok(Self {
            clock,
            requests: counter(
                "perf_exporter_push_requests_total",
                "Requests that were sent to a receiver, by what came of them: taken; partial, some items were not \
                 taken; retried, to be sent again; refused, never to be taken",
                &["format", "signal", "outcome"],
            )?,
            items: counter(
                "perf_exporter_push_items_total",
                "Data points, samples or log records: taken; rejected, taken but for these (of profiles, whole \
                 ones); refused with their request; dropped, the queue was full or the exporter stopped",
                &["format", "signal", "outcome"],
            )?,
            bytes: counter(
                "perf_exporter_push_bytes_total",
                "Bytes of requests that were taken, not compressed",
                &["format", "signal"],
            )?,
            duration: registered(registry, HistogramVec::new(duration, &["format", "signal"]))?,
            waiting: gauge("perf_exporter_push_queue_bytes", "Bytes of requests that wait to be sent")?,
            failing: gauge(
                "perf_exporter_push_failing",
                "1 where the last request was not taken; /status tells why",
            )?,
            accounts: Mutex::default(),
        })
    }

    /// How things are, by format and signal.
    pub fn states(&self) -> Vec<PushStatus> {
        self.lock().values().map(|account| account.status.clone()).collect()
    }

    /// A signal is pushed to this target from now on.
    pub(super) fn begins(&self, flow: Flow, route: &Route, queue: &Queue) {
        let status = PushStatus {
            format: flow.format,
            signal: flow.signal.as_str(),
            endpoint: route.uri.to_string(),
            protocol: route.protocol,
            ..PushStatus::default()
        };
        self.lock().insert(flow, Account { status, ..Account::default() });
        // So that there is a zero to compute rates from.
        for outcome in ["taken", "rejected", "refused", "dropped"] {
            self.items.with_label_values(&flow.with(outcome)).inc_by(0);
        }
        for outcome in ["taken", "partial", "retried", "refused"] {
            self.requests.with_label_values(&flow.with(outcome)).inc_by(0);
        }
        self.bytes.with_label_values(&flow.labels()).inc_by(0);
        drop(self.duration.with_label_values(&flow.labels()));
        self.failing.with_label_values(&flow.labels()).set(0);
        self.queued(flow, queue);
    }

    /// A signal is not pushed any more. Its counters stay.
    pub(super) fn ends(&self, flow: Flow) {
        self.lock().remove(&flow);
        // Neither is there if it was never pushed.
        drop(self.waiting.remove_label_values(&flow.labels()));
        drop(self.failing.remove_label_values(&flow.labels()));
    }

    /// What waits has changed.
    pub(super) fn queued(&self, flow: Flow, queue: &Queue) {
        let bytes = queue.bytes();
        self.waiting.with_label_values(&flow.labels()).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        if let Some(account) = self.lock().get_mut(&flow) {
            (account.status.waiting_bytes, account.status.waiting_requests) = (bytes, queue.len());
        }
    }

    /// Something will not be sent.
    pub(super) fn dropped(&self, flow: Flow, dropped: Dropped) {
        self.items.with_label_values(&flow.with("dropped")).inc_by(dropped.items);
        if let Some(account) = self.lock().get_mut(&flow) {
            account.status.dropped += dropped.items;
        }
    }

    /// There was no room.
    pub(super) fn crowded_out(&self, flow: Flow, dropped: Dropped) {
        if dropped.payloads == 0 {
            return;
        }
        self.dropped(flow, dropped);
        let now = self.clock.monotonic();
        let news = self.lock().get_mut(&flow).is_some_and(|account| account.is_news(About::Crowd, now));
        if news && flow.signal != Signal::Logs {
            tracing::warn!(
                format = flow.format,
                signal = flow.signal.as_str(),
                items = dropped.items,
                "what could not be pushed in time is dropped, the oldest first: `export.{}.queue` is full",
                flow.format
            );
        }
    }

    /// A request was sent.
    pub(super) fn sent(&self, flow: Flow, took: Duration, bytes: u64, items: u64, outcome: &Outcome) {
        self.duration.with_label_values(&flow.labels()).observe(took.as_secs_f64());
        let request = |outcome: &str| self.requests.with_label_values(&flow.with(outcome)).inc();
        match outcome {
            Outcome::Taken => self.takes(flow, (bytes, items), 0, None),
            Outcome::Partly { rejected, message } => {
                self.takes(flow, (bytes, items), (*rejected).min(items), Some(message));
            }
            Outcome::Again { why, .. } => {
                request("retried");
                self.fails(flow, 0, why);
            }
            Outcome::Refused { why } => {
                request("refused");
                self.items.with_label_values(&flow.with("refused")).inc_by(items);
                self.fails(flow, items, why);
            }
        }
    }

    /// A request was taken, but for some of its items. A receiver that rejects none of them and says something nevertheless
    /// only warns.
    fn takes(&self, flow: Flow, (bytes, items): (u64, u64), rejected: u64, message: Option<&String>) {
        // Of profiles it is told how many whole ones were rejected, and nobody knows how many samples those had.
        let taken = if flow.signal == Signal::Profiles { items } else { items - rejected };
        self.requests.with_label_values(&flow.with(if rejected > 0 { "partial" } else { "taken" })).inc();
        self.items.with_label_values(&flow.with("taken")).inc_by(taken);
        self.items.with_label_values(&flow.with("rejected")).inc_by(rejected);
        self.bytes.with_label_values(&flow.labels()).inc_by(bytes);
        self.failing.with_label_values(&flow.labels()).set(0);
        let mut accounts = self.lock();
        let account = accounts.entry(flow).or_default();
        let status = &mut account.status;
        status.taken += taken;
        status.rejected += rejected;
        status.last_taken = Some(self.clock.now());
        status.message = message.cloned();
        let recovered = status.failing.take().is_some();
        let news = message.is_some() && account.is_news(About::Part, self.clock.monotonic());
        drop(accounts);
        if flow.signal == Signal::Logs {
            // What the log says about itself would be pushed, and answered.
            return;
        }
        if recovered {
            tracing::info!(
                format = flow.format,
                signal = flow.signal.as_str(),
                "the receiver takes what is pushed again"
            );
        }
        if let Some(message) = message.filter(|_| news) {
            tracing::warn!(
                format = flow.format,
                signal = flow.signal.as_str(),
                rejected,
                "the receiver says: {message}"
            );
        }
    }

    /// A request was not taken. The log tells of it when that begins, and again if it goes on.
    fn fails(&self, flow: Flow, refused: u64, why: &str) {
        self.failing.with_label_values(&flow.labels()).set(1);
        let now = self.clock.now();
        let mut accounts = self.lock();
        let account = accounts.entry(flow).or_default();
        account.status.refused += refused;
        let since = account.status.failing.as_ref().map_or(now, |failure| failure.since);
        account.status.failing = Some(PushFailure { since, why: why.into() });
        let endpoint = account.status.endpoint.clone();
        let news = account.is_news(About::Failure, self.clock.monotonic());
        drop(accounts);
        if news && flow.signal != Signal::Logs {
            tracing::warn!(
                format = flow.format,
                signal = flow.signal.as_str(),
                endpoint,
                "what was pushed was not taken: {why}"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Flow, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
