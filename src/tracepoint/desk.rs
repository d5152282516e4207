//! Where records go: from the event that wrote them to the entries that look into them.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::aggregate::{Aggregate, Hit, Taken};
use super::open::{ByLane, Wanted, leading};
use super::owners::{Owners, Round, Who};
use super::sheets::Sheet;
use super::tasks::{Remarkable, Tasks, Untold};
use crate::plan::{Feed, Lane, Trace};
use crate::ring::{Losses, Malformed, Record, Turn, is_sample, time_of};
use crate::sys::Fields;

/// So many threads left a CPU that they were not seen to come to, and nobody knows yet that the kernel does not tell: a few
/// may be told out of order.
const UNSEEN: u64 = 8;

/// Where the series of an entry come from.
#[derive(Debug)]
enum Source {
    Fields(Aggregate),
    Tasks(Sheet),
}

impl Source {
    fn new(trace: Arc<Trace>) -> Self {
        match trace.feed {
            Feed::Records => Self::Fields(Aggregate::new(trace)),
            Feed::Tasks(fact, one_of) => Self::Tasks(Sheet::new(trace, fact, one_of)),
        }
    }

    fn trace(&self) -> &Arc<Trace> {
        match self {
            Self::Fields(aggregate) => &aggregate.trace,
            Self::Tasks(sheet) => &sheet.trace,
        }
    }
}

/// What a collection takes out.
#[derive(Debug)]
pub(super) struct DeskTaken {
    /// Of each entry.
    pub(super) entries: Vec<Taken>,
    /// Whose it is.
    pub(super) round: Round,
    /// What is told one by one.
    pub(super) remarkable: Remarkable,
}

/// Every entry, and what leads to it.
#[derive(Debug, Default)]
pub(super) struct Desk {
    sources: Vec<Source>,
    tasks: Tasks,
    /// Events by the identifiers in their records.
    taps: FxHashMap<u64, Arc<Wanted>>,
    owners: Owners,
    /// Turns before which the switch stream has no record of a switch.
    incomplete: u64,
    /// The lane whose records say which processes and threads begin and end.
    leading: Option<Lane>,
    pub(super) losses: ByLane<Losses>,
}

impl Desk {
    /// Leads records to these entries from now on. Those that stay keep what they have counted and the values that
    /// they know; pairs begin anew, for nobody saw what was hit in between.
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
        Lane::ALL.into_iter().for_each(|lane| self.mark_gap(lane));
    }

    /// An event was opened whose records bear `id`.
    pub(super) fn tap(&mut self, id: u64, wanted: &Arc<Wanted>) {
        self.taps.insert(id, Arc::clone(wanted));
    }

    /// It was closed, and what it wrote has been read.
    pub(super) fn untap(&mut self, id: u64) {
        self.taps.remove(&id);
    }

    /// Reads a record of a CPU. `fields` are those that all of its lane have.
    #[inline]
    pub(super) fn read(&mut self, lane: Lane, cpu: u32, record: &[u8], fields: &Fields) {
        if is_sample(record) {
            self.sample(lane, cpu, record);
        } else {
            self.other(lane, cpu, record, fields);
        }
    }

    #[inline]
    fn sample(&mut self, lane: Lane, cpu: u32, record: &[u8]) {
        let losses = &mut self.losses[lane];
        // Its identifier comes first, and tells what else there is.
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

    /// What the switch stream tells of a CPU.
    #[inline]
    pub(super) fn turn(&mut self, turn: &Turn) {
        self.incomplete += u64::from(!turn.complete);
        self.tasks.turn(turn, &mut self.owners);
    }

    /// What is no hit.
    fn other(&mut self, lane: Lane, cpu: u32, record: &[u8], fields: &Fields) {
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
    fn hear(&mut self, lane: Lane, cpu: u32, record: &Record<'_>) {
        let leads = self.leading == Some(lane);
        if leads || matches!(record, Record::Cgroup(_)) {
            self.owners.hear(record);
        }
        match record {
            Record::Fork(task) if leads => self.tasks.fork(task),
            Record::Exit(task) if leads => self.tasks.exit(cpu, task, &mut self.owners),
            _ => {}
        }
        if lane == Lane::Syscalls {
            match record {
                Record::Fork(task) => self.tasks.fork_in_call(task),
                Record::Exit(task) => self.tasks.end_calls(task),
                _ => {}
            }
        }
    }

    /// Records of a lane are missing. What is read as it comes is complete by itself.
    pub(super) fn mark_gap(&mut self, lane: Lane) {
        match lane {
            Lane::Direct => return,
            Lane::Ordered => {
                for source in &mut self.sources {
                    if let Source::Fields(aggregate) = source {
                        aggregate.mark_gap();
                    }
                }
            }
            Lane::Scheduler => {}
            Lane::Syscalls => self.tasks.mark_gap_of_calls(),
        }
        if lane == Lane::Scheduler || self.leading == Some(lane) {
            self.tasks.mark_gap();
        }
    }

    /// Enters a process as `/proc` describes it.
    pub(super) fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        self.owners.describe(pid, comm, kernel);
        self.tasks.describe(pid, comm, kernel);
    }

    /// Takes out what every entry counted; see [`Aggregate::take`] and [`Owners::end_round`].
    pub(super) fn take(&mut self, now: u64, kept: u64, there: impl Fn(u32) -> bool) -> DeskTaken {
        let tasks = self.tasks.take(now, &mut self.owners);
        let taken = self.sources.iter_mut().map(|source| match source {
            Source::Fields(aggregate) => aggregate.take(now, kept),
            Source::Tasks(sheet) => sheet.take(&tasks, kept),
        });
        let entries = taken.collect();
        DeskTaken { entries, round: self.owners.end_round(there), remarkable: tasks.remarkable }
    }

    /// What could not be told of threads.
    pub(super) fn untold(&self) -> Untold {
        self.tasks.untold()
    }

    /// Whether threads come onto CPUs without a switch, so that the CPUs themselves must tell. Even where that is rare, each
    /// of them may have run for long since.
    pub(super) fn misses_switches(&self) -> bool {
        self.tasks.unseen() + self.incomplete >= UNSEEN
    }
}
