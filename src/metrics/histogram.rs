//! Distributions with explicit bucket boundaries.

/// A histogram: counts per bucket, their number and sum. Counts are per bucket, not cumulative.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    bounds: Box<[f64]>,
    counts: Box<[u64]>,
    sum: f64,
}

impl Histogram {
    /// An empty one whose buckets end at `bounds` (inclusive). They are sorted, and a last bucket without end is
    /// implied; what is not finite or comes twice is left out, for a scraper takes each bound once.
    pub fn new(bounds: &[f64]) -> Self {
        let mut bounds: Vec<f64> = bounds.iter().copied().filter(|bound| bound.is_finite()).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        Self { counts: vec![0; bounds.len() + 1].into(), bounds: bounds.into(), sum: 0.0 }
    }

    /// One whose values were counted elsewhere: `below[i]` of them at or below `bounds[i]` (as for [`new`]), `count`
    /// in all. `None` unless the counts grow with the bounds and there is one for each.
    ///
    /// [`new`]: Self::new
    pub fn from_cumulative(bounds: &[f64], below: &[u64], count: u64, sum: f64) -> Option<Self> {
        let mut histogram = Self::new(bounds);
        if *histogram.bounds != *bounds || below.len() != bounds.len() {
            return None;
        }
        let mut previous = 0;
        for (bucket, &up_to) in histogram.counts.iter_mut().zip(below.iter().chain([&count])) {
            *bucket = up_to.checked_sub(previous)?;
            previous = up_to;
        }
        histogram.sum = sum;
        Some(histogram)
    }

    /// Adds one value; NaN is not one.
    pub fn observe(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        // In range: there is one count more than there are bounds.
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }

    /// Where the buckets end, ascending, without the last one's infinity.
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// `(upper bound, values at or below it)` for each bucket; the last bound is infinity.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |below, &count| {
            *below += count;
            Some(*below)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_boundary_belongs_to_the_bucket_that_ends_there() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.observe(value);
        }
        let buckets: Vec<_> = histogram.cumulative().collect();
        assert_eq!(buckets, [(1.0, 2), (2.0, 3), (f64::INFINITY, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 12.0));
    }

    #[test]
    fn bounds_that_a_scraper_would_refuse_are_left_out() {
        let histogram = Histogram::new(&[2.0, 1.0, f64::INFINITY, 2.0, f64::NAN]);
        assert_eq!(histogram.bounds(), [1.0, 2.0]);
    }

    #[test]
    fn nan_is_not_a_value() {
        let mut histogram = Histogram::new(&[1.0]);
        histogram.observe(f64::NAN);
        assert_eq!((histogram.count(), histogram.sum()), (0, 0.0));
    }

    #[test]
    fn counts_from_elsewhere_must_grow_with_their_bounds() {
        let histogram = Histogram::from_cumulative(&[1.0, 2.0], &[2, 3], 4, 12.0).unwrap();
        let buckets: Vec<_> = histogram.cumulative().collect();
        assert_eq!(buckets, [(1.0, 2), (2.0, 3), (f64::INFINITY, 4)]);
        assert_eq!(Histogram::from_cumulative(&[1.0, 2.0], &[3, 2], 4, 12.0), None);
        assert_eq!(Histogram::from_cumulative(&[1.0], &[], 4, 12.0), None);
        assert_eq!(Histogram::from_cumulative(&[2.0, 1.0], &[2, 3], 4, 12.0), None);
    }
}
