//! Stacks, each stored once and identified by a number.
//!
//! A stack is a sequence of frame numbers in one long list. Stacks with a common outer end do not share memory, as they would in a tree of
//! callers. In return a sample costs one table look-up instead of one for each frame, and cache misses dominate the cost of a look-up.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::{Frame, ModuleId, ProcessId, Truncation};

/// The number of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// The number of a frame within [`Stacks`], until the next [`Stacks::retain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameId(u32);

/// Limits on stored stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackLimits {
    /// Stacks. Each takes about 20 bytes in addition to its frames.
    pub stacks: usize,
    /// Distinct frames. Each takes about 60 bytes.
    pub frames: usize,
    /// The depths of all stacks together: 4 bytes each.
    pub depths: usize,
    /// The total, in bytes.
    pub bytes: usize,
}

impl Default for StackLimits {
    fn default() -> Self {
        Self { stacks: 1 << 19, frames: 1 << 19, depths: 1 << 24, bytes: 64 << 20 }
    }
}

/// All stacks in use.
#[derive(Debug)]
pub struct Stacks {
    limits: StackLimits,
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, u32>,
    /// The frames of all stacks, one stack after the other.
    depths: Vec<u32>,
    /// The end of each stack in `depths`; it begins at the end of the previous one.
    ends: Vec<u32>,
    /// The hash of each stack.
    hashes: Vec<u32>,
    /// Open-addressing hash table of stack numbers plus one; 0 is a free slot. At least half is free. The length is a power of two.
    table: Vec<u32>,
    /// A random seed, so that a program cannot choose addresses for which many stacks have the same hash.
    seed: u64,
}

/// The overflow stack, which is always the first: its only frame is also the first.
pub(super) const FULL: StackId = StackId(0);
const SMALLEST_TABLE: usize = 1024;
/// The bytes of a number.
const WORD: usize = size_of::<u32>();
/// The bytes of a frame number in the table of frames.
const NUMBERED: usize = size_of::<(Frame, u32)>() + 1;

/// Returns by how many items a list grows when `more` are added: a quarter, or none if its capacity suffices.
fn growth<T>(list: &Vec<T>, more: usize) -> usize {
    if list.len() + more <= list.capacity() { 0 } else { (list.capacity() / 4).max(more).max(64) }
}

impl Stacks {
    /// Creates an empty table.
    pub fn new(limits: StackLimits) -> Self {
        let full = Frame::Truncation(Truncation::Full);
        let mut stacks = Self {
            limits,
            frames: vec![full],
            frame_ids: HashMap::from([(full, 0)]),
            depths: vec![0],
            ends: vec![1],
            hashes: Vec::new(),
            table: vec![0; SMALLEST_TABLE],
            seed: RandomState::new().hash_one(0),
        };
        stacks.hashes.push(stacks.hash([0]));
        stacks.enter(FULL.0);
        stacks
    }

    /// Returns the number of stacks, including the overflow stack.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Reports whether one of the tables has less than a sixteenth of its numbers left.
    pub fn is_crowded(&self) -> bool {
        let crowded = |number: usize, limit: usize| number > limit / 16 * 15;
        let StackLimits { stacks, frames, depths, .. } = self.limits;
        crowded(self.len(), stacks)
            || crowded(self.frames.len(), frames)
            || crowded(self.depths.len(), depths)
    }

    /// Returns all distinct frames, the oldest first.
    pub fn all_frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Returns the approximate size in bytes.
    pub fn memory(&self) -> usize {
        let words = self.depths.capacity() + self.ends.capacity() + self.hashes.capacity() + self.table.len();
        words * WORD + self.frames.capacity() * size_of::<Frame>() + self.frame_ids.capacity() * NUMBERED
    }

    /// Limits the size in bytes from now on. Data above the limit stays until the next [`retain`](Self::retain).
    pub fn set_memory(&mut self, bytes: usize) {
        self.limits.bytes = bytes;
    }

