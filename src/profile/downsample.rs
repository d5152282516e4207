//! A limit on the number of records of a CPU that are decoded: above it, one in N is taken and represents the skipped ones.

/// The interval over which records are counted against the limit, in nanoseconds.
const SLICE: u64 = 100_000_000;
const SLICES_PER_SECOND: u64 = 1_000_000_000 / SLICE;

/// The recent records of one CPU.
#[derive(Debug)]
pub(super) struct Downsampler {
    /// The most records taken in an interval before the stride grows.
    most: u64,
    /// The start of the current interval.
    begin: u64,
    seen: u64,
    taken: u64,
    /// One in this many records is taken.
    stride: u64,
    /// The records skipped since the last one that was taken, and the hits that they represent.
    passed: u64,
    owed: u64,
}

impl Downsampler {
    /// Creates a limit of about `limit` records a second.
    pub(super) fn new(limit: u64) -> Self {
        let most = limit.div_ceil(SLICES_PER_SECOND).max(1);
        Self { most, begin: 0, seen: 0, taken: 0, stride: 1, passed: 0, owed: 0 }
    }

    /// Decides about a record at `time` that represents `weight` hits. If the record is taken, returns the hits that it represents together
    /// with the skipped ones.
    pub(super) fn take(&mut self, time: u64, weight: u64) -> Option<u64> {
        if time.saturating_sub(self.begin) >= SLICE {
            self.stride = self.seen.div_ceil(self.most).max(1);
            (self.begin, self.seen, self.taken) = (time, 0, 0);
        }
        self.seen += 1;
        self.passed += 1;
        self.owed = self.owed.saturating_add(weight);
        if self.passed < self.stride {
            return None;
        }
        if self.taken >= self.most {
            // The rate is higher than in the previous interval.
            (self.stride, self.taken) = (self.stride.saturating_mul(2), self.most / 2);
        }
        self.taken += 1;
        self.passed = 0;
        Some(std::mem::take(&mut self.owed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is taken of `rate` records a second, evenly spread over some seconds.
    fn taken(thinner: &mut Downsampler, rate: u64, seconds: u64) -> Vec<u64> {
        let step = 1_000_000_000 / rate;
        (0..rate * seconds).filter_map(|at| thinner.take((1 << 40) + at * step, 1)).collect()
    }

    #[test]
    fn few_are_all_taken_and_stand_for_themselves() {
        assert_eq!(taken(&mut Downsampler::new(100), 90, 3), vec![1; 270]);
    }

    #[test]
    fn of_many_about_as_many_as_there_may_be_are_taken_and_stand_for_all() {
        let found = taken(&mut Downsampler::new(100), 1_000_000, 2);
        assert!((150..600).contains(&found.len()), "{}", found.len());
        let hits: u64 = found.iter().sum();
        assert!((1_900_000..=2_000_000).contains(&hits), "{hits}");
    }

    #[test]
    fn after_a_storm_all_are_taken_again() {
        let mut thinner = Downsampler::new(100);
        let storm = (0..100_000).filter(|at| thinner.take((1 << 40) + at * 1000, 1).is_some()).count();
        assert!(storm < 200, "{storm}");
        let calm = (0..50).map(|at| thinner.take((1 << 41) + at * 20_000_000, 1)).collect::<Vec<_>>();
        assert_eq!(calm[10..], [Some(1); 40]);
    }
}
