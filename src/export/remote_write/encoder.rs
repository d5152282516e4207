//! Encodes snapshots as `prometheus.WriteRequest`s of remote write 1.0.
//!
//! Series have the names and labels of `/metrics`, plus the external labels. A histogram consists of one series for each classic bucket,
//! one for its sum and one for its count.
//!
//! - *Stale markers.* A series that was in the previous snapshot but is not in this one gets a final sample, a NaN with a special payload.
//!   Prometheus' own remote write does the same. Queries then end the series immediately instead of after five minutes.
//! - *Created timestamps.* Version 1.0 has no field for them. For a counter or histogram that started between two snapshots, the first
//!   sample is preceded by a zero sample at its start time, so that `increase()` includes its first counts. Prometheus does the same with
//!   scraped created timestamps (`created-timestamp-zero-ingestion`).
//!
//! Format: <https://prometheus.io/docs/specs/prw/remote_write_spec/#protocol>.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::export::prometheus::bound_text;
use crate::export::protobuf::wire::{Message, Sink, delimited};
use crate::export::push::Encoded;
use crate::metrics::{Family, Kind, Labels, Metadata, Point, Snapshot, Value};

/// Bits of the value of a stale marker: `value.StaleNaN` in Prometheus.
pub const STALE: u64 = 0x7ff0_0000_0000_0002;

/// Maximum number of samples in a request: `max_samples_per_send` of Prometheus.
const SAMPLES: u64 = 2000;

/// Encoding options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Labels added to all series that do not have them. The names `__name__` and `le` are not allowed.
    pub external: Vec<(String, String)>,
    /// Maximum size of a payload in bytes before compression.
    pub limit: usize,
}

/// Encodes consecutive snapshots.
#[derive(Debug)]
pub struct Encoder {
    options: Options,
    before: Option<Arc<Snapshot>>,
    /// Time of the snapshot before the previous one.
    earlier: Option<Timestamp>,
}

impl Encoder {
    /// Creates an encoder without history.
    pub fn new(options: Options) -> Self {
        Self { options, before: None, earlier: None }
    }

    /// Changes the options. Other external labels make all series new, so the history is then discarded.
    pub fn set_options(&mut self, options: Options) {
        if self.options.external != options.external {
            *self = Self::new(options);
        } else {
            self.options = options;
        }
    }

    /// Encodes a snapshot, and stale markers of series that are no longer in it.
    ///
    /// Returns nothing for a snapshot that was already encoded. Receivers reject a second, different sample with the same timestamp, and
    /// settings can change within one collection. Keeps the snapshot until the next call.
    pub fn encode(&mut self, snapshot: &Arc<Snapshot>) -> Encoded {
        if self.before.as_ref().is_some_and(|before| Arc::ptr_eq(before, snapshot)) {
            return Encoded::default();
        }
        let before = self.before.replace(Arc::clone(snapshot));
        let times = Times {
            taken: snapshot.taken(),
            before: before.as_ref().map(|before| before.taken()),
            earlier: self.earlier,
        };
        self.earlier = times.before;
        let external = self.options.external.iter().map(|(name, value)| Label::new(name, value));
        let external = external.collect();
        let mut writer = Writer {
            times,
            external,
            labels: Vec::new(),
            requests: Requests { limit: self.options.limit, ..Requests::default() },
        };
        let known = before.as_ref().map_or(&[][..], |before| before.families());
        let order = |a: &Family, b: &Family| {
            let (a, b) = (a.metadata(), b.metadata());
            a.name().cmp(b.name()).then_with(|| a.kind().cmp(&b.kind()))
        };
        for (before, now) in joined(known, snapshot.families(), order) {
            writer.family(before, now);
        }
        writer.requests.finish()
    }
}

/// Times of the snapshots.
#[derive(Debug, Clone, Copy)]
struct Times {
    taken: Timestamp,
    before: Option<Timestamp>,
    earlier: Option<Timestamp>,
}

impl Times {
    /// Returns the time of the zero sample of a series that was not in the previous snapshot.
    ///
    /// A series that was pushed earlier and returns with its old total started before the snapshot in which it was missing. It must not get
    /// a zero sample. A series that started after the snapshot before the previous one was never pushed. Its zero sample is later than the
    /// previous snapshot, where the series may have a stale marker.
    fn zero(&self, start: Timestamp) -> Option<Timestamp> {
        let before = self.before?;
        let is_new = start > before || self.earlier.is_some_and(|earlier| start > earlier);
        let zero = start.max(Timestamp(before.0 + 1));
        (is_new && zero < self.taken).then_some(zero)
    }
}

/// Kind of the samples written for a point.
#[derive(Debug, Clone, Copy)]
enum Write {
    /// Values, preceded by a zero sample at this time.
    Value(Option<Timestamp>),
    /// Stale markers.
    End,
}

