//! The robust method: medians instead of means, by the utilization of the subject.

use super::sketch::Sketch;
use super::wire::{Reader, Writer};

/// Number of bins of utilization. Each spans a doubling, so that whole numbers of CPUs, as of busy threads, are in the middle of a bin.
const BINS: usize = 12;

/// The bin of one CPU.
const ONE_CPU: f64 = 7.0;

/// Distance in bins up to which a bin stands in for one with too few samples: four times the utilization.
const NEAR: usize = 2;

/// Ratio of the standard deviation of a normal distribution to its median absolute deviation.
const NORMAL: f64 = 1.4826;

/// Settings of the robust method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Robust {
    /// CPU time per second below which a sample is not judged.
    pub min_usage: f64,
    /// Whether samples are compared with those of the same utilization only. Not for figures that use CPU time themselves.
    pub by_usage: bool,
    /// Whether samples are compared with those of the same hour of earlier days, if there are enough.
    pub by_hour: bool,
    /// Number of samples of a bin before it is judged.
    pub min_samples: f64,
    /// An outlier is above the median by this number of robust standard deviations …
    pub deviations: f64,
    /// … and by this share of the median …
    pub min_change: f64,
    /// … and is at least this value.
    pub min_value: f64,
    /// Time after the first value of a cgroup in which no sample is judged or learned, in milliseconds.
    pub start: u64,
}

/// A distribution for each bin of utilization: figures as cycles per instruction depend on the load (IISWC 2020).
#[derive(Debug, Clone, Default)]
pub(super) struct Bins([Sketch; BINS]);

/// What a sample is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// The usual value.
    pub center: f64,
    /// The usual deviation from it.
    pub spread: f64,
    /// Values above this are outliers.
    pub threshold: f64,
}

impl Expected {
    /// Returns the number of usual deviations between a value and the usual one; the ratio of both if there are no deviations.
    pub fn score(&self, value: f64) -> f64 {
        if self.spread > 0.0 {
            (value - self.center) / self.spread
        } else {
            value / self.center.max(f64::MIN_POSITIVE)
        }
    }
}

impl Bins {
    fn bin(robust: &Robust, usage: f64) -> usize {
        if !robust.by_usage {
            return 0;
        }
        // Negative infinity, of an idle cgroup, becomes 0.
        ((usage.log2() + ONE_CPU).round() as usize).min(BINS - 1)
    }

    /// Adds a sample.
    pub(super) fn learn(&mut self, robust: &Robust, usage: f64, value: f64) {
        self.0[Self::bin(robust, usage)].add(value);
    }

    /// Multiplies the weight of all samples by `factor`.
    pub(super) fn age(&mut self, factor: f64) {
        self.0.iter_mut().for_each(|sketch| sketch.age(factor));
    }

    /// Returns the memory of the distributions, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(Sketch::bytes).sum()
    }

    /// Returns the number of all samples, less those that have aged.
    pub(super) fn weight(&self) -> f64 {
        self.0.iter().map(Sketch::weight).sum()
    }

    /// Writes the bins with samples, after a number whose bits are those bins.
    pub(super) fn write(&self, out: &mut Writer) {
        let is_used = |sketch: &Sketch| sketch.weight() > 0.0;
        let used = self.0.iter().enumerate().filter(|(_, sketch)| is_used(sketch));
        out.length(used.map(|(bin, _)| 1 << bin).sum());
        self.0.iter().filter(|sketch| is_used(sketch)).for_each(|sketch| sketch.write(out));
    }

    /// Reads bins; `None` if they are none.
    pub(super) fn read(bytes: &mut Reader<'_>) -> Option<Self> {
        let used = bytes.length().filter(|used| used >> BINS == 0)?;
        let mut bins = Self::default();
        for (bin, sketch) in bins.0.iter_mut().enumerate() {
            if used >> bin & 1 == 1 {
                *sketch = Sketch::read(bytes)?;
            }
        }
        Some(bins)
    }

    /// Returns the bin of this utilization and the distance 0, or if it has too few samples, the nearest bin with enough: a victim that has
    /// the same work to do uses more CPU time, at which it was never seen before.
    fn nearest(&self, robust: &Robust, usage: f64) -> Option<(usize, &Sketch)> {
        let own = Self::bin(robust, usage);
        (0..=NEAR).find_map(|distance| {
            let bins = [own.checked_sub(distance), Some(own + distance)];
            let sketches = bins.into_iter().flatten().filter_map(|bin| self.0.get(bin));
            let mut known = sketches.filter(|sketch| sketch.weight() >= robust.min_samples);
            known.next().map(|sketch| (distance, sketch))
        })
    }

    /// Returns what a sample with this utilization is compared with; `None` if there are too few samples. The minimum change is added once
    /// more for each bin between, because the figure also depends on the load.
    pub(super) fn expected(&self, robust: &Robust, usage: f64) -> Option<Expected> {
        let (distance, sketch) = self.nearest(robust, usage)?;
        robust.expected(sketch, sketch.median()? * (1.0 + robust.min_change * (1 + distance) as f64))
    }
}

impl Robust {
    /// Returns what a sample is compared with. Outliers are at least above `floor`. `None` if there are too few samples.
    pub(super) fn expected(&self, sketch: &Sketch, floor: f64) -> Option<Expected> {
        if sketch.weight() < self.min_samples {
            return None;
        }
        let center = sketch.median()?;
        let spread = sketch.deviation(center)? * NORMAL;
        let threshold = (center + self.deviations * spread).max(floor).max(self.min_value);
        Some(Expected { center, spread, threshold })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anomaly::Kind;

    #[test]
    fn a_number_of_busy_threads_is_in_the_middle_of_a_bin() {
        let bin = |usage| Bins::bin(&Kind::Cpi.robust(), usage);
        for cpus in [1.0, 2.0, 4.0, 8.0] {
            let bins = [0.8, 1.0, 1.3].map(|part| bin(cpus * part));
            assert!(bins.iter().all(|&bin| bin == bins[0]), "{cpus}: {bins:?}");
        }
        assert!(bin(0.6) < bin(1.0) && bin(1.0) < bin(1.6));
        assert_eq!([bin(0.0), bin(1e9), bin(f64::NAN)], [0, BINS - 1, 0]);
    }

    #[test]
    fn a_utilization_without_samples_is_compared_with_the_nearest_one_and_a_wider_margin() {
        let robust = Kind::Cpi.robust();
        let mut bins = Bins::default();
        for _ in 0..60 {
            bins.learn(&robust, 1.0, 2.0);
        }
        let change =
            |usage| bins.expected(&robust, usage).map(|expected| expected.threshold / expected.center);
        let near = |usage, expected: f64| (change(usage).unwrap() - expected).abs() < 1e-9;
        assert!(near(1.0, 1.25) && near(2.0, 1.5) && near(0.5, 1.5) && near(4.0, 1.75));
        assert_eq!(change(8.0), None);
        let waits = Robust { by_usage: false, ..robust };
        assert_eq!(bins.expected(&waits, 1.0), None, "without utilization there is one bin");
    }
}
