//! The families about entries and rings themselves.

use std::iter::zip;
use std::sync::Arc;

use super::series_table::SeriesTable;
use super::{RingsState, TracerState};
use crate::config::traced::TracedKind;
use crate::metrics::{Family, Kind, Labels, Metadata, NameError, Point, Value};
use crate::plan::Feed;
use crate::ring::RingMetrics;
use crate::series::aggregated_metadata;

/// Metrics that are present only with certain entries or counts.
pub const METRICS: [&str; 4] = [UNPAIRED, PENDING, DROPPED, UNTRACKED_EVENTS];

const UNPAIRED: &str = "perf_unpaired_events";
const PENDING: &str = "perf_pending_events";
const DROPPED: &str = "perf_dropped_hits";
const UNTRACKED_EVENTS: &str = "perf_untracked_events";

/// The metadata of these families.
#[derive(Debug)]
pub(super) struct Metrics {
    rings: RingMetrics,
    aggregated: Arc<Metadata>,
    unpaired: Arc<Metadata>,
    waiting: Arc<Metadata>,
    dropped: Arc<Metadata>,
    untracked: Arc<Metadata>,
}

impl Metrics {
    pub(super) fn new() -> Result<Self, NameError> {
        let counter = |name, help| Metadata::new(name, help, "", Kind::Counter);
        let gauge = |name, help| Metadata::new(name, help, "", Kind::Gauge);
        Ok(Self {
            rings: RingMetrics::new()?,
            aggregated: aggregated_metadata()?,
            unpaired: counter(
                UNPAIRED,
                "Events of a pair without a partner, by reason: no_begin, an end without a begin; no_end, a begin followed by \
                 another begin; expired, a begin whose end did not arrive in time; table_full, a begin dropped because the table \
                 is full; lost, begins discarded after lost records; time_reversed, an end with an earlier time than its begin.",
            )?,
            waiting: gauge(PENDING, "Begin events of a pair whose end event has not arrived.")?,
            dropped: counter(
                DROPPED,
                "Hits whose value was not added, by reason: negative, the value is below zero; short, the record lacks the field.",
            )?,
            untracked: counter(
                UNTRACKED_EVENTS,
                "Scheduler and system call events that could not be accounted, by reason: time_reversed, the time is earlier than \
                 that of the preceding event; missed_switch, the outgoing task has no recorded switch to the CPU; missed_wakeup, a sleeping \
                 task was switched in without a recorded wakeup, so its delay is unknown; lost, in-flight state discarded after \
                 lost records; table_full; no_begin, the exit of a system call whose entry was not recorded; \
                 no_end, the entry of a system call that was followed by another entry.",
            )?,
        })
    }

    pub(super) fn publish(&self, series_tables: &[SeriesTable], state: &TracerState) -> Vec<Family> {
        let of = |rings: &RingsState| self.rings.publish(rings.records, rings.losses, rings.bytes);
        let mut families: Vec<Family> = state.rings.iter().flat_map(of).collect();
        let entry = |series_table: &SeriesTable| ("entry", Arc::clone(&series_table.trace.entry));
        let reason = |reason: &'static str| ("reason", Arc::from(reason));
        let counted = |series_table: &SeriesTable, labels: Vec<(&'static str, Arc<str>)>, count| Point {
            labels: Labels::new(labels),
            value: Value::Integer(count),
            start: series_table.start,
        };
        let pairs = || series_tables.iter().filter(|series_table| series_table.trace.pair.is_some());
        let unpaired = pairs().flat_map(|series_table| {
            let each = series_table.unpaired.iter();
            each.map(move |&(why, count)| {
                counted(series_table, vec![entry(series_table), reason(why)], count)
            })
        });
        families.push(Family::new(Arc::clone(&self.unpaired), unpaired.collect()));
        let waiting = pairs().map(|series_table| {
            counted(series_table, vec![entry(series_table)], series_table.waiting as u64)
        });
        families.push(Family::new(Arc::clone(&self.waiting), waiting.collect()));
        let dropped = series_tables.iter().flat_map(|series_table| {
            let each = [("negative", series_table.dropped.negative), ("short", series_table.dropped.short)];
            let each = each.into_iter().filter(|&(_, count)| count > 0);
            each.map(move |(why, count)| counted(series_table, vec![entry(series_table), reason(why)], count))
        });
        families.push(Family::new(Arc::clone(&self.dropped), dropped.collect()));
        let aggregated = series_tables.iter().flat_map(|series_table| {
            series_table.aggregated().map(move |(output, count, start)| {
                let metric =
                    output.hits.as_ref().or(output.amount.as_ref()).map(|metric| metric.name().into());
                let first = series_table.trace.sources.first().map(|source| Arc::clone(&source.event.name));
                // All entries of threads are one configuration entry with several metrics.
                let leader = if series_table.trace.feed == Feed::Records { first } else { metric };
                let labels = vec![
                    ("counters", Arc::clone(&series_table.trace.entry)),
                    ("leader", leader.unwrap_or_default()),
                    ("scope", output.targets.scope().as_str().into()),
                ];
                Point { start, ..counted(series_table, labels, count) }
            })
        });
        families.push(Family::new(Arc::clone(&self.aggregated), aggregated.collect()));
        families.push(Family::new(Arc::clone(&self.untracked), untracked(series_tables, state)));
        families
    }
}

/// Returns the untracked activity of threads, for the configured sections.
fn untracked(series_tables: &[SeriesTable], state: &TracerState) -> Vec<Point> {
    let (sched, calls) = (state.untracked.sched, state.untracked.calls);
    let reasons = ["time_reversed", "missed_switch", "missed_wakeup", "lost", "table_full"];
    let of_sched = zip(reasons, [sched.backwards, sched.unseen, sched.unwoken, sched.dropped, sched.full]);
    let reasons = ["time_reversed", "no_begin", "no_end", "lost", "table_full"];
    let of_calls = zip(reasons, [calls.backwards, calls.unbegun, calls.unended, calls.dropped, calls.full]);
    let points = [(TracedKind::Scheduler, of_sched), (TracedKind::Syscalls, of_calls)];
    let points = points.into_iter().filter_map(|(kind, counts)| {
        Some((kind, series_tables.iter().find(|series_table| series_table.trace.kind == kind)?.start, counts))
    });
    let points = points.flat_map(|(kind, start, counts)| {
        counts.map(move |(reason, count)| Point {
            labels: Labels::new([("section", kind.section()), ("reason", reason)]),
            value: Value::Integer(count),
            start,
        })
    });
    points.collect()
}
