//! Status of tracepoints and probes with decoded records.

use serde::Serialize;

use super::{EventStatus, Series};
use crate::health::Board;
use crate::metrics::Kind;
use crate::plan::{Amount, Feed, Trace};
use crate::tracepoint::TraceState;

/// One entry of `tracepoints` or `probes` with decoded records. Entries that only count hits are listed under counters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceStatus {
    /// Name of the entry in the file.
    pub entry: String,
    /// `tracepoints` or `probes`.
    pub section: &'static str,
    /// Short description of the result: `histogram of size in bytes, by comm, per host`.
    pub what: String,
    /// Events of the entry; the states count CPUs.
    pub events: Vec<EventStatus>,
    /// Number of hits in its series; for a pair, number of pairs.
    pub hits: u64,
    /// Number of its series.
    pub series: u64,
    /// State of the pairing; `None` if the entry is not a pair.
    pub pairs: Option<Pairs>,
}

/// Results of the pairing of events.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pairs {
    /// Number of begin events without an end event so far.
    pub waiting: u64,
    /// Events without a partner, by reason, as in `perf_unpaired_events_total`.
    pub unpaired: Vec<Unpaired>,
}

/// Events of a pair without a partner, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unpaired {
    /// The reason.
    pub reason: &'static str,
    /// Number of events.
    pub count: u64,
}

/// Returns the status of all entries. The traces of threads are one entry with several metrics.
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

/// Returns the status of one entry.
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

/// Returns a short description of the result.
fn what(trace: &Trace) -> String {
    let field = || trace.sources.iter().find_map(|source| source.value.as_ref());
    let field = field().map_or("", |field| &*field.name);
    let mut words = match &trace.measure {
        Amount::Hits => "count".to_owned(),
        Amount::Sum(_) => format!("sum of {field}"),
        Amount::Histogram(..) => format!("histogram of {field}"),
        Amount::Elapsed(_) => "time from begin to end".to_owned(),
        Amount::Most(..) => "maximum over the last minute".to_owned(),
    };
    if !trace.labels.is_empty() {
        words.push_str(&format!(", by {}", trace.labels.join(", ")));
    }
    format!("{words}, {}", of_whom(trace))
}

/// Returns the scopes of a trace as text.
fn of_whom(trace: &Trace) -> String {
    let scopes: Vec<&str> = trace.outputs.iter().map(|output| output.targets.scope().as_str()).collect();
    format!("per {}", scopes.join(", "))
}

/// Returns the number of series of each metric.
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
