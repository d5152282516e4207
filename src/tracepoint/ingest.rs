//! The rings of all CPUs, shared by the reader thread and the collector.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::open::{ByLane, lane_of};
use super::router::Router;
use crate::clock::Clock;
use crate::plan::{RingClass, Trace};
use crate::ring::{Consumer, Losses, Merger, RingId, Turn, Turns, Usage, is_sample, time_of};
use crate::sys::{Fields, Ring};

/// Hits counted by the events of a ring, and hits read from it. The kernel reports losses only in front of the next record that fits, which
/// may be much later. The events count each hit, so the difference is the number of lost records.
#[derive(Debug, Default)]
struct Account {
    /// Hits that were read.
    read: u64,
    /// Number of lost records that the kernel reported. Not all of them need to be hits.
    told: u64,
    /// Hits that the events had counted at the last call of `settle`.
    hits: u64,
    /// Number of records known to be lost, and maximum fill level of the ring.
    usage: Usage,
}

impl Account {
    /// Updates the losses: `hits` were counted before the ring was last emptied. Returns whether additional records are missing.
    fn settle(&mut self, hits: u64) -> bool {
        let missing = hits.saturating_sub(self.read);
        let news = missing > self.lost();
        self.usage.lost = self.lost().max(missing);
        news
    }

    /// Returns the number of lost records. For some lanes only the kernel's reports are available.
    fn lost(&self) -> u64 {
        self.usage.lost.max(self.told)
    }
}

/// The rings and the consumer of their records.
#[derive(Debug)]
pub(super) struct Ingest<R> {
    clock: Clock,
    rings: BTreeMap<RingId, R>,
    /// For each open ring: its account, which continues when the ring is replaced.
    accounts: BTreeMap<RingId, Account>,
    /// Number of records lost in rings that are closed.
    closed: ByLane<u64>,
    /// The fields of the records of each lane.
    fields: ByLane<Fields>,
    merger: Merger,
    /// Thread switches of the switch stream, if it is their source.
    turns: Option<Arc<Turns>>,
    /// Thread switches that are queued until older records have arrived.
    waiting: Vec<Turn>,
    pub(super) desk: Router,
}

