//! Opened events, unreadable records, and state that survives changes.

use std::time::Duration;

use perf_exporter::error::Errno;
use perf_exporter::sys::fake::{FakePlace, Opened};

use crate::traced::{BEGIN, PLAY, WORK, World, begin, end, play, record, work};

const TOY: &str = "tracepoints: {toy: {event: 'toy:work', labels: [kind]}}";

/// One entry with unordered records, and one with ordered records.
const BOTH: &str = "tracepoints:\n  toy: {event: 'toy:work', labels: [kind]}\n  \
    op: {from: 'pair:begin', to: 'pair:end', key: [key], histogram: {buckets: [1]}}";

fn is(id: u16) -> impl Fn(&Opened) -> bool {
    move |event| event.attr.selector.kind == 2 && event.attr.selector.config[0] == u64::from(id)
}

#[test]
fn hits_without_a_question_about_fields_are_counted_without_records() {
    let mut world = World::new();
    world.apply("tracepoints: {toy: {event: 'toy:*', per: [host, cpu]}}");
    assert_eq!(world.sampled(), []);
    world.kernel.update(|event| {
        let played = u64::from(event.attr.selector.config[0] == u64::from(PLAY));
        (event.count.value, event.count.enabled, event.count.running) = (3 + played, 1000, 1000);
    });
    let scrape = world.collect();
    let expected = [r#"{event="toy:play"} 8"#, r#"{event="toy:work"} 6"#];
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), expected);
    assert_eq!(scrape.of("perf_cpu_toy_total").len(), 4);
    assert_eq!(scrape.of("perf_ring_records_total"), [""; 0]);
}

#[test]
fn an_event_of_several_entries_is_opened_once_and_with_another_filter_twice() {
    let mut world = World::new();
    world.apply(
        "tracepoints:\n  a: {event: 'toy:work', labels: [kind]}\n  b: {event: 'toy:*', sum: {of: size}}\n  \
         c: {event: 'toy:work', labels: [kind], filter: 'size > 5'}",
    );
    let ids = |found: Vec<(u64, u32, bool)>| found.iter().map(|&(id, cpu, _)| (id, cpu)).collect::<Vec<_>>();
    let [work_id, play_id] = [WORK, PLAY].map(u64::from);
    let expected = [(work_id, 0), (play_id, 0), (work_id, 0), (work_id, 1), (play_id, 1), (work_id, 1)];
    let mut found = ids(world.sampled());
    let mut expected = expected.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let filters: Vec<_> = world.kernel.opened().into_iter().filter_map(|event| event.attr.filter).collect();
    assert_eq!(filters.len(), 2);
    assert_eq!(&*filters[0], "size > 5");
    world.hit(&play().size(4));
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_tracepoint_b_size_total"), [r#"{event="toy:play"} 4"#]);
    assert_eq!(scrape.of("perf_tracepoint_a_total"), [""; 0]);
    // Including the events that hold the rings.
    assert_eq!((world.kernel.opened().len(), world.collector.budget().used), (8, 8));
}

#[test]
fn records_carry_only_what_somebody_asks_for() {
    let fields = |entry: &str| {
        let mut world = World::new();
        world.apply(&format!("tracepoints: {{toy: {{event: 'toy:work', {entry}}}}}"));
        let opened = world.kernel.opened();
        let sampling = opened.iter().find(|event| is(WORK)(event)).unwrap().attr.sampling.unwrap();
        let fields = sampling.fields;
        assert!(fields.identifier && fields.raw && fields.read.is_none());
        (fields.tid, fields.time, fields.cgroup, sampling.ordered)
    };
    assert_eq!(fields("labels: [kind]"), (false, false, false, false));
    assert_eq!(fields("labels: [kind], per: [cpu]"), (false, false, false, false));
    assert_eq!(fields("labels: {pid: $pid}"), (true, false, false, false));
    assert_eq!(fields("labels: [kind], per: [cgroup]"), (false, false, true, false));
    assert_eq!(fields("labels: [kind], per: [process]"), (true, true, false, true));
}

