//! A chunk of the sample log: samples in columns.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::packed::Packed;
use super::{Key, Sum};
use crate::profile::model::Mode;
use crate::profile::tasks::TaskId;
use crate::stack::StackId;

/// A sample. Its time is in ticks ([`TICK`](super::TICK)).
#[derive(Debug, Clone, Copy)]
pub(super) struct Logged {
    pub(super) time: u64,
    pub(super) key: Key,
    pub(super) sum: Sum,
}

/// Samples in the order of their times. Nothing in it changes, except the numbers of stacks and tasks.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The times of the first and of the last sample.
    pub(super) first: u64,
    pub(super) last: u64,
    /// The number of samples.
    pub(super) length: usize,
    /// The ticks between each sample and the previous one.
    gaps: Packed,
    /// Indexes in `keys`.
    places: Packed,
    /// The CPU of each sample plus one; 0 if it is unknown. They are not part of the keys, because a stack of a thread has many CPUs.
    cpus: Packed,
    counts: Packed,
    values: Packed,
    keys: Keys,
}

/// The distinct keys of a chunk without CPUs, in the order of their stacks.
#[derive(Debug, Default)]
struct Keys {
    length: usize,
    /// The number of the first stack, and the difference between each and the previous one.
    first_stack: u64,
    stacks: Packed,
    tasks: Packed,
    modes: Packed,
}

/// The overhead of the allocator for the columns of a chunk, in bytes.
const ALLOCATED: usize = 8 * 16;

impl Chunk {
    /// Packs samples. Sorts them by time first.
    pub(super) fn new(samples: &mut [Logged]) -> Self {
        // Few samples are out of order.
        samples.sort_by_key(|sample| sample.time);
        let (first, last) = (samples.first(), samples.last());
        let first = first.map_or(0, |sample| sample.time);
        let mut places: FxHashMap<Key, u64> =
            samples.iter().map(|sample| (sample.key.anywhere(), 0)).collect();
        let mut keys: Vec<Key> = places.keys().copied().collect();
        keys.sort_unstable();
        for (place, key) in (0..).zip(&keys) {
            places.insert(*key, place);
        }
        let place = |sample: &Logged| places.get(&sample.key.anywhere()).copied().unwrap_or_default();
        let places: Vec<u64> = samples.iter().map(place).collect();
        let previous = std::iter::once(first).chain(samples.iter().map(|sample| sample.time));
        Self {
            first,
            last: last.map_or(0, |sample| sample.time),
            length: samples.len(),
            gaps: Packed::new(samples.iter().zip(previous).map(|(sample, previous)| sample.time - previous)),
            places: Packed::new(places.iter().copied()),
            cpus: Packed::new(
                samples.iter().map(|sample| sample.key.cpu.map_or(0, |cpu| u64::from(cpu) + 1)),
            ),
            counts: Packed::new(samples.iter().map(|sample| sample.sum.count)),
            values: Packed::new(samples.iter().map(|sample| sample.sum.value)),
            keys: Keys::new(&keys),
        }
    }

    /// Reports whether a sample of the chunk may be in a range of times.
    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.first < range.end && range.start <= self.last
    }

    /// Calls `each` with the time, the index of the key, the index of the sample and the sum of each sample in a range of times.
    pub(super) fn each(&self, range: &Range<u64>, mut each: impl FnMut(u64, usize, usize, Sum)) {
        let mut time = self.first;
        for index in 0..self.length {
            time += self.gaps.get(index);
            if time >= range.end {
                return;
            }
            if time >= range.start {
                let sum = Sum { count: self.counts.get(index), value: self.values.get(index) };
                each(time, self.places.get(index) as usize, index, sum);
            }
        }
    }

    /// Returns the CPU of a sample, by its index.
    pub(super) fn cpu(&self, index: usize) -> Option<u16> {
        // The column contains only what `new` has put into it, so that nothing is truncated.
        self.cpus.get(index).checked_sub(1).map(|cpu| cpu as u16)
    }

    /// Returns the number of samples that its samples represent.
    pub(super) fn count(&self) -> u64 {
        (0..self.length).fold(0, |sum, index| sum.saturating_add(self.counts.get(index)))
    }

    /// Returns the distinct keys, without CPUs.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.keys.iter()
    }

    /// Replaces the numbers of stacks and tasks.
    pub(super) fn renumber(&mut self, to: impl Fn(Key) -> Key) {
        let keys: Vec<Key> = self.keys().map(to).collect();
        self.keys = Keys::new(&keys);
    }

    /// Returns the bytes of the columns.
    pub(super) fn bytes(&self) -> usize {
        let Keys { stacks, tasks, modes, .. } = &self.keys;
        let columns =
            [&self.gaps, &self.places, &self.cpus, &self.counts, &self.values, stacks, tasks, modes];
        columns.into_iter().map(Packed::bytes).sum::<usize>() + ALLOCATED
    }
}

impl Keys {
    fn new(keys: &[Key]) -> Self {
        let stacks = keys.iter().map(|key| u64::from(key.stack.0));
        let first_stack = stacks.clone().next().unwrap_or_default();
        let previous = std::iter::once(first_stack).chain(stacks.clone());
        Self {
            length: keys.len(),
            first_stack,
            // New numbers may have another order.
            stacks: Packed::new(stacks.zip(previous).map(|(stack, previous)| stack.wrapping_sub(previous))),
            tasks: Packed::new(keys.iter().map(|key| key.task.0.into())),
            modes: Packed::new(keys.iter().map(|key| key.mode as u64)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Key> {
        let mut stack = self.first_stack;
        (0..self.length).map(move |index| {
            stack = stack.wrapping_add(self.stacks.get(index));
            // Every column contains only what `new` has put into it, so that nothing is truncated.
            Key {
                stack: StackId(stack as u32),
                task: TaskId(self.tasks.get(index) as u32),
                mode: Mode::ALL.get(self.modes.get(index) as usize).copied().unwrap_or(Mode::User),
                cpu: None,
            }
        })
    }
}
