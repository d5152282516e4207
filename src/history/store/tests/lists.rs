use std::collections::BTreeMap;

use super::*;
use crate::history::{List, Listed, totals};

/// A collection with system calls of the cgroup `/a`: name, total, and start of the series. With a pod or without.
fn calls(at: u64, pod: &str, points: &[(&str, u64, u64)]) -> Arc<Snapshot> {
    let metadata = Metadata::new("perf_cgroup_syscalls", "help", "", Kind::Counter).unwrap();
    let point = |&(name, total, start): &(&str, u64, u64)| Point {
        labels: Labels::new([("cgroup", "/a"), ("syscall", name), ("pod", pod)]),
        value: Value::Integer(total),
        start: Timestamp(start),
    };
    let family = Family::new(metadata, points.iter().map(point).collect());
    Arc::new(Snapshot::new(Timestamp(at), [family]))
}

/// Returns the list of system calls of a cgroup between two times after `T`, and the range that it covers.
fn listed(history: &History, name: &str, from: u64, to: u64) -> ((u64, u64), Vec<(String, f64)>) {
    let window = Window { from: Timestamp(T + from), to: Timestamp(T + to), step: None };
    let range = history.list_range(window);
    let lists = history.subject(Scope::Cgroup, name).map(|subject| subject.lists(&range));
    let list = lists.unwrap_or_default().into_iter().find(|listed| listed.list == List::Calls);
    let lines = list.map_or_else(Vec::new, |listed| listed.lines);
    let lines = lines.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    ((range.from.0 - T, range.to().0 - T), lines)
}

fn line(name: &str, value: f64) -> (String, f64) {
    (name.to_owned(), value)
}

#[test]
fn a_list_contains_the_increments_of_its_range() {
    let mut history = history();
    for second in 0..=120_u64 {
        let write = second.clamp(60, 70) * 100;
        history.observe(&calls(T + second * 1000, "", &[("read", second * 3, 0), ("write", write, 0)]));
    }
    assert_eq!(listed(&history, "/a", 0, 60_000), ((0, 60_000), vec![line("read", 180.0)]));
    let burst = [line("write", 1000.0), line("read", 30.0)];
    assert_eq!(listed(&history, "/a", 60_000, 70_000), ((60_000, 70_000), burst.to_vec()));
    assert_eq!(listed(&history, "/a", 63_000, 64_500), ((60_000, 70_000), burst.to_vec()), "whole steps");
    assert_eq!(listed(&history, "/a", 70_000, 500_000).0, (70_000, 120_000), "up to the last complete step");
}

#[test]
fn series_that_begin_are_in_a_list_and_new_labels_are_not() {
    let mut history = history();
    history.observe(&calls(T, "", &[("read", 1000, 0)]));
    history.observe(&calls(T + 1000, "", &[("read", 1010, 0)]));
    history.observe(&calls(T + 2000, "", &[("read", 1020, 0), ("write", 5, T + 1000)]));
    // The series `write` is one collection old, and gets other labels.
    history.observe(&calls(T + 3000, "web", &[("read", 1030, 0), ("write", 6, T + 1000)]));
    history.observe(&calls(T + 4000, "web", &[("read", 1040, 0), ("write", 7, T + 1000)]));
    history.observe(&calls(T + 20_000, "web", &[("read", 1040, 0), ("write", 7, T + 1000)]));
    assert_eq!(listed(&history, "/a", 0, 20_000).1, [line("read", 30.0), line("write", 6.0)]);
}

#[test]
fn all_series_of_a_cgroup_that_was_held_back_are_counted_from_their_start() {
    let mut history = history();
    for second in 0..4 {
        history.observe(&calls(T + second * 1000, "", &[]));
    }
    let points = [("read", 30, T + 1000), ("write", 60, T + 1000)];
    history.observe(&calls(T + 4000, "web", &points));
    history.observe(&calls(T + 20_000, "web", &points));
    assert_eq!(listed(&history, "/a", 0, 20_000).1, [line("write", 60.0), line("read", 30.0)]);
    let window = Window { from: Timestamp(T), to: Timestamp(T + 20_000), step: Some(1000) };
    let subject = history.subject(Scope::Cgroup, "/a").unwrap();
    let rates = subject.values(Figure::Calls, 0.0, &history.grid(window, 100)).unwrap();
    assert_eq!(rates.iter().flatten().sum::<f64>(), 90.0, "the chart has both");
}

