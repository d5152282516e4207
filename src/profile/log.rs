//! The sample log of an entry: each sample of the past with its time, so that a profile of any range can be made.
//!
//! ```text
//!            one chunk: 2048 samples                          the newest samples,
//!  oldest ┌───────────────────────────────┐ ┌──────┐ ┌─────┐  not packed yet
//!         │ gaps    3 7 1 2 …  (ms)       │ │      │ │     │  ┌─────────────┐
//!         │ places  0 1 0 2 …  ─► keys    │ │      │ │     │  │ time key sum│ ◄─ add
//!         │ CPUs    3 0 3 1 …             │ │      │ │     │  └─────────────┘
//!         │ counts  1 1 1 1 …  (constant) │ │      │ │     │
//!         │ values  …                     │ │      │ │     │
//!         │ keys    stack task mode       │ │      │ │     │
//!         └───────────────────────────────┘ └──────┘ └─────┘
//! ```
//!
//! Columns are packed into as few bits as their range needs ([`packed`]), and a chunk has each key once. A sample of a clock, whose count
//! and value are constant, takes 2 to 6 bytes: 3 to 6 bits of time, about 11 bits of place, as many bits as the number of the last CPU has,
//! and its part of the keys. A wait takes about 7 bytes more, because its duration is exact. Adding a sample takes constant time on average,
//! and a range takes time proportional to its samples.
//!
//! Samples leave the log by age, and before that if the memory share of stacks is full. Whole chunks are dropped, the oldest first.

mod chunk;
mod packed;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use chunk::{Chunk, Logged};

use super::tally::{Key, Sum, Tally};

/// How long samples are kept in tests: as in the built-in configuration.
#[cfg(test)]
pub(super) const HISTORY: Duration = Duration::from_secs(3600);

/// The resolution of times in nanoseconds.
pub(super) const TICK: u64 = 1_000_000;

/// The samples of a chunk.
const CHUNK: usize = 2048;

/// The samples of an entry in the order of their analysis, which is the order of their times except for late records.
#[derive(Debug)]
pub(super) struct SampleLog {
    /// How long samples are kept, in ticks.
    length: u64,
    chunks: VecDeque<Chunk>,
    /// Samples that are not in a chunk yet.
    tail: Vec<Logged>,
    /// The log has all samples from this tick on; `None` if sampling has not begun.
    begin: Option<u64>,
    /// The number of samples, and the bytes of the columns of all chunks.
    samples: usize,
    column_bytes: usize,
}

impl SampleLog {
    /// Creates an empty log that keeps samples for `length`.
    pub(super) fn new(length: Duration) -> Self {
        let mut log = Self {
            length: 0,
            chunks: VecDeque::new(),
            tail: Vec::new(),
            begin: None,
            samples: 0,
            column_bytes: 0,
        };
        log.keep_for(length);
        log
    }

    /// Changes how long samples are kept.
    pub(super) fn keep_for(&mut self, length: Duration) {
        self.length = (u64::try_from(length.as_nanos()).unwrap_or(u64::MAX) / TICK).max(1);
    }

    /// Registers that sampling begins at `time`, unless it has begun before.
    pub(super) fn start(&mut self, time: u64) {
        self.begin.get_or_insert(time / TICK);
    }

    /// Returns the time from which on the log has all samples. `None` if sampling has not begun.
    pub(super) fn begin(&self) -> Option<u64> {
        self.begin.map(|tick| tick.saturating_mul(TICK))
    }

    /// Adds a sample.
    #[inline]
    pub(super) fn add(&mut self, time: u64, key: Key, sum: Sum) {
        if self.tail.len() >= CHUNK {
            self.seal();
        }
        self.tail.push(Logged { time: time / TICK, key, sum });
        self.samples += 1;
    }

    #[cold]
    fn seal(&mut self) {
        let chunk = Chunk::new(&mut self.tail);
        self.tail.clear();
        self.column_bytes += chunk.bytes();
        self.chunks.push_back(chunk);
    }

    /// Drops expired samples. Returns whether there were any.
    pub(super) fn forget(&mut self, now: u64) -> bool {
        let oldest = (now / TICK).saturating_sub(self.length);
        let before = self.samples;
        while self.chunks.front().is_some_and(|chunk| chunk.last < oldest) {
            self.drop_chunk();
        }
        if self.chunks.is_empty() {
            let expired = self.tail.iter().take_while(|sample| sample.time < oldest).count();
            // The remaining samples are moved, so that few samples are not dropped one by one.
            if expired > 0 && expired >= self.tail.len() / 2 {
                self.drop_from_tail(expired);
            }
        }
        self.samples < before
    }

