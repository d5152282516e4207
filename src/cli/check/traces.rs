//! The tracepoints and probes in the report of a check.

use std::io::{self, Write};

use serde::Serialize;

use super::words::heading;
use crate::plan::{Feed, PROFILES, Trace};
use crate::probe::install::ProbeDescription;

/// An entry whose records are decoded.
#[derive(Debug, Serialize)]
pub(super) struct TraceRow {
    pub(super) section: &'static str,
    pub(super) entry: String,
    /// Scopes of the entry.
    pub(super) scopes: Vec<&'static str>,
    pub(super) events: Vec<TracedEvent>,
    pub(super) labels: Vec<String>,
    pub(super) metrics: Vec<String>,
    /// Whether records are sorted by time before they are used.
    pub(super) ordered: bool,
}

/// An event of an entry.
#[derive(Debug, Serialize)]
pub(super) struct TracedEvent {
    pub(super) event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter: Option<String>,
    /// Number of CPUs on which the event was opened. `None` if it was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpus: Option<usize>,
}

/// The definition of a probe in the kernel.
#[derive(Debug, Serialize)]
pub(super) struct ProbeRow {
    pub(super) section: &'static str,
    pub(super) entry: String,
    pub(super) ways: Vec<String>,
    /// Files that are not probed, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
}

impl TraceRow {
    /// Merges the rows of each entry: metrics of threads have separate traces with labels of their own.
    pub(super) fn all(rows: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for row in rows {
            let known =
                all.iter_mut().find(|known| (known.section, &known.entry) == (row.section, &row.entry));
            match known {
                Some(known) => known.metrics.extend(row.metrics),
                None => all.push(row),
            }
        }
        all
    }

    /// Creates a row. `open` is the number of CPUs on which each event is open.
    pub(super) fn new(trace: &Trace, open: Option<&[usize]>) -> Self {
        let event = |(place, source): (usize, &crate::plan::TraceSource)| TracedEvent {
            event: source.event.name.to_string(),
            filter: source.event.filter.as_deref().map(str::to_owned),
            cpus: open.and_then(|open| open.get(place)).copied(),
        };
        let metrics = trace.outputs.iter().flat_map(|output| output.hits.iter().chain(&output.amount));
        let of_threads = trace.feed != Feed::Records && !trace.labels.is_empty();
        let labels = if of_threads { format!("{{{}}}", trace.labels.join(",")) } else { String::new() };
        let shared = if of_threads { &[] } else { &trace.labels[..] };
        let event_label = trace.event_label.then(|| "event".to_owned());
        Self {
            section: trace.kind.section(),
            entry: trace.entry.to_string(),
            scopes: trace.outputs.iter().map(|output| output.targets.scope().as_str()).collect(),
            events: trace.sources.iter().enumerate().map(event).collect(),
            labels: event_label.into_iter().chain(shared.iter().map(ToString::to_string)).collect(),
            metrics: metrics.map(|metric| metric.sample_name() + &labels).collect(),
            ordered: trace.is_ordered(),
        }
    }
}

impl ProbeRow {
    /// Returns `None` for a refused probe, which is listed with the refusals.
    pub(super) fn new(look: &ProbeDescription) -> Option<Self> {
        let (ways, (section, entry)) = (look.ways.as_ref().ok()?.clone(), &look.entry);
        Some(Self { section, entry: entry.to_string(), ways, notes: look.notes.clone() })
    }
}

/// Writes the tracepoints and probes as text.
pub(super) fn write(out: &mut impl Write, traces: &[TraceRow], probes: &[ProbeRow]) -> io::Result<()> {
    heading(out, traces, "Decoded, one record per hit")?;
    for trace in traces {
        let by =
            if trace.labels.is_empty() { String::new() } else { format!(", by {}", trace.labels.join(", ")) };
        let order = if trace.ordered { ", sorted by time" } else { "" };
        writeln!(out, "  {} per {}{by}{order}", trace.entry, trace.scopes.join(", "))?;
        for TracedEvent { event, filter, cpus } in &trace.events {
            let cpus = cpus.map(|cpus| format!("  on {cpus} CPUs")).unwrap_or_default();
            let filter = filter.as_ref().map(|filter| format!("  where {filter}")).unwrap_or_default();
            writeln!(out, "    {event}{cpus}{filter}")?;
        }
        trace.metrics.iter().try_for_each(|metric| writeln!(out, "      {metric}"))?;
    }
    heading(out, probes, "Probes")?;
    for probe in probes {
        // Entries in different sections may have the same name.
        let sampled = if probe.section == PROFILES { ", sampled with call chains" } else { "" };
        writeln!(out, "  {}{sampled}", probe.entry)?;
        probe.ways.iter().try_for_each(|way| writeln!(out, "    {}", crate::error::printable(way)))?;
        probe
            .notes
            .iter()
            .try_for_each(|note| writeln!(out, "    note: {}", crate::error::printable(note)))?;
    }
    Ok(())
}
