//! Semantic checks: converts the declared types of a file to [`Config`], and reports invalid settings.

use std::ops::RangeInclusive;

use super::anomalies::{Measured, anomalies};
use super::containers::containers;
use super::counters::counters;
use super::decode::{At, node_of};
use super::deep::deep;
use super::derived::{derived, unused};
use super::file::{
    self, CONNECTIONS_MAX, DEBUG_INFO_MAX, DEBUG_INFO_MIN, DEEP_CGROUPS_MAX, DESCRIPTORS_MAX, File,
    MEMORY_MAX, MEMORY_MIN, RING_MEMORY_MAX, RING_MEMORY_MIN, SERIES_MAX,
};
use super::incidents::incidents;
use super::listen::listen;
use super::metrics::metrics;
use super::per::reselected;
use super::profiled::profiled;
use super::push::push;
use super::report::Report;
use super::selection::Selections;
use super::tasks::{scheduler, syscalls};
use super::traced::{Traced, traced};
use super::value::{Percent, Period, Size};
use super::web::web;
use super::{Collection, Config, Counters, History, Limits};
use crate::health::Scope;
use crate::targets::Targets;

/// Bounds of `collection.interval`. Below the minimum, the cost of collections is noticeable. Above the maximum, short-lived cgroups and
/// processes are missed, and multiplexed events are scaled by stale factors.
const INTERVAL: RangeInclusive<Period> = Period::milliseconds(100)..=Period::seconds(600);

/// Bounds of `history.for`. A day of a busy machine exceeds the usual share of `limits.memory`.
const KEPT: RangeInclusive<Period> = Period::seconds(0)..=Period::seconds(24 * 3600);

/// Bounds of `history.step`. Above the maximum, short steps would be longer than long ones.
const STEP: RangeInclusive<Period> = Period::seconds(1)..=Period::seconds(10);

/// Returns the configuration of `file`, with the values of `base` and `selections` for omitted settings. Also returns the selections that
/// entries without their own inherit.
pub(super) fn check(
    file: &File,
    base: &Config,
    selections: &Selections,
    report: &mut Report<'_>,
) -> (Config, Selections) {
    let selections = Selections::over(file.selections(), selections, report);
    let derived = derived(file.derived.as_ref(), report);
    let counters = match &file.counters {
        Some(entries) => counters(entries, &derived, &selections, report),
        None => {
            let reselected =
                |entry: &Counters| Counters { per: reselected(&entry.per, &selections), ..entry.clone() };
            base.counters.iter().map(reselected).collect()
        }
    };
    unused(file.derived.as_ref(), &counters, report);
    let traced = traced(file, &base.traced, &counters, &selections, report);
    let profiles = profiled(&file.profiles, &base.profiles, report);
    let scheduler = scheduler(&file.scheduler, base.scheduler.as_ref(), &selections, report);
    let syscalls = syscalls(&file.syscalls, base.syscalls.as_ref(), &selections, report);
    if !entries_are_blamed(file, report) {
        let tasks = scheduler.iter().map(|entry| &entry.per).chain(syscalls.iter().map(|entry| &entry.per));
        let tasks: Vec<&Targets> = tasks.flatten().collect();
        idle_service(
            file,
            !(counters.is_empty() && traced.is_empty() && profiles.is_empty() && tasks.is_empty()),
            report,
        );
        idle_selections(file, &counters, &traced, &tasks, report);
    }
    let mount = file.tracefs.as_ref().and_then(|tracefs| tracefs.mount);
    let history = history(&file.history, base.history, report);
    let mut config = Config {
        listen: listen(file, &base.listen, report),
        web: web(file.web.as_ref(), &base.web, report),
        collection: collection(&file.collection, base.collection, report),
        history,
        anomalies: anomalies(
            file,
            &base.anomalies,
            &Measured {
                counters: &counters,
                traced: &traced,
                syscalls: syscalls.as_ref(),
                has_history: history.is_kept(),
            },
            report,
        ),
        incidents: incidents(&file.incidents, &base.incidents, report).into(),
        metrics: metrics(&file.metrics, &base.metrics, report).into(),
        deep: deep(&file.deep, &base.deep, (&counters, &derived), report),
        counters,
        traced,
        profiles,
        profile_cpus: base.profile_cpus,
        scheduler,
        syscalls,
        mount_tracefs: mount.map_or(base.mount_tracefs, |at| at.value),
        containers: containers(&file.containers, &base.containers, report),
        push: push(&file.export, &base.push, report),
        limits: limits(&file.limits, base.limits, report),
        locations: None,
    };
    config.containers.selecting = config.selecting_labels();
    config.containers.deep = config.deep.iter().any(|set| set.annotation);
    (config, selections)
}

