//! The quality of figures from a history, and the boundaries of what is judged.

use std::sync::Arc;

use super::*;
use crate::anomaly::{Baseline, Detector, Kind, Method, Sample, Threshold, Unjudged, Verdict};
use crate::clock::Timestamp;
use crate::history::{Additional, Scope, Window};
use crate::metrics::{Family, Kind as MetricKind, Labels, Metadata, Point, Snapshot, Value};

const T: u64 = 1_700_000_000_000;

/// A series: its family, labels, total and start.
type Series<'s> = (&'static str, &'s [(&'static str, &'static str)], f64, u64);

fn snapshot(second: u64, all: &[Series<'_>]) -> Arc<Snapshot> {
    let family = |&(name, labels, value, start): &Series<'_>| {
        let kind = if name.ends_with("_ratio") { MetricKind::Gauge } else { MetricKind::Counter };
        let unit = if name.ends_with("_ratio") { "ratio" } else { "" };
        let metadata = Metadata::new(name, "help", unit, kind).unwrap();
        let labels = Labels::new(labels.iter().copied());
        Family::new(metadata, vec![Point { labels, value: Value::Float(value), start: Timestamp(start) }])
    };
    Arc::new(Snapshot::new(Timestamp(T + second * 1000), all.iter().map(family)))
}

/// Returns a history after the seconds from 0 to 30, and the quality of cycles per instruction of `/a` in the interval from 20 to 30.
fn quality(series: impl Fn(u64) -> Vec<Series<'static>>) -> (Quality, Option<String>) {
    let mut history = History::new(3_600_000, 1000, usize::MAX);
    let events = [("perf_cgroup_cycles", "core"), ("perf_cgroup_instructions", "core")];
    let events = events.map(|(family, entry)| (family.into(), entry.into()));
    history.set_additional(&Additional { events: events.into(), ..Additional::default() });
    for second in 0..=30 {
        history.observe(&snapshot(second, &series(second)));
    }
    let window = Window { from: Timestamp(T + 20_000), to: Timestamp(T + 30_000), step: Some(10_000) };
    let grid = history.grid(window, 1);
    let measure = Measure::from(Kind::Cpi);
    let (quality, cpu_type) = measure.quality(&history, history.subject(Scope::Cgroup, "/a").unwrap(), &grid);
    (quality, cpu_type.map(ToString::to_string))
}

const A: &[(&str, &str)] = &[("cgroup", "/a")];

fn events(labels: &'static [(&str, &str)], total: f64, start: u64) -> Vec<Series<'static>> {
    vec![("perf_cgroup_cycles", labels, total, start), ("perf_cgroup_instructions", labels, total, start)]
}

#[test]
fn a_series_that_begins_in_the_interval_resets_the_figure_in_this_interval_only() {
    let since = |begin: u64| {
        move |second: u64| {
            if second < begin {
                return vec![("perf_cgroup_cycles", &[("cgroup", "/b")][..], 1.0, 1)];
            }
            events(A, second as f64, T + begin * 1000 - 500)
        }
    };
    let is_reset = |begin| quality(since(begin)).0.is_reset;
    assert!([21, 25, 30].into_iter().all(is_reset));
    assert!(![5, 20].into_iter().any(is_reset));
}

#[test]
fn a_total_that_begins_again_at_zero_resets_the_figure() {
    let restarted = |at: u64| {
        move |second: u64| match second < at {
            true => events(A, 1000.0 + second as f64, 1),
            false => events(A, (second - at) as f64, T + at * 1000 - 1),
        }
    };
    assert!(quality(restarted(22)).0.is_reset);
    assert!(!quality(restarted(12)).0.is_reset);
    assert!(!quality(|second| events(A, second as f64, 1)).0.is_reset, "known since the first collection");
}

#[test]
fn the_running_ratio_is_that_of_the_entry_and_of_cgroups_only() {
    const CORE: &[(&str, &str)] = &[("cgroup", "/a"), ("counters", "core"), ("scope", "cgroup")];
    const OTHER: &[(&str, &str)] = &[("cgroup", "/a"), ("counters", "other"), ("scope", "cgroup")];
    const PROCESS: &[(&str, &str)] = &[("cgroup", "/a"), ("counters", "core"), ("scope", "process")];
    let with = |labels: &'static [(&'static str, &'static str)], ratio: f64| {
        quality(move |second| {
            let ratio = ("perf_event_running_ratio", labels, ratio, 1);
            events(A, second as f64, 1).into_iter().chain([ratio]).collect()
        })
        .0
        .running
    };
    assert!((with(CORE, 0.25) - 0.25).abs() < 0.001);
    assert_eq!([with(CORE, 1.0), with(OTHER, 0.25), with(PROCESS, 0.25)], [1.0; 3]);
}

