//! Selects what scrapes and pushes get of a collection. Pages and the history always have all of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::Metrics;
use crate::health::Scope;
use crate::metrics::{Level, Metadata, Point, Snapshot, Value};

/// Returns the published part of a collection.
///
/// Below level `full`, a cgroup or program has series from its first event on: idle ones, such as slices of pods and kernel threads, have
/// none. Counters are never negative, so sums over series are those of the whole collection.
pub(crate) fn published(metrics: &Metrics, all: &Arc<Snapshot>) -> Arc<Snapshot> {
    if metrics.is_everything() {
        return Arc::clone(all);
    }
    let active = Active::of(all);
    Arc::new(all.part(|family| {
        let metadata = family.metadata();
        let level = metrics.level_of(metadata)?;
        if level == Level::Full {
            return Some(family.clone());
        }
        let owner = Owner::of(metadata);
        let part = family.part(|point| {
            (active.contains(owner, point) && !is_full_only(metadata, point))
                .then(|| reduced(metadata, point))
        });
        (!part.points().is_empty() || family.points().is_empty()).then_some(part)
    }))
}

/// What the series of a family belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// A cgroup.
    Cgroup,
    /// Processes with the same labels.
    Process,
    /// The host, a CPU, or the exporter.
    Other,
}

impl Owner {
    fn of(metadata: &Metadata) -> Self {
        let is_of = |scope: Scope| {
            let rest = metadata.name().strip_prefix("perf_");
            let rest = rest.and_then(|rest| rest.strip_prefix(scope.prefix()?));
            rest.is_some_and(|rest| rest.starts_with('_'))
        };
        if is_of(Scope::Cgroup) || metadata.name() == CONTAINER {
            Self::Cgroup
        } else if is_of(Scope::Process) {
            Self::Process
        } else {
            Self::Other
        }
    }
}

/// Metadata of the container of a cgroup.
const CONTAINER: &str = "perf_container";

/// Cgroups and programs that any counter has an event of.
#[derive(Debug, Default)]
struct Active<'s> {
    cgroups: BTreeSet<&'s str>,
    processes: BTreeSet<&'s [u8]>,
}

impl<'s> Active<'s> {
    fn of(all: &'s Snapshot) -> Self {
        let mut active = Self::default();
        for family in all.families().iter().filter(|family| family.metadata().name() != CONTAINER) {
            let owner = Owner::of(family.metadata());
            for point in family.points().iter().filter(|point| has_events(&point.value)) {
                match owner {
                    Owner::Cgroup => active.cgroups.extend(cgroup(point)),
                    Owner::Process => drop(active.processes.insert(point.labels.text_bytes())),
                    Owner::Other => {}
                }
            }
        }
        active
    }

    fn contains(&self, owner: Owner, point: &Point) -> bool {
        match owner {
            Owner::Cgroup => cgroup(point).is_none_or(|cgroup| self.cgroups.contains(cgroup)),
            Owner::Process => self.processes.contains(point.labels.text_bytes()),
            Owner::Other => true,
        }
    }
}

/// Returns the cgroup of a series.
fn cgroup(point: &Point) -> Option<&str> {
    point.labels.get(Scope::Cgroup.label()?)
}

fn has_events(value: &Value) -> bool {
    match value {
        Value::Integer(count) => *count > 0,
        Value::Float(amount) => *amount != 0.0,
        Value::Histogram(histogram) => histogram.count() > 0,
    }
}

fn is_full_only(metadata: &Metadata, point: &Point) -> bool {
    metadata.detail().full_only.is_some_and(|omitted| {
        point.labels.get(omitted.label).is_some_and(|value| omitted.values.contains(&value))
    })
}

