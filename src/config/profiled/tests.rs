//! Tests of `profiles` entries: their results and all of their errors.

use std::time::Duration;

use proptest::prelude::*;

use super::{Profiled, Rate, SampledTargets, Source, Unwind};
use crate::config::Config;
use crate::config::tests::{good, report};
use crate::health::CpuScope;
use crate::probe::{Definition, ProbeKind, Root, Within};

/// Returns the single entry of `profiles`.
fn profile(entry: &str) -> Profiled {
    good(&format!("profiles: {{a: {{{entry}}}}}")).profiles.remove(0)
}

/// Returns the problems of the entry `a`, one per line, without line and column.
fn wrong(entry: &str) -> String {
    let report = report(&format!("profiles:\n  a: {{{entry}}}\n"));
    let lines = report.lines().map(|line| line.split_once("profiles.a").map_or(line, |(_, text)| text));
    lines.collect::<Vec<_>>().join("\n")
}

fn rate(entry: &str) -> Rate {
    match profile(entry).source {
        Source::Event { rate, .. } | Source::Probe { rate, .. } => rate,
        Source::OffCpu { .. } => panic!("{entry} samples waits"),
    }
}

#[test]
fn an_entry_of_one_event_samples_everybody_nineteen_times_a_second() {
    let Profiled { name, source, unwind, lines, targets, per, functions, window } =
        profile("event: cpu-clock");
    assert_eq!((&*name, functions, window), ("a", 50, Duration::from_secs(60)));
    assert_eq!((unwind, targets, per), (Unwind::Auto { stack: 16 << 10 }, SampledTargets::default(), None));
    let Source::Event { event, filter, rate, kernel, idle } = source else { panic!("{source:?}") };
    assert_eq!((event.to_string().as_str(), filter, rate), ("cpu-clock", None, Rate::Frequency(19)));
    assert_eq!((kernel, idle, lines), (true, false, false));
}

#[test]
fn metrics_tell_samples_apart_by_cpu_or_numa_node_where_the_entry_says_so() {
    let per = |word: &str| profile(&format!("event: cpu-clock, per: {word}")).per;
    assert_eq!([per("cpu"), per("numa")], [Some(CpuScope::Cpu), Some(CpuScope::Numa)]);
}

#[test]
fn an_entry_with_a_threshold_samples_waits() {
    let source = |entry| profile(entry).source;
    let waits = |threshold, limit| Source::OffCpu { threshold: Duration::from_millis(threshold), limit };
    assert_eq!(source("threshold: 5ms"), waits(5, 1000));
    assert_eq!(source("threshold: 0s, limit: 7"), waits(0, 7));
    assert_eq!(source("limit: 7"), waits(1, 7));
}

#[test]
fn an_entry_with_a_probe_samples_each_hit() {
    for (entry, kind, place, root) in [
        ("kprobe: tcp_sendmsg", ProbeKind::Kprobe, "tcp_sendmsg", Root::Host),
        ("kretprobe: 'nf_conntrack:nf_in'", ProbeKind::Kretprobe, "nf_conntrack:nf_in", Root::Host),
        ("uprobe: '/b:f+4', in: {pid: 7}", ProbeKind::Uprobe, "/b:f+0x4", Root::Process(7)),
        ("uretprobe: '/b:f'", ProbeKind::Uretprobe, "/b:f", Root::Host),
        ("usdt: '/b:p:m', in: {cgroup: /c}", ProbeKind::Usdt, "/b:p:m", Root::Cgroup("/c".into())),
    ] {
        let Source::Probe { definition, rate } = profile(entry).source else { panic!("{entry}") };
        let Definition { location, within: found, arguments } = definition;
        let root = Within::Root(root);
        assert_eq!((location.kind(), &*location.to_string(), found), (kind, place, root), "{entry}");
        assert_eq!((arguments, rate), (Vec::new(), Rate::Period(1)), "{entry}");
    }
    assert_eq!(rate("kprobe: f, period: 100"), Rate::Period(100));
    assert_eq!(rate("uprobe: '/b:f', frequency: 99"), Rate::Frequency(99));
}

