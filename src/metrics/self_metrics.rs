//! Metrics of the exporter about itself: `perf_exporter_*` and the standard `process_*`.
//!
//! The set is small and static, so a registry of the `prometheus` crate holds it. [`SelfMetrics::families`] converts the gathered metrics
//! to families of a [`Snapshot`](super::Snapshot), which are exported like all others. Other modules register their own metrics in
//! [`SelfMetrics::registry`]. The crate has no native histograms, so the collection duration is kept outside of the registry.

use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Metric, MetricFamily, MetricType};
use prometheus::{Counter, Gauge, GaugeVec, Opts, Registry};

use super::{Buckets, Family, Histogram, Kind, Labels, Metadata, Point, Value};
use crate::budget::PartState;
use crate::clock::Timestamp;
use crate::lock::Lock;

/// Classic bucket bounds of `perf_exporter_collect_duration_seconds`: from a quarter of a millisecond to four seconds.
const COLLECT_BOUNDS: [f64; 8] =
    [1.0 / 4096.0, 1.0 / 1024.0, 1.0 / 256.0, 1.0 / 64.0, 1.0 / 16.0, 0.25, 1.0, 4.0];

/// Units that are recognized at the end of a name. The `prometheus` crate does not record units.
const UNITS: [&str; 3] = ["seconds", "bytes", "ratio"];

/// Integers below this value are exact in an `f64`.
const EXACT: f64 = (1u64 << 53) as f64;

/// Identification of the running build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// Version of the package.
    pub version: String,
    /// Commit, or empty if unknown.
    pub revision: String,
}

/// Resource usage of the process, as measured by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// User and system CPU time since the start (`getrusage(RUSAGE_SELF)`).
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Number of open perf event descriptors.
    pub open_descriptors: u64,
}

/// The exporter's own metrics.
#[derive(Debug)]
pub struct SelfMetrics {
    registry: Registry,
    start: Timestamp,
    cpu: Counter,
    resident: Gauge,
    open_descriptors: Gauge,
    descriptors: GaugeVec,
    memory: GaugeVec,
    memory_limit: GaugeVec,
    collect_duration: CollectDuration,
    reload_successful: Gauge,
    reload_timestamp: Gauge,
    detail_reduced: Gauge,
    deep_sets: Gauge,
}

impl SelfMetrics {
    /// Registers the metrics. `start` is the start time of the process and of its counters.
    ///
    /// # Errors
    /// Returns an error if the registry rejects a metric, which does not depend on input.
    pub fn new(build: &Build, start: Timestamp) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let build_info = Opts::new(
            "perf_exporter_build_info",
            "Version, revision and architecture of the running perf-exporter; the value is 1",
        )
        .const_label("version", &build.version)
        .const_label("revision", &build.revision)
        .const_label("arch", std::env::consts::ARCH);
        registered(&registry, Gauge::with_opts(build_info))?.set(1.0);
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let gauge = |name, help| registered(&registry, Gauge::new(name, help));
        let gauges =
            |label, name, help| registered(&registry, GaugeVec::new(Opts::new(name, help), &[label]));
        let (name, help) =
            ("perf_exporter_cpu_seconds_total", "User and system CPU time used by perf-exporter");
        Ok(Self {
            start,
            cpu: registered(&registry, Counter::new(name, help))?,
            resident: gauge("perf_exporter_resident_memory_bytes", "Resident memory of perf-exporter")?,
            open_descriptors: gauge(
                "perf_exporter_open_descriptors",
                "Number of perf event descriptors held open by perf-exporter",
            )?,
            descriptors: gauges(
                "kind",
                "perf_exporter_descriptors",
                "Number of open file descriptors, by kind; kind=event equals perf_exporter_open_descriptors",
            )?,
            memory: gauges(
                "part",
                "perf_exporter_memory_bytes",
                "Memory held by each part of perf-exporter; all parts except rings are anonymous memory of the process",
            )?,
            memory_limit: gauges(
                "part",
                "perf_exporter_memory_limit_bytes",
                "Share of limits.memory assigned to each part of perf-exporter",
            )?,
            collect_duration: CollectDuration::new()?,
            reload_successful: gauge(
                "perf_exporter_config_last_reload_successful",
                "Whether the last configuration load succeeded: 1 yes, 0 no",
            )?,
            reload_timestamp: gauge(
                "perf_exporter_config_last_reload_success_timestamp_seconds",
                "Unix timestamp of the last successful configuration load",
            )?,
            detail_reduced: gauge(
                "perf_exporter_detail_reduced",
                "Steps by which the detail of scheduler and system call metrics is reduced to keep to limits.cpu: 0, full \
                 detail; 1, no metrics of processes; 2, also none of cgroups; 3, also only one in 4 threads; 4, only one in 16 threads",
            )?,
            deep_sets: gauge(
                "perf_exporter_deep_sets",
                "Number of sets of events that are counted for a few cgroups for a limited time (deep)",
            )?,
            registry,
        })
    }

    /// Returns the registry in which other modules register metrics about the exporter. Names must end with `_total` if and only if the
    /// metric is a counter, and help texts must not be empty. Metrics that violate this are omitted from snapshots.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Records the duration of one collection.
    pub fn collected(&self, took: Duration) {
        self.collect_duration.histogram.lock().observe(took.as_secs_f64());
    }

    /// Records a successful load of the configuration.
    pub fn config_loaded(&self, at: Timestamp) {
        self.config_current(true);
        self.reload_timestamp.set(at.seconds());
    }

    /// Sets the number of sets of events that are counted for a limited time.
    pub fn deep_sets(&self, number: usize) {
        self.deep_sets.set(number as f64);
    }

    /// Sets the number of steps by which detail is reduced.
    pub fn detail_reduced(&self, steps: i64) {
        self.detail_reduced.set(steps as f64);
    }

    /// Sets the memory usage and limit of each part of the memory budget.
    pub fn memory_held(&self, parts: &[PartState]) {
        for state in parts {
            let labels = &[state.part.as_str()];
            self.memory.with_label_values(labels).set(state.used as f64);
            self.memory_limit.with_label_values(labels).set(state.limit as f64);
        }
    }

    /// Sets the number of open descriptors of each kind.
    pub fn descriptors_open(&self, kinds: &[(&str, u64)]) {
        for (kind, open) in kinds {
            self.descriptors.with_label_values(&[kind]).set(*open as f64);
        }
    }

    /// Sets whether the last attempt to load the configuration or one of its files succeeded. If not, the previous one stays active.
    pub fn config_current(&self, is_current: bool) {
        self.reload_successful.set(if is_current { 1.0 } else { 0.0 });
    }

    /// Returns all families, with the current `usage`.
    pub fn families(&self, usage: Usage) -> Vec<Family> {
        // A counter never decreases, even if the kernel's value does.
        self.cpu.inc_by((usage.cpu.as_secs_f64() - self.cpu.get()).max(0.0));
        self.resident.set(usage.resident_bytes as f64);
        self.open_descriptors.set(usage.open_descriptors as f64);
        let gathered = self.registry.gather();
        let registered = gathered.iter().filter_map(|gathered| family(gathered, self.start));
        registered.chain([self.collect_duration.family(self.start)]).collect()
    }
}

