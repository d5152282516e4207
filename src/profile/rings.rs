//! The rings of all CPUs and the queue before the analysis: records ordered by time, with commands between them.
//!
//! Everything here is memory of this process, so that every thread may use it under a [`Lock`](crate::lock::Lock). The queue is bounded:
//! while the analysis does not take records, the rings stay full and the kernel counts lost records.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::MemoryShares;
use super::open::{SIDE, SampleSource};
use crate::budget::Account;
use crate::plan::Sampler;
use crate::ring::{Losses, Merger, RingId, Usage, time_of};
use crate::sys::{Drained, Ring};

/// Records to analyze before other threads get their turn: about a millisecond.
const AT_A_TIME: usize = 256;
/// Bytes of a batch that are kept for the next one.
const MAX_RETAINED_CAPACITY: usize = 1 << 20;

/// An action of the analysis between two records.
#[derive(Debug)]
pub(super) enum Command {
    /// Counts for these entries from now on. Entries that stay keep their logs.
    Samplers(Vec<Arc<Sampler>>),
    /// Registers an opened event whose records have this `id`.
    SampleSource { id: u64, sample_source: SampleSource },
    /// From now on each record of an event represents `weight` hits.
    Weigh { id: u64, weight: u64 },
    /// Removes events that are closed. No more records of them follow.
    Forget(Vec<u64>),
    /// Begins a recording of an entry, at `at` nanoseconds on the clock of the records. `by_cpu` distinguishes CPUs.
    Begin { number: u64, entry: Arc<str>, at: u64, by_cpu: bool },
    /// Discards a recording.
    Abandon(u64),
    /// Limits memory to these shares.
    Memory(MemoryShares),
    /// Keeps samples for this time, memory permitting.
    Keep(Duration),
}

/// Records in order, with the losses before them and the commands after them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// For each record its CPU and its end in `bytes`.
    ends: Vec<(u32, usize)>,
    /// Whether records before these were damaged: the state of processes may be wrong.
    pub(super) torn: bool,
    /// Commands to execute after the records.
    pub(super) commands: Vec<Command>,
    /// Records lost before the analysis, since the start.
    pub(super) losses: Losses,
    /// All records before this time are in this batch or an earlier one. Nanoseconds on the clock of the records.
    pub(super) up_to: u64,
}

impl Batch {
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|&(_, end)| end));
        self.ends
            .iter()
            .zip(begins)
            .map(|(&(cpu, end), begin)| (cpu, self.bytes.get(begin..end).unwrap_or_default()))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(MAX_RETAINED_CAPACITY);
        self.ends.clear();
        self.commands.clear();
    }
}

/// The rings, and the records that were read but not analyzed yet.
#[derive(Debug)]
pub(super) struct Rings<R> {
    rings: BTreeMap<u32, R>,
    /// The usage of each ring since the last call of `take_usage`.
    usage: BTreeMap<u32, Usage>,
    merger: Merger,
    /// When the rings were last drained, on the clock of the records: later records are younger.
    emptied: u64,
    /// Each with its time, which never decreases: records before this time are analyzed first.
    commands: VecDeque<(u64, Command)>,
    torn: bool,
    /// Records lost before the analysis, since the start.
    pub(super) losses: Losses,
    /// The memory held of the shares of queued records and of rings.
    queued: Account,
    held: Account,
}

impl<R: Ring> Rings<R> {
    /// Creates an empty set of rings.
    pub(super) fn new() -> Self {
        Self {
            rings: BTreeMap::new(),
            usage: BTreeMap::new(),
            merger: Merger::default(),
            emptied: 0,
            commands: VecDeque::new(),
            torn: false,
            losses: Losses::default(),
            queued: MemoryShares::for_command().waiting.account(),
            held: MemoryShares::for_command().rings.account(),
        }
    }

    /// Limits memory to these shares from now on.
    pub(super) fn keep_within(&mut self, shares: &MemoryShares) {
        (self.queued, self.held) = (shares.waiting.account(), shares.rings.account());
        self.account();
    }

    /// Returns the number of queued bytes above which rings are not drained.
    fn limit(&self) -> u64 {
        // The content of all rings must fit. If the share is smaller than the rings, records are read in small turns.
        let limit = self.queued.limit();
        limit.saturating_sub(self.bytes()).max(limit / 4)
    }

