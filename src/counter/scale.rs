//! Conversion of raw readings to counts that only grow.
//!
//! A counter that shares the PMU runs for a part of the time that it is enabled. Each interval's count is scaled by the ratio of that
//! interval, and the scaled differences are added up. A total therefore never falls. Scaling by the ratio of the whole lifetime would let
//! it fall whenever the ratio rises.

use crate::health::{History, Interval};

/// The last reading of one group.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    enabled: u64,
    running: u64,
    values: Box<[u64]>,
    /// Whether the group has run so far.
    pub history: History,
}

/// Count of one member of the group in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delta {
    /// Position in the group.
    pub member: usize,
    /// Raw count.
    pub raw: u64,
    /// Count with an estimate for the time that other groups had the PMU.
    pub scaled: u64,
    /// The interval.
    pub interval: Interval,
    /// Whether the group has run so far.
    pub history: History,
}

impl Progress {
    /// Returns the state before the first reading of a group of `members`.
    pub(super) fn new(members: usize) -> Self {
        Self { enabled: 0, running: 0, values: vec![0; members].into(), history: History::Unused }
    }

    /// Processes the words of a group read: number of members, enabled, running, values. Returns the interval since the previous reading,
    /// and passes each member's count in it to `each`.
    ///
    /// An interval in which the group never ran adds nothing, because there is no ratio to scale by. An estimate from a later ratio would
    /// show a burst that was not measured. Returns `None`, and changes nothing, if the words are not a reading of this group.
    pub(super) fn advance(&mut self, words: &[u64], mut each: impl FnMut(Delta)) -> Option<Interval> {
        let (&[members, enabled, running], values) = words.split_first_chunk::<3>()?;
        if members != self.values.len() as u64 || values.len() != self.values.len() {
            return None;
        }
        // Times and values of an event never fall. After the CPU went offline, a reading can lack values that an earlier one had.
        let interval = Interval {
            enabled: enabled.saturating_sub(self.enabled),
            running: running.saturating_sub(self.running),
        };
        self.history = History::of(enabled, running);
        for (member, (last, &value)) in self.values.iter_mut().zip(values).enumerate() {
            let raw = value.saturating_sub(*last);
            *last = value.max(*last);
            each(Delta { member, raw, scaled: scale(raw, interval), interval, history: self.history });
        }
        (self.enabled, self.running) = (enabled.max(self.enabled), running.max(self.running));
        Some(interval)
    }

    /// Returns the interval from the previous reading to these words, without processing them. `None` as in [`advance`](Self::advance).
    pub(super) fn interval_to(&self, words: &[u64]) -> Option<Interval> {
        let (&[_, enabled, running], _) = words.split_first_chunk::<3>()?;
        let (enabled, running) = (enabled.saturating_sub(self.enabled), running.saturating_sub(self.running));
        Some(Interval { enabled, running })
    }

    /// Removes the members for which `stays` returns false, after they were closed.
    pub(super) fn retain(&mut self, stays: impl Fn(usize) -> bool) {
        let values = self.values.iter().enumerate().filter(|&(member, _)| stays(member));
        self.values = values.map(|(_, &value)| value).collect();
    }

    /// Raises the values of a reading to those of the previous reading, where values are missing.
    pub(super) fn raise(&self, values: &mut [u64]) {
        values.iter_mut().zip(&self.values).for_each(|(value, last)| *value = (*value).max(*last));
    }
}