/// Reports whether entries may be missing because they have problems.
fn entries_are_blamed(file: &File, report: &Report<'_>) -> bool {
    let sections = [
        node_of(&file.counters),
        node_of(&file.tracepoints),
        node_of(&file.presets),
        node_of(&file.probes),
        node_of(&file.profiles),
    ];
    sections.into_iter().flatten().any(|section| report.blames(section))
}

/// Reports an error if no entry is enabled.
fn idle_service(file: &File, busy: bool, report: &mut Report<'_>) {
    if let Some(entries) = file.counters.as_ref().filter(|_| !busy) {
        let hint = "add an entry, or omit `counters` to use the built-in entries";
        report.error(entries.node, "no metrics or profiles are enabled", hint);
    }
}

/// Reports selections that no entry uses.
fn idle_selections(
    file: &File,
    counters: &[Counters],
    traced: &[Traced],
    tasks: &[&Targets],
    report: &mut Report<'_>,
) {
    if counters.is_empty() && traced.is_empty() && tasks.is_empty() {
        return;
    }
    let entries =
        || counters.iter().map(|entry| &entry.per).chain(traced.iter().map(|entry| &entry.per)).flatten();
    let all = || entries().chain(tasks.iter().copied());
    for (written, scope) in [
        (node_of(&file.cgroups), Scope::Cgroup),
        (node_of(&file.pods), Scope::Cgroup),
        (node_of(&file.processes), Scope::Process),
    ] {
        let Some(node) = written else { continue };
        if !all().any(|per| per.scope() == scope) {
            let message = format!("this has no effect: no entry counts per {scope}");
            report.warning(node, message, format!("write `per: [{scope}]` in an entry"));
        }
    }
}

fn collection(
    written: &Option<At<file::Collection>>,
    base: Collection,
    report: &mut Report<'_>,
) -> Collection {
    let Some(At { node: block, value: file::Collection { interval, freshness } }) = written else {
        return base;
    };
    let known = interval.is_some() || !report.gives(*block, "interval");
    let Period(interval) = report.setting(interval, INTERVAL, Period(base.interval));
    if let Some(At { node, value: Period(freshness) }) = freshness
        && known
        && *freshness > interval
    {
        let message = format!("{freshness:?} exceeds `interval`, which is {interval:?}");
        report.error(*node, message, format!("write `{interval:?}` or less"));
    }
    // The default is lowered to a shorter interval without a warning.
    let freshness = freshness.map_or(base.freshness.min(interval), |at| at.value.0);
    Collection { interval, freshness }
}

fn history(written: &Option<At<file::History>>, base: History, report: &mut Report<'_>) -> History {
    let Some(At { value: file::History { kept, step }, .. }) = written else { return base };
    let Period(kept) = report.setting(kept, KEPT, Period(base.kept));
    let Period(step) = report.setting(step, STEP, Period(base.step));
    History { kept, step }
}

fn limits(written: &Option<file::Limits>, base: Limits, report: &mut Report<'_>) -> Limits {
    let Some(limits) = written else { return base };
    Limits {
        series: report.number(&limits.series, SERIES_MAX).unwrap_or(base.series),
        names_per_cgroup: report
            .number(&limits.names_per_cgroup, SERIES_MAX)
            .unwrap_or(base.names_per_cgroup),
        descriptors: report.number(&limits.descriptors, DESCRIPTORS_MAX).or(base.descriptors),
        deep_cgroups: report.number(&limits.deep_cgroups, DEEP_CGROUPS_MAX).unwrap_or(base.deep_cgroups),
        connections: report.number(&limits.connections, CONNECTIONS_MAX).unwrap_or(base.connections),
        memory: size(&limits.memory, base.memory, (MEMORY_MIN, MEMORY_MAX), report),
        ring_memory: size(&limits.ring_memory, base.ring_memory, (RING_MEMORY_MIN, RING_MEMORY_MAX), report),
        debug_info: report
            .setting(&limits.debug_info, Size(DEBUG_INFO_MIN)..=Size(DEBUG_INFO_MAX), Size(base.debug_info))
            .0,
        cpu: limits.cpu.map_or(base.cpu, |At { value: Percent(part), .. }| part),
    }
}

