//! Prometheus text formats: 0.0.4 and OpenMetrics.
//!
//! Formats: <https://prometheus.io/docs/instrumenting/exposition_formats/> and
//! <https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md>.
//!
//! [`Encoder`] returns the text in pieces, so no buffer holds all of it. Names and labels are already validated and labels are already
//! rendered ([`Labels::text`](crate::metrics::Labels::text)). Encoding a series therefore only copies two strings and prints a number.
//!
//! `_created` samples are written only on request ([`Format::with_created`]). Prometheus without `created-timestamp-zero-ingestion` stores
//! them as separate series, which doubles the number of series.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::metrics::{Family, Histogram, Kind, Metadata, Point, Snapshot, Value, escape_help, escape_label};

/// Size in bytes after which a piece ends. The last series may exceed it.
pub const CHUNK: usize = 64 << 10;

/// Text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4, the universal format.
    Text,
    /// OpenMetrics 0.0.1: the version with which old scrapers request what became 1.0.0.
    OpenMetrics001,
    /// OpenMetrics 1.0.0.
    OpenMetrics100,
    /// OpenMetrics 1.0.0 with a `_created` sample after the samples of each counter and histogram.
    OpenMetricsCreated,
}

impl Format {
    /// Returns the value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics001 => "application/openmetrics-text; version=0.0.1; charset=utf-8",
            Self::OpenMetrics100 | Self::OpenMetricsCreated => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }
    }

    /// Adds created timestamps to OpenMetrics 1.0.0. Returns other formats unchanged.
    #[must_use]
    pub const fn with_created(self) -> Self {
        match self {
            Self::OpenMetrics100 => Self::OpenMetricsCreated,
            other => other,
        }
    }

    const fn is_open_metrics(self) -> bool {
        !matches!(self, Self::Text)
    }
}

/// Prints a snapshot piece by piece.
#[derive(Debug)]
pub struct Encoder {
    rest: Rest,
    format: Format,
    bounds: RenderedBounds,
    /// Whether the end marker is written after the last family.
    ends: bool,
}

impl Encoder {
    /// Creates an encoder at the start of `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>, format: Format) -> Self {
        Self { rest: Rest::new(snapshot), format, bounds: RenderedBounds::default(), ends: true }
    }

    /// Creates an encoder that omits the end marker, because another snapshot follows.
    pub fn beginning(snapshot: Arc<Snapshot>, format: Format) -> Self {
        Self { ends: false, ..Self::new(snapshot, format) }
    }

    /// Appends the next piece, about [`CHUNK`] bytes, to `out`. Returns `false` and appends nothing at the end.
    pub fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        let Self { rest, format, bounds, ends } = self;
        let more = rest.write_chunk(out, |family, is_first, point, out| {
            let metadata = family.metadata();
            if is_first {
                write_head(metadata, *format, out);
            }
            let (name, labels) = (metadata.name(), point.labels.text_bytes());
            let suffix = metadata.kind().suffix();
            match &point.value {
                Value::Integer(value) => write_integer_sample(name, suffix, labels, *value, out),
                Value::Float(value) => write_float_sample(name, suffix, labels, *value, out),
                Value::Histogram(histogram) => {
                    bounds.render(histogram.bounds());
                    write_histogram(name, labels, histogram, &bounds.text, out);
                }
            }
            let has_created = matches!(metadata.kind(), Kind::Counter | Kind::Histogram);
            if *format == Format::OpenMetricsCreated && has_created {
                write_created(name, labels, point.start, out);
            }
        });
        if !more && std::mem::take(ends) && format.is_open_metrics() {
            out.extend_from_slice(b"# EOF\n");
        }
        out.len() > begin
    }
}

/// The part of a snapshot that is not written yet.
#[derive(Debug)]
pub(super) struct Rest {
    snapshot: Arc<Snapshot>,
    /// Index of the next family, and the number of its points already written.
    family: usize,
    point: usize,
}

impl Rest {
    pub(super) fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot, family: 0, point: 0 }
    }

    /// Writes about [`CHUNK`] bytes. The argument of `write` reports whether a point is the first of its family.
    pub(super) fn write_chunk(
        &mut self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&Family, bool, &Point, &mut Vec<u8>),
    ) -> bool {
        let end = out.len() + CHUNK;
        while out.len() < end {
            let Some(family) = self.snapshot.families().get(self.family) else { return false };
            let Some(point) = family.points().get(self.point) else {
                (self.family, self.point) = (self.family + 1, 0);
                continue;
            };
            write(family, self.point == 0, point, out);
            self.point += 1;
        }
        true
    }
}

