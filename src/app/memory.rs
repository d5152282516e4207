//! The memory of the service: its shares for the configuration in force, and what each part holds.

use std::thread;
use std::time::Duration;

use super::series_limit::{Held, SeriesLimit};
use crate::budget::{Account, MemoryBudget, Part, PartState, Share, Shares};
use crate::config::Config;
use crate::metrics::Snapshot;
use crate::profile::MemoryShares;
use crate::sys::allocator::Trimmer;
use crate::sys::usage;

/// How often memory that was freed is looked for.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// The budget, and the accounts of the parts that the collection thread measures itself.
#[derive(Debug)]
pub(super) struct Memory {
    budget: MemoryBudget,
    rings: Account,
    waiting: Account,
    series: Account,
    other: Account,
    /// Bytes of the last snapshot.
    snapshot: u64,
    series_limit: SeriesLimit,
}

impl Memory {
    /// What it is before a plan says which rings there are: for the logs and for whoever asks until then.
    pub(super) fn new(config: &Config, cpus: usize) -> Self {
        let budget = MemoryBudget::new(&config.shares(cpus, 3));
        let account = |part| budget.share(part).account();
        Self {
            rings: account(Part::Rings),
            waiting: account(Part::Waiting),
            series: account(Part::Series),
            other: account(Part::Other),
            snapshot: 0,
            series_limit: SeriesLimit::new(),
            budget,
        }
    }

    /// The shares that sampling takes.
    pub(super) fn of_profiles(&self) -> MemoryShares {
        MemoryShares::of(&self.budget)
    }

    /// The share of what waits to be sent.
    pub(super) fn of_queues(&self) -> Share {
        self.budget.share(Part::Queues)
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

    /// Takes note of what the parts hold: `rings` of the switch stream and of tracepoints, records of tracepoints that are
    /// `waiting` to be ordered, and tables of `series`. All anonymous memory that no part accounts for is [`Part::Other`].
    pub(super) fn measure(&self, rings: u64, waiting: u64, series: u64) {
        self.rings.set(rings);
        self.waiting.set(waiting);
        // The snapshot before may still be served.
        self.series.set(series + 2 * self.snapshot);
        let accounted = self.states().into_iter();
        let accounted = accounted.filter(|state| ![Part::Rings, Part::Other].contains(&state.part));
        let accounted: u64 = accounted.map(|state| state.used).sum();
        let anonymous = usage::memory().unwrap_or_default().anonymous;
        self.other.set(anonymous.saturating_sub(accounted));
    }

    /// The number of series that each table may have, as far as `limits.memory` allows what `limits.series` does.
    pub(super) fn series_limit(&self, config: &Config) -> usize {
        self.series_limit.length(config.limits.series)
    }

    /// This snapshot is served from now on. Adjusts [`series_limit`](Self::series_limit) to it and to the tables of `series`
    /// bytes that it was made of, and returns the limit if it changed.
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
        let held = Held { tables, bytes: series + 2 * self.snapshot, share };
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

    /// What each part holds, of how much.
    pub(super) fn states(&self) -> [PartState; Part::COUNT] {
        self.budget.states()
    }
}

/// Gives memory that was freed back to the kernel from now on, on a thread that nothing waits for. Without the thread
/// memory stays what it was at its highest.
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