    /// Reports whether `more` bytes fit.
    fn fits(&self, more: usize) -> bool {
        self.memory() + more <= self.limits.bytes
    }

    /// Returns the frames of a stack, innermost first: the kernel part, then the user part. Empty for an unknown number.
    pub fn frames(&self, stack: StackId) -> impl DoubleEndedIterator<Item = Frame> + ExactSizeIterator {
        // The entries of a stack are frame numbers.
        self.entries(stack).iter().map(|&frame| self.frames[frame as usize])
    }

    fn entries(&self, stack: StackId) -> &[u32] {
        let place = stack.0 as usize;
        let Some(&end) = self.ends.get(place) else { return &[] };
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.depths.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Returns the number of a frame; `None` if the table of frames is full.
    pub(super) fn frame(&mut self, frame: Frame) -> Option<FrameId> {
        if let Some(&known) = self.frame_ids.get(&frame) {
            return Some(FrameId(known));
        }
        let number =
            u32::try_from(self.frames.len()).ok().filter(|_| self.frames.len() < self.limits.frames)?;
        let more = growth(&self.frames, 1);
        // A hash table doubles.
        let table =
            if self.frame_ids.len() < self.frame_ids.capacity() { 0 } else { self.frame_ids.capacity() };
        if !self.fits(more * size_of::<Frame>() + table * NUMBERED) {
            return None;
        }
        self.frames.reserve_exact(more);
        self.frames.push(frame);
        self.frame_ids.insert(frame, number);
        Some(FrameId(number))
    }

    /// Returns the number of a stack.
    pub(super) fn intern(&mut self, stack: &[FrameId]) -> StackId {
        let hash = self.hash(stack.iter().map(|frame| frame.0));
        let mask = self.table.len() - 1;
        let mut place = hash as usize & mask;
        // Half of the table is free, so that this loop ends.
        while let Some(known) = self.table[place].checked_sub(1) {
            let same = self.hashes[known as usize] == hash
                && self.entries(StackId(known)).iter().eq(stack.iter().map(|frame| &frame.0));
            if same {
                return StackId(known);
            }
            place = (place + 1) & mask;
        }
        self.add(stack, hash)
    }

    #[cold]
    fn add(&mut self, stack: &[FrameId], hash: u32) -> StackId {
        let depths = self.depths.len() + stack.len();
        let (Ok(number), Ok(end)) = (u32::try_from(self.ends.len()), u32::try_from(depths)) else {
            return FULL;
        };
        if self.ends.len() >= self.limits.stacks || depths > self.limits.depths {
            return FULL;
        }
        let more = [growth(&self.depths, stack.len()), growth(&self.ends, 1), growth(&self.hashes, 1)];
        let table = if (self.ends.len() + 1) * 2 > self.table.len() { self.table_size() } else { 0 };
        if !self.fits((more.iter().sum::<usize>() + table) * WORD) {
            return FULL;
        }
        self.depths.reserve_exact(more[0]);
        self.ends.reserve_exact(more[1]);
        self.hashes.reserve_exact(more[2]);
        self.depths.extend(stack.iter().map(|frame| frame.0));
        self.ends.push(end);
        self.hashes.push(hash);
        if self.ends.len() * 2 > self.table.len() {
            self.rehash();
        } else {
            self.enter(number);
        }
        StackId(number)
    }

    /// Adds a stack to the hash table.
    fn enter(&mut self, stack: u32) {
        let mask = self.table.len() - 1;
        let mut place = self.hashes[stack as usize] as usize & mask;
        while self.table[place] != 0 {
            place = (place + 1) & mask;
        }
        self.table[place] = stack + 1;
    }

    /// Returns the size of a new hash table.
    fn table_size(&self) -> usize {
        (self.ends.len() * 4).next_power_of_two().max(SMALLEST_TABLE)
    }

    fn rehash(&mut self) {
        let size = self.table_size();
        self.table.clear();
        self.table.resize(size, 0);
        self.table.shrink_to(size);
        for stack in 0..self.ends.len() as u32 {
            self.enter(stack);
        }
    }

    #[inline]
    fn hash(&self, entries: impl IntoIterator<Item = u32>) -> u32 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let mut hash = self.seed;
        for entry in entries {
            hash = mix(hash ^ u64::from(entry), ODD ^ self.seed.rotate_left(32)).wrapping_add(ODD);
        }
        (hash ^ (hash >> 32)) as u32
    }

