//! Keeping stacks, tasks and windows within their share of the memory budget.
//!
//! When the share is full, the oldest slot of a window goes first, with the stacks and tasks that only it had. Totals that
//! were published stay: windows are what pages and requests for the last while show.

use crate::budget::Account;
use crate::profile::memory::MemoryShares;

use super::{Analysis, MANY};
use crate::profile::tally::Tally;

/// How often it is tried to make room if there is too little to drop, in nanoseconds of the records' clock.
const AGAIN: u64 = 1_000_000_000;

/// How often stacks and tasks are dropped that no window has any more, in nanoseconds of the records' clock, however few there
/// are: a machine that was in trouble gets its memory back.
pub(super) const TIDY_EVERY: u64 = 60_000_000_000;

/// How often caches are emptied, in nanoseconds of the records' clock. What is still in use is read again at once.
const REFRESH_EVERY: u64 = 300_000_000_000;

/// What is held of each share, and what was dropped to make room.
#[derive(Debug)]
pub(super) struct Room {
    stacks: Account,
    unwind: Account,
    /// When room was made last.
    made: u64,
    /// When stacks and tasks that no window has were dropped last.
    tidied: u64,
    /// When caches were emptied last.
    refreshed: u64,
    /// Samples that went with their slots before these were too old.
    pub(super) dropped: u64,
}

impl Room {
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
    /// Holds no more than these shares from now on.
    pub(in crate::profile) fn keep_within(&mut self, shares: &MemoryShares) {
        self.room = Room::new(shares);
        self.make_room(false);
    }

    /// Drops what is not needed any more where `gone` says that windows lost a slot, and more if the share is full.
    pub(super) fn make_room(&mut self, gone: bool) {
        let many = self.analyzer.stacks().len() >= MANY || self.tasks.len() >= MANY;
        if gone && (many || self.analyzed.saturating_sub(self.room.tidied) >= TIDY_EVERY) {
            self.room.tidied = self.analyzed;
            self.tidy();
        }
        if self.analyzed.saturating_sub(self.room.refreshed) >= REFRESH_EVERY {
            self.room.refreshed = self.analyzed;
            self.analyzer.clear_caches();
            self.tasks.age();
        }
        let limit = self.room.stacks.limit();
        self.analyzer.set_memory(limit, self.room.unwind.limit());
        let mut held = self.held();
        if held > limit && self.analyzed.saturating_sub(self.room.made) >= AGAIN {
            self.room.made = self.analyzed;
            self.tidy();
            held = self.held();
            while held > limit / 4 * 3 && self.drop_oldest() {
                self.tidy();
                held = self.held();
            }
        }
        // What is being recorded for somebody has to end; until then nothing new is added to it.
        let full = held > limit;
        self.recordings.values_mut().for_each(|recording| recording.tally.set_full(full));
        self.room.stacks.set(held);
        self.room.unwind.set(self.analyzer.unwind_bytes());
    }

    /// Bytes of stacks, tasks, windows and recordings.
    fn held(&self) -> u64 {
        let tallies: usize = self.tallies().map(Tally::bytes).sum();
        (self.analyzer.stack_bytes() + self.tasks.bytes() + tallies) as u64
    }

    /// Drops the oldest slot of all windows. Whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let windows = self.sources.iter_mut().map(|source| &mut source.window);
        let oldest = windows.filter(|window| window.begin().is_some()).min_by_key(|window| window.begin());
        let Some(window) = oldest else { return false };
        self.room.dropped = self.room.dropped.saturating_add(window.drop_oldest());
        true
    }
}
