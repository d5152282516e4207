//! Checks of `anomalies`: the figures that are compared with their past.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use super::counters::{is_per_cgroup, metric, metrics_of_cgroups};
use super::decode::At;
use super::file::{Anomaly, File, MethodName, Season};
use super::metric_word::metric_word;
use super::problem::{one_of, shown};
use super::report::Report;
use super::tasks::known_call;
use super::traced::Measure as TracedMeasure;
use super::value::{Entries, Period};
use super::{Counters, Syscalls, Traced};
use crate::anomaly::{
    Cpi2, Entry, Kind, Measure, Method, Robust, SPECIFICATIONS_SIZE, Settings, Specifications, Threshold,
};
use crate::history::{Additional, COUNTERS_MAX, LATENCIES_MAX, Latency};
use crate::host::read_at_most;

/// Maximum number of entries. Each of them compares a figure of each cgroup.
const MOST: usize = 32;

/// Bounds of `for`. The shortest is an interval.
const LASTING: RangeInclusive<Period> = Period::seconds(10)..=Period::seconds(3600);

/// The value of `of` for the latency of a system call.
const SYSCALL_LATENCY: &str = "syscall_latency";

/// The family of latencies of system calls.
const DURATIONS: &str = "perf_cgroup_syscall_duration_seconds";

/// Quantile of latencies in thousandths, unless another one is given.
const QUANTILE: u16 = 990;

/// Prefix of the families of cgroups.
const PREFIX: &str = "perf_cgroup_";

/// What other sections measure.
pub(super) struct Measured<'m> {
    pub(super) counters: &'m [Counters],
    pub(super) traced: &'m [Traced],
    pub(super) syscalls: Option<&'m Syscalls>,
    /// Whether a history is kept.
    pub(super) has_history: bool,
}

/// Returns the checked settings; those of `base` that are omitted.
pub(super) fn anomalies(
    file: &File,
    base: &Settings,
    measured: &Measured<'_>,
    report: &mut Report<'_>,
) -> Settings {
    let counted = metrics_of_cgroups(measured.counters);
    let entries = match &file.anomalies {
        Some(written) => entries(written, measured, &counted, report),
        None => Arc::clone(&base.entries),
    };
    let directory = match &file.anomalies_directory {
        Some(written) => directory(written, entries.is_empty(), report),
        None => base.directory.clone(),
    };
    let additional = additional(&entries, &counted);
    if let Some(written) = &file.anomalies {
        for (number, most, what) in [
            (additional.counters.len(), COUNTERS_MAX, "ratios of all entries need more than {} events"),
            (
                additional.latencies.len(),
                LATENCIES_MAX,
                "entries have more than {} distributions of latencies",
            ),
        ] {
            if number > most {
                let message = format!("the {}", what.replace("{}", &most.to_string()));
                report.error(written.node, message, "remove some of them");
            }
        }
    }
    let specifications = match &file.anomalies_specifications {
        Some(written) => specifications(written, &entries, report),
        None => Arc::clone(&base.specifications),
    };
    Settings { entries, additional, directory, specifications }
}

/// Returns what the history must record for these entries. `counted`: metrics of events that are counted per cgroup, with their entries.
fn additional(entries: &[Entry], counted: &BTreeMap<String, Arc<str>>) -> Additional {
    let (mut counters, mut latencies, mut events) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    for measure in entries.iter().map(|entry| &entry.kind) {
        match measure {
            Measure::Ratio { of, per } => counters.extend([Arc::clone(of), Arc::clone(per)]),
            Measure::Latency { times, .. } => drop(latencies.insert(times.clone())),
            Measure::Kind(_) => {}
        }
        for family in measure.hardware_events().into_iter().flatten() {
            let entry = family.strip_prefix(PREFIX).and_then(|metric| counted.get(metric));
            events.extend(entry.map(|entry| (Arc::from(family), Arc::clone(entry))));
        }
    }
    Additional {
        counters: counters.into_iter().collect(),
        latencies: latencies.into_iter().collect(),
        events: events.into_iter().collect(),
    }
}

