//! The time between two events.

use std::time::Duration;

use crate::traced::{BEGIN, Hit, Scrape, World, begin, end, hit, work};

const PAIR: &str = "{from: 'pair:begin', to: 'pair:end', key: [key], histogram: {buckets: [0.000001, 1]}";

/// Creates a world with a pair named `op` and more settings for it.
fn world(more: &str) -> World {
    let mut world = World::new();
    world.apply(&format!("tracepoints: {{op: {PAIR}{more}}}}}"));
    world
}

fn hits(world: &World, hits: &[Hit]) {
    hits.iter().for_each(|hit| assert_eq!(world.hit(hit), 1));
}

/// Returns the number of pairs, and the sum of their durations in seconds.
fn taken(scrape: &Scrape) -> (f64, f64) {
    (scrape.sum("perf_tracepoint_op_seconds_count"), scrape.sum("perf_tracepoint_op_seconds_sum"))
}

/// Returns the reasons for unpaired events, if there are any.
fn unpaired(scrape: &Scrape) -> Vec<&str> {
    let all = scrape.of("perf_unpaired_events_total").into_iter();
    all.filter(|rest| !rest.ends_with(" 0")).collect()
}

fn reason(reason: &str, count: u64) -> String {
    format!(r#"{{entry="op",reason="{reason}"}} {count}"#)
}

#[test]
fn what_begins_on_one_cpu_ends_on_another_whichever_ring_is_read_first() {
    let mut world = world("");
    // CPU 0 is read first, and contains an end that is later than its begin on CPU 1.
    hits(&world, &[end(7).at(2_500), begin(8).at(3_000), begin(7).on(1).at(2_000), end(8).on(1).at(4_000)]);
    let scrape = world.collect();
    let buckets = [r#"{le="1e-06"} 2"#, r#"{le="1.0"} 2"#, r#"{le="+Inf"} 2"#];
    assert_eq!(scrape.of("perf_tracepoint_op_seconds_bucket"), buckets);
    assert_eq!(taken(&scrape), (2.0, 0.000_001_5));
    assert_eq!(unpaired(&scrape), [""; 0]);
}

#[test]
fn a_pair_may_begin_in_one_collection_and_end_in_another() {
    let mut world = world("");
    hits(&world, &[begin(7)]);
    let scrape = world.collect();
    assert_eq!(taken(&scrape).0, 0.0);
    assert_eq!(scrape.of("perf_pending_events"), [r#"{entry="op"} 1"#]);
    hits(&world, &[end(7)]);
    let scrape = world.collect();
    assert_eq!(taken(&scrape), (1.0, 1.0));
    assert_eq!(scrape.of("perf_pending_events"), [r#"{entry="op"} 0"#]);
}

#[test]
fn what_finds_no_partner_has_a_reason() {
    let mut world = world(", timeout: 2s, pending: 2");
    hits(&world, &[end(1), begin(2), begin(2), begin(3), begin(4), end(4)]);
    let scrape = world.collect();
    assert_eq!(taken(&scrape).0, 0.0);
    assert_eq!(unpaired(&scrape), [reason("no_begin", 2), reason("no_end", 1), reason("table_full", 1)]);
    world.advance(Duration::from_secs(1));
    hits(&world, &[end(3)]);
    assert_eq!(taken(&world.collect()), (1.0, 1.999_999_997), "within the timeout");
    hits(&world, &[end(2)]);
    let expected =
        [reason("expired", 1), reason("no_begin", 3), reason("no_end", 1), reason("table_full", 1)];
    assert_eq!(unpaired(&world.collect()), expected);
}

#[test]
fn an_end_that_comes_too_late_is_no_latency_even_if_nobody_collected_meanwhile() {
    let mut world = world(", timeout: 1s");
    hits(&world, &[begin(1).at(0), end(1).at(1_000_000_001), begin(2).at(0), end(2).at(1_000_000_000)]);
    world.advance(Duration::from_secs(2));
    let scrape = world.collect();
    assert_eq!(taken(&scrape), (1.0, 1.0));
    assert_eq!(unpaired(&scrape), [reason("expired", 1)]);
}

#[test]
fn a_record_that_is_older_than_what_was_read_before_gives_no_negative_time() {
    let mut world = world("");
    hits(&world, &[begin(1)]);
    world.collect();
    hits(&world, &[end(1).at(-1_500_000_000)]);
    let scrape = world.collect();
    assert_eq!(taken(&scrape).0, 0.0);
    assert_eq!(unpaired(&scrape), [reason("time_reversed", 1)]);
}

#[test]
fn lost_records_leave_nobody_waiting_for_one_of_them() {
    let mut world = world("");
    hits(&world, &[begin(1), begin(2)]);
    world.lose(0, true, 5);
    hits(&world, &[end(1), begin(3), end(3)]);
    let scrape = world.collect();
    assert_eq!(taken(&scrape).0, 1.0);
    assert_eq!(unpaired(&scrape), [reason("lost", 2), reason("no_begin", 1)]);
    assert_eq!(scrape.records()[1], Some(5.0));
}

#[test]
fn what_another_ring_lost_does_not_part_pairs() {
    let mut world = World::new();
    world.apply(&format!("tracepoints:\n  op: {PAIR}}}\n  toy: {{event: 'toy:work', labels: [kind]}}"));
    hits(&world, &[work(), begin(1)]);
    world.lose(0, false, 5);
    world.collect();
    hits(&world, &[end(1)]);
    let scrape = world.collect();
    assert_eq!(taken(&scrape).0, 1.0);
    assert_eq!(unpaired(&scrape), [""; 0]);
    assert_eq!(scrape.records()[1], Some(5.0));
}

#[test]
fn labels_are_of_the_second_event_unless_only_the_first_has_them() {
    let mut world = world(", labels: {kind: kind, code: code, first: from.code}");
    hits(&world, &[begin(1).kind(1).code(-5), end(1).code(6)]);
    let scrape = world.collect();
    let count = [r#"{code="6",first="-5",kind="read"} 1"#];
    assert_eq!(scrape.of("perf_tracepoint_op_seconds_count"), count);
}

#[test]
fn a_pair_is_counted_for_who_began_it() {
    let mut world = World::new();
    world.process(10, "first");
    world.process(20, "second");
    let pair = format!("{PAIR}, per: [process, cpu]}}");
    world.apply(&format!("processes: {{include: [{{comm: '*'}}], by: [comm]}}\ntracepoints: {{op: {pair}}}"));
    hits(&world, &[begin(1).by(10), end(1).by(20).on(1)]);
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_process_op_seconds_count"), [r#"{comm="first"} 1"#]);
    assert_eq!(scrape.of("perf_cpu_op_seconds_count"), [r#"{cpu="0"} 1"#]);
}

#[test]
fn threads_processes_and_cpus_can_be_the_key() {
    let ends = [end(0).by_thread(9, 1).on(1), end(0).by_thread(9, 2), end(0).by_thread(8, 3)];
    for (key, paired) in [
        ("[$tid]", [1.0, 0.0, 0.0]),
        ("[$pid]", [1.0, 1.0, 0.0]),
        ("[$cpu]", [0.0, 1.0, 1.0]),
        ("[$cpu, $pid]", [0.0, 1.0, 0.0]),
    ] {
        for (end, paired) in ends.iter().zip(paired) {
            let mut world = World::new();
            world.apply(&format!("tracepoints: {{op: {}}}}}", PAIR.replace("[key]", key)));
            hits(&world, &[begin(0).by_thread(9, 1), end.clone()]);
            assert_eq!(taken(&world.collect()).0, paired, "{key}: {end:?}");
        }
    }
}

#[test]
fn an_event_that_lacks_its_key_is_no_part_of_a_pair() {
    let mut world = world("");
    hits(&world, &[hit(BEGIN).cut(12), end(0).cut(12), begin(0), end(0)]);
    let scrape = world.collect();
    assert_eq!(taken(&scrape).0, 1.0);
    assert_eq!(unpaired(&scrape), [""; 0]);
    assert_eq!(scrape.of("perf_dropped_hits_total"), [r#"{entry="op",reason="short"} 2"#]);
}

#[test]
fn an_event_that_is_paired_with_itself_tells_how_far_its_hits_are_apart() {
    let mut world = World::new();
    world.apply(&format!("tracepoints: {{op: {}}}}}", PAIR.replace("pair:end", "pair:begin")));
    hits(&world, &[begin(1).at(1_000), begin(2).at(1_500), begin(1).at(3_000)]);
    let scrape = world.collect();
    assert_eq!(taken(&scrape), (1.0, 0.000_002));
    assert_eq!(unpaired(&scrape), [reason("no_begin", 2)]);
}

#[test]
fn a_value_that_made_room_for_another_does_not_lend_it_its_place_in_a_pair() {
    let mut world = world(", timeout: 1h, labels: {code: from.code}, values: 1");
    hits(&world, &[begin(1).code(5)]);
    (0..32).for_each(|_| drop(world.collect_slowly()));
    hits(&world, &[begin(2).code(6), end(2), end(1)]);
    let scrape = world.collect();
    let expected = [r#"{code="6"} 1"#, r#"{code="other"} 1"#];
    assert_eq!(scrape.of("perf_tracepoint_op_seconds_count"), expected);
}

#[test]
fn another_configuration_gives_up_who_waits_and_keeps_what_was_counted() {
    let mut world = world("");
    hits(&world, &[begin(1), end(1), end(2), begin(3)]);
    world.collect();
    // Its records are read in order of time, as those of the pair.
    let ordered = "toy: {event: 'toy:work', labels: [kind], per: [process]}";
    world.apply(&format!("tracepoints:\n  op: {PAIR}}}\n  {ordered}"));
    hits(&world, &[end(3), begin(4), end(4)]);
    let scrape = world.collect();
    assert_eq!(taken(&scrape).0, 2.0);
    assert_eq!(unpaired(&scrape), [reason("lost", 1), reason("no_begin", 2)]);
}
