//! Opens and closes counters as CPUs, cgroups and processes appear and disappear.

use std::sync::Arc;
use std::time::Duration;

use super::Collector;
use super::counting::Counting;
use super::stream;
use super::subject::{Key, Subject};
use crate::host::CpuSet;
use crate::ring::ThreadSwitchReceiver;
use crate::sys::Kernel;
use crate::targets::{Cgroup, Changes, Process, Watch};

/// Interval between retries of names that were rejected because their cgroup had too many.
const NAME_RETRY_INTERVAL: Duration = Duration::from_secs(60);

impl<K: Kernel> Collector<K> {
    /// Applies the changes on the host since the last scan.
    pub fn follow(&mut self, changes: &Changes, targets: &Watch) {
        self.describe_to_stream(targets);
        self.describe_to_tracer(targets);
        self.follow_cpus(&changes.restarted, targets);
        let of = |cgroups: &[Arc<Cgroup>], processes: &[Arc<Process>]| -> Vec<Subject> {
            let cgroups = cgroups.iter().cloned().map(Subject::Cgroup);
            cgroups.chain(processes.iter().cloned().map(Subject::Process)).collect()
        };
        let removed = changes.cgroups.removed.iter().map(|&id| Key::Cgroup(id));
        let removed: Vec<Key> =
            removed.chain(changes.processes.removed.iter().map(|&key| Key::Process(key))).collect();
        let changed = of(&changes.cgroups.changed, &changes.processes.changed);
        let added = of(&changes.cgroups.added, &changes.processes.added);

        let mut groups = std::mem::take(&mut self.groups);
        let monotonic = self.clock.monotonic();
        let again = monotonic.since(self.named) >= NAME_RETRY_INTERVAL;
        if again {
            self.named = monotonic;
        }
        let context = &mut self.context(targets);
        for counting in &mut groups {
            match counting {
                Counting::Dedicated(counter) => {
                    counter.remove(&removed, context);
                    changed.iter().for_each(|subject| counter.change(subject.clone(), context));
                    added.iter().for_each(|subject| counter.add(subject.clone(), context));
                    counter.catch_up(context);
                    if again {
                        counter.name_again(context);
                    }
                }
                Counting::Attributed(group) => {
                    removed.iter().for_each(|&key| group.remove(key, monotonic));
                    changed.iter().for_each(|subject| group.change(subject.clone(), monotonic));
                    added.iter().for_each(|subject| group.add(subject.clone(), monotonic));
                    if again {
                        group.name_again(monotonic);
                    }
                }
            }
        }
        self.groups = groups;
        self.board.log_changes();
    }

    /// Updates the online CPUs only. CPUs that were offline in between are closed first, because the kernel has removed their events.
    /// Events of other CPUs stay open.
    pub fn follow_cpus(&mut self, restarted: &CpuSet, targets: &Watch) {
        let online = targets.online();
        if !restarted.is_empty() {
            self.set_online(&online.without(restarted), targets);
        }
        self.set_online(online, targets);
    }

    /// Limits the rings of each kind to `memory` bytes on all CPUs from now on. Open rings stay as they are.
    pub(crate) fn set_ring_memory(&mut self, memory: u64) {
        self.stream.iter_mut().for_each(|stream| stream.set_ring_memory(memory));
        self.tracer.set_ring_memory(memory);
    }

    fn set_online(&mut self, online: &CpuSet, targets: &Watch) {
        self.follow_stream(online);
        self.follow_tracer(online);
        let mut groups = std::mem::take(&mut self.groups);
        let monotonic = self.clock.monotonic();
        let context = &mut self.context(targets);
        for counting in &mut groups {
            match counting {
                Counting::Dedicated(counter) => counter.set_online(online, context),
                Counting::Attributed(group) => {
                    group.set_online(online, &context.means.facts.nodes, monotonic);
                }
            }
        }
        self.groups = groups;
    }

    /// Passes the known processes to the stream. Called before the stream opens, so that it can attribute counts of processes that already
    /// run.
    pub(super) fn describe_to_stream(&mut self, targets: &Watch) {
        let Some(stream) = &self.stream else { return };
        self.index.follow(targets);
        let mut ingest = stream.ingest();
        for process in self.index.processes() {
            ingest.describe(process.key.pid, &process.comm, process.kernel_thread);
        }
    }

    /// Passes the known processes to the tracer.
    pub(super) fn describe_to_tracer(&mut self, targets: &Watch) {
        if self.tracer.is_idle() {
            return;
        }
        if self.stream.is_none() {
            self.index.follow(targets);
        }
        self.tracer.describe(&self.index);
    }

    /// Opens the tracer on CPUs that came online, and closes it on CPUs that went offline.
    pub(super) fn follow_tracer(&mut self, online: &CpuSet) {
        if self.tracer.is_idle() {
            return;
        }
        let thread_switches = self.thread_switches(self.tracer.follows_threads(), online);
        let (tracer, mut context) = self.tracing();
        tracer.follow(online, thread_switches, &mut context);
    }

    /// Returns the thread switches of the switch stream, for a tracer that follows threads and does not receive them yet.
    pub(super) fn thread_switches(&self, follows: bool, online: &CpuSet) -> Option<ThreadSwitchReceiver> {
        let stream = self.stream.as_ref()?;
        let tells = follows && stream.reports_thread_switches(online);
        if self.tracer.has_thread_switches() && !tells {
            stream.stop_thread_switches();
        }
        (tells && !self.tracer.has_thread_switches()).then(|| stream.thread_switches())
    }

    /// Opens the stream on CPUs that came online, and closes it on CPUs that went offline.
    pub(super) fn follow_stream(&mut self, online: &CpuSet) {
        let (Some(stream), mut means) = self.streaming() else { return };
        // Records left in the rings of these CPUs are attributed at the next collection, when the CPUs are already gone.
        let readings = stream.close_outside(online, means.budget);
        let refused = stream.open_missing(online, &mut means);
        if !readings.is_empty() {
            self.groups
                .iter_mut()
                .filter_map(Counting::attributed_mut)
                .for_each(|group| group.read(&readings, None));
        }
        self.note_refused(refused, online);
        self.renumber();
    }

    /// Updates the numbers of the counters of all groups to those of the open stream.
    pub(super) fn renumber(&mut self) {
        let Some(stream) = &self.stream else { return };
        for group in self.groups.iter_mut().filter_map(Counting::attributed_mut) {
            if let Some(numbers) = stream.plan.counters_of(&group.base.plan) {
                group.renumber(numbers, |number| stream.counts(number));
            }
        }
    }

    /// Adds events of the stream that could not be opened to the board, once for each group that counts them.
    pub(super) fn note_refused(&mut self, refused: Vec<stream::Refused>, online: &CpuSet) {
        // A CPU with a failure was just retried: the new result replaces the old one.
        let old = |cpu: u32| !online.contains(cpu) || refused.iter().any(|refused| refused.cpu == cpu);
        for (_, ticket) in self.stream_refused.extract_if(.., |(cpu, _)| old(*cpu)) {
            self.board.remove(ticket);
        }
        for stream::Refused { cpu, counter, refusal } in refused {
            for group in self.groups.iter().filter_map(Counting::attributed) {
                if counter.is_none_or(|counter| group.counts(counter)) {
                    let (entry, scope) = (&group.base.plan.entry, group.base.plan.scope());
                    self.stream_refused.push((cpu, self.board.add(entry, scope, refusal.clone())));
                }
            }
        }
    }
}
