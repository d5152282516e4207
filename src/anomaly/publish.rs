//! Metrics of anomalies.

use std::sync::Arc;

use super::SharedReport;
use super::detector::Unjudged;
use super::watch::Verdicts;
use crate::clock::Timestamp;
use crate::metrics::{Family, Kind, Labels, Metadata, NameError, Point, Value};

/// Names of the families.
pub const NAMES: [&str; 5] = [
    "perf_anomaly_active",
    "perf_anomaly_score",
    "perf_anomaly_suspect_correlation",
    "perf_anomaly_cgroups",
    "perf_anomalies",
];

/// Maximum number of anomalies with series of their own.
const MOST: usize = 50;

/// The metadata of the families, and the report that they are made from.
#[derive(Debug)]
pub struct AnomalyMetrics {
    families: [Arc<Metadata>; NAMES.len()],
    report: SharedReport,
    start: Timestamp,
}

impl AnomalyMetrics {
    /// Creates the metadata. `start` is the begin of the counters.
    ///
    /// # Errors
    /// If a name is invalid, which does not depend on input.
    pub fn new(start: Timestamp) -> Result<Self, NameError> {
        let [active, score, suspect, cgroups, total] = NAMES;
        let gauge = |name, help| Metadata::new(name, help, "", Kind::Gauge);
        let families = [
            gauge(active, "Anomaly of a cgroup that has begun and not ended; the value is 1")?,
            gauge(
                score,
                "Distance of the figure of a cgroup with an anomaly from its usual value, in usual deviations",
            )?,
            gauge(
                suspect,
                "Score of a suspect as of the begin of an anomaly: basis correlation, the correlation of its CPU time with the figure, from 0.35 to 1; basis ran_meanwhile, the share of the time in which it ran while threads waited for a CPU, from 0.2 to 1",
            )?,
            gauge(cgroups, "Number of cgroups by the result of the last comparison with their past")?,
            Metadata::new(total, "Anomalies of cgroups", "", Kind::Counter)?,
        ];
        Ok(Self { families, report: SharedReport::default(), start })
    }

    /// Returns the report, which another thread writes.
    pub fn report(&self) -> SharedReport {
        self.report.clone()
    }

    /// Returns the families of the last report. Families without series are omitted.
    pub fn families(&self) -> Vec<Family> {
        let report = self.report.get();
        let name = |entry| report.name(entry);
        let active = || report.active.iter().take(MOST);
        let labels = |entry, cgroup: &str| Labels::new([("kind", name(entry)), ("cgroup", cgroup)]);
        let gauge = |labels, value| Point::gauge(labels, Value::Float(value));
        let suspects = active().flat_map(|active| {
            active.suspicion.suspects.iter().map(move |suspect| {
                let labels = [
                    ("kind", name(active.entry)),
                    ("cgroup", &*active.cgroup),
                    ("suspect", &*suspect.cgroup),
                    ("basis", suspect.basis.as_str()),
                ];
                gauge(Labels::new(labels), suspect.score)
            })
        });
        let points = [
            active().map(|active| gauge(labels(active.entry, &active.cgroup), 1.0)).collect(),
            active().map(|active| gauge(labels(active.entry, &active.cgroup), active.score)).collect(),
            suspects.collect(),
            report
                .verdicts
                .iter()
                .enumerate()
                .flat_map(|(entry, verdicts)| cgroups(name(entry), verdicts))
                .collect(),
            report.total.iter().enumerate().map(|(entry, &total)| self.total(name(entry), total)).collect(),
        ];
        let families = self.families.iter().zip(points);
        families
            .filter(|(_, points): &(_, Vec<Point>)| !points.is_empty())
            .map(|(metadata, points)| Family::new(Arc::clone(metadata), points))
            .collect()
    }

    fn total(&self, kind: &str, total: u64) -> Point {
        Point { labels: Labels::new([("kind", kind)]), value: Value::Integer(total), start: self.start }
    }
}

/// Returns a point for each result that at least one cgroup has, and for the results of judged ones.
fn cgroups(kind: &str, verdicts: &Verdicts) -> Vec<Point> {
    // A figure that no cgroup has is not measured on this machine.
    if *verdicts == Verdicts::default() {
        return Vec::new();
    }
    let judged = [("normal", verdicts.normal), ("outlier", verdicts.outlier)];
    let unjudged = Unjudged::ALL.iter().map(|reason| reason.as_str()).zip(verdicts.unjudged);
    let known = judged.into_iter().chain(unjudged.filter(|&(_, number)| number > 0));
    let point = |(result, number)| {
        Point::gauge(Labels::new([("kind", kind), ("result", result)]), Value::Integer(number))
    };
    known.map(point).collect()
}
