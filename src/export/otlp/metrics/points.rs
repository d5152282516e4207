//! Data points as protobuf.

use super::distribution::{Exponential, Side};
use crate::export::protobuf::wire::{Message, Packed, Sink};

/// Fields of the attributes in `NumberDataPoint`, `HistogramDataPoint` and `ExponentialHistogramDataPoint`.
pub(super) const NUMBER_ATTRIBUTES: u32 = 7;
pub(super) const EXPLICIT_ATTRIBUTES: u32 = 9;
pub(super) const EXPONENTIAL_ATTRIBUTES: u32 = 1;

/// Start and end in nanoseconds since the Unix epoch. A start of 0 is unknown or irrelevant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Same fields in all kinds of points.
impl Message for Times {
    fn write(&self, to: &mut impl Sink) {
        fixed(to, 2, self.start);
        fixed(to, 3, self.end);
    }
}

/// Value of a `NumberDataPoint`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Integer(i64),
    Double(f64),
}

/// Message `NumberDataPoint`, with encoded attributes.
pub(super) struct NumberPoint<'a>(pub(super) Times, pub(super) Number, pub(super) &'a [u8]);

impl Message for NumberPoint<'_> {
    fn write(&self, to: &mut impl Sink) {
        self.0.write(to);
        match self.1 {
            // Zero is a value, not a missing one, so it is written.
            Number::Integer(value) => to.fixed(6, value.cast_unsigned()),
            Number::Double(value) => to.double(4, value),
        }
        to.bytes(self.2);
    }
}

/// Counts of a histogram in the form of its family.
pub(super) enum Buckets {
    Explicit(Vec<u64>),
    Exponential(Exponential),
}

/// Message `HistogramDataPoint` or `ExponentialHistogramDataPoint`, with encoded attributes.
pub(super) struct HistogramPoint<'a> {
    pub(super) times: Times,
    pub(super) sum: Option<f64>,
    pub(super) buckets: &'a Buckets,
    /// Bounds of explicit buckets.
    pub(super) bounds: &'a [f64],
    pub(super) attributes: &'a [u8],
}

impl Message for HistogramPoint<'_> {
    fn write(&self, to: &mut impl Sink) {
        let (count, before, behind): (u64, &[u8], &[u8]) = match self.buckets {
            Buckets::Explicit(counts) => (counts.iter().sum(), &[], self.attributes),
            Buckets::Exponential(buckets) => (buckets.count(), self.attributes, &[]),
        };
        to.bytes(before);
        self.times.write(to);
        fixed(to, 4, count);
        self.sum.iter().for_each(|&sum| to.double(5, sum));
        match self.buckets {
            Buckets::Explicit(counts) => {
                to.message(6, &Fixed(counts.iter().map(|count| count.to_le_bytes())));
                if !self.bounds.is_empty() {
                    to.message(7, &Fixed(self.bounds.iter().map(|bound| bound.to_le_bytes())));
                }
            }
            Buckets::Exponential(buckets) => {
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
        to.bytes(behind);
    }
}

/// Message `ExponentialHistogramDataPoint.Buckets`.
impl Message for Side {
    fn write(&self, to: &mut impl Sink) {
        signed(to, 1, self.offset);
        to.message(2, &Packed(self.counts.iter().copied()));
    }
}

/// A packed field of eight-byte numbers.
struct Fixed<I>(I);

impl<I: Iterator<Item = [u8; 8]> + Clone> Message for Fixed<I> {
    fn write(&self, to: &mut impl Sink) {
        self.0.clone().for_each(|bytes| to.bytes(&bytes));
    }
}

/// Zero is the default of an absent field, so it is not written.
fn fixed(to: &mut impl Sink, field: u32, value: u64) {
    if value > 0 {
        to.fixed(field, value);
    }
}

fn signed(to: &mut impl Sink, field: u32, value: i32) {
    if value != 0 {
        to.signed(field, i64::from(value));
    }
}
