//! Histograms in both OTLP forms, cumulative or as the difference from an earlier state.

use crate::metrics::{Histogram, Native};

/// Maximum number of exponential buckets on one side of zero, from the first to the last, including empty ones. It equals the number of
/// buckets that a histogram of the exporter keeps in use. Wider ranges are reported with lower resolution.
const MAX: i32 = 320;

/// Counts in exponential buckets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exponential {
    /// There are 2^scale buckets for each power of two.
    pub(super) scale: i32,
    pub(super) zero_count: u64,
    pub(super) zero_threshold: f64,
    pub(super) positive: Side,
    pub(super) negative: Side,
}

/// The buckets on one side of zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Side {
    /// Index of the first bucket. Bucket `i` holds values above `base^i`, up to and including `base^(i+1)`.
    pub(super) offset: i32,
    pub(super) counts: Vec<u64>,
}

impl Exponential {
    /// Returns the buckets of a histogram minus the counts of an earlier state `before`; `None` if `before` is not an earlier state.
    pub(super) fn of(native: Native<'_>, before: Option<Native<'_>>) -> Option<Self> {
        let halvings = halvings(native.positive()).max(halvings(native.negative()));
        let mut exponential = Self {
            // At most the number of bits of an index.
            scale: native.schema() - halvings as i32,
            zero_count: native.zero_count(),
            zero_threshold: native.zero_threshold(),
            positive: Side::of(native.positive(), halvings),
            negative: Side::of(native.negative(), halvings),
        };
        if let Some(before) = before {
            // The resolution of a histogram only decreases.
            let halvings = u32::try_from(before.schema() - exponential.scale).ok()?;
            exponential.zero_count = exponential.zero_count.checked_sub(before.zero_count())?;
            exponential.positive.take_away(before.positive(), halvings)?;
            exponential.negative.take_away(before.negative(), halvings)?;
        }
        Some(exponential)
    }

    /// Returns the total count.
    pub(super) fn count(&self) -> u64 {
        let sides = self.positive.counts.iter().chain(&self.negative.counts);
        self.zero_count + sides.sum::<u64>()
    }
}

/// Returns how often the resolution must be halved for the number of buckets to be within the limit.
fn halvings(buckets: impl Iterator<Item = (i32, u64)> + Clone) -> u32 {
    let Some((first, _)) = buckets.clone().next() else { return 0 };
    let last = buckets.last().map_or(first, |bucket| bucket.0);
    let mut halvings = 0;
    while bucket(last, halvings) - bucket(first, halvings) >= MAX {
        halvings += 1;
    }
    halvings
}

/// Returns the OTLP index of a bucket after a number of halvings. OTLP numbers buckets by their lower bound.
fn bucket(index: i32, halvings: u32) -> i32 {
    (index - 1) >> halvings
}

impl Side {
    fn of(buckets: impl Iterator<Item = (i32, u64)> + Clone, halvings: u32) -> Self {
        let Some((first, _)) = buckets.clone().next() else { return Self::default() };
        let offset = bucket(first, halvings);
        let mut counts = Vec::new();
        for (index, count) in buckets {
            // Ascending, and at most `MAX` above the first.
            let place = bucket(index, halvings).abs_diff(offset) as usize;
            counts.resize(place + 1, 0);
            counts[place] += count;
        }
        Self { offset, counts }
    }

    fn take_away(&mut self, buckets: impl Iterator<Item = (i32, u64)>, halvings: u32) -> Option<()> {
        for (index, count) in buckets {
            let place = usize::try_from(bucket(index, halvings) - self.offset).ok()?;
            let left = self.counts.get_mut(place)?;
            *left = left.checked_sub(count)?;
        }
        // Empty buckets at the ends are omitted.
        let empty = self.counts.iter().take_while(|&&count| count == 0).count();
        self.counts.drain(..empty);
        self.counts.truncate(self.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1));
        self.offset = if self.counts.is_empty() { 0 } else { self.offset + empty as i32 };
        Some(())
    }
}

/// Returns the count of each classic bucket, including the last one, minus those of an earlier state; `None` if it is not one.
pub(super) fn explicit(histogram: &Histogram, before: Option<&Histogram>) -> Option<Vec<u64>> {
    let mut counts = separate(histogram);
    if let Some(before) = before {
        if histogram.bounds() != before.bounds() {
            return None;
        }
        for (count, before) in counts.iter_mut().zip(separate(before)) {
            *count = count.checked_sub(before)?;
        }
    }
    Some(counts)
}

fn separate(histogram: &Histogram) -> Vec<u64> {
    let mut below = 0;
    let counts = histogram.cumulative().map(|(_, up_to)| {
        let count = up_to - below;
        below = up_to;
        count
    });
    counts.collect()
}

/// Reports whether some buckets hold negative values. Their sum is then omitted, because it may decrease.
pub(super) fn has_negative(histogram: &Histogram) -> bool {
    match histogram.native() {
        Some(native) => native.negative().next().is_some(),
        None => histogram.cumulative().take_while(|(end, _)| *end < 0.0).any(|(_, below)| below > 0),
    }
}
