//! Limits of the configuration: memory, series and the CPU time of the exporter, measured at each collection.

use super::Engine;
use crate::metrics::Snapshot;
use crate::sys::{Kernel, OpenDescriptors};

impl<K: Kernel> Engine<K> {
    /// Measures the memory of all parts of the program, and its descriptors.
    pub(super) fn measure(&mut self) {
        let tracer = self.collector.tracer_state();
        let (rings, waiting) = tracer.map_or((0, 0), |tracer| (tracer.ring_bytes(), tracer.waiting_bytes));
        let rings = rings + self.collector.stream_state().map_or(0, |stream| stream.ring_bytes);
        self.memory.measure(rings, waiting, self.collector.bytes() + self.profiler.series_bytes());
        self.open = OpenDescriptors::count(self.collector.budget().used);
        self.metrics.memory_held(&self.memory.states());
        self.metrics.descriptors_open(&self.open.kinds());
    }

    /// Adjusts the series limit, so that series and snapshots stay within their share of `limits.memory` in the next collections.
    pub(super) fn limit_memory(&mut self, snapshot: &Snapshot) {
        let tables = self.collector.tables().chain(self.profiler.tables()).collect();
        let bytes = self.collector.bytes() + self.profiler.series_bytes();
        if let Some(limit) = self.memory.publishes(&self.config, snapshot, tables, bytes) {
            self.limit_series(limit);
        }
    }

    /// Limits the number of series of each metric about cgroups, processes and threads.
    pub(super) fn limit_series(&mut self, limit: usize) {
        self.collector.limit_series(limit);
        self.profiler.limit_series(limit);
    }

    /// Reduces the detail of thread metrics above `limits.cpu`, and restores it when load allows.
    pub(super) fn govern(&mut self, part: f64) {
        let of_all = part / self.watch.online().len().max(1) as f64;
        let Some(detail) = self.governor.note(of_all, &self.config, self.ended) else { return };
        let limit = self.config.limits.cpu.unwrap_or(1.0);
        tracing::warn!(
            name: "perf_exporter.detail.changed",
            percent_of_all_cpus = %format_args!("{:.2}", of_all * 100.0),
            limit = %format_args!("{:.2}", limit * 100.0),
            "detail of scheduler and system call metrics changed to: {}",
            detail.as_str()
        );
        self.metrics.detail_reduced(detail.steps());
        self.apply();
    }
}
