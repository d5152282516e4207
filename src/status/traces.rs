//! Tracepoints and probes whose records are looked into.

use serde::Serialize;

use super::{EventStatus, Series};
use crate::health::Board;
use crate::metrics::Kind;
use crate::plan::{Amount, Feed, Trace};
use crate::tracepoint::TraceState;

/// One entry of `tracepoints` or `probes` whose records are looked into. Entries that only count hits stand among the
/// counters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceStatus {
    /// The entry's name in the file.
    pub entry: String,
    /// `tracepoints` or `probes`.
    pub section: &'static str,
    /// What becomes of its hits: `histogram of size in bytes, by comm, per host`.
    pub what: String,
    /// Its events; the counts are of CPUs.
    pub events: Vec<EventStatus>,
    /// Hits in its series; of a pair, pairs.
    pub hits: u64,
    /// Its series.
    pub series: u64,
    /// What tells how its pairs are found; `None` if it is none.
    pub pairs: Option<Pairs>,
}

/// What came of the events of a pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pairs {
    /// First events that wait for their second.
    pub waiting: u64,
    /// Events that found no partner, by reason, as in `perf_unpaired_events_total`.
    pub unpaired: Vec<Unpaired>,
}

/// Events of a pair that found no partner for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unpaired {
    /// The reason.
    pub reason: &'static str,
    /// How many.
    pub count: u64,
}

/// Each entry. What is told of threads is one, with several metrics.
pub(crate) fn all(states: &[TraceState], board: &Board) -> Vec<TraceStatus> {
    let mut all: Vec<TraceStatus> = Vec::new();
    for state in states {
        let of_threads = state.plan.feed != Feed::Records;
        let row = trace(state, board);
        let known = all.iter_mut().find(|known| of_threads && known.section == row.section);
        match known {
            Some(known) => known.series += row.series,
            None => all.push(row),
        }
    }
    all
}

/// One entry.
fn trace(state: &TraceState, board: &Board) -> TraceStatus {
    let trace = &*state.plan;
    let of_threads = trace.feed != Feed::Records;
    let event = |(source, &open): (&crate::plan::TraceSource, &usize)| EventStatus {
        event: source.event.name.to_string(),
        counting: open as u64,
        refused: board.places(|line| line.is_of_event(&trace.entry, &source.event.name)),
        ..EventStatus::default()
    };
    let unpaired = state.unpaired.iter().filter(|&&(_, count)| count > 0);
    TraceStatus {
        entry: trace.entry.to_string(),
        section: trace.kind.section(),
        what: if of_threads { of_whom(trace) } else { what(trace) },
        events: trace.sources.iter().zip(&state.open).map(event).collect(),
        hits: state.hits,
        series: state.series.iter().map(|count| count.published as u64).sum(),
        pairs: trace.pair.map(|_| Pairs {
            waiting: state.waiting as u64,
            unpaired: unpaired.map(|&(reason, count)| Unpaired { reason, count }).collect(),
        }),
    }
}

/// What becomes of its hits, in a few words.
fn what(trace: &Trace) -> String {
    let field = || trace.sources.iter().find_map(|source| source.value.as_ref());
    let field = field().map_or("", |field| &*field.name);
    let mut words = match &trace.measure {
        Amount::Hits => "count".to_owned(),
        Amount::Sum(_) => format!("sum of {field}"),
        Amount::Histogram(..) => format!("histogram of {field}"),
        Amount::Elapsed(_) => "time from the first to the second".to_owned(),
        Amount::Most(..) => "the largest of late".to_owned(),
    };
    if !trace.labels.is_empty() {
        words.push_str(&format!(", by {}", trace.labels.join(", ")));
    }
    format!("{words}, {}", of_whom(trace))
}

/// For whom it is told.
fn of_whom(trace: &Trace) -> String {
    let scopes: Vec<&str> = trace.outputs.iter().map(|output| output.targets.scope().as_str()).collect();
    format!("per {}", scopes.join(", "))
}

/// Its metrics.
pub(crate) fn series(state: &TraceState) -> impl Iterator<Item = Series> + '_ {
    let outputs = state.plan.outputs.iter().zip(&state.series);
    outputs.flat_map(|(output, count)| {
        output.hits.iter().chain(&output.amount).map(|metric| Series {
            metric: match metric.kind() {
                Kind::Counter => format!("{}_total", metric.name()),
                _ => metric.name().to_owned(),
            },
            series: count.published as u64,
            in_other: count.in_other as u64,
        })
    })
}
