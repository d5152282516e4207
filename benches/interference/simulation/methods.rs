//! The methods that are compared: two of the exporter, and baselines.

use std::collections::VecDeque;

use perf_exporter::anomaly::{
    Baseline, Change, Cpi2, Detector, Episode, Expected, Kind, Method, Quality, Rule, Sample, Threshold,
};

use super::node::{Node, Reading};
use super::parameters as p;
use super::prometheus::IpcCollapse;

/// Usage below which no method judges cycles per instruction.
const BUSY: f64 = 0.25;

/// A method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Contender {
    Robust,
    Cpi2,
    /// Most values of two minutes are above this one.
    Fixed(f64),
    /// One value above the mean of the last day by three standard deviations.
    OneOutlier,
    /// Three values above it in five minutes.
    ThreeOutliers,
    /// The alert PerfIpcCollapse.
    Prometheus,
    /// The robust method with the run-queue latency.
    Waits,
}

/// What the values are compared with, if an anomaly begins.
pub(crate) type Begin = Option<Expected>;

/// The state of a method for all pods of a machine.
pub(crate) trait Judge {
    /// Judges the values of a pod. Returns what they are compared with if an anomaly begins.
    fn judge(&mut self, at: u64, pod: usize, reading: &Reading) -> Begin;
}

impl Contender {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Robust => "robust".into(),
            Self::Cpi2 => "cpi2".into(),
            Self::Fixed(limit) => format!("fixed limit {limit}"),
            Self::OneOutlier => "z-score, one of 3 σ".into(),
            Self::ThreeOutliers => "z-score, three of 3 σ".into(),
            Self::Prometheus => "PerfIpcCollapse".into(),
            Self::Waits => "robust, runqueue_latency".into(),
        }
    }

    /// Returns the figure that it judges.
    pub(crate) fn value(self, reading: &Reading) -> Option<f64> {
        if self == Self::Waits { reading.latency } else { reading.cpi }
    }

    /// Returns the method of the exporter; `None` for others.
    pub(crate) fn method(self) -> Option<Method> {
        match self {
            Self::Robust => Some(Method::Robust(Kind::Cpi.robust())),
            Self::Waits => Some(Method::Robust(Kind::RunqueueLatency.robust())),
            Self::Cpi2 => Some(Method::Cpi2(Cpi2::default())),
            Self::Fixed(above) => Some(Method::Threshold(Threshold { above, lasting: 120_000 })),
            Self::OneOutlier | Self::ThreeOutliers | Self::Prometheus => None,
        }
    }

    pub(crate) fn judge(self, node: &Node) -> Box<dyn Judge> {
        match self.method() {
            Some(method) => Box::new(Exporter::new(self, method, node)),
            None if self == Self::Prometheus => Box::new(IpcCollapse::new(node.pods())),
            None => Box::new(ZScore::new(if self == Self::OneOutlier { 1 } else { 3 }, node)),
        }
    }
}

/// A method of the exporter, as `Watch` uses it: a detector for each container, a baseline for each workload.
struct Exporter {
    contender: Contender,
    method: Method,
    workloads: Vec<usize>,
    detectors: Vec<(u32, Detector)>,
    baselines: Vec<Baseline>,
}

impl Exporter {
    fn new(contender: Contender, method: Method, node: &Node) -> Self {
        let workloads = (0..node.pods()).map(|pod| node.workload(pod)).collect();
        let detectors = vec![(0, Detector::default()); node.pods()];
        Self { contender, method, workloads, detectors, baselines: vec![Baseline::default(); node.pods()] }
    }
}

impl Judge for Exporter {
    fn judge(&mut self, at: u64, pod: usize, reading: &Reading) -> Begin {
        let (container, detector) = &mut self.detectors[pod];
        if *container != reading.container {
            (*container, *detector) = (reading.container, Detector::default());
        }
        let value = self.contender.value(reading);
        // A fixed limit judges at any usage: the baseline has the condition of the others here.
        let is_judged = !matches!(self.method, Method::Threshold(_)) || reading.usage >= BUSY;
        let value = value.filter(|_| is_judged);
        let sample = Sample { at, value, usage: reading.usage, quality: Quality::default() };
        let baseline = &mut self.baselines[self.workloads[pod]];
        let judgement = detector.judge(&self.method, Kind::rule(&self.method), baseline, sample);
        let is_begin = matches!(judgement.change, Some(Change::Began(_)));
        judgement.expected.filter(|_| is_begin)
    }
}

/// The values of a day: mean and standard deviation, without a minimum change.
#[derive(Debug, Clone, Default)]
struct Day {
    values: VecDeque<(u64, f64)>,
    sum: f64,
    squares: f64,
}

impl Day {
    fn add(&mut self, at: u64, value: f64) {
        self.values.push_back((at, value));
        (self.sum, self.squares) = (self.sum + value, self.squares + value * value);
        while let Some(&(_, old)) =
            self.values.front().filter(|(then, _)| then + p::STEPS_OF_A_DAY * p::STEP < at)
        {
            self.values.pop_front();
            (self.sum, self.squares) = (self.sum - old, self.squares - old * old);
        }
    }

    fn expected(&self) -> Option<Expected> {
        let number = self.values.len() as f64;
        let center = self.sum / number;
        let spread = (self.squares / number - center * center).max(0.0).sqrt();
        (number >= 60.0).then_some(Expected { center, spread, threshold: center + 3.0 * spread })
    }
}

struct ZScore {
    rule: Rule,
    workloads: Vec<usize>,
    episodes: Vec<Episode>,
    days: Vec<Day>,
}

impl ZScore {
    fn new(outliers: usize, node: &Node) -> Self {
        let workloads = (0..node.pods()).map(|pod| node.workload(pod)).collect();
        let rule = Rule { outliers, within: 300_000 };
        Self {
            rule,
            workloads,
            episodes: vec![Episode::default(); node.pods()],
            days: vec![Day::default(); node.pods()],
        }
    }
}

impl Judge for ZScore {
    fn judge(&mut self, at: u64, pod: usize, reading: &Reading) -> Begin {
        let day = &mut self.days[self.workloads[pod]];
        let (expected, value) = (day.expected(), reading.cpi.filter(|_| reading.usage >= BUSY));
        let is_outlier = expected.zip(value).is_some_and(|(expected, value)| value > expected.threshold);
        if let Some(value) = value {
            day.add(at, value);
        }
        let change = self.episodes[pod].note(self.rule, at, is_outlier);
        expected.filter(|_| matches!(change, Some(Change::Began(_))))
    }
}
