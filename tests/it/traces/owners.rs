//! Attribution of hits: to CPUs, cgroups and processes, and the accounting of unattributed hits.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::traced::{World, work};

/// Returns the id of a cgroup.
fn id(dir: &Path) -> u64 {
    fs::metadata(dir).unwrap().ino()
}

const CGROUPS: &str = "cgroups: {include: ['/a', '/a/x/b']}\n\
    tracepoints: {toy: {event: 'toy:work', labels: [kind], per: [cgroup]}}";

const PROCESSES: &str = "processes: {include: [{comm: 'p*'}], by: [comm]}\n\
    tracepoints: {toy: {event: 'toy:work', labels: [kind], per: [process]}}";

#[test]
fn a_hit_is_counted_for_its_cgroup_or_the_next_one_above_that_is_selected() {
    let mut world = World::new();
    let [a, x, b, c] = ["a", "a/x", "a/x/b", "c"].map(|path| id(&world.cgroup(path)));
    world.apply(CGROUPS);
    for (cgroup, hits) in [(a, 1), (x, 2), (b, 4), (c, 8), (99, 16)] {
        (0..hits).for_each(|_| assert_eq!(world.hit(&work().kind(1).in_cgroup(cgroup)), 1));
    }
    let scrape = world.collect();
    let expected = [r#"{cgroup="/a",kind="read"} 3"#, r#"{cgroup="/a/x/b",kind="read"} 4"#];
    assert_eq!(scrape.of("perf_cgroup_toy_total"), expected);
    let rest = [r#"{reason="not_selected",scope="cgroup"} 8"#, r#"{reason="unknown",scope="cgroup"} 16"#];
    assert_eq!(scrape.of("perf_unattributed_toy_total"), rest);
}

#[test]
fn with_descendants_it_is_counted_for_all_of_them_above() {
    let mut world = World::new();
    let b = id(&world.cgroup("a/x/b"));
    world.apply(&CGROUPS.replace("b']", "b'], descendants: true"));
    world.hit(&work().in_cgroup(b));
    let scrape = world.collect();
    let expected = [r#"{cgroup="/a",kind="0x0"} 1"#, r#"{cgroup="/a/x/b",kind="0x0"} 1"#];
    assert_eq!(scrape.of("perf_cgroup_toy_total"), expected);
    assert_eq!(scrape.of("perf_unattributed_toy_total"), [""; 0]);
}

#[test]
fn what_a_cgroup_hit_last_is_published_for_five_minutes_after_it_went() {
    let mut world = World::new();
    let dir = world.cgroup("a");
    world.apply(CGROUPS);
    world.hit(&work().kind(1).in_cgroup(id(&dir)));
    world.collect();
    world.hit(&work().kind(1).in_cgroup(id(&dir)));
    fs::remove_dir(&dir).unwrap();
    assert_eq!(world.collect().of("perf_cgroup_toy_total"), [r#"{cgroup="/a",kind="read"} 2"#]);
    world.advance(Duration::from_secs(298));
    assert_eq!(world.collect().of("perf_cgroup_toy_total"), [r#"{cgroup="/a",kind="read"} 2"#]);
    world.advance(Duration::from_secs(2));
    let scrape = world.collect();
    assert!(scrape.of("perf_cgroup_toy_total").is_empty());
    let folded = r#"perf_series_aggregated_total{counters="toy",leader="toy:work",scope="cgroup"}"#;
    assert_eq!(scrape.value(folded), Some(0.0));
    // A new cgroup with the same name starts a new series.
    world.hit(&work().kind(1).in_cgroup(id(&world.cgroup("a"))));
    assert_eq!(world.collect().of("perf_cgroup_toy_total"), [r#"{cgroup="/a",kind="read"} 1"#]);
}

#[test]
fn a_process_is_called_what_it_was_called_at_the_time() {
    let mut world = World::new();
    world.process(10, "p-old");
    world.apply(PROCESSES);
    world.hit(&work());
    world.rename(0, 10, b"p-new");
    world.hit(&work());
    world.hit(&work().on(1));
    let expected = [r#"{comm="p-new",kind="0x0"} 2"#, r#"{comm="p-old",kind="0x0"} 1"#];
    assert_eq!(world.collect().of("perf_process_toy_total"), expected);
    world.hit(&work());
    let expected = [r#"{comm="p-new",kind="0x0"} 3"#, r#"{comm="p-old",kind="0x0"} 1"#];
    assert_eq!(
        world.collect().of("perf_process_toy_total"),
        expected,
        "later contents of /proc must not matter"
    );
}

#[test]
fn a_process_that_renames_itself_all_the_time_has_few_series_and_takes_none_from_others() {
    let mut world = World::new();
    world.process(10, "p-0");
    world.process(11, "p-other");
    world.collector.limit_names(5);
    world.apply(PROCESSES);
    for number in 0..200 {
        world.rename(0, 10, format!("p-{number}").as_bytes());
        world.hit(&work());
        world.collect();
    }
    world.hit(&work().by(11));
    let scrape = world.collect();
    let series = scrape.of("perf_process_toy_total");
    assert!(series.len() <= 7, "{series:?}");
    assert!(series.iter().any(|series| series.contains(r#"comm="other""#)), "{series:?}");
    assert_eq!(scrape.sum("perf_process_toy_total"), 201.0);
}

#[test]
fn a_child_has_the_name_of_its_parent_until_it_takes_another() {
    let mut world = World::new();
    world.process(10, "p-shell");
    world.apply(PROCESSES);
    // On the other CPU, whose ring is read later.
    world.fork(1, 10, 20);
    world.hit(&work().by(20));
    world.rename(1, 20, b"p-ls");
    world.hit(&work().by(20));
    let expected = [r#"{comm="p-ls",kind="0x0"} 1"#, r#"{comm="p-shell",kind="0x0"} 1"#];
    assert_eq!(world.collect().of("perf_process_toy_total"), expected);
}

/// Records of cgroups are read from a separate ring, at another time.
#[test]
fn a_fork_that_another_ring_tells_late_does_not_take_a_name_away() {
    let mut world = World::new();
    world.process(10, "p-shell");
    world.apply(
        &format!("{PROCESSES}\n  cg: {{event: 'toy:play', labels: [kind], per: [cgroup]}}\n").replace(
            "tracepoints: {toy: {event: 'toy:work', labels: [kind], per: [process]}}",
            "tracepoints:\n  toy: {event: 'toy:work', labels: [kind], per: [process]}",
        ),
    );
    world.fork_in(true, 0, 10, 20);
    world.rename(0, 20, b"p-ls");
    world.collect();
    world.fork_in(false, 0, 10, 20);
    world.collect();
    world.hit(&work().by(20));
    assert_eq!(world.collect().of("perf_process_toy_total"), [r#"{comm="p-ls",kind="0x0"} 1"#]);
}

#[test]
fn a_process_that_ends_before_anybody_looks_again_has_its_name() {
    let mut world = World::new();
    world.process(10, "p-here");
    world.apply(PROCESSES);
    world.hit(&work());
    world.end_process(10);
    assert_eq!(world.collect().of("perf_process_toy_total"), [r#"{comm="p-here",kind="0x0"} 1"#]);
    world.advance(Duration::from_secs(301));
    assert!(world.collect().of("perf_process_toy_total").is_empty());
}

#[test]
fn hits_of_nobody_have_a_reason() {
    let mut world = World::new();
    world.process(10, "p");
    world.process(11, "else");
    world.apply(PROCESSES);
    let hits = [
        (work().by_thread(0, 0), 1),
        (work().by(11), 2),
        (work().by(12), 4),
        (work().by_thread(u32::MAX, u32::MAX), 8),
        (work().by(10), 16),
    ];
    for (hit, times) in &hits {
        (0..*times).for_each(|_| assert_eq!(world.hit(hit), 1));
    }
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_process_toy_total"), [r#"{comm="p",kind="0x0"} 16"#]);
    let expected = [
        r#"{reason="idle",scope="process"} 1"#,
        r#"{reason="not_selected",scope="process"} 2"#,
        r#"{reason="unknown",scope="process"} 12"#,
    ];
    assert_eq!(scrape.of("perf_unattributed_toy_total"), expected);
}

#[test]
fn one_entry_counts_for_several() {
    let mut world = World::new();
    let a = id(&world.cgroup("a"));
    world.process(10, "p");
    world.apply(
        "processes: {include: [{comm: 'p*'}], by: [comm]}\ncgroups: {include: ['/a']}\n\
         tracepoints: {toy: {event: 'toy:work', labels: [kind], per: [host, cpu, cgroup, process]}}",
    );
    assert_eq!(world.hit(&work().on(1).in_cgroup(a)), 1, "one record of losses covers all of them");
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_tracepoint_toy_total"), [r#"{kind="0x0"} 1"#]);
    assert_eq!(scrape.of("perf_cpu_toy_total"), [r#"{cpu="1",kind="0x0"} 1"#]);
    assert_eq!(scrape.of("perf_cgroup_toy_total"), [r#"{cgroup="/a",kind="0x0"} 1"#]);
    assert_eq!(scrape.of("perf_process_toy_total"), [r#"{comm="p",kind="0x0"} 1"#]);
}
