//! Sums by stack, and rolling windows of such sums.

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::model::Mode;
use super::tasks::TaskId;
use crate::stack::StackId;

/// The most distinct keys (stack, task, mode and CPU) of one tally.
const MAX_KEYS: usize = 1 << 17;

/// The key of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) stack: StackId,
    pub(super) task: TaskId,
    pub(super) mode: Mode,
    /// `None` if samples are not attributed to CPUs.
    pub(super) cpu: Option<u16>,
}

impl Key {
    /// Returns the same key without the CPU.
    pub(super) fn anywhere(self) -> Self {
        Self { cpu: None, ..self }
    }
}

/// The number of samples and the sum of their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) value: u64,
}

impl Sum {
    pub(super) fn add(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        self.value = self.value.saturating_add(more.value);
    }
}

/// Sums by stack, task, mode and CPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    sums: FxHashMap<Key, Sum>,
    /// Whether no new keys are added, because the memory share is full.
    closed: bool,
    /// Samples dropped because the tally was full.
    pub(super) full: u64,
}

impl Tally {
    #[inline]
    pub(super) fn add(&mut self, key: Key, more: Sum) {
        let room = self.sums.len() < MAX_KEYS && !self.closed;
        match self.sums.get_mut(&key) {
            Some(sum) => sum.add(more),
            None if room => drop(self.sums.insert(key, more)),
            None => self.full = self.full.saturating_add(more.count),
        }
    }

    fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(key, sum)| self.add(key, sum));
        self.full = self.full.saturating_add(other.full);
    }

    /// Sets whether new keys are rejected, because the memory share is full.
    pub(super) fn set_full(&mut self, full: bool) {
        self.closed = full;
    }

    /// Returns its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        // A hash table has one control byte for each slot, and an eighth of its slots is free.
        self.sums.capacity() / 7 * 8 * (size_of::<(Key, Sum)>() + 1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Sum)> {
        self.sums.iter().map(|(&key, &sum)| (key, sum))
    }

    /// Replaces the numbers of stacks and tasks.
    pub(super) fn renumber(&mut self, to: impl Fn(Key) -> Option<Key>) {
        let old = std::mem::take(&mut self.sums);
        let closed = std::mem::replace(&mut self.closed, false);
        for (key, sum) in old {
            match to(key) {
                Some(key) => self.add(key, sum),
                None => self.full = self.full.saturating_add(sum.count),
            }
        }
        self.closed = closed;
    }
}

/// A part of a window.
#[derive(Debug)]
struct Slot {
    /// The start, in nanoseconds on the clock of the records.
    start: u64,
    tally: Tally,
}

/// A rolling window, in slots: expired slots are dropped whole.
#[derive(Debug)]
pub(super) struct Window {
    slots: VecDeque<Slot>,
    /// The length of a slot in nanoseconds.
    slot: u64,
    /// The length of the window in nanoseconds.
    length: u64,
}

