//! Routing of records: from the event that wrote a record to the entries that decode it.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::aggregate::{Aggregate, Hit, Taken};
use super::open::{ByLane, Wanted, leading};
use super::owners::{Owners, Round, Who};
use super::tasks::{Remarkable, Tasks, Untracked};
use super::thread_tables::ThreadTable;
use crate::plan::{Feed, RingClass, Trace};
use crate::ring::{Losses, Malformed, Record, Turn, is_sample, time_of};
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
            Self::Tasks(sheet) => &sheet.trace,
        }
    }
}

/// Data that one collection takes.
#[derive(Debug)]
pub(super) struct DeskTaken {
    /// Sums of each entry.
    pub(super) entries: Vec<Taken>,
    /// The owners of the sums.
    pub(super) round: Round,
    /// Threads with unusual behavior.
    pub(super) remarkable: Remarkable,
}

/// All entries, and the routes to them.
#[derive(Debug, Default)]
pub(super) struct Router {
    sources: Vec<Source>,
    tasks: Tasks,
    /// Events by the identifiers in their records.
    taps: FxHashMap<u64, Arc<Wanted>>,
    owners: Owners,
    /// Number of turns that follow a gap in the switches of the switch stream.
    incomplete: u64,
    /// The lane whose records report the creation and exit of processes and threads.
    leading: Option<RingClass>,
    pub(super) losses: ByLane<Losses>,
}

impl Router {
    /// Routes records to these entries from now on. Entries that remain keep their counts and known values. Pairs start anew, because hits
    /// in between were not recorded.
    pub(super) fn retrace(&mut self, traces: &[Arc<Trace>]) {
        let mut old = std::mem::take(&mut self.sources);
        for trace in traces {
            let kept = old.iter().position(|source| source.trace() == trace);
            let kept = kept.map(|at| old.swap_remove(at));
            self.sources.push(kept.unwrap_or_else(|| Source::new(Arc::clone(trace))));
        }
        self.tasks.retrace(traces);
        self.taps.clear();
        self.incomplete = 0;
        self.leading = leading(traces);
        RingClass::ALL.into_iter().for_each(|lane| self.mark_gap(lane));
    }

    /// Adds the route of an opened event whose records contain `id`.
    pub(super) fn tap(&mut self, id: u64, wanted: &Arc<Wanted>) {
        self.taps.insert(id, Arc::clone(wanted));
    }

    /// Removes the route of a closed event, after its records were read.
    pub(super) fn untap(&mut self, id: u64) {
        self.taps.remove(&id);
    }

    /// Processes a record of a CPU. `fields`: the fields that all records of its lane have.
    #[inline]
    pub(super) fn read(&mut self, lane: RingClass, cpu: u32, record: &[u8], fields: &Fields) {
        if is_sample(record) {
            self.sample(lane, cpu, record);
        } else {
            self.other(lane, cpu, record, fields);
        }
    }

    #[inline]
    fn sample(&mut self, lane: RingClass, cpu: u32, record: &[u8]) {
        let losses = &mut self.losses[lane];
        // The identifier comes first, and determines the layout of the rest.
        let id = record.get(8..).and_then(|rest| rest.first_chunk()).map(|&id| u64::from_ne_bytes(id));
        let Some(tap) = id.and_then(|id| self.taps.get(&id)) else {
            losses.unreadable += 1;
            return;
        };
        let Ok(Record::Sample(sample)) = Record::parse(record, &tap.fields) else {
            losses.unreadable += 1;
            return;
        };
        let number = || sample.raw.first_chunk().map(|&number| u16::from_ne_bytes(number));
        if tap.number.is_some_and(|expected| number() != Some(expected)) {
            losses.unreadable += 1;
            return;
        }
        losses.records += 1;
        let read = self.tasks.read(&tap.role, cpu, &sample, &mut self.owners);
        losses.unreadable += u64::from(read.is_none());
        let who = Who { cpu, pid: sample.pid, tid: sample.tid, cgroup: sample.cgroup };
        for &(source, place) in &tap.uses {
            if let Some(Source::Fields(aggregate)) = self.sources.get_mut(source) {
                let hit = Hit { source: place, who, time: sample.time, raw: sample.raw };
                aggregate.hit(hit, &mut self.owners);
            }
        }
    }

