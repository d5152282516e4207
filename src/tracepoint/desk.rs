//! Where records go: from the event that wrote them to the entries that look into them.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::aggregate::{Aggregate, Hit, Taken};
use super::intake::Lane;
use super::owners::{Owners, Round, Who};
use crate::plan::Trace;
use crate::ring::{Malformed, Record, Sample};
use crate::sys::Fields;
use crate::target::CgroupId;

/// What was read, and what could not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Hits that were read.
    pub records: u64,
    /// Records that found no room in their ring.
    pub ring_full: u64,
    /// Records that are not what their event should have written.
    pub unreadable: u64,
    /// Records that came after younger ones had been looked at.
    pub late: u64,
}

/// An entry, and the place of an event among its sources.
pub(super) type Use = (usize, usize);

/// Who looks into the records of an event.
#[derive(Debug)]
struct Tap {
    /// What its records begin with, if they hold fields.
    number: Option<u16>,
    uses: Arc<[Use]>,
}

/// Every entry, and what leads to it.
#[derive(Debug, Default)]
pub(super) struct Desk {
    aggregates: Vec<Aggregate>,
    taps: FxHashMap<u64, Tap>,
    owners: Owners,
    pub(super) losses: Losses,
}

impl Desk {
    /// Leads records to these entries from now on. Those that stay keep what they have counted and the values that
    /// they know; pairs begin anew, for nobody saw what was hit in between.
    pub(super) fn retrace(&mut self, traces: &[Arc<Trace>]) {
        let mut old = std::mem::take(&mut self.aggregates);
        for trace in traces {
            let kept = old.iter().position(|aggregate| aggregate.trace == *trace);
            let kept = kept.map(|at| old.swap_remove(at));
            self.aggregates.push(kept.unwrap_or_else(|| Aggregate::new(Arc::clone(trace))));
        }
        self.taps.clear();
        self.mark_gap();
    }

    /// An event was opened whose records bear `id`.
    pub(super) fn tap(&mut self, id: u64, number: Option<u16>, uses: &Arc<[Use]>) {
        self.taps.insert(id, Tap { number, uses: Arc::clone(uses) });
    }

    /// It was closed, and what it wrote has been read.
    pub(super) fn untap(&mut self, id: u64) {
        self.taps.remove(&id);
    }

    /// Reads a record of a CPU.
    #[inline]
    pub(super) fn read(&mut self, lane: Lane, cpu: u32, record: &[u8], fields: &Fields) {
        match Record::parse(record, fields) {
            Ok(Record::Sample(sample)) => self.sample(cpu, &sample),
            Ok(Record::Lost { count, .. } | Record::LostSamples { count }) => {
                self.losses.ring_full = self.losses.ring_full.saturating_add(count);
                // Pairs are read in order, and so are not in the other lane.
                if lane == Lane::Ordered {
                    self.mark_gap();
                }
            }
            // Lanes are not read in step: a fork that the other one tells again would take away the name since.
            Ok(record) if lane == Lane::Ordered || matches!(record, Record::Cgroup(_)) => {
                self.owners.hear(&record);
            }
            Ok(_) => {}
            Err(Malformed) => self.losses.unreadable += 1,
        }
    }

    #[inline]
    fn sample(&mut self, cpu: u32, sample: &Sample<'_>) {
        let Some(tap) = self.taps.get(&sample.identifier) else {
            self.losses.unreadable += 1;
            return;
        };
        let number = || sample.raw.first_chunk().map(|&number| u16::from_ne_bytes(number));
        if tap.number.is_some_and(|expected| number() != Some(expected)) {
            self.losses.unreadable += 1;
            return;
        }
        self.losses.records += 1;
        let who = Who { cpu, pid: sample.pid, tid: sample.tid, cgroup: sample.cgroup };
        for &(aggregate, source) in tap.uses.iter() {
            if let Some(aggregate) = self.aggregates.get_mut(aggregate) {
                aggregate.hit(Hit { source, who, time: sample.time, raw: sample.raw }, &mut self.owners);
            }
        }
    }

    /// Records that were to be read in order are missing.
    pub(super) fn mark_gap(&mut self) {
        self.aggregates.iter_mut().for_each(Aggregate::mark_gap);
    }

    /// Enters a process as `/proc` describes it.
    pub(super) fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        self.owners.describe(pid, comm, kernel);
    }

    /// Takes out what every entry counted; see [`Aggregate::take`] and [`Owners::end_round`].
    pub(super) fn take(&mut self, now: u64, kept: u64, there: impl Fn(u32) -> bool) -> (Vec<Taken>, Round) {
        let taken = self.aggregates.iter_mut().map(|aggregate| aggregate.take(now, kept)).collect();
        (taken, self.owners.end_round(there))
    }

    /// The path of a cgroup that was created while this ran.
    pub(super) fn path_of(&self, id: CgroupId) -> Option<Arc<str>> {
        self.owners.path_of(id)
    }
}
