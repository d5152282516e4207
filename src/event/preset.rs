//! Event sets of `perf stat`: the default set and those of `-d`, `-d -d`, `-d -d -d`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::syntax::Group;

/// One group per ratio of interest. The groups are small, so that each fits a PMU with four counters.
const DEFAULT: &str =
    "task-clock,context-switches,cpu-migrations,page-faults,{cycles,instructions},{branches,branch-misses}";
const DETAILED: &str = "{L1-dcache-loads,L1-dcache-load-misses},{LLC-loads,LLC-load-misses}";
const VERY_DETAILED: &str =
    "{L1-icache-loads,L1-icache-load-misses},{dTLB-loads,dTLB-load-misses},{iTLB-loads,iTLB-load-misses}";
const ALL_DETAILED: &str = "{L1-dcache-prefetches,L1-dcache-prefetch-misses}";

/// Event sets of perf stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// The default of `perf stat`: time, switches, migrations, faults, cycles, instructions, branches.
    Default,
    /// `perf stat -d`: adds the first and last level of the data caches.
    Detailed,
    /// `perf stat -dd`: adds the instruction cache and the TLBs.
    VeryDetailed,
    /// `perf stat -ddd`: adds prefetches.
    AllDetailed,
}

impl Preset {
    /// Returns the groups of this set, after the groups of all smaller sets.
    ///
    /// The events are those of `perf stat` 6.1 (`tools/perf/builtin-stat.c`), without the stalled cycles that it adds where `sysfs` lists
    /// them. Events that form a ratio share a group. perf does not group them.
    pub fn groups(self) -> Vec<Group> {
        let parts = [DEFAULT, DETAILED, VERY_DETAILED, ALL_DETAILED];
        // A test checks that every set parses.
        super::parse(&parts[..=self as usize].join(",")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_preset_has_the_events_of_perf_stat_with_as_many_d() {
        let presets = [Preset::Default, Preset::Detailed, Preset::VeryDetailed, Preset::AllDetailed];
        let events =
            |preset: Preset| -> usize { preset.groups().iter().map(|group| group.events.len()).sum() };
        assert_eq!(presets.map(events), [8, 12, 18, 20]);
    }

    #[test]
    fn what_makes_a_ratio_shares_a_group() {
        let pairs = |group: &Group| group.events.len();
        let sizes: Vec<_> = Preset::AllDetailed.groups().iter().map(pairs).collect();
        assert_eq!(sizes, [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    }
}