/// Returns the checked entries, in the order of the file. `counted`: metrics of events that are counted per cgroup.
fn entries(
    At { node, value: Entries(entries) }: &At<Entries<Anomaly>>,
    measured: &Measured<'_>,
    counted: &BTreeMap<String, Arc<str>>,
    report: &mut Report<'_>,
) -> Arc<[Entry]> {
    if !measured.has_history && !entries.is_empty() {
        let message = "this has no effect: without a history there is no past to compare with";
        report.warning(*node, message, "set `history.for`, or remove this");
    }
    if entries.len() > MOST {
        report.error(*node, format!("more than {MOST} entries"), "remove some entries");
    }
    let entry = |(name, entry): &(At<String>, At<Anomaly>)| {
        metric_word(name.node, &name.value, "entries", report);
        let kind = measure(&entry.value, measured, counted, report)?;
        let method = method(&entry.value, &kind, report);
        Some(Entry { name: name.value.as_str().into(), kind, method })
    };
    entries.iter().take(MOST).filter_map(entry).collect()
}

/// Returns what an entry compares.
fn measure(
    entry: &Anomaly,
    measured: &Measured<'_>,
    counted: &BTreeMap<String, Arc<str>>,
    report: &mut Report<'_>,
) -> Option<Measure> {
    let Anomaly { of, per, call, quantile, .. } = entry;
    exclusive(entry, report);
    if let Some(per) = per {
        let mut family = |event: &At<String>| family(event, counted, report);
        return Some(Measure::Ratio { of: family(of), per: family(per) });
    }
    if of.value == SYSCALL_LATENCY {
        let times = call_latency(of, call.as_ref(), measured.syscalls, report)?;
        return Some(Measure::Latency { times, quantile: thousandths(quantile.as_ref(), report) });
    }
    if quantile.is_some() {
        let times = entry_latency(of, measured.traced, report);
        return Some(Measure::Latency { times, quantile: thousandths(quantile.as_ref(), report) });
    }
    let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == of.value);
    if kind.is_none() {
        let kinds: Vec<&str> = Kind::ALL.into_iter().map(Kind::as_str).chain([SYSCALL_LATENCY]).collect();
        let hint = format!(
            "write {}, or give `per` for the ratio of two events, or `quantile` for an entry of `probes` or `tracepoints`",
            one_of(&kinds)
        );
        report.error(of.node, format!("{} is not a figure", shown(&of.value)), hint);
    }
    kind.map(Measure::Kind)
}

/// Reports keys that do not belong together.
fn exclusive(Anomaly { of, per, call, quantile, .. }: &Anomaly, report: &mut Report<'_>) {
    if let Some(call) = call.as_ref().filter(|_| of.value != SYSCALL_LATENCY) {
        let hint = format!("write `of: {SYSCALL_LATENCY}`, or remove `call`");
        report.error(call.node, "`call` belongs to the latency of a system call", hint);
    }
    if let Some(quantile) = quantile.as_ref().filter(|_| per.is_some()) {
        report.error(quantile.node, "`quantile` and `per` exclude each other", "remove one of them");
    }
}

/// Returns the latency of a system call.
fn call_latency(
    of: &At<String>,
    call: Option<&At<String>>,
    syscalls: Option<&Syscalls>,
    report: &mut Report<'_>,
) -> Option<Latency> {
    let Some(call) = call else {
        let message = "the system call is missing: calls wait for different things";
        report.error(of.node, message, "add `call: fsync`, or another one");
        return None;
    };
    if !known_call(call.node, &call.value, |name| name == call.value, report) {
        return None;
    }
    let is_measured = |syscalls: &Syscalls| is_per_cgroup(&syscalls.per) && syscalls.matches(&call.value);
    if !syscalls.is_some_and(is_measured) {
        let message = format!("`syscalls` does not measure {} per cgroup", shown(&call.value));
        report.warning(
            call.node,
            message,
            format!("write `syscalls: {{per: [cgroup], include: [{}]}}`", call.value),
        );
    }
    Some(Latency { family: DURATIONS.into(), call: Some(call.value.as_str().into()) })
}

