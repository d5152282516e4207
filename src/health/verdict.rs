//! What a counter's numbers are worth: judged from two readings, so that what no machine produces on demand can be
//! tested as values.

use std::ops::AddAssign;
use std::time::Duration;

use crate::words::words;

/// What a group of counters did between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// Nanoseconds in which it could have counted.
    pub enabled: u64,
    /// Nanoseconds of these in which it was on the PMU.
    pub running: u64,
}

impl Interval {
    /// The part of the time in which it counted: 1 for a counter that was never rotated out, `None` if it could not
    /// have counted at all.
    pub fn ratio(self) -> Option<f64> {
        (self.enabled > 0).then(|| (self.running as f64 / self.enabled as f64).min(1.0))
    }
}

impl AddAssign for Interval {
    fn add_assign(&mut self, more: Self) {
        self.enabled = self.enabled.saturating_add(more.enabled);
        self.running = self.running.saturating_add(more.running);
    }
}

/// What became of a group of counters from its opening to the end of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// It could not have counted yet: its target has not run.
    #[default]
    Unused,
    /// It could have counted, and was never on the PMU: it waits for it.
    Waiting,
    /// It was on the PMU.
    Ran,
}

impl History {
    /// By the times since the opening, in nanoseconds, in which it could have counted and in which it did.
    pub fn of(enabled: u64, running: u64) -> Self {
        match (enabled, running) {
            (0, 0) => Self::Unused,
            (_, 0) => Self::Waiting,
            _ => Self::Ran,
        }
    }
}

words! {
    /// The state of a counter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Verdict {
        /// It counted all the time that it could.
        Counting = "counting",
        /// It shared the PMU with others, and its count is scaled up.
        Shared = "shared",
        /// What it counts did not run: the count is exact, and nothing was to be counted. A group that has only waited for the
        /// PMU so far is [`NeverRan`](Self::NeverRan), whether its target runs or not.
        Idle = "idle",
        /// It was never on the PMU: there is no count.
        NeverRan = "never_ran",
        /// It was on the PMU, its target was busy, and the count stood still: it is not to be trusted.
        Stalled = "stalled",
        /// It moves far too slowly for what its target did, as the counters of some virtual machines do.
        Implausible = "implausible",
        /// A pinned group that could not be placed on the PMU: it is in error state and will stay there.
        Full = "full",
    }
}

impl Verdict {
    /// Whether a count may be published at all.
    pub const fn has_count(self) -> bool {
        matches!(self, Self::Counting | Self::Shared | Self::Idle)
    }
}

/// A core that runs at all passes this many cycles, or instructions, in a second of work: three orders of magnitude
/// below any real one, and three above the few hundred that broken virtual PMUs show (rezolus#1036).
const SLOWEST_PER_SECOND: u64 = 1_000_000;

/// How much work must have been measured before a slow counter is called broken.
const ENOUGH_WORK: Duration = Duration::from_millis(100);

/// Judges one event of a group.
///
/// `history` is that of the group, this interval included. A group that waits for the PMU is not idle while its target sleeps: its
/// counts from before are missing. `delta` is the unscaled count of this interval. `work` is how long the target is known to have
/// executed code while the event was on the PMU, for events that must move then (unrestricted cycles and instructions); `None` for all
/// others.
pub fn judge(interval: Interval, history: History, delta: u64, work: Option<Duration>) -> Verdict {
    if history == History::Waiting {
        return Verdict::NeverRan;
    }
    if interval.enabled == 0 {
        return Verdict::Idle;
    }
    if let Some(work) = work.filter(|&work| work >= ENOUGH_WORK) {
        let least = work.as_millis() * u128::from(SLOWEST_PER_SECOND) / 1000;
        match delta {
            0 => return Verdict::Stalled,
            delta if u128::from(delta) < least => return Verdict::Implausible,
            _ => {}
        }
    }
    if interval.running < interval.enabled { Verdict::Shared } else { Verdict::Counting }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn interval(enabled: u64, running: u64) -> Interval {
        Interval { enabled, running }
    }

    #[test]
    fn a_target_that_did_not_run_is_idle_unless_its_group_waits_for_the_pmu() {
        for history in [History::Unused, History::Ran] {
            assert_eq!(judge(interval(0, 0), history, 0, None), Verdict::Idle);
        }
        assert_eq!(judge(interval(0, 0), History::Waiting, 0, None), Verdict::NeverRan);
    }

    #[test]
    fn a_group_waits_from_the_first_moment_in_which_it_could_have_counted_to_the_first_on_the_pmu() {
        let of = [(0, 0), (1, 0), (SECOND, 1), (SECOND, SECOND)].map(|(could, did)| History::of(could, did));
        assert_eq!(of, [History::Unused, History::Waiting, History::Ran, History::Ran]);
    }

    #[test]
    fn a_counter_that_could_have_run_and_never_did_has_no_count() {
        let verdict = judge(interval(SECOND, 0), History::Waiting, 0, None);
        assert_eq!(verdict, Verdict::NeverRan);
        assert!(!verdict.has_count());
    }

    #[test]
    fn a_counter_rotated_out_for_one_interval_shares_the_pmu() {
        assert_eq!(judge(interval(SECOND, 0), History::Ran, 0, None), Verdict::Shared);
        assert_eq!(judge(interval(SECOND, SECOND / 2), History::Ran, 9, None), Verdict::Shared);
        assert_eq!(judge(interval(SECOND, SECOND), History::Ran, 0, None), Verdict::Counting);
    }

    #[test]
    fn cycles_that_stand_still_or_crawl_while_the_cpu_works_are_not_believed() {
        let work = Some(Duration::from_secs(1));
        assert_eq!(judge(interval(SECOND, SECOND), History::Ran, 0, work), Verdict::Stalled);
        assert_eq!(judge(interval(SECOND, SECOND), History::Ran, 395, work), Verdict::Implausible);
        assert_eq!(judge(interval(SECOND, SECOND), History::Ran, 2_000_000_000, work), Verdict::Counting);
        let little = Some(Duration::from_millis(99));
        assert_eq!(judge(interval(SECOND, SECOND), History::Ran, 0, little), Verdict::Counting);
    }

    #[test]
    fn the_ratio_is_never_above_one() {
        assert_eq!(interval(100, 101).ratio(), Some(1.0));
        assert_eq!(interval(100, 25).ratio(), Some(0.25));
        assert_eq!(interval(0, 0).ratio(), None);
    }
}