#[test]
fn the_least_active_names_are_added_up_with_their_past() {
    let mut history = history();
    let names: Vec<String> = (0..100).map(|n| format!("call{n:02}")).collect();
    for second in 0..=130_u64 {
        let points: Vec<(&str, u64, u64)> =
            names.iter().zip(0..).map(|(name, n)| (&**name, n * second, 0)).collect();
        history.observe(&calls(T + second * 1000, "", &points));
    }
    let (_, lines) = listed(&history, "/a", 0, 10_000);
    assert_eq!(lines.last().unwrap().0, "other");
    assert!(lines.len() <= 18, "{lines:?}");
    let total: f64 = lines.iter().map(|line| line.1).sum();
    assert!((total - 10.0 * 4950.0).abs() < 50.0, "{total}");
    assert!(lines[0].1 > lines[lines.len() - 2].1);
}

#[test]
fn a_name_that_becomes_busy_replaces_one_that_is_not() {
    let mut history = history();
    let names: Vec<String> = (0..40).map(|n| format!("call{n:02}")).collect();
    for second in 0..=600_u64 {
        let mut points: Vec<(&str, u64, u64)> = names.iter().map(|name| (&**name, second, 0)).collect();
        points.push(("write", second.saturating_sub(300) * 50, 0));
        history.observe(&calls(T + second * 1000, "", &points));
    }
    let (_, lines) = listed(&history, "/a", 500_000, 600_000);
    assert_eq!(lines[0], line("write", 5000.0));
}

#[test]
fn lists_are_dropped_before_cgroups_are_forgotten_and_begin_again_when_there_is_room() {
    let mut history = History::new(HOUR, 1000, 500_000);
    let cgroups: Vec<String> = (0..200).map(|n| format!("/c{n:03}")).collect();
    let at = |second: u64| {
        let count = |n: usize| second * n as u64;
        let switches: Vec<(&str, u64, u64)> =
            cgroups.iter().enumerate().map(|(n, name)| (&**name, count(n), 0)).collect();
        let metadata = Metadata::new("perf_cgroup_syscalls", "help", "", Kind::Counter).unwrap();
        let calls = cgroups.iter().enumerate().flat_map(|(n, cgroup)| {
            let point = move |call: usize| Point {
                labels: Labels::new([("cgroup", &**cgroup), ("syscall", ["read", "write", "poll"][call])]),
                value: Value::Integer(count(n)),
                start: Timestamp(0),
            };
            (0..3).map(point)
        });
        let families = [
            family("perf_cgroup_context_switches", Some("cgroup"), &switches),
            Family::new(metadata, calls.collect()),
        ];
        Arc::new(Snapshot::new(Timestamp(T + second * 1000), families))
    };
    let since = |history: &History, name: &str| history.subject(Scope::Cgroup, name).unwrap().lists_since();
    let mut second = 0;
    while since_or_complete(&history, "/c001") == Some(Timestamp(0)) {
        second += 1;
        assert!(history.observe(&at(second)) <= 500_000);
        assert!(second < 600, "the memory is never used up");
    }
    assert_eq!((history.forgotten(), since(&history, "/c001")), (0, None));
    assert_eq!(since(&history, "/c199"), Some(Timestamp(0)), "the most active one has its lists");
    assert_eq!(
        history
            .subject(Scope::Cgroup, "/c001")
            .unwrap()
            .lists(&history.span(Timestamp(T), Timestamp(T + HOUR))),
        []
    );
    history.set_limit(64 << 20);
    for _ in 0..60 {
        second += 1;
        history.observe(&at(second));
    }
    let again = since(&history, "/c001").unwrap();
    assert!(again > Timestamp(T) && again <= Timestamp(T + second * 1000), "{again:?}");
}

/// Returns from when on the lists of a cgroup are complete. A cgroup that is not recorded yet has lost nothing.
fn since_or_complete(history: &History, name: &str) -> Option<Timestamp> {
    history.subject(Scope::Cgroup, name).map_or(Some(Timestamp(0)), Subject::lists_since)
}