/// Returns `raw × enabled ∕ running`, rounded, or `raw` itself if the group ran all the time.
///
/// The kernel updates the two times together, so `running` is never above `enabled`.
pub(crate) fn scale(raw: u64, interval: Interval) -> u64 {
    let Interval { enabled, running } = interval;
    if running >= enabled {
        return raw;
    }
    if running == 0 {
        return 0;
    }
    let scaled = (u128::from(raw) * u128::from(enabled) + u128::from(running / 2)) / u128::from(running);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn deltas(progress: &mut Progress, words: &[u64]) -> (Option<Interval>, Vec<u64>) {
        let mut scaled = Vec::new();
        let interval = progress.advance(words, |delta| scaled.push(delta.scaled));
        (interval, scaled)
    }

    #[test]
    fn a_group_that_ran_all_the_time_is_counted_exactly() {
        let mut progress = Progress::new(2);
        assert_eq!(deltas(&mut progress, &[2, 100, 100, 7, 9]).1, [7, 9]);
        let (interval, counts) = deltas(&mut progress, &[2, 250, 250, 10, u64::MAX]);
        assert_eq!(counts, [3, u64::MAX - 9]);
        assert_eq!(interval, Some(Interval { enabled: 150, running: 150 }));
    }

    #[test]
    fn each_interval_is_scaled_by_its_own_ratio() {
        let mut progress = Progress::new(1);
        assert_eq!(deltas(&mut progress, &[1, 100, 50, 10]).1, [20]);
        assert_eq!(deltas(&mut progress, &[1, 200, 150, 40]).1, [30]);
        assert_eq!(deltas(&mut progress, &[1, 300, 175, 50]).1, [40]);
    }

    #[test]
    fn an_interval_without_running_time_adds_nothing_and_leaves_no_debt() {
        let mut progress = Progress::new(1);
        assert_eq!(deltas(&mut progress, &[1, 1000, 0, 0]).1, [0]);
        assert_eq!(progress.history, History::Waiting);
        assert_eq!(deltas(&mut progress, &[1, 1100, 50, 10]).1, [20]);
        assert_eq!(progress.history, History::Ran);
    }

    #[test]
    fn values_and_times_that_are_missing_in_a_reading_are_not_counted_again_in_the_next_one() {
        let mut progress = Progress::new(2);
        assert_eq!(deltas(&mut progress, &[2, 100, 100, 7, 9]).1, [7, 9]);
        let mut values = [0, 11];
        progress.raise(&mut values);
        assert_eq!(values, [7, 11]);
        assert_eq!(deltas(&mut progress, &[2, 40, 30, 0, 10]), (Some(Interval::default()), vec![0, 1]));
        let (interval, counts) = deltas(&mut progress, &[2, 150, 125, 8, 12]);
        assert_eq!(interval, Some(Interval { enabled: 50, running: 25 }));
        assert_eq!(counts, [2, 4]);
    }

    #[test]
    fn a_member_that_was_closed_leaves_the_values_of_the_others() {
        let mut progress = Progress::new(3);
        assert_eq!(deltas(&mut progress, &[3, 100, 100, 7, 8, 9]).1, [7, 8, 9]);
        progress.retain(|member| member != 1);
        assert_eq!(deltas(&mut progress, &[2, 200, 200, 8, 11]).1, [1, 2]);
    }

    #[test]
    fn words_that_are_not_of_this_group_change_nothing() {
        let mut progress = Progress::new(2);
        for words in
            [&[][..], &[2], &[2, 1, 1], &[1, 1, 1, 5], &[2, 1, 1, 5], &[3, 1, 1, 5, 6, 7], &[3, 1, 1, 5, 6]]
        {
            assert_eq!(progress.advance(words, |_| panic!("no delta")), None, "{words:?}");
        }
        assert_eq!(deltas(&mut progress, &[2, 1, 1, 5, 6]).1, [5, 6]);
    }

    #[test]
    fn a_scaled_count_is_rounded_to_the_nearest_number() {
        for (raw, enabled, running, expected) in [
            (1, 4, 3, 1),
            (1, 5, 3, 2),
            (1, 3, 2, 2),
            (10, 11, 9, 12),
            (7, 4, 0, 0),
            (7, 4, 4, 7),
            (u64::MAX, 2, 1, u64::MAX),
        ] {
            let interval = Interval { enabled, running };
            assert_eq!(scale(raw, interval), expected, "{raw} in {running} of {enabled} ns");
        }
    }

    proptest! {
        #[test]
        fn totals_never_fall_and_never_lose_what_was_read(
            steps in proptest::collection::vec((0u64..1_000_000, 0u64..1_000_000, 0u64..1_000_000), 1..50)
        ) {
            let mut progress = Progress::new(1);
            let (mut enabled, mut running, mut value, mut total) = (0, 0, 0, 0u64);
            for (run, wait, count) in steps {
                running += run;
                enabled += run + wait;
                let count = if run == 0 { 0 } else { count };
                value += count;
                let before = total;
                progress.advance(&[1, enabled, running, value], |delta| total += delta.scaled);
                prop_assert!(total >= before + count);
            }
        }
    }
}
