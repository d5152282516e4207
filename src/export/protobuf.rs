//! The Prometheus protobuf format, which supports native histograms.
//!
//! A sequence of length-delimited messages of `io.prometheus.client`. Format:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#protobuf-format> and
//! <https://github.com/prometheus/client_model/blob/v0.6.2/io/prometheus/client/metrics.proto>.
//!
//! A histogram with exponential buckets also contains its classic buckets, as in client_golang; the scraper selects one form. Counters and
//! histograms contain their start time. Values are doubles, so a count above 2⁵³ is rounded, as in Prometheus for values parsed from text.

mod native;
pub(super) mod wire;

use std::sync::Arc;

use super::prometheus::Rest;
use crate::clock::Timestamp;
use crate::metrics::{Family, Histogram, Kind, Metadata, Point, Snapshot, Value};
use wire::{Length, Message, Sink};

/// Value of `Content-Type`.
pub const CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Writes a snapshot piece by piece.
#[derive(Debug)]
pub struct Encoder(Rest);

impl Encoder {
    /// Creates an encoder at the start of `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self(Rest::new(snapshot))
    }

    /// Appends the next piece, about [`CHUNK`](super::prometheus::CHUNK) bytes, to `out`. Returns `false` and appends nothing at the end.
    pub fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        self.0.write_chunk(out, |family, is_first, point, out| {
            if is_first {
                out.varint(Length::of(family));
                Head(family.metadata()).write(out);
            }
            out.message(METRIC, &Metric(point, family.metadata().kind()));
        });
        out.len() > begin
    }
}

/// Field `MetricFamily.metric`.
const METRIC: u32 = 4;

/// Message `MetricFamily`.
impl Message for Family {
    fn write(&self, to: &mut impl Sink) {
        Head(self.metadata()).write(to);
        for point in self.points() {
            to.message(METRIC, &Metric(point, self.metadata().kind()));
        }
    }
}

/// A `MetricFamily` without its metrics.
struct Head<'a>(&'a Metadata);

/// Name of a family, equal to that of its samples, as in client_golang.
struct Name<'a>(&'a str, &'static str);

impl Message for Name<'_> {
    fn write(&self, to: &mut impl Sink) {
        to.bytes(self.0.as_bytes());
        to.bytes(self.1.as_bytes());
    }
}

impl Message for Head<'_> {
    fn write(&self, to: &mut impl Sink) {
        let kind = match self.0.kind() {
            Kind::Counter => 0,
            Kind::Gauge | Kind::Info => 1,
            Kind::Histogram => 4,
        };
        to.message(1, &Name(self.0.name(), self.0.kind().suffix()));
        to.string(2, self.0.help());
        to.unsigned(3, kind);
        if !self.0.unit().is_empty() {
            to.string(5, self.0.unit());
        }
    }
}

/// Message `Metric`.
struct Metric<'a>(&'a Point, Kind);

impl Message for Metric<'_> {
    fn write(&self, to: &mut impl Sink) {
        let Self(point, kind) = self;
        to.bytes(point.labels.protobuf());
        let value = match &point.value {
            Value::Integer(value) => *value as f64,
            Value::Float(value) => *value,
            Value::Histogram(histogram) => return to.message(7, &Distribution(histogram, point.start)),
        };
        match kind {
            Kind::Counter => to.message(3, &Counter(value, point.start)),
            // Families of histograms contain only histograms.
            Kind::Gauge | Kind::Info | Kind::Histogram => to.message(2, &Gauge(value)),
        }
    }
}

/// Message `Gauge`.
struct Gauge(f64);

impl Message for Gauge {
    fn write(&self, to: &mut impl Sink) {
        to.double(1, self.0);
    }
}

/// Message `Counter`.
struct Counter(f64, Timestamp);

impl Message for Counter {
    fn write(&self, to: &mut impl Sink) {
        to.double(1, self.0);
        to.message(3, &Created(self.1));
    }
}

/// Message `google.protobuf.Timestamp`.
struct Created(Timestamp);

impl Message for Created {
    fn write(&self, to: &mut impl Sink) {
        let Timestamp(milliseconds) = self.0;
        to.unsigned(1, milliseconds / 1000);
        to.unsigned(2, milliseconds % 1000 * 1_000_000);
    }
}

/// Message `Histogram`.
struct Distribution<'a>(&'a Histogram, Timestamp);

impl Message for Distribution<'_> {
    const LONG: bool = true;

    fn write(&self, to: &mut impl Sink) {
        let Self(histogram, start) = self;
        to.unsigned(1, histogram.count());
        to.double(2, histogram.sum());
        // The last bucket is implied.
        for (bound, below) in histogram.cumulative().filter(|(bound, _)| bound.is_finite()) {
            to.message(3, &Bucket(bound, below));
        }
        if let Some(native) = histogram.native() {
            native::write(native, to);
        }
        to.message(15, &Created(*start));
    }
}

/// Message `Bucket`.
struct Bucket(f64, u64);

impl Message for Bucket {
    fn write(&self, to: &mut impl Sink) {
        to.unsigned(1, self.1);
        to.double(2, self.0);
    }
}

#[cfg(test)]
mod tests;
