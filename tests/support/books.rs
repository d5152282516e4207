//! The library counting on the running kernel by the switch stream, with everything that belongs to it (the reader of
//! the rings too), and its books: what CPUs counted on one side, what is charged to whom on the other.

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
use perf_exporter::target::Watch;

/// Reasons that say that attribution failed; the others say that nobody asked, or that nobody ran.
const FAILURES: [&str; 4] = ["lost", "rotated", "unknown", "ended"];

/// A collector at work.
#[derive(Debug)]
pub(crate) struct Accountant {
    watch: Watch,
    collector: Collector<Live>,
}

impl Accountant {
    /// Counts what a configuration file says, from now on.
    pub(crate) fn of(configuration: &str) -> Self {
        Self::with_rings_of(None, configuration)
    }

    /// The same with so many bytes for the rings of all CPUs, which may be fewer than a file may say.
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
        // Processes that began after the first look, and before there were events to tell of them.
        let changes = watch.refresh();
        collector.follow(&changes, &watch);
        Self { watch, collector }
    }

    /// What could not be opened, a line each.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.collector.board().lines().map(|line| line.refusal.to_string()).collect()
    }

    /// What there is to say about the stream.
    pub(crate) fn stream(&self) -> StreamState {
        self.collector.stream_state().expect("the stream is open")
    }

    /// One collection.
    pub(crate) fn collect(&mut self) -> Books {
        let changes = self.watch.refresh();
        self.collector.follow(&changes, &self.watch);
        Books(self.collector.collect())
    }

    /// Follows the CPUs alone.
    #[allow(dead_code, reason = "only guests take CPUs offline")]
    pub(crate) fn follow_cpus(&mut self) {
        let changes = self.watch.refresh_cpus();
        self.collector.follow_cpus(&changes.restarted, &self.watch);
    }

    /// The end of counting, after which the books must balance.
    pub(crate) fn finish(mut self) -> Books {
        Books(self.collector.finish())
    }
}

/// What a collection published.
pub(crate) struct Books(Vec<Family>);

/// A line for each sum over the series of a metric, and for each reason why something is in none.
impl fmt::Debug for Books {
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

impl Books {
    /// The sum over the series of that name (without `_total`) that have these labels, as the kernel counted: whole
    /// numbers, times in nanoseconds.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.points(name, labels).map(|(_, count)| count).sum()
    }

    /// The same by the values of one label, of the series that have it.
    pub(crate) fn by(&self, name: &str, label: &str, labels: &[(&str, &str)]) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (all, count) in self.points(name, labels) {
            if let Some(value) = all.get(label) {
                *sums.entry(value.to_string()).or_default() += count;
            }
        }
        sums
    }

    /// The sum of each metric that counts for somebody, or for nobody.
    pub(crate) fn sums(&self) -> BTreeMap<String, u64> {
        let scopes = ["perf_cpu_", "perf_cgroup_", "perf_process_", "perf_unattributed_"];
        let names = self.0.iter().map(|family| family.metadata().name());
        let names = names.filter(|name| scopes.iter().any(|scope| name.starts_with(scope)));
        names.map(|name| (name.to_owned(), self.sum(name, &[]))).collect()
    }

    /// Whether there is any series of that name: no count is not a count of nothing.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.points(name, &[]).next().is_some()
    }

    /// How a metric, named without its scope, stands in the books of a scope.
    pub(crate) fn balance(&self, scope: &str, metric: &str) -> Balance {
        Balance {
            what: format!("{metric} by {scope}"),
            counted: self.sum(&format!("perf_cpu_{metric}"), &[]),
            attributed: self.sum(&format!("perf_{scope}_{metric}"), &[]),
            rest: self.by(&format!("perf_unattributed_{metric}"), "reason", &[("scope", scope)]),
        }
    }

    /// The value of the gauge of that name that has these labels.
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

    /// Records that were lost, for any reason.
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
                // Counts of nanoseconds are whole up to 104 days.
                Value::Float(seconds) if name.ends_with("_seconds") => (seconds * 1e9).round() as u64,
                Value::Float(_) | Value::Histogram(_) => panic!("{name} is no count: {:?}", point.value),
            };
            (&*point.labels, count)
        })
    }
}

/// Both sides of one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Balance {
    what: String,
    /// By the CPUs.
    pub(crate) counted: u64,
    /// In the series of the scope.
    pub(crate) attributed: u64,
    /// In none of them, by reason.
    pub(crate) rest: BTreeMap<String, u64>,
}

impl Balance {
    /// What has no owner for this reason.
    pub(crate) fn of(&self, reason: &str) -> u64 {
        self.rest.get(reason).copied().unwrap_or(0)
    }

    /// What has no owner because attribution failed.
    pub(crate) fn failed(&self) -> u64 {
        FAILURES.iter().map(|reason| self.of(reason)).sum()
    }

    /// What somebody was charged with, or nobody.
    pub(crate) fn charged(&self) -> u64 {
        self.attributed + self.rest.values().sum::<u64>()
    }

    /// What the CPUs counted since their last records, which nobody is charged with yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.counted.saturating_sub(self.attributed + self.rest.values().sum::<u64>())
    }

    /// Every single count is on both sides.
    pub(crate) fn assert_exact(&self) {
        assert_eq!(self.charged(), self.counted, "charged and counted: {self:?}");
    }
}

/// Holds collections against those before.
#[derive(Debug, Default)]
pub(crate) struct Growth(BTreeMap<String, u64>);

impl Growth {
    /// No sum that was published before is smaller now, whoever is gone since.
    pub(crate) fn take(&mut self, books: &Books) {
        let now = books.sums();
        for (name, before) in std::mem::take(&mut self.0) {
            let after = now.get(&name).copied().unwrap_or(0);
            assert!(after >= before, "{name} was {before} and is {after}: {books:?}");
        }
        self.0 = now;
    }
}
