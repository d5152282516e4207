//! Content of records: labels, sums, histograms.

use std::fs;

use crate::traced::{Hit, Scrape, WORK, World, begin, play, work};

/// Returns the scrape of an entry named `toy` after these hits.
fn scrape_of(entry: &str, hits: &[Hit]) -> Scrape {
    let mut world = World::new();
    world.apply(&format!("tracepoints: {{toy: {entry}}}"));
    hits.iter().for_each(|hit| assert_eq!(world.hit(hit), 1));
    world.collect()
}

#[test]
fn labels_are_what_the_kernel_would_print() {
    let mut world = World::new();
    let functions = "ffffffff81000000 T first\nffffffff81000040 t do_work\nffffffff81000080 T next\n";
    fs::write(world.roots.proc.join("kallsyms"), functions).unwrap();
    world.apply("tracepoints: {toy: {event: 'toy:work', labels: {kind: kind, flags: flags, to: function, task: task, path: path}}}");
    world.hit(&work().kind(1).flags(3).function(0xffff_ffff_8100_0050).task(b"sh").path(b"/tmp/a\0"));
    world.hit(&work().kind(7).flags(4).function(5).on(1));
    world.hit(&work().kind(7).flags(4).function(5));
    assert_eq!(
        world.collect().of("perf_tracepoint_toy_total"),
        [
            r#"{flags="0x4",kind="0x7",to="0x5"} 2"#,
            r#"{flags="SYNC|META",kind="read",path="/tmp/a",task="sh",to="do_work"} 1"#,
        ]
    );
}

#[test]
fn functions_are_addresses_where_the_kernel_hides_its_symbols() {
    let hits = [work().function(0xffff_ffff_8100_0050)];
    let scrape = scrape_of("{event: 'toy:work', labels: [function]}", &hits);
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [r#"{function="0xffffffff81000050"} 1"#]);
}

#[test]
fn texts_of_an_enemy_are_escaped() {
    let hits = [work().task(b"a\"b\nc\\"), work().task(b"\xff\xfe{}")];
    let scrape = scrape_of("{event: 'toy:work', labels: [task]}", &hits);
    let expected = [r#"{task="a\"b\nc\\"} 1"#, "{task=\"\u{fffd}\u{fffd}{}\"} 1"];
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), expected);
}

#[test]
fn what_is_known_of_every_hit_can_be_a_label() {
    let hits = [work().on(1).by_thread(7, 8), work().on(1).by_thread(7, 9), work().by_thread(7, 8)];
    let scrape = scrape_of("{event: 'toy:work', labels: {cpu: $cpu, pid: $pid, tid: $tid}}", &hits);
    let expected = [
        r#"{cpu="0",pid="7",tid="8"} 1"#,
        r#"{cpu="1",pid="7",tid="8"} 1"#,
        r#"{cpu="1",pid="7",tid="9"} 1"#,
    ];
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), expected);
}

#[test]
fn values_beyond_the_limit_are_counted_together() {
    let hits: Vec<Hit> = (0..10).map(|task| work().task(&[b'a' + task])).collect();
    let scrape = scrape_of("{event: 'toy:work', labels: [task], values: 3}", &hits);
    let expected = [r#"{task="a"} 1"#, r#"{task="b"} 1"#, r#"{task="c"} 1"#, r#"{task="other"} 7"#];
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), expected);
}