    /// Drops all stacks that are not in `used`, and all frames that only they had. Returns the new numbers. Takes time proportional to the
    /// number of stacks.
    pub fn retain(&mut self, used: impl IntoIterator<Item = StackId>) -> Remap {
        let mut kept = vec![false; self.ends.len()];
        kept[FULL.0 as usize] = true;
        for stack in used {
            if let Some(kept) = kept.get_mut(stack.0 as usize) {
                *kept = true;
            }
        }
        let mut new = Self { seed: self.seed, ..Self::new(self.limits) };
        // The overflow stack was added with another seed.
        new.hashes[0] = new.hash([0]);
        new.rehash();
        let mut stacks = vec![GONE; self.ends.len()];
        stacks[0] = FULL.0;
        let mut frames = vec![GONE; self.frames.len()];
        let mut stack = Vec::new();
        for number in (1..self.ends.len()).filter(|&number| kept[number]) {
            stack.clear();
            for &frame in self.entries(StackId(number as u32)) {
                // As above: entries are frame numbers, and the new table has no more frames than the old one.
                let new_frame = &mut frames[frame as usize];
                if *new_frame == GONE {
                    *new_frame = new.frame(self.frames[frame as usize]).map_or(0, |frame| frame.0);
                }
                stack.push(FrameId(*new_frame));
            }
            stacks[number] = new.intern(&stack).0;
        }
        *self = new;
        Remap(stacks)
    }

    /// Calls `module` and `process` for each file and process that frames refer to.
    pub(super) fn each_owner(&self, mut module: impl FnMut(ModuleId), mut process: impl FnMut(ProcessId)) {
        for frame in &self.frames {
            match *frame {
                Frame::File { module: id, .. } => module(id),
                Frame::Memory { process: id, .. } => process(id),
                Frame::Kernel(_) | Frame::Nowhere(_) | Frame::Truncation(_) => {}
            }
        }
    }
}

const GONE: u32 = u32::MAX;

/// The new numbers of stacks, by their old ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remap(Vec<u32>);

