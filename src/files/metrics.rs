//! What the exporter reports about files of other processes.

use prometheus::{IntCounter, IntGauge, Registry, Result};

use super::Report;
use crate::metrics::registered;

/// The metrics of [`Files`](super::Files).
#[derive(Debug)]
pub struct Metrics {
    stuck: IntGauge,
    late: IntCounter,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// When they are registered there already.
    pub fn new(registry: &Registry) -> Result<Self> {
        let stuck = IntGauge::new(
            "perf_exporter_stuck_files",
            "Operations on files of other processes that hang because a file system does not answer",
        );
        let late = IntCounter::new(
            "perf_exporter_late_files_total",
            "Operations on files of other processes that a file system did not answer in time",
        );
        Ok(Self { stuck: registered(registry, stuck)?, late: registered(registry, late)? })
    }

    /// Takes over the current figures.
    pub fn note(&self, report: &Report) {
        self.stuck.set(i64::try_from(report.stuck.len()).unwrap_or(i64::MAX));
        self.late.inc_by(report.late.saturating_sub(self.late.get()));
    }
}