#[test]
fn a_value_that_nobody_meets_makes_room_for_others_after_five_minutes_and_nothing_is_lost() {
    let mut world = World::new();
    world.apply("tracepoints: {toy: {event: 'toy:work', labels: [task], values: 2}}");
    let tasks = |scrape: &Scrape| scrape.of("perf_tracepoint_toy_total").join(" ");
    world.hit(&work().task(b"old"));
    for _ in 0..40 {
        world.collect_slowly();
    }
    assert_eq!(tasks(&world.collect_slowly()), r#"{task="old"} 1"#, "the limit is not reached");
    world.hit(&work().task(b"busy"));
    world.hit(&work().task(b"late"));
    // The series is freed at the end of a collection, and then given to the next new label value.
    assert_eq!(tasks(&world.collect_slowly()), r#"{task="busy"} 1 {task="other"} 1"#);
    for round in 1..=29 {
        world.hit(&work().task(b"new"));
        assert_eq!(world.collect_slowly().sum("perf_tracepoint_toy_total"), f64::from(2 + round));
    }
    world.hit(&work().task(b"late"));
    assert_eq!(tasks(&world.collect_slowly()), r#"{task="busy"} 1 {task="new"} 29 {task="other"} 2"#);
    world.hit(&work().task(b"late"));
    assert_eq!(tasks(&world.collect_slowly()), r#"{task="new"} 29 {task="other"} 3"#);
    world.hit(&work().task(b"late"));
    let scrape = world.collect_slowly();
    assert_eq!(tasks(&scrape), r#"{task="late"} 1 {task="new"} 29 {task="other"} 3"#);
    let folded = r#"perf_series_aggregated_total{counters="toy",leader="toy:work",scope="host"}"#;
    assert_eq!(scrape.value(folded), Some(0.0));
}

#[test]
fn series_beyond_the_limit_are_counted_together() {
    let mut world = World::new();
    world.series = 2;
    world.apply("tracepoints: {toy: {event: 'toy:work', labels: [task, kind], per: [host, cpu]}}");
    for (task, cpu) in [(b"a", 0), (b"b", 0), (b"c", 1), (b"d", 1)] {
        world.hit(&work().task(task).on(cpu));
        world.collect();
    }
    let scrape = world.collect();
    let expected =
        [r#"{kind="0x0",task="a"} 1"#, r#"{kind="0x0",task="b"} 1"#, r#"{kind="other",task="other"} 2"#];
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), expected);
    let expected = [
        r#"{cpu="0",kind="0x0",task="a"} 1"#,
        r#"{cpu="0",kind="0x0",task="b"} 1"#,
        r#"{cpu="other",kind="other",task="other"} 2"#,
    ];
    assert_eq!(scrape.of("perf_cpu_toy_total"), expected);
}

#[test]
fn a_smaller_limit_takes_the_labels_of_the_series_with_the_fewest_recent_hits() {
    let mut world = World::new();
    let entry = "tracepoints: {toy: {event: 'toy:work', labels: [task], per: [host]}}";
    world.apply(entry);
    for (task, times) in [(b"a", 20), (b"b", 1), (b"c", 20)] {
        (0..times).for_each(|_| assert_eq!(world.hit(&work().task(task)), 1));
    }
    world.collect();
    world.series = 2;
    world.apply(entry);
    world.hit(&work().task(b"b"));
    let expected = [r#"{task="a"} 20"#, r#"{task="b"} 2"#, r#"{task="c"} 20"#];
    assert_eq!(
        world.collect().of("perf_tracepoint_toy_total"),
        expected,
        "the series is published for the last time"
    );
    world.hit(&work().task(b"b"));
    let expected = [r#"{task="a"} 20"#, r#"{task="c"} 20"#, r#"{task="other"} 1"#];
    assert_eq!(world.collect().of("perf_tracepoint_toy_total"), expected);
    let folded = r#"perf_series_aggregated_total{counters="toy",leader="toy:work",scope="host"}"#;
    assert_eq!(world.collect().value(folded), Some(1.0));
}

/// At most 65 536 label values are kept apart until the next collection.
#[test]
fn more_label_sets_than_there_is_room_for_are_counted_together() {
    let mut world = World::new();
    world.apply(
        "tracepoints: {toy: {event: 'toy:work', labels: {pid: $pid, tid: $tid}, values: 500, per: [host, cpu]}}",
    );
    let opened = world.kernel.opened();
    let event = opened.iter().find(|event| event.attr.selector.config[0] == u64::from(WORK)).unwrap();
    let fields = event.attr.sampling.unwrap().fields;
    let hits = (0..70_000).map(|number| work().by_thread(number % 300, number / 300));
    let records: Vec<u8> = hits.flat_map(|hit| hit.record(event.id(), 0, &fields)).collect();
    world.write(0, false, &records);
    let scrape = world.collect();
    assert_eq!(scrape.sum("perf_tracepoint_toy_total"), 70_000.0);
    assert_eq!(scrape.of("perf_tracepoint_toy_total").len(), 101);
    let rest = scrape.value(r#"perf_unattributed_toy_total{reason="unknown",scope="cpu"}"#);
    assert_eq!(rest, Some(f64::from(70_000 - (1 << 16))));
    assert_eq!(scrape.sum("perf_cpu_toy_total"), f64::from(1 << 16));
}

#[test]
fn several_events_are_told_apart_and_each_calls_its_numbers_what_it_wants() {
    let hits = [work().kind(1), play().kind(1), play().kind(1), work().kind(2)];
    let scrape = scrape_of("{event: 'toy:*', labels: [kind]}", &hits);
    let expected = [
        r#"{event="toy:play",kind="piano"} 2"#,
        r#"{event="toy:work",kind="read"} 1"#,
        r#"{event="toy:work",kind="write"} 1"#,
    ];
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), expected);
}

#[test]
fn sums_are_in_the_base_unit_and_hits_stand_beside_them() {
    let hits = [work().size(3), work().size(5).on(1)];
    let scrape = scrape_of("{event: 'toy:work', sum: {of: size, unit: kibibytes}, per: [host, cpu]}", &hits);
    assert_eq!(scrape.of("perf_tracepoint_toy_bytes_total"), [" 8192.0"]);
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [" 2"]);
    assert_eq!(scrape.of("perf_cpu_toy_bytes_total"), [r#"{cpu="0"} 3072.0"#, r#"{cpu="1"} 5120.0"#]);
}

#[test]
fn hits_on_all_cpus_of_a_numa_node_are_added_up() {
    let mut world = World::new();
    world.set_nodes(&["", "0-1"]);
    world.apply("tracepoints: {toy: {event: 'toy:work', labels: [task], per: [cpu, numa]}}");
    for hit in [work().task(b"a"), work().task(b"a").on(1), work().task(b"b").on(1)] {
        assert_eq!(world.hit(&hit), 1);
    }
    let scrape = world.collect();
    let of_cpus = [r#"{cpu="0",task="a"} 1"#, r#"{cpu="1",task="a"} 1"#, r#"{cpu="1",task="b"} 1"#];
    assert_eq!(scrape.of("perf_cpu_toy_total"), of_cpus);
    assert_eq!(
        scrape.of("perf_numa_toy_total"),
        [r#"{numa_node="1",task="a"} 2"#, r#"{numa_node="1",task="b"} 1"#]
    );
}

#[test]
fn a_sum_without_a_unit_is_called_after_its_field() {
    let scrape = scrape_of("{event: 'toy:work', sum: {of: size}}", &[work().size(3), work().size(4)]);
    assert_eq!(scrape.of("perf_tracepoint_toy_size_total"), [" 7"]);
}

#[test]
fn histograms_are_in_the_base_unit_and_count_the_hits() {
    let entry = "{event: 'toy:work', histogram: {of: size, unit: microseconds, buckets: [0.001, 0.01]}}";
    let hits = [work().size(1000), work().size(1001), work().size(20_000)];
    let scrape = scrape_of(entry, &hits);
    let buckets = scrape.of("perf_tracepoint_toy_seconds_bucket");
    assert_eq!(buckets, [r#"{le="0.001"} 1"#, r#"{le="0.01"} 2"#, r#"{le="+Inf"} 3"#]);
    assert_eq!(scrape.value("perf_tracepoint_toy_seconds_sum"), Some(0.022_001));
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [""; 0]);
}

#[test]
fn a_negative_number_is_not_added_up_and_told() {
    for (entry, count) in [
        ("{event: 'toy:work', sum: {of: size}}", "perf_tracepoint_toy_total"),
        ("{event: 'toy:work', histogram: {of: size}}", "perf_tracepoint_toy_count"),
    ] {
        let scrape = scrape_of(entry, &[work().size(-1), work().size(0), work().size(i64::MIN)]);
        assert_eq!(scrape.value(count), Some(1.0), "{entry}");
        assert_eq!(scrape.of("perf_dropped_hits_total"), [r#"{entry="toy",reason="negative"} 2"#]);
    }
}

#[test]
fn a_record_that_lacks_a_field_has_no_value_for_its_label_and_adds_nothing_to_its_sum() {
    let short = work().size(9).task(b"sh").cut(28);
    let scrape = scrape_of("{event: 'toy:work', labels: [task]}", &[short.clone(), work().task(b"sh")]);
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [" 1", r#"{task="sh"} 1"#]);
    let scrape = scrape_of("{event: 'toy:work', sum: {of: size}}", &[short, work().size(1)]);
    assert_eq!(scrape.of("perf_tracepoint_toy_size_total"), [" 1"]);
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [" 1"]);
    assert_eq!(scrape.of("perf_dropped_hits_total"), [r#"{entry="toy",reason="short"} 1"#]);
}

#[test]
fn a_text_that_lies_beyond_its_record_is_no_value() {
    let hit = work().put(48, &(40_000u32 | 9 << 16).to_ne_bytes());
    let scrape = scrape_of("{event: 'toy:work', labels: [path]}", &[hit]);
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [" 1"]);
}

#[test]
fn one_entry_does_not_see_the_events_of_another() {
    let mut world = World::new();
    world.apply(
        "tracepoints:\n  toy: {event: 'toy:work', labels: [kind]}\n  other: {event: 'pair:begin', labels: [kind]}",
    );
    world.hit(&work().kind(1));
    world.hit(&begin(1).kind(2));
    world.hit(&begin(1).kind(2));
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [r#"{kind="read"} 1"#]);
    assert_eq!(scrape.of("perf_tracepoint_other_total"), [r#"{kind="write"} 2"#]);
}
