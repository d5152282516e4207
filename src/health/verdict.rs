//! Reliability of counts, judged from two readings. Without I/O, so that states that cannot be produced on demand can be tested.

use std::ops::AddAssign;
use std::time::Duration;

use crate::named_enum::named_enum;

/// Enabled and running time of a group of counters between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// Enabled time in nanoseconds.
    pub enabled: u64,
    /// Running time in nanoseconds: the part of the enabled time in which the group was on the PMU.
    pub running: u64,
}

impl Interval {
    /// Returns the running fraction of the enabled time: 1 for a counter that was always on the PMU, `None` without enabled time.
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

/// State of a group of counters from its opening to the end of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// No enabled time yet: the target has not run.
    #[default]
    Unused,
    /// Enabled, but never on the PMU: the group is waiting for the PMU.
    Waiting,
    /// The group was on the PMU.
    Ran,
}

impl History {
    /// Determines the state from enabled and running time since the opening, in nanoseconds.
    pub fn of(enabled: u64, running: u64) -> Self {
        match (enabled, running) {
            (0, 0) => Self::Unused,
            (_, 0) => Self::Waiting,
            _ => Self::Ran,
        }
    }
}

named_enum! {
    /// The state of a counter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Verdict {
        /// Counted for the whole enabled time.
        Counting = "counting",
        /// Multiplexed with other events; the count is scaled.
        Shared = "shared",
        /// The target did not run, therefore the count is exact. A group that has only waited for the PMU so far is
        /// [`NeverRan`](Self::NeverRan), whether or not its target runs.
        Idle = "idle",
        /// Never on the PMU; there is no count.
        NeverRan = "never_ran",
        /// On the PMU with a busy target, but the count did not change. It is not reliable.
        Stalled = "stalled",
        /// The count is far too low for the work of the target, as on some virtual machines.
        Implausible = "implausible",
        /// A pinned group that could not be scheduled on the PMU. It stays in the error state.
        Full = "full",
    }
}

impl Verdict {
    /// Reports whether the count may be published.
    pub const fn has_count(self) -> bool {
        matches!(self, Self::Counting | Self::Shared | Self::Idle)
    }
}

/// Minimum cycles or instructions per second of work of any running core. It is three orders of magnitude below real rates, and three above
/// the few hundred that broken virtual PMUs show (rezolus#1036).
const SLOWEST_PER_SECOND: u64 = 1_000_000;

/// Minimum measured work before a low count is classified as broken.
const ENOUGH_WORK: Duration = Duration::from_millis(100);

/// Determines the verdict on one event of a group.
///
/// `history` is that of the group, including this interval. A group that waits for the PMU is not idle while its target sleeps, because its
/// earlier counts are missing. `delta` is the unscaled count of this interval.
///
/// `work` is the time in which the target is known to have executed code while the event was on the PMU. It is only given for events that
/// must count during this time (unrestricted cycles and instructions), and `None` for all others.
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
