//! State of the collection thread for the status page and `/api/v1/status`.

use std::time::Duration;

use super::Engine;
use crate::counter::StreamState;
use crate::metrics::{self, Snapshot};
use crate::plan::NoStream;
use crate::ring::Records;
use crate::status::{
    Collection, Configuration, Cost, Host, Loss, Status, Stream, Threads, Usage, counters, profiles, traces,
};
use crate::sys::{Budget, Kernel, usage};

impl<K: Kernel> Engine<K> {
    /// Returns the status after a collection that took `took`.
    pub(super) fn status(&self, snapshot: Option<&Snapshot>, took: Duration, cost: metrics::Usage) -> Status {
        let (board, budget) = (self.collector.board(), self.collector.budget());
        let (groups, stream) = (self.collector.states(), self.collector.stream_state());
        let (trace_states, samplers) = (self.collector.trace_states(), self.profiler.states());
        let now = self.clock.now();
        let no_stream = NoStream::all(groups.iter().map(|group| &group.plan), &self.support);
        let reduced = (self.governor.detail() != Default::default()).then(|| self.governor.detail().as_str());
        let of_profiles = snapshot.into_iter().flat_map(|snapshot| profiles::series(&samplers, snapshot));
        let series = groups.iter().flat_map(counters::series);
        let series = series.chain(trace_states.iter().flat_map(traces::series)).chain(of_profiles);
        Status {
            now,
            started: self.started,
            version: env!("CARGO_PKG_VERSION").into(),
            configuration: self.configuration(),
            host: Host::of(
                &self.facts,
                &self.catalog,
                &self.watch,
                no_stream
                    .iter()
                    .map(ToString::to_string)
                    .chain(self.privileges.note())
                    .chain(self.unrestricted.clone())
                    .collect(),
            ),
            counters: counters::counters(&groups, board),
            deep: self.deep_report(),
            losses: self.measured_and_lost(stream.as_ref()),
            stream: stream.map(|state| Stream::new(state, &groups)),
            traces: traces::all(&trace_states, board),
            threads: Threads::of(
                &trace_states,
                self.collector.longest_waits(),
                reduced,
                (now, self.clock.kernel()),
            ),
            profiles: samplers.iter().map(|state| profiles::profile(state, board)).collect(),
            containers: self.naming.directory.account(),
            pushes: self.pushes.board.states(),
            refusals: board.by_reason(),
            descriptors: Usage { used: budget.used as u64, limit: Some(budget.limit as u64) },
            series: series.collect(),
            collection: snapshot.map(|snapshot| Collection {
                at: snapshot.taken(),
                duration: took,
                interval: self.config.interval(),
                series: snapshot.series() as u64,
            }),
            cost: Cost {
                cpu: cost.cpu,
                cpu_percent: self.cpu_share.part.map(|part| part * 100.0),
                resident_bytes: cost.resident_bytes,
            },
            memory: self.memory.states().into(),
            open_descriptors: self.open,
            files: self.files.report(),
        }
    }

    /// Returns the state of the configuration. Files of the web configuration are also read without a reload, when they have changed.
    pub(super) fn configuration(&self) -> Configuration {
        let mut configuration = self.source.clone();
        configuration.failed_reload = configuration.failed_reload.or_else(|| self.reloads.failed_rules());
        configuration
    }

    /// Returns the losses: observations that are missing in metrics, other than refusals.
    fn measured_and_lost(&self, stream: Option<&StreamState>) -> Vec<Loss> {
        let beyond = self.collector.board().beyond();
        let mut losses = vec![Loss::new("refusals", "the table of distinct refusals is full", beyond)];
        losses.extend(Loss::of_targets(&self.watch));
        if let Some(StreamState { losses: lost, .. }) = stream {
            losses.extend(Loss::of_rings(Records::Switches, *lost));
            let reason = "the kernel throttled an event";
            losses.push(Loss::new(Records::Switches.plural(), reason, lost.throttled as usize));
        }
        if let Some(tracer) = self.collector.tracer_state() {
            losses.extend(tracer.rings.iter().flat_map(|rings| Loss::of_rings(rings.records, rings.losses)));
        }
        losses.extend(Loss::of_rings(Records::Samples, self.profiler.losses()));
        losses.push(Loss::new(
            "samples in memory for profiles of the past",
            "dropped early because the share of stacks in limits.memory is full",
            self.profiler.dropped_when_full() as usize,
        ));
        losses.retain(|loss| loss.count > 0);
        losses
    }
}

/// Returns the resource usage of this process and its helper: CPU time from `getrusage`, memory from `/proc/self/statm`.
pub(super) fn used(cpu: Duration, budget: &Budget, helper: Option<u32>) -> metrics::Usage {
    let own = usage::memory().unwrap_or_default().resident;
    let helper = helper.and_then(usage::memory_of).unwrap_or_default().resident;
    metrics::Usage { cpu, resident_bytes: own + helper, open_descriptors: budget.used as u64 }
}
