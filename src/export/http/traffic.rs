//! Metrics of the HTTP server.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Error, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry, Result};

use super::cpu::RequestCpu;
use crate::clock::Timestamp;
use crate::metrics::{Family, Kind, Labels, Metadata, Point, Snapshot, Value, registered};
use crate::named_enum::named_enum;

/// Upper bounds in seconds of `perf_exporter_http_request_duration_seconds`.
const DURATION_BUCKETS: [f64; 7] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

/// Metrics of requests, responses and connections. Clones share the counters.
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

named_enum! {
    /// Reason why a connection was aborted.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Aborted {
        /// The request had not arrived, and too many connections were waiting.
        Limit = "limit",
        /// The connection was idle, and there were too many.
        Idle = "idle",
        /// A scrape in progress was displaced by another one.
        Displaced = "displaced",
        /// The process or the machine had no free descriptor.
        Descriptors = "descriptors",
        /// The client was too slow to send a request or to read a response.
        Timeout = "timeout",
        /// The input was not HTTP, or was too large.
        Protocol = "protocol",
        /// The client disconnected, or any other error.
        Disconnected = "disconnected",
    }
}

impl Traffic {
    /// Registers the metrics.
    ///
    /// # Errors
    /// Returns an error if the metrics are already registered there.
    pub fn new(registry: &Registry) -> Result<Self> {
        let counter = |name, help, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let duration = HistogramOpts::new(
            "perf_exporter_http_request_duration_seconds",
            "Time from an HTTP request until the response was sent",
        );
        let duration = HistogramVec::new(duration.buckets(DURATION_BUCKETS.to_vec()), &["path"]);
        let connections = IntGauge::new("perf_exporter_http_connections", "Number of open HTTP connections");
        Ok(Self {
            requests: counter(
                "perf_exporter_http_requests_total",
                "HTTP responses, by path and status code",
                &["path", "code"],
            )?,
            bytes: counter(
                "perf_exporter_http_response_bytes_total",
                "Bytes of HTTP response bodies, after compression",
                &["path"],
            )?,
            duration: registered(registry, duration)?,
            connections: registered(registry, connections)?,
            aborted: counter(
                "perf_exporter_http_connections_aborted_total",
                "HTTP connections that were aborted, by reason",
                &["reason"],
            )?,
            age: Metadata::new(
                "perf_exporter_snapshot_age_seconds",
                "Age of the collection in this response, since the start of the collection",
                "seconds",
                Kind::Gauge,
            )
            .map_err(|error| Error::Msg(error.to_string()))?,
            cpu: RequestCpu::default(),
        })
    }

    /// Returns the CPU time of requests.
    pub fn cpu(&self) -> &RequestCpu {
        &self.cpu
    }

    /// Records one response, complete or aborted. `path` is one of the served paths, never client input.
    pub(super) fn answered(&self, path: &'static str, code: u16, bytes: u64, took: Duration) {
        self.requests.with_label_values(&[path, itoa::Buffer::new().format(code)]).inc();
        self.bytes.with_label_values(&[path]).inc_by(bytes);
        self.duration.with_label_values(&[path]).observe(took.as_secs_f64());
        self.cpu.note_serving();
    }

    /// Returns the metrics that are valid only for one response: the age of its snapshot.
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
        self.aborted.with_label_values(&[reason.as_str()]).inc();
    }
}