/// Writer of the samples of a snapshot.
struct Writer {
    times: Times,
    external: Vec<Label>,
    /// Labels of the current series.
    labels: Vec<u8>,
    requests: Requests,
}

impl Writer {
    /// Writes a family of this snapshot, and stale markers for series that are only in the previous one.
    fn family(&mut self, before: Option<&Family>, now: Option<&Family>) {
        let Some(metadata) = now.or(before).map(Family::metadata) else { return };
        let mut names = Names::new(metadata, &self.external);
        let order = |a: &Point, b: &Point| match Arc::ptr_eq(&a.labels, &b.labels) {
            true => Ordering::Equal,
            false => a.labels.cmp(&b.labels),
        };
        for (before, now) in joined(points(before), points(now), order) {
            match (before, now) {
                (before, Some(now)) => {
                    let counts = matches!(metadata.kind(), Kind::Counter | Kind::Histogram);
                    let is_new = before.is_none() && counts;
                    let zero = is_new.then(|| self.times.zero(now.start)).flatten();
                    if let Some(before) = before {
                        self.ended_buckets(before, now, &names);
                    }
                    self.point(now, &mut names, Write::Value(zero));
                }
                (Some(before), None) => self.point(before, &mut names, Write::End),
                (None, None) => {}
            }
        }
    }

    fn point(&mut self, point: &Point, names: &mut Names, write: Write) {
        match &point.value {
            Value::Integer(value) => self.sample(&point.labels, &names.value, *value as f64, write),
            Value::Float(value) => self.sample(&point.labels, &names.value, *value, write),
            Value::Histogram(histogram) => {
                names.render(histogram.bounds(), &self.external);
                for ((_, below), name) in histogram.cumulative().zip(&names.buckets) {
                    self.sample(&point.labels, name, below as f64, write);
                }
                self.sample(&point.labels, &names.sum, histogram.sum(), write);
                self.sample(&point.labels, &names.count, histogram.count() as f64, write);
            }
        }
    }

    /// Writes stale markers for the buckets that a histogram no longer has.
    fn ended_buckets(&mut self, before: &Point, now: &Point, names: &Names) {
        let (Value::Histogram(before), Value::Histogram(histogram)) = (&before.value, &now.value) else {
            return;
        };
        if before.bounds() == histogram.bounds() {
            return;
        }
        for bound in before.bounds().iter().filter(|bound| !histogram.bounds().contains(bound)) {
            let name = extras(&self.external, &names.bucket, Some(&bound_text(*bound)));
            self.sample(&now.labels, &name, 0.0, Write::End);
        }
    }

    /// Writes a series with the labels of a point and those of its name.
    fn sample(&mut self, labels: &Labels, extras: &[Label], value: f64, write: Write) {
        self.labels.clear();
        merge(labels, extras, &mut self.labels);
        let at = |time: Timestamp, bits| Sample { bits, time: time.0 };
        let now = |bits| at(self.times.taken, bits);
        let samples: &[Sample] = match write {
            Write::Value(Some(zero)) => &[at(zero, 0.0_f64.to_bits()), now(value.to_bits())],
            Write::Value(None) => &[now(value.to_bits())],
            Write::End => &[now(STALE)],
        };
        self.requests.add(&Series(&self.labels, samples));
    }
}

fn points(family: Option<&Family>) -> &[Point] {
    family.map_or(&[], Family::points)
}

/// Labels of the samples of a family in addition to those of their point.
struct Names {
    /// Those of a number.
    value: Vec<Label>,
    /// Those of a histogram.
    sum: Vec<Label>,
    count: Vec<Label>,
    bucket: String,
    /// Bounds of the previous histogram: histograms of a family usually have the same bounds.
    bounds: Vec<f64>,
    /// One for each bound, and `+Inf`.
    buckets: Vec<Vec<Label>>,
}

impl Names {
    fn new(metadata: &Metadata, external: &[Label]) -> Self {
        let named = |suffix| extras(external, &format!("{}{suffix}", metadata.name()), None);
        let [value, sum, count] = [metadata.kind().suffix(), "_sum", "_count"].map(named);
        let bucket = format!("{}_bucket", metadata.name());
        Self { value, sum, count, bucket, bounds: Vec::new(), buckets: Vec::new() }
    }

    fn render(&mut self, bounds: &[f64], external: &[Label]) {
        if self.bounds == bounds && !self.buckets.is_empty() {
            return;
        }
        self.bounds = bounds.to_vec();
        let ends = bounds.iter().map(|&bound| bound_text(bound)).chain(["+Inf".to_owned()]);
        self.buckets = ends.map(|end| extras(external, &self.bucket, Some(&end))).collect();
    }
}