/// The number of slots of a window.
const SLOTS: u64 = 12;

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(SLOTS);
        Self { slots: VecDeque::new(), slot: length / SLOTS, length }
    }

    /// Adds to the sum of a key at `time`.
    #[inline]
    pub(super) fn add(&mut self, time: u64, key: Key, more: Sum) {
        let start = time - time % self.slot;
        // Records arrive in order, so that a slot that has begun is the last one.
        if self.slots.back().is_none_or(|last| last.start < start) {
            self.slots.push_back(Slot { start, tally: Tally::default() });
            self.forget(time);
        }
        if let Some(last) = self.slots.back_mut() {
            last.tally.add(key, more);
        }
    }

    /// Drops expired slots. Returns whether there were any.
    pub(super) fn forget(&mut self, now: u64) -> bool {
        let oldest = now.saturating_sub(self.length);
        let before = self.slots.len();
        while self.slots.front().is_some_and(|slot| slot.start + self.slot <= oldest) {
            self.slots.pop_front();
        }
        self.slots.len() < before
    }

    /// Returns the start of the oldest slot.
    pub(super) fn begin(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.start)
    }

    /// Drops the oldest slot before it expires. Returns its number of samples.
    pub(super) fn drop_oldest(&mut self) -> u64 {
        let Some(slot) = self.slots.pop_front() else { return 0 };
        slot.tally.iter().fold(slot.tally.full, |sum, (_, seen)| sum.saturating_add(seen.count))
    }

    /// Returns the sums of the last `length` nanoseconds before `now`, in whole slots, and the start of the first slot.
    pub(super) fn last(&self, now: u64, length: u64) -> (Tally, u64) {
        let since = now.saturating_sub(length.min(self.length));
        let mut sum = Tally::default();
        let mut start = now;
        for slot in self.slots.iter().filter(|slot| slot.start + self.slot > since) {
            sum.add_all(&slot.tally);
            start = start.min(slot.start);
        }
        (sum, start)
    }

    pub(super) fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.slots.iter().map(|slot| &slot.tally)
    }

    pub(super) fn tallies_mut(&mut self) -> impl Iterator<Item = &mut Tally> {
        self.slots.iter_mut().map(|slot| &mut slot.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(stack: u32) -> Key {
        Key { stack: StackId(stack), task: TaskId(0), mode: Mode::User, cpu: None }
    }

    fn found(tally: &Tally) -> Vec<(u32, u64)> {
        let mut found: Vec<(u32, u64)> = tally.iter().map(|(key, sum)| (key.stack.0, sum.count)).collect();
        found.sort_unstable();
        found
    }

    const ONE: Sum = Sum { count: 1, value: 10 };

    #[test]
    fn a_window_has_what_happened_within_its_length_and_forgets_the_rest() {
        let mut window = Window::new(Duration::from_nanos(120));
        window.add(5, key(1), ONE);
        window.add(15, key(2), ONE);
        window.add(16, key(2), ONE);
        let (all, start) = window.last(20, u64::MAX);
        assert_eq!((found(&all), start), (vec![(1, 1), (2, 2)], 0));
        window.add(139, key(3), ONE);
        assert_eq!(
            found(&window.last(139, u64::MAX).0),
            [(2, 2), (3, 1)],
            "the first slot ended 129 ns before"
        );
        assert_eq!(found(&window.last(139, 20).0), [(3, 1)]);
        assert!(window.forget(1000));
        assert_eq!(found(&window.last(1000, u64::MAX).0), []);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut tally = Tally::default();
        for stack in 0..MAX_KEYS as u32 + 3 {
            tally.add(key(stack), ONE);
        }
        tally.add(key(0), ONE);
        assert_eq!((tally.iter().count(), tally.full), (MAX_KEYS, 3));
        assert_eq!(tally.iter().map(|(_, sum)| sum.count).sum::<u64>() + tally.full, MAX_KEYS as u64 + 4);
    }

    #[test]
    fn a_tally_without_memory_adds_to_what_it_has_alone() {
        let mut tally = Tally::default();
        tally.add(key(1), ONE);
        tally.set_full(true);
        tally.add(key(1), ONE);
        tally.add(key(2), ONE);
        assert_eq!((found(&tally), tally.full), (vec![(1, 2)], 1));
        tally.renumber(|old| Some(key(old.stack.0 + 5)));
        tally.set_full(false);
        tally.add(key(2), ONE);
        assert_eq!(found(&tally), [(2, 1), (6, 2)]);
    }

    #[test]
    fn the_oldest_slot_goes_first_and_its_samples_are_counted() {
        let mut window = Window::new(Duration::from_nanos(120));
        [(5, 1), (15, 2), (16, 2), (25, 3)]
            .into_iter()
            .for_each(|(time, stack)| window.add(time, key(stack), ONE));
        assert_eq!((window.begin(), window.drop_oldest()), (Some(0), 1));
        assert_eq!((window.begin(), window.drop_oldest()), (Some(10), 2));
        assert_eq!(found(&window.last(30, u64::MAX).0), [(3, 1)]);
        assert_eq!((window.drop_oldest(), window.drop_oldest(), window.begin()), (1, 0, None));
    }

    #[test]
    fn stacks_that_get_one_number_are_one() {
        let mut tally = Tally::default();
        (0..4).for_each(|stack| tally.add(key(stack), ONE));
        tally.renumber(|old| (old.stack.0 != 3).then(|| key(old.stack.0 / 2)));
        assert_eq!((found(&tally), tally.full), (vec![(0, 2), (1, 1)], 1));
    }
}
