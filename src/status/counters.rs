//! What is counted: groups of counters, and the switch stream.

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
    /// The entry's name in the file.
    pub entry: String,
    /// For whom.
    pub scope: Scope,
    /// How it is done, in a few words: `16 CPUs, own descriptors`, `212 cgroups, switch stream`.
    pub how: String,
    /// Its events.
    pub events: Vec<EventStatus>,
}

/// One event of an entry in one scope. The counts are of open or refused instances: one for each CPU, cgroup or
/// process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EventStatus {
    /// The event as perf prints it.
    pub event: String,
    /// Count all the time that they are enabled.
    pub counting: u64,
    /// Share the PMU with other events, so that their counts are scaled.
    pub shared: Option<Shared>,
    /// Are open and never came to the PMU, or stand still where they must not.
    pub stalled: u64,
    /// Could not be opened.
    pub refused: u64,
}

/// Instances of an event that were multiplexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// How many.
    pub count: u64,
    /// The smallest share of the time that one of them ran, in percent.
    pub lowest_percent: u8,
}

/// The switch stream: one group of counters for each CPU, and a record of them at each switch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stream {
    /// What it tells apart: `cgroup` or `process`.
    pub granularity: String,
    /// The event at which the kernel writes a record.
    pub leader: &'static str,
    /// On how many CPUs it is open.
    pub cpus: u64,
    /// Perf event descriptors on all of them.
    pub descriptors: u64,
    /// The groups of hardware events on a CPU, as the entries of `counters` that each counts for. Several take turns on the PMU.
    /// Software events have one group more.
    pub groups: Vec<Vec<Arc<str>>>,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Bytes of all rings, and what they may grow to where they run over.
    pub ring_bytes: Usage,
    /// Records that were read since it was opened.
    pub records: u64,
    /// Records that were not. Their counts are `lost` or `unrecorded` among what is unattributed.
    pub lost: u64,
    /// What the CPUs counted and no series has, by scope.
    pub unattributed: Vec<Unattributed>,
}

/// What the CPUs counted of one event, and no series of a scope has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unattributed {
    /// Whether cgroups or processes have the series.
    pub scope: Scope,
    /// The event: CPU time, if it is counted.
    pub event: Arc<str>,
    /// How much of all counts since the counters were opened series do have, in percent.
    pub attributed_percent: f64,
    /// Why the rest is in none, the largest part first.
    pub reasons: Vec<UnattributedPart>,
}

/// What no series has for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnattributedPart {
    /// As in `perf_unattributed_<event>_total`.
    pub reason: &'static str,
    /// How much of all counts.
    pub percent: f64,
}

/// Groups of one entry and scope together, with the events that were refused beside those that count.
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
        (targets, left_out) => format!("{targets} {what}, {way}, {left_out} more cannot be counted"),
    }
}

impl Stream {
    /// What the stream counts and loses, for these groups among others.
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

/// What no series of a scope has, of CPU time if any group of the scope counts it.
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

/// The series of its metrics.
pub(crate) fn series(group: &GroupState) -> impl Iterator<Item = Series> {
    let (series, in_other) = (group.series as u64, group.in_other as u64);
    group.plan.counters.iter().map(move |counter| Series {
        metric: counter.metric.sample_name(),
        series,
        in_other,
    })
}
