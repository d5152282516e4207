//! Numbers of memory accesses by outcome.
//!
//! Source of the rules: `c2c_decode_stats` in `tools/perf/util/mem-events.c` of Linux 6.8 and later.

use crate::recording::perf_data::{Blocked, DataSource, Level, Snoop};

/// An outcome of accesses. An access can have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Every access.
    Record,
    Locked,
    Load,
    LoadUncached,
    LoadIo,
    LoadMiss,
    /// A load without an address.
    LoadNoAddress,
    LoadFillBuffer,
    LoadL1,
    LoadL2,
    /// A hit in the last level cache that no other core had modified.
    LoadLlc,
    /// A hit in a line that another core of the node had modified.
    LocalHitm,
    /// A hit in a line that a core of another node had modified.
    RemoteHitm,
    RemoteHit,
    LocalRam,
    RemoteRam,
    LoadExclusive,
    LoadShared,
    BlockedData,
    BlockedAddress,
    LocalPeer,
    RemotePeer,
    Store,
    StoreUncached,
    StoreNoAddress,
    StoreL1Hit,
    StoreL1Miss,
    /// A store for which the hardware does not report a level.
    StoreNoLevel,
    /// An access by code or to data that is not mapped.
    NoMap,
    /// An access that is neither a load nor a store.
    Unknown,
}

/// Number of outcomes.
const OUTCOMES: usize = Outcome::Unknown as usize + 1;

/// The number of accesses with each outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts([u64; OUTCOMES]);

impl Counts {
    /// Returns the outcomes of one access. `address`: that of its data; `is_mapped`: whether its code and its data are.
    pub(super) fn of(source: DataSource, address: u64, is_mapped: bool) -> Self {
        let mut counts = Self::default();
        counts.count(Outcome::Record, true);
        counts.count(Outcome::Locked, source.is_locked());
        counts.count(Outcome::BlockedData, source.is_blocked(Blocked::Data));
        counts.count(Outcome::BlockedAddress, source.is_blocked(Blocked::Address));
        let is_known = match (source.is_load(), source.is_store()) {
            (true, _) => counts.load(source, address),
            (false, true) => counts.store(source, address),
            (false, false) => {
                counts.count(Outcome::Unknown, true);
                false
            }
        };
        counts.count(Outcome::NoMap, is_known && !is_mapped);
        counts
    }

    /// Counts a load. Returns whether it has an address.
    fn load(&mut self, source: DataSource, address: u64) -> bool {
        self.count(Outcome::Load, true);
        if address == 0 {
            self.count(Outcome::LoadNoAddress, true);
            return false;
        }
        let is_modified = source.has(Snoop::HitModified);
        if source.is_hit() {
            for (level, outcome) in [
                (Level::Uncached, Outcome::LoadUncached),
                (Level::Io, Outcome::LoadIo),
                (Level::FillBuffer, Outcome::LoadFillBuffer),
                (Level::L1, Outcome::LoadL1),
            ] {
                self.count(outcome, source.is_at(level));
            }
            for (level, outcome) in [(Level::L2, Outcome::LoadL2), (Level::L3, Outcome::LoadLlc)] {
                let is_at = source.is_at(level);
                self.count(if is_modified { Outcome::LocalHitm } else { outcome }, is_at);
                self.count(Outcome::LocalPeer, is_at && source.has(Snoop::Peer));
            }
            let is_remote = source.is_at(Level::RemoteRam) || source.is_remote();
            for (is_at, outcome) in
                [(source.is_at(Level::LocalRam), Outcome::LocalRam), (is_remote, Outcome::RemoteRam)]
            {
                self.count(outcome, is_at);
                self.count(
                    if source.has(Snoop::Hit) { Outcome::LoadShared } else { Outcome::LoadExclusive },
                    is_at,
                );
            }
        }
        if source.is_at(Level::RemoteCache) || source.is_remote() {
            let is_peer = source.has(Snoop::Peer) && !source.has(Snoop::Hit) && !is_modified;
            self.count(Outcome::RemoteHit, source.has(Snoop::Hit) || is_peer);
            self.count(Outcome::RemoteHitm, is_modified && !source.has(Snoop::Hit));
            self.count(Outcome::RemotePeer, is_peer);
        }
        self.count(Outcome::LoadMiss, source.is_miss());
        true
    }

    /// Counts a store. Returns whether it has an address.
    fn store(&mut self, source: DataSource, address: u64) -> bool {
        self.count(Outcome::Store, true);
        if address == 0 {
            self.count(Outcome::StoreNoAddress, true);
            return false;
        }
        let is_l1 = source.is_at(Level::L1);
        self.count(Outcome::StoreUncached, source.is_hit() && source.is_at(Level::Uncached));
        self.count(Outcome::StoreL1Hit, source.is_hit() && is_l1);
        self.count(Outcome::StoreL1Miss, source.is_miss() && is_l1);
        self.count(Outcome::StoreNoLevel, source.is_level_unavailable());
        true
    }

