//! What a counter's numbers are worth: judged from two readings, so that what no machine produces on demand can be
//! tested as values.

use std::time::Duration;

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

/// The state of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// It counted all the time that it could.
    Counting,
    /// It shared the PMU with others, and its count is scaled up.
    Shared,
    /// What it counts did not run: the count is exact, and nothing was to be counted.
    Idle,
    /// It was never on the PMU: there is no count.
    NeverRan,
    /// It was on the PMU, its target was busy, and the count stood still: it is not to be trusted.
    Stalled,
    /// It moves far too slowly for what its target did, as the counters of some virtual machines do.
    Implausible,
    /// A pinned group that could not be placed on the PMU: it is in error state and will stay there.
    Full,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Counting,
        Self::Shared,
        Self::Idle,
        Self::NeverRan,
        Self::Stalled,
        Self::Implausible,
        Self::Full,
    ];

    /// The word in metrics and on `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counting => "counting",
            Self::Shared => "shared",
            Self::Idle => "idle",
            Self::NeverRan => "never_ran",
            Self::Stalled => "stalled",
            Self::Implausible => "implausible",
            Self::Full => "full",
        }
    }

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
/// `ever_ran` says whether the group has been on the PMU in any interval so far, `delta` is the unscaled count of
/// this interval, and `work` is how long the target is known to have executed code while the event was on the PMU,
/// for events that must move then (unrestricted cycles and instructions); `None` for all others.
pub fn judge(interval: Interval, ever_ran: bool, delta: u64, work: Option<Duration>) -> Verdict {
    if interval.enabled == 0 {
        return Verdict::Idle;
    }
    if !ever_ran {
        return Verdict::NeverRan;
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
    fn a_target_that_did_not_run_is_idle_even_if_the_counter_never_ran() {
        assert_eq!(judge(interval(0, 0), false, 0, None), Verdict::Idle);
    }

    #[test]
    fn a_counter_that_could_have_run_and_never_did_has_no_count() {
        let verdict = judge(interval(SECOND, 0), false, 0, None);
        assert_eq!(verdict, Verdict::NeverRan);
        assert!(!verdict.has_count());
    }

    #[test]
    fn a_counter_rotated_out_for_one_interval_shares_the_pmu() {
        assert_eq!(judge(interval(SECOND, 0), true, 0, None), Verdict::Shared);
        assert_eq!(judge(interval(SECOND, SECOND / 2), true, 9, None), Verdict::Shared);
        assert_eq!(judge(interval(SECOND, SECOND), true, 0, None), Verdict::Counting);
    }

    #[test]
    fn cycles_that_stand_still_or_crawl_while_the_cpu_works_are_not_believed() {
        let work = Some(Duration::from_secs(1));
        assert_eq!(judge(interval(SECOND, SECOND), true, 0, work), Verdict::Stalled);
        assert_eq!(judge(interval(SECOND, SECOND), true, 395, work), Verdict::Implausible);
        assert_eq!(judge(interval(SECOND, SECOND), true, 2_000_000_000, work), Verdict::Counting);
        let little = Some(Duration::from_millis(99));
        assert_eq!(judge(interval(SECOND, SECOND), true, 0, little), Verdict::Counting);
    }

    #[test]
    fn the_ratio_is_never_above_one() {
        assert_eq!(interval(100, 101).ratio(), Some(1.0));
        assert_eq!(interval(100, 25).ratio(), Some(0.25));
        assert_eq!(interval(0, 0).ratio(), None);
    }
}
