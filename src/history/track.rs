//! The past of one quantity: what it was in each of the last steps.

use super::number::Small;

/// Steps of a chunk. A chunk in which everything is zero takes no memory.
const CHUNK: u64 = 30;

type Chunk = [Small; CHUNK as usize];

/// What a quantity was in each of the last steps of one length. Steps are numbered; a new one replaces the oldest.
#[derive(Debug, Clone)]
pub(super) struct Track {
    /// Chunks of steps, by the number of the chunk modulo their count. `None`: all zero.
    chunks: Box<[Option<Box<Chunk>>]>,
    /// The first step that is not complete.
    next: u64,
    /// The first step that was recorded.
    first: u64,
}

impl Track {
    /// Creates a track that begins at the step `first` and keeps at least `steps` steps.
    pub(super) fn new(first: u64, steps: u64) -> Self {
        // One more, because the oldest chunk is cleared when the newest begins.
        let chunks = (steps.div_ceil(CHUNK) + 1) as usize;
        Self { chunks: vec![None; chunks].into(), next: first, first }
    }

    /// Records the next steps, up to and without `until`, with the same value each.
    pub(super) fn extend(&mut self, until: u64, value: Small) {
        // What lies further back than the track reaches does not have to be written.
        let reach = self.reach();
        if until > self.next + reach {
            self.chunks.fill(None);
            self.next = until - reach;
            self.first = self.first.max(self.next);
        }
        while self.next < until {
            let (chunk, place) = (self.next / CHUNK, (self.next % CHUNK) as usize);
            let slot = (chunk % self.chunks.len() as u64) as usize;
            if place == 0 {
                self.chunks[slot] = None;
            }
            if value != Small::default() {
                self.chunks[slot].get_or_insert_default()[place] = value;
            }
            self.next += 1;
        }
    }

    /// Returns the value of a step; `None` if it is not recorded.
    pub(super) fn get(&self, step: u64) -> Option<f64> {
        if step >= self.next || step < self.first || self.next - step > self.reach() {
            return None;
        }
        let slot = (step / CHUNK % self.chunks.len() as u64) as usize;
        match &self.chunks[slot] {
            Some(chunk) => chunk[(step % CHUNK) as usize].value(),
            None => Some(0.0),
        }
    }

    /// Adds the values of a track of the same length. Returns the rest by which the sums were rounded.
    pub(super) fn add(&mut self, more: &Self) -> f64 {
        debug_assert_eq!(self.chunks.len(), more.chunks.len(), "the lengths");
        self.extend(more.next, Small::default());
        self.first = self.first.min(more.first);
        let mut rest = 0.0;
        for step in more.first.max(self.next.saturating_sub(self.reach()))..more.next {
            let Some(value) = more.get(step).filter(|value| *value > 0.0) else { continue };
            let sum = self.get(step).unwrap_or(0.0) + value + rest;
            let rounded = Small::of(sum);
            rest = sum - rounded.value().unwrap_or(0.0);
            let slot = (step / CHUNK % self.chunks.len() as u64) as usize;
            self.chunks[slot].get_or_insert_default()[(step % CHUNK) as usize] = rounded;
        }
        rest
    }

    /// Returns the first step that is not complete.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Reports whether all values are zero, or were not measured.
    pub(super) fn is_zero(&self) -> bool {
        let mut values = self.chunks.iter().flatten().flat_map(|chunk| chunk.iter());
        values.all(|value| value.value().is_none_or(|value| value == 0.0))
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.chunks) + self.chunks.iter().flatten().count() * size_of::<Chunk>()
    }

    /// Number of steps before `next` that are always there.
    fn reach(&self) -> u64 {
        (self.chunks.len() as u64 - 1) * CHUNK
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_before_the_first_and_after_the_last_are_unknown() {
        let mut track = Track::new(100, 60);
        track.extend(103, Small::of(7.0));
        let values: Vec<_> = (98..105).map(|step| track.get(step)).collect();
        assert_eq!(values, [None, None, Some(7.0), Some(7.0), Some(7.0), None, None]);
        track.extend(104, Small::NONE);
        assert_eq!(track.get(103), None, "not measured");
    }

    #[test]
    fn zeros_take_no_memory() {
        let mut track = Track::new(0, 360);
        let empty = track.bytes();
        track.extend(1000, Small::default());
        assert_eq!((track.bytes(), track.get(999)), (empty, Some(0.0)));
        track.extend(1001, Small::of(1.0));
        assert_eq!(track.bytes(), empty + size_of::<Chunk>());
        assert_eq!(size_of::<Chunk>(), 60);
    }

    #[test]
    fn tracks_are_added_step_by_step() {
        let (mut one, mut other) = (Track::new(100, 60), Track::new(90, 60));
        one.extend(110, Small::of(5000.0));
        one.extend(112, Small::default());
        other.extend(105, Small::of(7.0));
        other.extend(111, Small::default());
        other.extend(112, Small::of(3.0));
        let rest = one.add(&other);
        let values: Vec<_> = [89, 90, 99, 100, 105, 110, 111].map(|step| one.get(step)).into();
        assert_eq!(values[..3], [None, Some(7.0), Some(7.0)]);
        // The sums of the steps before were rounded up by one.
        assert_eq!(values[4..], [Some(5000.0), Some(0.0), Some(2.0)]);
        let sum: f64 = (90..112).filter_map(|step| one.get(step)).sum();
        assert_eq!(sum + rest, 50_000.0 + 15.0 * 7.0 + 3.0, "what was rounded is not lost");
    }

    #[test]
    fn a_track_is_added_to_one_that_is_newer_or_older() {
        let track = |next: u64| {
            let mut track = Track::new(0, 60);
            track.extend(next, Small::of(1.0));
            track
        };
        for (one, other) in [(100, 103), (103, 100)] {
            let mut track_of_one = track(one);
            assert_eq!(track_of_one.add(&track(other)), 0.0);
            assert_eq!(track_of_one.next(), 103);
            let both: f64 = (50..103).filter_map(|step| track_of_one.get(step)).sum();
            assert_eq!(both, 50.0 + 53.0, "{one} {other}");
        }
    }

    proptest! {
        /// The model keeps everything.
        #[test]
        fn the_last_steps_are_those_that_were_recorded(
            first in 0..100_u64,
            steps in 1..200_u64,
            runs in prop::collection::vec((0..400_u64, 0..3000_u32), 1..20),
        ) {
            let (mut track, mut all, mut next) = (Track::new(first, steps), BTreeMap::new(), first);
            for (length, value) in runs {
                track.extend(next + length, Small::of(f64::from(value)));
                all.extend((next..next + length).map(|step| (step, Small::of(f64::from(value)).value())));
                next += length;
                prop_assert_eq!(track.next(), next);
                for step in next.saturating_sub(steps)..next + 2 {
                    prop_assert_eq!(track.get(step), all.get(&step).copied().flatten(), "step {} of {}", step, next);
                }
            }
        }
    }
}
