//! Change of the traces: which events are opened again, and which series continue.

use std::sync::Arc;

use super::Tracer;
use super::open::{self, ByClass, PlannedEvent, class_of};
use super::series_table::SeriesTable;
use crate::config::traced::TracedKind;
use crate::host::CpuSet;
use crate::lock::unpoisoned;
use crate::plan::{RingClass, Trace};
use crate::ring::{Context, ThreadSwitchReceiver};
use crate::sys::Kernel;

impl<K: Kernel> Tracer<K> {
    /// Stops the events that the next [`apply`](Self::apply) with these arguments has to open again. Call [`collect`](Self::collect) in
    /// between: it adds the last hits to the series of their entries.
    pub(crate) fn stop_for(
        &mut self,
        traces: &[Arc<Trace>],
        memory: u64,
        has_thread_switches: bool,
        context: &mut Context<'_, K>,
    ) {
        let again = std::mem::take(&mut self.again);
        let rings: u64 = RingClass::ALL.iter().map(|&class| self.ingest().bytes(class)).sum();
        let old = self.series_tables.iter().map(|series_table| &series_table.trace);
        let stopped = if again || has_thread_switches || self.lost_thread_switches() || rings > memory {
            self.stop(context);
            ByClass::default().map(|()| true)
        } else if old.clone().eq(traces) {
            return;
        } else {
            let old: Vec<Arc<Trace>> = old.cloned().collect();
            let stopped = open::changed(&old, traces, self.switches, self.rings.has_refusals());
            let rings = self.rings.ids().into_iter().filter(|&ring| stopped[class_of(ring)]);
            rings.for_each(|ring| self.close_ring(ring, context));
            if self.rings.ids().is_empty() {
                self.stop(context);
            }
            stopped
        };
        self.stopped_classes = Some(stopped);
    }

    /// Decodes the records of `traces` from now on. Ring classes whose traces changed are opened again. Entries that remain keep their
    /// counts, and entries that changed those of the events and metrics that they still have. `thread_switches` are the thread
    /// switches for entries that follow threads. Call [`stop_for`](Self::stop_for) before.
    pub(crate) fn apply(
        &mut self,
        traces: &[Arc<Trace>],
        limit: usize,
        memory: u64,
        (online, thread_switches): (&CpuSet, Option<ThreadSwitchReceiver>),
        context: &mut Context<'_, K>,
    ) {
        self.limit_series(limit);
        let names = self.names;
        let mut removes_probes = false;
        self.memory = memory;
        if let Some(stopped) = self.stopped_classes.take() {
            self.set_thread_switches(thread_switches);
            let now = self.clock.now();
            let mut old = std::mem::take(&mut self.series_tables);
            let kept: Vec<Option<SeriesTable>> = traces
                .iter()
                .map(|trace| {
                    let at = old.iter().position(|series_table| series_table.trace == *trace);
                    at.map(|at| old.swap_remove(at))
                })
                .collect();
            for (trace, kept) in traces.iter().zip(kept) {
                let mut series_table =
                    kept.unwrap_or_else(|| SeriesTable::continued(trace, &mut old, limit, now));
                series_table.set_names(names);
                self.series_tables.push(series_table);
            }
            // Entries of threads have no probes.
            let of_threads = |series_table: &SeriesTable| {
                matches!(series_table.trace.kind, TracedKind::Scheduler | TracedKind::Syscalls)
            };
            removes_probes = !old.iter().all(of_threads);
            self.retrace(stopped);
        }
        self.set_ring_budget(online, context);
        self.open_and_close(online, None, context);
        if removes_probes {
            // The caller can then remove probes that are no longer open.
            self.stopped.clear();
        }
        context.kernel.close(std::mem::take(&mut self.stopped));
    }

    /// Routes the records of all events to the entries. No event of the `stopped` ring classes is open.
    pub(super) fn retrace(&mut self, stopped: ByClass<bool>) {
        let traces: Vec<Arc<Trace>> =
            self.series_tables.iter().map(|series_table| Arc::clone(&series_table.trace)).collect();
        let (planned, properties) = open::planned(&traces, self.switches);
        let old = std::mem::replace(&mut self.planned, planned);
        self.properties = properties;
        let fields = self.properties.map(|properties| properties.fields);
        // Records are read under the same lock, so none arrives without its route.
        let mut ingest = unpoisoned(self.ingest.lock());
        ingest.retrace(fields, &traces, self.thread_switches.clone(), stopped);
        for writer in self.rings.writers_mut().flat_map(|(_, writers)| &mut writers.events) {
            let Some(old) = old.get(writer.of) else { continue };
            let same = |new: &Arc<PlannedEvent>| new.class == old.class && new.event.counts_as(&old.event);
            if let Some(place) = self.planned.iter().position(same) {
                writer.of = place;
                ingest.router.routes.insert(writer.id, Arc::clone(&self.planned[place]));
            }
        }
    }
}
