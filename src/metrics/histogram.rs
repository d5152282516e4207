//! Distributions, in buckets that were listed or in exponential ones.

mod buckets;
mod exponential;

use std::sync::Arc;

use exponential::Exponential;

pub use buckets::{Buckets, BucketsError};
pub use exponential::Native;

/// How many values a histogram takes in; what comes after them is not counted any more. Differences of counts are
/// signed in the protobuf format.
const MAX_COUNT: u64 = i64::MAX as u64;

/// A histogram: counts per bucket, their number and sum.
///
/// With exponential buckets it takes about 100 bytes and 10 for each bucket in use, of which there are 20 to 60 where
/// values spread over a few orders of magnitude, and with listed ones 8 for each. To count a value takes 10 to 20 ns.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Where the classic buckets end.
    bounds: Arc<[f64]>,
    store: Store,
    /// The sum of all counts.
    count: u64,
    sum: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Store {
    /// The count of each classic bucket, not cumulative; one more than there are bounds.
    Listed(Box<[u64]>),
    /// Finer than the classic buckets, which sum them up.
    Exponential(Exponential),
}

impl Store {
    /// Counts in the order of the values.
    fn counts(&self) -> &[u64] {
        match self {
            Self::Listed(counts) => counts,
            Self::Exponential(exponential) => exponential.counts(),
        }
    }
}

impl Histogram {
    /// About how many bytes it takes. Its bounds are shared with others.
    pub fn bytes(&self) -> usize {
        let counts = match &self.store {
            Store::Listed(counts) => size_of_val(&**counts),
            Store::Exponential(exponential) => exponential.bytes(),
        };
        size_of::<Self>() + counts
    }

    /// An empty one whose buckets end at `bounds` (inclusive). They are sorted, and a last bucket without end is
    /// implied; what is not finite or comes twice is left out, for a scraper takes each bound once.
    pub fn new(bounds: &[f64]) -> Self {
        let mut bounds: Vec<f64> = bounds.iter().copied().filter(|bound| bound.is_finite()).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        Self::listed(bounds.into())
    }

    /// An empty one.
    pub fn of(buckets: &Buckets) -> Self {
        let bounds = buckets.shared_bounds();
        if !buckets.is_exponential() {
            return Self::listed(bounds);
        }
        Self { bounds, store: Store::Exponential(Exponential::new()), count: 0, sum: 0.0 }
    }

    fn listed(bounds: Arc<[f64]>) -> Self {
        Self { store: Store::Listed(vec![0; bounds.len() + 1].into()), bounds, count: 0, sum: 0.0 }
    }

    /// One whose values were counted elsewhere: `below[i]` of them at or below `bounds[i]` (as for [`new`]), `count`
    /// in all. `None` unless the counts grow with the bounds and there is one for each.
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

    /// Adds one value; NaN is not one.
    pub fn observe(&mut self, value: f64) {
        self.observe_many(value, 1);
    }

    /// Adds a value that was met `count` times.
    pub fn observe_many(&mut self, value: f64, count: u64) {
        if value.is_nan() {
            return;
        }
        let taken = self.count_at(value, count);
        if taken > 0 {
            self.sum += value * taken as f64;
        }
    }

    /// Adds all that another of the same [`Buckets`] has. Of one with other buckets, what each has is added where that
    /// bucket ends.
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

    /// Adds to the counts and tells by how many.
    fn count_at(&mut self, value: f64, count: u64) -> u64 {
        let count = take_in(&mut self.count, count);
        match &mut self.store {
            // In range: there is one count more than there are bounds.
            Store::Listed(counts) => counts[self.bounds.partition_point(|&bound| bound < value)] += count,
            Store::Exponential(exponential) => exponential.add(exponential::key(value), count),
        }
        count
    }

    /// Where the classic buckets end, ascending, without the last one's infinity.
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// `(upper bound, values at or below it)` for each classic bucket; the last bound is infinity. Exact, whatever the
    /// values are counted in.
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

    /// Whether it has exponential buckets.
    pub fn is_native(&self) -> bool {
        matches!(self.store, Store::Exponential(_))
    }

    /// Its exponential buckets, if it has those.
    pub fn native(&self) -> Option<Native<'_>> {
        match &self.store {
            Store::Exponential(exponential) => Some(Native(exponential)),
            Store::Listed(_) => None,
        }
    }
}

/// Adds to the number of values, and tells how many of them there was room for.
fn take_in(total: &mut u64, count: u64) -> u64 {
    let taken = count.min(MAX_COUNT.saturating_sub(*total));
    *total += taken;
    taken
}

#[cfg(test)]
mod tests;
