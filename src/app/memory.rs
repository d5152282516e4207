//! Memory of the service: the shares of the current configuration, and the usage of each part.

use std::thread;
use std::time::Duration;

use super::series_limit::{SeriesLimit, TableUsage};
use crate::budget::{Account, MemoryBudget, Part, PartState, Share, Shares};
use crate::config::Config;
use crate::metrics::Snapshot;
use crate::profile::MemoryShares;
use crate::sys::malloc_settings::Trimmer;
use crate::sys::usage;

/// Interval between attempts to return freed memory.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// The memory budget, with the accounts of the parts that the collection thread measures.
#[derive(Debug)]
pub(super) struct Memory {
    budget: MemoryBudget,
    rings: Account,
    waiting: Account,
    series: Account,
    other: Account,
    /// Size of the last snapshot in bytes.
    snapshot: u64,
    series_limit: SeriesLimit,
}

impl Memory {
    /// Creates the initial shares, which apply until the plan determines the kinds of rings.
    pub(super) fn new(config: &Config, cpus: usize) -> Self {
        let budget = MemoryBudget::new(&config.shares(cpus, 3));
        let account = |part| budget.share(part).account();
        Self {
            rings: account(Part::Rings),
            waiting: account(Part::Waiting),
            series: account(Part::Series),
            other: account(Part::Other),
            snapshot: 0,
            series_limit: SeriesLimit::default(),
            budget,
        }
    }

    /// Returns the shares for profiles.
    pub(super) fn of_profiles(&self) -> MemoryShares {
        MemoryShares::of(&self.budget)
    }

    /// Returns the share of a part.
    pub(super) fn share(&self, part: Part) -> Share {
        self.budget.share(part)
    }

    /// Divides `limits.memory` on a machine of `cpus` CPUs with `rings` kinds of rings each.
    pub(super) fn divide(&self, config: &Config, cpus: usize, rings: usize) -> Shares {
        let shares = config.shares(cpus, rings);
        self.budget.set(&shares);
        let granted = shares.get(Part::Rings);
        if let Some(wanted) = config.limits.ring_memory.filter(|&wanted| rings > 0 && wanted / 2 > granted) {
            tracing::warn!(
                "limits.ring_memory is {} KiB, but the rings' share of limits.memory is {} KiB: set limits.memory higher for \
                 larger rings",
                wanted >> 10,
                granted >> 10
            );
        }
        shares
    }

    /// Records the usage of the parts in bytes: `rings` of the switch stream and of tracepoints, tracepoint records `waiting` to be sorted,
    /// and tables of `series`. Anonymous memory that belongs to no other part is [`Part::Other`].
    pub(super) fn measure(&self, rings: u64, waiting: u64, series: u64) {
        self.rings.set(rings);
        self.waiting.set(waiting);
        // The previous snapshot may still be in use by a response.
        self.series.set(series + 2 * self.snapshot);
        let accounted = self.states().into_iter();
        let accounted = accounted.filter(|state| ![Part::Rings, Part::Other].contains(&state.part));
        let accounted: u64 = accounted.map(|state| state.used).sum();
        let anonymous = usage::memory().unwrap_or_default().anonymous;
        self.other.set(anonymous.saturating_sub(accounted));
    }

    /// Returns the maximum number of series per table: `limits.series`, or less if `limits.memory` requires it.
    pub(super) fn series_limit(&self, config: &Config) -> usize {
        self.series_limit.length(config.limits.series)
    }

    /// Records the new snapshot. Adjusts [`series_limit`](Self::series_limit) to it and to its tables of `series` bytes, and returns the
    /// limit if it changed.
    pub(super) fn publishes(
        &mut self,
        config: &Config,
        snapshot: &Snapshot,
        tables: Vec<usize>,
        series: u64,
    ) -> Option<usize> {
        self.snapshot = snapshot.bytes();
        let before = self.series_limit(config);
        let share = self.budget.share(Part::Series).state().limit;
        let held = TableUsage { tables, bytes: series + 2 * self.snapshot, share };
        if !self.series_limit.note(&held, config.limits.series) {
            return None;
        }
        let length = self.series_limit(config);
        if before == config.limits.series {
            tracing::warn!(
                limit = length,
                "series exceed their share of limits.memory: each metric keeps the most active and aggregates the others \
                 into `other`; set limits.memory higher, or select less"
            );
        } else if length == config.limits.series {
            tracing::info!(limit = length, "series fit into their share of limits.memory again");
        }
        Some(length)
    }

    /// Returns the usage and the limit of each part.
    pub(super) fn states(&self) -> [PartState; Part::COUNT] {
        self.budget.states()
    }
}

/// Starts a thread that returns freed memory to the kernel. Without it, resident memory stays at its maximum.
pub(super) fn start_trimming() {
    let trim = || {
        let mut trimmer = Trimmer::default();
        loop {
            thread::sleep(TRIM_EVERY);
            let returned = trimmer.trim(|| usage::memory().map(|memory| memory.anonymous));
            if returned > 0 {
                tracing::debug!(kilobytes = returned >> 10, "returned freed memory to the kernel");
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("memory-trim".into()).spawn(trim) {
        tracing::warn!(%error, "cannot start the thread that returns freed memory to the kernel: resident memory stays at its maximum");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_part_accounts_for_is_other() {
        let memory = Memory::new(&Config::default(), 2);
        memory.divide(&Config::default(), 2, 3);
        memory.measure(1 << 20, 0, 4096);
        let used = |part: Part| memory.states()[part as usize].used;
        assert_eq!((used(Part::Rings), used(Part::Series)), (1 << 20, 4096));
        assert!(used(Part::Other) > 100_000, "a test takes more than this");
        assert_eq!(memory.states().map(|state| state.limit).iter().sum::<u64>(), 68 << 20);
    }
}
