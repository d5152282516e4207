//! False alarms without interference, detection of slowdowns, and the observation of a history.

#[path = "../../tests/support/random.rs"]
mod random;

use std::f64::consts::TAU;
use std::sync::Arc;

use random::Random;

use super::*;
use crate::clock::Timestamp;
use crate::history::History;
use crate::metrics::{Family, Kind as MetricKind, Labels, Metadata, Point, Snapshot, Value};

const STEP: u64 = 10_000;
const DAY: u64 = 86_400_000;
/// Days of each series.
const DAYS: u64 = 4;
/// Number of series of each shape.
const SEEDS: u64 = 5;

/// Shapes of cycles per instruction without any interference.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Independent, with a normal distribution.
    Gaussian,
    /// Independent, with a generalized extreme value distribution, whose right tail is heavy.
    ExtremeValue,
    /// Each value depends on the one before it.
    Autoregressive,
    /// Load and figure follow the time of day.
    Diurnal,
    /// Load changes at random, about once an hour, and the figure with it.
    LoadSteps,
}

const SHAPES: [Shape; 5] =
    [Shape::Gaussian, Shape::ExtremeValue, Shape::Autoregressive, Shape::Diurnal, Shape::LoadSteps];

fn series(shape: Shape, seed: u64, days: u64) -> impl Iterator<Item = Sample> {
    let (mut random, mut state, mut load) = (Random(seed), 0.0, 1.0);
    (1..=days * DAY / STEP).map(move |step| {
        let at = step * STEP;
        let noise = random.normal() * 0.16;
        let (value, usage) = match shape {
            Shape::Gaussian => (1.8 + noise, 1.0),
            Shape::ExtremeValue => {
                let (uniform, tail) = (random.uniform().clamp(1e-12, 1.0 - 1e-12), 0.0534);
                (1.73 + 0.133 * ((-uniform.ln()).powf(-tail) - 1.0) / tail, 1.0)
            }
            Shape::Autoregressive => {
                state = 0.95 * state + noise * (1.0_f64 - 0.95 * 0.95).sqrt();
                (1.8 + state, 1.0)
            }
            Shape::Diurnal => {
                let load = 1.1 + 0.8 * ((at % DAY) as f64 / DAY as f64 * TAU).sin();
                (1.8 + 0.27 * load + noise, load)
            }
            Shape::LoadSteps => {
                if random.uniform() < 1.0 / 360.0 {
                    load = 0.3 + 3.0 * random.uniform();
                }
                (1.6 + 0.25 * load + noise, load)
            }
        };
        Sample { at, value: Some(value), usage, quality: Quality::default() }
    })
}

/// Returns the times at which anomalies begin.
fn alarms(method: Method, samples: impl Iterator<Item = Sample>) -> Vec<u64> {
    let (mut detector, mut baseline) = (Detector::default(), Baseline::default());
    let judge = |sample: Sample| {
        let judgement = detector.judge(&method, Kind::rule(&method), &mut baseline, sample);
        matches!(judgement.change, Some(Change::Began(_))).then_some(sample.at)
    };
    samples.filter_map(judge).collect()
}

fn robust() -> Method {
    Method::Robust(Kind::Cpi.robust())
}

#[test]
fn without_interference_the_robust_method_raises_no_alarm() {
    for shape in SHAPES {
        for seed in 0..SEEDS {
            let alarms = alarms(robust(), series(shape, seed, DAYS));
            assert!(alarms.is_empty(), "{shape:?}, seed {seed}: {alarms:?}");
        }
    }
}