#[test]
fn hits_of_tracepoints_preemptions_and_states_have_lists() {
    let mut history = history();
    let at = |second: u64, amount: u64| {
        let with = |name: &str, labels: &[(&str, &str)], value| {
            let unit = if name.ends_with("_seconds") { "seconds" } else { "" };
            let metadata = Metadata::new(name, "help", unit, Kind::Counter).unwrap();
            let labels = Labels::new(labels.iter().copied());
            Family::new(metadata, vec![Point { labels, value, start: Timestamp(0) }])
        };
        let families = [
            with("perf_cgroup_sched_run_seconds", &[("cgroup", "/a")], Value::Float(amount as f64 * 0.25)),
            with(
                "perf_cgroup_sched_wait_seconds",
                &[("cgroup", "/a"), ("state", "sleeping")],
                Value::Float(amount as f64 * 0.5),
            ),
            with(
                "perf_cgroup_sched_preempted_by_cgroup",
                &[("cgroup", "/a"), ("by_cgroup", "/b"), ("pod", "web")],
                Value::Integer(amount),
            ),
            with("perf_cgroup_context_switches", &[("cgroup", "/b")], Value::Integer(amount)),
            with("perf_cgroup_tcp_send", &[("cgroup", "/a")], Value::Integer(amount * 7)),
        ];
        Arc::new(Snapshot::new(Timestamp(T + second * 1000), families))
    };
    for second in 0..=20 {
        history.observe(&at(second, 100 + second));
    }
    let range = history.list_range(Window { from: Timestamp(T), to: Timestamp(T + 20_000), step: None });
    // A value has an error of 0.05 %.
    let lists = |name| -> Vec<Listed> {
        let mut lists = history.subject(Scope::Cgroup, name).unwrap().lists(&range);
        let lines = lists.iter_mut().flat_map(|listed| &mut listed.lines);
        lines.for_each(|line| line.1 = (line.1 * 50.0).round() / 50.0);
        lists
    };
    let list = |list, lines: &[(&str, f64)]| Listed {
        list,
        lines: lines.iter().map(|&(name, value)| (name.into(), value)).collect(),
    };
    assert_eq!(
        lists("/a"),
        [
            list(List::States, &[("sleeping", 10.0), ("running", 5.0)]),
            list(List::PreemptedBy, &[("/b", 20.0)]),
            list(List::Events, &[("tcp_send", 140.0)]),
        ]
    );
    assert_eq!(lists("/b"), [list(List::Preempts, &[("/a", 20.0)])]);
    let labels = history.subject(Scope::Cgroup, "/b").unwrap().labels();
    assert_eq!(labels.get("pod"), None, "the pod is that of the other cgroup");
    assert_eq!(totals(&at(20, 120), Scope::Cgroup, "/b"), [list(List::Preempts, &[("/a", 120.0)])]);
}

/// System calls by name, as a table of series publishes them.
#[derive(Debug, Default)]
struct Model {
    /// Total and start of each series, and whether it has labels of its own.
    series: BTreeMap<usize, (u64, u64, Labelled)>,
    other: u64,
    pod: &'static str,
    /// What the history can know, in all and by name.
    counted: u64,
    by_name: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Labelled {
    Own,
    Aggregated,
    /// Published with its earlier total, while the increments are in `other`.
    Gaining,
}

/// What happens to a series between two collections.
#[derive(Debug, Clone, Copy)]
enum Change {
    Nothing,
    Aggregate(usize),
    End(usize),
    Relabel,
}

impl Model {
    fn name(number: usize) -> String {
        format!("call{number:02}")
    }

