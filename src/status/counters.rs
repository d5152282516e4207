//! Status of counter groups and of the switch stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Series, Usage};
use crate::counter::{GroupState, StreamState};
use crate::health::{Board, Scope, Verdict};
use crate::plan::Source;

/// One entry of `counters` in one scope.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CounterStatus {
    /// Name of the entry in the file.
    pub entry: String,
    /// Scope of the counters.
    pub scope: Scope,
    /// Short description of the measurement: `16 CPUs, own descriptors`, `212 cgroups, switch stream`.
    pub how: String,
    /// Events of the entry.
    pub events: Vec<EventStatus>,
}

/// One event of an entry in one scope. The fields count instances, opened or not: one for each CPU, cgroup or process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EventStatus {
    /// Name of the event as perf prints it.
    pub event: String,
    /// Instances that count during all of their enabled time.
    pub counting: u64,
    /// Instances that are multiplexed, so that their counts are scaled.
    pub shared: Option<Shared>,
    /// Instances that were opened but never scheduled on the PMU, or that do not advance although they must.
    pub stalled: u64,
    /// Instances that could not be opened.
    pub refused: u64,
}

/// Multiplexed instances of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// Number of instances.
    pub count: u64,
    /// Lowest running ratio of an instance, in percent.
    pub lowest_percent: u8,
}

/// The switch stream: one group of counters for each CPU, with a record of their values at each switch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stream {
    /// Granularity of attribution: `cgroup` or `process`.
    pub granularity: String,
    /// Event at which the kernel writes a record.
    pub leader: &'static str,
    /// Number of CPUs on which the stream is open.
    pub cpus: u64,
    /// Number of perf event descriptors on all CPUs.
    pub descriptors: u64,
    /// Groups of hardware events on a CPU, each as the entries of `counters` that it serves. Several groups are multiplexed on the PMU.
    /// Software events have one more group.
    pub groups: Vec<Vec<Arc<str>>>,
    /// Size of a record in bytes.
    pub record_bytes: u64,
    /// Size of all rings in bytes, and the limit up to which they grow after overflows.
    pub ring_bytes: Usage,
    /// Number of records read since the stream was opened.
    pub records: u64,
    /// Number of lost records. Their counts are unattributed, with the reason `lost` or `unrecorded`.
    pub lost: u64,
    /// Counts of the CPUs that are in no series, by scope.
    pub unattributed: Vec<Unattributed>,
}

/// Counts of one event on the CPUs that are in no series of a scope.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unattributed {
    /// Scope of the series: cgroups or processes.
    pub scope: Scope,
    /// The event: CPU time, if available.
    pub event: Arc<str>,
    /// Percentage of all counts since the counters were opened that is in series.
    pub attributed_percent: f64,
    /// Reasons why the rest is in no series, the largest part first.
    pub reasons: Vec<UnattributedPart>,
}

/// Unattributed counts for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnattributedPart {
    /// Reason as in `perf_unattributed_<event>_total`.
    pub reason: &'static str,
    /// Percentage of all counts.
    pub percent: f64,
}

/// Combines groups of one entry and scope, with the events that could not be opened.
pub(crate) fn counters(groups: &[GroupState], board: &Board) -> Vec<CounterStatus> {
    let mut by_entry: BTreeMap<(usize, Scope), CounterStatus> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for group in groups {
        let entry = &*group.plan.entry;
        let place = order.iter().position(|&known| known == entry).unwrap_or_else(|| {
            order.push(entry);
            order.len() - 1
        });
        let status = by_entry.entry((place, group.plan.scope())).or_insert_with(|| CounterStatus {
            entry: entry.into(),
            scope: group.plan.scope(),
            how: how(group),
            events: Vec::new(),
        });
        for (counter, states) in group.plan.counters.iter().zip(&group.states) {
            let event = &*counter.event.name;
            let refused = board.places(|line| line.is_of(entry, group.plan.scope(), event));
            status.events.push(event_status(group, event, states, refused));
        }
    }
    by_entry.into_values().collect()
}

fn event_status(group: &GroupState, event: &str, states: &[(Verdict, usize)], refused: u64) -> EventStatus {
    let sum = |wanted: &[Verdict]| -> u64 {
        states.iter().filter(|(verdict, _)| wanted.contains(verdict)).map(|&(_, places)| places as u64).sum()
    };
    let shared = sum(&[Verdict::Shared]);
    EventStatus {
        event: event.into(),
        counting: sum(&[Verdict::Counting, Verdict::Idle]),
        shared: (shared > 0)
            .then_some(Shared { count: shared, lowest_percent: (group.lowest_ratio * 100.0) as u8 }),
        stalled: sum(&[Verdict::NeverRan, Verdict::Stalled, Verdict::Implausible, Verdict::Full]),
        refused,
    }
}

fn how(group: &GroupState) -> String {
    let what = group.plan.scope().words().targets;
    let way = if group.plan.source == Source::Stream { "switch stream" } else { "own descriptors" };
    match (group.targets, group.left_out) {
        (targets, 0) => format!("{targets} {what}, {way}"),
        (0, left_out) => format!("none of {left_out} {what}, {way}"),
        (targets, left_out) => format!("{targets} {what}, {way}, {left_out} omitted"),
    }
}

impl Stream {
    /// Describes the stream and its losses. `groups` may include groups of other sources.
    pub(crate) fn new(state: StreamState, groups: &[GroupState]) -> Self {
        Self {
            granularity: state.granularity.to_string(),
            leader: state.granularity.leader(),
            cpus: state.cpus as u64,
            descriptors: state.descriptors as u64,
            groups: state.groups,
            record_bytes: state.record_bytes as u64,
            ring_bytes: Usage { used: state.ring_bytes, limit: Some(state.ring_bytes_limit) },
            records: state.losses.records,
            lost: state.losses.ring_full + state.losses.unrecorded + state.losses.unreadable,
            unattributed: [Scope::Cgroup, Scope::Process]
                .into_iter()
                .filter_map(|scope| unattributed(scope, groups))
                .collect(),
        }
    }
}

/// Returns the unattributed counts of a scope, of CPU time if a group of the scope counts it.
fn unattributed(scope: Scope, groups: &[GroupState]) -> Option<Unattributed> {
    let of_scope = groups.iter().filter(|group| group.plan.scope() == scope);
    let parts = of_scope.filter_map(|group| group.unattributed.as_ref());
    let parts = parts.min_by_key(|parts| !parts.is_time)?;
    let mut reasons: Vec<UnattributedPart> = parts
        .parts
        .iter()
        .map(|&(reason, part)| UnattributedPart { reason, percent: part * 100.0 })
        .collect();
    reasons.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    let rest: f64 = reasons.iter().map(|part| part.percent).sum();
    Some(Unattributed { scope, event: Arc::clone(&parts.event), attributed_percent: 100.0 - rest, reasons })
}

/// Returns the number of series of each metric of a group.
pub(crate) fn series(group: &GroupState) -> impl Iterator<Item = Series> {
    let (series, in_other) = (group.series as u64, group.in_other as u64);
    group.plan.counters.iter().map(move |counter| Series {
        metric: counter.metric.sample_name(),
        series,
        in_other,
    })
}
