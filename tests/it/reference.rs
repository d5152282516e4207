//! docs/metrics.md, generated from the metadata of the metrics and the rows of `support/reference.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use perf_exporter::host as files;
use perf_exporter::metrics::{Kind, Level, Metadata};

use crate::conventions::families;
use crate::program::repository;
use crate::references::{CHAPTERS, Row, row_of};

const HEAD: &str = "\
# Metrics

All metrics of the exporter, as exposed on `/metrics`. `BLESS=1 cargo test --locked --test it reference` regenerates this page;
a test compares it with the program. [otlp.md](otlp.md) lists the names of the metrics in OTLP.

- `<…>` is a placeholder for the name of an event or of a configuration entry. Before `sched_` and `syscall`, it is `cgroup_`,
  `process_`, `numa_`, or empty for all CPUs together.
- A series with the label `cgroup` also has `namespace`, `pod` and `container` if a container runtime provides them. The section
  `containers` can add `service` and pod labels.
- Series of processes have the labels listed in `processes.by`. Series of tracepoints and probes have the labels of their entries.
- Series beyond `limits.series` are aggregated into the series `other` of each metric: see [series](series.md).
- The column *section* names the section of the [configuration](../config/perf-exporter.yaml) that enables the metric. Metrics with
  `self` are always present.
- The column *level* is the lowest `metrics.level` at which the metric is published: `basic`, `standard` (the built-in one) or `full`.
  A second level, after `cgroup`, is that of the metric with `cgroup_`. *entry* is the level of the entry: `basic`, unless the entry
  has a `level` of its own. Of the built-in entries, `programs` and the executed programs and exits of `forks` have the level `full`.
- At the level `standard`, metrics of the scheduler by cgroup have fewer series: the histogram has four buckets, waits exclude
  `sleeping`, switches are `involuntary`, and preemptions are by `other` or `throttled`. `metrics.include` publishes a metric whole.

";

fn kind(metadata: &Metadata) -> &'static str {
    match metadata.kind() {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Info => "info",
    }
}

fn line(row: &Row, metadata: &Metadata, level: &str) -> String {
    let unit = if metadata.unit().is_empty() { "" } else { metadata.unit() };
    let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
    let section = if row.section.is_empty() { "self" } else { row.section };
    let help = if row.says.is_empty() { metadata.help() } else { row.says };
    let help = help.trim_end_matches('.').replace('|', "\\|");
    let query = row.query.replace('|', "\\|");
    format!(
        "| `{}` | {help} | {} | {unit} | {} | {section} | {level} | `{query}` |",
        row.name,
        kind(metadata),
        labels.join(", ")
    )
}

fn page(families: &BTreeMap<String, Arc<Metadata>>) -> String {
    let mut of_rows: BTreeMap<&str, &Metadata> = BTreeMap::new();
    let mut levels: BTreeMap<&str, BTreeMap<bool, Level>> = BTreeMap::new();
    for (name, metadata) in families {
        let row = row_of(name).unwrap_or_else(|| panic!("{name} has no row in tests/support/reference.rs"));
        of_rows.entry(row.name).or_insert(metadata);
        let level = levels.entry(row.name).or_default().entry(name.starts_with("perf_cgroup_"));
        level
            .and_modify(|level| *level = metadata.detail().level.min(*level))
            .or_insert(metadata.detail().level);
    }
    let mut page = HEAD.to_owned();
    for (chapter, rows) in CHAPTERS {
        let titles = "| metric | description | type | unit | labels | section | level | example query |\n|---|---|---|---|---|---|---|---|";
        writeln!(page, "## {chapter}\n\n{titles}").unwrap();
        for row in *rows {
            let guessed = guess(row.name);
            let metadata = of_rows.get(row.name).copied().unwrap_or(&guessed);
            writeln!(page, "{}", line(row, metadata, &level(row, levels.get(row.name)))).unwrap();
        }
        page.push('\n');
    }
    page.trim_end().to_owned() + "\n"
}

/// Returns the level of a row: of its metrics by cgroup, if there are others with another level, and of the others.
fn level(row: &Row, levels: Option<&BTreeMap<bool, Level>>) -> String {
    if ["counters", "tracepoints", "probes"].iter().any(|section| row.section.starts_with(section)) {
        return "*entry*".to_owned();
    }
    let of = |by_cgroup| levels.and_then(|levels| levels.get(&by_cgroup)).copied();
    match (of(false), of(true)) {
        (Some(others), Some(cgroups)) if others != cgroups => format!("{others}; cgroup {cgroups}"),
        (level, other) => level.or(other).unwrap_or_default().to_string(),
    }
}

/// Infers kind and unit from the name, for metrics that no configuration in this repository enables.
fn guess(name: &str) -> Arc<Metadata> {
    let name = name.replace(['<', '>', ' '], "");
    let (name, kind) = match name.strip_suffix("_total") {
        Some(name) => (name.to_owned(), Kind::Counter),
        None if name.ends_with("_info") => (name.trim_end_matches("_info").to_owned(), Kind::Info),
        None if ["stuck", "_age_"].iter().any(|gauge| name.contains(gauge)) => (name, Kind::Gauge),
        None if name.ends_with("_bytes") || name.ends_with("_seconds") => (name, Kind::Histogram),
        None => (name, Kind::Gauge),
    };
    let unit = ["seconds", "bytes", "joules"].into_iter().find(|unit| name.ends_with(unit)).unwrap_or("");
    Metadata::new(&name, "?", unit, kind).unwrap()
}

#[test]
fn the_reference_has_every_metric_and_is_current() {
    let (page, path) = (page(&families()), repository("docs/metrics.md"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = files::read(&path).unwrap_or_default();
    assert!(
        committed == page.as_bytes(),
        "docs/metrics.md is outdated: run BLESS=1 cargo test --locked --test it reference"
    );
}

#[test]
fn no_two_rows_are_of_the_same_metric() {
    let names: BTreeSet<&str> = crate::references::rows().map(|row| row.name).collect();
    assert_eq!(names.len(), crate::references::rows().count());
}