#[test]
fn what_is_no_hit_of_an_event_is_counted_and_left_out() {
    let mut world = World::new();
    world.apply(BOTH);
    let opened = world.kernel.opened();
    let event = opened.iter().find(|event| is(WORK)(event)).unwrap();
    let fields = event.attr.sampling.unwrap().fields;
    // An unknown event id, the number of another tracepoint, no number, and a truncated record.
    world.write(0, false, &work().record(999, 0, &fields));
    world.write(0, false, &play().record(event.id(), 0, &fields));
    world.write(0, false, &work().cut(0).record(event.id(), 0, &fields));
    world.write(0, false, &record(9, &[1; 8]));
    world.write(1, true, &record(9, &[1; 8]));
    world.hit(&work());
    world.hit(&work().on(1));
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [r#"{kind="0x0"} 2"#]);
    assert_eq!(scrape.records(), [Some(2.0), Some(0.0), Some(5.0)]);
    // After an invalid header, the rest of the bytes is discarded.
    world.write(0, false, &[0; 8]);
    world.write(1, true, &[0; 8]);
    world.hit(&work());
    world.hit(&work().on(1));
    assert_eq!(world.collect().records(), [Some(3.0), Some(0.0), Some(7.0)]);
}

#[test]
fn records_of_kinds_that_nobody_asked_for_are_passed_over() {
    let mut world = World::new();
    world.apply(BOTH);
    for kind in [1, 5, 6, 12, 4711] {
        [false, true].into_iter().for_each(|ordered| world.tell(0, ordered, kind, &[0; 24]));
    }
    assert_eq!(world.collect().records(), [Some(0.0), Some(0.0), Some(0.0)]);
}

#[test]
fn what_was_lost_is_counted_and_its_ring_grows_once_for_it() {
    let mut world = World::new();
    world.apply(TOY);
    let bytes = |world: &World| world.collector.tracer_state().unwrap().ring_bytes();
    let before = bytes(&world);
    world.hit(&work());
    world.lose(0, false, 7);
    assert_eq!(world.collect().records(), [Some(1.0), Some(7.0), Some(0.0)]);
    let after = bytes(&world);
    assert_eq!(after, before / 2 * 5, "four times as large on one of two CPUs");
    assert_eq!(world.hit(&work()), 1);
    assert_eq!(world.collect().of("perf_tracepoint_toy_total"), [r#"{kind="0x0"} 2"#]);
    assert_eq!(bytes(&world), after);
}

/// The kernel reports losses only in front of the next record, which may not come for a long time.
#[test]
fn hits_that_were_counted_and_not_written_are_lost_although_nobody_has_told_yet() {
    let mut world = World::new();
    world.apply(BOTH);
    [work(), begin(1)].iter().for_each(|hit| assert_eq!(world.hit(hit), 1));
    world.collect();
    world.kernel.update(|event| {
        let first = event.place == FakePlace::Cpu(0);
        event.count.value = if first && (is(WORK)(event) || is(BEGIN)(event)) { 4 } else { 0 };
    });
    world.collect();
    let scrape = world.collect();
    assert_eq!(scrape.records(), [Some(2.0), Some(6.0), Some(0.0)]);
    let lost = r#"perf_unpaired_events_total{entry="op",reason="lost"}"#;
    assert_eq!(scrape.value(lost), Some(1.0));
    // A loss that is reported later is not counted twice.
    world.lose(0, false, 3);
    world.lose(0, true, 3);
    assert_eq!(world.collect().records(), [Some(2.0), Some(6.0), Some(0.0)]);
}

#[test]
fn a_ring_that_the_kernel_does_not_let_grow_goes_on_as_it_is() {
    let mut world = World::new();
    world.kernel.limit_rings(4);
    world.apply(TOY);
    let before = world.collector.tracer_state().unwrap().ring_bytes();
    world.lose(0, false, 7);
    world.collect();
    assert_eq!(world.collector.tracer_state().unwrap().ring_bytes(), before);
    world.hit(&work());
    assert_eq!(world.collect().of("perf_tracepoint_toy_total"), [r#"{kind="0x0"} 1"#]);
}

#[test]
fn a_refused_event_takes_no_other_down() {
    let mut world = World::new();
    world.kernel.refuse(Errno::EACCES, |attr, _, _| attr.selector.config[0] == u64::from(WORK));
    world.apply(&format!("{BOTH}\n  all: {{event: 'toy:*', labels: [kind]}}"));
    assert_eq!([work(), play(), begin(1), end(1)].map(|hit| world.hit(&hit)), [0, 1, 1, 1]);
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_tracepoint_all_total"), [r#"{event="toy:play",kind="0x0"} 1"#]);
    assert_eq!(scrape.sum("perf_tracepoint_op_seconds_count"), 1.0);
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [""; 0]);
    let reasons = world.reasons();
    assert_eq!(reasons.len(), 2, "one reason for each entry is expected: {reasons:?}");
    assert!(reasons.iter().all(|reason| reason.starts_with("toy:work on cpu 0: forbidden: ")), "{reasons:?}");
}

#[test]
fn an_event_may_be_refused_on_one_cpu_alone() {
    let mut world = World::new();
    world.kernel.refuse(Errno::EIO, |attr, place, _| {
        attr.selector.config[0] == u64::from(WORK) && place == FakePlace::Cpu(1)
    });
    world.apply(TOY);
    assert_eq!([work(), work().on(1)].map(|hit| world.hit(&hit)), [1, 0]);
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [r#"{kind="0x0"} 1"#]);
    let state = |state| format!(r#"perf_event_state{{event="toy:work",scope="host",state="{state}"}}"#);
    assert_eq!(scrape.value(&state("counting")), Some(1.0), "{:?}", scrape.of("perf_event_state"));
    assert_eq!(scrape.value(&state("broken")), Some(1.0));
    assert_eq!(world.collector.trace_states()[0].open, [1]);
}

#[test]
fn a_filter_that_the_kernel_refuses_is_told_apart_from_the_event() {
    let mut world = World::new();
    world.kernel.refuse(Errno::EINVAL, |attr, _, _| attr.filter.is_some());
    world.apply("tracepoints: {toy: {event: 'toy:work', filter: 'size > 5', labels: [kind]}}");
    let reasons = world.reasons();
    let expected = "toy:work on cpu 0: broken: the kernel rejects the filter \"size > 5\" (EINVAL";
    assert!(reasons.len() == 1 && reasons[0].starts_with(expected), "{reasons:?}");
    assert_eq!(world.collector.budget().used, 0);
}

#[test]
fn what_does_not_fit_into_the_descriptors_is_told_and_given_back() {
    let mut world = World::with_descriptors(2);
    world.apply(BOTH);
    assert_eq!((world.sampled().len(), world.collector.budget().used), (1, 2));
    let reasons = world.reasons();
    assert!(reasons[0].contains("the budget of 2 descriptors is used up; raise LimitNOFILE"), "{reasons:?}");
    world.apply("tracepoints: {}");
    assert_eq!((world.kernel.opened().len(), world.collector.budget().used), (0, 0));
    assert!(world.reasons().is_empty(), "{:?}", world.reasons());
}

#[test]
fn without_memory_for_a_ring_nothing_stays_open() {
    let mut world = World::new();
    world.kernel.limit_rings(0);
    world.apply(TOY);
    let reasons = world.reasons();
    assert!(reasons[0].contains("no more memory may be locked for its ring"), "{reasons:?}");
    assert_eq!((world.kernel.opened().len(), world.collector.budget().used), (0, 0));
    world.collect();
    world.kernel.limit_rings(1024);
    world.apply(TOY);
    assert!(world.reasons().is_empty() && world.sampled().len() == 2, "{:?}", world.reasons());
}

#[test]
fn another_configuration_keeps_the_totals_of_what_it_shares_with_the_one_before() {
    let mut world = World::new();
    world.apply(
        "tracepoints:\n  a: {event: 'toy:work', labels: [kind]}\n  b: {event: 'toy:play', labels: [kind]}",
    );
    [work().kind(1), play()].iter().for_each(|hit| assert_eq!(world.hit(hit), 1));
    world.collect();
    world.hit(&work().kind(2));
    world.apply(
        "tracepoints:\n  c: {event: 'toy:play', labels: [kind]}\n  a: {event: 'toy:work', labels: [kind]}",
    );
    [work().kind(2), play()].iter().for_each(|hit| assert_eq!(world.hit(hit), 1));
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_tracepoint_a_total"), [r#"{kind="read"} 1"#, r#"{kind="write"} 2"#]);
    assert_eq!(scrape.of("perf_tracepoint_b_total"), [""; 0]);
    assert_eq!(scrape.of("perf_tracepoint_c_total"), [r#"{kind="0x0"} 1"#]);
    assert_eq!(scrape.records()[0], Some(5.0));
    let calls = world.kernel.open_calls();
    world.apply(
        "tracepoints:\n  c: {event: 'toy:play', labels: [kind]}\n  a: {event: 'toy:work', labels: [kind]}",
    );
    assert_eq!(world.kernel.open_calls(), calls, "events of unchanged entries are not reopened");
}

#[test]
fn another_configuration_does_not_make_room_for_more_values() {
    let mut world = World::new();
    for (number, entry) in ["a", "b", "c"].iter().enumerate() {
        let toy = "toy: {event: 'toy:work', labels: [kind], values: 2}";
        world.apply(&format!("tracepoints:\n  {toy}\n  {entry}: {{event: 'toy:play', labels: [kind]}}"));
        for kind in 1..=3 {
            world.hit(&work().kind(10 * number as u32 + kind));
        }
        world.collect();
    }
    let expected = [r#"{kind="other"} 7"#, r#"{kind="read"} 1"#, r#"{kind="write"} 1"#];
    assert_eq!(world.collect().of("perf_tracepoint_toy_total"), expected);
}

#[test]
fn what_a_cpu_wrote_before_it_went_is_counted_and_it_goes_on_when_it_comes_back() {
    let mut world = World::new();
    world.apply(BOTH);
    [work().on(1), begin(1), end(1).on(1)].iter().for_each(|hit| assert_eq!(world.hit(hit), 1));
    world.set_online("0\n");
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [r#"{kind="0x0"} 1"#]);
    assert_eq!(scrape.sum("perf_tracepoint_op_seconds_count"), 1.0);
    assert_eq!(scrape.records(), [Some(3.0), Some(0.0), Some(0.0)]);
    assert_eq!(world.hit(&work().on(1)), 0);
    assert_eq!((world.kernel.opened().len(), world.collector.budget().used), (5, 5));
    world.set_online("0-1\n");
    world.collect();
    assert_eq!(world.hit(&work().on(1)), 1);
    assert_eq!(world.collect().of("perf_tracepoint_toy_total"), [r#"{kind="0x0"} 2"#]);
}

#[test]
fn what_was_refused_on_a_cpu_is_tried_again_when_that_comes_back() {
    let mut world = World::new();
    world.kernel.limit_descriptors(3);
    world.apply(TOY);
    assert_eq!(world.sampled(), [(WORK.into(), 0, false)]);
    assert_eq!(world.reasons().len(), 1);
    world.set_online("0\n");
    world.collect();
    assert!(world.reasons().is_empty(), "{:?}", world.reasons());
    world.kernel.limit_descriptors(100);
    world.set_online("0-1\n");
    world.collect();
    assert_eq!(world.sampled().len(), 2);
}

#[test]
fn the_end_publishes_what_was_hit_last() {
    let mut world = World::new();
    world.apply(BOTH);
    [work(), begin(1), end(1)].iter().for_each(|hit| assert_eq!(world.hit(hit), 1));
    world.advance(Duration::from_millis(1));
    world.collector.finish();
    let states = world.collector.trace_states();
    assert_eq!(states.iter().map(|state| state.hits).collect::<Vec<_>>(), [1, 1]);
}
