//! Reloads: what is in both configurations keeps its totals, created timestamps and open events, on a simulated host and kernel.

use std::collections::BTreeSet;
use std::fs;

use perf_exporter::clock::Timestamp;
use perf_exporter::metrics::{Family, Value};
use perf_exporter::sys::fake::Opened;

use crate::traced::World;

/// A selection of cgroups that are counted by descriptors of their own.
const DEDICATED: &str = "cgroups: {include: [/a, /b], attribution: dedicated}\n";
const CGROUPS: &str = "cgroups: {include: [/a, /b], attribution: ";

/// Returns a host with the cgroups `/a` and `/b` and the process `worker`.
fn world() -> World {
    let world = World::with_threads();
    world.cgroup("a");
    world.cgroup("b");
    world.process(10, "worker");
    // Without this file, perf events and the switch stream count as unavailable.
    fs::write(world.roots.proc.join("sys/kernel/perf_event_paranoid"), "-1\n").unwrap();
    world
}

/// Advances every enabled event by `count`, in a second.
fn run(world: &World, count: u64) {
    world.kernel.update(|event| {
        if event.enabled {
            event.count.value += count;
            event.count.enabled += 1_000_000_000;
            event.count.running += 1_000_000_000;
        }
    });
}

fn ids(world: &World) -> BTreeSet<u64> {
    world.kernel.opened().iter().map(Opened::id).collect()
}

/// The value and the created timestamp of each series of a metric, in the order of their labels.
fn totals(families: &[Family], metric: &str) -> Vec<(u64, Timestamp)> {
    let points = families.iter().filter(|family| family.metadata().name() == metric).flat_map(Family::points);
    let of = |value: &Value| match value {
        Value::Integer(value) => *value,
        other => panic!("{metric} is {other:?}"),
    };
    points.map(|point| (of(&point.value), point.start)).collect()
}

/// Returns the values of the series of a metric.
fn values(families: &[Family], metric: &str) -> Vec<u64> {
    totals(families, metric).into_iter().map(|(value, _)| value).collect()
}

/// Counts 5 with the first configuration and 2 after a reload of the second. Returns the families before and after, and the number of
/// events that stayed open.
fn reload(world: &mut World, first: &str, second: &str) -> [Vec<Family>; 2] {
    world.apply(first);
    assert_eq!(world.reasons(), [""; 0]);
    run(world, 5);
    let before = world.families();
    world.apply(second);
    assert_eq!(world.reasons(), [""; 0]);
    run(world, 2);
    let after = world.families();
    assert_eq!(world.collector.budget().used, world.kernel.opened().len(), "descriptors in use");
    [before, after]
}

fn entry(events: &str) -> String {
    format!("counters: {{os: {{events: [{events}], per: [cgroup]}}}}\n{DEDICATED}")
}

#[test]
fn an_event_that_is_added_to_an_entry_leaves_the_others_open_with_their_totals_and_created_timestamps() {
    let mut world = world();
    world.apply(&entry("page-faults"));
    let open = ids(&world);
    let [before, after] = reload(&mut world, &entry("page-faults"), &entry("page-faults, context-switches"));
    assert!(ids(&world).is_superset(&open), "an event was opened again");
    let [old, new] = [before, after.clone()].map(|families| totals(&families, "perf_cgroup_page_faults"));
    assert_eq!((old.len(), old[0].0, new[0].0, old[0].1), (2, 10, 14, new[0].1), "{old:?} {new:?}");
    let added = totals(&after, "perf_cgroup_context_switches");
    assert_eq!(added.iter().map(|added| added.0).collect::<Vec<_>>(), [4, 4]);
    assert!(added[0].1 > new[0].1, "the added event begins at the reload: {added:?}");
}

#[test]
fn an_event_that_is_removed_from_an_entry_is_closed_and_leaves_the_others_open() {
    let mut world = world();
    let three = entry("page-faults, context-switches, cpu-migrations");
    world.apply(&three);
    let open = ids(&world);
    let [_, after] = reload(&mut world, &three, &entry("page-faults, cpu-migrations"));
    assert!(ids(&world).is_subset(&open), "an event was opened again");
    assert_eq!(ids(&world).len(), 8);
    for metric in ["perf_cgroup_page_faults", "perf_cgroup_cpu_migrations"] {
        assert_eq!(values(&after, metric), [14, 14], "{metric}");
    }
    assert_eq!(values(&after, "perf_cgroup_context_switches"), [0; 0]);
}

