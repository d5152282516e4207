//! Keeps stacks, tasks and windows within their share of the memory budget.
//!
//! When the share is full, the oldest slot of a window is dropped first, with the stacks and tasks that only this slot used. Published
//! totals stay: windows serve only pages and requests for the last minutes.

use crate::budget::Account;
use crate::profile::memory::MemoryShares;

use super::{Analysis, MANY};
use crate::profile::tally::Tally;

/// The shortest interval between two attempts to free memory, in nanoseconds on the clock of the records.
const MIN_FREE_INTERVAL: u64 = 1_000_000_000;

/// The interval at which stacks and tasks are dropped that no window uses, in nanoseconds on the clock of the records. It applies to any
/// number of them, so that memory is released after a peak.
pub(super) const TIDY_EVERY: u64 = 60_000_000_000;

/// The interval at which caches are cleared, in nanoseconds on the clock of the records. Entries that are still in use are read again at
/// once.
const REFRESH_EVERY: u64 = 300_000_000_000;

/// The memory held of each share, and the samples dropped to free memory.
#[derive(Debug)]
pub(super) struct HeldMemory {
    stacks: Account,
    unwind: Account,
    /// When memory was last freed.
    made: u64,
    /// When stacks and tasks that no window uses were last dropped.
    tidied: u64,
    /// When caches were last cleared.
    refreshed: u64,
    /// Samples in slots that were dropped before they expired.
    pub(super) dropped: u64,
}

impl HeldMemory {
    pub(super) fn new(shares: &MemoryShares) -> Self {
        Self {
            stacks: shares.stacks.account(),
            unwind: shares.unwind.account(),
            made: 0,
            tidied: 0,
            refreshed: 0,
            dropped: 0,
        }
    }
}

impl Analysis {
    /// Limits memory to these shares from now on.
    pub(in crate::profile) fn keep_within(&mut self, shares: &MemoryShares) {
        self.held_memory = HeldMemory::new(shares);
        self.make_room(false);
    }

    /// Drops unused stacks and tasks if `gone` indicates that windows lost a slot, and more if the share is full.
    pub(super) fn make_room(&mut self, gone: bool) {
        let many = self.analyzer.stacks().len() >= MANY || self.tasks.len() >= MANY;
        if gone && (many || self.analyzed.saturating_sub(self.held_memory.tidied) >= TIDY_EVERY) {
            self.held_memory.tidied = self.analyzed;
            self.tidy();
        }
        if self.analyzed.saturating_sub(self.held_memory.refreshed) >= REFRESH_EVERY {
            self.held_memory.refreshed = self.analyzed;
            self.analyzer.clear_caches();
            self.tasks.age();
        }
        let limit = self.held_memory.stacks.limit();
        self.analyzer.set_memory(limit, self.held_memory.unwind.limit());
        let mut held = self.held();
        if held > limit && self.analyzed.saturating_sub(self.held_memory.made) >= MIN_FREE_INTERVAL {
            self.held_memory.made = self.analyzed;
            self.tidy();
            held = self.held();
            while held > limit / 4 * 3 && self.drop_oldest() {
                self.tidy();
                held = self.held();
            }
        }
        // Recordings in progress continue until they end; until then no new keys are added to them.
        let full = held > limit;
        self.recordings.values_mut().for_each(|recording| recording.tally.set_full(full));
        self.held_memory.stacks.set(held);
        self.held_memory.unwind.set(self.analyzer.unwind_bytes());
    }

    /// Returns the bytes of stacks, tasks, windows and recordings.
    fn held(&self) -> u64 {
        let tallies: usize = self.tallies().map(Tally::bytes).sum();
        (self.analyzer.stack_bytes() + self.tasks.bytes() + tallies) as u64
    }

    /// Drops the oldest slot of all windows. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let windows = self.sources.iter_mut().map(|source| &mut source.window);
        let oldest = windows.filter(|window| window.begin().is_some()).min_by_key(|window| window.begin());
        let Some(window) = oldest else { return false };
        self.held_memory.dropped = self.held_memory.dropped.saturating_add(window.drop_oldest());
        true
    }
}
