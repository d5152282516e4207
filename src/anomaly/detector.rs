//! From samples to verdicts.

use super::Sample;
use super::baseline::Baseline;
use super::cpi2::Cpi2;
use super::episode::{Change, Episode, Rule};
use super::robust::{Expected, Robust};
use super::threshold::Threshold;
use crate::named_enum::named_enum;

/// Interval between two steps of ageing, in milliseconds.
const AGEING: u64 = 3_600_000;

/// Share of the weight that remains after such a step: half after a day.
const REMAINING: f64 = 0.971_531_9;

/// How outliers are found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// Median and median absolute deviation, by utilization.
    Robust(Robust),
    /// Mean and standard deviation.
    Cpi2(Cpi2),
    /// A fixed limit.
    Threshold(Threshold),
}

impl Method {
    /// Reports whether the interval that ends at `at` is one of those that it takes.
    fn samples(&self, at: u64) -> bool {
        match self {
            Self::Robust(_) | Self::Threshold(_) => true,
            Self::Cpi2(cpi2) => at.is_multiple_of(cpi2.every.max(1)),
        }
    }
}

named_enum! {
    /// Reason why a sample is not judged.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Unjudged {
        /// The figure was not measured in this interval.
        Gap = "gap",
        /// The method takes one interval of each minute, and this is another one.
        NotSampled = "not_sampled",
        /// The cgroup used too little CPU time.
        LowUsage = "low_usage",
        /// There are too few earlier samples.
        WarmingUp = "warming_up",
    }
}

/// The result for one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// It cannot be judged.
    NotJudged(Unjudged),
    /// It is like earlier samples.
    Normal,
    /// It is higher than earlier samples.
    Outlier,
}

/// The result for one sample, with its reasons.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// The result.
    pub verdict: Verdict,
    /// What the sample was compared with; `None` if it was not judged.
    pub expected: Option<Expected>,
    /// Begin or end of an anomaly.
    pub change: Option<Change>,
}

/// Judges the samples of one figure of one subject.
#[derive(Debug, Clone, Default)]
pub struct Detector {
    episode: Episode,
}

/// Time after the begin of an anomaly at which its level is learned, in milliseconds.
const RELEARN: u64 = 3_600_000;

impl Detector {
    /// Judges a sample, and learns it, unless it is an outlier of an anomaly that has not lasted for an hour.
    pub fn judge(
        &mut self,
        method: &Method,
        rule: Rule,
        baseline: &mut Baseline,
        sample: Sample,
    ) -> Judgement {
        let (verdict, expected) = verdict(method, baseline, &sample);
        let change = self.episode.note(rule, sample.at, verdict == Verdict::Outlier);
        let is_usual = match verdict {
            Verdict::NotJudged(reason) => reason == Unjudged::WarmingUp,
            Verdict::Normal => true,
            Verdict::Outlier => {
                self.episode.since().is_none_or(|since| sample.at.saturating_sub(since) >= RELEARN)
            }
        };
        if let Some(value) = sample.value.filter(|_| is_usual) {
            baseline.learn(method, &sample, value);
        }
        Judgement { verdict, expected, change }
    }

    /// Returns the time of the first outlier of the current anomaly.
    pub fn since(&self) -> Option<u64> {
        self.episode.since()
    }
}

/// Judges a sample by a baseline. Also returns what it was compared with.
fn verdict(method: &Method, baseline: &Baseline, sample: &Sample) -> (Verdict, Option<Expected>) {
    let Sample { usage, .. } = *sample;
    let min_usage = match method {
        Method::Robust(robust) => robust.min_usage,
        Method::Cpi2(cpi2) => cpi2.min_usage,
        Method::Threshold(_) => 0.0,
    };
    let reason = match sample.value {
        Some(_) if !method.samples(sample.at) => Unjudged::NotSampled,
        Some(value) if value.is_finite() && value >= 0.0 => {
            let expected = match method {
                _ if usage < min_usage => return (Verdict::NotJudged(Unjudged::LowUsage), None),
                Method::Robust(robust) => baseline.bins.expected(robust, usage),
                Method::Cpi2(cpi2) => baseline.specification.expected(cpi2),
                Method::Threshold(threshold) => Some(threshold.expected()),
            };
            if let Some(expected) = expected {
                let is_outlier = value > expected.threshold;
                return (if is_outlier { Verdict::Outlier } else { Verdict::Normal }, Some(expected));
            }
            Unjudged::WarmingUp
        }
        _ => Unjudged::Gap,
    };
    (Verdict::NotJudged(reason), None)
}

impl Baseline {
    fn learn(&mut self, method: &Method, sample: &Sample, value: f64) {
        match method {
            Method::Robust(robust) => {
                let aged = self.aged.get_or_insert(sample.at);
                let steps = sample.at.saturating_sub(*aged) / AGEING;
                if steps > 0 {
                    *aged += steps * AGEING;
                    self.bins.age(REMAINING.powf(steps as f64));
                }
                self.bins.learn(robust, sample.usage, value);
            }
            Method::Cpi2(cpi2) => self.specification.learn(cpi2, sample.at, value),
            Method::Threshold(_) => {}
        }
    }
}