impl<R: Ring> Ingest<R> {
    /// Returns an intake without rings.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            rings: BTreeMap::new(),
            accounts: BTreeMap::new(),
            closed: ByLane::default(),
            fields: ByLane::default(),
            merger: Merger::default(),
            turns: None,
            waiting: Vec::new(),
            desk: Router::default(),
        }
    }

    /// Reads records with these fields for these entries from now on, and follows these thread switches. There is no ring yet.
    pub(super) fn retrace(
        &mut self,
        fields: ByLane<Fields>,
        traces: &[Arc<Trace>],
        turns: Option<Arc<Turns>>,
    ) {
        (self.turns, self.waiting) = (turns, Vec::new());
        // Records that are still queued have times in the future: the kernel did not write these times.
        let until = u64::MAX;
        std::mem::take(&mut self.merger)
            .flush(until, |ring, _| self.desk.losses[lane_of(ring)].unreadable += 1);
        self.fields = fields;
        self.desk.retrace(traces);
    }

    /// Closes a ring whose events have stopped after counting this many `hits`.
    pub(super) fn close(&mut self, ring: RingId, hits: u64) {
        // Includes records of this very moment, because their event can no longer be identified afterwards.
        let until = self.clock.kernel().saturating_add(1);
        self.empty_all(RingClass::is_ordered);
        self.flush(until);
        self.remove(ring);
        if let Some(mut account) = self.accounts.remove(&ring) {
            let lane = lane_of(ring);
            if account.settle(hits) {
                self.desk.mark_gap(lane);
            }
            self.closed[lane] = self.closed[lane].saturating_add(account.usage.lost);
        }
    }

    /// Updates the losses of a ring: its events have counted `hits` by now. The ring was emptied since the previous call.
    pub(super) fn settle(&mut self, ring: RingId, hits: u64) {
        let Some(account) = self.accounts.get_mut(&ring) else { return };
        let before = std::mem::replace(&mut account.hits, hits);
        if account.settle(before) {
            self.desk.mark_gap(lane_of(ring));
        }
    }

    /// Empties the given rings, or all rings if none is given. Records older than `now` are already in the rings.
    pub(super) fn drain(&mut self, rings: &[RingId], now: u64) {
        if rings.is_empty() {
            return self.drain_all(now);
        }
        let direct = rings.iter().filter(|&&ring| !lane_of(ring).is_ordered());
        direct.for_each(|&ring| self.empty(ring));
        if rings.iter().any(|&ring| lane_of(ring).is_ordered()) {
            self.drain_ordered(now);
        }
    }

    /// Empties all rings. Records later than `now`, on their clock, may stay queued until the next call.
    pub(super) fn drain_all(&mut self, now: u64) {
        self.empty_all(|lane| !lane.is_ordered());
        self.drain_ordered(now);
    }

    /// Empties the rings of some lanes.
    fn empty_all(&mut self, of: impl Fn(RingClass) -> bool) {
        let rings: Vec<RingId> = self.rings.keys().copied().filter(|&ring| of(lane_of(ring))).collect();
        rings.into_iter().for_each(|ring| self.empty(ring));
    }

    /// Processes the records of all CPUs that were written before `now`, in order.
    fn drain_ordered(&mut self, now: u64) {
        self.empty_all(RingClass::is_ordered);
        self.flush(self.turns.as_ref().map_or(now, |turns| now.min(turns.complete())));
    }

    /// Processes queued records and thread switches from before `until`, in the order of their times.
    fn flush(&mut self, until: u64) {
        if let Some(turns) = &self.turns {
            if turns.take(&mut self.waiting) {
                self.desk.mark_gap(RingClass::Scheduler);
            }
            self.waiting.sort_by_key(|turn| turn.time);
        }
        let mut turns = self.waiting.iter().take_while(|turn| turn.time < until).peekable();
        let fields = &self.fields;
        let (desk, accounts) = (&mut self.desk, &mut self.accounts);
        let mut followed = 0;
        self.merger.flush(until, |ring, record| {
            let lane = lane_of(ring);
            let time = time_of(record, &fields[lane]).unwrap_or(0);
            while let Some(turn) = turns.next_if(|turn| turn.time < time) {
                desk.turn(turn);
                followed += 1;
            }
            let before = desk.losses[lane].ring_full;
            desk.read(lane, ring.cpu, record, &fields[lane]);
            let told = desk.losses[lane].ring_full - before;
            if told > 0
                && let Some(account) = accounts.get_mut(&ring)
            {
                account.told += told;
            }
        });
        for turn in turns {
            desk.turn(turn);
            followed += 1;
        }
        self.waiting.drain(..followed);
    }

    /// Empties a ring: processes its records, or queues them if they have to be processed in order.
    fn empty(&mut self, id: RingId) {
        let Some(ring) = self.rings.get_mut(&id) else { return };
        let lane = lane_of(id);
        let (desk, merger, fields) = (&mut self.desk, &mut self.merger, &self.fields[lane]);
        let (before, late, mut hits) = (desk.losses[lane].ring_full, merger.late(), 0);
        let drained = ring.drain(|record| {
            hits += u64::from(is_sample(record));
            if !lane.is_ordered() {
                return desk.read(lane, id.cpu, record, fields);
            }
            match time_of(record, fields) {
                Some(time) => merger.push(id, time, record),
                None => desk.losses[lane].unreadable += 1,
            }
        });
        if let Some(account) = self.accounts.get_mut(&id) {
            account.read += hits;
            account.told += desk.losses[lane].ring_full - before;
            account.usage.read(drained);
        }
        let losses = &mut desk.losses[lane];
        losses.unreadable += u64::from(drained.torn);
        losses.late += merger.late() - late;
        if drained.torn {
            desk.mark_gap(lane);
        }
    }

    /// Returns the numbers of read and lost records of the rings of a lane.
    pub(super) fn losses(&self, lane: RingClass) -> Losses {
        let accounts = self.accounts.iter().filter(|&(&ring, _)| lane_of(ring) == lane);
        let open: u64 = accounts.map(|(_, account)| account.lost()).sum();
        Losses { ring_full: self.closed[lane].saturating_add(open), ..self.desk.losses[lane] }
    }

    /// Returns the size of the records that are queued to be processed in order, in bytes.
    pub(super) fn waiting_bytes(&self) -> u64 {
        (self.merger.memory() + self.waiting.capacity() * size_of::<Turn>()) as u64
    }

    /// Returns the size of the rings of a lane, in bytes.
    pub(super) fn bytes(&self, lane: RingClass) -> u64 {
        let rings = self.rings.iter().filter(|&(&ring, _)| lane_of(ring) == lane);
        rings.map(|(_, ring)| ring.size() as u64).sum()
    }
}

impl<R: Ring> Consumer<R> for Ingest<R> {
    fn remove(&mut self, ring: RingId) {
        self.empty(ring);
        self.rings.remove(&ring);
    }

    fn add(&mut self, ring: RingId, memory: R) {
        self.rings.insert(ring, memory);
        self.accounts.entry(ring).or_default();
    }

    fn usage(&mut self, ring: RingId) -> Usage {
        let Some(account) = self.accounts.get_mut(&ring) else { return Usage::default() };
        Usage { lost: account.lost(), ..account.usage.take() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_is_lost_although_the_kernel_has_not_told_yet() {
        let mut account = Account { read: 7, ..Account::default() };
        assert!(!account.settle(7));
        assert!(account.settle(10));
        assert_eq!(account.lost(), 3);
        account.told = 3;
        assert!(!account.settle(10), "the same loss is counted once");
        account.told = 5;
        assert!(!account.settle(10), "the kernel reported lost records that were not hits");
        assert_eq!(account.lost(), 5);
    }
}