    /// Returns the bytes of queued records.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.merger.memory() as u64
    }

    fn account(&self) {
        self.queued.set(self.queued_bytes());
        self.held.set(self.bytes());
    }

    /// Returns the bytes of all rings.
    pub(super) fn bytes(&self) -> u64 {
        self.rings.values().map(|ring| ring.size() as u64).sum()
    }

    /// Adds a ring to read from now on.
    pub(super) fn add(&mut self, cpu: u32, ring: R) {
        self.rings.insert(cpu, ring);
    }

    /// Removes a ring. Its records are queued, or lost and counted if the queue is full.
    pub(super) fn remove(&mut self, cpu: u32) {
        let Some(mut ring) = self.rings.remove(&cpu) else { return };
        if self.merger.bytes() as u64 > self.limit() {
            ring.drain(|_| self.losses.queue_full += 1);
        } else {
            self.torn |= empty(cpu, &mut ring, &mut self.merger, &mut self.losses).torn;
        }
    }

    /// Returns the usage of a ring since the last call.
    pub(super) fn take_usage(&mut self, cpu: u32) -> Usage {
        self.usage.remove(&cpu).unwrap_or_default()
    }

    /// Queues a command. It is executed after all records from before `now` have been analyzed, and before all others.
    pub(super) fn command(&mut self, now: u64, command: Command) {
        let last = self.commands.back().map_or(0, |&(at, _)| at);
        self.commands.push_back((now.max(last), command));
    }

    /// Discards a recording. If it has not begun yet, its queued command is removed.
    pub(super) fn abandon(&mut self, now: u64, number: u64) {
        let begins = |(_, command): &(u64, Command)| matches!(command, Command::Begin { number: of, .. } if *of == number);
        match self.commands.iter().position(begins) {
            Some(place) => drop(self.commands.remove(place)),
            None => self.command(now, Command::Abandon(number)),
        }
    }

    /// Drains the rings at `now`, unless the queue is full. While it is full, records stay in the rings, and the kernel counts the records
    /// that do not fit.
    pub(super) fn pull(&mut self, now: u64) {
        // A full queue must still be filled if the analysis cannot take any record from it.
        if self.merger.bytes() as u64 > self.limit() && self.merger.is_ready(self.emptied) {
            return;
        }
        for (&cpu, ring) in &mut self.rings {
            let drained = empty(cpu, ring, &mut self.merger, &mut self.losses);
            self.torn |= drained.torn;
            self.usage.entry(cpu).or_default().read(drained);
        }
        // A thread that took its timestamp earlier may get here later.
        self.emptied = self.emptied.max(now);
        self.account();
    }

    /// Takes some of the records that were written before the rings were last drained. Returns whether that was all, including commands.
    pub(super) fn take(&mut self, batch: &mut Batch) -> bool {
        batch.clear();
        (batch.torn, batch.losses) = (std::mem::take(&mut self.torn), self.losses);
        let next = self.commands.front().map(|&(at, _)| at);
        let until = next.map_or(self.emptied, |next| next.min(self.emptied));
        let all = self.merger.flush_some(until, AT_A_TIME, |RingId { cpu, .. }, record| {
            batch.bytes.extend_from_slice(record);
            batch.ends.push((cpu, batch.bytes.len()));
        });
        batch.up_to = self.merger.given();
        let Some(next) = next.filter(|&next| all && next <= self.emptied) else { return all };
        let due = self.commands.partition_point(|&(at, _)| at <= next);
        batch.commands.extend(self.commands.drain(..due).map(|(_, command)| command));
        false
    }
}

