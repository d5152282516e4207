mod lists;
mod rates;

use proptest::prelude::*;

use super::*;
use crate::clock::Clock;
use crate::history::Figure;
use crate::metrics::{Histogram, Kind, Labels, Metadata, Value};

const T: u64 = 1_700_000_000_000;

const HOUR: u64 = 3_600_000;

fn history() -> History {
    History::new(HOUR, 1000, 64 << 20)
}

fn family(name: &str, label: Option<&str>, points: &[(&str, u64, u64)]) -> Family {
    let metadata = Metadata::new(name, "help", "", Kind::Counter).unwrap();
    let point = |&(value, total, start): &(&str, u64, u64)| Point {
        labels: Labels::new(label.map(|label| (label, value))),
        value: Value::Integer(total),
        start: Timestamp(start),
    };
    Family::new(metadata, points.iter().map(point).collect())
}

/// A collection at a time in milliseconds, with context switches of cgroups: name, total, and start of the series.
fn cgroups(at: u64, points: &[(&str, u64, u64)]) -> Arc<Snapshot> {
    let family = family("perf_cgroup_context_switches", Some("cgroup"), points);
    Arc::new(Snapshot::new(Timestamp(at), [family]))
}

fn rates(history: &History, name: &str, from: u64, to: u64, step: u64) -> Vec<Option<f64>> {
    let window = Window { from: Timestamp(T + from), to: Timestamp(T + to), step: Some(step) };
    let grid = history.grid(window, 10_000);
    let subject = history.subject(Scope::Cgroup, name);
    subject.and_then(|subject| subject.values(Figure::Switches, 0.0, &grid)).unwrap_or_default()
}

#[test]
fn what_happened_between_two_collections_is_spread_over_their_steps() {
    let mut history = history();
    history.observe(&cgroups(T, &[("/a", 1000, 0)]));
    history.observe(&cgroups(T + 3000, &[("/a", 1600, 0)]));
    history.observe(&cgroups(T + 5000, &[("/a", 1600, 0)]));
    assert_eq!(
        rates(&history, "/a", 0, 6000, 1000),
        [Some(200.0), Some(200.0), Some(200.0), Some(0.0), Some(0.0)]
    );
    let observed = history.observed().unwrap();
    assert_eq!((observed.from.0, observed.to.0), (T, T + 5000));
}

#[test]
fn the_total_of_an_old_series_is_no_increment_and_that_of_a_new_one_is() {
    let mut history = history();
    history.observe(&cgroups(T, &[]));
    history.observe(&cgroups(T + 1000, &[("/old", 5000, 7), ("/new", 300, T + 500)]));
    history.observe(&cgroups(T + 2000, &[("/old", 5010, 7), ("/new", 340, T + 500)]));
    assert_eq!(rates(&history, "/old", 0, 2000, 1000), [Some(0.0), Some(10.0)]);
    assert_eq!(rates(&history, "/new", 0, 2000, 1000), [Some(300.0), Some(40.0)]);
}

#[test]
fn a_series_that_was_held_back_is_counted_from_its_start() {
    let mut history = history();
    for second in 0..4 {
        history.observe(&cgroups(T + second * 1000, &[]));
    }
    history.observe(&cgroups(T + 4000, &[("/late", 300, T + 1000)]));
    assert_eq!(rates(&history, "/late", 1000, 4000, 1000), [Some(100.0); 3]);
}

#[test]
fn a_span_is_the_whole_range_up_to_the_last_complete_step() {
    let mut history = history();
    for second in 0..=90 {
        history.observe(&cgroups(T + second * 1000, &[("/a", if second > 80 { second } else { 80 }, 0)]));
    }
    let span = history.span(Timestamp(T + 75_000), Timestamp(T + 120_000));
    assert_eq!((span.from.0, span.to().0, span.count), (T + 75_000, T + 90_000, 1));
    let subject = history.subject(Scope::Cgroup, "/a").unwrap();
    assert_eq!(subject.value(Figure::Switches, 0.0, &span), Some(10.0 / 15.0));
}

