//! What the status tells of tracepoints and probes whose records are looked into.

use crate::export::status::{EventStatus, Pairs, Series, TraceStatus, Unpaired};
use crate::health::Board;
use crate::metrics::Kind;
use crate::plan::{Amount, Feed, Trace};
use crate::tracepoint::TraceState;

/// Each entry. What is told of threads is one, with several metrics.
pub(super) fn all(states: &[TraceState], board: &Board) -> Vec<TraceStatus> {
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
        shared: None,
        stalled: 0,
        refused: refused(board, &trace.entry, &source.event.name),
    };
    let unpaired = state.unpaired.iter().filter(|&&(_, count)| count > 0);
    TraceStatus {
        entry: trace.entry.to_string(),
        section: trace.kind.section().into(),
        what: if of_threads { of_whom(trace) } else { what(trace) },
        events: trace.sources.iter().zip(&state.open).map(event).collect(),
        hits: state.hits,
        series: state.series.iter().map(|count| count.published as u64).sum(),
        pairs: trace.pair.map(|_| Pairs {
            waiting: state.waiting as u64,
            unpaired: unpaired.map(|&(reason, count)| Unpaired { reason: reason.into(), count }).collect(),
        }),
    }
}

/// In how many places an event of an entry was refused.
pub(super) fn refused(board: &Board, entry: &str, event: &str) -> u64 {
    let lines = board.lines().filter(|line| *line.entry == *entry && *line.refusal.event == *event);
    lines.map(|line| line.targets as u64).sum()
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
pub(super) fn series(state: &TraceState) -> impl Iterator<Item = Series> + '_ {
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