#[test]
fn half_as_many_cycles_more_are_found_within_five_minutes() {
    let mut found = 0;
    let mut all = 0;
    for shape in SHAPES {
        for seed in 100..100 + SEEDS {
            let begin = DAY + (seed - 100) * 3_333_000;
            let slow =
                series(shape, seed, 2).take_while(|sample| sample.at <= begin + 300_000).map(|sample| {
                    let value =
                        sample.value.map(|value| if sample.at >= begin { value * 1.5 } else { value });
                    Sample { value, ..sample }
                });
            let alarms = alarms(robust(), slow);
            all += 1;
            found += usize::from(alarms.len() == 1 && alarms[0] >= begin);
        }
    }
    assert!(found * 100 >= all * 95, "{found} of {all}");
}

#[test]
fn cpi2_takes_one_interval_of_a_minute_and_flags_independent_values_now_and_then() {
    let method = Method::Cpi2(Cpi2::default());
    let alarms = alarms(method, series(Shape::Gaussian, 1, 60));
    // 0.16 a day for independent values with a normal distribution: 10 p³ in each five minutes, with the 2.3% beyond two deviations.
    assert!((1..=30).contains(&alarms.len()), "{}", alarms.len());
    let (mut detector, mut baseline) = (Detector::default(), Baseline::default());
    let verdicts: Vec<_> = series(Shape::Gaussian, 1, 1)
        .take(6)
        .map(|sample| detector.judge(&method, Kind::rule(&method), &mut baseline, sample).verdict)
        .collect();
    let judged = verdicts.iter().filter(|&&verdict| verdict != Verdict::NotJudged(Unjudged::NotSampled));
    assert_eq!(judged.count(), 1);
}

#[test]
fn a_sample_that_cannot_be_judged_has_a_reason_and_is_never_normal() {
    let (mut detector, mut baseline) = (Detector::running(), Baseline::default());
    let method = robust();
    let mut verdict = |value, usage| {
        let sample = Sample { at: STEP, value, usage, quality: Quality::default() };
        detector.judge(&method, Kind::rule(&method), &mut baseline, sample).verdict
    };
    assert_eq!(verdict(None, 1.0), Verdict::NotJudged(Unjudged::Gap));
    assert_eq!(verdict(Some(f64::NAN), 1.0), Verdict::NotJudged(Unjudged::Gap));
    assert_eq!(verdict(Some(1.0), 0.249), Verdict::NotJudged(Unjudged::LowUsage));
    assert_eq!(verdict(Some(1.0), 0.25), Verdict::NotJudged(Unjudged::WarmingUp));
    for _ in 0..60 {
        verdict(Some(1.0), 0.25);
    }
    assert_eq!(verdict(Some(1.0), 0.25), Verdict::Normal);
    assert_eq!(verdict(Some(1.2), 0.25), Verdict::Normal, "less than a quarter more");
    assert_eq!(verdict(Some(1.3), 0.25), Verdict::Outlier);
    assert_eq!(verdict(Some(1.3), 0.6), Verdict::Normal, "the margin is wider at another utilization");
    assert_eq!(verdict(Some(1.6), 0.6), Verdict::Outlier);
    assert_eq!(verdict(Some(1.6), 4.0), Verdict::NotJudged(Unjudged::WarmingUp), "at another one by far");
}

#[test]
fn a_new_cgroup_is_not_judged_in_its_first_five_minutes() {
    let (mut detector, mut baseline) = (Detector::running(), Baseline::default());
    let verdict = |detector: &mut Detector, baseline: &mut Baseline, at, value| {
        let sample = Sample { at, value, usage: 1.0, quality: Quality::default() };
        detector.judge(&robust(), Kind::rule(&robust()), baseline, sample).verdict
    };
    for step in 1..=60 {
        verdict(&mut detector, &mut baseline, step * STEP, Some(1.0));
    }
    let mut restarted = Detector::default();
    let begin = 100 * STEP;
    let mut verdict = |at, value| verdict(&mut restarted, &mut baseline, at, value);
    assert_eq!(verdict(begin, None), Verdict::NotJudged(Unjudged::Gap));
    assert_eq!(verdict(begin + STEP, Some(9.0)), Verdict::NotJudged(Unjudged::Starting));
    assert_eq!(verdict(begin + 300_000, Some(9.0)), Verdict::NotJudged(Unjudged::Starting));
    assert_eq!(verdict(begin + 300_000 + STEP, Some(9.0)), Verdict::Outlier);
}