#[test]
fn new_labels_of_a_series_are_no_increment() {
    let mut history = history();
    let labelled = |at, pod: &str, total| {
        let metadata = Metadata::new("perf_cgroup_context_switches", "help", "", Kind::Counter).unwrap();
        let labels = Labels::new([("cgroup", "/a"), ("pod", pod)]);
        let point = Point { labels, value: Value::Integer(total), start: Timestamp(T + 500) };
        Arc::new(Snapshot::new(Timestamp(at), [Family::new(metadata, vec![point])]))
    };
    history.observe(&labelled(T, "", 0));
    history.observe(&labelled(T + 1000, "", 100));
    history.observe(&labelled(T + 2000, "", 200));
    history.observe(&labelled(T + 3000, "web", 300));
    history.observe(&labelled(T + 4000, "web", 400));
    assert_eq!(rates(&history, "/a", 0, 4000, 1000), [Some(100.0), Some(100.0), Some(0.0), Some(100.0)]);
    let subject = history.subject(Scope::Cgroup, "/a").unwrap();
    assert_eq!(subject.labels().get("pod"), Some("web"));
}

#[test]
fn nothing_is_known_of_a_time_without_collections() {
    let mut history = history();
    history.observe(&cgroups(T, &[("/a", 0, 0)]));
    history.observe(&cgroups(T + 1000, &[("/a", 10, 0)]));
    history.observe(&cgroups(T + 301_000, &[("/a", 90, 0)]));
    history.observe(&cgroups(T + 302_000, &[("/a", 95, 0)]));
    let rates = rates(&history, "/a", 2000, 302_000, 1000);
    assert_eq!((rates[0], rates[298], rates[299]), (None, None, Some(5.0)));
}

#[test]
fn a_family_that_is_not_measured_for_a_time_leaves_a_gap() {
    let mut history = history();
    let nothing = |at| Arc::new(Snapshot::new(Timestamp(T + at), []));
    history.observe(&cgroups(T, &[("/a", 1000, 0), ("/b", 7, 0)]));
    history.observe(&cgroups(T + 2000, &[("/a", 1200, 0), ("/b", 7, 0)]));
    history.observe(&nothing(3000));
    history.observe(&nothing(4000));
    // Measured again, as a new series. /b has no series yet, but its family is measured.
    history.observe(&cgroups(T + 5000, &[("/a", 30, T + 4000)]));
    history.observe(&cgroups(T + 6000, &[("/a", 80, T + 4000)]));
    let of = |name| rates(&history, name, 0, 6000, 1000);
    assert_eq!(of("/a"), [Some(100.0), Some(100.0), None, None, Some(30.0), Some(50.0)]);
    assert_eq!(of("/b"), [Some(0.0), Some(0.0), None, None, Some(0.0), Some(0.0)]);
}

#[test]
fn a_clock_that_was_set_back_begins_a_new_history() {
    let mut history = history();
    history.observe(&cgroups(T + 60_000, &[("/a", 0, 0)]));
    history.observe(&cgroups(T + 61_000, &[("/a", 10, 0)]));
    history.observe(&cgroups(T, &[("/a", 20, 0)]));
    history.observe(&cgroups(T + 1000, &[("/a", 50, 0)]));
    assert_eq!(rates(&history, "/a", 0, 1000, 1000), [Some(30.0)]);
}

#[test]
fn the_least_active_are_forgotten_when_the_memory_is_used_up() {
    let mut history = History::new(HOUR, 1000, 300_000);
    let names: Vec<String> = (0..1000).map(|n| format!("/c{n}")).collect();
    for second in 0..60 {
        let points: Vec<(&str, u64, u64)> =
            names.iter().enumerate().map(|(n, name)| (&**name, second * n as u64, 0)).collect();
        history.observe(&cgroups(T + second * 1000, &points));
        assert!(history.bytes() <= 300_000, "{} at {second}", history.bytes());
    }
    assert!(!rates(&history, "/c999", 0, 60_000, 1000).is_empty(), "the most active one is kept");
    assert!(rates(&history, "/c0", 0, 60_000, 1000).is_empty());
    assert!(history.forgotten() > 0);
}

#[test]
fn a_subject_without_activity_for_an_hour_is_removed() {
    let mut history = history();
    history.observe(&cgroups(T, &[("/a", 0, 0)]));
    for second in 1..3900 {
        let total = second.min(10);
        let points = [("/a", total, 0)];
        history.observe(&cgroups(T + second * 1000, if second < 100 { &points } else { &[] }));
        assert!(history.subject(Scope::Cgroup, "/a").is_some() || second > 3600, "{second}");
    }
    assert!(history.subject(Scope::Cgroup, "/a").is_none());
}