    fn count(&mut self, outcome: Outcome, happened: bool) {
        // In bounds: the table has a place for each outcome.
        self.0[outcome as usize] += u64::from(happened);
    }

    /// Returns the number of accesses with an outcome.
    pub(super) fn get(&self, outcome: Outcome) -> u64 {
        // In bounds, as above.
        self.0[outcome as usize]
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    fn sum(&self, outcomes: &[Outcome]) -> u64 {
        outcomes.iter().map(|&outcome| self.get(outcome)).sum()
    }

    /// Returns the number of hits in lines that another core had modified.
    pub(super) fn hitm(&self) -> u64 {
        self.sum(&[Outcome::LocalHitm, Outcome::RemoteHitm])
    }

    /// Returns the number of loads from peers.
    pub(super) fn peer(&self) -> u64 {
        self.sum(&[Outcome::LocalPeer, Outcome::RemotePeer])
    }

    /// Returns the number of loads that missed the last level cache.
    pub(super) fn llc_misses(&self) -> u64 {
        self.sum(&[Outcome::LocalRam, Outcome::RemoteRam, Outcome::RemoteHit, Outcome::RemoteHitm])
    }

    /// Returns the number of loads as the sum of their levels, as perf adds them up.
    pub(super) fn loads(&self) -> u64 {
        let hits =
            [Outcome::LoadFillBuffer, Outcome::LoadL1, Outcome::LoadL2, Outcome::LoadLlc, Outcome::LocalHitm];
        self.llc_misses() + self.sum(&hits)
    }

    /// Returns the number of loads and stores as the sum of their levels, as perf adds them up.
    pub(super) fn records(&self) -> u64 {
        self.loads() + self.sum(&[Outcome::StoreL1Hit, Outcome::StoreL1Miss, Outcome::StoreNoLevel])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: u64 = 2;
    const STORE: u64 = 4;
    const HIT: u64 = 2 << 5;
    const MISS: u64 = 4 << 5;
    const L1: u64 = 8 << 5;
    const L2: u64 = 0x20 << 5;
    const L3: u64 = 0x40 << 5;
    const REMOTE_CACHE: u64 = 0x400 << 5;
    const HITM: u64 = 0x10 << 19;
    const PEER: u64 = 2 << 38;
    const REMOTE: u64 = 1 << 37;
    const HOP: u64 = 1 << 43;

    #[test]
    fn an_access_has_the_outcomes_of_its_source() {
        for (source, outcomes) in [
            (LOAD | HIT | L1, &[Outcome::Load, Outcome::LoadL1][..]),
            (LOAD | HIT | L3, &[Outcome::Load, Outcome::LoadLlc]),
            (LOAD | HIT | L3 | HITM, &[Outcome::Load, Outcome::LocalHitm]),
            // The second level is shared by several cores on some processors.
            (LOAD | HIT | L2 | HITM, &[Outcome::Load, Outcome::LocalHitm]),
            (LOAD | HIT | L3 | PEER, &[Outcome::Load, Outcome::LoadLlc, Outcome::LocalPeer]),
            (LOAD | MISS | L3, &[Outcome::Load, Outcome::LoadMiss]),
            (LOAD | HIT | REMOTE_CACHE | HITM, &[Outcome::Load, Outcome::RemoteHitm]),
            (
                LOAD | HIT | REMOTE | HITM,
                &[Outcome::Load, Outcome::RemoteRam, Outcome::LoadExclusive, Outcome::RemoteHitm],
            ),
            // With a number of hops, another core of the node is meant.
            (LOAD | HIT | REMOTE | HOP | HITM, &[Outcome::Load]),
            (STORE | HIT | L1, &[Outcome::Store, Outcome::StoreL1Hit]),
            (STORE | MISS | L1, &[Outcome::Store, Outcome::StoreL1Miss]),
            (STORE | 1 << 5, &[Outcome::Store, Outcome::StoreNoLevel]),
            (1, &[Outcome::Unknown]),
        ] {
            let mut expected = Counts::default();
            outcomes.iter().chain(&[Outcome::Record]).for_each(|&outcome| expected.count(outcome, true));
            assert_eq!(Counts::of(DataSource(source), 0x1000, true), expected, "{source:#x}");
        }
    }

    #[test]
    fn an_access_without_an_address_or_a_mapping_is_counted_as_such() {
        let counts = Counts::of(DataSource(LOAD | HIT | L1), 0, false);
        assert_eq!((counts.get(Outcome::LoadNoAddress), counts.get(Outcome::LoadL1)), (1, 0));
        assert_eq!(counts.get(Outcome::NoMap), 0);
        let counts = Counts::of(DataSource(STORE | HIT | L1), 0x1000, false);
        assert_eq!((counts.get(Outcome::NoMap), counts.records()), (1, 1));
    }
}
