//! Data points as protobuf.

use super::distribution::{Exponential, Side};
use crate::export::protobuf::wire::{Message, Sink, WireType};

/// The fields of the attributes in `NumberDataPoint`, `HistogramDataPoint` and `ExponentialHistogramDataPoint`.
pub(super) const NUMBER_ATTRIBUTES: u32 = 7;
pub(super) const EXPLICIT_ATTRIBUTES: u32 = 9;
pub(super) const EXPONENTIAL_ATTRIBUTES: u32 = 1;

/// From when to when, in nanoseconds since the Unix epoch; a start of 0 is not known, or means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// In this order in all kinds of points.
impl Message for Times {
    fn write(&self, to: &mut impl Sink) {
        fixed(to, 2, self.start);
        fixed(to, 3, self.end);
    }
}

/// The value of a `NumberDataPoint`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Integer(i64),
    Double(f64),
}

/// `NumberDataPoint`, with its attributes as bytes.
pub(super) struct NumberPoint<'a>(pub(super) Times, pub(super) Number, pub(super) &'a [u8]);

impl Message for NumberPoint<'_> {
    fn write(&self, to: &mut impl Sink) {
        self.0.write(to);
        match self.1 {
            // Zero is a value, not the lack of one.
            Number::Integer(value) => {
                to.key(6, WireType::Fixed64);
                to.bytes(&value.to_le_bytes());
            }
            Number::Double(value) => to.double(4, value),
        }
        to.bytes(self.2);
    }
}

/// `HistogramDataPoint`.
pub(super) struct ExplicitPoint<'a> {
    pub(super) times: Times,
    pub(super) sum: Option<f64>,
    pub(super) counts: &'a [u64],
    pub(super) bounds: &'a [f64],
    pub(super) attributes: &'a [u8],
}

impl Message for ExplicitPoint<'_> {
    fn write(&self, to: &mut impl Sink) {
        self.times.write(to);
        fixed(to, 4, self.counts.iter().sum());
        self.sum.iter().for_each(|&sum| to.double(5, sum));
        to.message(6, &Fixed(self.counts.iter().map(|count| count.to_le_bytes())));
        if !self.bounds.is_empty() {
            to.message(7, &Fixed(self.bounds.iter().map(|bound| bound.to_le_bytes())));
        }
        to.bytes(self.attributes);
    }
}

/// `ExponentialHistogramDataPoint`.
pub(super) struct ExponentialPoint<'a> {
    pub(super) times: Times,
    pub(super) sum: Option<f64>,
    pub(super) buckets: &'a Exponential,
    pub(super) attributes: &'a [u8],
}

impl Message for ExponentialPoint<'_> {
    fn write(&self, to: &mut impl Sink) {
        let buckets = self.buckets;
        to.bytes(self.attributes);
        self.times.write(to);
        fixed(to, 4, buckets.count());
        self.sum.iter().for_each(|&sum| to.double(5, sum));
        signed(to, 6, buckets.scale);
        fixed(to, 7, buckets.zero_count);
        for (field, side) in [(8, &buckets.positive), (9, &buckets.negative)] {
            if !side.counts.is_empty() {
                to.message(field, side);
            }
        }
        to.double(14, buckets.zero_threshold);
    }
}

/// `ExponentialHistogramDataPoint.Buckets`.
impl Message for Side {
    fn write(&self, to: &mut impl Sink) {
        signed(to, 1, self.offset);
        to.message(2, &Packed(&self.counts));
    }
}

/// A packed field of `uint64`.
struct Packed<'a>(&'a [u64]);

impl Message for Packed<'_> {
    fn write(&self, to: &mut impl Sink) {
        self.0.iter().for_each(|&count| to.varint(count));
    }
}

/// A packed field of numbers that take eight bytes each.
struct Fixed<I>(I);

impl<I: Iterator<Item = [u8; 8]> + Clone> Message for Fixed<I> {
    fn write(&self, to: &mut impl Sink) {
        self.0.clone().for_each(|bytes| to.bytes(&bytes));
    }
}

/// Zero is what is read where nothing is written.
fn fixed(to: &mut impl Sink, field: u32, value: u64) {
    if value > 0 {
        to.key(field, WireType::Fixed64);
        to.bytes(&value.to_le_bytes());
    }
}

fn signed(to: &mut impl Sink, field: u32, value: i32) {
    if value != 0 {
        to.signed(field, i64::from(value));
    }
}