#[test]
fn a_subject_that_was_not_measured_for_an_hour_is_removed() {
    let mut history = history();
    history.observe(&cgroups(T, &[("/a", 0, 0)]));
    history.observe(&cgroups(T + 1000, &[("/a", 10, 0)]));
    for second in 1..400 {
        history.observe(&Arc::new(Snapshot::new(Timestamp(T + second * 10_000), [])));
    }
    assert!(history.subject(Scope::Cgroup, "/a").is_none());
}

#[test]
fn ratios_and_quantiles_are_those_of_the_step() {
    let mut history = history();
    let histogram = |values: &[f64]| {
        let bounds: Vec<f64> = (-20..=6).map(|exponent| 2_f64.powi(exponent)).collect();
        let mut histogram = Histogram::new(&bounds);
        values.iter().for_each(|&value| histogram.observe(value));
        let metadata =
            Metadata::new("perf_sched_runqueue_latency_seconds", "help", "seconds", Kind::Histogram).unwrap();
        let value = Value::Histogram(Arc::new(histogram));
        Family::new(metadata, vec![Point { labels: Labels::none(), value, start: Timestamp(0) }])
    };
    let at = |second: u64, cycles: u64, instructions: u64, waits: &[f64]| {
        let families = [
            family("perf_cpu_cycles", Some("cpu"), &[("0", cycles, 0), ("1", cycles, 0)]),
            family("perf_cpu_instructions", Some("cpu"), &[("0", instructions, 0)]),
            histogram(waits),
        ];
        Arc::new(Snapshot::new(Timestamp(T + second * 1000), families))
    };
    history.observe(&at(0, 1000, 0, &[0.001]));
    history.observe(&at(1, 2000, 3000, &[0.001, 0.5, 0.5]));
    history.observe(&at(2, 2000, 3000, &[0.001, 0.5, 0.5]));
    let window = Window { from: Timestamp(T), to: Timestamp(T + 2000), step: None };
    let grid = history.grid(window, 100);
    let machine = history.subject(Scope::Machine, "").unwrap();
    assert_eq!(machine.values(Figure::Ipc, 0.0, &grid), Some(vec![Some(1.5), None]));
    assert_eq!(machine.values(Figure::RunqueueLatency, 1.0, &grid), Some(vec![Some(0.5), None]));
    assert_eq!(machine.value(Figure::Ipc, 0.0, &grid), Some(1.5));
    assert_eq!(machine.values(Figure::Calls, 0.0, &grid), None, "not measured");
}

proptest! {
    /// Whatever the times of the collections, nothing is lost and nothing counted twice.
    #[test]
    fn the_steps_add_up_to_what_was_counted(increments in prop::collection::vec((1..20_000_u64, 0..2000_u64), 1..60)) {
        let (mut history, mut at, mut total) = (history(), T, 0);
        history.observe(&cgroups(at, &[("/a", 0, 0)]));
        for (after, more) in increments {
            at += after;
            total += more;
            history.observe(&cgroups(at, &[("/a", total, 0)]));
        }
        // A collection without increments ends all steps.
        history.observe(&cgroups(at + 20_000, &[("/a", total, 0)]));
        let window = Window { from: Timestamp(T), to: Timestamp(at + 20_000), step: Some(10_000) };
        let grid = history.grid(window, 10_000);
        let subject = history.subject(Scope::Cgroup, "/a").unwrap();
        let sum: f64 = subject.values(Figure::Switches, 0.0, &grid).unwrap().iter().flatten().map(|rate| rate * 10.0).sum();
        // The error of one step.
        prop_assert!((sum - total as f64).abs() <= 1.0 + total as f64 / 2048.0, "{sum} of {total}");
    }
}