/// Returns the point with the buckets that are published below level `full`.
fn reduced(metadata: &Metadata, point: &Point) -> Point {
    let mut point = point.clone();
    if let (Some(bounds), Value::Histogram(histogram)) = (metadata.detail().bounds, &point.value) {
        point.value =
            Value::Histogram(Arc::new(histogram.with_fewer_bounds(|bound| bounds.contains(&bound))));
    }
    point
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::metrics::{Buckets, Detail, Family, FullOnly, Histogram, Kind, Labels};

    const STANDARD: Metrics = Metrics { level: Level::Standard, include: Vec::new(), exclude: Vec::new() };

    fn counter(name: &str, detail: Detail, points: &[(&[(&str, &str)], u64)]) -> Family {
        let point = |&(labels, count): &(&[(&str, &str)], u64)| Point {
            labels: Labels::new(labels.iter().copied()),
            value: Value::Integer(count),
            start: Timestamp(7),
        };
        let metadata = Metadata::with_detail(name, "help", "", Kind::Counter, detail).unwrap();
        Family::new(metadata, points.iter().map(point).collect())
    }

    fn lines(metrics: &Metrics, families: Vec<Family>) -> Vec<String> {
        let all = Arc::new(Snapshot::new(Timestamp(9), families));
        let part = published(metrics, &all);
        assert_eq!(part.taken(), all.taken());
        let families = part.families().iter().flat_map(|family| {
            family
                .points()
                .iter()
                .map(|point| format!("{}{{{}}}", family.metadata().name(), point.labels.text()))
        });
        families.collect()
    }

    fn all() -> Vec<Family> {
        let default = Detail::default();
        let by = FullOnly { label: "by", values: &["self"] };
        let preemptions = Detail { full_only: Some(by), ..Detail::from(Level::Standard) };
        vec![
            counter("perf_cgroup_forks", default, &[(&[("cgroup", "/a")], 0), (&[("cgroup", "/slice")], 0)]),
            counter("perf_cgroup_faults", default, &[(&[("cgroup", "/a")], 3), (&[("cgroup", "/slice")], 0)]),
            counter(
                "perf_cgroup_preemptions",
                preemptions,
                &[(&[("cgroup", "/a"), ("by", "self")], 1), (&[("cgroup", "/a"), ("by", "other")], 1)],
            ),
            counter("perf_cgroup_detail", Detail::from(Level::Full), &[(&[("cgroup", "/a")], 1)]),
            counter("perf_process_faults", default, &[(&[("comm", "a")], 1), (&[("comm", "kthreadd")], 0)]),
            counter("perf_cpu_faults", default, &[(&[("cpu", "0")], 0)]),
        ]
    }

    #[test]
    fn idle_cgroups_and_programs_and_details_are_not_published() {
        let expected = [
            "perf_cgroup_faults{cgroup=\"/a\"}",
            "perf_cgroup_forks{cgroup=\"/a\"}",
            "perf_cgroup_preemptions{by=\"other\",cgroup=\"/a\"}",
            "perf_cpu_faults{cpu=\"0\"}",
            "perf_process_faults{comm=\"a\"}",
        ];
        assert_eq!(lines(&STANDARD, all()), expected);
    }

    #[test]
    fn the_level_full_and_included_names_are_published_whole() {
        let full = Metrics { level: Level::Full, ..STANDARD };
        assert_eq!(lines(&full, all()).len(), 10);
        let include = vec![crate::targets::Glob::new("perf_cgroup_{forks,detail}").unwrap()];
        let included = lines(&Metrics { level: Level::Basic, include, ..STANDARD }, all());
        assert!(included.contains(&"perf_cgroup_forks{cgroup=\"/slice\"}".to_owned()), "{included:?}");
        assert!(included.contains(&"perf_cgroup_detail{cgroup=\"/a\"}".to_owned()), "{included:?}");
        assert!(!included.iter().any(|line| line.contains("preemptions")), "{included:?}");
    }

    #[test]
    fn fewer_classic_buckets_count_the_same_values_and_keep_the_native_ones() {
        let mut histogram = Histogram::of(&Buckets::exponential("seconds"));
        [0.001, 0.02, 0.2].into_iter().for_each(|value| histogram.observe(value));
        let detail = Detail { bounds: Some(&[0.03125]), ..Detail::from(Level::Standard) };
        let metadata =
            Metadata::with_detail("perf_cgroup_a_seconds", "help", "seconds", Kind::Histogram, detail);
        let labels = Labels::new([("cgroup", "/a")]);
        let value = Value::Histogram(Arc::new(histogram.clone()));
        let family = Family::new(metadata.unwrap(), vec![Point { labels, value, start: Timestamp(7) }]);
        let part = published(&STANDARD, &Arc::new(Snapshot::new(Timestamp(9), [family])));
        let Value::Histogram(fewer) = &part.families()[0].points()[0].value else { panic!("{part:?}") };
        assert_eq!(fewer.cumulative().collect::<Vec<_>>(), [(0.03125, 2), (f64::INFINITY, 3)]);
        assert_eq!((fewer.count(), fewer.sum()), (histogram.count(), histogram.sum()));
        assert!(fewer.native().unwrap().positive().eq(histogram.native().unwrap().positive()));
    }
}
