//! The rings of all CPUs and the attributor of their records, shared by the reader thread and the collector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Attributor, Bundle, Shares};
use crate::plan::Granularity;
use crate::ring::{Consumer, Losses, RingId, ThreadSwitchSender, Usage};
use crate::sys::{Drained, Fields, Ring};
use crate::targets::Changed;

/// A ring; `None` after no replacement could be created.
#[derive(Debug)]
struct RingState<R> {
    ring: Option<R>,
    usage: Usage,
}

/// The rings and the attributor of their records.
#[derive(Debug)]
pub struct Ingest<R> {
    /// The number of a ring is that of its bundle.
    rings: BTreeMap<RingId, RingState<R>>,
    attributor: Attributor,
    /// Destination of thread switches, if threads are followed.
    sender: Option<Arc<ThreadSwitchSender>>,
}

impl<R: Ring> Ingest<R> {
    /// Returns an ingest without rings; for the arguments see [`Attributor::new`].
    pub fn new(granularity: Granularity, fields: Fields, width: usize, rotates: bool) -> Self {
        let attributor = Attributor::new(granularity, fields, width, rotates);
        Self { rings: BTreeMap::new(), attributor, sender: None }
    }

    /// Passes thread switches on from now on.
    pub(crate) fn send_thread_switches(&mut self, sender: Arc<ThreadSwitchSender>) {
        self.sender = Some(sender);
        self.attributor.sums.follows = true;
    }

    /// Stops passing thread switches on.
    pub(crate) fn stop_thread_switches(&mut self) {
        self.sender = None;
        let sums = &mut self.attributor.sums;
        (sums.thread_switches, sums.follows) = (Vec::new(), false);
    }

    /// Adds a CPU before its events are enabled for the first time: its bundles, each with its ring.
    pub fn add_cpu(&mut self, cpu: u32, bundles: Vec<(Bundle, R)>) {
        let (bundles, rings): (Vec<Bundle>, Vec<R>) = bundles.into_iter().unzip();
        for (ring, number) in rings.into_iter().zip(0..) {
            self.rings
                .insert(RingId { cpu, number }, RingState { ring: Some(ring), usage: Usage::default() });
        }
        self.attributor.add_cpu(cpu, &bundles);
    }

    /// Reads the remaining records of a CPU, and removes it; see [`Attributor::remove_cpu`].
    pub fn remove_cpu(&mut self, cpu: u32, words: &mut [Vec<u64>]) {
        self.drain(cpu);
        for number in 0..words.len() as u32 {
            self.rings.remove(&RingId { cpu, number });
        }
        self.attributor.remove_cpu(cpu, words);
    }

    /// Empties the rings of a CPU, that of the software events last: its records contain the owners for spans without records in the other
    /// rings.
    pub fn drain(&mut self, cpu: u32) {
        let of_cpu = RingId { cpu, number: 0 }..=RingId { cpu, number: u32::MAX };
        let Some((&RingId { number: last, .. }, _)) = self.rings.range(of_cpu).next_back() else { return };
        (0..=last).rev().for_each(|number| self.drain_ring(RingId { cpu, number }));
        self.attributor.settle(cpu);
    }

    /// Empties a ring, if it exists.
    fn drain_ring(&mut self, id: RingId) {
        let Some(kept) = self.rings.get_mut(&id) else { return };
        let Some(ring) = &mut kept.ring else { return };
        let (cpu, bundle, before) = (id.cpu, id.number as usize, self.attributor.losses());
        let mut drained = Drained::default();
        self.attributor.read(cpu, bundle, |read| drained = ring.drain(read));
        kept.usage.read(drained);
        if drained.torn {
            self.attributor.sums.losses.unreadable += 1;
            self.attributor.mark_gap(cpu, bundle);
        }
        let losses = self.attributor.losses();
        kept.usage.lost += losses.ring_full - before.ring_full;
        // Only the first ring of a CPU has thread switches.
        let gap =
            bundle == 0 && (losses.ring_full, losses.unreadable) != (before.ring_full, before.unreadable);
        self.pass(gap);
    }

    /// Passes on the thread switches that were read. `gap`: whether records are missing among them.
    fn pass(&mut self, gap: bool) {
        let Some(sender) = &self.sender else { return };
        if !sender.pass(&mut self.attributor.sums.thread_switches, gap) {
            self.stop_thread_switches();
        }
    }

    /// Empties all rings.
    pub fn drain_all(&mut self) {
        self.cpus().into_iter().for_each(|cpu| self.drain(cpu));
    }

    /// Returns the CPUs that have rings.
    pub(crate) fn cpus(&self) -> BTreeSet<u32> {
        self.rings.keys().map(|ring| ring.cpu).collect()
    }

    /// Empties all rings, and returns the attributed counts since the last call; see [`Attributor::take`].
    pub fn take(&mut self, there: impl Fn(u32) -> bool) -> Shares {
        self.drain_all();
        self.attributor.take(there)
    }

    /// Empties all rings, and returns the processes that changed since the last call; see [`Attributor::take_changed`].
    pub fn take_changed(&mut self) -> Option<Changed> {
        self.drain_all();
        self.attributor.take_changed()
    }

    /// Adds a process as `/proc` describes it.
    pub fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        self.attributor.describe(pid, comm, kernel);
    }

    /// Returns the CPUs on which `PERF_RECORD_SWITCH` should be enabled; see [`Attributor::cpus_with_unsampled_switches`].
    pub fn cpus_with_unsampled_switches(&self) -> Vec<u32> {
        self.attributor.cpus_with_unsampled_switches().collect()
    }

    /// Returns the counts of records that were read and lost.
    pub fn losses(&self) -> Losses {
        self.attributor.losses()
    }

    /// Returns the size of all rings, in bytes.
    pub fn bytes(&self) -> u64 {
        self.rings.values().filter_map(|kept| kept.ring.as_ref()).map(|ring| ring.size() as u64).sum()
    }
}

/// Without a ring, events continue to count, and their counts are unattributed until they end.
impl<R: Ring> Consumer<R> for Ingest<R> {
    fn remove(&mut self, id: RingId) {
        self.drain(id.cpu);
        if let Some(kept) = self.rings.get_mut(&id) {
            kept.ring = None;
        }
        self.attributor.mark_gap(id.cpu, id.number as usize);
        self.pass(true);
    }

    fn add(&mut self, id: RingId, memory: R) {
        if let Some(kept) = self.rings.get_mut(&id) {
            kept.ring = Some(memory);
        }
    }

    fn usage(&mut self, id: RingId) -> Usage {
        self.rings.get_mut(&id).map(|kept| kept.usage.take()).unwrap_or_default()
    }
}
