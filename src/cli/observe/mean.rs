//! A mean with its standard error.

/// A running mean. The values are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::cli) struct Mean {
    /// Number of values.
    pub(in crate::cli) count: u64,
    /// Mean of the values; 0 without values.
    pub(in crate::cli) mean: f64,
    /// Sum of squared differences from the mean (Welford's method).
    squares: f64,
}

impl Mean {
    /// Adds a value.
    pub(in crate::cli) fn add(&mut self, value: f64) {
        self.count += 1;
        let difference = value - self.mean;
        self.mean += difference / self.count as f64;
        self.squares += difference * (value - self.mean);
    }

    /// Adds all values of another mean.
    pub(in crate::cli) fn merge(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            *self = if self.count == 0 { *other } else { *self };
            return;
        }
        let (here, there) = (self.count as f64, other.count as f64);
        let difference = other.mean - self.mean;
        self.mean += difference * there / (here + there);
        self.squares += other.squares + difference * difference * here * there / (here + there);
        self.count += other.count;
    }

    /// Returns the standard error of the mean; 0 for a single value.
    pub(in crate::cli) fn error(&self) -> f64 {
        let count = self.count as f64;
        if self.count < 2 { 0.0 } else { (self.squares / (count - 1.0) / count).sqrt() }
    }

    /// Returns the standard error of the mean in percent of the mean. perf calls it `stddev`.
    pub(in crate::cli) fn relative_error(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { 100.0 * self.error() / self.mean }
    }
}
