//! Anomalies of cgroups: figures that are unlike their own past on this node.
//!
//! [`Watch`] reads a figure of each cgroup every ten seconds from the history. Everything below it is pure: samples in, verdicts out. A
//! [`Sample`] is a figure of one cgroup over ten seconds, with the CPU time that the cgroup used. A [`Detector`] compares it with the
//! [`Baseline`] of its [workload](workload::of), in this order:
//!
//! 1. Can the sample be judged at all? If not, there is a reason ([`Unjudged`]), and it is never "normal".
//! 2. Is it an outlier?
//! 3. Are there enough outliers in a short time? Only then it is an anomaly ([`Episode`]).
//!
//! There are three methods, whose constants are separate: [`Cpi2`] is that of CPI² (EuroSys 2013), [`Robust`] uses medians, [`Threshold`] is a
//! fixed limit. [`suspects`]
//! ranks the other cgroups that were active meanwhile.
//!
//! What was learned can outlive the exporter: [`Watch::saved`] and [`Watch::restore`], and [`BaselineFile`], which alone does I/O.

mod baseline;
mod compared;
mod cpi2;
mod detector;
mod episode;
mod file;
mod given;
mod hours;
mod kind;
mod measure;
mod publish;
mod quality;
mod robust;
mod saved;
mod sketch;
pub mod suspects;
#[cfg(test)]
pub(crate) mod tests;
mod threshold;
mod watch;
mod wire;
pub mod workload;

use std::sync::Arc;

use crate::lock::Lock;

pub use baseline::Baseline;
pub use compared::{Compared, Results};
pub use cpi2::Cpi2;
pub use detector::{Detector, Judgement, Method, Unjudged, Verdict};
pub use episode::{Change, Episode, Rule};
pub use file::{BaselineFile, Unloaded};
pub use given::{Given, SPECIFICATIONS_SIZE, Specifications, Unreadable};
pub use kind::Kind;
pub use measure::Measure;
pub use publish::{AnomalyMetrics, NAMES};
pub use quality::Quality;
pub use robust::{Expected, Robust};
pub use saved::{Refusal, Saved, decode};
pub use sketch::Sketch;
pub use suspects::{Basis, Cause, Meanwhile, Notable, Suspicion, Witness};
pub use threshold::Threshold;
pub use watch::{Active, Ended, Entry, INTERVAL, Report, Settings, Verdicts, Watch};

/// A figure of one cgroup over one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// End of the interval, in milliseconds since any fixed time.
    pub at: u64,
    /// The figure; higher is worse. `None` if it was not measured.
    pub value: Option<f64>,
    /// CPU time per second; for a latency the number of times per second.
    pub usage: f64,
    /// How far the figure can be trusted.
    pub quality: Quality,
}

/// The last report of a [`Watch`], which one thread writes and others read.
#[derive(Debug, Clone, Default)]
pub struct SharedReport(Arc<Lock<Arc<Report>>>);

impl SharedReport {
    /// Replaces the report.
    pub fn replace(&self, report: Report) {
        *self.0.lock() = Arc::new(report);
    }

    /// Returns the last report.
    pub fn get(&self) -> Arc<Report> {
        Arc::clone(&self.0.lock())
    }
}
