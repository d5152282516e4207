//! The metric families about samples: their numbers by task, and the reasons for incomplete stacks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::handoff::{Fresh, Series};
use super::requests::Shared;
use crate::clock::{Monotonic, Timestamp};
use crate::host::Nodes;
use crate::metrics::{Detail, Family, Kind, Labels, Level, Metadata, NameError, Point, Value};
use crate::plan::Sampler;
use crate::ring::{Records, RingMetrics};
use crate::series::{Naming, Own, OwnName, Published, Table, aggregated_metadata};
use crate::stack::{self, Loss, Truncation};
use crate::symbol::{LineReason, Reason};
use crate::sys::Ring;

/// The metrics that exist only if something is sampled.
pub const METRICS: [&str; 8] = [SAMPLES, FUNCTIONS, THROTTLED, CUT, GAPS, UNRESOLVED, LINELESS, AGE];

pub(crate) const SAMPLES: &str = "perf_samples";
pub(crate) const FUNCTIONS: &str = "perf_function_samples";
const THROTTLED: &str = "perf_throttled";
const CUT: &str = "perf_truncated_stacks";
const GAPS: &str = "perf_profile_gaps";
const UNRESOLVED: &str = "perf_frames_unresolved";
const LINELESS: &str = "perf_frames_without_line";
const AGE: &str = "perf_exporter_profile_age_seconds";

/// The reason of gaps after a panic during symbolization.
const NAMING_FAILED: &str = "naming_failed";

/// How long a series is published after its last sample: Prometheus considers a series stale after the same time.
const RETENTION: Duration = Duration::from_secs(5 * 60);

/// The number of recent samples below which a series does not take the labels of another.
const MIN_ACTIVITY: u64 = 2;

/// The samples of an entry, by name, cgroup and mode.
#[derive(Debug)]
struct SeriesTable {
    sampler: Arc<Sampler>,
    /// Each with the time of the last sample.
    series: Table<u64, Monotonic>,
}

impl SeriesTable {
    fn add(&mut self, series: Series, count: u64, nodes: &Nodes, now: Monotonic) {
        let Series { comm, cgroup, mode, kernel_thread, cpu } = series;
        let cgroup = cgroup.unwrap_or_else(|| "unknown".into());
        let cpu = self.sampler.per.zip(cpu).and_then(|(per, cpu)| per.label_of(nodes.cpu(cpu)));
        let render = |comm: &str, cgroup: &str, mode: &str, other: Option<&str>| {
            let cpu = cpu.as_ref().map(|(label, value)| (*label, other.unwrap_or(value)));
            let all = [("cgroup", cgroup), ("comm", comm), ("mode", mode), ("profile", &self.sampler.entry)];
            Labels::new(all.into_iter().chain(cpu))
        };
        let labels = render(&comm, &cgroup, mode.as_str(), None);
        let id = self.series.find_or_insert_with(&labels, now, || Naming {
            labels: Arc::clone(&labels),
            rest: render("other", "other", "other", Some("other")),
            // The kernel names its own threads, so these names do not count against the limit.
            own: (!kernel_thread).then(|| Own {
                labels: render("other", &cgroup, mode.as_str(), None),
                name: OwnName { owner: Arc::clone(&cgroup), name: comm },
                info: now,
            }),
            info: now,
        });
        let Some(series) = self.series.get_mut(id) else { return };
        series.count(count);
        series.info = now;
    }
}

/// The totals of all entries, and the metrics under which they are published.
#[derive(Debug)]
pub(super) struct Publisher {
    tables: Vec<SeriesTable>,
    /// The most thread names that a cgroup may have, for each entry.
    names: usize,
    nodes: Nodes,
    samples: Arc<Metadata>,
    aggregated: Arc<Metadata>,
    rings: RingMetrics,
    throttled: Arc<Metadata>,
    functions: Arc<Metadata>,
    cut: Arc<Metadata>,
    gaps: Arc<Metadata>,
    unresolved: Arc<Metadata>,
    lineless: Arc<Metadata>,
    age: Arc<Metadata>,
}

