//! OpenTelemetry names and units of metric families.
//!
//! A name has dots between namespaces, and neither a unit nor `_total`: `perf_cgroup_task_clock_seconds_total` becomes
//! `perf.cgroup.task_clock` with the unit `s`. The translation of a Collector's Prometheus exporters restores the Prometheus name. Where
//! the name would be ambiguous without the unit, the unit stays. Rules:
//! <https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/#metric-metadata-1> and
//! <https://opentelemetry.io/docs/specs/semconv/general/metrics/#instrument-units>. Only a word `total` inside of a counter's name is not
//! restored, because these exporters drop it.

use std::borrow::Cow;

use crate::health::Scope;
use crate::metrics::{Kind, Metadata};

/// Units of metrics and their UCUM codes (Unified Code for Units of Measure). A Collector uses the same words.
const UNITS: [(&str, &str); 6] =
    [("seconds", "s"), ("bytes", "By"), ("joules", "J"), ("watts", "W"), ("celsius", "Cel"), ("ratio", "1")];

/// Words that are namespaces, by depth. The scopes are additional namespaces at the second depth. The last ones occur with and without a
/// scope.
const ROOMS: [&[&str]; 3] = [
    &["perf", "process"],
    &["event", "exporter", "probe", "sched", "syscall", "tracepoint", "unattributed"],
    &["sched", "syscall"],
];

/// Metrics of the exporter's own process that correspond exactly to the semantic conventions for processes:
/// <https://opentelemetry.io/docs/specs/semconv/system/process-metrics/>.
const CONVENTIONS: [(&str, &str, &str, Shape); 5] = [
    ("process_cpu_seconds", "process.cpu.time", "s", Shape::Counter),
    ("process_open_fds", "process.unix.file_descriptor.count", "{file_descriptor}", Shape::UpDownCounter),
    ("process_resident_memory_bytes", "process.memory.usage", "By", Shape::UpDownCounter),
    ("process_threads", "process.thread.count", "{thread}", Shape::UpDownCounter),
    ("process_virtual_memory_bytes", "process.memory.virtual", "By", Shape::UpDownCounter),
];

/// Kind of OTLP data points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A monotonic sum.
    Counter,
    /// A non-monotonic sum, whose values can be added across series.
    UpDownCounter,
    /// A last value.
    Gauge,
    /// A distribution, in exponential or explicit buckets.
    Histogram,
}

/// OpenTelemetry metadata of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instrument {
    /// Name: `perf.cgroup.task_clock`.
    pub name: String,
    /// Unit in UCUM, with counted things in braces: `s`, `By`, `{cycle}`. Empty if there is none.
    pub unit: Cow<'static, str>,
    /// Kind of the data points.
    pub shape: Shape,
    /// Whether values are measurements instead of counts. All of them are then floating-point numbers, even integers.
    pub(super) measured: bool,
}

impl Instrument {
    /// Derives the metadata of a family. `taken` reports whether another family has this [`name`](Metadata::name).
    pub fn of(metadata: &Metadata, taken: impl Fn(&str) -> bool) -> Self {
        let (base, unit) = (metadata.name(), metadata.unit());
        let measured = !unit.is_empty() && unit != "bytes";
        if let Some(&(_, name, unit, shape)) = CONVENTIONS.iter().find(|known| known.0 == base) {
            return Self { name: name.to_owned(), unit: unit.into(), shape, measured };
        }
        let shape = match metadata.kind() {
            Kind::Counter => Shape::Counter,
            Kind::Gauge | Kind::Info => Shape::Gauge,
            Kind::Histogram => Shape::Histogram,
        };
        if metadata.kind() == Kind::Info {
            return Self { name: dotted(base) + "_info", unit: "".into(), shape, measured };
        }
        let code = UNITS.iter().find(|known| known.0 == unit).map(|known| known.1);
        let name = code.and_then(|_| without_unit(base, unit, shape, taken)).unwrap_or(base);
        let unit = match code {
            Some(code) => code.into(),
            None if unit.is_empty() => counted(base, shape),
            None => format!("{{{unit}}}").into(),
        };
        Self { name: dotted(name), unit, shape, measured }
    }
}

