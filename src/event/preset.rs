//! The event sets of `perf stat`: what it counts by itself, and with `-d`, `-d -d`, `-d -d -d`.

use super::syntax::Group;

/// One group per line. Events whose ratio people read are in one group; the groups are small, so that a PMU of four
/// counters can take each whole.
const DEFAULT: &str =
    "task-clock,context-switches,cpu-migrations,page-faults,{cycles,instructions},{branches,branch-misses}";
const DETAILED: &str = "{L1-dcache-loads,L1-dcache-load-misses},{LLC-loads,LLC-load-misses}";
const VERY_DETAILED: &str =
    "{L1-icache-loads,L1-icache-load-misses},{dTLB-loads,dTLB-load-misses},{iTLB-loads,iTLB-load-misses}";
const ALL_DETAILED: &str = "{L1-dcache-prefetches,L1-dcache-prefetch-misses}";

/// The names that [`preset`] takes, each holding what stands before it.
pub const PRESETS: [&str; 4] = ["default", "detailed", "very-detailed", "all-detailed"];

/// The groups of a preset; `None` for a name that is not in [`PRESETS`].
///
/// The events are those of `perf stat` 6.1 (`tools/perf/builtin-stat.c`), without the stalled cycles that it adds
/// where `sysfs` names them. Its ratios are in groups here, where perf leaves each event alone.
pub fn preset(name: &str) -> Option<Vec<Group>> {
    let parts = [DEFAULT, DETAILED, VERY_DETAILED, ALL_DETAILED];
    let count = 1 + PRESETS.iter().position(|preset| *preset == name)?;
    super::parse(&parts[..count].join(",")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_preset_has_the_events_of_perf_stat_with_as_many_d() {
        let events = |name| -> usize { preset(name).unwrap().iter().map(|group| group.events.len()).sum() };
        assert_eq!(PRESETS.map(events), [8, 12, 18, 20]);
        assert_eq!(preset("everything"), None);
    }

    #[test]
    fn what_makes_a_ratio_shares_a_group() {
        let pairs = |group: &Group| group.events.len();
        let sizes: Vec<_> = preset("all-detailed").unwrap().iter().map(pairs).collect();
        assert_eq!(sizes, [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    }
}