impl Publisher {
    pub(super) fn new() -> Result<Self, NameError> {
        let counter = |name, help| Metadata::new(name, help, "", Kind::Counter);
        Ok(Self {
            tables: Vec::new(),
            names: usize::MAX,
            nodes: Nodes::default(),
            samples: Metadata::with_detail(
                SAMPLES,
                "Samples of an entry of `profiles`, by thread name, cgroup and mode.",
                "",
                Kind::Counter,
                Detail::from(Level::Full),
            )?,
            aggregated: aggregated_metadata()?,
            rings: RingMetrics::new()?,
            throttled: counter(
                THROTTLED,
                "How often the kernel throttled a sampling event until the next tick because it fired too often.",
            )?,
            functions: Metadata::with_detail(
                FUNCTIONS,
                "Samples by innermost function, for the functions with the most samples.",
                "",
                Kind::Counter,
                Detail::from(Level::Standard),
            )?,
            gaps: counter(
                GAPS,
                "Gaps in stacks, by reason: mappings or files that could not be read, unwind tables that are missing, damaged or too \
                 large.",
            )?,
            cut: counter(
                CUT,
                "Truncated stacks, by reason: depth_limit, deeper than the limit; copy_limit, deeper than the copied stack memory; no_unwind_info, neither \
                 frame pointers nor unwind tables; table_full, the stack table was full.",
            )?,
            unresolved: counter(UNRESOLVED, "Frames of requested stacks without a symbol, by reason.")?,
            lineless: counter(
                LINELESS,
                "Frames of requested stacks without a source line or with missing inlined functions, by reason. Only entries with `lines`.",
            )?,
            age: Metadata::new(
                AGE,
                "Time since the profile reader last analyzed all recorded samples. It is below a second unless the reader is blocked on a \
                 file or falls behind.",
                "seconds",
                Kind::Gauge,
            )?,
        })
    }

    /// Limits the number of thread names that one cgroup may have.
    pub(super) fn limit_names(&mut self, per_cgroup: usize) {
        self.names = per_cgroup;
        self.tables.iter_mut().for_each(|table| table.series.set_names(per_cgroup));
    }

    /// Sets the NUMA nodes of CPUs.
    pub(super) fn set_nodes(&mut self, nodes: &Nodes) {
        self.nodes.clone_from(nodes);
    }

    /// Limits the number of series of each entry.
    pub(super) fn limit_series(&mut self, limit: usize) {
        self.tables.iter_mut().for_each(|table| table.series.set_limit(limit));
    }

    /// Returns the number of series of each entry.
    pub(super) fn tables(&self) -> impl Iterator<Item = usize> {
        self.tables.iter().map(|table| table.series.published())
    }

    /// Returns the approximate number of bytes of all series.
    pub(super) fn bytes(&self) -> usize {
        self.tables.iter().map(|table| table.series.bytes()).sum()
    }

    /// Counts for these entries from now on. Entries that stay keep their totals; returns their names.
    pub(super) fn set(&mut self, samplers: &[Arc<Sampler>], limit: usize, now: Timestamp) -> Vec<Arc<str>> {
        let mut old = std::mem::take(&mut self.tables);
        let mut stay = Vec::new();
        for sampler in samplers {
            let kept =
                old.iter().position(|table| sampler.continues(&table.sampler)).map(|at| old.swap_remove(at));
            stay.extend(kept.as_ref().map(|table| Arc::clone(&table.sampler.entry)));
            let new = || SeriesTable {
                sampler: Arc::clone(sampler),
                series: Table::new(0, limit, MIN_ACTIVITY, now),
            };
            let mut table = kept.unwrap_or_else(new);
            table.series.set_limit(limit);
            table.series.set_names(self.names);
            self.tables.push(table);
        }
        stay
    }

    /// Adds the results of the analysis. Samples of an entry that was removed in the meantime are discarded.
    pub(super) fn enter(&mut self, fresh: Vec<Fresh>, now: Timestamp, monotonic: Monotonic) {
        for Fresh { sampler, sums } in fresh {
            let Some(table) = self.tables.iter_mut().find(|table| Arc::ptr_eq(&table.sampler, &sampler))
            else {
                continue;
            };
            sums.into_iter().for_each(|(series, count)| table.add(series, count, &self.nodes, monotonic));
        }
        for table in &mut self.tables {
            table.series.remove_where(|series| monotonic.since(series.info) > RETENTION);
            table.series.end_collection(now, monotonic);
        }
    }