/// Returns the times of an entry of `probes` or `tracepoints`.
fn entry_latency(of: &At<String>, traced: &[Traced], report: &mut Report<'_>) -> Latency {
    let has_times = |entry: &Traced| {
        let is_distribution =
            matches!(entry.measure, TracedMeasure::Histogram(..) | TracedMeasure::Elapsed(_));
        is_distribution && entry.unit() == "seconds" && is_per_cgroup(&entry.per)
    };
    let entry = traced.iter().find(|entry| *entry.name == *of.value);
    if !entry.is_some_and(has_times) {
        let name = shown(&of.value);
        let message = match entry {
            Some(entry) => {
                format!("the entry {name} of `{}` measures no times per cgroup", entry.kind.section())
            }
            None => format!("no entry of `probes` or `tracepoints` is named {name}"),
        };
        report.warning(
            of.node,
            message,
            "add an entry of this name with `histogram: seconds` and `per: [cgroup]`",
        );
    }
    let stem = entry.map_or_else(|| format!("{}_seconds", of.value), Traced::stem);
    Latency { family: format!("{PREFIX}{stem}").into(), call: None }
}

/// Returns a quantile in thousandths.
fn thousandths(quantile: Option<&At<f64>>, report: &mut Report<'_>) -> u16 {
    let Some(At { node, value }) = quantile else { return QUANTILE };
    let rounded = (value * 1000.0).round();
    if !(1.0..=999.0).contains(&rounded) {
        report.error(*node, format!("{value} is not between 0.001 and 0.999"), "write a number such as 0.99");
    }
    rounded as u16
}

/// Returns the family of an event of cgroups.
fn family(event: &At<String>, counted: &BTreeMap<String, Arc<str>>, report: &mut Report<'_>) -> Arc<str> {
    let metric = metric(&event.value);
    if !counted.contains_key(&metric) {
        let message = format!("no entry of `counters` counts {} per cgroup", shown(&event.value));
        report.warning(event.node, message, "add it to `events` of an entry with `per: [cgroup]`");
    }
    let unit = if ["task_clock", "cpu_clock"].contains(&&*metric) { "_seconds" } else { "" };
    format!("{PREFIX}{metric}{unit}").into()
}

