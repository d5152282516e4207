//! The families about entries and rings themselves, whatever they tell of.

use std::iter::zip;
use std::sync::Arc;

use super::book::Book;
use super::{RingsState, TracerState};
use crate::config::traced::TracedKind;
use crate::metrics::{Family, Kind, Labels, Metadata, NameError, Point, Value};
use crate::plan::Feed;
use crate::ring::RingMetrics;

/// Those that are there only where there is something to tell.
pub const METRICS: [&str; 4] = [UNPAIRED, PENDING, DROPPED, UNTOLD];

const UNPAIRED: &str = "perf_unpaired_events";
const PENDING: &str = "perf_pending_events";
const DROPPED: &str = "perf_dropped_hits";
const UNTOLD: &str = "perf_untold_events";

/// Their metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    rings: RingMetrics,
    aggregated: Arc<Metadata>,
    unpaired: Arc<Metadata>,
    waiting: Arc<Metadata>,
    dropped: Arc<Metadata>,
    untold: Arc<Metadata>,
}

impl Metrics {
    pub(super) fn new() -> Result<Self, NameError> {
        let counter = |name, help| Metadata::new(name, help, "", Kind::Counter);
        let gauge = |name, help| Metadata::new(name, help, "", Kind::Gauge);
        Ok(Self {
            rings: RingMetrics::new()?,
            // This is the collector's, too.
            aggregated: counter(
                "perf_series_aggregated",
                "Series whose counts were aggregated into \"other\".",
            )?,
            unpaired: counter(
                UNPAIRED,
                "Events of a pair that found no partner: no_begin, a second without a first; no_end, a first that was \
                 followed by another first; expired, a first that waited too long; full, a first for which there was no \
                 room; lost, firsts given up when records were lost; backwards, a second that bears an earlier time.",
            )?,
            waiting: gauge(PENDING, "First events of a pair that wait for their second.")?,
            dropped: counter(
                DROPPED,
                "Hits that could not be added up: negative, for the number is below zero; short, for the record lacks it.",
            )?,
            untold: counter(
                UNTOLD,
                "What threads did that could not be told: backwards, for a time lies before the one that it follows; unseen, a \
                 thread left a CPU that it was not seen to come to; unwoken, a thread that slept came to a CPU and nobody was \
                 seen to wake it, so its delay is not known; lost, what was under way when records were lost; full, for \
                 want of room; no_begin, the end of a system call that began before anybody looked; no_end, the beginning of one \
                 that was followed by another.",
            )?,
        })
    }

    pub(super) fn publish(&self, books: &[Book], state: &TracerState) -> Vec<Family> {
        let of = |rings: &RingsState| self.rings.publish(rings.records, rings.losses, rings.bytes);
        let mut families: Vec<Family> = state.rings.iter().flat_map(of).collect();
        let entry = |book: &Book| ("entry", Arc::clone(&book.trace.entry));
        let reason = |reason: &'static str| ("reason", Arc::from(reason));
        let counted = |book: &Book, labels: Vec<(&'static str, Arc<str>)>, count| Point {
            labels: Labels::new(labels),
            value: Value::Integer(count),
            start: book.start,
        };
        let pairs = || books.iter().filter(|book| book.trace.pair.is_some());
        let unpaired = pairs().flat_map(|book| {
            let each = book.unpaired.iter();
            each.map(move |&(why, count)| counted(book, vec![entry(book), reason(why)], count))
        });
        families.push(Family::new(Arc::clone(&self.unpaired), unpaired.collect()));
        let waiting = pairs().map(|book| counted(book, vec![entry(book)], book.waiting as u64));
        families.push(Family::new(Arc::clone(&self.waiting), waiting.collect()));
        let dropped = books.iter().flat_map(|book| {
            let each = [("negative", book.dropped.negative), ("short", book.dropped.short)];
            let each = each.into_iter().filter(|&(_, count)| count > 0);
            each.map(move |(why, count)| counted(book, vec![entry(book), reason(why)], count))
        });
        families.push(Family::new(Arc::clone(&self.dropped), dropped.collect()));
        let aggregated = books.iter().flat_map(|book| {
            book.aggregated().map(move |(output, count)| {
                let metric =
                    output.hits.as_ref().or(output.amount.as_ref()).map(|metric| metric.name().into());
                let first = book.trace.sources.first().map(|source| Arc::clone(&source.event.name));
                // What is told of threads is one entry with several metrics.
                let leader = if book.trace.feed == Feed::Records { first } else { metric };
                let labels = vec![
                    ("counters", Arc::clone(&book.trace.entry)),
                    ("leader", leader.unwrap_or_default()),
                    ("scope", output.targets.scope().as_str().into()),
                ];
                counted(book, labels, count)
            })
        });
        families.push(Family::new(Arc::clone(&self.aggregated), aggregated.collect()));
        families.push(Family::new(Arc::clone(&self.untold), untold(books, state)));
        families
    }
}

/// What could not be told of threads, for the sections that tell of them.
fn untold(books: &[Book], state: &TracerState) -> Vec<Point> {
    let (sched, calls) = (state.untold.sched, state.untold.calls);
    let reasons = ["backwards", "unseen", "unwoken", "lost", "full"];
    let of_sched = zip(reasons, [sched.backwards, sched.unseen, sched.unwoken, sched.dropped, sched.full]);
    let reasons = ["backwards", "no_begin", "no_end", "lost", "full"];
    let of_calls = zip(reasons, [calls.backwards, calls.unbegun, calls.unended, calls.dropped, calls.full]);
    let points = [(TracedKind::Scheduler, of_sched), (TracedKind::Syscalls, of_calls)];
    let points = points.into_iter().filter_map(|(kind, counts)| {
        Some((kind, books.iter().find(|book| book.trace.kind == kind)?.start, counts))
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