    /// Returns the number of samples of an entry since the start.
    pub(super) fn samples(&self, place: usize) -> u64 {
        self.tables.get(place).map_or(0, |table| table.series.accounts().sum())
    }

    /// Returns the number of series of an entry without labels of their own.
    pub(super) fn in_other(&self, place: usize) -> usize {
        self.tables.get(place).map_or(0, |table| table.series.unnamed())
    }

    pub(super) fn publish<R: Ring>(&self, shared: &Shared<R>) -> Vec<Family> {
        let (losses, ring_bytes) = (shared.losses(), shared.rings.lock().bytes());
        let accounts = shared.handoff.lock().report.accounts.clone();
        let samples = self.tables.iter().flat_map(|table| points(&table.series)).collect();
        let aggregated = self.tables.iter().map(|table| {
            let leader =
                table.sampler.events.first().map(|event| Arc::clone(&event.name)).unwrap_or_default();
            let labels = vec![
                ("counters", Arc::clone(&table.sampler.entry)),
                ("leader", leader),
                ("scope", "samples".into()),
            ];
            counted(labels, table.series.aggregated())
        });
        let mut families = vec![
            Family::new(Arc::clone(&self.samples), samples),
            Family::new(Arc::clone(&self.aggregated), aggregated.collect()),
        ];
        families.extend(self.rings.publish(Records::Samples, losses, ring_bytes));
        let throttled = vec![counted(Vec::new(), losses.throttled)];
        families.push(Family::new(Arc::clone(&self.throttled), throttled));
        let by_reason = |metadata: &Arc<Metadata>, reasons: Vec<(&'static str, u64)>| {
            let points =
                reasons.into_iter().map(|(reason, count)| counted(vec![("reason", reason.into())], count));
            Family::new(Arc::clone(metadata), points.collect())
        };
        families.push(self.functions(shared));
        families.push(by_reason(&self.gaps, gaps(&accounts, shared)));
        families.push(by_reason(&self.cut, cuts(&accounts)));
        families.push(by_reason(&self.unresolved, unresolved(shared)));
        if self.tables.iter().any(|table| table.sampler.lines) {
            families.push(by_reason(&self.lineless, lineless(shared)));
        }
        let value = Value::Float(shared.age().as_secs_f64());
        let point = Point { value, ..counted(Vec::new(), 0) };
        families.push(Family::new(Arc::clone(&self.age), vec![point]));
        families
    }

    /// Returns the functions with the most samples of each entry.
    fn functions<R>(&self, shared: &Shared<R>) -> Family {
        let functions = shared.functions.lock();
        let found = self.tables.iter().filter_map(|table| functions.get(&table.sampler.entry));
        let points = found.flat_map(|functions| points(&functions.series)).collect();
        Family::new(Arc::clone(&self.functions), points)
    }
}

/// Returns the series of a table as points.
fn points<I: Clone + Default>(series: &Table<u64, I>) -> Vec<Point> {
    let point = |series: Published<'_, u64, I>| Point {
        labels: Arc::clone(series.labels),
        value: Value::Integer(*series.total),
        start: series.start,
    };
    series.iter().map(point).collect()
}

