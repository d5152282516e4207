//! The rings of all CPUs and the attributor that they are emptied into, shared by the reader and the collector.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Attributor, Bundle, Shares};
use crate::plan::Granularity;
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

/// A ring, and how many records it lost since it was made.
#[derive(Debug)]
struct Kept<R> {
    ring: R,
    lost: u64,
}

/// The rings and what comes of them.
#[derive(Debug)]
pub struct Intake<R> {
    /// By CPU and number of the bundle.
    rings: BTreeMap<(u32, usize), Kept<R>>,
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
        for (bundle, ring) in rings.into_iter().enumerate() {
            self.rings.insert((cpu, bundle), Kept { ring, lost: 0 });
        }
        self.attributor.add_cpu(cpu, bundles);
    }

    /// Reads what is left in the rings of a CPU, and closes its account; see [`Attributor::remove_cpu`].
    pub fn remove_cpu(&mut self, cpu: u32, words: &[Vec<u64>]) {
        for bundle in 0..words.len() {
            self.drain(cpu, bundle);
            self.rings.remove(&(cpu, bundle));
        }
        self.attributor.remove_cpu(cpu, words);
    }

    /// Empties a ring, and puts another in its place: `make` is called when the old one is gone. If that fails, there
    /// is none from now on: the events go on counting, and nothing of it is attributed before the end.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn replace_ring<E>(
        &mut self,
        cpu: u32,
        bundle: usize,
        make: impl FnOnce() -> Result<R, E>,
    ) -> Result<(), E> {
        self.drain(cpu, bundle);
        self.rings.remove(&(cpu, bundle));
        self.attributor.mark_gap(cpu, bundle);
        self.rings.insert((cpu, bundle), Kept { ring: make()?, lost: 0 });
        Ok(())
    }

    /// Empties one ring.
    pub fn drain(&mut self, cpu: u32, bundle: usize) {
        let Some(kept) = self.rings.get_mut(&(cpu, bundle)) else { return };
        let before = self.attributor.losses().ring_full;
        let mut torn = false;
        self.attributor.read(cpu, bundle, |read| torn = kept.ring.drain(read).torn);
        if torn {
            self.attributor.ledger.losses.unreadable += 1;
            self.attributor.mark_gap(cpu, bundle);
        }
        kept.lost += self.attributor.losses().ring_full - before;
    }

    /// Empties all rings, and gives what was charged since the last time; see [`Attributor::take`].
    pub fn take(&mut self, there: impl Fn(u32) -> bool) -> Shares {
        let rings: Vec<(u32, usize)> = self.rings.keys().copied().collect();
        rings.into_iter().for_each(|(cpu, bundle)| self.drain(cpu, bundle));
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

    /// For each ring its CPU, the number of its bundle, its bytes, and how many records it lost since it was made.
    pub fn rings(&self) -> impl Iterator<Item = (u32, usize, usize, u64)> {
        let ring =
            |(&(cpu, bundle), kept): (&(u32, usize), &Kept<R>)| (cpu, bundle, kept.ring.size(), kept.lost);
        self.rings.iter().map(ring)
    }
}