#[test]
fn a_level_that_lasts_for_an_hour_becomes_the_usual_one() {
    let step = |at: u64| Sample {
        at,
        value: Some(if at < DAY { 1.0 } else { 2.0 }),
        usage: 1.0,
        quality: Quality::default(),
    };
    let (mut detector, mut baseline) = (Detector::default(), Baseline::default());
    let (mut began, mut ended) = (Vec::new(), Vec::new());
    for at in (STEP..2 * DAY).step_by(STEP as usize) {
        match detector.judge(&robust(), Kind::rule(&robust()), &mut baseline, step(at)).change {
            Some(Change::Began(_)) => began.push(at),
            Some(Change::Ended(_)) => ended.push(at),
            None => {}
        }
    }
    assert_eq!(began, [DAY + 9 * STEP]);
    assert_eq!(ended.len(), 1);
    assert!(ended[0] > DAY + 3_600_000, "{ended:?}");
}

/// A machine whose cgroups have CPU time, cycles and instructions.
pub(crate) struct Machine {
    history: History,
    pub(crate) watch: Watch,
    /// The time, in milliseconds.
    pub(crate) at: u64,
    /// Microseconds, cycles and instructions by cgroup.
    totals: Vec<(&'static str, [f64; 3])>,
}

impl Machine {
    /// Creates a machine whose cycles per instruction are compared.
    pub(crate) fn of_cpi(cgroups: &[&'static str]) -> Self {
        Self::new(cgroups, robust())
    }

    fn new(cgroups: &[&'static str], method: Method) -> Self {
        let mut watch = Watch::default();
        watch.set_limit(usize::MAX);
        watch.set(&[Entry { name: "cpi".into(), kind: Kind::Cpi.into(), method }].into());
        let totals = cgroups.iter().map(|&cgroup| (cgroup, [0.0; 3])).collect();
        Self { history: History::new(3_600_000, 1000, usize::MAX), watch, at: 1_000_000_000, totals }
    }

    /// Lets ten seconds pass. `run` returns the used CPUs and the cycles per instruction of each cgroup.
    pub(crate) fn step(&mut self, run: impl Fn(&str) -> (f64, f64)) -> Option<Report> {
        self.at += STEP;
        for (cgroup, totals) in &mut self.totals {
            let (usage, cpi) = run(cgroup);
            let cycles = usage * 10.0 * 3e9;
            for (total, more) in totals.iter_mut().zip([usage * 10.0, cycles, cycles / cpi]) {
                *total += more;
            }
        }
        let names = ["perf_cgroup_task_clock_seconds", "perf_cgroup_cycles", "perf_cgroup_instructions"];
        let families = names.iter().enumerate().map(|(place, name)| {
            let points = self.totals.iter().map(|(cgroup, totals)| Point {
                labels: Labels::new([("cgroup", *cgroup)]),
                value: Value::Float(totals[place]),
                start: Timestamp(1),
            });
            let unit = if name.ends_with("seconds") { "seconds" } else { "" };
            Family::new(Metadata::new(name, "help", unit, MetricKind::Counter).unwrap(), points.collect())
        });
        self.history.observe(&Arc::new(Snapshot::new(Timestamp(self.at), families.collect::<Vec<_>>())));
        self.watch.judge(&self.history, &())
    }
}

#[test]
fn a_cgroup_that_slows_down_is_reported_with_the_cgroup_that_runs_meanwhile() {
    let mut machine = Machine::new(&["/victim", "/noisy", "/steady"], robust());
    let calm = |cgroup: &str| if cgroup == "/noisy" { (0.0, 1.0) } else { (0.9, 1.0) };
    let report = (0..100).filter_map(|_| machine.step(calm)).last().unwrap();
    assert_eq!((report.active.len(), report.total[0]), (0, 0));
    assert_eq!((report.verdicts[0].normal, report.verdicts[0].unjudged[Unjudged::LowUsage as usize]), (2, 0));
    let disturbed = |cgroup: &str| match cgroup {
        "/victim" => (0.9, 4.0),
        "/noisy" => (1.0, 1.0),
        _ => (0.9, 1.0),
    };
    let reports: Vec<_> = (0..12).filter_map(|_| machine.step(disturbed)).collect();
    assert_eq!(reports.iter().map(|report| report.began.len()).sum::<usize>(), 1);
    let report = reports.last().unwrap();
    let [active] = &report.active[..] else { panic!("{report:?}") };
    assert_eq!((&*active.cgroup, active.entry, report.total[0]), ("/victim", 0, 1));
    assert!((active.value - 4.0).abs() < 0.1 && (active.usual - 1.0).abs() < 0.02, "{active:?}");
    let suspects: Vec<_> = active.suspicion.suspects.iter().map(|suspect| &*suspect.cgroup).collect();
    assert_eq!(suspects, ["/noisy"]);
    let reports: Vec<_> = (0..60).filter_map(|_| machine.step(calm)).collect();
    let ended: Vec<_> = reports.iter().flat_map(|report| &report.ended).collect();
    let [ended] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!((ended.entry, &*ended.cgroup), (0, "/victim"));
    assert!(ended.at >= active.since, "the end is the time of the last outlier: {ended:?}");
    let report = reports.last().unwrap();
    assert_eq!((report.active.len(), report.total[0]), (0, 1));
}

#[test]
fn the_report_has_the_last_result_of_each_cgroup_with_its_reason() {
    let mut machine = Machine::new(&["/idle", "/busy"], robust());
    let run = |cgroup: &str| if cgroup == "/idle" { (0.1, 1.0) } else { (0.9, 2.0) };
    let results = |report: &Report, cgroup: &str| -> Vec<(String, &str, Option<f32>, bool)> {
        let of = |(kind, last): (&str, &Compared)| {
            (kind.to_owned(), last.result(), last.value.map(f32::round), last.usual.is_some())
        };
        report.of_cgroup(cgroup).map(of).collect()
    };
    let report = (0..30).filter_map(|_| machine.step(run)).last().unwrap();
    assert_eq!(results(&report, "/idle"), [("cpi".to_owned(), "low_usage", Some(1.0), false)]);
    assert_eq!(results(&report, "/busy"), [("cpi".to_owned(), "warming_up", Some(2.0), false)]);
    assert_eq!(results(&report, "/unknown"), []);
    let report = (0..60).filter_map(|_| machine.step(run)).last().unwrap();
    assert_eq!(results(&report, "/busy"), [("cpi".to_owned(), "normal", Some(2.0), true)]);
}

#[test]
fn an_interval_that_the_paper_does_not_take_leaves_the_last_result() {
    let mut machine = Machine::new(&["/a"], Method::Cpi2(Cpi2 { min_samples: 2, ..Cpi2::default() }));
    let reports: Vec<Report> = (0..40).filter_map(|_| machine.step(|_| (1.0, 1.0))).collect();
    let last: Vec<&Compared> =
        reports.iter().flat_map(|report| report.of_cgroup("/a")).map(|all| all.1).collect();
    let (_, judged) = last.split_at(6);
    assert!(judged.iter().all(|last| last.result() != "not_sampled" && last.at.0.is_multiple_of(60_000)));
    assert_eq!(judged.last().unwrap().result(), "normal");
}

#[test]
fn a_workload_with_a_specification_is_judged_from_the_first_interval_by_the_file() {
    let specifications = |mean: f64| {
        let text =
            format!(r#"[{{"kind":"cpi","workload":"/a","mean":{mean},"deviation":0.1,"samples":100}}]"#);
        Arc::new(Specifications::parse(text.as_bytes()).unwrap())
    };
    let mut machine = Machine::new(&["/a", "/b"], robust());
    machine.watch.set_specifications(&specifications(1.0));
    let results =
        |report: &Report| ["/a", "/b"].map(|name| report.of_cgroup(name).next().unwrap().1.result());
    let reports: Vec<Report> = (0..5).filter_map(|_| machine.step(|_| (1.0, 1.0))).collect();
    assert_eq!(results(&reports[0]), ["normal", "warming_up"]);
    let report = (0..70).filter_map(|_| machine.step(|_| (1.0, 1.0))).last().unwrap();
    assert_eq!(results(&report), ["normal"; 2]);
    // The file precedes what was learned.
    machine.watch.set_specifications(&specifications(0.5));
    let report = (0..2).filter_map(|_| machine.step(|_| (1.0, 1.0))).last().unwrap();
    assert_eq!(results(&report), ["outlier", "normal"]);
    machine.watch.set_specifications(&Arc::default());
    let report = (0..2).filter_map(|_| machine.step(|_| (1.0, 1.0))).last().unwrap();
    assert_eq!(results(&report), ["normal"; 2], "what was learned meanwhile");
}

#[test]
fn a_storm_of_forks_is_found_although_it_raises_the_utilization() {
    let method = Method::Robust(Kind::Forks.robust());
    let sample = |step: u64| match step {
        0..100 => Sample { at: step * STEP, value: Some(4.0), usage: 0.04, quality: Quality::default() },
        _ => Sample { at: step * STEP, value: Some(90.0), usage: 0.7, quality: Quality::default() },
    };
    assert_eq!(alarms(method, (0..120).map(sample)), [107 * STEP]);
}

#[test]
fn a_fixed_limit_is_exceeded_for_its_time_without_any_past() {
    let method = Method::Threshold(Threshold { above: 0.2, lasting: 60_000 });
    let sample = |(step, value): (u64, f64)| Sample {
        at: step * STEP,
        value: Some(value),
        usage: 0.0,
        quality: Quality::default(),
    };
    let series = |values: &[f64]| (1..).zip(values.iter().copied()).map(sample).collect::<Vec<_>>();
    assert!(alarms(method, series(&[0.3; 5]).into_iter()).is_empty());
    assert_eq!(alarms(method, series(&[0.3; 9]).into_iter()), [6 * STEP]);
    assert!(alarms(method, series(&[0.2; 99]).into_iter()).is_empty(), "not above");
    let one_below = [0.3, 0.3, 0.3, 0.1, 0.3, 0.3, 0.3];
    assert_eq!(alarms(method, series(&one_below).into_iter()), [7 * STEP], "one interval may be below");
    let two_below = [0.3, 0.3, 0.3, 0.1, 0.1, 0.3, 0.3, 0.3];
    assert!(alarms(method, series(&two_below).into_iter()).is_empty());
    assert_eq!(method_score(method, 0.4), 2.0, "the ratio of the value and the limit");
}

fn method_score(method: Method, value: f64) -> f64 {
    let (mut detector, mut baseline) = (Detector::default(), Baseline::default());
    let sample = Sample { at: STEP, value: Some(value), usage: 0.0, quality: Quality::default() };
    detector.judge(&method, Kind::rule(&method), &mut baseline, sample).expected.unwrap().score(value)
}

#[test]
fn an_interval_is_judged_once_and_a_changed_entry_begins_again() {
    let mut machine = Machine::new(&["/a"], robust());
    let reports = (0..70).filter_map(|_| machine.step(|_| (1.0, 1.0))).count();
    assert!((68..70).contains(&reports), "{reports}");
    assert_eq!(machine.watch.judge(&machine.history, &()), None);
    let other = Method::Robust(Robust { min_samples: 30.0, ..Kind::Cpi.robust() });
    machine.watch.set(&[Entry { name: "cpi".into(), kind: Kind::Cpi.into(), method: other }].into());
    let report = machine.step(|_| (1.0, 1.0)).unwrap();
    assert_eq!(report.verdicts[0].unjudged[Unjudged::WarmingUp as usize], 1);
}

#[test]
fn after_the_clock_was_set_back_judging_goes_on_with_what_was_learned() {
    let mut machine = Machine::new(&["/a"], robust());
    (0..70).for_each(|_| drop(machine.step(|_| (1.0, 1.0))));
    (0..12).for_each(|_| drop(machine.step(|_| (1.0, 2.0))));
    machine.at -= 3_600_000;
    let reports: Vec<_> = (0..5).filter_map(|_| machine.step(|_| (1.0, 1.0))).collect();
    let last = reports.last().unwrap();
    assert_eq!((last.verdicts[0].normal, last.active.len(), last.total[0]), (1, 0, 1), "{last:?}");
}

#[test]
fn what_was_learned_longest_ago_is_dropped_above_the_limit() {
    let mut machine = Machine::new(&["/a", "/b"], robust());
    (0..70).for_each(|_| drop(machine.step(|_| (1.0, 1.0))));
    let all = machine.watch.bytes();
    machine.totals.remove(0);
    // The history keeps the cgroup, so its detector as well, but it has no figure any more.
    machine.watch.set_limit(all * 3 / 4);
    let verdicts = (0..3).filter_map(|_| machine.step(|_| (1.0, 1.0))).last().unwrap().verdicts;
    assert!(machine.watch.bytes() <= all * 3 / 4, "{} of {all}", machine.watch.bytes());
    assert_eq!(verdicts[0].normal + verdicts[0].unjudged[Unjudged::WarmingUp as usize], 1, "{verdicts:?}");
}

#[test]
fn metrics_have_the_anomalies_the_suspects_and_the_results_of_all_cgroups() {
    let metrics = AnomalyMetrics::new(Timestamp(5)).unwrap();
    assert!(metrics.families().is_empty());
    let suspects =
        vec![Notable { cgroup: "/noisy".into(), basis: Basis::Correlation, score: 0.5, samples: 60 }];
    let suspicion = Suspicion { causes: Vec::new(), suspects };
    let (since, cgroup) = (Timestamp(7), "/victim".into());
    let active = Active { entry: 0, cgroup, since, value: 4.0, usual: 1.0, score: 9.0, suspicion };
    // No cgroup has the second figure.
    let verdicts = vec![Verdicts { normal: 3, outlier: 1, ..Verdicts::default() }, Verdicts::default()];
    metrics.report().replace(Report {
        entries: vec!["cpi".into(), "forks".into()],
        total: vec![2, 0],
        verdicts,
        active: vec![active],
        ..Report::default()
    });
    let snapshot = Snapshot::new(Timestamp(9), metrics.families());
    let lines: Vec<String> = snapshot
        .families()
        .iter()
        .flat_map(|family| {
            let name = family.metadata().sample_name();
            family.points().iter().map(move |point| {
                format!("{name}{{{}}} {}", point.labels.text(), point.value.number().unwrap())
            })
        })
        .collect();
    assert_eq!(
        lines,
        [
            r#"perf_anomalies_total{kind="cpi"} 2"#,
            r#"perf_anomalies_total{kind="forks"} 0"#,
            r#"perf_anomaly_active{cgroup="/victim",kind="cpi"} 1"#,
            r#"perf_anomaly_cgroups{kind="cpi",result="normal"} 3"#,
            r#"perf_anomaly_cgroups{kind="cpi",result="outlier"} 1"#,
            r#"perf_anomaly_score{cgroup="/victim",kind="cpi"} 9"#,
            r#"perf_anomaly_suspect_correlation{basis="correlation",cgroup="/victim",kind="cpi",suspect="/noisy"} 0.5"#,
        ]
    );
}
