//! Rates that no page shows, and counters whose names are not fixed.

use super::*;

/// A collection with a counter of a cgroup, by the values of another label.
fn labelled(at: u64, name: &str, (label, values): (&str, &[(&str, u64)])) -> Arc<Snapshot> {
    let point = |&(value, total): &(&str, u64)| Point {
        labels: Labels::new([("cgroup", "/a"), (label, value)]),
        value: Value::Integer(total),
        start: Timestamp(1),
    };
    let metadata = Metadata::new(name, "help", "", Kind::Counter).unwrap();
    Arc::new(Snapshot::new(Timestamp(at), [Family::new(metadata, values.iter().map(point).collect())]))
}

fn rates_of(history: &History, rate: Rate) -> Option<Vec<Option<f64>>> {
    let window = Window { from: Timestamp(T), to: Timestamp(T + 3000), step: Some(1000) };
    history.subject(Scope::Cgroup, "/a")?.rates(rate, &history.grid(window, 10))
}

#[test]
fn only_preemptions_of_a_throttled_cgroup_are_throttling_and_others_show_that_it_is_measured() {
    let mut history = history();
    let name = "perf_cgroup_sched_preemptions";
    history.observe(&labelled(T, name, ("by", &[("other", 10)])));
    history.observe(&labelled(T + 1000, name, ("by", &[("other", 90)])));
    history.observe(&labelled(T + 2000, name, ("by", &[("other", 90), ("throttled", 3)])));
    history.observe(&labelled(T + 3000, name, ("by", &[("other", 95), ("throttled", 10)])));
    let throttling = rates_of(&history, Rate::Throttling).unwrap();
    assert_eq!((throttling[0], throttling[2]), (Some(0.0), Some(7.0)));
    assert_eq!(rates_of(&history, Rate::InvoluntarySwitches), None, "not measured");
}

#[test]
fn involuntary_switches_and_uninterruptible_sleep_are_separate_from_the_others() {
    let mut history = history();
    let of_switches = |at, total| {
        labelled(
            at,
            "perf_cgroup_sched_switches",
            ("kind", &[("involuntary", total), ("voluntary", total * 9)]),
        )
    };
    for second in 0..=3 {
        history.observe(&of_switches(T + second * 1000, second * 20));
    }
    assert_eq!(rates_of(&history, Rate::InvoluntarySwitches), Some(vec![Some(20.0); 3]));
    let mut history = self::history();
    let of_waits = |at, total| {
        labelled(
            at,
            "perf_cgroup_sched_wait_seconds",
            ("state", &[("sleeping", 7), ("uninterruptible", total)]),
        )
    };
    for second in 0..=3 {
        history.observe(&of_waits(T + second * 1000, second * 2));
    }
    // Amounts are recorded with three digits.
    let threads: Vec<_> =
        rates_of(&history, Rate::Blocked).unwrap().into_iter().map(|rate| rate.unwrap().round()).collect();
    assert_eq!(threads, [2.0; 3]);
}

#[test]
fn a_counter_is_recorded_by_its_name_and_forgotten_with_it() {
    let mut history = history();
    let counters: Arc<[Arc<str>]> =
        ["perf_cgroup_branches".into(), "perf_cgroup_branch_misses".into()].into();
    history.set_additional(&Additional { counters: Arc::clone(&counters), ..Additional::default() });
    let of_misses = |at, total| labelled(at, "perf_cgroup_branch_misses", ("pmu", &[("cpu", total)]));
    for second in 0..=3 {
        history.observe(&of_misses(T + second * 1000, second * 5));
    }
    let rate = history.counter("perf_cgroup_branch_misses").unwrap();
    assert_eq!(rate, Rate::Counter(1));
    assert_eq!(rates_of(&history, rate), Some(vec![Some(5.0); 3]));
    assert_eq!(rates_of(&history, history.counter("perf_cgroup_branches").unwrap()), None);
    history.set_additional(&Additional { counters: counters[..1].into(), ..Additional::default() });
    assert_eq!(history.counter("perf_cgroup_branch_misses"), None);
    assert_eq!(rates_of(&history, rate), None, "its past is gone");
}
