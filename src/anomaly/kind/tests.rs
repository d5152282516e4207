//! Figures from a history.

use std::sync::Arc;

use super::*;
use crate::anomaly::Measure;
use crate::clock::Timestamp;
use crate::history::{Additional, History, Latency, Scope, Window};
use crate::metrics::{Family, Histogram, Kind as MetricKind, Labels, Metadata, Point, Snapshot, Value};

const T: u64 = 1_700_000_000_000;

/// A counter of the cgroup `/a`: its family, another label, and its increase per second.
type Counter = (&'static str, Option<(&'static str, &'static str)>, f64);

/// Returns a measure after some seconds in which these counters increased.
fn value(measure: &Measure, counters: &[Counter]) -> Option<Option<f64>> {
    let mut history = History::new(3_600_000, 1000, usize::MAX);
    if let Measure::Ratio { of, per } = measure {
        let counters = [Arc::clone(of), Arc::clone(per)].into();
        history.set_additional(&Additional { counters, ..Additional::default() });
    }
    for second in 0..=40 {
        let family = |&(name, label, rate): &Counter| {
            let labels = Labels::new(label.into_iter().chain([("cgroup", "/a")]));
            let value = Value::Float(rate * f64::from(second));
            let unit = if name.ends_with("_seconds") { "seconds" } else { "" };
            let metadata = Metadata::new(name, "help", unit, MetricKind::Counter).unwrap();
            Family::new(metadata, vec![Point { labels, value, start: Timestamp(1) }])
        };
        let families: Vec<_> = counters.iter().map(family).collect();
        history.observe(&Arc::new(Snapshot::new(Timestamp(T + 1000 * second as u64), families)));
    }
    let window = Window { from: Timestamp(T + 20_000), to: Timestamp(T + 30_000), step: Some(10_000) };
    let grid = history.grid(window, 1);
    let values = measure.values(&history, history.subject(Scope::Cgroup, "/a")?, &grid)?;
    // Amounts are recorded with three digits.
    Some(values[0].map(|value| (value * 100.0).round() / 100.0))
}

#[test]
fn figures_of_the_scheduler_are_measured_as_it_measures() {
    let switches = ("perf_cgroup_sched_switches", Some(("kind", "involuntary")), 700.0);
    assert_eq!(value(&Kind::InvoluntarySwitches.into(), &[switches]), Some(Some(700.0)));
    let throttled = ("perf_cgroup_sched_preemptions", Some(("by", "throttled")), 8.0);
    assert_eq!(value(&Kind::Throttling.into(), &[throttled]), Some(Some(8.0)));
    let faults = ("perf_cgroup_major_faults", None, 300.0);
    assert_eq!(value(&Kind::MajorFaults.into(), &[faults]), Some(Some(300.0)));
    assert_eq!(value(&Kind::MajorFaults.into(), &[switches]), None);
}

#[test]
fn a_cgroup_that_waits_for_a_disk_is_off_the_cpu_and_an_idle_one_is_not() {
    let waits = |rate| ("perf_cgroup_sched_wait_seconds", Some(("state", "uninterruptible")), rate);
    let runs = |rate| ("perf_cgroup_task_clock_seconds", None, rate);
    let share = |counters: &[Counter]| value(&Kind::OffCpu.into(), counters);
    assert_eq!(share(&[waits(0.3), runs(0.1)]), Some(Some(0.75)));
    assert_eq!(share(&[waits(0.0), runs(1.0)]), Some(Some(0.0)));
    assert_eq!(share(&[waits(0.001), runs(0.001)]), Some(None), "too little to be a share");
    assert_eq!(share(&[runs(1.0)]), None);
}

#[test]
fn a_latency_is_the_quantile_of_one_call_and_its_utilization_the_number_of_calls() {
    let times = Latency { family: "perf_cgroup_syscall_duration_seconds".into(), call: Some("fsync".into()) };
    let mut history = History::new(3_600_000, 1000, usize::MAX);
    history.set_additional(&Additional { latencies: [times.clone()].into(), ..Additional::default() });
    for second in 0..=20_u64 {
        let [mut fsync, mut read] = [(); 2].map(|()| Histogram::new(&[0.007_812_5, 0.015_625, 1.0]));
        fsync.observe_many(0.011, second * 3);
        read.observe_many(0.5, second * 50);
        let points = [("fsync", fsync), ("read", read)].map(|(call, histogram)| Point {
            labels: Labels::new([("cgroup", "/a"), ("syscall", call)]),
            value: Value::Histogram(Arc::new(histogram)),
            start: Timestamp(1),
        });
        let metadata = Metadata::new(&times.family, "help", "seconds", MetricKind::Histogram).unwrap();
        let family = Family::new(metadata, points.into());
        history.observe(&Arc::new(Snapshot::new(Timestamp(T + 1000 * second), [family])));
    }
    let window = Window { from: Timestamp(T + 10_000), to: Timestamp(T + 20_000), step: Some(10_000) };
    let (grid, subject) = (history.grid(window, 1), history.subject(Scope::Cgroup, "/a").unwrap());
    let of = |call: &str, quantile| Measure::Latency {
        times: Latency { call: Some(call.into()), ..times.clone() },
        quantile,
    };
    let value = of("fsync", 990).values(&history, subject, &grid).unwrap()[0].unwrap();
    assert!((0.008..0.016).contains(&value), "{value}");
    let per_second = of("fsync", 990).usage(&history, subject, &grid, 0.0);
    assert!((per_second - 3.0).abs() < 0.01, "{per_second}");
    assert_eq!(of("read", 990).values(&history, subject, &grid), None, "not recorded");
}

#[test]
fn a_ratio_is_that_of_the_two_counters() {
    let measure =
        Measure::Ratio { of: "perf_cgroup_branch_misses".into(), per: "perf_cgroup_branches".into() };
    let (misses, branches) =
        (("perf_cgroup_branch_misses", None, 50.0), ("perf_cgroup_branches", None, 1000.0));
    assert_eq!(value(&measure, &[misses, branches]), Some(Some(0.05)));
    assert_eq!(value(&measure, &[misses]), None, "one of both is not measured");
    assert_eq!(value(&measure, &[misses, ("perf_cgroup_branches", None, 0.0)]), Some(None));
    assert_eq!(measure.to_string(), "perf_cgroup_branch_misses/perf_cgroup_branches");
}
