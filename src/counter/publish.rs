//! From series to families: the counts, and beside them how far they can be trusted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::group::GroupCounter;
use super::series::Series;
use crate::clock::Timestamp;
use crate::health::{Board, Scope, Verdict};
use crate::metrics::{Family, Kind, Labels, Metadata, NameError, Point, Value};
use crate::plan::Counter;
use crate::sys::Kernel;

/// The families about the counters themselves, whatever they count.
#[derive(Debug)]
pub(super) struct Quality {
    ratio: Arc<Metadata>,
    state: Arc<Metadata>,
    targets: Arc<Metadata>,
    folded: Arc<Metadata>,
}

impl Quality {
    pub(super) fn new() -> Result<Self, NameError> {
        Ok(Self {
            ratio: Metadata::new(
                "perf_event_running_ratio",
                "Part of the time in which a group of counters could have counted that it was on the PMU, since the \
                 collection before; below 1 its counts are scaled up.",
                "ratio",
                Kind::Gauge,
            )?,
            state: Metadata::new(
                "perf_event_state",
                "Number of places (CPUs, cgroups on a CPU, threads) in which an event is in a state: counting, shared, \
                 idle, never_ran, stalled, implausible, full, or refused as absent, forbidden, exhausted, broken.",
                "",
                Kind::Gauge,
            )?,
            targets: Metadata::new(
                "perf_targets",
                "Number of CPUs, cgroups or processes that a group of counters is for, counted or left_out.",
                "",
                Kind::Gauge,
            )?,
            folded: Metadata::new(
                "perf_series_folded",
                "Targets and ended series that were added to the series \"other\" instead of having one of their own.",
                "",
                Kind::Counter,
            )?,
        })
    }

    /// Everything that `groups` have to say.
    pub(super) fn publish<K: Kernel>(&self, groups: &[GroupCounter<K>], board: &Board) -> Vec<Family> {
        let mut families = Vec::new();
        for group in groups {
            for (index, counter) in group.plan.counters.iter().enumerate() {
                let points = group.series.iter().filter_map(|series| point(series, index, counter));
                families.push(Family::new(Arc::clone(&counter.metric), points.collect()));
            }
        }
        families.push(Family::new(
            Arc::clone(&self.ratio),
            groups.iter().filter(|group| can_be_rotated(group)).flat_map(ratios).collect(),
        ));
        families.push(Family::new(Arc::clone(&self.state), states(groups, board)));
        families.push(Family::new(Arc::clone(&self.targets), groups.iter().flat_map(targets).collect()));
        families.push(Family::new(Arc::clone(&self.folded), groups.iter().map(folded).collect()));
        families
    }
}

/// The total of one series, unless it was never counted or is not to be believed.
fn point(series: &Series, index: usize, counter: &Counter) -> Option<Point> {
    let counted = *series.counted.get(index)? && !*series.doubted.get(index)?;
    let &total = series.totals.get(index).filter(|_| counted)?;
    let value = match &counter.event.scale {
        Some(scale) => Value::Float(scale.quantity(total)),
        None => Value::Integer(total),
    };
    Some(Point { labels: Arc::clone(&series.labels), value, start: series.start })
}

/// Whether a group needs counters of which a PMU has only so many; software always counts.
fn can_be_rotated<K: Kernel>(group: &GroupCounter<K>) -> bool {
    group.plan.counters.iter().any(|counter| !counter.event.kind.joins_any_group())
}

/// How much of the time that it could have counted each series did, in the last interval.
fn ratios<K: Kernel>(group: &GroupCounter<K>) -> impl Iterator<Item = Point> {
    group.series.iter().filter_map(|series| {
        let value = Value::Float(series.interval.ratio()?);
        Some(Point { labels: Arc::clone(&series.quality_labels), value, start: Timestamp::default() })
    })
}

/// How many targets a group has, and how many it should have besides.
fn targets<K: Kernel>(group: &GroupCounter<K>) -> [Point; 2] {
    [("counted", group.counted()), ("left_out", group.left_out())].map(|(state, number)| {
        let own = group.series.group_labels().iter().cloned();
        let labels = Labels::new(own.chain([("state".into(), state.into())]));
        Point { labels, value: Value::Integer(number as u64), start: Timestamp::default() }
    })
}

fn folded<K: Kernel>(group: &GroupCounter<K>) -> Point {
    let labels = Labels::new(group.series.group_labels().iter().cloned());
    Point { labels, value: Value::Integer(group.series.folded()), start: group.series.start() }
}

/// In how many places each event is counted, shared, refused, …. Of `counting` a zero is told too, so that an event
/// that counts nowhere has a series to alert on; of the others only what there is.
fn states<K: Kernel>(groups: &[GroupCounter<K>], board: &Board) -> Vec<Point> {
    let mut places: BTreeMap<(Arc<str>, Scope, &'static str), usize> = BTreeMap::new();
    for group in groups {
        for (index, counter) in group.plan.counters.iter().enumerate() {
            for verdict in Verdict::ALL {
                let here = group.states.get(&(index, verdict)).copied().unwrap_or(0);
                if here == 0 && verdict != Verdict::Counting {
                    continue;
                }
                let key = (Arc::clone(&counter.event.name), group.plan.scope(), verdict.as_str());
                *places.entry(key).or_default() += here;
            }
        }
    }
    for line in board.lines() {
        let key = (Arc::clone(&line.refusal.event), line.scope, line.refusal.cause.as_str());
        *places.entry(key).or_default() += line.targets;
    }
    let point = |((event, scope, state), count): ((Arc<str>, Scope, &str), usize)| Point {
        labels: Labels::new([("event", event), ("scope", scope.as_str().into()), ("state", state.into())]),
        value: Value::Integer(count as u64),
        start: Timestamp::default(),
    };
    places.into_iter().map(point).collect()
}