/// Prints what an hour of 500 cgroups with twelve series each costs, half of which change in each second, and what their lists cost: ten
/// system calls, three states and three preempting cgroups each:
/// `cargo test --release --locked --lib -- --ignored --nocapture an_hour_of_500_cgroups`.
#[test]
#[ignore = "prints figures"]
fn an_hour_of_500_cgroups() {
    const NAMES: [&str; 12] = [
        "perf_cgroup_task_clock_seconds",
        "perf_cgroup_cycles",
        "perf_cgroup_instructions",
        "perf_cgroup_cache_misses",
        "perf_cgroup_context_switches",
        "perf_cgroup_cpu_migrations",
        "perf_cgroup_page_faults",
        "perf_cgroup_sched_preemptions",
        "perf_cgroup_forks",
        "perf_cgroup_syscalls",
        "perf_cgroup_syscall_errors",
        "perf_sched_run_seconds",
    ];
    const CALLS: &[&str] =
        &["read", "write", "futex", "poll", "close", "open", "stat", "mmap", "brk", "clone"];
    const LISTS: [Measured; 3] = [
        ("perf_cgroup_syscalls", "syscall", CALLS),
        ("perf_cgroup_sched_wait_seconds", "state", &["preempted", "sleeping", "uninterruptible"]),
        ("perf_cgroup_sched_preempted_by_cgroup", "by_cgroup", &["/x", "/y", "/z"]),
    ];
    for with_lists in [false, true] {
        measure(&NAMES, if with_lists { &LISTS } else { &[] });
    }
}

/// A family, a label, and its values.
type Measured = (&'static str, &'static str, &'static [&'static str]);

/// Prints the costs of these families, and of families with several values of a label.
fn measure(names: &[&str], lists: &[Measured]) {
    let cgroups: Vec<String> = (0..500).map(|n| format!("/kubepods.slice/pod{n}/container{n}")).collect();
    let clock = Clock::system();
    let mut history = History::new(HOUR, 1000, usize::MAX);
    let mut took = std::time::Duration::ZERO;
    for second in 0..=3600 {
        let by_name = lists.iter().map(|&(metric, label, values)| {
            let points = cgroups.iter().enumerate().flat_map(|(n, cgroup)| {
                values.iter().enumerate().map(move |(place, value)| Point {
                    labels: Labels::new([("cgroup", &**cgroup), (label, value)]),
                    value: Value::Integer(if n % 2 == 0 { second * (n + place) as u64 } else { 7 }),
                    start: Timestamp(0),
                })
            });
            Family::new(Metadata::new(metric, "help", "", Kind::Counter).unwrap(), points.collect())
        });
        let is_listed = |name: &&&str| lists.iter().all(|list| list.0 != **name);
        let families = names.iter().filter(is_listed).enumerate().map(|(place, name)| {
            let points: Vec<(&str, u64, u64)> = cgroups
                .iter()
                .enumerate()
                // Every second cgroup is idle.
                .map(|(n, cgroup)| (&**cgroup, if n % 2 == 0 { second * (n + place) as u64 } else { 7 }, 0))
                .collect();
            family(name, Some("cgroup"), &points)
        });
        let snapshot = Arc::new(Snapshot::new(Timestamp(T + second * 1000), families.chain(by_name)));
        let begin = clock.monotonic();
        history.observe(&snapshot);
        took += clock.monotonic().since(begin);
    }
    let (bytes, window) =
        (history.bytes(), Window { from: Timestamp(T), to: Timestamp(T + HOUR), step: None });
    let begin = clock.monotonic();
    let grid = history.grid(window, 300);
    let read = history
        .subjects(Scope::Cgroup)
        .filter_map(|(_, subject)| subject.values(Figure::Cpu, 0.0, &grid))
        .count();
    let lines: usize = lists.iter().map(|list| list.2.len()).sum();
    let range = history.list_range(window);
    let begin_lists = clock.monotonic();
    let listed =
        history.subjects(Scope::Cgroup).map(|(_, subject)| subject.lists(&range).len()).sum::<usize>();
    println!(
        "{lines} names for each cgroup; {listed} lists of an hour in {:.1} ms",
        clock.monotonic().since(begin_lists).as_secs_f64() * 1e3
    );
    println!(
        "{:.1} MiB, {:.0} bytes for each series; {:.2} ms for each collection; an hour of {read} series in {:.1} ms",
        bytes as f64 / f64::from(1 << 20),
        bytes as f64 / (500.0 * 12.0),
        took.as_secs_f64() / 3.6,
        clock.monotonic().since(begin).as_secs_f64() * 1e3
    );
}