/// Registers a newly created metric and returns it.
///
/// # Errors
/// Returns an error if the metric could not be created or is already registered there.
pub fn registered<M: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<M>,
) -> prometheus::Result<M> {
    let metric = made?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// The metric `perf_exporter_collect_duration_seconds`.
#[derive(Debug)]
struct CollectDuration {
    metadata: Arc<Metadata>,
    histogram: Lock<Histogram>,
}

impl CollectDuration {
    fn new() -> prometheus::Result<Self> {
        let fault = |error: String| prometheus::Error::Msg(error);
        let (name, help) = ("perf_exporter_collect_duration_seconds", "Duration of collections");
        let metadata = Metadata::new(name, help, "seconds", Kind::Histogram);
        let buckets = Buckets::exponential_with(&COLLECT_BOUNDS).map_err(|error| fault(error.to_string()))?;
        Ok(Self {
            metadata: metadata.map_err(|error| fault(error.to_string()))?,
            histogram: Lock::new(Histogram::of(&buckets)),
        })
    }

    fn family(&self, start: Timestamp) -> Family {
        let value = Value::Histogram(Arc::new(self.histogram.lock().clone()));
        Family::new(Arc::clone(&self.metadata), vec![Point { labels: Labels::none(), value, start }])
    }
}

/// Converts a family of the registry. Returns `None` for unsupported kinds and for names that violate the conventions.
fn family(gathered: &MetricFamily, start: Timestamp) -> Option<Family> {
    let (name, kind) = match (gathered.get_field_type(), gathered.name()) {
        (MetricType::COUNTER, name) => (name.strip_suffix("_total")?, Kind::Counter),
        (MetricType::HISTOGRAM, name) => (name, Kind::Histogram),
        (MetricType::GAUGE, name) => match name.strip_suffix("_info") {
            Some(name) => (name, Kind::Info),
            None => (name, Kind::Gauge),
        },
        _ => return None,
    };
    let unit = UNITS.into_iter().find(|unit| name.strip_suffix(unit).is_some_and(|stem| stem.ends_with('_')));
    let metadata =
        Metadata::new(name, gathered.help().trim_end_matches('.'), unit.unwrap_or(""), kind).ok()?;
    let points = gathered.get_metric().iter().filter_map(|metric| {
        let labels = Labels::new(metric.get_label().iter().map(|label| (label.name(), label.value())));
        Some(Point { labels, value: value(metric, kind)?, start })
    });
    Some(Family::new(metadata, points.collect()))
}

fn value(metric: &Metric, kind: Kind) -> Option<Value> {
    match kind {
        Kind::Counter => Some(number(metric.get_counter().get_value())),
        Kind::Gauge | Kind::Info => Some(number(metric.get_gauge().get_value())),
        Kind::Histogram => {
            let gathered = metric.get_histogram();
            let buckets = gathered.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite());
            let (bounds, below): (Vec<f64>, Vec<u64>) =
                buckets.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count())).unzip();
            let (count, sum) = (gathered.get_sample_count(), gathered.get_sample_sum());
            Some(Value::Histogram(Histogram::from_cumulative(&bounds, &below, count, sum)?.into()))
        }
    }
}

