//! Distributions of values, with listed or exponential buckets.

mod buckets;
mod exponential;

use std::sync::Arc;

use exponential::Exponential;

pub use buckets::{Buckets, BucketsError};
pub use exponential::Native;

/// Maximum number of values in one histogram; further values are ignored. The protobuf format encodes bucket counts as signed differences.
const MAX_COUNT: u64 = i64::MAX as u64;

/// A histogram: the count of each bucket, the total count and the sum.
///
/// With exponential buckets a histogram needs about 100 bytes plus 10 bytes for each used bucket. Values that spread over a few orders of
/// magnitude use 20 to 60 buckets. A listed bucket needs 8 bytes. Observing a value costs 10 to 20 ns.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Upper bounds of the classic buckets.
    bounds: Arc<[f64]>,
    store: Store,
    /// Total number of observed values.
    count: u64,
    sum: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Store {
    /// Non-cumulative count of each classic bucket: one count more than there are bounds.
    Listed(Box<[u64]>),
    /// Exponential buckets, finer than the classic buckets that are derived from them.
    Exponential(Exponential),
}

impl Store {
    /// Returns the bucket counts in ascending order of the values.
    fn counts(&self) -> &[u64] {
        match self {
            Self::Listed(counts) => counts,
            Self::Exponential(exponential) => exponential.counts(),
        }
    }
}

impl Histogram {
    /// Returns the approximate memory of the histogram in bytes, without the shared bounds.
    pub fn bytes(&self) -> usize {
        let counts = match &self.store {
            Store::Listed(counts) => size_of_val(&**counts),
            Store::Exponential(exponential) => exponential.bytes(),
        };
        size_of::<Self>() + counts
    }

    /// Creates an empty histogram with these inclusive upper bounds, in any order. A last bucket up to infinity is implied. Bounds that are
    /// not finite and duplicate bounds are dropped, because a scraper accepts each bound once.
    pub fn new(bounds: &[f64]) -> Self {
        let mut bounds: Vec<f64> = bounds.iter().copied().filter(|bound| bound.is_finite()).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        Self::listed(bounds.into())
    }

    /// Creates an empty histogram with these buckets.
    pub fn of(buckets: &Buckets) -> Self {
        let bounds = buckets.shared_bounds();
        if !buckets.is_exponential() {
            return Self::listed(bounds);
        }
        Self { bounds, store: Store::Exponential(Exponential::new()), count: 0, sum: 0.0 }
    }

    /// Returns the histogram with the classic buckets of those of its bounds that `keep` accepts. The counts of other classic buckets are
    /// added to the next one; exponential buckets stay as they are.
    #[must_use]
    pub fn with_fewer_bounds(&self, keep: impl Fn(f64) -> bool) -> Self {
        let bounds: Arc<[f64]> = self.bounds.iter().copied().filter(|&bound| keep(bound)).collect();
        let store = match &self.store {
            Store::Exponential(exponential) => Store::Exponential(exponential.clone()),
            Store::Listed(_) => {
                let kept = self.cumulative().filter(|&(end, _)| end.is_infinite() || keep(end));
                let counts =
                    kept.scan(0, |before, (_, below)| Some(below - std::mem::replace(before, below)));
                Store::Listed(counts.collect())
            }
        };
        Self { bounds, store, count: self.count, sum: self.sum }
    }

    fn listed(bounds: Arc<[f64]>) -> Self {
        Self { store: Store::Listed(vec![0; bounds.len() + 1].into()), bounds, count: 0, sum: 0.0 }
    }

    /// Creates a histogram from cumulative counts: `below[i]` values are at or below `bounds[i]` (as for [`new`]), `count` is the total.
    /// Returns `None` unless the counts ascend with the bounds and each bound has one count.
    ///
    /// [`new`]: Self::new
    pub fn from_cumulative(bounds: &[f64], below: &[u64], count: u64, sum: f64) -> Option<Self> {
        let histogram = Self::new(bounds);
        if *histogram.bounds != *bounds || below.len() != bounds.len() {
            return None;
        }
        let mut previous = 0;
        let counts = below.iter().chain([&count]).map(|&up_to| {
            let count = up_to.checked_sub(previous);
            previous = up_to;
            count
        });
        Some(Self { store: Store::Listed(counts.collect::<Option<_>>()?), count, sum, ..histogram })
    }

    /// Adds one value. NaN is ignored.
    pub fn observe(&mut self, value: f64) {
        self.observe_many(value, 1);
    }

    /// Adds `count` observations of one value.
    pub fn observe_many(&mut self, value: f64, count: u64) {
        if value.is_nan() {
            return;
        }
        let taken = self.count_at(value, count);
        if taken > 0 {
            self.sum += value * taken as f64;
        }
    }

    /// Adds all observations of another histogram. If its [`Buckets`] differ, the count of each of its buckets is added at the upper bound
    /// of that bucket.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.store, &other.store) {
            (Store::Exponential(ours), Store::Exponential(theirs)) => {
                ours.at_most_as_fine_as(theirs);
                for (bucket, count) in theirs.as_finest() {
                    ours.add(bucket, take_in(&mut self.count, count));
                }
            }
            (Store::Listed(ours), Store::Listed(theirs)) if self.bounds == other.bounds => {
                for (ours, &theirs) in ours.iter_mut().zip(theirs) {
                    *ours += take_in(&mut self.count, theirs);
                }
            }
            _ => {
                let mut before = 0;
                for (end, up_to) in other.cumulative() {
                    self.count_at(end, up_to - before);
                    before = up_to;
                }
            }
        }
        self.sum += other.sum;
    }

    /// Adds to the counts and returns the number of values added.
    fn count_at(&mut self, value: f64, count: u64) -> u64 {
        let count = take_in(&mut self.count, count);
        match &mut self.store {
            // In range: there is one more count than there are bounds.
            Store::Listed(counts) => counts[self.bounds.partition_point(|&bound| bound < value)] += count,
            Store::Exponential(exponential) => exponential.add(exponential::key(value), count),
        }
        count
    }

    /// Returns the finite upper bounds of the classic buckets, ascending.
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Returns the total number of observed values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the observed values.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns `(upper bound, values at or below it)` for each classic bucket; the last bound is infinity. The counts are exact for both
    /// kinds of buckets.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let ends = self.bounds.iter().copied().chain([f64::INFINITY]);
        let (mut summed, mut below) = (0, 0);
        ends.enumerate().map(move |(at, end)| {
            let up_to = match &self.store {
                Store::Listed(_) => at + 1,
                Store::Exponential(exponential) => exponential.used_up_to(end),
            };
            below += self.store.counts()[summed..up_to].iter().sum::<u64>();
            summed = up_to;
            (end, below)
        })
    }

    /// Reports whether the histogram has exponential buckets.
    pub fn is_native(&self) -> bool {
        matches!(self.store, Store::Exponential(_))
    }

    /// Returns the exponential buckets, if the histogram has them.
    pub fn native(&self) -> Option<Native<'_>> {
        match &self.store {
            Store::Exponential(exponential) => Some(Native(exponential)),
            Store::Listed(_) => None,
        }
    }
}

/// Adds `count` to `total`, limited to the maximum, and returns the number actually added.
fn take_in(total: &mut u64, count: u64) -> u64 {
    let taken = count.min(MAX_COUNT.saturating_sub(*total));
    *total += taken;
    taken
}

#[cfg(test)]
mod tests;
