//! A mean, and how sure it is.

/// The mean of values of which none is kept.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::cli) struct Mean {
    /// How many values there were.
    pub(in crate::cli) count: u64,
    /// Their mean; 0 if there were none.
    pub(in crate::cli) mean: f64,
    /// The sum of squared differences from the mean (Welford's method).
    squares: f64,
}

impl Mean {
    /// One more.
    pub(in crate::cli) fn add(&mut self, value: f64) {
        self.count += 1;
        let difference = value - self.mean;
        self.mean += difference / self.count as f64;
        self.squares += difference * (value - self.mean);
    }

    /// All of another.
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

    /// The standard deviation of the mean; 0 for a single value.
    pub(in crate::cli) fn error(&self) -> f64 {
        let count = self.count as f64;
        if self.count < 2 { 0.0 } else { (self.squares / (count - 1.0) / count).sqrt() }
    }

    /// The standard deviation of the mean, in percent of it: what perf calls `stddev`.
    pub(in crate::cli) fn relative_error(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { 100.0 * self.error() / self.mean }
    }
}
