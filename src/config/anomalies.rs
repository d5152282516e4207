//! Checks of `anomalies`: the figures that are compared with their past.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use super::Counters;
use super::counters::{metric, metric_word, metrics_of_cgroups};
use super::decode::At;
use super::file::{Anomaly, File, MethodName};
use super::problem::{one_of, shown};
use super::report::Report;
use super::value::{Entries, Period};
use crate::anomaly::{Cpi2, Entry, Kind, Measure, Method, Settings, Threshold};
use crate::history::COUNTERS_MAX;

/// Maximum number of entries. Each of them compares a figure of each cgroup.
const MOST: usize = 32;

/// Bounds of `for`. The shortest is an interval.
const LASTING: RangeInclusive<Period> = Period::seconds(10)..=Period::seconds(3600);

/// Returns the checked settings; those of `base` that are omitted. `has_history`: whether a history is kept.
pub(super) fn anomalies(
    file: &File,
    base: &Settings,
    counters: &[Counters],
    has_history: bool,
    report: &mut Report<'_>,
) -> Settings {
    let entries = match &file.anomalies {
        Some(written) => entries(written, &metrics_of_cgroups(counters), has_history, report),
        None => Arc::clone(&base.entries),
    };
    let directory = match &file.anomalies_directory {
        Some(written) => directory(written, entries.is_empty(), report),
        None => base.directory.clone(),
    };
    let families = entries.iter().flat_map(|entry| match &entry.kind {
        Measure::Ratio { of, per } => vec![Arc::clone(of), Arc::clone(per)],
        Measure::Kind(_) => Vec::new(),
    });
    let families: BTreeSet<Arc<str>> = families.collect();
    if let Some(written) = file.anomalies.as_ref().filter(|_| families.len() > COUNTERS_MAX) {
        let message = format!("the ratios of all entries need more than {COUNTERS_MAX} events");
        report.error(written.node, message, "remove some of them");
    }
    Settings { entries, counters: families.into_iter().collect(), directory }
}

/// Returns the checked entries, in the order of the file. `counted`: metrics of events that are counted per cgroup.
fn entries(
    At { node, value: Entries(entries) }: &At<Entries<Anomaly>>,
    counted: &BTreeSet<String>,
    has_history: bool,
    report: &mut Report<'_>,
) -> Arc<[Entry]> {
    if !has_history && !entries.is_empty() {
        let message = "this has no effect: without a history there is no past to compare with";
        report.warning(*node, message, "set `history.for`, or remove this");
    }
    if entries.len() > MOST {
        report.error(*node, format!("more than {MOST} entries"), "remove some entries");
    }
    let entry = |(name, entry): &(At<String>, At<Anomaly>)| {
        metric_word(name.node, &name.value, "entries", report);
        let kind = measure(&entry.value, counted, report)?;
        let method = method(&entry.value, &kind, report);
        Some(Entry { name: name.value.as_str().into(), kind, method })
    };
    entries.iter().take(MOST).filter_map(entry).collect()
}

/// Returns what an entry compares.
fn measure(entry: &Anomaly, counted: &BTreeSet<String>, report: &mut Report<'_>) -> Option<Measure> {
    let Anomaly { of, per, .. } = entry;
    if let Some(per) = per {
        let mut family = |event: &At<String>| family(event, counted, report);
        return Some(Measure::Ratio { of: family(of), per: family(per) });
    }
    let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == of.value);
    if kind.is_none() {
        let kinds = one_of(&Kind::ALL.map(Kind::as_str));
        let hint = format!("write {kinds}, or give `per` for the ratio of two events");
        report.error(of.node, format!("{} is not a figure", shown(&of.value)), hint);
    }
    kind.map(Measure::Kind)
}

/// Returns the family of an event of cgroups.
fn family(event: &At<String>, counted: &BTreeSet<String>, report: &mut Report<'_>) -> Arc<str> {
    let metric = metric(&event.value);
    if !counted.contains(&metric) {
        let message = format!("no entry of `counters` counts {} per cgroup", shown(&event.value));
        report.warning(event.node, message, "add it to `events` of an entry with `per: [cgroup]`");
    }
    let unit = if ["task_clock", "cpu_clock"].contains(&&*metric) { "_seconds" } else { "" };
    format!("perf_cgroup_{metric}{unit}").into()
}

/// Returns how unusual values of an entry are found.
fn method(entry: &Anomaly, kind: &Measure, report: &mut Report<'_>) -> Method {
    let Period(lasting) = report.setting(&entry.lasting, LASTING, Period::seconds(60));
    if let Some(above) = &entry.above {
        if let Some(method) = &entry.method {
            report.error(method.node, "`method` and `above` exclude each other", "remove one of them");
        }
        if !above.value.is_finite() || above.value <= 0.0 {
            report.error(above.node, "the limit is not above zero", "write a number such as 0.2");
        }
        let lasting = u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX);
        return Method::Threshold(Threshold { above: above.value, lasting });
    }
    if let Some(lasting) = &entry.lasting {
        report.error(lasting.node, "`for` belongs to a fixed limit", "add `above`, or remove `for`");
    }
    match entry.method.as_ref().map_or(MethodName::default(), |at| at.value) {
        MethodName::Robust => Method::Robust(kind.robust()),
        MethodName::Cpi2 => Method::Cpi2(Cpi2::default()),
    }
}