#[test]
fn seconds_in_which_a_cgroup_did_not_run_do_not_raise_its_running_ratio() {
    const CORE: &[(&str, &str)] = &[("cgroup", "/a"), ("counters", "core"), ("scope", "cgroup")];
    let (quality, _) = quality(|second| {
        let ratio = ("perf_event_running_ratio", CORE, 0.25, 1);
        events(A, second as f64, 1).into_iter().chain((second % 5 == 0).then_some(ratio)).collect()
    });
    assert!((quality.running - 0.25).abs() < 0.01, "{quality:?}");
}

#[test]
fn a_cgroup_runs_on_the_type_of_cpu_of_most_of_its_instructions() {
    const BIG: &[(&str, &str)] = &[("cgroup", "/a"), ("pmu", "cpu_core")];
    const LITTLE: &[(&str, &str)] = &[("cgroup", "/a"), ("pmu", "cpu_atom")];
    let (quality, cpu_type) = quality(|second| {
        let all = events(BIG, 4.0e6 * second as f64, 1);
        let mut all: Vec<_> = all.into_iter().chain(events(LITTLE, 1.0e6 * second as f64, 1)).collect();
        // Families of one name are merged.
        all.sort_by_key(|series| series.0);
        all
    });
    assert_eq!(cpu_type.as_deref(), Some("cpu_core"));
    assert!((quality.on_type - 0.8).abs() < 0.001, "{quality:?}");
    assert_eq!(self::quality(|second| events(A, second as f64, 1)).1, None);
}

/// Returns the result for a sample of this quality after 60 others.
fn verdict(method: Method, quality: Quality) -> Verdict {
    let (mut detector, mut baseline) = (Detector::running(), Baseline::default());
    let mut judge = |step: u64, value, quality| {
        let sample = Sample { at: step * 60_000, value: Some(value), usage: 1.0, quality };
        detector.judge(&method, Kind::rule(&method), &mut baseline, sample).verdict
    };
    for step in 0..120 {
        judge(step, 1.0, Quality::default());
    }
    judge(120, 9.0, quality)
}

#[test]
fn a_figure_of_too_low_a_quality_is_not_judged_and_the_limits_are_exact() {
    let robust = Method::Robust(Kind::Cpi.robust());
    let of = |change: fn(&mut Quality)| {
        let mut quality = Quality::default();
        change(&mut quality);
        verdict(robust, quality)
    };
    assert_eq!(of(|_| {}), Verdict::Outlier);
    assert_eq!(of(|quality| quality.is_reset = true), Verdict::NotJudged(Unjudged::Reset));
    assert_eq!(of(|quality| quality.running = 0.5), Verdict::Outlier);
    assert_eq!(of(|quality| quality.running = 0.499_999), Verdict::NotJudged(Unjudged::Multiplexed));
    assert_eq!(of(|quality| quality.on_type = 0.9), Verdict::Outlier);
    assert_eq!(of(|quality| quality.on_type = 0.899_999), Verdict::NotJudged(Unjudged::OtherCpuType));
}

#[test]
fn a_fixed_limit_holds_for_all_types_of_cpus_but_not_for_estimates() {
    let limit = Method::Threshold(Threshold { above: 2.0, lasting: 60_000 });
    let quality = Quality::default();
    assert_eq!(verdict(limit, Quality { on_type: 0.5, ..quality }), Verdict::Outlier);
    assert_eq!(
        verdict(limit, Quality { running: 0.1, ..quality }),
        Verdict::NotJudged(Unjudged::Multiplexed)
    );
    assert_eq!(verdict(limit, Quality { is_reset: true, ..quality }), Verdict::NotJudged(Unjudged::Reset));
}

#[test]
fn what_is_not_judged_raises_no_anomaly_and_is_not_learned() {
    let method = Method::Robust(Kind::Cpi.robust());
    for quality in [
        Quality { is_reset: true, ..Quality::default() },
        Quality { running: 0.0, ..Quality::default() },
        Quality { on_type: 0.5, ..Quality::default() },
    ] {
        let (mut detector, mut baseline) = (Detector::running(), Baseline::default());
        for step in 0..200 {
            let quality = if step < 100 { Quality::default() } else { quality };
            let value = if step < 100 { 1.0 } else { 9.0 };
            let sample = Sample { at: step * 10_000, value: Some(value), usage: 1.0, quality };
            let judgement = detector.judge(&method, Kind::rule(&method), &mut baseline, sample);
            assert_eq!(judgement.change, None, "{quality:?}");
        }
        assert_eq!(baseline.weight(), 100.0, "{quality:?}");
    }
}
