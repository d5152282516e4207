//! The rings of all CPUs, shared by the reader thread and the collector.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::open::{ByClass, class_of};
use super::router::Router;
use crate::clock::Clock;
use crate::plan::{RingClass, Trace};
use crate::ring::{
    Consumer, Losses, Merger, RingId, ThreadSwitch, ThreadSwitchReceiver, Usage, is_sample, time_of,
};
use crate::sys::{Fields, Ring};

/// Hits counted by the events of a ring, and hits read from it. The kernel reports losses only in front of the next record that fits, which
/// may be much later. The events count each hit, so the difference is the number of lost records.
#[derive(Debug, Default)]
struct Account {
    /// Hits that were read.
    read: u64,
    /// Number of lost records that the kernel reported. Not all of them need to be hits.
    lost_records: u64,
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

    /// Returns the number of lost records. For some ring classes only the kernel's reports are available.
    fn lost(&self) -> u64 {
        self.usage.lost.max(self.lost_records)
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
    closed: ByClass<u64>,
    /// The fields of the records of each ring class.
    fields: ByClass<Fields>,
    merger: Merger,
    /// Thread switches of the switch stream, if it is their source.
    thread_switches: Option<Arc<ThreadSwitchReceiver>>,
    /// Thread switches that are queued until older records have arrived.
    waiting: Vec<ThreadSwitch>,
    pub(super) router: Router,
}

impl<R: Ring> Ingest<R> {
    /// Returns an ingest without rings.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            rings: BTreeMap::new(),
            accounts: BTreeMap::new(),
            closed: ByClass::default(),
            fields: ByClass::default(),
            merger: Merger::default(),
            thread_switches: None,
            waiting: Vec::new(),
            router: Router::default(),
        }
    }

    /// Reads records with these fields for these entries from now on, and follows these thread switches. There is no ring of the `stopped`
    /// ring classes.
    pub(super) fn retrace(
        &mut self,
        fields: ByClass<Fields>,
        traces: &[Arc<Trace>],
        thread_switches: Option<Arc<ThreadSwitchReceiver>>,
        stopped: ByClass<bool>,
    ) {
        if self.rings.is_empty() {
            (self.thread_switches, self.waiting) = (thread_switches, Vec::new());
            // Records that are still queued have times in the future: the kernel did not write these times.
            let until = u64::MAX;
            std::mem::take(&mut self.merger)
                .flush(until, |ring, _| self.router.losses[class_of(ring)].unreadable += 1);
        }
        self.fields = fields;
        self.router.retrace(traces, stopped);
    }

    /// Closes a ring whose events have stopped after counting this many `hits`.
    pub(super) fn close(&mut self, ring: RingId, hits: u64) {
        // Includes records of this very moment, because their event can no longer be identified afterwards.
        let until = self.clock.kernel().saturating_add(1);
        self.empty_all(RingClass::is_ordered);
        self.flush(until);
        self.remove(ring);
        if let Some(mut account) = self.accounts.remove(&ring) {
            let class = class_of(ring);
            if account.settle(hits) {
                self.router.mark_gap(class);
            }
            self.closed[class] = self.closed[class].saturating_add(account.usage.lost);
        }
    }

    /// Updates the losses of a ring: its events have counted `hits` by now. The ring was emptied since the previous call.
    pub(super) fn settle(&mut self, ring: RingId, hits: u64) {
        let Some(account) = self.accounts.get_mut(&ring) else { return };
        let before = std::mem::replace(&mut account.hits, hits);
        if account.settle(before) {
            self.router.mark_gap(class_of(ring));
        }
    }

    /// Empties the given rings, or all rings if none is given. Records older than `now` are already in the rings.
    pub(super) fn drain(&mut self, rings: &[RingId], now: u64) {
        if rings.is_empty() {
            return self.drain_all(now);
        }
        let direct = rings.iter().filter(|&&ring| !class_of(ring).is_ordered());
        direct.for_each(|&ring| self.empty(ring));
        if rings.iter().any(|&ring| class_of(ring).is_ordered()) {
            self.drain_ordered(now);
        }
    }

    /// Empties all rings. Records later than `now`, on their clock, may stay queued until the next call.
    pub(super) fn drain_all(&mut self, now: u64) {
        self.empty_all(|class| !class.is_ordered());
        self.drain_ordered(now);
    }

    /// Empties the rings of some ring classes.
    fn empty_all(&mut self, of: impl Fn(RingClass) -> bool) {
        let rings: Vec<RingId> = self.rings.keys().copied().filter(|&ring| of(class_of(ring))).collect();
        rings.into_iter().for_each(|ring| self.empty(ring));
    }

    /// Processes the records of all CPUs that were written before `now`, in order.
    fn drain_ordered(&mut self, now: u64) {
        self.empty_all(RingClass::is_ordered);
        self.flush(
            self.thread_switches.as_ref().map_or(now, |thread_switches| now.min(thread_switches.complete())),
        );
    }

    /// Processes queued records and thread switches from before `until`, in the order of their times.
    fn flush(&mut self, until: u64) {
        if let Some(thread_switches) = &self.thread_switches {
            if thread_switches.take(&mut self.waiting) {
                self.router.mark_gap(RingClass::Scheduler);
            }
            self.waiting.sort_by_key(|switch| switch.time);
        }
        let mut thread_switches = self.waiting.iter().take_while(|switch| switch.time < until).peekable();
        let fields = &self.fields;
        let (router, accounts) = (&mut self.router, &mut self.accounts);
        let mut followed = 0;
        self.merger.flush(until, |ring, record| {
            let class = class_of(ring);
            let time = time_of(record, &fields[class]).unwrap_or(0);
            while let Some(switch) = thread_switches.next_if(|switch| switch.time < time) {
                router.thread_switch(switch);
                followed += 1;
            }
            let before = router.losses[class].ring_full;
            router.read(class, ring.cpu, record, &fields[class]);
            let lost_records = router.losses[class].ring_full - before;
            if lost_records > 0
                && let Some(account) = accounts.get_mut(&ring)
            {
                account.lost_records += lost_records;
            }
        });
        for switch in thread_switches {
            router.thread_switch(switch);
            followed += 1;
        }
        self.waiting.drain(..followed);
    }

    /// Empties a ring: processes its records, or queues them if they have to be processed in order.
    fn empty(&mut self, id: RingId) {
        let Some(ring) = self.rings.get_mut(&id) else { return };
        let class = class_of(id);
        let (router, merger, fields) = (&mut self.router, &mut self.merger, &self.fields[class]);
        let (before, late, mut hits) = (router.losses[class].ring_full, merger.late(), 0);
        let drained = ring.drain(|record| {
            hits += u64::from(is_sample(record));
            if !class.is_ordered() {
                return router.read(class, id.cpu, record, fields);
            }
            match time_of(record, fields) {
                Some(time) => merger.push(id, time, record),
                None => router.losses[class].unreadable += 1,
            }
        });
        if let Some(account) = self.accounts.get_mut(&id) {
            account.read += hits;
            account.lost_records += router.losses[class].ring_full - before;
            account.usage.read(drained);
        }
        let losses = &mut router.losses[class];
        losses.unreadable += u64::from(drained.torn);
        losses.late += merger.late() - late;
        if drained.torn {
            router.mark_gap(class);
        }
    }

    /// Returns the numbers of read and lost records of the rings of a ring class.
    pub(super) fn losses(&self, class: RingClass) -> Losses {
        let accounts = self.accounts.iter().filter(|&(&ring, _)| class_of(ring) == class);
        let open: u64 = accounts.map(|(_, account)| account.lost()).sum();
        Losses { ring_full: self.closed[class].saturating_add(open), ..self.router.losses[class] }
    }

    /// Returns the size of the records that are queued to be processed in order, in bytes.
    pub(super) fn waiting_bytes(&self) -> u64 {
        (self.merger.memory() + self.waiting.capacity() * size_of::<ThreadSwitch>()) as u64
    }

    /// Returns the size of the rings of a ring class, in bytes.
    pub(super) fn bytes(&self, class: RingClass) -> u64 {
        let rings = self.rings.iter().filter(|&(&ring, _)| class_of(ring) == class);
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
        account.lost_records = 3;
        assert!(!account.settle(10), "the same loss is counted once");
        account.lost_records = 5;
        assert!(!account.settle(10), "the kernel reported lost records that were not hits");
        assert_eq!(account.lost(), 5);
    }
}