fn write_head(metadata: &Metadata, format: Format, out: &mut Vec<u8>) {
    let open_metrics = format.is_open_metrics();
    let kind = match metadata.kind() {
        Kind::Counter => "counter",
        Kind::Info if open_metrics => "info",
        Kind::Gauge | Kind::Info => "gauge",
        Kind::Histogram => "histogram",
    };
    // In 0.0.4 the name of a family is that of its samples; in OpenMetrics it has no suffix.
    let suffix = if open_metrics { "" } else { metadata.kind().suffix() };
    let mut line = |keyword: &str, text: &str| {
        let parts = ["# ", keyword, " ", metadata.name(), suffix, " ", text, "\n"];
        parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
    };
    if open_metrics {
        line("HELP", &escape_label(metadata.help()));
    } else {
        line("HELP", &escape_help(metadata.help()));
    }
    line("TYPE", kind);
    if open_metrics && !metadata.unit().is_empty() {
        line("UNIT", metadata.unit());
    }
}

fn write_name(name: &str, suffix: &str, labels: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    if !labels.is_empty() {
        out.push(b'{');
        out.extend_from_slice(labels);
        out.push(b'}');
    }
    out.push(b' ');
}

fn write_integer_sample(name: &str, suffix: &str, labels: &[u8], value: u64, out: &mut Vec<u8>) {
    write_name(name, suffix, labels, out);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.push(b'\n');
}

fn write_float_sample(name: &str, suffix: &str, labels: &[u8], value: f64, out: &mut Vec<u8>) {
    write_name(name, suffix, labels, out);
    match value {
        f64::INFINITY => out.extend_from_slice(b"+Inf"),
        f64::NEG_INFINITY => out.extend_from_slice(b"-Inf"),
        value if value.is_nan() => out.extend_from_slice(b"NaN"),
        value => out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes()),
    }
    out.push(b'\n');
}

/// Writes a `_created` sample. Prometheus recognizes it only directly after the samples with the same labels.
fn write_created(name: &str, labels: &[u8], Timestamp(milliseconds): Timestamp, out: &mut Vec<u8>) {
    write_name(name, "_created", labels, out);
    out.extend_from_slice(itoa::Buffer::new().format(milliseconds / 1000).as_bytes());
    out.push(b'.');
    let digits = [100, 10, 1].map(|place| b'0' + (milliseconds / place % 10) as u8);
    out.extend_from_slice(&digits);
    out.push(b'\n');
}

fn write_histogram(name: &str, labels: &[u8], histogram: &Histogram, bounds: &[String], out: &mut Vec<u8>) {
    let le: &[u8] = if labels.is_empty() { b"le=\"" } else { b",le=\"" };
    for ((_, count), bound) in histogram.cumulative().zip(bounds) {
        let parts = [name.as_bytes(), b"_bucket{", labels, le, bound.as_bytes(), b"\"} "];
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
        out.push(b'\n');
    }
    write_float_sample(name, "_sum", labels, histogram.sum(), out);
    write_integer_sample(name, "_count", labels, histogram.count(), out);
}

/// Rendered `le` values of the previous histogram: histograms of a family usually have the same bounds.
#[derive(Debug, Default)]
struct RenderedBounds {
    bounds: Vec<f64>,
    /// One for each bound, and `+Inf`.
    text: Vec<String>,
}

impl RenderedBounds {
    fn render(&mut self, bounds: &[f64]) {
        if self.bounds != bounds || self.text.is_empty() {
            self.bounds = bounds.to_vec();
            self.text = bounds.iter().map(|&bound| bound_text(bound)).chain(["+Inf".to_owned()]).collect();
        }
    }
}

/// Formats a finite bound as Prometheus 3 normalizes it (Go's shortest `%g`, with `.0` after an integer), in both formats. A bucket is
/// therefore the same series for every negotiated format and Prometheus version.
///
/// Such numbers are canonical in OpenMetrics: 0.0001, 1.0, 100000.0, 1e-05, 1e+06.
pub(super) fn bound_text(bound: f64) -> String {
    let scientific = format!("{bound:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match exponent {
        -4..6 => format!("{bound:?}"),
        ..-4 => format!("{mantissa}e-{:02}", exponent.unsigned_abs()),
        6.. => format!("{mantissa}e+{exponent:02}"),
    }
}

#[cfg(test)]
mod tests;
