//! Compares names, units and attributes in docs/otlp.md with the program.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perf_exporter::config::{Config, load};
use perf_exporter::event::Catalog;
use perf_exporter::export::otlp::metrics::attributes::KEYS;
use perf_exporter::export::otlp::metrics::names::{Instrument, Shape};
use perf_exporter::export::prometheus::Format;
use perf_exporter::host::{self as files, Facts, Roots};
use perf_exporter::metrics::{Detail, Kind, Level, Metadata};
use perf_exporter::plan::{Amount, Entries, StreamSupport, plan};

use crate::fake::scrape;
use crate::layers::sources;
use crate::manual::{configurations, spans};
use crate::program::{Service, host, repository};

/// A row of the table of names.
struct Row {
    prometheus: String,
    otlp: String,
    unit: String,
    kind: String,
}

/// Returns the cells of the tables whose first column has this title.
fn table(title: &str) -> Vec<Vec<String>> {
    let page = files::read_text(&repository("docs/otlp.md")).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with(&format!("| {title} |"))).skip(2);
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn rows() -> Vec<Row> {
    let code = |cell: &str| spans(cell).first().map_or_else(String::new, |&code| code.to_owned());
    let row = |cells: Vec<String>| {
        let [prometheus, otlp, unit, kind] = &cells[..] else { panic!("{cells:?}") };
        Row { prometheus: code(prometheus), otlp: code(otlp), unit: code(unit), kind: kind.clone() }
    };
    table("Prometheus").into_iter().map(row).collect()
}

/// Returns the text that matches the placeholder of a pattern, or an empty text if the pattern has no placeholder. `None` if the text does
/// not match.
fn fits<'t>(pattern: &str, text: &'t str) -> Option<&'t str> {
    match pattern.split_once('<') {
        None => (pattern == text).then_some(""),
        Some((before, rest)) => {
            let (_, after) = rest.split_once('>').unwrap();
            text.strip_prefix(before)?.strip_suffix(after).filter(|within| !within.is_empty())
        }
    }
}

fn filled(pattern: &str, within: &str) -> String {
    match pattern.split_once('<') {
        None => pattern.to_owned(),
        Some((before, rest)) => format!("{before}{within}{}", rest.split_once('>').unwrap().1),
    }
}

impl Row {
    /// Checks that the row describes this metric as the program exports it.
    #[track_caller]
    fn check(&self, exposed: &str, instrument: &Instrument) {
        let within = fits(&self.prometheus, exposed).unwrap();
        assert_eq!(instrument.name, filled(&self.otlp, within), "{exposed}");
        match &*self.unit {
            "{…}" => assert!(instrument.unit.starts_with('{'), "{exposed} is in {:?}", instrument.unit),
            unit => assert_eq!(instrument.unit, unit, "{exposed}"),
        }
        let kind = match instrument.shape {
            Shape::Counter => "counter",
            Shape::UpDownCounter => "up-down counter",
            Shape::Gauge => "gauge",
            Shape::Histogram => "histogram",
        };
        assert_eq!(kind, self.kind, "{exposed}");
    }
}

fn exposed(metadata: &Metadata) -> String {
    let suffix = match metadata.kind() {
        Kind::Counter => "_total",
        Kind::Info => "_info",
        Kind::Gauge | Kind::Histogram => "",
    };
    format!("{}{suffix}", metadata.name())
}

/// Parses the families of a text in the OpenMetrics format.
fn served(text: &str, level: Level) -> Vec<Arc<Metadata>> {
    let described = |word: &str| -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(word)?.split_once(' '));
        lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let (units, helps) = (described("# UNIT "), described("# HELP "));
    let family = |(name, kind): (String, String)| {
        let kind = match &*kind {
            "counter" => Kind::Counter,
            "gauge" => Kind::Gauge,
            "info" => Kind::Info,
            "histogram" => Kind::Histogram,
            other => panic!("{other}"),
        };
        let unit = units.get(&name).map_or("", String::as_str);
        Metadata::with_detail(&name, &helps[&name], unit, kind, Detail::from(level)).unwrap()
    };
    described("# TYPE ").into_iter().map(family).collect()
}

