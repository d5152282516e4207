//! Requests with a size limit, filled point by point.

use super::Encoded;
use super::names::Instrument;
use crate::export::otlp::attribute::{Resource, SCHEMA_URL, Scope};
use crate::export::protobuf::wire::{Message, Sink, WireType};

/// Kind of data in a `Metric`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Data {
    /// Field number in `Metric`.
    pub(super) field: u32,
    /// Whether the temporality is delta; `None` for data without a temporality.
    pub(super) delta: Option<bool>,
    pub(super) monotonic: bool,
}

pub(super) const GAUGE: u32 = 5;
pub(super) const SUM: u32 = 7;
pub(super) const EXPLICIT: u32 = 9;
pub(super) const EXPONENTIAL: u32 = 10;

impl Data {
    /// Returns the approximate size of a point in bytes.
    pub(super) fn usual(self) -> usize {
        if matches!(self.field, GAUGE | SUM) { 200 } else { 500 }
    }
}

/// Fields other than the points.
impl Message for Data {
    fn write(&self, to: &mut impl Sink) {
        // Values of `AggregationTemporality`.
        self.delta.iter().for_each(|&delta| to.unsigned(2, if delta { 1 } else { 2 }));
        to.optional(3, u64::from(self.monotonic));
    }
}

/// Maximum excess of the lengths of four messages over the estimate.
const REST: usize = 4 * 10;

/// The requests of a snapshot.
///
/// Points are appended directly to the request. The lengths of the enclosing messages are known only at the end. Space is reserved for
/// their expected encoded size, so nothing is moved if the estimate is correct.
#[derive(Debug, Default)]
pub(super) struct Requests {
    limit: usize,
    /// Fields of `ResourceMetrics` and `ScopeMetrics` that precede the others, and `schema_url`, which both have.
    resource: Vec<u8>,
    scope: Vec<u8>,
    schema: Vec<u8>,
    metric: Metric,
    /// The current request, its number of points, and its unfinished messages.
    bytes: Vec<u8>,
    items: u64,
    open: Vec<Open>,
    encoded: Encoded,
}

/// The current metric.
#[derive(Debug, Default)]
struct Metric {
    /// All fields before the data.
    head: Vec<u8>,
    /// Key of the data.
    field: u32,
    /// Fields of the data after the points.
    tail: Vec<u8>,
    /// Expected size of the metric in bytes.
    foreseen: usize,
    /// Number of its points in this request. A metric without points is not written.
    items: u64,
}

/// A message whose length is not known yet.
#[derive(Debug)]
struct Open {
    /// Position of the length, and the space reserved for it.
    at: usize,
    width: usize,
}

impl Requests {
    pub(super) fn new(resource: &Resource, limit: usize) -> Self {
        let (mut head, mut scope, mut schema) = (Vec::new(), Vec::new(), Vec::new());
        head.message(1, resource);
        scope.message(1, &Scope);
        schema.string(3, SCHEMA_URL);
        Self { limit, resource: head, scope, schema, ..Self::default() }
    }

    /// Starts a metric to which the following points belong. `foreseen` is their approximate size in bytes.
    pub(super) fn begin(&mut self, instrument: &Instrument, help: &str, data: Data, foreseen: usize) {
        let metric = &mut self.metric;
        metric.head.clear();
        metric.head.string(1, &instrument.name);
        metric.head.string(2, help);
        if !instrument.unit.is_empty() {
            metric.head.string(3, &instrument.unit);
        }
        metric.field = data.field;
        metric.tail.clear();
        data.write(&mut metric.tail);
        metric.foreseen = foreseen;
    }

    /// Adds a point, in a new request if the current one has no space for it.
    pub(super) fn point(&mut self, point: &impl Message) {
        if self.add(point) {
            return;
        }
        if self.items > 0 {
            self.end();
            self.send();
            if self.add(point) {
                return;
            }
        }
        self.encoded.left_out += 1;
    }

    /// Adds a point if there is space, and returns whether it was added.
    fn add(&mut self, point: &impl Message) -> bool {
        let (before, depth) = (self.bytes.len(), self.open.len());
        if self.open.is_empty() {
            self.open_message(1, self.limit);
            self.bytes.extend_from_slice(&self.resource);
            self.open_message(2, self.limit);
            self.bytes.extend_from_slice(&self.scope);
        }
        if self.metric.items == 0 {
            let foreseen = self.metric.foreseen.min(self.limit.saturating_sub(self.bytes.len()));
            self.open_message(2, foreseen);
            self.bytes.extend_from_slice(&self.metric.head);
            self.open_message(self.metric.field, foreseen);
        }
        self.bytes.message(1, point);
        let fits = self.bytes.len() + self.metric.tail.len() + 2 * self.schema.len() + REST <= self.limit;
        if fits {
            self.metric.items += 1;
            self.items += 1;
        } else {
            self.bytes.truncate(before);
            self.open.truncate(depth);
        }
        fits
    }

    /// Ends the current metric.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.metric.items) > 0 {
            self.bytes.extend_from_slice(&self.metric.tail);
            self.close_message();
            self.close_message();
        }
    }

    /// Returns all requests, after the last metric.
    pub(super) fn finish(mut self) -> Encoded {
        self.send();
        self.encoded
    }

    /// Ends the current request, if it is not empty.
    fn send(&mut self) {
        if self.items == 0 {
            return;
        }
        for _ in 0..2 {
            self.bytes.extend_from_slice(&self.schema);
            self.close_message();
        }
        self.encoded.end_request(&mut self.bytes, &mut self.items);
    }

    fn open_message(&mut self, field: u32, foreseen: usize) {
        self.bytes.key(field, WireType::Delimited);
        let at = self.bytes.len();
        self.bytes.varint(foreseen as u64);
        self.open.push(Open { at, width: self.bytes.len() - at });
    }

    fn close_message(&mut self) {
        let Some(Open { at, width }) = self.open.pop() else { return };
        let mut length = Vec::with_capacity(10);
        length.varint((self.bytes.len() - at - width) as u64);
        // In bounds: the length was reserved there.
        if length.len() == width {
            self.bytes[at..at + width].copy_from_slice(&length);
        } else {
            drop(self.bytes.splice(at..at + width, length));
        }
    }
}
