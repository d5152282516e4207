//! Requests within a size, filled point by point.

use super::names::Instrument;
use super::{Encoded, Payload};
use crate::export::otlp::attribute::{Resource, SCHEMA_URL, Scope};
use crate::export::protobuf::wire::{Length, Message, Sink, WireType};

/// Which data a `Metric` has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    Gauge,
    Sum { delta: bool, monotonic: bool },
    Explicit { delta: bool },
    Exponential { delta: bool },
}

impl Data {
    /// The field of `Metric` that it is in.
    fn field(self) -> u32 {
        match self {
            Self::Gauge => 5,
            Self::Sum { .. } => 7,
            Self::Explicit { .. } => 9,
            Self::Exponential { .. } => 10,
        }
    }
}

/// What it says besides its points.
impl Message for Data {
    fn write(&self, to: &mut impl Sink) {
        // `AggregationTemporality`.
        let temporality = |delta| if delta { 1 } else { 2 };
        match *self {
            Self::Gauge => {}
            Self::Sum { delta, monotonic } => {
                to.unsigned(2, temporality(delta));
                if monotonic {
                    to.unsigned(3, 1);
                }
            }
            Self::Explicit { delta } | Self::Exponential { delta } => to.unsigned(2, temporality(delta)),
        }
    }
}

/// The most that a key and a length take: a byte, for no field is above 15, and ten.
const FRAME: usize = 11;

/// The requests of a snapshot.
///
/// Points are written behind each other; when the last one of a metric is known, so are the lengths that stand before
/// them, and they move to the body of the request, which in the same way is put behind its head.
#[derive(Debug)]
pub(super) struct Requests {
    limit: usize,
    /// `ResourceMetrics.resource` with its key, and `ScopeMetrics.scope`.
    resource: Vec<u8>,
    scope: Vec<u8>,
    /// `schema_url`, which both have.
    schema: Vec<u8>,
    /// The fields `metrics` of the `ScopeMetrics`, and how many points they have.
    body: Vec<u8>,
    items: u64,
    metric: Metric,
    encoded: Encoded,
}

/// The metric that is being written.
#[derive(Debug, Default)]
struct Metric {
    /// All fields before the data.
    head: Vec<u8>,
    /// The key of the data.
    field: u32,
    /// The fields of the data behind the points.
    tail: Vec<u8>,
    points: Vec<u8>,
    items: u64,
}

impl Requests {
    pub(super) fn new(resource: &Resource, limit: usize) -> Self {
        let (mut head, mut scope, mut schema) = (Vec::new(), Vec::new(), Vec::new());
        head.message(1, resource);
        scope.message(1, &Scope);
        schema.string(3, SCHEMA_URL);
        Self {
            limit,
            resource: head,
            scope,
            schema,
            body: Vec::new(),
            items: 0,
            metric: Metric::default(),
            encoded: Encoded::default(),
        }
    }

    /// The points that follow are of this metric.
    pub(super) fn begin(&mut self, instrument: &Instrument, help: &str, data: Data) {
        let Metric { head, field, tail, .. } = &mut self.metric;
        head.clear();
        head.string(1, &instrument.name);
        head.string(2, help);
        if !instrument.unit.is_empty() {
            head.string(3, &instrument.unit);
        }
        *field = data.field();
        tail.clear();
        data.write(tail);
    }

    /// Adds a point; to a request of its own, if the last one has no room for it.
    pub(super) fn point(&mut self, point: &impl Message) {
        let begin = self.metric.points.len();
        self.metric.points.message(1, point);
        self.metric.items += 1;
        if self.length() <= self.limit {
            return;
        }
        let last = self.metric.points.split_off(begin);
        self.metric.items -= 1;
        self.end();
        self.send();
        self.metric.points.extend(last);
        self.metric.items = 1;
        if self.length() > self.limit {
            self.metric.points.clear();
            self.metric.items = 0;
            self.encoded.left_out += 1;
        }
    }

    /// No more points of this metric follow.
    pub(super) fn end(&mut self) {
        let Metric { head, field, tail, points, items } = &mut self.metric;
        if *items == 0 {
            return;
        }
        let data = points.len() + tail.len();
        let mut before = Length::default();
        before.key(*field, WireType::Delimited);
        before.varint(data as u64);
        let to = &mut self.body;
        to.key(2, WireType::Delimited);
        to.varint((head.len() + data) as u64 + before.count());
        to.extend_from_slice(head);
        to.key(*field, WireType::Delimited);
        to.varint(data as u64);
        to.append(points);
        to.extend_from_slice(tail);
        self.items += std::mem::take(items);
    }

    /// What was encoded, after the last metric.
    pub(super) fn finish(mut self) -> Encoded {
        self.send();
        self.encoded
    }

    /// How long the request would be at most, if it ended here.
    fn length(&self) -> usize {
        let Metric { head, tail, points, .. } = &self.metric;
        let metric = FRAME + head.len() + FRAME + points.len() + tail.len();
        FRAME
            + self.resource.len()
            + FRAME
            + self.scope.len()
            + self.body.len()
            + metric
            + 2 * self.schema.len()
    }

    /// Ends the request, if there is anything in it.
    fn send(&mut self) {
        if self.items == 0 {
            return;
        }
        let scope = self.scope.len() + self.body.len() + self.schema.len();
        let mut before = Length::default();
        before.key(2, WireType::Delimited);
        before.varint(scope as u64);
        let whole = (self.resource.len() + scope + self.schema.len()) as u64 + before.count();
        let mut bytes = Vec::with_capacity(FRAME + whole as usize);
        bytes.key(1, WireType::Delimited);
        bytes.varint(whole);
        bytes.extend_from_slice(&self.resource);
        bytes.key(2, WireType::Delimited);
        bytes.varint(scope as u64);
        bytes.extend_from_slice(&self.scope);
        bytes.append(&mut self.body);
        bytes.extend_from_slice(&self.schema);
        bytes.extend_from_slice(&self.schema);
        self.encoded.payloads.push(Payload { bytes, items: std::mem::take(&mut self.items) });
    }
}