/// Returns how unusual values of an entry are found.
fn method(entry: &Anomaly, kind: &Measure, report: &mut Report<'_>) -> Method {
    let Period(lasting) = report.setting(&entry.lasting, LASTING, Period::seconds(60));
    if let Some(above) = &entry.above {
        if let Some(method) = &entry.method {
            report.error(method.node, "`method` and `above` exclude each other", "remove one of them");
        }
        if let Some(season) = &entry.season {
            report.error(season.node, "`season` and `above` exclude each other", "remove one of them");
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
    let by_hour = entry.season.as_ref().is_some_and(|season| season.value == Season::Day);
    match entry.method.as_ref().map_or(MethodName::default(), |at| at.value) {
        MethodName::Robust => Method::Robust(Robust { by_hour, ..kind.robust() }),
        MethodName::Cpi2 => {
            if let Some(season) = &entry.season {
                let hint = "remove `season`, or write `method: robust`";
                report.error(season.node, "the method `cpi2` knows no season", hint);
            }
            Method::Cpi2(Cpi2::default())
        }
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

/// Returns the content of a file of specifications; none if the text is empty.
fn specifications(written: &At<String>, entries: &[Entry], report: &mut Report<'_>) -> Arc<Specifications> {
    let At { node, value } = written;
    if value.is_empty() {
        return Arc::default();
    }
    let path = report.directory().join(value);
    let content = read_at_most(&path, SPECIFICATIONS_SIZE).map_err(|error| error.to_string());
    let parsed = content.and_then(|content| {
        Specifications::parse(&content).map_err(|error| format!("{}: {error}", path.display()))
    });
    let specifications = parsed.unwrap_or_else(|problem| {
        report.error(*node, problem, "docs/anomalies.md has the command that writes the file");
        Specifications::default()
    });
    for kind in specifications.kinds() {
        if !entries.iter().any(|entry| *entry.name == *kind) {
            let message = format!(
                "no entry of `anomalies` is named {}, of which the file has specifications",
                shown(kind)
            );
            report.warning(*node, message, "use the names of the entries for `kind` in the file");
        }
    }
    specifications.into()
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
        assert_eq!(anomalies.additional.counters.len(), 3, "each once");
        let events: Vec<(&str, &str)> =
            anomalies.additional.events.iter().map(|(family, entry)| (&**family, &**entry)).collect();
        assert_eq!(events, [("perf_cgroup_branch_misses", "b"), ("perf_cgroup_branches", "b")]);
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
    fn a_latency_is_that_of_one_call_or_of_one_entry() {
        let of = |yaml: &str| {
            let probes = "{kernel: {kprobe: vfs_fsync, histogram: seconds, per: [cgroup]}}";
            let syscalls = "{per: [cgroup], include: [fsync]}";
            let yaml = format!("{{syscalls: {syscalls}, probes: {probes}, anomalies: {{a: {yaml}}}}}");
            let anomalies = good(&yaml).anomalies;
            let kind = anomalies.entries[0].kind.clone();
            let Measure::Latency { times, quantile } = kind else { panic!("{kind:?}") };
            assert_eq!(*anomalies.additional.latencies, *std::slice::from_ref(&times));
            (times.family.to_string(), times.call.map(|call| call.to_string()), quantile)
        };
        let fsync = |quantile| (DURATIONS.to_owned(), Some("fsync".to_owned()), quantile);
        assert_eq!(of("{of: syscall_latency, call: fsync}"), fsync(990));
        assert_eq!(of("{of: syscall_latency, call: fsync, quantile: 0.5}"), fsync(500));
        let kernel = ("perf_cgroup_kernel_seconds".to_owned(), None, 999);
        assert_eq!(of("{of: kernel, quantile: 0.999}"), kernel);
    }

    #[test]
    fn a_latency_that_is_not_measured_is_a_warning_with_the_lines_that_measure_it() {
        let wrong = |yaml: &str| report(&format!("anomalies: {{a: {yaml}}}"));
        let unmeasured = wrong("{of: syscall_latency, call: fsync}");
        assert!(unmeasured.contains("write `syscalls: {per: [cgroup], include: [fsync]}`"), "{unmeasured}");
        assert_eq!(unmeasured.lines().count(), 1, "{unmeasured}");
        assert!(wrong("{of: syscall_latency}").contains("the system call is missing"));
        assert!(wrong("{of: syscall_latency, call: fsynk}").contains("did you mean `fsync`"));
        assert!(wrong("{of: cpi, call: fsync}").contains("`call` belongs to"));
        assert!(wrong("{of: query, quantile: 0.9}").contains("is named `query`"));
        assert!(wrong("{of: forks, quantile: 0.9}").contains("measures no times per cgroup"));
        assert!(wrong("{of: query, quantile: 1}").contains("is not between 0.001 and 0.999"));
        assert!(wrong("{of: a, per: b, quantile: 0.9}").contains("exclude each other"));
        let many: Vec<String> = (0..9).map(|n| format!("a{n}: {{of: x{n}, quantile: 0.9}}")).collect();
        let many = report(&format!("anomalies: {{{}}}", many.join(", ")));
        assert!(many.contains("more than 8 distributions of latencies"), "{many}");
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
    fn a_season_belongs_to_the_robust_method() {
        let method = |yaml: &str| good(&format!("anomalies: {{a: {yaml}}}")).anomalies.entries[0].method;
        let robust = Kind::Cpi.robust();
        assert_eq!(method("{of: cpi, season: day}"), Method::Robust(Robust { by_hour: true, ..robust }));
        assert_eq!(method("{of: cpi}"), Method::Robust(robust));
        let wrong = |yaml: &str| report(&format!("anomalies: {{a: {yaml}}}"));
        assert!(wrong("{of: cpi, season: week}").contains("day"));
        assert!(wrong("{of: cpi, season: day, method: cpi2}").contains("knows no season"));
        assert!(wrong("{of: cpi, season: day, above: 2}").contains("exclude each other"));
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
    fn specifications_are_read_from_a_file_and_its_problems_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("specifications.json");
        let yaml = format!("anomalies: {{cpi: {{of: cpi}}}}\nanomalies_specifications: {}\n", path.display());
        assert!(report(&yaml).contains("No such file"), "{}", report(&yaml));
        let write = |content: &str| std::fs::write(&path, content).unwrap();
        write(
            r#"[{"kind": "cpi", "workload": "shop/web/app", "mean": 1.5, "deviation": 0.1, "samples": 200}]"#,
        );
        assert_eq!(good(&yaml).anomalies.specifications.len(), 1);
        write(r#"[{"kind": "cpu", "workload": "/a", "mean": 1, "deviation": 0, "samples": 200}]"#);
        assert!(report(&yaml).contains("is named `cpu`"), "{}", report(&yaml));
        write("[{}]");
        assert!(report(&yaml).contains("missing field"), "{}", report(&yaml));
        assert!(good("anomalies_specifications: ''").anomalies.specifications.is_empty());
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