    /// Processes a thread switch of the switch stream.
    #[inline]
    pub(super) fn turn(&mut self, turn: &Turn) {
        self.incomplete += u64::from(!turn.complete);
        self.tasks.turn(turn, &mut self.owners);
    }

    /// Processes a record that is not a sample.
    fn other(&mut self, lane: RingClass, cpu: u32, record: &[u8], fields: &Fields) {
        match Record::parse(record, fields) {
            Ok(Record::Lost { count, .. } | Record::LostSamples { count }) => {
                let losses = &mut self.losses[lane];
                losses.ring_full = losses.ring_full.saturating_add(count);
                self.mark_gap(lane);
            }
            Ok(Record::Switch { pid, tid, out, other }) => {
                if let Some(time) = time_of(record, fields) {
                    let who = if out { other } else { (pid, tid) };
                    self.tasks.comes((cpu, time), who, out, &mut self.owners);
                }
            }
            Ok(record) => self.hear(lane, cpu, &record),
            Err(Malformed) => self.losses[lane].unreadable += 1,
        }
    }

    /// Applies a record of a process, a thread or a cgroup. Several lanes contain the record of one fork. Applied twice, it would
    /// reset the name of the process.
    fn hear(&mut self, lane: RingClass, cpu: u32, record: &Record<'_>) {
        let leads = self.leading == Some(lane);
        if leads || matches!(record, Record::Cgroup(_)) {
            self.owners.hear(record);
        }
        match record {
            Record::Fork(task) if leads => self.tasks.fork(task),
            Record::Exit(task) if leads => self.tasks.exit(cpu, task, &mut self.owners),
            _ => {}
        }
        if lane == RingClass::Syscalls {
            match record {
                Record::Fork(task) => self.tasks.fork_in_call(task),
                Record::Exit(task) => self.tasks.end_calls(task),
                _ => {}
            }
        }
    }

    /// Notes that records of a lane are missing. Records of the direct lane do not depend on each other.
    pub(super) fn mark_gap(&mut self, lane: RingClass) {
        match lane {
            RingClass::Direct => return,
            RingClass::Ordered => {
                for source in &mut self.sources {
                    if let Source::Fields(aggregate) = source {
                        aggregate.mark_gap();
                    }
                }
            }
            RingClass::Scheduler => {}
            RingClass::Syscalls => self.tasks.mark_gap_of_calls(),
        }
        if lane == RingClass::Scheduler || self.leading == Some(lane) {
            self.tasks.mark_gap();
        }
    }

    /// Adds a process as `/proc` describes it.
    pub(super) fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        self.owners.describe(pid, comm, kernel);
        self.tasks.describe(pid, comm, kernel);
    }

    /// Takes the sums of every entry; see [`Aggregate::take`] and [`Owners::end_round`].
    pub(super) fn take(&mut self, now: u64, kept: u64, there: impl Fn(u32) -> bool) -> DeskTaken {
        let tasks = self.tasks.take(now, &mut self.owners);
        let taken = self.sources.iter_mut().map(|source| match source {
            Source::Fields(aggregate) => aggregate.take(now, kept),
            Source::Tasks(sheet) => sheet.take(&tasks, kept),
        });
        let entries = taken.collect();
        DeskTaken { entries, round: self.owners.end_round(there), remarkable: tasks.remarkable }
    }

    /// Returns the counts of untracked activity of threads.
    pub(super) fn untracked(&self) -> Untracked {
        self.tasks.untracked()
    }

    /// Reports whether threads start to run on CPUs without a record of a switch, so that `PERF_RECORD_SWITCH` is needed. Even a
    /// few such switches matter, because each thread may have run for long.
    pub(super) fn misses_switches(&self) -> bool {
        self.tasks.unseen() + self.incomplete >= UNSEEN
    }
}