    /// Returns the collection at `now`, with these increments since the one at `previous`.
    fn collect(&mut self, previous: u64, now: u64, counts: &[(usize, u64)], change: Change) -> Arc<Snapshot> {
        let pod = if matches!(change, Change::Relabel) { "web" } else { self.pod };
        let is_relabelled = std::mem::replace(&mut self.pod, pod) != pod;
        for &(number, count) in counts {
            let (total, start, labelled) = self.series.entry(number).or_insert((0, previous, Labelled::Own));
            let is_new = *start == previous;
            let name = if *labelled == Labelled::Own {
                *total += count;
                Self::name(number)
            } else {
                self.other += count;
                "other".to_owned()
            };
            // What began before the second collection may be older than the history.
            let is_known = !is_relabelled || *labelled == Labelled::Own && is_new;
            if is_known && !(is_new && previous == T) {
                self.counted += count;
                *self.by_name.entry(name).or_default() += count;
            }
        }
        let names: Vec<(String, u64, u64)> = self
            .series
            .iter()
            .filter(|(_, series)| series.2 != Labelled::Aggregated)
            .map(|(number, &(total, start, _))| (Self::name(*number), total, start))
            .chain([("other".to_owned(), self.other, 0)])
            .collect();
        let points: Vec<(&str, u64, u64)> =
            names.iter().map(|(name, total, start)| (&**name, *total, *start)).collect();
        let snapshot = calls(now, pod, &points);
        for series in self.series.values_mut().filter(|series| series.2 == Labelled::Gaining) {
            series.2 = Labelled::Own;
        }
        match change {
            Change::Aggregate(number) => {
                if let Some(series) = self.series.get_mut(&number) {
                    series.2 = match series.2 {
                        Labelled::Own => Labelled::Aggregated,
                        _ => Labelled::Gaining,
                    };
                }
            }
            Change::End(number) => {
                self.series.remove(&number);
            }
            Change::Nothing | Change::Relabel => {}
        }
        snapshot
    }
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => Just(Change::Nothing),
        4 => (0..50_usize).prop_map(Change::Aggregate),
        2 => (0..50_usize).prop_map(Change::End),
        1 => Just(Change::Relabel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever happens to the series, the sum of a list is the increment of its metric in any range, and no line has more than its name.
    #[test]
    fn a_list_adds_up_to_the_increments_of_its_metric(
        collections in prop::collection::vec(
            (1..4000_u64, prop::collection::vec((0..50_usize, 0..3000_u64), 0..20), any_change()),
            1..150,
        ),
        cuts in (0.0_f64..1.0, 0.0_f64..1.0),
    ) {
        let (mut history, mut model, mut at) = (history(), Model::default(), T);
        history.observe(&model.collect(T, T, &[], Change::Nothing));
        for (after, counts, change) in collections {
            let previous = at;
            at += after;
            history.observe(&model.collect(previous, at, &counts, change));
        }
        // A collection without increments ends all steps.
        let end = at + 20_000;
        history.observe(&model.collect(at, end, &[], Change::Nothing));
        let sum = |from: u64, to: u64| -> (f64, f64) {
            let window = Window { from: Timestamp(T + from), to: Timestamp(T + to), step: Some(10_000) };
            let subject = history.subject(Scope::Cgroup, "/a").unwrap();
            let rates = subject.values(Figure::Calls, 0.0, &history.grid(window, 10_000)).unwrap();
            let list: f64 = listed(&history, "/a", from, to).1.iter().map(|line| line.1).sum();
            (rates.iter().flatten().map(|rate| rate * 10.0).sum(), list)
        };
        // The error of one step of each line, at both ends of the range.
        let tolerance = 100.0 + model.counted as f64 / 500.0;
        let all = (end - T) / 10_000 * 10_000;
        let (chart, list) = sum(0, all);
        let counted = model.counted as f64;
        prop_assert!((chart - counted).abs() < tolerance && (list - counted).abs() < tolerance, "{chart} {list} {counted}");
        let cut = |part: f64| (all as f64 / 10_000.0 * part) as u64 * 10_000;
        let (from, to) = (cut(cuts.0.min(cuts.1)), cut(cuts.0.max(cuts.1)));
        if from < to {
            let (chart, list) = sum(from, to);
            prop_assert!((chart - list).abs() < tolerance, "{chart} {list} from {from} to {to}");
        }
        for (name, value) in listed(&history, "/a", 0, all).1 {
            let most = model.by_name.get(&name).copied().unwrap_or(0) as f64;
            prop_assert!(name == "other" || value <= most * 1.01 + 1.0, "{name}: {value} of {most}");
        }
    }
}
