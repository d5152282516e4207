//! The library counting on the running kernel by the switch stream, including the ring reader, and its accounting: what the CPUs counted,
//! and what is attributed to each cgroup or process.

use std::collections::BTreeMap;
use std::fmt;

use perf_exporter::clock::Clock;
use perf_exporter::config;
use perf_exporter::counter::{Bounds, Collector, StreamState};
use perf_exporter::event::Catalog;
use perf_exporter::host::{Facts, Roots};
use perf_exporter::metrics::{Family, Labels, Point, Value};
use perf_exporter::plan::{Entries, plan};
use perf_exporter::sys::Budget;
use perf_exporter::sys::live::Live;
use perf_exporter::sys::usage::raise_descriptor_limit;
use perf_exporter::targets::Watch;

/// Reasons of failed attribution. The other reasons are counts outside the selection and idle time.
const FAILURES: [&str; 4] = ["lost", "rotated", "unknown", "ended"];

/// A running collector.
#[derive(Debug)]
pub(crate) struct RunningCollector {
    watch: Watch,
    collector: Collector<Live>,
}

impl RunningCollector {
    /// Starts to count according to a configuration file.
    pub(crate) fn of(configuration: &str) -> Self {
        Self::with_rings_of(None, configuration)
    }

    /// Starts to count with this much memory in bytes for the rings of all CPUs. It may be less than the minimum that a configuration
    /// accepts.
    pub(crate) fn with_rings_of(ring_memory: Option<u64>, configuration: &str) -> Self {
        let (config, warnings) = config::load(configuration.as_bytes(), "test.yaml").unwrap();
        assert_eq!(warnings, []);
        let roots = Roots::default();
        let facts = Facts::read(&roots);
        let catalog = Catalog::load(&roots, &facts);
        let budget = Budget::new(raise_descriptor_limit(), 0, None);
        let mut collector =
            Collector::new(Live, Clock::system(), &roots, facts, catalog.has_core_pmu(), budget).unwrap();
        let plan = plan(&Entries::counters(&config.counters), &catalog, &collector.stream_support());
        let mut watch = Watch::new(roots);
        watch.need(plan.needs());
        watch.refresh();
        let shares = config.shares(watch.online().len(), plan.ring_kinds());
        let mut bounds = Bounds::new(&config.limits, &shares);
        bounds.ring_memory = ring_memory.unwrap_or(bounds.ring_memory);
        collector.apply(&plan, bounds, &watch);
        // Processes that were created after the first scan and before the events were open.
        let changes = watch.refresh();
        collector.follow(&changes, &watch);
        Self { watch, collector }
    }

    /// Returns the events that could not be opened, one line each.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.collector.board().lines().map(|line| line.refusal.to_string()).collect()
    }

    /// Returns the state of the stream.
    pub(crate) fn stream(&self) -> StreamState {
        self.collector.stream_state().expect("the stream is open")
    }

    /// Makes one collection.
    pub(crate) fn collect(&mut self) -> PublishedFamilies {
        let changes = self.watch.refresh();
        self.collector.follow(&changes, &self.watch);
        PublishedFamilies(self.collector.collect())
    }

    /// Follows changes of the online CPUs only.
    #[allow(dead_code, reason = "only guests take CPUs offline")]
    pub(crate) fn follow_cpus(&mut self) {
        let changes = self.watch.refresh_cpus();
        self.collector.follow_cpus(&changes.restarted, &self.watch);
    }

    /// Ends counting and returns the last collection. Afterwards all counts must be attributed or accounted.
    pub(crate) fn finish(mut self) -> PublishedFamilies {
        PublishedFamilies(self.collector.finish())
    }
}

/// The families that one collection published.
pub(crate) struct PublishedFamilies(Vec<Family>);

/// Writes a line for each metric's sum over its series, and for each reason of unattributed counts.
impl fmt::Debug for PublishedFamilies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, sum) in self.sums() {
            write!(f, "\n{name} {sum}")?;
            for (reason, sum) in self.by(&name, "reason", &[]) {
                write!(f, " {reason}={sum}")?;
            }
        }
        Ok(())
    }
}