#[test]
fn an_entry_is_of_one_kind_and_says_what_belongs_to_it() {
    assert_eq!(
        wrong("frequency: 19"),
        ": the entry has no event, probe or threshold; write `event: cpu-clock`, or `threshold: 1ms` for the time off the CPU"
    );
    for (entry, expected) in [
        (
            "event: cycles, threshold: 1ms",
            ".threshold: `threshold` applies only to waits, and this entry samples an event; split it into two entries: one with \
             `event`, one with `threshold`",
        ),
        (
            "event: cycles, limit: 5",
            ".limit: `limit` applies only to waits, and this entry samples an event; split",
        ),
        (
            "threshold: 1ms, frequency: 5",
            ".frequency: `frequency` applies only to an `event`, and this entry samples waits; write `limit`, the maximum number of stacks",
        ),
        (
            "threshold: 1ms, kernel: false",
            ".kernel: `kernel` applies only to an `event`, and this entry samples waits; leave",
        ),
        (
            "event: cycles, kprobe: f",
            ".event: an entry samples an event or a probe, not both; split it into two entries",
        ),
        ("kprobe: f, uprobe: '/b:f'", ".uprobe: an entry has only one probe; split it into two entries"),
        (
            "kprobe: f, threshold: 1ms",
            ".threshold: `threshold` applies only to waits, and this entry samples a probe; split it into two entries: one with \
             the probe, one with `threshold`",
        ),
        (
            "event: cycles, in: {pid: 1}",
            ".in: `in` applies only to a probe in a file, and this entry has none; leave it out",
        ),
        ("kprobe: f, in: {pid: 1}", ".in: a kernel probe has no file; leave it out"),
        (
            "kprobe: f, filter: x > 1",
            ".filter: `filter` applies only to tracepoints, and this entry samples a",
        ),
        (
            "kprobe: f, kernel: false",
            ".kernel: `kernel` applies only to events that occur in the kernel and in programs",
        ),
        (
            "uprobe: '/b:f', idle: true",
            ".idle: `idle` applies only to clock events, and this entry samples a probe",
        ),
        ("uprobe: f", ".uprobe: `f` is not a valid location of a uprobe: "),
        ("kprobe: f, arguments: [x]", ".arguments: unknown setting `arguments`"),
        ("threshold: 1ms, filter: x > 1", ".filter: `filter` applies only to an `event`"),
        ("threshold: 1ms, idle: true", ".idle: `idle` applies only to an `event`"),
    ] {
        let found = wrong(entry);
        assert!(found.starts_with(expected) && found.lines().count() == 1, "{entry}: {found}");
    }
    // A value that could not be read causes no further problems.
    assert_eq!(wrong("event: 5").lines().count(), 1);
    assert_eq!(wrong("threshold: 5").lines().count(), 1);
    assert_eq!(wrong("evnt: cycles").lines().count(), 1);
}

#[test]
fn how_often_is_a_frequency_or_a_period_within_bounds() {
    assert_eq!(rate("event: cycles, frequency: 10000"), Rate::Frequency(10_000));
    assert_eq!(rate("event: page-faults, period: 1"), Rate::Period(1));
    assert_eq!(rate("event: cpu-clock, period: 1000000"), Rate::Period(1_000_000));
    for (entry, expected) in [
        ("event: cycles, frequency: 0", ".frequency: 0 is not between 1 and 10000"),
        ("event: cycles, frequency: 10001", ".frequency: 10001 is not between 1 and 10000"),
        ("event: cycles, period: 0", ".period: 0 is not between 1 and 1000000000000"),
        (
            "event: cpu-clock, period: 1",
            ".period: the period of a clock event is in nanoseconds and at least 100000; write `frequency: 19`",
        ),
        (
            "event: cycles, frequency: 19, period: 100000",
            ".period: `frequency` and `period` are mutually exclusive; remove one of them",
        ),
        (
            "event: cycles, frequency: 99Hz",
            ".frequency: expected a positive whole number, found the text `99Hz`",
        ),
        (
            "event: cycles, frequency: 1.5",
            ".frequency: expected a positive whole number, found the number 1.5",
        ),
        ("threshold: 2h", ".threshold: 7200s is more than 3600s; the default is 1ms"),
        ("limit: 0", ".limit: 0 is not between 1 and 100000"),
        ("threshold: 1", ".threshold: the number 1 has no unit; write `1s` for seconds"),
    ] {
        assert_eq!(wrong(entry), expected, "{entry}");
    }
}

#[test]
fn an_entry_is_of_one_event_that_can_be_sampled() {
    for (event, expected) in [
        (
            "'{cycles,instructions}'",
            ".event: `{cycles,instructions}` is a group, but a profile samples one event;",
        ),
        (
            "'cycles,instructions'",
            ".event: `cycles,instructions` is more than one event, but a profile samples one event;",
        ),
        (
            "'block:*'",
            ".event: `block:*` is a pattern, but a profile samples one event; write the name of one",
        ),
        ("cycles/name=x/", ".event: the profile is named after the entry; leave out `name=`"),
        (
            "cycles:ppp",
            ".event: the modifiers `p` and `P` are not supported: samples have the precision of the event itself;",
        ),
        ("cycles:W", ".event: the modifiers `S` and `W` apply only to groups"),
        (
            "cpu-clock:u",
            ".event: clock events do not support these modifiers; `kernel: false` excludes the kernel",
        ),
        ("'cycles:q'", ".event: `cycles:q` is not an event: "),
        ("{cycles,instructions}", ".event: "),
        ("[cycles]", ".event: expected a text, found a list"),
    ] {
        let found = wrong(&format!("event: {event}"));
        assert!(found.starts_with(expected) && found.lines().count() == 1, "{event}: {found}");
    }
}

