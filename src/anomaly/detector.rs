//! From samples to verdicts.

use super::Sample;
use super::baseline::Baseline;
use super::cpi2::Cpi2;
use super::episode::{Change, Episode, Rule};
use super::given::Given;
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

    /// Returns what a sample is compared with if a specification was computed elsewhere. `None` if it has too few samples.
    pub(super) fn expected_by(&self, given: &Given) -> Option<Expected> {
        let (min_samples, deviations, min_change, min_value) = match self {
            Self::Robust(robust) => {
                (robust.min_samples, robust.deviations, robust.min_change, robust.min_value)
            }
            Self::Cpi2(cpi2) => (cpi2.min_samples as f64, cpi2.deviations, cpi2.min_change, 0.0),
            Self::Threshold(_) => return None,
        };
        let floor = (given.mean() * (1.0 + min_change)).max(min_value);
        (given.samples() >= min_samples).then(|| given.expected(deviations, floor))
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
        /// A series from which the figure is computed began in this interval: the cgroup, its container or the counter is new.
        Reset = "reset",
        /// The cgroup used too little CPU time.
        LowUsage = "low_usage",
        /// The cgroup started a short time ago: its caches are cold.
        Starting = "starting",
        /// The events were on the PMU for less than half of the time.
        Multiplexed = "multiplexed",
        /// More than a tenth of the events happened on CPUs of another type.
        OtherCpuType = "other_cpu_type",
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
    /// Time of the first value.
    first: Option<u64>,
    /// Whether the subject has run for a time.
    is_settled: bool,
}

/// Time after the begin of an anomaly at which its level is learned, in milliseconds.
const RELEARN: u64 = 3_600_000;

impl Detector {
    /// Creates a detector of a subject that is not new. One by [`default`](Self::default) has cold caches at first.
    pub fn running() -> Self {
        Self { is_settled: true, ..Self::default() }
    }

    /// Judges a sample, and learns it, unless it is an outlier of an anomaly that has not lasted for an hour. The robust method learns no other
    /// outliers either.
    pub fn judge(
        &mut self,
        method: &Method,
        rule: Rule,
        baseline: &mut Baseline,
        sample: Sample,
    ) -> Judgement {
        let (verdict, expected) = if self.is_starting(method, &sample) {
            (Verdict::NotJudged(Unjudged::Starting), None)
        } else {
            verdict(method, baseline, &sample)
        };
        let change = self.episode.note(rule, sample.at, verdict == Verdict::Outlier);
        let is_usual = match verdict {
            Verdict::NotJudged(reason) => reason == Unjudged::WarmingUp,
            Verdict::Normal => true,
            Verdict::Outlier => {
                let is_level = |since| sample.at.saturating_sub(since) >= RELEARN;
                match method {
                    // At a utilization with few samples, the outliers before each anomaly would become the usual ones.
                    Method::Robust(_) => self.episode.since().is_some_and(is_level),
                    Method::Cpi2(_) | Method::Threshold(_) => self.episode.since().is_none_or(is_level),
                }
            }
        };
        if let Some(value) = sample.value.filter(|_| is_usual) {
            baseline.learn(method, &sample, value);
        }
        // A job of each night is learned in its hour, although it is an anomaly in the first night.
        if let (Method::Robust(Robust { by_hour: true, .. }), Some(value)) = (method, sample.value)
            && (is_usual || verdict == Verdict::Outlier)
        {
            baseline.hours.get_or_insert_default().learn(sample.at, value);
        }
        Judgement { verdict, expected, change }
    }

    /// Reports whether the cgroup has its first values, which are those of cold caches.
    fn is_starting(&mut self, method: &Method, sample: &Sample) -> bool {
        let (Method::Robust(robust), false, Some(_)) = (method, self.is_settled, sample.value) else {
            return false;
        };
        let first = *self.first.get_or_insert(sample.at);
        self.is_settled = sample.at.saturating_sub(first) >= robust.start;
        !self.is_settled
    }

    /// Returns the time of the first outlier of the current anomaly.
    pub fn since(&self) -> Option<u64> {
        self.episode.since()
    }
}

/// Judges a sample by a baseline. Also returns what it was compared with.
fn verdict(method: &Method, baseline: &Baseline, sample: &Sample) -> (Verdict, Option<Expected>) {
    let value = match judged(method, sample) {
        Ok(value) => value,
        Err(reason) => return (Verdict::NotJudged(reason), None),
    };
    let given = baseline.given.and_then(|given| method.expected_by(&given));
    let expected = given.or_else(|| match method {
        Method::Robust(robust) => {
            let hours = baseline.hours.as_ref().filter(|_| robust.by_hour);
            let of_hour = hours.and_then(|hours| hours.expected(robust, sample.at));
            of_hour.or_else(|| baseline.bins.expected(robust, sample.usage))
        }
        Method::Cpi2(cpi2) => baseline.specification.expected(cpi2),
        Method::Threshold(threshold) => Some(threshold.expected()),
    });
    let verdict = match expected {
        None => Verdict::NotJudged(Unjudged::WarmingUp),
        Some(expected) if value > expected.threshold => Verdict::Outlier,
        Some(_) => Verdict::Normal,
    };
    (verdict, expected)
}

/// Returns the value of a sample that can be judged, whatever its past is, or the first reason why it cannot.
fn judged(method: &Method, Sample { at, value, usage, quality }: &Sample) -> Result<f64, Unjudged> {
    let value = value.filter(|value| value.is_finite() && *value >= 0.0).ok_or(Unjudged::Gap)?;
    let (min_usage, is_compared) = match method {
        Method::Robust(robust) => (robust.min_usage, true),
        Method::Cpi2(cpi2) => (cpi2.min_usage, true),
        // A limit holds for all types of CPUs.
        Method::Threshold(_) => (0.0, false),
    };
    let reasons = [
        (!method.samples(*at), Unjudged::NotSampled),
        (quality.is_reset, Unjudged::Reset),
        (*usage < min_usage, Unjudged::LowUsage),
        (quality.is_multiplexed(), Unjudged::Multiplexed),
        (is_compared && quality.is_mixed(), Unjudged::OtherCpuType),
    ];
    reasons.iter().find(|(holds, _)| *holds).map_or(Ok(value), |&(_, reason)| Err(reason))
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
