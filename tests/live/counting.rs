//! The library counting on the running kernel, one collection at a time.

use std::fmt;
use std::time::Duration;

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config;
use perf_exporter::counter::{Bounds, Collector};
use perf_exporter::event::Catalog;
use perf_exporter::host::{Facts, Roots};
use perf_exporter::metrics::{Family, Labels, Value};
use perf_exporter::plan::{Entries, StreamSupport, plan};
use perf_exporter::sys::Budget;
use perf_exporter::sys::live::Live;
use perf_exporter::sys::usage::raise_descriptor_limit;
use perf_exporter::targets::{Attribution, Targets, Watch};

/// A collector for this machine with a manual clock.
#[derive(Debug)]
pub(crate) struct Counting {
    clock: Clock,
    watch: Watch,
    collector: Collector<Live>,
}

impl Counting {
    /// Counts according to a configuration file, each target with its own event descriptors. All existing targets are counted from now on.
    pub(crate) fn of(configuration: &str) -> Self {
        let (mut config, warnings) = config::load(configuration.as_bytes(), "test.yaml").unwrap();
        assert_eq!(warnings, []);
        for per in config.counters.iter_mut().flat_map(|entry| &mut entry.per) {
            match per {
                Targets::Cpus(_) => {}
                Targets::Cgroups(selection) => selection.attribution = Attribution::Dedicated,
                Targets::Processes(selection) => selection.attribution = Attribution::Dedicated,
            }
        }
        let roots = Roots::default();
        let clock = Clock::manual(Timestamp(1_000_000));
        let facts = Facts::read(&roots);
        let catalog = Catalog::load(&roots, &facts);
        let budget = Budget::new(raise_descriptor_limit(), 0, None);
        let mut collector =
            Collector::new(Live, clock.clone(), &roots, facts.clone(), catalog.has_core_pmu(), budget)
                .unwrap();
        let plan = plan(&Entries::counters(&config.counters), &catalog, &StreamSupport::foreseen(&facts));
        let mut watch = Watch::new(roots);
        watch.need(plan.needs());
        watch.refresh();
        collector.apply(
            &plan,
            Bounds::new(&config.limits, &config.shares(facts.online.len(), plan.ring_kinds())),
            &watch,
        );
        let refused: Vec<_> = collector.board().lines().map(|line| line.refusal.to_string()).collect();
        assert!(refused.is_empty(), "refused: {refused:#?}");
        Self { clock, watch, collector }
    }

    /// Makes one collection.
    pub(crate) fn collect(&mut self) -> Collected {
        let changes = self.watch.refresh();
        self.collector.follow(&changes, &self.watch);
        Collected(self.collector.collect())
    }

    /// Advances the clock without waiting.
    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

/// The families that one collection published.
pub(crate) struct Collected(Vec<Family>);

/// Writes a line for each series.
impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| {
            let mut points = family.points().iter();
            points.try_for_each(|point| {
                write!(f, "\n{}{:?} {:?}", family.metadata().name(), point.labels, point.value)
            })
        })
    }
}

impl Collected {
    /// Returns the value of the only series of a metric (named without `_total`) that has this label; `None` if it is not published.
    ///
    /// # Panics
    /// If several series match.
    pub(crate) fn value(&self, name: &str, label: (&str, &str)) -> Option<f64> {
        let found: Vec<f64> = self
            .points(name)
            .filter(|(labels, _)| labels.get(label.0) == Some(label.1))
            .map(|(_, value)| value)
            .collect();
        assert!(found.len() <= 1, "{name} {label:?} is {found:?}");
        found.first().copied()
    }

    /// Returns the sum over all series of a metric.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.points(name).map(|(_, value)| value).sum()
    }

    fn points<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Labels, f64)> {
        let families = self.0.iter().filter(move |family| family.metadata().name() == name);
        families.flat_map(Family::points).map(|point| {
            let value = match point.value {
                Value::Integer(value) => value as f64,
                Value::Float(value) => value,
                Value::Histogram(_) => panic!("{:?} is a histogram", point.labels),
            };
            (&*point.labels, value)
        })
    }
}

/// Reports whether `counted` is the known amount of work with a small margin. Between orders, a thread makes only a few system calls and
/// page faults.
pub(crate) fn about(counted: Option<f64>, done: u64) -> bool {
    counted.is_some_and(|counted| counted >= done as f64 && counted <= done as f64 * 1.05 + 20.0)
}
