//! What the exporter tells of itself: `perf_exporter_*` and the usual `process_*`.
//!
//! They are few and static, so the `prometheus` crate keeps them, in a registry of their own; [`SelfMetrics::families`]
//! turns what it gathers into the families of a [`Snapshot`](super::Snapshot), and they leave the program on the same
//! way as everything else. Other modules register what they count themselves in [`SelfMetrics::registry`]. That crate
//! has no native histograms, so the time of collections is kept beside it.

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

/// What text shows of `perf_exporter_collect_duration_seconds`: from a quarter of a millisecond to four seconds.
const COLLECT_BOUNDS: [f64; 8] =
    [1.0 / 4096.0, 1.0 / 1024.0, 1.0 / 256.0, 1.0 / 64.0, 1.0 / 16.0, 0.25, 1.0, 4.0];

/// Units that a name of the registry may end with: the registry's crate knows none.
const UNITS: [&str; 3] = ["seconds", "bytes", "ratio"];

/// Whole numbers up to here are exact in an `f64`.
const EXACT: f64 = (1u64 << 53) as f64;

/// Which build is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The package's version.
    pub version: String,
    /// The commit, or empty where it is not known.
    pub revision: String,
}

/// What the process used up to now, as the caller measured it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// User and system CPU time since the start (`getrusage(RUSAGE_SELF)`).
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Perf event descriptors that are open.
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
}

impl SelfMetrics {
    /// Registers them. `start` is when the process began; its counters count from there.
    ///
    /// # Errors
    /// When the registry refuses a metric, which depends on no input.
    pub fn new(build: &Build, start: Timestamp) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let build_info = Opts::new("perf_exporter_build_info", "The running build of perf-exporter")
            .const_label("version", &build.version)
            .const_label("revision", &build.revision)
            .const_label("arch", std::env::consts::ARCH);
        registered(&registry, Gauge::with_opts(build_info))?.set(1.0);
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let gauge = |name, help| registered(&registry, Gauge::new(name, help));
        let gauges =
            |label, name, help| registered(&registry, GaugeVec::new(Opts::new(name, help), &[label]));
        let (name, help) =
            ("perf_exporter_cpu_seconds_total", "CPU time that perf-exporter itself used, user and system");
        Ok(Self {
            start,
            cpu: registered(&registry, Counter::new(name, help))?,
            resident: gauge(
                "perf_exporter_resident_memory_bytes",
                "Memory of perf-exporter itself that is resident",
            )?,
            open_descriptors: gauge(
                "perf_exporter_open_descriptors",
                "Perf event descriptors that perf-exporter holds open",
            )?,
            descriptors: gauges(
                "kind",
                "perf_exporter_descriptors",
                "File descriptors that perf-exporter has open, by kind; event is perf_exporter_open_descriptors",
            )?,
            memory: gauges(
                "part",
                "perf_exporter_memory_bytes",
                "Memory that each part of perf-exporter holds. All but rings is anonymous memory of the process",
            )?,
            memory_limit: gauges(
                "part",
                "perf_exporter_memory_limit_bytes",
                "The share of limits.memory that each part of perf-exporter has",
            )?,
            collect_duration: CollectDuration::new()?,
            reload_successful: gauge(
                "perf_exporter_config_last_reload_successful",
                "Whether the last attempt to load the configuration succeeded",
            )?,
            reload_timestamp: gauge(
                "perf_exporter_config_last_reload_success_timestamp_seconds",
                "When the configuration was last loaded with success, since the Unix epoch",
            )?,
            detail_reduced: gauge(
                "perf_exporter_detail_reduced",
                "How much less is told of the scheduler and of system calls than was asked for, to keep to limits.cpu: 0, nothing \
                 less; 1, nothing of processes; 2, nothing of cgroups; 3, of one in 4 threads; 4, of one in 16",
            )?,
            registry,
        })
    }

    /// Where other modules register metrics about the exporter. Names end with `_total` if and only if they are
    /// counters, and their help is not empty; others do not get into a snapshot.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Adds one collection.
    pub fn collected(&self, took: Duration) {
        self.collect_duration.histogram.lock().observe(took.as_secs_f64());
    }

    /// Notes that a configuration was loaded.
    pub fn config_loaded(&self, at: Timestamp) {
        self.reload_successful.set(1.0);
        self.reload_timestamp.set(at.seconds());
    }

    /// Notes by how many steps less is told than was asked for.
    pub fn detail_reduced(&self, steps: i64) {
        self.detail_reduced.set(steps as f64);
    }

    /// Notes what each part of the memory budget holds.
    pub fn memory_held(&self, parts: &[PartState]) {
        for state in parts {
            let labels = &[state.part.as_str()];
            self.memory.with_label_values(labels).set(state.used as f64);
            self.memory_limit.with_label_values(labels).set(state.limit as f64);
        }
    }

    /// Notes how many descriptors of each kind are open.
    pub fn descriptors_open(&self, kinds: &[(&str, u64)]) {
        for (kind, open) in kinds {
            self.descriptors.with_label_values(&[kind]).set(*open as f64);
        }
    }

    /// Notes that a configuration was refused; the one before stays in force.
    pub fn config_refused(&self) {
        self.reload_successful.set(0.0);
    }

    /// All of them, with `usage` as it is now.
    pub fn families(&self, usage: Usage) -> Vec<Family> {
        // A counter never goes back, not even if the kernel's figure should.
        self.cpu.inc_by((usage.cpu.as_secs_f64() - self.cpu.get()).max(0.0));
        self.resident.set(usage.resident_bytes as f64);
        self.open_descriptors.set(usage.open_descriptors as f64);
        let gathered = self.registry.gather();
        let registered = gathered.iter().filter_map(|gathered| family(gathered, self.start));
        registered.chain([self.collect_duration.family(self.start)]).collect()
    }
}

/// Registers a metric that was made, and returns it.
///
/// # Errors
/// It could not be made, or is registered there already.
pub fn registered<M: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<M>,
) -> prometheus::Result<M> {
    let metric = made?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// `perf_exporter_collect_duration_seconds`.
#[derive(Debug)]
struct CollectDuration {
    metadata: Arc<Metadata>,
    histogram: Lock<Histogram>,
}

impl CollectDuration {
    fn new() -> prometheus::Result<Self> {
        let fault = |error: String| prometheus::Error::Msg(error);
        let (name, help) = ("perf_exporter_collect_duration_seconds", "How long collections took");
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

/// A family of the registry as one of ours; `None` for kinds that we have no use for, and for names against the
/// conventions.
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
        metrics.config_refused();
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