/// A label as a field `labels` (1) of a `TimeSeries`. The bytes equal those of the field `label` of a `Metric`, as in [`Labels::protobuf`].
#[derive(Debug, Clone, PartialEq, Eq)]
struct Label {
    name: String,
    field: Vec<u8>,
}

impl Label {
    fn new(name: &str, value: &str) -> Self {
        let mut field = Vec::new();
        field.message(1, &Pair(name, value));
        Self { name: name.to_owned(), field }
    }
}

/// Message `Label`.
struct Pair<'a>(&'a str, &'a str);

impl Message for Pair<'_> {
    fn write(&self, to: &mut impl Sink) {
        to.string(1, self.0);
        to.string(2, self.1);
    }
}

/// Returns the external labels with the name of a sample and the bound of its bucket, sorted by name.
fn extras(external: &[Label], name: &str, le: Option<&str>) -> Vec<Label> {
    let mut all = external.to_vec();
    all.push(Label::new("__name__", name));
    all.extend(le.map(|le| Label::new("le", le)));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Writes labels and extras as one sorted list. If both contain a name, the extra is dropped.
fn merge(labels: &Labels, extras: &[Label], out: &mut Vec<u8>) {
    let mut rest = labels.protobuf();
    let mut extras = extras.iter().peekable();
    for (name, value) in labels.pairs() {
        while let Some(extra) = extras.next_if(|extra| *extra.name < *name) {
            out.extend_from_slice(&extra.field);
        }
        extras.next_if(|extra| *extra.name == *name);
        let length = field_length(name, value);
        // In bounds: the pairs were read from these bytes.
        let (field, after) = rest.split_at(length.min(rest.len()));
        out.extend_from_slice(field);
        rest = after;
    }
    extras.for_each(|extra| out.extend_from_slice(&extra.field));
}

/// Returns the size of a label in [`Labels::protobuf`], in bytes.
fn field_length(name: &str, value: &str) -> usize {
    delimited(delimited(name.len() as u64) + delimited(value.len() as u64)) as usize
}

/// Message `Sample`.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Bits of the value. Conversion to a number could change the payload of a stale marker.
    bits: u64,
    /// Time in milliseconds since the Unix epoch.
    time: u64,
}

impl Message for Sample {
    fn write(&self, to: &mut impl Sink) {
        to.fixed(1, self.bits);
        to.unsigned(2, self.time);
    }
}

/// Message `TimeSeries`: encoded labels, and samples in order of their times.
struct Series<'a>(&'a [u8], &'a [Sample]);

impl Message for Series<'_> {
    fn write(&self, to: &mut impl Sink) {
        to.bytes(self.0);
        self.1.iter().for_each(|sample| to.message(2, sample));
    }
}

/// The requests of a snapshot, filled series by series.
#[derive(Debug, Default)]
struct Requests {
    limit: usize,
    bytes: Vec<u8>,
    items: u64,
    encoded: Encoded,
}

impl Requests {
    /// Adds a series to the current request, or to a new one if there is no space.
    fn add(&mut self, series: &Series<'_>) {
        let items = series.1.len() as u64;
        if self.items + items > SAMPLES || !self.fits(series) {
            self.encoded.end_request(&mut self.bytes, &mut self.items);
            if !self.fits(series) {
                self.encoded.left_out += items;
                return;
            }
        }
        self.items += items;
    }

    /// Writes a series if there is space, and returns whether it was written.
    fn fits(&mut self, series: &Series<'_>) -> bool {
        let before = self.bytes.len();
        self.bytes.message(1, series);
        let fits = self.bytes.len() <= self.limit;
        if !fits {
            self.bytes.truncate(before);
        }
        fits
    }

    fn finish(mut self) -> Encoded {
        self.encoded.end_request(&mut self.bytes, &mut self.items);
        self.encoded
    }
}

/// Merges two sorted lists: equal elements are returned together.
fn joined<'a, T>(
    mut before: &'a [T],
    mut now: &'a [T],
    order: impl Fn(&T, &T) -> Ordering,
) -> impl Iterator<Item = (Option<&'a T>, Option<&'a T>)> {
    std::iter::from_fn(move || {
        let next = match (before.first(), now.first()) {
            (None, None) => return None,
            (Some(b), Some(n)) => order(b, n),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
        };
        let take = |list: &mut &'a [T]| {
            let (first, rest) = list.split_first()?;
            *list = rest;
            Some(first)
        };
        let of_before = if next == Ordering::Greater { None } else { take(&mut before) };
        let of_now = if next == Ordering::Less { None } else { take(&mut now) };
        Some((of_before, of_now))
    })
}

#[cfg(test)]
mod tests;
