//! Fields of a native `Histogram`: spans of buckets, and the difference of each count from the previous one.

use std::iter::Peekable;

use super::wire::{Message, Sink, zigzag};
use crate::metrics::Native;

/// Maximum number of empty buckets that are written explicitly between two others, because they are shorter than another span. Same as in
/// client_golang.
const GAP: i32 = 2;

/// Writes the fields. The zero threshold, which is never 0, distinguishes an empty native histogram from a classic one.
pub(super) fn write(native: Native<'_>, to: &mut impl Sink) {
    to.signed(5, i64::from(native.schema()));
    to.double(6, native.zero_threshold());
    to.unsigned(7, native.zero_count());
    write_side(9, 10, native.negative(), to);
    write_side(12, 13, native.positive(), to);
}

fn write_side(
    span_field: u32,
    delta_field: u32,
    buckets: impl Iterator<Item = (i32, u64)> + Clone,
    to: &mut impl Sink,
) {
    let mut spans = Spans { buckets: filled(buckets.clone()).peekable(), end: 0 };
    // Nothing is written for a side without values.
    let Some(first) = spans.next() else { return };
    to.message(span_field, &first);
    spans.for_each(|span| to.message(span_field, &span));
    to.message(delta_field, &Deltas(filled(buckets)));
}

/// Inserts empty buckets in small gaps.
fn filled(buckets: impl Iterator<Item = (i32, u64)> + Clone) -> impl Iterator<Item = (i32, u64)> + Clone {
    let mut expected = None;
    buckets.flat_map(move |(index, count)| {
        let missing = match expected.replace(index + 1) {
            Some(expected) if index - expected <= GAP => expected..index,
            _ => index..index,
        };
        missing.map(|index| (index, 0)).chain([(index, count)])
    })
}

/// Spans of adjacent buckets.
struct Spans<I: Iterator> {
    buckets: Peekable<I>,
    /// End of the previous span; initially the bucket to which the first offset refers.
    end: i32,
}

impl<I: Iterator<Item = (i32, u64)>> Iterator for Spans<I> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let (begin, _) = self.buckets.next()?;
        let offset = begin - self.end;
        self.end = begin + 1;
        while self.buckets.next_if(|&(index, _)| index == self.end).is_some() {
            self.end += 1;
        }
        Some(Span { offset, length: self.end.abs_diff(begin) })
    }
}

/// Message `BucketSpan`.
struct Span {
    /// Number of empty buckets between this span and the previous one; for the first span, its index.
    offset: i32,
    length: u32,
}

impl Message for Span {
    fn write(&self, to: &mut impl Sink) {
        to.signed(1, i64::from(self.offset));
        to.unsigned(2, u64::from(self.length));
    }
}

/// A packed field of `sint64`: the first count, then the difference of each count from the previous one.
struct Deltas<I>(I);

impl<I: Iterator<Item = (i32, u64)> + Clone> Message for Deltas<I> {
    const LONG: bool = true;

    fn write(&self, to: &mut impl Sink) {
        let mut before = 0_u64;
        for (_, count) in self.0.clone() {
            // Exact: a histogram has at most `i64::MAX` values.
            to.varint(zigzag(count.wrapping_sub(before).cast_signed()));
            before = count;
        }
    }
}