#[test]
fn without_its_leader_a_group_is_opened_again_and_counts_nothing_twice() {
    let mut world = world();
    let first = entry("page-faults, context-switches");
    let [before, after] = reload(&mut world, &first, &entry("context-switches"));
    assert_eq!(values(&before, "perf_cgroup_context_switches"), [10, 10]);
    assert_eq!(values(&after, "perf_cgroup_context_switches"), [14, 14]);
    assert_eq!(ids(&world).len(), 4);
}

#[test]
fn counts_since_the_last_collection_are_in_the_totals_of_a_group_that_is_opened_again() {
    let mut world = world();
    world.apply(&entry("page-faults, context-switches"));
    run(&world, 5);
    world.families();
    run(&world, 3);
    world.apply(&entry("context-switches"));
    run(&world, 2);
    assert_eq!(values(&world.families(), "perf_cgroup_context_switches"), [20, 20]);
}

#[test]
fn another_order_of_events_changes_nothing() {
    let mut world = world();
    world.apply(&entry("page-faults, context-switches"));
    let (open, calls) = (ids(&world), world.kernel.open_calls());
    let [_, after] =
        reload(&mut world, &entry("page-faults, context-switches"), &entry("context-switches, page-faults"));
    assert_eq!((ids(&world), world.kernel.open_calls()), (open, calls));
    assert_eq!(values(&after, "perf_cgroup_page_faults"), [14, 14]);
}

#[test]
fn a_hardware_event_that_is_added_opens_the_group_again_because_its_members_are_scheduled_together() {
    let mut world = world();
    let [_, after] = reload(&mut world, &entry("cache-misses"), &entry("cache-misses, branch-misses"));
    assert_eq!(values(&after, "perf_cgroup_cache_misses"), [14, 14]);
    assert_eq!(values(&after, "perf_cgroup_branch_misses"), [4, 4]);
    let members = world.kernel.opened().iter().filter(|event| event.is_member()).count();
    assert_eq!(members, 4, "each of the four groups has a member");
}

#[test]
fn a_selection_that_changes_leaves_the_targets_that_stay_undisturbed() {
    let mut world = world();
    world.cgroup("c");
    let with = |include: &str| {
        format!(
            "counters: {{os: {{events: [page-faults, context-switches], per: [cgroup]}}}}\n\
             cgroups: {{include: [{include}], attribution: dedicated}}\n"
        )
    };
    world.apply(&with("/a, /b"));
    let open = ids(&world);
    let [_, after] = reload(&mut world, &with("/a, /b"), &with("/b, /c"));
    assert_eq!(ids(&world).intersection(&open).count(), 4, "the events of /b stay open");
    assert_eq!(values(&after, "perf_cgroup_page_faults"), [10, 14, 4], "of /a, which ended, of /b and of /c");
    world.apply(&with("/a, /b"));
    run(&world, 1);
    assert_eq!(values(&world.families(), "perf_cgroup_page_faults"), [12, 16, 4], "/a continues");
}

#[test]
fn a_parent_and_its_child_are_counted_once_when_the_child_becomes_a_target_and_when_it_no_longer_is() {
    let mut world = world();
    world.cgroup("a/child");
    let with = |include: &str| {
        format!(
            "counters: {{os: {{events: [page-faults], per: [cgroup]}}}}\n\
             cgroups: {{include: [{include}], attribution: dedicated}}\n"
        )
    };
    let [before, after] = reload(&mut world, &with("/a"), &with("/a, /a/child"));
    // The fake kernel counts as much in the child as in the parent, of which nothing remains.
    assert_eq!(
        (values(&before, "perf_cgroup_page_faults"), values(&after, "perf_cgroup_page_faults")),
        (vec![10], vec![10, 4])
    );
    world.apply(&with("/a"));
    run(&world, 1);
    assert_eq!(values(&world.families(), "perf_cgroup_page_faults"), [12, 4]);
}