#[test]
fn what_an_event_does_not_have_cannot_be_asked_of_it() {
    for (entry, expected) in [
        (
            "event: cycles, filter: x > 1",
            ".filter: `filter` applies only to tracepoints, and this event is not one;",
        ),
        ("event: 'sys:one', filter: ''", ".filter: the filter is empty; leave it out to include all events"),
        ("event: 'sys:one', kernel: false", ".kernel: tracepoints are hit in the kernel"),
        ("event: 'cycles:u', kernel: true", ".kernel: `cycles:u` already has modifiers for user or kernel;"),
        ("event: cycles, idle: true", ".idle: `idle` applies only to clock events"),
        (
            "event: cycles, kernel: off",
            ".kernel: expected `true` or `false`, found the text `off`; write `false`",
        ),
    ] {
        let found = wrong(entry);
        assert!(found.starts_with(expected) && found.lines().count() == 1, "{entry}: {found}");
    }
    let Source::Event { filter, .. } = profile("event: 'sys:one', filter: ' x > 1 '").source else {
        panic!()
    };
    assert_eq!(filter.as_deref(), Some("x > 1"));
}

#[test]
fn the_stack_is_copied_for_dwarf_alone_and_in_eights() {
    let unwind = |entry| profile(&format!("event: cycles, {entry}")).unwind;
    assert_eq!(unwind("unwind: fp"), Unwind::FramePointers);
    assert_eq!(unwind("unwind: dwarf, stack: 60KiB"), Unwind::Dwarf { stack: 60 << 10 });
    assert_eq!(unwind("stack: 1032"), Unwind::Auto { stack: 1032 });
    for (entry, expected) in [
        (
            "unwind: fp, stack: 8KiB",
            ".stack: `stack` has no effect with `unwind: fp`, which copies no stack; remove one of them",
        ),
        (
            "stack: 1030",
            ".stack: 1030 bytes is not a multiple of 8 bytes, which the kernel requires; write `1032`",
        ),
        ("stack: 512", ".stack: 512 bytes is not between 1KiB and 60KiB; the default is 16KiB"),
        ("stack: 64KiB", ".stack: 64KiB is not between 1KiB and 60KiB; the default is 16KiB"),
        ("unwind: lbr", ".unwind: expected `auto`, `fp` or `dwarf`, found `lbr`"),
    ] {
        assert_eq!(wrong(&format!("event: cycles, {entry}")), expected);
    }
}

#[test]
fn an_entry_named_like_a_built_in_one_keeps_its_event() {
    let profiles =
        good("profiles: {cpu: {}, shop: {event: cpu-clock, frequency: 99, pods: {namespace: shop}}}")
            .profiles;
    assert_eq!(profiles[0], Config::default().profiles[0]);
    let cgroups = profiles[1].targets.cgroups.as_ref().unwrap();
    assert_eq!((cgroups.include.len(), cgroups.pods.include.len()), (0, 1));
    let changed = &good("profiles: {cpu: {frequency: 49, kernel: false, pods: {pod: web}}}").profiles[0];
    let Source::Event { event, rate, kernel, .. } = &changed.source else { panic!("{changed:?}") };
    assert_eq!((event.to_string().as_str(), *rate, *kernel), ("cpu-clock", Rate::Frequency(49), false));
    let period = &good("profiles: {cpu: {period: 1000000}}").profiles[0].source;
    assert!(matches!(period, Source::Event { rate: Rate::Period(1_000_000), .. }));
    let filtered = report("profiles: {cpu: {filter: 'a > 1'}}");
    assert!(filtered.contains("the built-in entry samples another event; leave it out"), "{filtered}");
}