fn size(
    written: &Option<At<Size>>,
    base: Option<u64>,
    (least, most): (u64, u64),
    report: &mut Report<'_>,
) -> Option<u64> {
    report.bounded(written, Size(least)..=Size(most), base.map(Size)).map(|Size(bytes)| bytes).or(base)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::tests::{good, report};

    #[test]
    fn a_part_of_a_file_changes_that_part_alone() {
        let config = good("limits: {series: 5}\ncollection: {interval: 1m}");
        let built_in = Config::default();
        assert_eq!(config.limits, Limits { series: 5, ..built_in.limits });
        assert_eq!(config.collection.interval, Duration::from_secs(60));
        assert_eq!(config.collection.freshness, built_in.collection.freshness);
        assert_eq!((config.listen, config.counters), (built_in.listen, built_in.counters));
    }

    #[test]
    fn the_built_in_entries_follow_the_selections_of_the_file() {
        let config = good("cgroups: {include: /a, depth: 2}\nprocesses: {by: pid}");
        let per = &config.counters[2].per;
        let Targets::Cgroups(cgroups) = &per[1] else { panic!("{per:?}") };
        assert_eq!((cgroups.include[0].as_str(), cgroups.depth), ("/a", Some(2)));
        assert_eq!(cgroups.exclude.len(), 1);
        let per = &config.counters[3].per;
        let Targets::Processes(processes) = &per[0] else { panic!("{per:?}") };
        assert_eq!(processes.by, [crate::targets::GroupBy::Pid]);
    }

    #[test]
    fn intervals_have_bounds() {
        assert_eq!(
            report("collection: {interval: 1ms}"),
            "1:24: collection.interval: 1ms is not between 100ms and 600s; the default is 10s"
        );
        assert!(report("collection: {interval: 1h}").contains("3600s is not between"));
    }

    #[test]
    fn freshness_is_at_most_the_interval_and_the_default_gives_way() {
        assert_eq!(good("collection: {interval: 500ms}").collection.freshness, Duration::from_millis(500));
        assert_eq!(
            report("collection: {interval: 5s, freshness: 6s}"),
            "1:39: collection.freshness: 6s exceeds `interval`, which is 5s; \
             write `5s` or less"
        );
        assert_eq!(report("collection: {interval: 60, freshness: 30s}").lines().count(), 1);
    }

    #[test]
    fn limits_have_bounds() {
        assert_eq!(report("limits: {series: 0}"), "1:18: limits.series: 0 is not between 1 and 10000000");
        assert_eq!(good("limits: {descriptors: 99}").limits.descriptors, Some(99));
    }

    #[test]
    fn the_memory_of_rings_has_bounds() {
        let memory = |text: &str| good(&format!("limits: {{ring_memory: {text}}}")).limits.ring_memory;
        assert_eq!(memory("256KiB"), Some(256 << 10));
        assert_eq!(memory("16Gi"), Some(16 << 30));
        assert_eq!(memory("300000"), Some(300_000));
        assert_eq!(Config::default().limits.ring_memory, None);
        assert_eq!(
            report("limits: {ring_memory: 64KiB}"),
            "1:23: limits.ring_memory: 64KiB is not between 256KiB and 16GiB"
        );
        assert!(report("limits: {ring_memory: 64}").contains("64 bytes is not between 256KiB and 16GiB"));
        assert!(report("limits: {ring_memory: 17179869185}").contains("17179869185 bytes is not between"));
    }

    #[test]
    fn the_memory_of_everything_has_bounds() {
        assert_eq!(good("limits: {memory: 100MiB}").limits.memory, Some(100 << 20));
        assert_eq!(Config::default().limits.memory, None);
        assert_eq!(
            report("limits: {memory: 4MiB}"),
            "1:18: limits.memory: 4MiB is not between 8MiB and 1024GiB"
        );
    }

    #[test]
    fn a_selection_that_nobody_counts_for_is_a_warning() {
        assert_eq!(
            report("counters: {a: {events: cycles}}\nprocesses: {by: pid}"),
            "2:1: warning: processes: this has no effect: no entry counts per process; \
             write `per: [process]` in an entry"
        );
        assert_eq!(
            report("counters: {a: {events: cycles, per: proces}}\nprocesses: {by: pid}").lines().count(),
            1
        );
    }
}