#[test]
fn entries_that_are_merged_split_or_renamed_continue_the_totals_of_their_events() {
    let mut world = world();
    let two = "one: {events: [page-faults], per: [cgroup]}, two: {events: [context-switches], per: [cgroup]}";
    let merged = "both: {events: [context-switches, page-faults], per: [cgroup]}";
    let with = |entries: &str| format!("counters: {{{entries}}}\n{DEDICATED}");
    let [before, after] = reload(&mut world, &with(two), &with(merged));
    let metrics = ["perf_cgroup_page_faults", "perf_cgroup_context_switches"];
    for metric in metrics {
        let [old, new] = [&before, &after].map(|families| totals(families, metric));
        assert_eq!((old[0].0, new[0].0, old[0].1), (10, 14, new[0].1), "{metric}");
    }
    world.apply(&with(two));
    run(&world, 1);
    let split = world.families();
    for metric in metrics {
        assert_eq!(values(&split, metric), [16, 16], "{metric}");
    }
    world.apply(&with(&two.replace("one", "other")));
    run(&world, 1);
    assert_eq!(values(&world.families(), metrics[0]), [18, 18]);
}

#[test]
fn descriptors_for_one_group_suffice_to_open_it_again() {
    let mut world = World::with_descriptors(4);
    world.cgroup("a");
    world.cgroup("b");
    let [_, after] = reload(&mut world, &entry("cache-misses"), &entry("cache-misses:D"));
    assert_eq!(values(&after, "perf_cgroup_cache_misses"), [14, 14]);
}

#[test]
fn a_process_keeps_its_totals_when_a_member_is_removed() {
    let mut world = world();
    let with = |events: &str| {
        format!(
            "counters: {{os: {{events: [{events}], per: [process]}}}}\n\
             processes: {{include: [{{comm: worker}}], by: [comm], attribution: dedicated}}\n"
        )
    };
    let [before, after] = reload(&mut world, &with("page-faults, context-switches"), &with("page-faults"));
    assert_eq!(
        (values(&before, "perf_process_page_faults"), values(&after, "perf_process_page_faults")),
        (vec![5], vec![7])
    );
}

#[test]
fn other_labels_begin_other_series() {
    let mut world = world();
    let with = |by: &str| {
        format!(
            "counters: {{os: {{events: [page-faults], per: [process]}}}}\n\
             processes: {{include: [{{comm: worker}}], by: [{by}], attribution: dedicated}}\n"
        )
    };
    let [before, after] = reload(&mut world, &with("comm"), &with("comm, pid"));
    assert_eq!(
        (values(&before, "perf_process_page_faults"), values(&after, "perf_process_page_faults")),
        (vec![5], vec![2])
    );
}

#[test]
fn descendants_are_another_meaning_of_the_totals_which_begin_again() {
    let mut world = world();
    let all = entry("page-faults").replace("include", "descendants: true, include");
    let [_, after] = reload(&mut world, &entry("page-faults"), &all);
    assert_eq!(values(&after, "perf_cgroup_page_faults"), [4, 4]);
}

#[test]
fn another_attribution_continues_the_totals() {
    let mut world = world();
    let with = |attribution: &str| {
        format!("counters: {{os: {{events: [page-faults], per: [cgroup]}}}}\n{CGROUPS}{attribution}}}\n")
    };
    let [before, after] = reload(&mut world, &with("dedicated"), &with("stream"));
    assert_eq!(values(&before, "perf_cgroup_page_faults"), [10, 10]);
    assert_eq!(values(&after, "perf_cgroup_page_faults"), [10, 10], "no record was written");
    world.apply(&with("dedicated"));
    run(&world, 1);
    assert_eq!(values(&world.families(), "perf_cgroup_page_faults"), [12, 12]);
}

/// Returns a configuration of the switch stream.
fn stream(events: &str) -> String {
    format!(
        "counters: {{os: {{events: [{events}], per: [cpu, process]}}}}\n\
         processes: {{include: [{{comm: \"*\"}}], by: [comm], attribution: stream}}\n"
    )
}

