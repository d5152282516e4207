//! The rings of all CPUs and the attributor that they are emptied into, shared by the reader and the collector.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Attributor, Bundle, Shares};
use crate::plan::Granularity;
use crate::ring::{Consumer, RingId};
use crate::sys::{Fields, Ring};
use crate::target::CgroupId;

/// What was read, and what could not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Samples that were read.
    pub records: u64,
    /// Records that found no room in their ring.
    pub ring_full: u64,
    /// Switches that the kernel counted and wrote no record of. Some kernels keep threads of their own out of sight.
    pub unrecorded: u64,
    /// Records that are not what their event should have written.
    pub unreadable: u64,
    /// How often the kernel stopped an event for firing too often.
    pub throttled: u64,
}

impl Losses {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            records: self.records.saturating_add(other.records),
            ring_full: self.ring_full.saturating_add(other.ring_full),
            unrecorded: self.unrecorded.saturating_add(other.unrecorded),
            unreadable: self.unreadable.saturating_add(other.unreadable),
            throttled: self.throttled.saturating_add(other.throttled),
        }
    }
}

/// A ring, unless no other could be made, and how many records it lost, with those that it replaced.
#[derive(Debug)]
struct Kept<R> {
    ring: Option<R>,
    lost: u64,
}

/// The rings and what comes of them.
#[derive(Debug)]
pub struct Intake<R> {
    /// The number of a ring is that of its bundle.
    rings: BTreeMap<RingId, Kept<R>>,
    attributor: Attributor,
}

impl<R: Ring> Intake<R> {
    /// Without rings yet; the rest as for [`Attributor::new`].
    pub fn new(granularity: Granularity, fields: Fields, width: usize) -> Self {
        Self { rings: BTreeMap::new(), attributor: Attributor::new(granularity, fields, width) }
    }

    /// A CPU, before its events are enabled for the first time: its bundles, each with its ring.
    pub fn add_cpu(&mut self, cpu: u32, bundles: Vec<(Bundle, R)>) {
        let (bundles, rings): (Vec<Bundle>, Vec<R>) = bundles.into_iter().unzip();
        for (ring, number) in rings.into_iter().zip(0..) {
            self.rings.insert(RingId { cpu, number }, Kept { ring: Some(ring), lost: 0 });
        }
        self.attributor.add_cpu(cpu, bundles);
    }

    /// Reads what is left in the rings of a CPU, and closes its account; see [`Attributor::remove_cpu`].
    pub fn remove_cpu(&mut self, cpu: u32, words: &[Vec<u64>]) {
        for number in 0..words.len() as u32 {
            self.drain(RingId { cpu, number });
            self.rings.remove(&RingId { cpu, number });
        }
        self.attributor.remove_cpu(cpu, words);
    }

    /// Empties one ring.
    pub fn drain(&mut self, id: RingId) {
        let Some(kept) = self.rings.get_mut(&id) else { return };
        let Some(ring) = &mut kept.ring else { return };
        let (cpu, bundle, before) = (id.cpu, id.number as usize, self.attributor.losses().ring_full);
        let mut torn = false;
        self.attributor.read(cpu, bundle, |read| torn = ring.drain(read).torn);
        if torn {
            self.attributor.ledger.losses.unreadable += 1;
            self.attributor.mark_gap(cpu, bundle);
        }
        kept.lost += self.attributor.losses().ring_full - before;
    }

    /// Empties all rings, and gives what was charged since the last time; see [`Attributor::take`].
    pub fn take(&mut self, there: impl Fn(u32) -> bool) -> Shares {
        let rings: Vec<RingId> = self.rings.keys().copied().collect();
        rings.into_iter().for_each(|ring| self.drain(ring));
        self.attributor.take(there)
    }

    /// Enters a process as `/proc` describes it.
    pub fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        self.attributor.describe(pid, comm, kernel);
    }

    /// The path of a cgroup that was created since the stream began, from the root of the hierarchy.
    pub fn path_of(&self, id: CgroupId) -> Option<&Arc<str>> {
        self.attributor.path_of(id)
    }

    /// What was read and what was lost.
    pub fn losses(&self) -> Losses {
        self.attributor.losses()
    }

    /// Bytes of all rings.
    pub fn bytes(&self) -> u64 {
        self.rings.values().filter_map(|kept| kept.ring.as_ref()).map(|ring| ring.size() as u64).sum()
    }
}

/// Without a ring, events go on counting, and nothing of it is attributed before the end.
impl<R: Ring> Consumer<R> for Intake<R> {
    fn remove(&mut self, id: RingId) {
        self.drain(id);
        if let Some(kept) = self.rings.get_mut(&id) {
            kept.ring = None;
        }
        self.attributor.mark_gap(id.cpu, id.number as usize);
    }

    fn add(&mut self, id: RingId, memory: R) {
        if let Some(kept) = self.rings.get_mut(&id) {
            kept.ring = Some(memory);
        }
    }

    fn lost(&self, id: RingId) -> u64 {
        self.rings.get(&id).map_or(0, |kept| kept.lost)
    }
}
