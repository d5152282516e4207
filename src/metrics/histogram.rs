//! Distributions with explicit bucket boundaries.

/// A histogram: counts per bucket, their number and sum. Counts are per bucket, not cumulative.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    bounds: Box<[f64]>,
    counts: Box<[u64]>,
    sum: f64,
}

impl Histogram {
    /// An empty one whose buckets end at `bounds` (inclusive, ascending); a last one without end is implied.
    pub fn new(bounds: &[f64]) -> Self {
        debug_assert!(bounds.is_sorted());
        Self { bounds: bounds.into(), counts: vec![0; bounds.len() + 1].into(), sum: 0.0 }
    }

    /// Adds one value.
    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
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
}