/// Queues the records of a ring.
fn empty<R: Ring>(cpu: u32, ring: &mut R, merger: &mut Merger, losses: &mut Losses) -> Drained {
    let late = merger.late();
    let drained = ring.drain(|record| match time_of(record, &SIDE) {
        Some(time) => merger.push(RingId::of_cpu(cpu), time, record),
        None => losses.unreadable += 1,
    });
    losses.unreadable += u64::from(drained.torn);
    losses.late += merger.late() - late;
    drained
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Part, Share};
    use crate::profile::replayed::FixedRing;
    use crate::ring::testing::{bytes, record};

    /// Returns a COMM record: a name, then pid and tid (both 0), time and identifier.
    fn named(length: usize, time: u64) -> Vec<u8> {
        let name = vec![0; length / 8];
        record(3, 0, &bytes(&[&[0][..], &name, &[0, time, 0]].concat()))
    }

    /// Takes everything that can be taken: times of records, and `!` for each command.
    fn taken(rings: &mut Rings<FixedRing>) -> String {
        let (mut batch, mut found) = (Batch::default(), Vec::new());
        loop {
            let all = rings.take(&mut batch);
            found.extend(batch.records().map(|(_, record)| time_of(record, &SIDE).unwrap().to_string()));
            found.extend(batch.commands.iter().map(|_| "!".to_owned()));
            if all {
                return found.join(" ");
            }
        }
    }

    fn waiting(bytes: u64) -> MemoryShares {
        MemoryShares { waiting: Share::fixed(Part::Waiting, bytes), ..MemoryShares::for_command() }
    }

    #[test]
    fn a_command_is_done_after_older_records_and_before_younger_ones() {
        let mut rings = Rings::new();
        rings.add(0, FixedRing([10, 30, 50].map(|time| named(8, time)).into()));
        rings.command(30, Command::Abandon(1));
        rings.command(20, Command::Abandon(2));
        rings.pull(25);
        assert_eq!(taken(&mut rings), "10", "records from before 30 may still arrive");
        rings.command(40, Command::Abandon(3));
        rings.pull(60);
        assert_eq!(taken(&mut rings), "! ! 30 ! 50");
    }

    #[test]
    fn a_removed_ring_is_read_before_its_events_are_forgotten() {
        let mut rings = Rings::new();
        rings.add(0, FixedRing([10, 20].map(|time| named(8, time)).into()));
        rings.remove(0);
        rings.command(21, Command::Forget(vec![1]));
        assert_eq!(taken(&mut rings), "");
        rings.pull(30);
        assert_eq!(taken(&mut rings), "10 20 !");
    }

    #[test]
    fn a_recording_that_was_given_up_before_it_began_leaves_nothing() {
        let mut rings: Rings<FixedRing> = Rings::new();
        for number in 0..1000 {
            rings.command(5, Command::Begin { number, entry: "one".into(), at: 5, by_cpu: false });
            rings.abandon(6, number);
        }
        assert!(rings.commands.is_empty());
    }

    #[test]
    fn the_queue_is_bounded_while_nothing_is_taken_out() {
        let mut rings = Rings::new();
        rings.keep_within(&waiting(10_000));
        for turn in 0..10 {
            rings.add(turn, FixedRing((0..100).map(|at| named(96, u64::from(turn) * 100 + at)).collect()));
            rings.pull(u64::from(turn) * 100 + 100);
        }
        assert!(rings.queued_bytes() < 100_000, "{} bytes", rings.merger.memory());
        let held: usize = rings.rings.values().map(|ring| ring.0.len()).sum();
        assert_eq!((rings.merger.waiting(), held), (100, 900), "all other records stay in the rings");
        (0..10).for_each(|cpu| rings.remove(cpu));
        assert_eq!((rings.merger.waiting(), rings.losses.queue_full), (100, 900));
    }

    #[test]
    fn records_that_stay_in_a_ring_because_too_much_is_queued_do_not_come_late() {
        let mut rings = Rings::new();
        let many = (0..1 + rings.limit() / 60_000).map(|at| named(60_000, at % 5)).collect();
        rings.add(0, FixedRing(many));
        rings.pull(10);
        let mut batch = Batch::default();
        assert!(!rings.take(&mut batch), "there are more records than one turn analyzes");
        rings.add(1, FixedRing(vec![named(8, 15)]));
        rings.pull(20);
        taken(&mut rings);
        rings.pull(30);
        assert_eq!(taken(&mut rings), "15");
        assert_eq!((rings.losses.late, rings.merger.waiting()), (0, 0));
    }

    #[test]
    fn a_queue_of_young_records_alone_does_not_stop_the_rings_from_being_emptied() {
        let mut rings = Rings::new();
        rings.keep_within(&waiting(0));
        // Written while the rings were being drained.
        rings.add(0, FixedRing(vec![named(8, 15)]));
        rings.pull(10);
        assert_eq!(taken(&mut rings), "");
        rings.pull(20);
        assert_eq!(taken(&mut rings), "15");
    }
}