    /// Drops the oldest samples before they expire: a chunk, or half of the samples that are in no chunk. Returns their number, including
    /// the samples that they represent.
    pub(super) fn drop_oldest(&mut self) -> u64 {
        match self.drop_chunk() {
            Some(chunk) => chunk.count(),
            None => self.drop_from_tail(self.tail.len().div_ceil(2)),
        }
    }

    fn drop_chunk(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front()?;
        self.column_bytes -= chunk.bytes();
        self.samples -= chunk.length;
        self.begin = self.begin.max(Some(chunk.last + 1));
        Some(chunk)
    }

    fn drop_from_tail(&mut self, samples: usize) -> u64 {
        let mut count = 0u64;
        for sample in self.tail.drain(..samples) {
            count = count.saturating_add(sample.sum.count);
            self.begin = self.begin.max(Some(sample.time + 1));
        }
        self.samples -= samples;
        count
    }

    /// Returns the number of samples.
    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    /// Returns the size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.column_bytes
            + self.chunks.capacity() * size_of::<Chunk>()
            + self.tail.capacity() * size_of::<Logged>()
    }

    /// Returns the sums of all samples in a range of times, with the CPU in their keys if they are `by_cpu`. Both ends are rounded down to
    /// whole ticks, so that each sample is in exactly one of two adjacent ranges. `u64::MAX` is no end.
    pub(super) fn tally(&self, range: &Range<u64>, by_cpu: bool) -> Tally {
        let range = ticks(range);
        let mut tally = Tally::default();
        for chunk in self.chunks.iter().filter(|chunk| chunk.overlaps(&range)) {
            if by_cpu {
                let keys: Vec<Key> = chunk.keys().collect();
                chunk.each(&range, |_, place, index, sum| {
                    if let Some(key) = keys.get(place) {
                        tally.add_or_merge(Key { cpu: chunk.cpu(index), ..*key }, sum);
                    }
                });
                continue;
            }
            let mut sums = vec![Sum::default(); chunk.keys().count()];
            chunk.each(&range, |_, place, _, sum| {
                if let Some(total) = sums.get_mut(place) {
                    total.add(sum);
                }
            });
            let seen = chunk.keys().zip(sums).filter(|(_, sum)| *sum != Sum::default());
            seen.for_each(|(key, sum)| tally.add_or_merge(key, sum));
        }
        for sample in self.tail.iter().filter(|sample| range.contains(&sample.time)) {
            let key = if by_cpu { sample.key } else { sample.key.anywhere() };
            tally.add_or_merge(key, sample.sum);
        }
        tally
    }

    /// Calls `each` with the time and the count of each sample in a range of times, as for [`tally`](Self::tally), if its key is `wanted`.
    pub(super) fn times(
        &self,
        range: &Range<u64>,
        mut wanted: impl FnMut(Key) -> bool,
        mut each: impl FnMut(u64, u64),
    ) {
        let range = ticks(range);
        for chunk in self.chunks.iter().filter(|chunk| chunk.overlaps(&range)) {
            let wanted: Vec<bool> = chunk.keys().map(&mut wanted).collect();
            chunk.each(&range, |time, place, _, sum| {
                if wanted.get(place).copied().unwrap_or(false) {
                    each(time.saturating_mul(TICK), sum.count);
                }
            });
        }
        for sample in self.tail.iter().filter(|sample| range.contains(&sample.time)) {
            if wanted(sample.key) {
                each(sample.time.saturating_mul(TICK), sample.sum.count);
            }
        }
    }

    /// Returns the keys of all samples, each at least once. Most are without CPUs.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.chunks.iter().flat_map(Chunk::keys).chain(self.tail.iter().map(|sample| sample.key))
    }

    /// Replaces the numbers of stacks and tasks.
    pub(super) fn renumber(&mut self, to: impl Fn(Key) -> Key) {
        let mut bytes = 0;
        for chunk in &mut self.chunks {
            chunk.renumber(&to);
            bytes += chunk.bytes();
        }
        self.column_bytes = bytes;
        self.tail.iter_mut().for_each(|sample| sample.key = to(sample.key));
    }
}

/// Converts nanoseconds to ticks.
fn ticks(range: &Range<u64>) -> Range<u64> {
    let end = if range.end == u64::MAX { u64::MAX } else { range.end / TICK };
    range.start / TICK..end
}
