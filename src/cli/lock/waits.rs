//! Waits for locks: from the begin to the end of each wait, and their sums, in bounded memory.

use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::kind::LockKind;
use crate::cli::print_note;

/// Maximum number of waits in progress.
const MAX_PENDING: usize = 1 << 16;

/// Maximum number of rows. Further rows are aggregated into one.
pub(super) const MAX_ROWS: usize = 1 << 15;

/// A thread that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    tid: u32,
    /// The CPU for the idle task, which has the thread ID 0 on every CPU; 0 for other threads.
    cpu: u32,
}

impl Waiter {
    pub(super) fn new(tid: u32, cpu: u32) -> Self {
        Self { tid, cpu: if tid == 0 { cpu } else { 0 } }
    }
}

/// Key of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Place {
    /// The address of a caller; `None` if the call chain is too short to contain it.
    Caller(Option<u64>),
    /// The addresses of a call chain, innermost first.
    Stack(Arc<[u64]>),
    /// The address of a lock.
    Lock(u64),
    /// A thread, by its ID.
    Thread(u32),
}

/// The key of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) place: Place,
    /// The type of the lock. `None` for rows of threads, which have waited for locks of several types.
    pub(super) kind: Option<LockKind>,
}

/// Sums `S` of waits by row `R`.
#[derive(Debug)]
pub(super) struct Waits<R, S> {
    /// Start and row of each wait in progress.
    pending: FxHashMap<(Waiter, u64), (u64, R)>,
    rows: FxHashMap<R, S>,
    /// Waits of further rows; `None` if there are none.
    others: Option<S>,
    /// Number of waits that were not followed, because too many were in progress.
    untracked: u64,
}

/// The sums of all waits.
#[derive(Debug)]
pub(super) struct WaitSums<R, S> {
    pub(super) rows: Vec<(R, S)>,
    /// Waits of rows that exceeded the limit; `None` if there are none.
    pub(super) others: Option<S>,
    /// Number of waits still in progress at the end.
    pub(super) unended: u64,
    /// Number of waits that were not followed.
    pub(super) untracked: u64,
}

impl<R, S> WaitSums<R, S> {
    /// Prints to standard error how many waits the sums do not include. `unreadable`: number of records that could not be decoded.
    pub(super) fn note_missing(&self, unreadable: u64) {
        for (count, what) in [
            (self.unended, "waits had not ended when the measurement ended, and are not included"),
            (self.untracked, "waits are not included, because too many threads waited at once"),
            (unreadable, "records could not be decoded, which is a bug in perf-exporter"),
        ] {
            if count > 0 {
                print_note(&format!("{count} {what}"));
            }
        }
    }
}

impl<R, S> Default for Waits<R, S> {
    fn default() -> Self {
        let (pending, rows) = (FxHashMap::default(), FxHashMap::default());
        Self { pending, rows, others: None, untracked: 0 }
    }
}

impl<R: Eq + Hash, S: Default> Waits<R, S> {
    /// Begins a wait. A thread that first spins and then sleeps for a mutex begins twice: it waits from the first begin.
    pub(super) fn begin(&mut self, waiter: Waiter, lock: u64, time: u64, row: impl FnOnce() -> R) {
        let full = self.pending.len() >= MAX_PENDING;
        match self.pending.entry((waiter, lock)) {
            Entry::Occupied(_) => {}
            Entry::Vacant(_) if full => self.untracked += 1,
            Entry::Vacant(vacant) => drop(vacant.insert((time, row()))),
        }
    }