/// Returns the name without its unit. Returns `None` if another metric would have the same name, or if the unit would not be restored.
fn without_unit<'b>(
    base: &'b str,
    unit: &str,
    shape: Shape,
    taken: impl Fn(&str) -> bool,
) -> Option<&'b str> {
    let stem = base.strip_suffix(unit)?.strip_suffix('_')?;
    let names_unit = stem.split('_').any(|word| word == unit) || unit == "ratio" && shape != Shape::Gauge;
    let others = UNITS.iter().filter(|other| other.0 != unit);
    let ambiguous = taken(stem) || others.into_iter().any(|other| taken(&format!("{stem}_{}", other.0)));
    (!names_unit && !ambiguous).then_some(stem)
}

/// Inserts dots after namespaces.
fn dotted(name: &str) -> String {
    let (mut dotted, mut rest) = (String::with_capacity(name.len()), name);
    for (depth, rooms) in ROOMS.iter().enumerate() {
        let is_scope = |room| depth == 1 && Scope::ALL.iter().any(|scope| scope.prefix() == Some(room));
        match rest.split_once('_') {
            Some((room, within)) if !within.is_empty() && (rooms.contains(&room) || is_scope(room)) => {
                dotted.push_str(room);
                dotted.push('.');
                rest = within;
            }
            _ => break,
        }
    }
    dotted + rest
}

/// Returns the counted thing as an annotation in braces: the last word of the name in the singular, if it is a plural.
fn counted(name: &str, shape: Shape) -> Cow<'static, str> {
    let word = name.rsplit('_').next().unwrap_or(name);
    match singular(word) {
        Some(word) => format!("{{{word}}}").into(),
        None if shape == Shape::Counter => "{event}".into(),
        None => "".into(),
    }
}