/// Returns the directory for what was learned; `None` if the text is empty.
fn directory(written: &At<String>, is_unused: bool, report: &mut Report<'_>) -> Option<Arc<Path>> {
    if is_unused && !written.value.is_empty() {
        let message = "this has no effect: `anomalies` has no entries";
        report.warning(written.node, message, "add entries, or remove this");
    }
    (!written.value.is_empty()).then(|| report.directory().join(&written.value).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{good, report};

    fn entries(yaml: &str) -> Vec<(String, Measure, bool)> {
        let of = |entry: &Entry| {
            (entry.name.to_string(), entry.kind.clone(), matches!(entry.method, Method::Cpi2(_)))
        };
        good(yaml).anomalies.entries.iter().map(of).collect()
    }

    #[test]
    fn the_section_replaces_the_built_in_set() {
        let built_in: Vec<Measure> = entries("{}").into_iter().map(|entry| entry.1).collect();
        let expected: Vec<Measure> = Kind::ALL[..8].iter().map(|&kind| kind.into()).collect();
        assert_eq!(built_in, expected, "all but involuntary switches, which follow from waiting for a CPU");
        assert!(entries("anomalies: {}").is_empty());
        let yaml = "anomalies: {paper: {of: cpi, method: cpi2}, waits: {of: runqueue_latency}}";
        let expected = [
            ("paper".to_owned(), Kind::Cpi.into(), true),
            ("waits".to_owned(), Kind::RunqueueLatency.into(), false),
        ];
        assert_eq!(entries(yaml), expected);
    }

    #[test]
    fn a_ratio_of_two_events_is_that_of_their_metrics_of_cgroups() {
        let yaml = "counters: {b: {events: [branches, branch-misses, task-clock], per: [cgroup]}}\n\
                    anomalies: {a: {of: branch-misses, per: branches}, b: {of: branches, per: task-clock}}";
        let anomalies = good(yaml).anomalies;
        let ratio = |of: &str, per: &str| Measure::Ratio { of: of.into(), per: per.into() };
        let kinds: Vec<Measure> = anomalies.entries.iter().map(|entry| entry.kind.clone()).collect();
        assert_eq!(
            kinds,
            [
                ratio("perf_cgroup_branch_misses", "perf_cgroup_branches"),
                ratio("perf_cgroup_branches", "perf_cgroup_task_clock_seconds")
            ]
        );
        assert_eq!(anomalies.counters.len(), 3, "each once");
        let uncounted = report("anomalies: {a: {of: branch-misses, per: instructions}}");
        assert!(
            uncounted.contains("no entry of `counters` counts `branch-misses` per cgroup"),
            "{uncounted}"
        );
        assert_eq!(uncounted.lines().count(), 1, "{uncounted}");
        let many: Vec<String> = (0..5).map(|n| format!("a{n}: {{of: x{n}, per: y{n}}}")).collect();
        let many = report(&format!("anomalies: {{{}}}", many.join(", ")));
        assert!(many.contains("need more than 8 events"), "{many}");
    }

    #[test]
    fn a_fixed_limit_has_a_time_and_no_method() {
        let method = |yaml: &str| good(&format!("anomalies: {{a: {yaml}}}")).anomalies.entries[0].method;
        let expected = |above, lasting| Method::Threshold(Threshold { above, lasting });
        assert_eq!(method("{of: syscall_errors, above: 0.2}"), expected(0.2, 60_000));
        assert_eq!(method("{of: forks, above: 100, for: 5m}"), expected(100.0, 300_000));
        let wrong = |yaml: &str| report(&format!("anomalies: {{a: {yaml}}}"));
        assert!(wrong("{of: cpi, above: 2, method: robust}").contains("exclude each other"));
        assert!(wrong("{of: cpi, for: 1m}").contains("add `above`"));
        assert!(wrong("{of: cpi, above: 0}").contains("not above zero"));
        assert!(wrong("{of: cpi, above: 2, for: 1s}").contains("is not between 10s and 3600s"));
    }

    #[test]
    fn the_directory_is_relative_to_the_file_and_empty_is_none() {
        let directory = |yaml| good(yaml).anomalies.directory;
        assert_eq!(directory("{}"), None);
        assert_eq!(directory("anomalies_directory: ''"), None);
        assert_eq!(directory("anomalies_directory: /var/lib/x").as_deref(), Some(Path::new("/var/lib/x")));
        assert!(directory("anomalies_directory: state").unwrap().ends_with("state"));
        let unused = "{anomalies_directory: /x, anomalies: {}}";
        assert!(report(unused).contains("`anomalies` has no entries"), "{}", report(unused));
    }

    #[test]
    fn an_unknown_figure_a_missing_one_and_too_many_entries_are_reported() {
        assert!(report("anomalies: {a: {of: ipc}}").contains("runqueue_latency"));
        assert!(report("anomalies: {a: {}}").contains("of"));
        assert!(report("{history: {for: 0s}, anomalies: {a: {of: cpi}}}").contains("set `history.for`"));
        assert!(report("anomalies: {A: {of: cpi}}").contains("write `a`"));
        let many: Vec<String> = (0..=MOST).map(|n| format!("a{n}: {{of: cpi}}")).collect();
        assert!(report(&format!("anomalies: {{{}}}", many.join(", "))).contains("more than 32 entries"));
    }
}
