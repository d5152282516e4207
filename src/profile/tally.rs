//! Sums by stack.

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
    /// `None` in tallies that do not distinguish CPUs.
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
        self.put(key, more, if self.closed { 0 } else { MAX_KEYS });
    }

    /// Adds to the sum of a key. A new key is added only below `most` keys.
    fn put(&mut self, key: Key, more: Sum, most: usize) {
        let room = self.sums.len() < most;
        match self.sums.get_mut(&key) {
            Some(sum) => sum.add(more),
            None if room => drop(self.sums.insert(key, more)),
            None => self.full = self.full.saturating_add(more.count),
        }
    }

    /// Adds to the sum of a key of a range of the past. When the table is full, sums of further keys are attributed to the task `other`, so
    /// that the shares of stacks are right.
    pub(super) fn add_or_merge(&mut self, key: Key, more: Sum) {
        if self.sums.len() < MAX_KEYS || self.sums.contains_key(&key) {
            return self.add(key, more);
        }
        self.put(Key { task: TaskId::OTHER, cpu: None, ..key }, more, 2 * MAX_KEYS);
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
    fn stacks_of_a_range_stay_when_there_are_too_many_tasks() {
        let mut tally = Tally::default();
        let of = |stack: u32, task: u32| Key { task: TaskId(task), ..key(stack) };
        let tasks = MAX_KEYS as u32;
        for (stack, task) in [7, 8].into_iter().flat_map(|stack| (1..=tasks).map(move |task| (stack, task))) {
            tally.add_or_merge(of(stack, task), ONE);
        }
        let count = |wanted: u32| {
            let of_stack = tally.iter().filter(|(key, _)| key.stack.0 == wanted);
            of_stack.map(|(_, sum)| sum.count).sum::<u64>()
        };
        assert_eq!((count(7), count(8), tally.full), (tasks.into(), tasks.into(), 0));
        assert_eq!(tally.iter().count(), MAX_KEYS + 1);
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
    fn stacks_that_get_one_number_are_one() {
        let mut tally = Tally::default();
        (0..4).for_each(|stack| tally.add(key(stack), ONE));
        tally.renumber(|old| (old.stack.0 != 3).then(|| key(old.stack.0 / 2)));
        assert_eq!((found(&tally), tally.full), (vec![(0, 2), (1, 1)], 1));
    }
}
