//! Reloads: what a changed entry still counts continues, and other kinds of records are undisturbed.

use perf_exporter::sys::fake::Opened;

use crate::traced::{BEGIN, WORK, World, begin, end, play, work};

fn toy(options: &str) -> String {
    format!("tracepoints: {{toy: {{{options}}}}}")
}

/// Returns the ids of the open events of a tracepoint.
fn ids(world: &World, tracepoint: u16) -> Vec<u64> {
    let opened = world.kernel.opened();
    let selected = |event: &&Opened| {
        (event.attr.selector.kind, event.attr.selector.config[0]) == (2, u64::from(tracepoint))
    };
    opened.iter().filter(selected).map(Opened::id).collect()
}

#[test]
fn another_scope_is_added_to_an_entry_and_the_totals_of_the_first_continue() {
    let mut world = World::new();
    world.apply(&toy("event: 'toy:work', labels: [kind], per: [host]"));
    world.hit(&work().kind(1));
    world.collect();
    world.hit(&work().kind(1));
    world.apply(&toy("event: 'toy:work', labels: [kind], per: [host, cpu]"));
    world.hit(&work().kind(1));
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [r#"{kind="read"} 3"#]);
    assert_eq!(scrape.of("perf_cpu_toy_total"), [r#"{cpu="0",kind="read"} 1"#]);
}

#[test]
fn an_event_is_added_to_an_entry_with_several_and_removed_and_the_others_continue() {
    let mut world = World::new();
    let with = |events: &str| toy(&format!("events: [{events}], labels: [kind]"));
    let [two, three] = ["'toy:work', 'pair:begin'", "'toy:work', 'toy:play', 'pair:begin'"].map(with);
    for (turn, configuration) in [&two, &three, &two].into_iter().enumerate() {
        world.apply(configuration);
        let hits = [work().kind(1), play()].map(|hit| world.hit(&hit));
        assert_eq!(hits, [1, usize::from(turn == 1)]);
        let of_work = format!(r#"{{event="toy:work",kind="read"}} {}"#, turn + 1);
        let of_play = r#"{event="toy:play",kind="0x0"} 1"#;
        let expected = if turn == 1 { vec![of_play, &of_work] } else { vec![&*of_work] };
        assert_eq!(world.collect().of("perf_tracepoint_toy_total"), expected, "{turn}");
    }
}

#[test]
fn other_labels_or_another_filter_begin_at_zero() {
    for other in ["labels: [flags]", "labels: [kind], filter: 'size > 5'", "labels: [kind], sum: {of: size}"]
    {
        let mut world = World::new();
        world.apply(&toy("event: 'toy:work', labels: [kind]"));
        world.hit(&work().kind(1));
        world.collect();
        world.apply(&toy(&format!("event: 'toy:work', {other}")));
        assert_eq!(world.collect().of("perf_tracepoint_toy_total"), [""; 0], "{other}");
    }
}

#[test]
fn an_entry_of_another_kind_of_record_leaves_the_events_and_the_pending_pairs_of_others_alone() {
    let mut world = World::new();
    let pair = "op: {from: 'pair:begin', to: 'pair:end', key: [key], histogram: {buckets: [1]}}";
    let with = |more: &str| format!("tracepoints:\n  {pair}\n{more}");
    world.apply(&with(""));
    let open = ids(&world, BEGIN);
    assert_eq!(world.hit(&begin(1)), 1);
    world.apply(&with("  toy: {event: 'toy:work', labels: [kind]}\n"));
    assert_eq!([end(1), work()].map(|hit| world.hit(&hit)), [1, 1]);
    assert_eq!(ids(&world, BEGIN), open);
    let scrape = world.collect();
    assert_eq!(scrape.sum("perf_tracepoint_op_seconds_count"), 1.0, "the pair was completed");
    assert_eq!(scrape.sum("perf_tracepoint_toy_total"), 1.0);

    let open = ids(&world, WORK);
    world.apply("tracepoints: {toy: {event: 'toy:work', labels: [kind]}}");
    assert_eq!((world.hit(&work()), ids(&world, WORK), ids(&world, BEGIN)), (1, open, vec![]));
    let scrape = world.collect();
    assert_eq!(scrape.sum("perf_tracepoint_toy_total"), 2.0);
    assert_eq!(scrape.records(), [Some(4.0), Some(0.0), Some(0.0)]);
}