/// Returns every family that the program exports for any configuration of the repository on any fixture host, by its exposed name.
pub(crate) fn families() -> BTreeMap<String, Arc<Metadata>> {
    let mut known = Vec::new();
    for (path, yaml) in configurations() {
        let (config, _) = load(yaml.as_bytes(), &path).unwrap();
        for on in ["intel-hybrid", "intel-server", "amd", "arm", "vm"] {
            let roots = Roots::under(&host(on));
            let facts = Facts::read(&roots);
            let entries = Entries {
                scheduler: config.scheduler.as_ref(),
                syscalls: config.syscalls.as_ref(),
                ..Entries::counters(&config.counters)
            };
            let plan = plan(&entries, &Catalog::load(&roots, &facts), &StreamSupport::foreseen(&facts));
            let outputs = plan.traces.iter().flat_map(|trace| &trace.outputs);
            known.extend(outputs.flat_map(|output| output.hits.iter().chain(&output.amount)).cloned());
            let counters = plan.groups.iter().flat_map(|group| &group.counters);
            known.extend(counters.flat_map(|counter| [&counter.metric, &counter.unattributed]).cloned());
        }
    }
    let format = "application/openmetrics-text;version=1.0.0";
    // From the highest level to the lowest, which replaces the higher ones.
    for level in Level::ALL.into_iter().rev() {
        let service = Service::start_pushing("tests/data/hosts/vm", level);
        known.extend(served(&service.get_as("/metrics", format), level));
    }
    known.extend(served(&scrape(&host("amd"), &Config::default(), Format::OpenMetrics100), Level::Basic));
    let mut families: BTreeMap<String, Arc<Metadata>> = BTreeMap::new();
    for metadata in known {
        let family = families.entry(exposed(&metadata)).or_insert_with(|| Arc::clone(&metadata));
        if metadata.detail().level < family.detail().level {
            *family = metadata;
        }
    }
    families
}

#[test]
fn every_metric_is_called_what_the_table_says() {
    let (rows, families) = (rows(), families());
    assert!(rows.len() > 50 && families.len() > 50, "{} rows, {} families", rows.len(), families.len());
    let names: BTreeSet<&str> = families.values().map(|metadata| metadata.name()).collect();
    for (exposed, metadata) in &families {
        let fitting = rows.iter().filter(|row| fits(&row.prometheus, exposed).is_some());
        let row = fitting.max_by_key(|row| (!row.prometheus.contains('<'), row.prometheus.len()));
        let row = row.unwrap_or_else(|| panic!("{exposed} has no row in docs/otlp.md"));
        row.check(exposed, &Instrument::of(metadata, |name| names.contains(name)));
    }
}

/// Finds rows with outdated names, including those of metrics that no configuration here enables.
#[test]
fn every_row_follows_from_the_rules() {
    for row in rows() {
        let exposed = filled(&row.prometheus, "things");
        let kind = match &*row.kind {
            "counter" => Kind::Counter,
            "histogram" => Kind::Histogram,
            _ if exposed.ends_with("_info") => Kind::Info,
            _ => Kind::Gauge,
        };
        let base = exposed.trim_end_matches("_total").trim_end_matches("_info");
        let units = ["seconds", "bytes", "joules", "ratio"];
        let unit = units.iter().find(|&&unit| base.ends_with(&format!("_{unit}"))).map_or("", |unit| unit);
        let metadata = Metadata::new(base, "h", unit, kind).unwrap();
        row.check(&exposed, &Instrument::of(&metadata, |_| false));
    }
}

#[test]
fn every_label_with_a_convention_stands_in_the_table() {
    let rows = table("label");
    let written: BTreeMap<String, String> =
        rows.iter().map(|cells| (spans(&cells[0])[0].to_owned(), spans(&cells[1])[0].to_owned())).collect();
    let known = KEYS.map(|(label, key)| (label.to_owned(), key.to_owned()));
    assert_eq!(written, BTreeMap::from(known));
}

#[test]
fn every_name_of_a_log_record_stands_in_the_table_and_is_in_use() {
    let rows = table("event");
    let written: BTreeSet<String> = rows.iter().map(|cells| spans(&cells[0])[0].to_owned()).collect();
    let sources = sources();
    let names = sources.iter().flat_map(|(_, text)| text.split("name: \"perf_exporter.").skip(1));
    let used: BTreeSet<String> =
        names.map(|rest| format!("perf_exporter.{}", rest.split('"').next().unwrap())).collect();
    assert!(used.len() > 10, "{used:?}");
    assert_eq!(written, used);
}

#[test]
fn every_distribution_that_is_preset_names_has_exponential_buckets_and_so_is_native() {
    let roots = Roots::under(&host("vm"));
    let facts = Facts::read(&roots);
    let mut latencies = BTreeSet::new();
    for (path, yaml) in configurations() {
        let (config, _) = load(yaml.as_bytes(), &path).unwrap();
        let entries = Entries {
            traced: &config.traced,
            scheduler: config.scheduler.as_ref(),
            syscalls: config.syscalls.as_ref(),
            ..Entries::counters(&config.counters)
        };
        let plan = plan(&entries, &Catalog::load(&roots, &facts), &StreamSupport::foreseen(&facts));
        for trace in &plan.traces {
            let (Amount::Histogram(_, buckets) | Amount::Elapsed(buckets)) = &trace.measure else { continue };
            let metrics = trace.outputs.iter().filter_map(|output| output.amount.as_ref());
            let names: Vec<String> = metrics.map(|metric| metric.name().to_owned()).collect();
            assert!(buckets.is_exponential(), "{path}: {names:?}");
            latencies.extend(names);
        }
    }
    for name in ["perf_sched_runqueue_latency_seconds", "perf_cgroup_syscall_duration_seconds"] {
        assert!(latencies.contains(name), "{latencies:?}");
    }
    assert!(latencies.len() >= 5, "{latencies:?}");
}
