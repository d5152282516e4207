//! Governor for `limits.cpu`: reduces the detail of thread metrics step by step while the exporter exceeds the limit, and restores it when
//! load allows.

use std::time::Duration;

use crate::clock::Monotonic;
use crate::config::{Config, Scheduler, Syscalls};
use crate::targets::Targets;

/// Time above the limit before detail is reduced. Bursts and reloads are shorter.
const TOO_LONG: Duration = Duration::from_secs(30);
/// Initial time below [`LITTLE`] of the limit before detail is restored.
const RESTORE_DELAY: Duration = Duration::from_secs(5 * 60);
/// Maximum of this time. It is doubled whenever restored detail exceeded the limit again.
const MAX_RESTORE_DELAY: Duration = Duration::from_secs(60 * 60);
/// Fraction of the limit below which detail can be restored.
const LITTLE: f64 = 0.5;

/// Detail of thread metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Detail {
    /// Everything that the configuration selects.
    #[default]
    Full,
    /// No processes.
    NoProcesses,
    /// No processes and no cgroups.
    HostOnly,
    /// Host only, for one in 4 threads.
    OneIn4,
    /// Host only, for one in 16 threads.
    OneIn16,
}

impl Detail {
    const ALL: [Self; 5] = [Self::Full, Self::NoProcesses, Self::HostOnly, Self::OneIn4, Self::OneIn16];

    /// Returns the description for the log and the status page, and N if one in N threads is included.
    const fn row(self) -> (&'static str, u32) {
        match self {
            Self::Full => ("everything that the configuration selects", 1),
            Self::NoProcesses => ("without processes", 1),
            Self::HostOnly => ("without processes and cgroups", 1),
            Self::OneIn4 => ("host totals only, from one in 4 threads", 4),
            Self::OneIn16 => ("host totals only, from one in 16 threads", 16),
        }
    }

    /// Returns the description for the log and the status page.
    pub(super) const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Returns the number of steps below full detail.
    pub(super) const fn steps(self) -> i64 {
        self as i64
    }

    /// Returns the remaining targets, at least the host.
    fn per(self, per: &[Targets]) -> Vec<Targets> {
        let keeps = |per: &&Targets| match per {
            Targets::Cpus(_) => true,
            Targets::Cgroups(_) => self < Self::HostOnly,
            Targets::Processes(_) => self < Self::NoProcesses,
        };
        let kept: Vec<Targets> = per.iter().filter(keeps).cloned().collect();
        if kept.is_empty() { vec![Targets::HOST] } else { kept }
    }

    /// Returns the entries of the scheduler and of system calls with reduced detail.
    pub(super) fn reduced(self, config: &Config) -> (Option<Scheduler>, Option<Syscalls>) {
        let (_, one_of) = self.row();
        let scheduler = config.scheduler.as_ref();
        let syscalls = config.syscalls.as_ref();
        (
            scheduler.map(|wanted| Scheduler { per: self.per(&wanted.per), one_of, ..wanted.clone() }),
            syscalls.map(|wanted| Syscalls { per: self.per(&wanted.per), one_of, ..wanted.clone() }),
        )
    }

    /// Reports whether both levels are equivalent for this configuration.
    fn same(self, other: Self, config: &Config) -> bool {
        self.reduced(config) == other.reduced(config)
    }

    /// Returns the next lower level that makes a difference.
    fn less(self, config: &Config) -> Option<Self> {
        Self::ALL.into_iter().find(|&detail| detail > self && !detail.same(self, config))
    }

    /// Returns the next higher level that makes a difference.
    fn more(self, config: &Config) -> Option<Self> {
        let one_up =
            Self::ALL.into_iter().rev().find(|&detail| detail < self && !detail.same(self, config))?;
        // The highest of equivalent levels.
        Self::ALL.into_iter().find(|&detail| detail.same(one_up, config))
    }
}

/// Decides on the level of detail.
#[derive(Debug)]
pub(super) struct Governor {
    detail: Detail,
    /// Since when the limit is exceeded.
    over: Option<Monotonic>,
    /// Since when usage is below [`LITTLE`] of the limit.
    under: Option<Monotonic>,
    restore_delay: Duration,
    /// When detail was last restored.
    rose: Option<Monotonic>,
}

impl Governor {
    pub(super) fn new() -> Self {
        Self { detail: Detail::default(), over: None, under: None, restore_delay: RESTORE_DELAY, rose: None }
    }

    /// Returns the current level of detail.
    pub(super) fn detail(&self) -> Detail {
        self.detail
    }