fn number(value: f64) -> Value {
    let whole = (0.0..EXACT).contains(&value) && value.fract() == 0.0;
    if whole { Value::Integer(value as u64) } else { Value::Float(value) }
}

#[cfg(test)]
mod tests {
    use super::super::Snapshot;
    use super::*;
    use crate::budget::{MemoryBudget, Part};

    fn metrics() -> SelfMetrics {
        let build = Build { version: "1.2.3".to_owned(), revision: String::new() };
        SelfMetrics::new(&build, Timestamp(1_000)).unwrap()
    }

    fn only_value(snapshot: &Snapshot, name: &str) -> Value {
        let family = snapshot.families().iter().find(|family| family.metadata().name() == name).unwrap();
        assert_eq!(family.points().len(), 1);
        family.points()[0].value.clone()
    }

    #[test]
    fn everything_gets_into_a_snapshot_once() {
        let metrics = metrics();
        metrics.collected(Duration::from_millis(3));
        metrics.config_loaded(Timestamp(5_500));
        metrics.config_current(false);
        metrics.memory_held(&MemoryBudget::default().states());
        metrics.descriptors_open(&[("event", 42), ("file", 3)]);
        let usage = Usage { cpu: Duration::from_millis(250), resident_bytes: 7 << 20, open_descriptors: 42 };
        let families = metrics.families(usage);
        let beside_the_registry = 1;
        let all = metrics.registry.gather().len() + beside_the_registry;
        let snapshot = Snapshot::new(Timestamp(6_000), families);
        assert_eq!((snapshot.families().len(), snapshot.conflicts()), (all, [].as_slice()));
        assert_eq!(only_value(&snapshot, "perf_exporter_cpu_seconds"), Value::Float(0.25));
        assert_eq!(only_value(&snapshot, "perf_exporter_resident_memory_bytes"), Value::Integer(7 << 20));
        assert_eq!(only_value(&snapshot, "perf_exporter_open_descriptors"), Value::Integer(42));
        let points = |name: &str| {
            let family = snapshot.families().iter().find(|family| family.metadata().name() == name).unwrap();
            family.points().len()
        };
        assert_eq!(points("perf_exporter_memory_bytes"), Part::COUNT);
        assert_eq!(points("perf_exporter_memory_limit_bytes"), Part::COUNT);
        assert_eq!(points("perf_exporter_descriptors"), 2);
        assert_eq!(only_value(&snapshot, "perf_exporter_config_last_reload_successful"), Value::Integer(0));
        let reload = only_value(&snapshot, "perf_exporter_config_last_reload_success_timestamp_seconds");
        assert_eq!(reload, Value::Float(5.5));
        let Value::Histogram(durations) = only_value(&snapshot, "perf_exporter_collect_duration_seconds")
        else {
            panic!("not a histogram");
        };
        assert_eq!((durations.count(), durations.sum()), (1, 0.003));
        assert_eq!(durations.cumulative().nth(2), Some((1.0 / 256.0, 1)));
        assert!(durations.is_native());
    }

    #[test]
    fn the_build_is_an_info_without_empty_labels() {
        let families = metrics().families(Usage::default());
        let build = families.iter().find(|family| family.metadata().name() == "perf_exporter_build").unwrap();
        assert_eq!(build.metadata().kind(), Kind::Info);
        let labels = &build.points()[0].labels;
        assert_eq!((labels.get("version"), labels.get("revision")), (Some("1.2.3"), None));
    }

    #[test]
    fn the_process_is_told_as_other_exporters_tell_it() {
        let families = metrics().families(Usage::default());
        let names: Vec<_> = families.iter().map(|family| family.metadata().name()).collect();
        for name in ["process_cpu_seconds", "process_open_fds", "process_start_time_seconds"] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
    }

    #[test]
    fn cpu_time_never_goes_back() {
        let metrics = metrics();
        let usage = |milliseconds| Usage { cpu: Duration::from_millis(milliseconds), ..Usage::default() };
        metrics.families(usage(500));
        let snapshot = Snapshot::new(Timestamp(0), metrics.families(usage(250)));
        assert_eq!(only_value(&snapshot, "perf_exporter_cpu_seconds"), Value::Float(0.5));
    }
}
