//! Metrics about access to files of other processes.

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
    /// Registers the metrics.
    ///
    /// # Errors
    /// Returns an error if the metrics are already registered there.
    pub fn new(registry: &Registry) -> Result<Self> {
        let stuck = IntGauge::new(
            "perf_exporter_hung_file_operations",
            "Number of operations on files of other processes that are blocked because a file system does not respond",
        );
        let late = IntCounter::new(
            "perf_exporter_file_timeouts_total",
            "Operations on files of other processes to which a file system did not respond in time",
        );
        Ok(Self { stuck: registered(registry, stuck)?, late: registered(registry, late)? })
    }

    /// Updates the metrics to the values of a report.
    pub fn note(&self, report: &Report) {
        self.stuck.set(i64::try_from(report.stuck.len()).unwrap_or(i64::MAX));
        self.late.inc_by(report.late.saturating_sub(self.late.get()));
    }
}