#[test]
fn whose_samples_are_kept_is_everybodys_unless_the_entry_says_otherwise() {
    let targets = |entry: &str| profile(&format!("event: cycles, {entry}")).targets;
    assert_eq!(targets("cgroups: {}, processes: {}"), SampledTargets::default());
    let SampledTargets { cgroups, processes, cpus } =
        targets("cgroups: {exclude: /a/**}, processes: {exclude: [{kernel: true}]}, cpus: '0-3,8'");
    let cgroups = cgroups.unwrap();
    assert!(cgroups.names_root(), "threads of the kernel are in the root");
    assert_eq!((cgroups.include.len(), cgroups.exclude.len()), (2, 1));
    let processes = processes.unwrap();
    assert_eq!((processes.include, processes.exclude.len()), (vec![Default::default()], 1));
    assert_eq!(cpus.unwrap().to_string(), "0-3,8");
    assert_eq!(targets("cpus: 5").cpus.unwrap().to_string(), "5");
    let cgroups = targets("pods: {exclude: [{namespace: kube-system}]}").cgroups.unwrap();
    assert_eq!((cgroups.include.len(), cgroups.pods.exclude.len()), (2, 1));
    let cgroups = targets("cgroups: {include: /a}, pods: [{namespace: shop}]").cgroups.unwrap();
    assert_eq!((cgroups.include.len(), cgroups.pods.include.len()), (1, 1));
    // The sections `cgroups` and `processes` of the file do not apply to samples.
    let file = good("cgroups: {include: /a}\nprofiles: {a: {event: cycles}}");
    assert_eq!(file.profiles[0].targets, SampledTargets::default());
    for (entry, expected) in [
        ("cpus: ''", ".cpus: expected a list of CPUs such as `0-3,8`, found the text ``"),
        ("cpus: 3-1", ".cpus: expected a list of CPUs such as `0-3,8`, found the text `3-1`"),
        ("cpus: 9000", ".cpus: expected a list of CPUs such as `0-3,8`, found the number 9000"),
        (
            "cgroups: {include: []}",
            ".cgroups.include: an empty list selects no cgroup; leave it out for every cgroup",
        ),
        ("processes: {include: []}", ".processes.include: an empty list selects no process; leave it out"),
        ("cgroups: {include: a}", ".cgroups.include: `a` never matches"),
        ("processes: {by: pid}", ".processes.by: unknown setting `by`"),
    ] {
        let found = wrong(&format!("event: cycles, {entry}"));
        assert!(found.starts_with(expected) && found.lines().count() == 1, "{entry}: {found}");
    }
}

#[test]
fn what_is_shown_has_bounds() {
    let shown = |entry: &str| {
        let profile = profile(&format!("event: cycles, {entry}"));
        (profile.functions, profile.window.as_secs())
    };
    assert_eq!(shown("functions: 0, window: 10s"), (0, 10));
    assert_eq!(shown("functions: 1000, window: 10m"), (1000, 600));
    assert_eq!(
        wrong("event: cycles, functions: 1001"),
        ".functions: 1001 is not between 0 and 1000; each is a series; profiles contain all functions"
    );
    assert_eq!(
        wrong("event: cycles, window: 9s"),
        ".window: 9s is not between 10s and 600s; the default is 60s"
    );
}

#[test]
fn names_are_words_and_stand_once() {
    assert!(report("profiles: {On-CPU: {event: cycles}}").ends_with("write `on_cpu`"));
    let twice = report("profiles:\n  a: {event: cycles}\n  a: {event: faults}\n");
    assert!(twice.starts_with("3:3: duplicate key `a` in this block;"), "{twice}");
    let many: String = (0..17).map(|i| format!("  a{i}: {{event: cycles}}\n")).collect();
    let many = report(&format!("profiles:\n{many}"));
    assert!(many.contains("profiles: 17 entries, at most 16 are allowed;"), "{many}");
}

#[test]
fn a_file_without_profiles_has_the_built_in_one_and_an_empty_section_none() {
    let built_in = Config::default().profiles;
    assert_eq!(built_in.iter().map(|profile| &*profile.name).collect::<Vec<_>>(), ["cpu"]);
    assert_eq!(good("{}").profiles, built_in);
    assert_eq!(good("profiles: {}").profiles, []);
    assert_eq!(good("profiles: {mine: {event: cycles}}").profiles.len(), 1);
    // Profiles alone are a valid configuration.
    assert_eq!(good("counters: {}").profiles, built_in);
}

proptest! {
    #[test]
    fn any_numbers_are_taken_or_refused_with_an_error(
        frequency in any::<u64>(), stack in any::<u64>(), functions in any::<u64>(), limit in any::<u64>()
    ) {
        let taken = (1..=10_000).contains(&frequency) && functions <= 1000
            && (1 << 10..=60 << 10).contains(&stack) && stack % 8 == 0;
        let entry = format!("event: cycles, frequency: {frequency}, stack: {stack}, functions: {functions}");
        prop_assert_eq!(wrong(&entry).is_empty(), taken);
        prop_assert_eq!(wrong(&format!("limit: {limit}")).is_empty(), (1..=100_000).contains(&limit));
    }
}
