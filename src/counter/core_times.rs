//! Time of threads on each type of core of a hybrid machine.
//!
//! An event of a thread counts on one type of core only, but its enabled time also grows while the thread runs on the other types. Scaling
//! by `enabled ∕ running` would add an estimate for this time: a thread that spends half of its time on each type would get twice its cycles
//! on both. Events of CPUs, and of cgroups on a CPU, are not affected.
//!
//! The time on a type is estimated by `enabled × running(type) ∕ Σ running`. It is exact if no group waited for the PMU, or if the thread
//! stayed on one type. Otherwise it is correct if the groups of all types wait for equal fractions of the time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::health::Interval;
use crate::host::CpuSet;
use crate::plan::Group;

/// Times of threads since the previous reading of their counters.
#[derive(Debug, Default)]
pub(super) struct CoreTimes {
    online: CpuSet,
    /// CPUs of each type with a group.
    types: BTreeMap<Arc<str>, CpuSet>,
    threads: HashMap<u32, ThreadTimes>,
}

#[derive(Debug, Default)]
struct ThreadTimes {
    enabled: u64,
    /// The longest running time among the groups of each type.
    running: BTreeMap<Arc<str>, u64>,
}

/// Returns the core PMU of a group that counts on one type of core, and its CPUs.
fn type_of(group: &Group) -> Option<(&Arc<str>, &CpuSet)> {
    group.pmu.as_ref().zip(group.cpus.as_ref())
}

/// Reports whether a group counts on one type of core only.
pub(super) fn is_of_one_type(group: &Group) -> bool {
    type_of(group).is_some()
}

impl CoreTimes {
    pub(super) fn new(online: &CpuSet) -> Self {
        Self { online: online.clone(), ..Self::default() }
    }

    /// Adds the interval of a group of a thread.
    pub(super) fn add(&mut self, group: &Group, tid: u32, interval: Interval) {
        let Some((pmu, cpus)) = type_of(group) else { return };
        if !self.types.contains_key(pmu) {
            self.types.insert(Arc::clone(pmu), cpus.clone());
        }
        let times = self.threads.entry(tid).or_default();
        times.enabled = times.enabled.max(interval.enabled);
        let running = times.running.entry(Arc::clone(pmu)).or_default();
        *running = (*running).max(interval.running);
    }

    /// Returns the interval of a group of a thread, with the time that the thread spent on its type of core as the enabled time. Returns
    /// intervals of other groups unchanged.
    pub(super) fn on_type(&self, group: &Group, tid: u32, interval: Interval) -> Interval {
        let Some((pmu, _)) = type_of(group) else { return interval };
        let enabled = match self.time_on(pmu, tid) {
            Some(time) => time.max(interval.running),
            // The time on types without a group is unknown. No estimate is better than a wrong one.
            None if !self.covers_all_types() => interval.running,
            None => interval.enabled,
        };
        Interval { enabled, ..interval }
    }

    /// Returns the time of a thread on a type of core. `None` if it is unknown: not all types have a group, or no group was on the PMU.
    fn time_on(&self, pmu: &Arc<str>, tid: u32) -> Option<u64> {
        let times = self.threads.get(&tid).filter(|_| self.covers_all_types())?;
        let all: u128 = times.running.values().map(|&running| u128::from(running)).sum();
        let own = times.running.get(pmu).copied().unwrap_or(0);
        u64::try_from((u128::from(times.enabled) * u128::from(own)).checked_div(all)?).ok()
    }

    fn covers_all_types(&self) -> bool {
        !self.types.is_empty()
            && self.online.iter().all(|cpu| self.types.values().any(|cpus| cpus.contains(cpu)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Catalog, parse};
    use crate::host::{Facts, Roots};
    use crate::targets::Targets;

    /// Returns a group of each type of core: `cpu_atom`, `cpu_core`.
    fn groups() -> Vec<Arc<Group>> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/hosts/intel-hybrid");
        let roots = Roots::under(std::path::Path::new(root));
        let catalog = Catalog::load(&roots, &Facts::read(&roots));
        let events = catalog.resolve(&parse("cycles").unwrap()[0].events[0]).unwrap();
        crate::plan::groups(&"test".into(), &Targets::CPU, events).groups
    }

    /// Returns the intervals of the types for (enabled, running on `cpu_atom`, running on `cpu_core`).
    fn on_types(enabled: u64, running: [u64; 2]) -> [(u64, u64); 2] {
        let groups = groups();
        let mut times = CoreTimes::new(&"0-15".parse().unwrap());
        let interval = |running| Interval { enabled, running };
        for (group, running) in groups.iter().zip(running) {
            times.add(group, 7, interval(running));
        }
        [0, 1].map(|at| {
            let Interval { enabled, running } = times.on_type(&groups[at], 7, interval(running[at]));
            (enabled, running)
        })
    }

    #[test]
    fn time_on_the_other_type_of_core_is_no_time_of_waiting() {
        assert_eq!(on_types(100, [50, 50]), [(50, 50), (50, 50)]);
        assert_eq!(on_types(100, [30, 70]), [(30, 30), (70, 70)]);
        assert_eq!(on_types(100, [0, 100]), [(0, 0), (100, 100)]);
    }

    #[test]
    fn time_of_waiting_is_shared_by_the_types() {
        assert_eq!(on_types(100, [0, 25]), [(0, 0), (100, 25)]);
        assert_eq!(on_types(100, [20, 30]), [(40, 20), (60, 30)]);
        assert_eq!(on_types(100, [0, 0]), [(100, 0), (100, 0)], "both waited");
    }

    #[test]
    fn without_a_group_of_each_type_a_count_is_not_scaled() {
        let groups = groups();
        let mut times = CoreTimes::new(&"0-15".parse().unwrap());
        let interval = Interval { enabled: 100, running: 40 };
        times.add(&groups[1], 7, interval);
        assert_eq!(times.on_type(&groups[1], 7, interval), Interval { enabled: 40, running: 40 });
        times.add(&groups[0], 8, interval);
        assert_eq!(times.on_type(&groups[1], 7, interval), interval, "the thread 7 waits on the other type");
    }
}