fn singular(word: &str) -> Option<String> {
    let one = word.strip_suffix('s').filter(|one| one.len() > 1 && !one.ends_with(['s', 'u', 'i']))?;
    let hissing = ["che", "she", "sse", "xe"].iter().any(|end| one.ends_with(end));
    Some(match (one.strip_suffix("ie"), hissing) {
        (Some(stem), _) => format!("{stem}y"),
        (None, true) => one.trim_end_matches('e').to_owned(),
        (None, false) => one.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::metrics::fit_name;

    fn instrument(name: &str, unit: &str, kind: Kind) -> Instrument {
        Instrument::of(&Metadata::new(name, "h", unit, kind).unwrap(), |_| false)
    }

    #[track_caller]
    fn check(name: &str, unit: &str, kind: Kind, expected: (&str, &str, Shape)) {
        let Instrument { name, unit, shape, .. } = instrument(name, unit, kind);
        assert_eq!((&*name, &*unit, shape), expected);
    }

    #[test]
    fn names_have_rooms_and_neither_unit_nor_total() {
        use Kind::{Counter, Gauge, Histogram, Info};
        check(
            "perf_cgroup_task_clock_seconds",
            "seconds",
            Counter,
            ("perf.cgroup.task_clock", "s", Shape::Counter),
        );
        check(
            "perf_cgroup_sched_runqueue_latency_seconds",
            "seconds",
            Histogram,
            ("perf.cgroup.sched.runqueue_latency", "s", Shape::Histogram),
        );
        check("perf_event_running_ratio", "ratio", Gauge, ("perf.event.running", "1", Shape::Gauge));
        check("perf_exporter_build", "", Info, ("perf.exporter.build_info", "", Shape::Gauge));
        check("perf_ring_bytes", "bytes", Gauge, ("perf.ring", "By", Shape::Gauge));
        check("perf_pmu_energy_pkg_joules", "joules", Counter, ("perf.pmu.energy_pkg", "J", Shape::Counter));
    }

    #[test]
    fn what_is_counted_stands_in_braces() {
        let unit = |name| instrument(name, "", Kind::Counter).unit;
        assert_eq!(unit("perf_cpu_cycles"), "{cycle}");
        assert_eq!(unit("perf_cpu_context_switches"), "{switch}");
        assert_eq!(unit("perf_cpu_cache_misses"), "{miss}");
        assert_eq!(unit("perf_process_retries"), "{retry}");
        for event in ["perf_series_aggregated", "perf_cpu_bus", "perf_cpu_status", "perf_cpu_access"] {
            assert_eq!(unit(event), "{event}");
        }
        assert_eq!(instrument("perf_event_state", "", Kind::Gauge).unit, "");
        assert_eq!(instrument("perf_targets", "", Kind::Gauge).unit, "{target}");
    }

    #[test]
    fn a_unit_that_nobody_knows_stays_in_the_name() {
        check(
            "perf_pmu_x_furlongs",
            "furlongs",
            Kind::Counter,
            ("perf.pmu.x_furlongs", "{furlongs}", Shape::Counter),
        );
    }

    #[test]
    fn of_hits_and_their_sum_only_the_hits_go_without_a_unit() {
        let sum = Metadata::new("perf_probe_send_bytes", "h", "bytes", Kind::Counter).unwrap();
        let name = |taken: &str| Instrument::of(&sum, |name| name == taken).name;
        assert_eq!(name("perf_probe_send"), "perf.probe.send_bytes");
        assert_eq!(name("perf_probe_send_seconds"), "perf.probe.send_bytes");
        assert_eq!(name("perf_probe_receive"), "perf.probe.send");
    }

    /// Returns the name that the Prometheus exporters of a Collector create, by the documented rules. Characters other than letters and
    /// digits separate words. The unit is appended unless it is one of them, then the suffix of the kind.
    fn translated(instrument: &Instrument) -> String {
        let mut words: Vec<&str> = instrument
            .name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        let unit = match &*instrument.unit {
            "s" => "seconds",
            "By" => "bytes",
            "J" => "joules",
            "W" => "watts",
            "Cel" => "celsius",
            "1" | "" => "",
            remark => {
                assert!(remark.starts_with('{') && remark.ends_with('}'), "{remark}");
                ""
            }
        };
        if !unit.is_empty() && !words.contains(&unit) {
            words.push(unit);
        }
        if instrument.shape == Shape::Counter {
            words.retain(|&word| word != "total");
            words.push("total");
        }
        if instrument.unit == "1" && instrument.shape == Shape::Gauge {
            words.retain(|&word| word != "ratio");
            words.push("ratio");
        }
        words.join("_")
    }

    fn some_word() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "perf", "cgroup", "cpu", "sched", "process", "seconds", "bytes", "joules", "a", "b7", "1",
            "switches",
        ])
    }

    proptest! {
        #[test]
        fn a_collector_gives_the_prometheus_names_back(
            words in prop::collection::vec(some_word(), 1..5),
            unit in prop::sample::select(vec!["", "seconds", "bytes", "joules", "watts", "celsius", "ratio", "furlongs"]),
            kind in prop::sample::select(vec![Kind::Counter, Kind::Gauge, Kind::Histogram, Kind::Info]),
            taken: bool,
        ) {
            let unit = if kind == Kind::Info { "" } else { unit };
            let name = fit_name(&format!("perf_{}{}{unit}", words.join("_"), if unit.is_empty() { "" } else { "_" }));
            let metadata = Metadata::new(&name, "h", unit, kind).unwrap();
            let instrument = Instrument::of(&metadata, |_| taken);
            prop_assert_eq!(translated(&instrument), metadata.sample_name(), "by {:?}", instrument);
        }

        #[test]
        fn two_families_never_have_one_name(
            names in prop::collection::btree_set((some_word(), some_word()), 2..6),
            units in prop::collection::vec(prop::sample::select(vec!["", "seconds", "bytes"]), 6),
        ) {
            let families: Vec<_> = names.iter().zip(units).map(|((a, b), unit)| {
                let name = format!("perf_{a}_{b}{}{unit}", if unit.is_empty() { "" } else { "_" });
                Metadata::new(&name, "h", unit, Kind::Counter).unwrap()
            }).collect();
            let different: std::collections::BTreeSet<&str> = families.iter().map(|family| family.name()).collect();
            let taken = |name: &str| different.contains(name);
            let instruments: std::collections::BTreeSet<String> =
                families.iter().map(|family| Instrument::of(family, taken).name).collect();
            prop_assert_eq!(instruments.len(), different.len());
        }
    }
}
