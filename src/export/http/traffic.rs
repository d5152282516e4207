//! What the server counts of itself.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Error, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry, Result};

use super::cpu::RequestCpu;
use crate::clock::Timestamp;
use crate::metrics::{Family, Kind, Labels, Metadata, Point, Snapshot, Value, registered};

/// Upper bounds in seconds of `perf_exporter_http_request_duration_seconds`.
const DURATION_BUCKETS: [f64; 7] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

/// Requests, answers and connections. Clones count together.
#[derive(Debug, Clone)]
pub struct Traffic {
    requests: IntCounterVec,
    bytes: IntCounterVec,
    duration: HistogramVec,
    connections: IntGauge,
    aborted: IntCounterVec,
    age: Arc<Metadata>,
    cpu: RequestCpu,
}

/// Why a connection did not end as it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aborted {
    /// Its request had not arrived, and too many others waited for one.
    Limit,
    /// It was idle, and there were too many.
    Idle,
    /// A scrape under way gave its place to another one.
    Displaced,
    /// The process or the machine had no descriptor left for it.
    Descriptors,
    /// A request came, or an answer was read, too slowly.
    Timeout,
    /// What came was not HTTP, or too much of it.
    Protocol,
    /// The client went away, or anything else.
    Disconnected,
}

impl Traffic {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When they are registered there already.
    pub fn new(registry: &Registry) -> Result<Self> {
        let counter = |name, help, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let duration = HistogramOpts::new(
            "perf_exporter_http_request_duration_seconds",
            "From an HTTP request until its answer was sent",
        );
        let duration = HistogramVec::new(duration.buckets(DURATION_BUCKETS.to_vec()), &["path"]);
        let connections = IntGauge::new("perf_exporter_http_connections", "HTTP connections that are open");
        Ok(Self {
            requests: counter(
                "perf_exporter_http_requests_total",
                "HTTP requests answered",
                &["path", "code"],
            )?,
            bytes: counter(
                "perf_exporter_http_response_bytes_total",
                "Bytes of answers to HTTP requests, compressed and without headers",
                &["path"],
            )?,
            duration: registered(registry, duration)?,
            connections: registered(registry, connections)?,
            aborted: counter(
                "perf_exporter_http_connections_aborted_total",
                "HTTP connections that did not end as they should",
                &["reason"],
            )?,
            age: Metadata::new(
                "perf_exporter_snapshot_age_seconds",
                "Age of the collection that this scrape was answered with, since it began",
                "seconds",
                Kind::Gauge,
            )
            .map_err(|error| Error::Msg(error.to_string()))?,
            cpu: RequestCpu::default(),
        })
    }

    /// CPU time that requests take.
    pub fn cpu(&self) -> &RequestCpu {
        &self.cpu
    }

    /// Counts one answer, sent or broken off. `path` is one of the paths that are served: never what a client wrote.
    pub(super) fn answered(&self, path: &'static str, code: u16, bytes: u64, took: Duration) {
        self.requests.with_label_values(&[path, itoa::Buffer::new().format(code)]).inc();
        self.bytes.with_label_values(&[path]).inc_by(bytes);
        self.duration.with_label_values(&[path]).observe(took.as_secs_f64());
        self.cpu.note_serving();
    }

    /// The metrics that are true only at the moment of an answer: the age of the snapshot in it.
    pub(super) fn of_answer(&self, age: Duration) -> Snapshot {
        let point = Point {
            labels: Labels::none(),
            value: Value::Float(age.as_secs_f64()),
            start: Timestamp::default(),
        };
        Snapshot::new(Timestamp::default(), [Family::new(Arc::clone(&self.age), vec![point])])
    }

    pub(super) fn set_connections(&self, open: usize) {
        self.connections.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    pub(super) fn aborted(&self, reason: Aborted) {
        let reason = match reason {
            Aborted::Limit => "limit",
            Aborted::Idle => "idle",
            Aborted::Displaced => "displaced",
            Aborted::Descriptors => "descriptors",
            Aborted::Timeout => "timeout",
            Aborted::Protocol => "protocol",
            Aborted::Disconnected => "disconnected",
        };
        self.aborted.with_label_values(&[reason]).inc();
    }
}