/// Returns the sum over the CPUs, and the sum of the counts that the stream attributed to a process or a reason.
fn stream_sums(families: &[Family], event: &str) -> [u64; 2] {
    [vec!["perf_cpu_"], vec!["perf_process_", "perf_unattributed_"]].map(|prefixes| {
        prefixes.iter().flat_map(|prefix| values(families, &format!("{prefix}{event}"))).sum()
    })
}

#[test]
fn a_stream_that_is_opened_again_for_an_added_event_continues_and_attributes_all_counts() {
    let mut world = world();
    let [before, after] = reload(&mut world, &stream("page-faults"), &stream("page-faults, minor-faults"));
    assert_eq!(stream_sums(&before, "page_faults"), [10, 0], "no record has been written yet");
    assert_eq!(
        stream_sums(&after, "page_faults"),
        [14, 10],
        "the counts of the closed events are attributed"
    );
    assert_eq!(stream_sums(&after, "minor_faults"), [4, 0]);
    let [old, new] = [&before, &after].map(|families| totals(families, "perf_cpu_page_faults"));
    assert_eq!(old[0].1, new[0].1, "created timestamps continue");
    assert!(totals(&after, "perf_cpu_minor_faults")[0].1 > old[0].1);
    let families = world.collector.finish();
    assert_eq!(stream_sums(&families, "page_faults"), [14, 14]);
    assert_eq!(stream_sums(&families, "minor_faults"), [4, 4]);
}

#[test]
fn a_stream_without_an_event_stays_open_and_an_event_that_comes_back_begins_at_zero() {
    let mut world = world();
    let two = stream("page-faults, minor-faults");
    world.apply(&two);
    let (open, calls) = (ids(&world), world.kernel.open_calls());
    let [before, without] = reload(&mut world, &two, &stream("page-faults"));
    assert_eq!(values(&without, "perf_cpu_minor_faults"), [0; 0]);
    run(&world, 100);
    world.apply(&two);
    run(&world, 1);
    let with = world.families();
    assert_eq!((ids(&world), world.kernel.open_calls()), (open, calls), "the stream was opened again");
    assert_eq!(values(&with, "perf_cpu_page_faults"), [108, 108]);
    assert_eq!(values(&with, "perf_cpu_minor_faults"), [1, 1]);
    let [old, new] = [&before, &with].map(|families| totals(families, "perf_cpu_minor_faults"));
    assert!(new[0].1 > old[0].1, "it begins at the reload: {old:?} {new:?}");
}

#[test]
fn a_hardware_event_that_is_removed_leaves_the_pmu() {
    let mut world = world();
    let [_, after] = reload(&mut world, &stream("cycles, instructions"), &stream("cycles"));
    assert_eq!(stream_sums(&after, "cycles")[0], 14);
    let instructions = world
        .kernel
        .opened()
        .iter()
        .filter(|event| event.attr.selector.kind == 0 && event.attr.selector.config[0] == 1)
        .count();
    assert_eq!(instructions, 0);
}

#[test]
fn a_reload_with_another_name_of_an_entry_leaves_the_stream_open() {
    let mut world = world();
    world.apply(&stream("page-faults"));
    let open = ids(&world);
    let [_, after] =
        reload(&mut world, &stream("page-faults"), &stream("page-faults").replace("os:", "memory:"));
    assert_eq!(ids(&world), open);
    assert_eq!(stream_sums(&after, "page_faults")[0], 14);
}

#[test]
fn no_total_falls_in_a_storm_of_reloads() {
    for (small, large, metric) in [
        (entry("page-faults"), entry("cpu-migrations, page-faults"), "perf_cgroup_page_faults"),
        (stream("page-faults"), stream("cpu-migrations, page-faults"), "perf_cpu_page_faults"),
        (stream("cycles"), stream("instructions, cycles"), "perf_cpu_cycles"),
    ] {
        let mut world = world();
        let each = if metric.contains("cgroup") { 2 } else { 1 };
        for turn in 1..=40 {
            world.apply(if turn % 2 == 0 { &small } else { &large });
            run(&world, 1);
            let families = (turn % 3 == 0).then(|| values(&world.families(), metric));
            families.into_iter().for_each(|values| assert_eq!(values, [turn * each; 2], "{metric}"));
        }
    }
}
