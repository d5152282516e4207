//! Histograms in the two forms of OTLP, whole or as what came since an earlier state of the same one.

use crate::metrics::{Histogram, Native};

/// How many exponential buckets a side of zero may have, counted from its first to its last, the empty ones too. As many as
/// a histogram of the program keeps in use; values that lie further apart are told at a lower resolution.
const MOST: i32 = 320;

/// Counts in exponential buckets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exponential {
    /// 2^scale buckets for each power of two.
    pub(super) scale: i32,
    pub(super) zero_count: u64,
    pub(super) zero_threshold: f64,
    pub(super) positive: Side,
    pub(super) negative: Side,
}

/// The buckets on one side of zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Side {
    /// The index of the first; bucket `i` holds values above `base^i`, up to `base^(i+1)` and with it.
    pub(super) offset: i32,
    pub(super) counts: Vec<u64>,
}

impl Exponential {
    /// Those of a histogram. `before` is an earlier state, whose counts are taken away; `None` if it is none.
    pub(super) fn of(native: Native<'_>, before: Option<Native<'_>>) -> Option<Self> {
        let halvings = halvings(native.positive()).max(halvings(native.negative()));
        let mut exponential = Self {
            // At most as many as there are bits in an index.
            scale: native.schema() - halvings as i32,
            zero_count: native.zero_count(),
            zero_threshold: native.zero_threshold(),
            positive: Side::of(native.positive(), halvings),
            negative: Side::of(native.negative(), halvings),
        };
        if let Some(before) = before {
            // A histogram only ever becomes coarser.
            let halvings = u32::try_from(before.schema() - exponential.scale).ok()?;
            exponential.zero_count = exponential.zero_count.checked_sub(before.zero_count())?;
            exponential.positive.take_away(before.positive(), halvings)?;
            exponential.negative.take_away(before.negative(), halvings)?;
        }
        Some(exponential)
    }

    /// How many values there are.
    pub(super) fn count(&self) -> u64 {
        let sides = self.positive.counts.iter().chain(&self.negative.counts);
        self.zero_count + sides.sum::<u64>()
    }
}

/// By how many scales the resolution has to be lower for the buckets to be few enough.
fn halvings(buckets: impl Iterator<Item = (i32, u64)> + Clone) -> u32 {
    let Some((first, _)) = buckets.clone().next() else { return 0 };
    let last = buckets.last().map_or(first, |bucket| bucket.0);
    let mut halvings = 0;
    while bucket(last, halvings) - bucket(first, halvings) >= MOST {
        halvings += 1;
    }
    halvings
}

/// What OTLP calls a bucket, so many scales further down: it numbers buckets by where they begin.
fn bucket(index: i32, halvings: u32) -> i32 {
    (index - 1) >> halvings
}

impl Side {
    fn of(buckets: impl Iterator<Item = (i32, u64)> + Clone, halvings: u32) -> Self {
        let Some((first, _)) = buckets.clone().next() else { return Self::default() };
        let offset = bucket(first, halvings);
        let mut counts = Vec::new();
        for (index, count) in buckets {
            // Ascending, and never more than `MOST` behind the first.
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
        // What is empty at the ends need not be told.
        let empty = self.counts.iter().take_while(|&&count| count == 0).count();
        self.counts.drain(..empty);
        self.counts.truncate(self.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1));
        self.offset = if self.counts.is_empty() { 0 } else { self.offset + empty as i32 };
        Some(())
    }
}

/// The count of each classic bucket, the one without end included, without those of an earlier state; `None` if it is none.
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

/// Whether there are values below zero, as far as buckets tell: their sum is not told, for it need not grow.
pub(super) fn has_negative(histogram: &Histogram) -> bool {
    match histogram.native() {
        Some(native) => native.negative().next().is_some(),
        None => histogram.cumulative().take_while(|(end, _)| *end < 0.0).any(|(_, below)| below > 0),
    }
}
