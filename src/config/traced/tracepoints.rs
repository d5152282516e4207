//! Checks of the entries of `tracepoints`: one event, several, or the time between two.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::fields::{Fields, OF_THE_RECORD, Time, filter, histogram, labels, measure, values};
use super::{EventSource, Pair, Traced, TracedKind};
use crate::config::decode::{At, node_of};
use crate::config::file::{PENDING_MAX, Tracepoint};
use crate::config::per::per;
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::selection::Selections;
use crate::config::value::{List, Period};
use crate::event::syntax::{Event, Name};
use crate::event::{self, is_identifier};
use crate::metrics::Level;

/// Default and bounds of the time from the first event of a pair to the second.
const TIMEOUT: Period = Period::seconds(60);
const TIMEOUTS: RangeInclusive<Period> = Period::milliseconds(1)..=Period::seconds(3600);
/// Default maximum number of pending first events.
const PENDING: usize = 16_384;
/// Maximum number of parts of a key; two events do not have more fields in common.
const KEY_LIMIT: usize = 8;

/// Returns the checked entry; `None` if it has no valid event.
pub(super) fn tracepoint(
    name: &At<String>,
    entry: &At<Tracepoint>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<Traced> {
    let histogram = histogram(&entry.histogram, report);
    let source = source(name, entry, report);
    let per = per(&entry.target_keys(), selections, report);
    let (fields, time) = match entry.from.is_some() || entry.to.is_some() {
        true => (Fields::Pair, Time::Pair),
        false => (
            Fields::Event,
            Time::None(
                "one event has no duration",
                "write `from` and `to` for two events, or a field: {of: delay, unit: nanoseconds}",
            ),
        ),
    };
    let filter = filter(&entry.filter, fields, report);
    let labels = labels(&entry.labels, fields, &per, report);
    let level = entry.level.as_ref().map_or(Level::default(), |at| at.value);
    let values = values(&entry.values, &entry.labels, entry.node, report);
    let measure = measure(&entry.sum, histogram, time, fields, report);
    let (kind, name) = (TracedKind::Tracepoint, name.value.as_str().into());
    Some(Traced { kind, name, source: source?, per, filter, labels, measure, values, level })
}

/// Returns the events of an entry.
fn source(name: &At<String>, entry: &At<Tracepoint>, report: &mut Report<'_>) -> Option<EventSource> {
    let Tracepoint { event, events, from, to, .. } = &entry.value;
    if from.is_none() && to.is_none() {
        no_pair(entry, report);
    } else if let Some(node) = node_of(event).or(node_of(events)) {
        let message = "an entry counts events or measures the time between two, not both";
        report.error(node, message, "split it into two entries");
        return None;
    }
    match (event, events, from, to) {
        (_, _, Some(from), Some(to)) => pair(entry, from, to, report).map(EventSource::Pair),
        (_, _, Some(at), None) | (_, _, None, Some(at)) => {
            let (lone, other) = if from.is_some() { ("from", "to") } else { ("to", "from") };
            if !report.gives(entry.node, other) {
                let message = format!("`{lone}` without `{other}`: the time between two events needs both");
                report.error(at.node, message, format!("add `{other}`, or write `event`"));
            }
            None
        }
        (Some(_), Some(events), ..) => {
            let message = "`event` and `events` are mutually exclusive";
            report.error(events.node, message, "write all of them under `events`");
            None
        }
        (Some(event), None, ..) => tracepoint_of(event, report).map(|event| EventSource::Events(vec![event])),
        (None, Some(events), ..) => {
            report.not_empty(Some(events), "contains no events", "add an event, or remove the entry");
            let events: Vec<Event> = events.iter().filter_map(|event| tracepoint_of(event, report)).collect();
            (!events.is_empty()).then_some(EventSource::Events(events))
        }
        (None, None, ..) => {
            if !report.blames(entry.node) {
                let hint =
                    "write `event: sched:sched_process_fork`, or `from` and `to` for the time between two";
                report.error(name.node, "the entry has no event", hint);
            }
            None
        }
    }
}

/// Reports keys that require a pair.
fn no_pair(entry: &At<Tracepoint>, report: &mut Report<'_>) {
    if report.gives(entry.node, "from") || report.gives(entry.node, "to") {
        return;
    }
    let Tracepoint { key, timeout, pending, .. } = &entry.value;
    let words = [("key", node_of(key)), ("timeout", node_of(timeout)), ("pending", node_of(pending))];
    for (word, node) in words {
        if let Some(node) = node {
            let message = format!("`{word}` requires `from` and `to`");
            report.error(node, message, "leave it out");
        }
    }
}

fn pair(entry: &Tracepoint, from: &At<String>, to: &At<String>, report: &mut Report<'_>) -> Option<Pair> {
    let key = key(&entry.key, report);
    let Period(timeout) = report.setting(&entry.timeout, TIMEOUTS, TIMEOUT);
    let pending = report.number(&entry.pending, PENDING_MAX).unwrap_or(PENDING);
    let mut one = |text: &At<String>| {
        let event = tracepoint_of(text, report)?;
        if text.contains(['*', '?', '[']) {
            let message = format!("{} is a pattern, but a pair consists of two tracepoints", shown(text));
            report.error(text.node, message, "write the name of one");
            return None;
        }
        Some(event)
    };
    let (from, to) = (one(from), one(to));
    Some(Pair { from: from?, to: to?, key, timeout, pending })
}

/// Returns the key that matches both events of a pair.
fn key(written: &Option<At<List<String>>>, report: &mut Report<'_>) -> Vec<Arc<str>> {
    let Some(list) = written else { return vec!["$tid".into()] };
    report.not_empty(written.as_ref(), "cannot match events", "leave it out for `$tid`, the thread");
    if report.too_many(list.node, (list.len(), "parts"), KEY_LIMIT, None) {
        return Vec::new();
    }
    let mut key: Vec<Arc<str>> = Vec::new();
    for part in list.iter() {
        let text = part.value.as_str();
        if !is_identifier(text) && !OF_THE_RECORD.contains(&text) {
            let message = format!(
                "{} is neither a field that both events have nor `$cpu`, `$tid` or `$pid`",
                shown(text)
            );
            let near = event::nearest(text, OF_THE_RECORD);
            report.error(part.node, message, near.map(|near| format!("did you mean `{near}`?")));
        } else if key.iter().any(|part| **part == *text) {
            report.twice(part.node);
        } else {
            key.push(text.into());
        }
    }
    key
}

/// Returns the single tracepoint, or pattern of tracepoints, of a text.
fn tracepoint_of(text: &At<String>, report: &mut Report<'_>) -> Option<Event> {
    let groups = report.parsed(text, "not an event", event::parse(text))?;
    let mut events = groups.into_iter().flat_map(|group| group.events);
    let (first, more) = (events.next()?, events.next());
    let (message, hint) = if more.is_some() {
        (format!("{} is more than one event", shown(text)), "write each as an item of `events`")
    } else if !matches!(first.name, Name::Tracepoint { .. }) {
        (
            format!("{} is not a tracepoint", shown(text)),
            "write it as `system:event`; other events belong to `counters`",
        )
    } else if first.alias.is_some() {
        ("the metric is named after the entry".to_owned(), "leave out `name=`")
    } else {
        return Some(first);
    };
    report.error(text.node, message, hint);
    None
}