    /// Ends a wait. `add` adds its duration to the sum of its row. An end without a begin is ignored: the wait began before the measurement,
    /// or its begin was lost.
    pub(super) fn end(&mut self, waiter: Waiter, lock: u64, time: u64, add: impl FnOnce(&mut S, u64)) {
        let Some((begun, row)) = self.pending.remove(&(waiter, lock)) else { return };
        let full = self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&row);
        let sum = if full { self.others.get_or_insert_default() } else { self.rows.entry(row).or_default() };
        add(sum, time.saturating_sub(begun));
    }

    /// Discards a wait in progress, because its thread has ended.
    pub(super) fn forget(&mut self, waiter: Waiter, lock: u64) {
        self.pending.remove(&(waiter, lock));
    }

    /// Discards waits in progress, because their end may have been lost.
    pub(super) fn mark_gap(&mut self) {
        self.pending.clear();
    }

    /// Returns the sums.
    pub(super) fn finish(self) -> WaitSums<R, S> {
        WaitSums {
            rows: self.rows.into_iter().collect(),
            others: self.others,
            unended: self.pending.len() as u64,
            untracked: self.untracked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::follow::Spread;

    fn row(address: u64) -> Row {
        Row { place: Place::Lock(address), kind: Some(LockKind::Mutex) }
    }

    fn end(waits: &mut Waits<Row, Spread>, waiter: Waiter, lock: u64, time: u64) {
        waits.end(waiter, lock, time, Spread::add);
    }

    fn sums(waits: Waits<Row, Spread>) -> Vec<(u64, u64, u64)> {
        let address = |row: &Row| if let Place::Lock(address) = row.place { address } else { 0 };
        let rows = waits.finish().rows;
        let mut sums: Vec<_> =
            rows.iter().map(|(row, sum)| (address(row), sum.of.count, sum.total)).collect();
        sums.sort_unstable();
        sums
    }

    #[test]
    fn a_thread_that_spins_and_then_sleeps_waits_once() {
        let (mut waits, thread) = (Waits::default(), Waiter::new(7, 0));
        waits.begin(thread, 1, 100, || row(1));
        // A spinlock inside of the mutex.
        waits.begin(thread, 2, 110, || row(2));
        end(&mut waits, Waiter::new(7, 1), 2, 115);
        waits.begin(thread, 1, 120, || row(9));
        end(&mut waits, thread, 1, 200);
        end(&mut waits, thread, 1, 300);
        assert_eq!(sums(waits), [(1, 1, 100), (2, 1, 5)]);
    }

    #[test]
    fn idle_tasks_of_several_cpus_wait_for_the_same_lock() {
        let mut waits = Waits::default();
        for cpu in 0..2 {
            waits.begin(Waiter::new(0, cpu), 1, 100, || row(1));
        }
        end(&mut waits, Waiter::new(0, 1), 1, 110);
        end(&mut waits, Waiter::new(0, 0), 1, 130);
        assert_eq!(sums(waits), [(1, 2, 40)]);
    }

    #[test]
    fn lost_records_discard_the_waits_in_progress() {
        let (mut waits, thread) = (Waits::default(), Waiter::new(7, 0));
        waits.begin(thread, 1, 100, || row(1));
        waits.mark_gap();
        end(&mut waits, thread, 1, 1_000_000);
        waits.begin(thread, 1, 1_000_001, || row(1));
        let result = waits.finish();
        assert!(result.rows.is_empty());
        assert_eq!((result.unended, result.untracked), (1, 0));
    }

    #[test]
    fn memory_is_bounded_and_the_sums_remain_complete() {
        let mut waits = Waits::default();
        for lock in 0..MAX_ROWS as u64 + 3 {
            waits.begin(Waiter::new(7, 0), lock, 0, || row(lock));
            end(&mut waits, Waiter::new(7, 0), lock, 2);
        }
        for lock in 0..MAX_PENDING as u64 + 5 {
            waits.begin(Waiter::new(7, 0), lock, 0, || row(lock));
        }
        let result = waits.finish();
        assert_eq!(result.rows.len(), MAX_ROWS);
        assert_eq!(result.others.map(|others| (others.of.count, others.total)), Some((3, 6)));
        assert_eq!((result.unended, result.untracked), (MAX_PENDING as u64, 5));
    }
}
