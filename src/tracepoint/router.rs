//! Routing of records: from the event that wrote a record to the entries that decode it.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::aggregate::{Aggregate, EntryTotals, Hit};
use super::open::{ByClass, PlannedEvent, leading};
use super::owners::{Owners, RecordIds, Round};
use super::tasks::{LongestWaits, Tasks};
use super::thread_tables::ThreadTable;
use crate::plan::{Feed, RingClass, Trace};
use crate::ring::{Losses, Malformed, Record, ThreadSwitch, is_sample, time_of};
use crate::sched::Chunk;
use crate::sys::Fields;

/// Minimum number of threads that left a CPU without a record of their arrival, for which the kernel is considered to omit switch records.
/// Fewer can be due to records out of order.
const UNSEEN: u64 = 8;

/// Source of the series of an entry.
#[derive(Debug)]
enum Source {
    Fields(Aggregate),
    Tasks(ThreadTable),
}

impl Source {
    fn new(trace: Arc<Trace>) -> Self {
        match trace.feed {
            Feed::Records => Self::Fields(Aggregate::new(trace)),
            Feed::Tasks(fact, one_of) => Self::Tasks(ThreadTable::new(trace, fact, one_of)),
        }
    }

    fn trace(&self) -> &Arc<Trace> {
        match self {
            Self::Fields(aggregate) => &aggregate.trace,
            Self::Tasks(table) => &table.trace,
        }
    }
}

/// Data that one collection takes.
#[derive(Debug)]
pub(super) struct RouterTotals {
    /// Sums of each entry.
    pub(super) entries: Vec<EntryTotals>,
    /// The owners of the sums.
    pub(super) round: Round,
    /// Threads with unusual behavior.
    pub(super) longest_waits: LongestWaits,
    /// The runs of threads, if they are kept.
    pub(super) runs: Vec<Chunk>,
}

/// All entries, and the routes to them.
#[derive(Debug, Default)]
pub(super) struct Router {
    sources: Vec<Source>,
    pub(super) tasks: Tasks,
    /// Opened events by the identifiers in their records.
    pub(super) routes: FxHashMap<u64, Arc<PlannedEvent>>,
    owners: Owners,
    /// The lane whose records report the creation and exit of processes and threads.
    leading: Option<RingClass>,
    pub(super) losses: ByClass<Losses>,
}

impl Router {
    /// Routes records to these entries from now on. Entries that remain keep their counts and known values. Pairs of the `stopped` ring
    /// classes start anew, because hits in between were not recorded.
    pub(super) fn retrace(&mut self, traces: &[Arc<Trace>], stopped: ByClass<bool>) {
        let mut old = std::mem::take(&mut self.sources);
        for trace in traces {
            let kept = old.iter().position(|source| source.trace() == trace);
            let kept = kept.map(|at| old.swap_remove(at));
            self.sources.push(kept.unwrap_or_else(|| Source::new(Arc::clone(trace))));
        }
        self.tasks.retrace(traces);
        self.routes.clear();
        self.leading = leading(traces);
        RingClass::ALL.into_iter().filter(|&class| stopped[class]).for_each(|class| self.mark_gap(class));
    }

    /// Processes a record of a CPU. `fields`: the fields that all records of its ring class have.
    #[inline]
    pub(super) fn read(&mut self, class: RingClass, cpu: u32, record: &[u8], fields: &Fields) {
        if is_sample(record) {
            self.sample(class, cpu, record);
        } else {
            self.other(class, cpu, record, fields);
        }
    }

    #[inline]
    fn sample(&mut self, class: RingClass, cpu: u32, record: &[u8]) {
        let losses = &mut self.losses[class];
        // The identifier comes first, and determines the layout of the rest.
        let id = record.get(8..).and_then(|rest| rest.first_chunk()).map(|&id| u64::from_ne_bytes(id));
        let Some(route) = id.and_then(|id| self.routes.get(&id)) else {
            losses.unreadable += 1;
            return;
        };
        let Ok(Record::Sample(sample)) = Record::parse(record, &route.fields) else {
            losses.unreadable += 1;
            return;
        };
        let number = || sample.raw.first_chunk().map(|&number| u16::from_ne_bytes(number));
        if route.number.is_some_and(|expected| number() != Some(expected)) {
            losses.unreadable += 1;
            return;
        }
        losses.records += 1;
        let read = self.tasks.read(&route.role, cpu, &sample, &mut self.owners);
        losses.unreadable += u64::from(read.is_none());
        let ids = RecordIds { cpu, pid: sample.pid, tid: sample.tid, cgroup: sample.cgroup };
        for &(source, place) in &route.uses {
            if let Some(Source::Fields(aggregate)) = self.sources.get_mut(source) {
                let hit = Hit { source: place, ids, time: sample.time, raw: sample.raw };
                aggregate.hit(hit, &mut self.owners);
            }
        }
    }