    /// Records the fraction of the time of all CPUs that was used in the last interval. Returns the new level of detail if it changes.
    pub(super) fn note(&mut self, part: f64, config: &Config, now: Monotonic) -> Option<Detail> {
        let Some(limit) = config.limits.cpu else {
            (self.over, self.under) = (None, None);
            return self.set(Detail::Full);
        };
        self.over = (part > limit).then(|| self.over.unwrap_or(now));
        self.under = (part < limit * LITTLE).then(|| self.under.unwrap_or(now));
        if self.over.is_some_and(|since| now.since(since) >= TOO_LONG) {
            let less = self.detail.less(config)?;
            // The restored detail exceeded the limit again soon after.
            if self.rose.is_some_and(|rose| now.since(rose) < 2 * self.restore_delay) {
                self.restore_delay = (self.restore_delay * 2).min(MAX_RESTORE_DELAY);
            }
            return self.set(less);
        }
        if self.under.is_some_and(|since| now.since(since) >= self.restore_delay) {
            let more = self.detail.more(config)?;
            self.rose = Some(now);
            return self.set(more);
        }
        None
    }

    /// Resets the state for a new configuration: begins with full detail.
    pub(super) fn restart(&mut self) {
        *self = Self::new();
    }

    fn set(&mut self, detail: Detail) -> Option<Detail> {
        if detail == self.detail {
            return None;
        }
        self.detail = detail;
        (self.over, self.under) = (None, None);
        Some(detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(yaml: &str) -> Config {
        crate::config::load(yaml.as_bytes(), "test.yaml").unwrap().0
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    /// Returns the decisions for a sequence of usage fractions, one every ten seconds.
    fn decided(
        governor: &mut Governor,
        config: &Config,
        from: u64,
        parts: &[(f64, u64)],
    ) -> Vec<(u64, Detail)> {
        let (mut now, mut decided) = (from, Vec::new());
        for &(part, seconds) in parts {
            for _ in 0..seconds / 10 {
                decided.extend(governor.note(part, config, at(now)).map(|detail| (now - from, detail)));
                now += 10;
            }
        }
        decided
    }

    const ALL: &str = "scheduler: {per: [host, cgroup, process]}\nlimits: {cpu: 2%}";

    #[test]
    fn it_gives_up_processes_then_cgroups_then_most_threads_each_after_half_a_minute() {
        let decided = decided(&mut Governor::new(), &config(ALL), 0, &[(0.05, 300)]);
        let expected = [
            (30, Detail::NoProcesses),
            (70, Detail::HostOnly),
            (110, Detail::OneIn4),
            (150, Detail::OneIn16),
        ];
        assert_eq!(decided, expected);
    }

    #[test]
    fn steps_that_change_nothing_are_passed_over_both_ways() {
        let config = config("scheduler: {per: [host]}\nlimits: {cpu: 2%}");
        let mut governor = Governor::new();
        assert_eq!(decided(&mut governor, &config, 0, &[(0.05, 40)]), [(30, Detail::OneIn4)]);
        assert_eq!(decided(&mut governor, &config, 100, &[(0.001, 400)]), [(300, Detail::Full)]);
    }

    #[test]
    fn a_burst_is_no_reason_and_what_is_near_the_limit_is_no_room_for_more() {
        let config = config(ALL);
        let mut governor = Governor::new();
        let bursts = [(0.05, 20), (0.01, 10), (0.05, 20), (0.019, 10)].repeat(9);
        assert_eq!(decided(&mut governor, &config, 0, &bursts), []);
        decided(&mut governor, &config, 1000, &[(0.05, 40)]);
        assert_eq!(decided(&mut governor, &config, 2000, &[(0.015, 9000)]), []);
    }

    #[test]
    fn it_tells_more_when_load_allows_and_waits_longer_each_time_that_was_too_early() {
        let config = config(ALL);
        let mut governor = Governor::new();
        decided(&mut governor, &config, 0, &[(0.05, 40)]);
        assert_eq!(governor.detail(), Detail::NoProcesses);
        let early = decided(&mut governor, &config, 100, &[(0.001, 310), (0.05, 40), (0.001, 1000)]);
        assert_eq!(early, [(300, Detail::Full), (340, Detail::NoProcesses), (950, Detail::Full)]);
    }

    #[test]
    fn without_a_limit_everything_is_told() {
        let mut governor = Governor::new();
        decided(&mut governor, &config(ALL), 0, &[(0.05, 40)]);
        let unlimited = config("scheduler: {per: [process]}\nlimits: {cpu: off}");
        assert_eq!(governor.note(0.9, &unlimited, at(100)), Some(Detail::Full));
        assert_eq!(governor.note(0.9, &unlimited, at(200)), None);
    }

    #[test]
    fn what_is_told_is_never_nothing() {
        let without = config("scheduler: {per: []}");
        assert_eq!(Detail::OneIn4.reduced(&without).0, None);
        let config = config("scheduler: {per: [process]}\nsyscalls: {per: [cgroup, process]}");
        let scheduler = Detail::NoProcesses.reduced(&config).0.unwrap();
        assert_eq!((scheduler.per, scheduler.one_of), (vec![Targets::HOST], 1));
        let syscalls = Detail::OneIn16.reduced(&config).1.unwrap();
        assert_eq!((syscalls.per, syscalls.one_of), (vec![Targets::HOST], 16));
    }
}
