//! Keeps stacks, tasks and sample logs within their share of the memory budget.
//!
//! When the share is full, the oldest samples of the largest log are dropped first, with the stacks and tasks that only they used. Published totals stay: logs
//! serve only pages and requests for profiles of the past.

use crate::budget::Account;
use crate::profile::memory::MemoryShares;

use super::Analysis;

/// The number of stacks or tasks above which unused ones are dropped as soon as their number has grown by half.
const MANY: usize = 1 << 16;

/// One in so many samples is dropped if the share is full. If that does not suffice, twice as many are dropped next.
const DROPPED_PART: usize = 16;

/// The shortest interval between two attempts to free memory, in nanoseconds on the clock of the records.
const MIN_FREE_INTERVAL: u64 = 1_000_000_000;

/// The interval at which stacks and tasks are dropped that no sample uses, in nanoseconds on the clock of the records. It applies to any
/// number of them, so that memory is released after a peak.
pub(super) const TIDY_EVERY: u64 = 60_000_000_000;

/// The interval if no sample has expired: files and processes without samples are dropped, too.
const SWEEP_EVERY: u64 = 300_000_000_000;

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
    /// When stacks and tasks that no sample uses were last dropped, and how many were left.
    tidied: u64,
    left: (usize, usize),
    /// When caches were last cleared.
    refreshed: u64,
    /// Samples that were dropped before they expired.
    pub(super) dropped: u64,
}

impl HeldMemory {
    pub(super) fn new(shares: &MemoryShares) -> Self {
        Self {
            stacks: shares.stacks.account(),
            unwind: shares.unwind.account(),
            made: 0,
            tidied: 0,
            left: (0, 0),
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

    /// Drops unused stacks and tasks if `gone` indicates that samples expired, and the oldest samples if the share is full.
    pub(super) fn make_room(&mut self, gone: bool) {
        let (stacks, tasks) = self.held_memory.left;
        let many = |number: usize, left: usize| number >= MANY.max(left / 2 * 3);
        let many = many(self.analyzer.stacks().len(), stacks) || many(self.tasks.len(), tasks);
        let since = self.analyzed.saturating_sub(self.held_memory.tidied);
        if gone && (many || since >= TIDY_EVERY) || since >= SWEEP_EVERY {
            self.drop_unused();
        }
        if self.analyzed.saturating_sub(self.held_memory.refreshed) >= REFRESH_EVERY {
            self.held_memory.refreshed = self.analyzed;
            self.analyzer.clear_caches();
            self.tasks.age();
        }
        let limit = self.held_memory.stacks.limit();
        self.analyzer.set_memory(limit, self.held_memory.unwind.limit());
        let is_due = self.analyzed.saturating_sub(self.held_memory.made) >= MIN_FREE_INTERVAL;
        if is_due && (self.held() > limit || self.is_crowded()) {
            self.held_memory.made = self.analyzed;
            self.drop_unused();
            let mut part = DROPPED_PART;
            while (self.held() > limit / 8 * 7 || self.is_crowded()) && self.drop_oldest(part) {
                self.drop_unused();
                part = (part / 2).max(1);
            }
        }
        // Recordings in progress continue until they end. If the share is full without the logs, no new keys are added to them.
        let (held, logs) = (self.held(), self.log_bytes());
        let full = held.saturating_sub(logs) > limit;
        self.recordings.values_mut().for_each(|recording| recording.tally.set_full(full));
        self.held_memory.stacks.set(held);
        self.held_memory.unwind.set(self.analyzer.unwind_bytes());
    }

    fn drop_unused(&mut self) {
        self.tidy();
        self.held_memory.tidied = self.analyzed;
        self.held_memory.left = (self.analyzer.stacks().len(), self.tasks.len());
    }

    /// Reports whether the tables have hardly any numbers left for new stacks or tasks.
    fn is_crowded(&self) -> bool {
        self.analyzer.stacks().is_crowded() || self.tasks.is_crowded()
    }

    /// Returns the bytes of stacks, tasks, sample logs and recordings.
    fn held(&self) -> u64 {
        let recordings: usize = self.recordings.values().map(|recording| recording.tally.bytes()).sum();
        (self.analyzer.stack_bytes() + self.tasks.bytes() + recordings) as u64 + self.log_bytes()
    }

    fn log_bytes(&self) -> u64 {
        self.sources.iter().map(|source| source.log.bytes() as u64).sum()
    }

    /// Drops one in `part` samples: the oldest of the largest log, so that an entry with many samples does not shorten the time that others
    /// cover. Returns whether there were any.
    fn drop_oldest(&mut self, part: usize) -> bool {
        let total = |this: &Self| this.sources.iter().map(|source| source.log.samples()).sum::<usize>();
        let before = total(self);
        let wanted = before - before.div_ceil(part);
        while total(self) > wanted {
            let logs = self.sources.iter_mut().map(|source| &mut source.log);
            let largest = logs.filter(|log| log.samples() > 0).max_by_key(|log| log.bytes());
            let Some(log) = largest else { break };
            self.held_memory.dropped = self.held_memory.dropped.saturating_add(log.drop_oldest());
        }
        before > 0
    }
}