impl Remap {
    /// Returns the new number of a stack; `None` if it was dropped.
    pub fn get(&self, old: StackId) -> Option<StackId> {
        self.0.get(old.0 as usize).copied().filter(|&new| new != GONE).map(StackId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(stacks: &mut Stacks, addresses: &[u64]) -> StackId {
        let frames: Option<Vec<_>> = addresses.iter().map(|&at| stacks.frame(Frame::Kernel(at))).collect();
        frames.map_or(FULL, |frames| stacks.intern(&frames))
    }

    fn of(stacks: &Stacks, stack: StackId) -> Vec<Frame> {
        stacks.frames(stack).collect()
    }

    fn kernel(addresses: &[u64]) -> Vec<Frame> {
        addresses.iter().map(|&address| Frame::Kernel(address)).collect()
    }

    #[test]
    fn a_stack_without_room_is_one_that_says_so() {
        let mut stacks =
            Stacks::new(StackLimits { stacks: 3, frames: 4, depths: 6, ..StackLimits::default() });
        let one = put(&mut stacks, &[1, 2]);
        let cut = [Frame::Truncation(Truncation::Full)];
        let deep = put(&mut stacks, &[1, 2, 1, 2]);
        assert_eq!(of(&stacks, deep), cut, "deeper than the remaining limit");
        let full = put(&mut stacks, &[7, 8]);
        assert_eq!(of(&stacks, full), cut, "too many frames");
        put(&mut stacks, &[2]);
        let many = put(&mut stacks, &[1]);
        assert_eq!(of(&stacks, many), cut, "too many stacks");
        assert_eq!(of(&stacks, one), kernel(&[1, 2]));
        // Freed memory can be used again.
        let remap = stacks.retain([]);
        assert_eq!((remap.get(one), remap.get(full)), (None, Some(FULL)));
        let many = put(&mut stacks, &[1]);
        assert_eq!(of(&stacks, many), kernel(&[1]));
    }

    #[test]
    fn stacks_take_no_more_memory_than_they_may() {
        for bytes in [20 << 10, 300 << 10, 3 << 20] {
            let mut stacks = Stacks::new(StackLimits { bytes, ..StackLimits::default() });
            let all: Vec<StackId> = (0..60_000).map(|n| put(&mut stacks, &[n % 100, n, n / 7])).collect();
            assert!(
                stacks.memory() <= bytes && stacks.memory() > bytes / 3,
                "{} of {bytes}",
                stacks.memory()
            );
            let whole = all.iter().filter(|&&stack| stack != FULL).count();
            assert!(whole > bytes / 300 && all.contains(&FULL), "{whole} of {bytes}");
            // Freed memory can be used again, and a higher limit allows more.
            stacks.retain([]);
            assert_ne!(put(&mut stacks, &[1_000_000, 2]), FULL);
            stacks.set_memory(16 << 20);
            assert!((0..60_000).all(|n| put(&mut stacks, &[n % 100, n, n / 7]) != FULL));
        }
    }

    #[test]
    fn a_number_that_was_never_given_is_an_empty_stack() {
        let mut stacks = Stacks::new(StackLimits::default());
        assert_eq!(of(&stacks, StackId(77)).len(), 0);
        assert_eq!(stacks.retain([StackId(77)]).get(StackId(77)), None);
        assert!(stacks.len() <= 1);
    }

    #[test]
    fn tens_of_thousands_of_stacks_are_found_again() {
        let mut stacks = Stacks::new(StackLimits::default());
        let ids: Vec<_> = (0..20_000).map(|n| put(&mut stacks, &[n % 100, n, 5])).collect();
        assert!(ids.is_sorted() && stacks.len() == 20_001);
        assert!((0..20_000).all(|n| put(&mut stacks, &[n % 100, n, 5]) == ids[n as usize]));
        assert!(stacks.memory() < 8 << 20, "{}", stacks.memory());
    }

    proptest! {
        #[test]
        fn each_stack_has_one_number_and_what_is_used_survives(
            all in proptest::collection::vec((proptest::collection::vec(0u64..12, 0..6), any::<bool>()), 0..60),
        ) {
            let mut stacks = Stacks::new(StackLimits::default());
            let ids: Vec<StackId> = all.iter().map(|(stack, _)| put(&mut stacks, stack)).collect();
            for (one, (stack, _)) in ids.iter().zip(&all) {
                prop_assert_eq!(of(&stacks, *one), kernel(stack));
                for (other, (other_stack, _)) in ids.iter().zip(&all) {
                    prop_assert_eq!(one == other, stack == other_stack);
                }
            }
            let used = ids.iter().zip(&all).filter(|(_, (_, used))| *used).map(|(&id, _)| id);
            let used: Vec<_> = used.collect();
            let remap = stacks.retain(used.iter().copied());
            for (id, (stack, _)) in ids.iter().zip(&all) {
                prop_assert_eq!(remap.get(*id).is_some(), used.contains(id));
                if let Some(new) = remap.get(*id) {
                    prop_assert_eq!(of(&stacks, new), kernel(stack));
                    prop_assert_eq!(put(&mut stacks, stack), new);
                }
            }
            let distinct: std::collections::BTreeSet<_> = used.iter().collect();
            prop_assert_eq!(stacks.len(), distinct.len() + 1);
        }
    }
}
