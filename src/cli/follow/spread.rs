//! Sum, extremes and standard error of many durations.

use crate::cli::observe::Mean;

/// Statistics of durations in nanoseconds. The durations are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::cli) struct Spread {
    pub(in crate::cli) of: Mean,
    pub(in crate::cli) total: u64,
    pub(in crate::cli) least: u64,
    pub(in crate::cli) most: u64,
}

impl Spread {
    /// Adds a duration.
    pub(in crate::cli) fn add(&mut self, time: u64) {
        let mut of = self.of;
        of.add(time as f64);
        self.widen(Self { of, total: time, least: time, most: time });
    }

    /// Adds all durations of another value.
    pub(in crate::cli) fn merge(&mut self, other: &Self) {
        let mut of = self.of;
        of.merge(&other.of);
        self.widen(Self { of, ..*other });
    }

    /// Merges sum and extremes. `more.of` already includes the durations of `self`.
    fn widen(&mut self, more: Self) {
        match self.of.count {
            count if count == more.of.count => {}
            0 => *self = more,
            _ => {
                self.total = self.total.saturating_add(more.total);
                (self.least, self.most) = (self.least.min(more.least), self.most.max(more.most));
                self.of = more.of;
            }
        }
    }
}

/// Converts nanoseconds to milliseconds.
pub(in crate::cli) fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[u64]) -> Spread {
        let mut spread = Spread::default();
        times.iter().for_each(|&time| spread.add(time));
        spread
    }

    #[test]
    fn the_deviation_is_that_of_the_mean_as_perf_has_it() {
        let spread = of(&[1, 2, 3, 4]);
        assert_eq!((spread.of.count, spread.total, spread.least, spread.most), (4, 10, 1, 4));
        // The variance is 5/3. The variance of the mean is a quarter of it.
        assert!((spread.of.relative_error() - 100.0 * (5.0f64 / 12.0).sqrt() / 2.5).abs() < 1e-9);
        assert_eq!(of(&[7]).of.relative_error(), 0.0);
        assert_eq!(Spread::default().of.relative_error(), 0.0);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (mut some, rest, all) = (of(&[1, 9, 4]), of(&[100, 3]), of(&[1, 9, 4, 100, 3]));
        some.merge(&rest);
        some.merge(&Spread::default());
        assert_eq!((some.of.count, some.total, some.least, some.most), (5, 117, 1, 100));
        assert!((some.of.relative_error() - all.of.relative_error()).abs() < 1e-9);
        let mut none = Spread::default();
        none.merge(&all);
        assert_eq!(none, all);
    }
}