/// Reasons for incomplete stacks, with counts. Reasons that did not occur are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shortfalls {
    /// Truncated stacks.
    pub(crate) cut: Vec<(&'static str, u64)>,
    /// Requested frames without a symbol.
    pub(crate) unnamed: Vec<(&'static str, u64)>,
}

impl Shortfalls {
    pub(super) fn of<R>(shared: &Shared<R>) -> Self {
        let accounts = shared.handoff.lock().report.accounts.clone();
        let met = |reasons: Vec<(&'static str, u64)>| -> Vec<(&'static str, u64)> {
            reasons.into_iter().filter(|&(_, count)| count > 0).collect()
        };
        Self { cut: met(cuts(&accounts)), unnamed: met(unresolved(shared)) }
    }
}

fn counted(labels: Vec<(&'static str, Arc<str>)>, count: u64) -> Point {
    Point::gauge(Labels::new(labels), Value::Integer(count))
}

/// Returns the reasons for truncated stacks, with counts.
fn cuts(accounts: &stack::Accounts) -> Vec<(&'static str, u64)> {
    Truncation::ALL.iter().map(|&cut| (cut.as_str(), accounts.cut(cut))).collect()
}

/// Returns the reasons for gaps in stacks, with counts.
fn gaps<R>(accounts: &stack::Accounts, shared: &Shared<R>) -> Vec<(&'static str, u64)> {
    let losses = Loss::ALL.iter().map(|&loss| (loss.as_str(), accounts.lost(loss)));
    let failures = shared.naming_failures.load(Ordering::Relaxed);
    losses.chain([(NAMING_FAILED, failures)]).collect()
}

/// Returns the reasons for frames without a symbol, with counts.
fn unresolved<R>(shared: &Shared<R>) -> Vec<(&'static str, u64)> {
    let accounts = shared.accounts.lock();
    Reason::ALL.iter().map(|&reason| (reason.as_str(), accounts.of(reason))).collect()
}

/// Returns the reasons for frames without a source line, with counts.
fn lineless<R>(shared: &Shared<R>) -> Vec<(&'static str, u64)> {
    let accounts = shared.line_accounts.lock();
    LineReason::ALL.iter().map(|&reason| (reason.as_str(), accounts.of(reason))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::CpuScope;
    use crate::host::Roots;
    use crate::profile::Mode;
    use crate::profile::sample_profiles::sampler;

    #[test]
    fn an_entry_of_the_same_name_that_samples_otherwise_begins_anew() {
        let mut publisher = Publisher::new().unwrap();
        let (one, other) = (sampler("one"), sampler("other"));
        let stay = publisher.set(&[Arc::clone(&one), Arc::clone(&other)], 10, Timestamp(1));
        assert!(stay.is_empty(), "all entries are new: {stay:?}");
        let changed = Arc::new(Sampler { period: Some(2), ..(*one).clone() });
        assert_eq!(publisher.set(&[changed, other], 10, Timestamp(2)), ["other".into()]);
    }

    /// Returns the series of two samples of CPU 0 and five of CPU 3, with these nodes.
    fn told_apart(per: CpuScope, nodes: &Nodes) -> Vec<(String, u64)> {
        let mut publisher = Publisher::new().unwrap();
        let one = Arc::new(Sampler { per: Some(per), ..(*sampler("one")).clone() });
        publisher.set_nodes(nodes);
        publisher.set(&[Arc::clone(&one)], 10, Timestamp(1));
        let (comm, cgroup) = (Arc::from("sh"), Some(Arc::from("/a")));
        let series = Series { comm, cgroup, kernel_thread: false, mode: Mode::User, cpu: None };
        let on = |cpu| Series { cpu: Some(cpu), ..series.clone() };
        let sums = [(on(0), 2), (on(3), 5)].into_iter().collect();
        publisher.enter(vec![Fresh { sampler: one, sums }], Timestamp(2), Monotonic::default());
        let total = |point: Point| match point.value {
            Value::Integer(count) => (point.labels.text().to_owned(), count),
            other => panic!("{other:?}"),
        };
        let mut told: Vec<_> = points(&publisher.tables[0].series).into_iter().map(total).collect();
        told.sort();
        told
    }

    #[test]
    fn samples_of_all_cpus_of_a_numa_node_have_one_series() {
        let labels =
            |node| format!("cgroup=\"/a\",comm=\"sh\",mode=\"user\",numa_node=\"{node}\",profile=\"one\"");
        assert_eq!(told_apart(CpuScope::Numa, &Nodes::default()), [(labels(0), 7)]);
        let dir = tempfile::tempdir().unwrap();
        let node = dir.path().join("sys/devices/system/node/node1");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join("cpulist"), "2-3\n").unwrap();
        let nodes = Nodes::read(&Roots::under(dir.path()));
        assert_eq!(told_apart(CpuScope::Numa, &nodes), [(labels(0), 2), (labels(1), 5)]);
    }

    #[test]
    fn samples_have_the_label_of_the_part_of_the_machine_that_the_entry_names() {
        let labels = |cpu| format!("cgroup=\"/a\",comm=\"sh\",cpu=\"{cpu}\",mode=\"user\",profile=\"one\"");
        let told = told_apart(CpuScope::Cpu, &Nodes::default());
        assert_eq!(told, [(labels(0), 2), (labels(3), 5)]);
    }
}