impl PublishedFamilies {
    /// Returns the sum over the series of a metric (named without `_total`) that have these labels, in the kernel's units: whole numbers,
    /// times in nanoseconds.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.points(name, labels).map(|(_, count)| count).sum()
    }

    /// Returns the sums by the values of one label, over the series that have that label.
    pub(crate) fn by(&self, name: &str, label: &str, labels: &[(&str, &str)]) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (all, count) in self.points(name, labels) {
            if let Some(value) = all.get(label) {
                *sums.entry(value.to_string()).or_default() += count;
            }
        }
        sums
    }

    /// Returns the sum of each metric of attributed or unattributed counts.
    pub(crate) fn sums(&self) -> BTreeMap<String, u64> {
        let scopes = ["perf_cpu_", "perf_cgroup_", "perf_process_", "perf_unattributed_"];
        let names = self.0.iter().map(|family| family.metadata().name());
        let names = names.filter(|name| scopes.iter().any(|scope| name.starts_with(scope)));
        names.map(|name| (name.to_owned(), self.sum(name, &[]))).collect()
    }

    /// Reports whether the metric has any series. A missing series differs from a count of zero.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.points(name, &[]).next().is_some()
    }

    /// Returns the balance of a scope for a metric that is named without its scope.
    pub(crate) fn balance(&self, scope: &str, metric: &str) -> Balance {
        Balance {
            what: format!("{metric} by {scope}"),
            counted: self.sum(&format!("perf_cpu_{metric}"), &[]),
            attributed: self.sum(&format!("perf_{scope}_{metric}"), &[]),
            rest: self.by(&format!("perf_unattributed_{metric}"), "reason", &[("scope", scope)]),
        }
    }

    /// Returns the value of the gauge with this name and these labels.
    #[allow(dead_code, reason = "only guests have counters that are scaled")]
    pub(crate) fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let family = self.0.iter().find(|family| family.metadata().name() == name)?;
        let has = |point: &&Point| labels.iter().all(|&(key, value)| point.labels.get(key) == Some(value));
        match family.points().iter().find(has)?.value {
            Value::Float(value) => Some(value),
            Value::Integer(value) => Some(value as f64),
            Value::Histogram(_) => None,
        }
    }

    /// Returns the number of lost records, for all reasons.
    pub(crate) fn lost_records(&self) -> u64 {
        ["ring_full", "unreadable"]
            .iter()
            .map(|reason| self.sum("perf_lost_records", &[("reason", reason)]))
            .sum()
    }

    fn points<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = (&'a Labels, u64)> {
        let families = self.0.iter().filter(move |family| family.metadata().name() == name);
        let has = move |all: &Labels| labels.iter().all(|&(name, value)| all.get(name) == Some(value));
        families.flat_map(Family::points).filter(move |point| has(&point.labels)).map(move |point| {
            let count = match point.value {
                Value::Integer(count) => count,
                // A count of nanoseconds is exact up to 104 days.
                Value::Float(seconds) if name.ends_with("_seconds") => (seconds * 1e9).round() as u64,
                Value::Float(_) | Value::Histogram(_) => panic!("{name} is not a count: {:?}", point.value),
            };
            (&*point.labels, count)
        })
    }
}

/// Both sides of the accounting of one metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Balance {
    what: String,
    /// Counted by the CPUs.
    pub(crate) counted: u64,
    /// Attributed to the series of the scope.
    pub(crate) attributed: u64,
    /// Unattributed, by reason.
    pub(crate) rest: BTreeMap<String, u64>,
}

impl Balance {
    /// Returns the unattributed count with this reason.
    pub(crate) fn of(&self, reason: &str) -> u64 {
        self.rest.get(reason).copied().unwrap_or(0)
    }

    /// Returns the unattributed count for which attribution failed.
    pub(crate) fn failed(&self) -> u64 {
        FAILURES.iter().map(|reason| self.of(reason)).sum()
    }

    /// Returns the accounted count: attributed, or unattributed with a reason.
    pub(crate) fn accounted(&self) -> u64 {
        self.attributed + self.rest.values().sum::<u64>()
    }

    /// Returns the count since the CPUs' last records, which is not yet accounted.
    pub(crate) fn waiting(&self) -> u64 {
        self.counted.saturating_sub(self.attributed + self.rest.values().sum::<u64>())
    }

    /// Checks that both sides are equal, to the last count.
    pub(crate) fn assert_exact(&self) {
        assert_eq!(
            self.accounted(),
            self.counted,
            "the accounted sum differs from the counted sum: {self:?}"
        );
    }
}

/// Compares each collection with the one before.
#[derive(Debug, Default)]
pub(crate) struct Growth(BTreeMap<String, u64>);

impl Growth {
    /// Checks that no published sum has decreased, even when its owners have exited.
    pub(crate) fn take(&mut self, families: &PublishedFamilies) {
        let now = families.sums();
        for (name, before) in std::mem::take(&mut self.0) {
            let after = now.get(&name).copied().unwrap_or(0);
            assert!(after >= before, "{name} decreased from {before} to {after}: {families:?}");
        }
        self.0 = now;
    }
}
