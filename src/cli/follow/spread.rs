//! Many times, by their sum, extremes and how far they lie apart.

/// Times in nanoseconds. Takes room for none of them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::cli) struct Spread {
    pub(in crate::cli) count: u64,
    pub(in crate::cli) total: u64,
    pub(in crate::cli) least: u64,
    pub(in crate::cli) most: u64,
    mean: f64,
    /// The sum of the squares of the differences to the mean (Welford).
    squares: f64,
}

impl Spread {
    /// One more.
    pub(in crate::cli) fn add(&mut self, time: u64) {
        self.least = if self.count == 0 { time } else { self.least.min(time) };
        self.most = self.most.max(time);
        self.count += 1;
        self.total = self.total.saturating_add(time);
        let distance = time as f64 - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (time as f64 - self.mean);
    }

    /// All of another.
    pub(in crate::cli) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (here, there) = (self.count as f64, other.count as f64);
        let distance = other.mean - self.mean;
        self.mean += distance * there / (here + there);
        self.squares += other.squares + distance * distance * here * there / (here + there);
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }

    /// The mean, in nanoseconds.
    pub(in crate::cli) fn mean(&self) -> f64 {
        self.mean
    }

    /// How far the mean may be off by chance, in per cent of it: what perf calls `stddev`.
    pub(in crate::cli) fn deviation(&self) -> f64 {
        if self.count < 2 || self.mean <= 0.0 {
            return 0.0;
        }
        let count = self.count as f64;
        let variance = self.squares / (count - 1.0);
        100.0 * (variance / count).sqrt() / self.mean
    }
}

/// Nanoseconds as milliseconds.
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
        assert_eq!((spread.count, spread.total, spread.least, spread.most), (4, 10, 1, 4));
        // The variance is 5/3, that of the mean a quarter of it.
        assert!((spread.deviation() - 100.0 * (5.0f64 / 12.0).sqrt() / 2.5).abs() < 1e-9);
        assert_eq!(of(&[7]).deviation(), 0.0);
        assert_eq!(Spread::default().deviation(), 0.0);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (mut some, rest, all) = (of(&[1, 9, 4]), of(&[100, 3]), of(&[1, 9, 4, 100, 3]));
        some.merge(&rest);
        some.merge(&Spread::default());
        assert_eq!((some.count, some.total, some.least, some.most), (5, 117, 1, 100));
        assert!((some.deviation() - all.deviation()).abs() < 1e-9);
        let mut none = Spread::default();
        none.merge(&all);
        assert_eq!(none, all);
    }
}
