//! Plans for configurations with trace entries: invalid entries, and the remaining ones.

use std::fs;

use crate::traced::{World, begin, play, work};

/// Returns the errors of entries, one line each, and whether each is invalid on every host.
fn refused(world: &World, yaml: &str) -> Vec<(String, bool)> {
    let plan = world.plan(yaml);
    plan.refusals.iter().map(|refused| (refused.refusal.to_string(), refused.mistake)).collect()
}

#[test]
fn an_unknown_tracepoint_and_an_unknown_field_are_told_with_what_was_meant() {
    let world = World::new();
    for (entry, expected) in [
        ("event: 'toy:wrok'", "toy:wrok on this host: absent: "),
        ("from: 'pair:begin', to: 'pair:edn', key: [key]", "pair:edn on this host: absent: "),
        (
            "event: 'toy:work', labels: [knid]",
            "toy:work on this host: broken: it has no field knid; did you mean kind?",
        ),
        (
            "event: 'toy:work', sum: {of: flag}",
            "toy:work on this host: broken: it has no field flag; did you mean flags?",
        ),
        (
            "event: 'toy:work', sum: {of: task}",
            "toy:work on this host: broken: task is not a number: its declaration is char task[16]",
        ),
        (
            "from: 'pair:begin', to: 'pair:end', key: [kind]",
            "pair:end on this host: broken: it has no field kind; it has code, key",
        ),
    ] {
        let found = refused(&world, &format!("tracepoints: {{toy: {{{entry}}}}}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0.starts_with(expected), "{found:?}");
    }
    let found = refused(&world, "tracepoints: {toy: {event: 'toy:wrok'}}");
    assert!(found[0].0.contains("did you mean toy:work?"), "{found:?}");
}

#[test]
fn a_pair_of_an_unknown_tracepoint_is_as_wrong_as_that_alone() {
    let world = World::new();
    for unknown in ["toy:nothing", "nothing:here"] {
        let alone = refused(&world, &format!("tracepoints: {{toy: {{event: '{unknown}', labels: [x]}}}}"));
        let pair = format!("tracepoints: {{toy: {{from: 'pair:begin', to: '{unknown}', key: [key]}}}}");
        assert_eq!(refused(&world, &pair), alone);
    }
}

#[test]
fn a_filter_is_held_against_the_fields_and_the_kernel_has_its_say() {
    let mut world = World::new();
    let yaml = "tracepoints: {toy: {event: 'toy:work', filter: 'sizes > 5', labels: [kind]}}";
    let found = refused(&world, yaml);
    assert!(found.len() == 1 && found[0].1 && found[0].0.contains("sizes"), "{found:?}");
    world.complaint = Some("sizes > 5\n^\nparse_error: Field not found\n");
    assert_eq!(refused(&world, yaml), found, "the log message is one line");
    let picture = world.plan(yaml).refusals[0].picture.clone().unwrap();
    let said = "kernel message:\nsizes > 5\n^\nparse_error: Field not found";
    assert!(picture.contains("sizes > 5\n") && picture.ends_with(said), "{picture}");
    assert!(world.plan(yaml).traces.is_empty());
}

#[test]
fn one_of_several_that_lacks_a_field_does_not_take_the_others_down() {
    for entry in ["labels: [task]", "filter: 'flags == 1', labels: [kind]", "filter: 'flags == 1'"] {
        let mut world = World::new();
        world.apply(&format!("tracepoints: {{toy: {{event: 'toy:*', {entry}}}}}"));
        let reasons = world.reasons();
        assert!(
            reasons.len() == 1 && reasons[0].starts_with("toy:play on this host: broken: "),
            "{reasons:?}"
        );
        let opened = world.kernel.opened();
        let ids: Vec<u64> = opened.iter().map(|event| event.attr.selector.config[0]).collect();
        assert!(ids.contains(&101) && !ids.contains(&102), "{entry}: {ids:?}");
    }
}

#[test]
fn one_of_several_whose_format_is_broken_does_not_take_the_others_down() {
    let mut world = World::new();
    let broken = world.roots.tracing.join("events/toy/play/format");
    fs::write(&broken, "name: play\n").unwrap();
    world.apply("tracepoints: {toy: {event: 'toy:*', labels: [kind]}}");
    assert_eq!([work(), play()].map(|hit| world.hit(&hit)), [1, 0]);
    let reasons = world.reasons();
    let expected =
        format!("toy:play on this host: broken: {}: the line \"ID:\" is missing", broken.display());
    assert_eq!(reasons, [expected]);
    // An entry that only counts does not need the fields.
    assert_eq!(refused(&world, "tracepoints: {toy: {event: 'toy:*'}}"), []);
}

#[test]
fn an_event_that_two_patterns_stand_for_is_counted_once() {
    let mut world = World::new();
    let events = "events: ['toy:w*', 'pair:begin', 'toy:*']";
    world.apply(&format!("tracepoints: {{toy: {{{events}, labels: [kind]}}}}"));
    [work().kind(1), begin(1).kind(2), play()].iter().for_each(|hit| assert_eq!(world.hit(hit), 1));
    let expected = [
        r#"{event="pair:begin",kind="write"} 1"#,
        r#"{event="toy:play",kind="0x0"} 1"#,
        r#"{event="toy:work",kind="read"} 1"#,
    ];
    assert_eq!(world.collect().of("perf_tracepoint_toy_total"), expected);
    assert_eq!(refused(&world, &format!("tracepoints: {{toy: {{{events}}}}}")), []);
}

#[test]
fn a_metric_that_is_counted_already_is_refused_and_the_first_goes_on() {
    let world = World::new();
    let yaml = "counters: {all: {events: ['toy:*'], per: [cpu]}}\n\
        tracepoints: {toy_work: {event: 'toy:work', labels: [kind], per: [host, cpu]}}";
    let plan = world.plan(yaml);
    let found = refused(&world, yaml);
    let expected =
        "toy_work on entry toy_work: broken: perf_cpu_toy_work_total is already counted by entry all";
    assert!(found.len() == 1 && found[0].0.starts_with(expected) && found[0].1, "{found:?}");
    assert_eq!(plan.traces[0].outputs.len(), 1, "{:?}", plan.traces);
    assert_eq!(plan.groups.len(), 1);
}

#[test]
fn who_must_be_looked_for_follows_from_whom_hits_are_counted_for() {
    let mut world = World::new();
    world.process(10, "p");
    world.cgroup("a");
    for (per, cgroups, processes) in [("host", 0, 0), ("cpu", 0, 0), ("cgroup", 2, 0), ("process", 0, 1)] {
        world.apply(&format!("tracepoints: {{toy: {{event: 'toy:work', labels: [kind], per: [{per}]}}}}"));
        world.collect();
        assert_eq!(
            (world.watch.cgroups().len(), world.watch.processes().len()),
            (cgroups, processes),
            "{per}"
        );
    }
}