    /// Processes a thread switch of the switch stream.
    #[inline]
    pub(super) fn thread_switch(&mut self, switch: &ThreadSwitch) {
        self.tasks.thread_switch(switch, &mut self.owners);
    }

    /// Processes a record that is not a sample.
    fn other(&mut self, class: RingClass, cpu: u32, record: &[u8], fields: &Fields) {
        match Record::parse(record, fields) {
            Ok(Record::Lost { count, .. } | Record::LostSamples { count }) => {
                let losses = &mut self.losses[class];
                losses.ring_full = losses.ring_full.saturating_add(count);
                self.mark_gap(class);
            }
            Ok(Record::Switch { pid, tid, out, other }) => {
                if let Some(time) = time_of(record, fields) {
                    let ids = if out { other } else { (pid, tid) };
                    self.tasks.incoming((cpu, time), ids, out, &mut self.owners);
                }
            }
            Ok(record) => self.apply_record(class, cpu, &record),
            Err(Malformed) => self.losses[class].unreadable += 1,
        }
    }

    /// Applies a record of a process, a thread or a cgroup. Several ring classes contain the record of one fork. Applied twice, it would
    /// reset the name of the process.
    fn apply_record(&mut self, class: RingClass, cpu: u32, record: &Record<'_>) {
        let leads = self.leading == Some(class);
        if leads || matches!(record, Record::Cgroup(_)) {
            self.owners.apply_record(record);
        }
        match record {
            Record::Fork(task) if leads => self.tasks.fork(task),
            Record::Exit(task) if leads => self.tasks.exit(cpu, task, &mut self.owners),
            _ => {}
        }
        if class == RingClass::Syscalls {
            match record {
                // The call that created a thread also returns in the child.
                Record::Fork(task) => self.tasks.calls.ignore(task.tid),
                // Calls of a thread that has exited do not return.
                Record::Exit(task) => self.tasks.calls.forget(task.tid),
                _ => {}
            }
        }
    }

    /// Notes that records of a ring class are missing. Records of the direct ring class do not depend on each other.
    pub(super) fn mark_gap(&mut self, class: RingClass) {
        match class {
            RingClass::Direct => return,
            RingClass::Ordered => {
                for source in &mut self.sources {
                    if let Source::Fields(aggregate) = source {
                        aggregate.mark_gap();
                    }
                }
            }
            RingClass::Scheduler => {}
            RingClass::Syscalls => self.tasks.calls.mark_gap(),
        }
        if class == RingClass::Scheduler || self.leading == Some(class) {
            self.tasks.timeline.mark_gap();
        }
    }

    /// Adds a process as `/proc` describes it.
    pub(super) fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        self.owners.processes.describe(pid, comm, kernel);
        self.tasks.describe(pid, comm, kernel);
    }

    /// Takes the sums of every entry; see [`Aggregate::take`] and [`Owners::end_round`]. From now on, runs may use this number of bytes.
    pub(super) fn take(
        &mut self,
        now: u64,
        kept: u64,
        run_bytes: usize,
        there: impl Fn(u32) -> bool,
    ) -> RouterTotals {
        let tasks = self.tasks.take(now, run_bytes, &mut self.owners);
        let taken = self.sources.iter_mut().map(|source| match source {
            Source::Fields(aggregate) => aggregate.take(now, kept),
            Source::Tasks(table) => table.take(&tasks, kept),
        });
        let entries = taken.collect();
        let round = self.owners.end_round(there);
        RouterTotals { entries, round, longest_waits: tasks.longest_waits, runs: tasks.runs }
    }

    /// Reports whether threads start to run on CPUs without a record of a switch, so that `PERF_RECORD_SWITCH` is needed. Even a
    /// few such switches matter, because each thread may have run for long.
    pub(super) fn misses_switches(&self) -> bool {
        self.tasks.timeline.untracked().unseen >= UNSEEN
    }
}
