//! The method of CPI² (Zhang et al., EuroSys 2013): mean and standard deviation of a workload, renewed each day.

use super::robust::Expected;
use super::wire::{Reader, Writer};

/// Settings of the method. The defaults are those of the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cpi2 {
    /// Distance of the samples, in milliseconds: each of them is ten seconds long.
    pub every: u64,
    /// CPU time per second below which a sample is not judged.
    pub min_usage: f64,
    /// Number of samples before the first specification.
    pub min_samples: u64,
    /// An outlier is above the mean by this number of standard deviations.
    pub deviations: f64,
    /// An outlier is above the mean by this share of it. The paper has none.
    pub min_change: f64,
    /// Time after which a specification is renewed, in milliseconds.
    pub renewal: u64,
    /// Weight of the previous specification at a renewal.
    pub previous_weight: f64,
}

impl Default for Cpi2 {
    fn default() -> Self {
        let day = 24 * 3_600_000;
        Self {
            every: 60_000,
            min_usage: 0.25,
            min_samples: 100,
            deviations: 2.0,
            min_change: 0.0,
            renewal: day,
            previous_weight: 0.9,
        }
    }
}

/// Number, mean and sum of squared deviations of values (Welford's method).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Moments {
    weight: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.weight += 1.0;
        let distance = value - self.mean;
        self.mean += distance / self.weight;
        self.squares += distance * (value - self.mean);
    }

    /// Returns the moments of the values of both, those of `self` with this weight.
    fn aged_with(self, factor: f64, other: Self) -> Self {
        let (own, weight) = (self.weight * factor, self.weight * factor + other.weight);
        if weight <= 0.0 {
            return Self::default();
        }
        let distance = other.mean - self.mean;
        let mean = self.mean + distance * other.weight / weight;
        let between = distance * distance * own * other.weight / weight;
        Self { weight, mean, squares: self.squares * factor + other.squares + between }
    }

    fn write(self, out: &mut Writer) {
        [self.weight, self.mean, self.squares].into_iter().for_each(|number| out.float(number));
    }

    fn read(bytes: &mut Reader<'_>) -> Option<Self> {
        Some(Self { weight: bytes.float()?, mean: bytes.float()?, squares: bytes.float()? })
    }

    fn spread(self) -> f64 {
        (self.squares / self.weight.max(1.0)).max(0.0).sqrt()
    }
}

/// The specification of a workload, and the samples since its last renewal.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Specification {
    current: Option<Moments>,
    recent: Moments,
    /// Time of the last renewal, or of the first sample.
    renewed: Option<u64>,
}

impl Specification {
    /// Adds a sample.
    pub(super) fn learn(&mut self, method: &Cpi2, at: u64, value: f64) {
        let renewed = *self.renewed.get_or_insert(at);
        self.recent.add(value);
        let is_due = match self.current {
            None => self.recent.weight >= method.min_samples as f64,
            Some(_) => at.saturating_sub(renewed) >= method.renewal,
        };
        if is_due {
            let previous = self.current.unwrap_or_default();
            self.current = Some(previous.aged_with(method.previous_weight, self.recent));
            (self.recent, self.renewed) = (Moments::default(), Some(at));
        }
    }

    /// Returns the number of samples, those of earlier specifications with their weight.
    pub(super) fn weight(&self) -> f64 {
        self.current.map_or(0.0, |current| current.weight) + self.recent.weight
    }

    /// Writes both specifications. One without samples is none.
    pub(super) fn write(&self, out: &mut Writer) {
        self.current.unwrap_or_default().write(out);
        self.recent.write(out);
        out.optional(self.renewed);
    }

    /// Reads what [`write`](Self::write) has written. Times after `now` are `now`: the clock was set back.
    pub(super) fn read(bytes: &mut Reader<'_>, now: u64) -> Option<Self> {
        let (current, recent) = (Moments::read(bytes)?, Moments::read(bytes)?);
        let renewed = bytes.optional()?.map(|at| at.min(now));
        Some(Self { current: (current.weight > 0.0).then_some(current), recent, renewed })
    }

    /// Returns what a sample is compared with; `None` if there is no specification yet.
    pub(super) fn expected(&self, method: &Cpi2) -> Option<Expected> {
        let current = self.current?;
        let (center, spread) = (current.mean, current.spread());
        let threshold = (center + method.deviations * spread).max(center * (1.0 + method.min_change));
        Some(Expected { center, spread, threshold })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_has_the_mean_and_the_deviation_of_its_samples() {
        let method = Cpi2 { min_samples: 4, ..Cpi2::default() };
        let mut specification = Specification::default();
        for (at, value) in [2.0, 4.0, 4.0].into_iter().enumerate() {
            specification.learn(&method, at as u64, value);
            assert_eq!(specification.expected(&method), None);
        }
        specification.learn(&method, 4, 6.0);
        // By hand: mean 4, squared deviations 4 + 0 + 0 + 4, of 4 samples: variance 2.
        let expected = specification.expected(&method).unwrap();
        assert_eq!(expected.center, 4.0);
        assert_eq!(expected.spread, 2.0_f64.sqrt());
        assert_eq!(expected.threshold, 4.0 + 2.0 * 2.0_f64.sqrt());
    }

    #[test]
    fn yesterday_has_nine_tenths_of_its_weight() {
        let method = Cpi2 { min_samples: 2, ..Cpi2::default() };
        let mut specification = Specification::default();
        specification.learn(&method, 0, 1.0);
        specification.learn(&method, 1, 1.0);
        specification.learn(&method, 2, 2.0);
        assert_eq!(specification.expected(&method).unwrap().center, 1.0, "not renewed yet");
        specification.learn(&method, 1 + method.renewal, 2.0);
        // By hand: (0.9 · 2 · 1 + 2 · 2) / (1.8 + 2).
        let expected = specification.expected(&method).unwrap();
        assert!((expected.center - 5.8 / 3.8).abs() < 1e-12);
        // Variance of a mixture of 1.8 values of 1 and 2 values of 2: p (1 - p).
        let p: f64 = 1.8 / 3.8;
        assert!((expected.spread - (p * (1.0 - p)).sqrt()).abs() < 1e-12);
    }
}
