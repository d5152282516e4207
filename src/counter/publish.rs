//! Conversion of series to families: the counts, and metrics of their quality.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::StreamState;
use super::attributed::AttributedGroup;
use super::counting::Counting;
use super::counts::{Counts, quality_labels};
use super::naming::group_labels;
use crate::health::{Board, Scope, Verdict};
use crate::metrics::{Family, Kind, Labels, Metadata, NameError, Point, Value};
use crate::plan::Counter;
use crate::ring::{Records, RingMetrics};
use crate::series::{Published, aggregated_metadata};
use crate::sys::Kernel;

/// Metadata of the families about the counters themselves.
#[derive(Debug)]
pub(super) struct Quality {
    ratio: Arc<Metadata>,
    state: Arc<Metadata>,
    targets: Arc<Metadata>,
    aggregated: Arc<Metadata>,
    in_other: Arc<Metadata>,
    rings: RingMetrics,
}

impl Quality {
    pub(super) fn new() -> Result<Self, NameError> {
        let gauge = |name, help| Metadata::new(name, help, "", Kind::Gauge);
        Ok(Self {
            ratio: Metadata::new(
                "perf_event_running_ratio",
                "Fraction of the enabled time that a group of counters was on the PMU, since the previous collection; below 1 \
                 its counts are scaled up.",
                "ratio",
                Kind::Gauge,
            )?,
            state: gauge(
                "perf_event_state",
                "Number of instances (CPUs, cgroups on a CPU, threads) of an event in a state: counting, shared, idle, \
                 never_ran, stalled, implausible, full, or could not be opened: absent, forbidden, exhausted, broken.",
            )?,
            targets: gauge(
                "perf_targets",
                "Number of CPUs, cgroups or processes that a group of counters selects, by state: counted or left_out.",
            )?,
            aggregated: aggregated_metadata()?,
            in_other: gauge(
                "perf_series_in_other",
                "Number of series whose counts are currently aggregated into the series \"other\".",
            )?,
            rings: RingMetrics::new()?,
        })
    }

    /// Returns the families of all `groups`.
    pub(super) fn publish<K: Kernel>(
        &self,
        groups: &[Counting<K>],
        traced: &[(Arc<str>, Scope, usize)],
        stream: Option<&StreamState>,
        board: &Board,
    ) -> Vec<Family> {
        let mut families = Vec::new();
        for group in groups {
            for (index, counter) in group.base().plan.counters.iter().enumerate() {
                let points = group.base().series.iter().filter_map(|series| point(series, index, counter));
                families.push(Family::new(Arc::clone(&counter.metric), points.collect()));
            }
        }
        let family = |metadata: &Arc<Metadata>, points| Family::new(Arc::clone(metadata), points);
        let rotated = groups.iter().filter(|group| group.base().plan.needs_pmu());
        families.extend([
            family(&self.ratio, rotated.flat_map(ratios).collect()),
            family(&self.state, states(groups, traced, board)),
            family(&self.targets, groups.iter().flat_map(targets).collect()),
            family(&self.aggregated, groups.iter().map(aggregated).collect()),
            family(&self.in_other, groups.iter().map(in_other).collect()),
        ]);
        families.extend(groups.iter().filter_map(Counting::attributed).flat_map(unattributed));
        if let Some(stream) = stream {
            families.extend(self.rings.publish(Records::Switches, stream.losses, stream.ring_bytes));
        }
        families
    }
}

/// Returns the total of one series; `None` if it is unknown or implausible.
fn point<I>(series: Published<'_, Counts, I>, index: usize, counter: &Counter) -> Option<Point> {
    let total = series.total.known(index)?;
    let start = series.total.start(index, series.start);
    Some(Point { labels: Arc::clone(series.labels), value: quantity(counter, total), start })
}

/// Returns a count in the unit of its metric.
fn quantity(counter: &Counter, total: u64) -> Value {
    match &counter.event.scale {
        Some(scale) => Value::Float(scale.quantity(total)),
        None => Value::Integer(total),
    }
}

/// Returns the fraction of the enabled time that each series was counted, in the last interval.
fn ratios<K: Kernel>(group: &Counting<K>) -> impl Iterator<Item = Point> {
    group.base().series.iter().filter_map(|series| {
        let value = Value::Float(series.total.interval.ratio()?);
        let labels = quality_labels(series.labels, series.info, &group.base().plan);
        Some(Point::gauge(labels, value))
    })
}

/// Returns the number of counted targets of a group, and the number that are left out.
fn targets<K: Kernel>(group: &Counting<K>) -> [Point; 2] {
    [("counted", group.counted()), ("left_out", group.left_out())]
        .map(|(state, number)| number_of(group, Some(("state", state)), number as u64))
}

/// Returns a number about a group, with a label in addition to those of the group.
fn number_of<K: Kernel>(group: &Counting<K>, label: Option<(&str, &str)>, number: u64) -> Point {
    let label = label.map(|(name, value)| (name.into(), value.into()));
    let labels = Labels::new(group_labels(&group.base().plan).into_iter().chain(label));
    Point::gauge(labels, Value::Integer(number))
}

fn aggregated<K: Kernel>(group: &Counting<K>) -> Point {
    let series = &group.base().series;
    Point { start: series.start(), ..number_of(group, None, series.aggregated()) }
}

/// Returns the counts of a group that are in no series. A snapshot merges the families of groups that count the same event for different
/// scopes.
fn unattributed(group: &AttributedGroup) -> impl Iterator<Item = Family> {
    group.unattributed().map(|(counter, labels, total, start)| {
        let point = Point { labels, value: quantity(counter, total), start };
        Family::new(Arc::clone(&counter.unattributed), vec![point])
    })
}

fn in_other<K: Kernel>(group: &Counting<K>) -> Point {
    number_of(group, None, group.base().series.unnamed() as u64)
}

/// Returns the number of instances of each event in each state. `counting` is reported even if zero, so that an event without any counting
/// instance has a series to alert on. Other states are reported only if they are not zero.
fn states<K: Kernel>(
    groups: &[Counting<K>],
    traced: &[(Arc<str>, Scope, usize)],
    board: &Board,
) -> Vec<Point> {
    let mut places: BTreeMap<(Arc<str>, Scope, &'static str), usize> = BTreeMap::new();
    for group in groups {
        for (index, counter) in group.base().plan.counters.iter().enumerate() {
            for verdict in Verdict::ALL {
                let here = group.base().states.get(&(index, verdict)).copied().unwrap_or(0);
                if here == 0 && verdict != Verdict::Counting {
                    continue;
                }
                let key = (Arc::clone(&counter.event.name), group.base().plan.scope(), verdict.as_str());
                *places.entry(key).or_default() += here;
            }
        }
    }
    for (event, scope, open) in traced {
        *places.entry((Arc::clone(event), *scope, Verdict::Counting.as_str())).or_default() += open;
    }
    for line in board.lines() {
        let key = (Arc::clone(&line.refusal.event), line.scope, line.refusal.cause.as_str());
        *places.entry(key).or_default() += line.targets;
    }
    let point = |((event, scope, state), count): ((Arc<str>, Scope, &str), usize)| {
        let labels = [("event", event), ("scope", scope.as_str().into()), ("state", state.into())];
        Point::gauge(Labels::new(labels), Value::Integer(count as u64))
    };
    places.into_iter().map(point).collect()
}
