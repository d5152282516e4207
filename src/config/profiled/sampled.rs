//! What is sampled: an event and how often, or waits.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Rate, Source};
use crate::config::decode::{At, node_of};
use crate::config::file::{FREQUENCY_MAX, LIMIT_MAX, PERIOD_MAX, Profile};
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::traced::{self, Fields, Place, filter};
use crate::config::value::Period;
use crate::event;
use crate::event::syntax::{Event, Name};
use crate::probe::Definition;

/// How many samples a second and CPU. A prime, as profilers take: it does not fall into step with what happens a round
/// number of times a second.
const FREQUENCY: u64 = 19;
/// How many stacks of waits a second and CPU.
pub const LIMIT: u64 = 1000;
/// The shortest wait that is kept, and the bounds of that.
pub const THRESHOLD: Duration = Duration::from_millis(1);
const THRESHOLDS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// The shortest period of a clock in nanoseconds: that of the highest frequency.
const CLOCK_PERIOD_MIN: u64 = 1_000_000_000 / FREQUENCY_MAX;

/// What an entry with `event` samples; `None` if the event cannot be understood.
pub(super) fn event(text: &At<String>, entry: &At<Profile>, report: &mut Report<'_>) -> Option<Source> {
    let named = sampled(text, report);
    let clock = named.as_ref().is_some_and(|event| is_clock(&event.name));
    let rate = rate(entry, clock, Rate::Frequency(FREQUENCY), report);
    let filter = filter(entry.filter.as_ref(), Fields::Event, report);
    let event = named?;
    let tracepoint = matches!(event.name, Name::Tracepoint { .. });
    if let (Some(at), false) = (&entry.filter, tracepoint) {
        let message = "`filter` is about the fields of a tracepoint, and this is none";
        report.error(at.node, message, "leave it out");
    }
    if let (Some(at), true) = (entry.kernel.filter(|at| !at.value), tracepoint) {
        let message = "a tracepoint is passed in the kernel: without that there is nothing to sample";
        report.error(at.node, message, "leave it out");
    } else if let Some(at) = entry.kernel.filter(|_| event.modifiers.contains(['u', 'k', 'h'])) {
        let message = format!("{} says already where it is sampled", shown(text));
        report.error(at.node, message, "leave out the letters behind the event, or this");
    }
    if let Some(at) = entry.idle.filter(|_| !clock) {
        let message = "`idle` is about clocks: nothing else happens on an idle CPU";
        report.error(at.node, message, "leave it out");
    }
    Some(Source::Event {
        event,
        filter,
        rate,
        kernel: entry.kernel.is_none_or(|at| at.value),
        idle: entry.idle.is_some_and(|at| at.value),
    })
}

/// What an entry with a probe samples; `None` if its place cannot be understood.
pub(super) fn probe((kind, location): Place, entry: &At<Profile>, report: &mut Report<'_>) -> Option<Source> {
    let root = traced::root(entry.within.as_ref(), Some(kind), report);
    let about_events = [
        ("filter", "the fields of a tracepoint", node_of(entry.filter.as_ref())),
        ("kernel", "events that happen in the kernel and in programs", node_of(entry.kernel.as_ref())),
        ("idle", "clocks", node_of(entry.idle.as_ref())),
    ];
    for (word, what, node) in about_events {
        if let Some(node) = node {
            let message = format!("`{word}` is about {what}, and this entry samples a probe");
            report.error(node, message, "leave it out");
        }
    }
    let rate = rate(entry, false, Rate::Period(1), report);
    Some(Source::Probe { definition: Definition { location: location?, root, arguments: Vec::new() }, rate })
}

/// What an entry with `threshold` samples.
pub(super) fn off_cpu(entry: &At<Profile>, report: &mut Report<'_>) -> Source {
    let about_events = [
        ("filter", node_of(entry.filter.as_ref())),
        ("frequency", node_of(entry.frequency.as_ref())),
        ("period", node_of(entry.period.as_ref())),
        ("kernel", node_of(entry.kernel.as_ref())),
        ("idle", node_of(entry.idle.as_ref())),
    ];
    for (word, node) in about_events {
        if let Some(node) = node {
            let hint = match word {
                "frequency" | "period" => "write `limit`, how many stacks a second",
                _ => "leave it out",
            };
            let message = format!("`{word}` is about an `event`, and this entry samples waits");
            report.error(node, message, hint);
        }
    }
    Source::OffCpu {
        threshold: threshold(entry.threshold.as_ref(), report),
        limit: report.number(entry.limit.as_ref(), LIMIT_MAX).unwrap_or(LIMIT),
    }
}

fn threshold(written: Option<&At<Period>>, report: &mut Report<'_>) -> Duration {
    let Some(At { node, value: Period(threshold) }) = written else { return THRESHOLD };
    if !THRESHOLDS.contains(threshold) {
        let message = format!("{threshold:?} is more than {:?}", THRESHOLDS.end());
        report.error(*node, message, format!("{THRESHOLD:?} is the default"));
    }
    *threshold
}

/// How often; as usual if the entry does not say.
fn rate(entry: &Profile, clock: bool, usual: Rate, report: &mut Report<'_>) -> Rate {
    if let (Some(_), Some(period)) = (&entry.frequency, &entry.period) {
        let message = "an entry has a `frequency` or a `period`, not both: the one follows from the other";
        report.error(period.node, message, "leave out one of them");
    }
    if let Some(frequency) = &entry.frequency {
        return Rate::Frequency(report.number(Some(frequency), FREQUENCY_MAX).unwrap_or(FREQUENCY));
    }
    let Some(period) = &entry.period else { return usual };
    if clock && period.value < CLOCK_PERIOD_MIN {
        let message = format!("the period of a clock is in nanoseconds, and at least {CLOCK_PERIOD_MIN}");
        report.error(period.node, message, format!("write `frequency: {FREQUENCY}`"));
        return Rate::Frequency(FREQUENCY);
    }
    Rate::Period(report.number(Some(period), PERIOD_MAX).unwrap_or(1))
}

/// Whether an event is time.
fn is_clock(name: &Name) -> bool {
    matches!(name, Name::Symbol(name) if matches!(&**name, "cpu-clock" | "task-clock"))
}

/// The one event that a text names, if an entry can sample it.
fn sampled(text: &At<String>, report: &mut Report<'_>) -> Option<Event> {
    let (message, hint): (String, String) = match one_event(text) {
        Ok(event) if event.alias.is_some() => {
            ("the profile is named by the entry".into(), "leave out `name=`".into())
        }
        Ok(event) if is_clock(&event.name) && event.modifiers.contains(['u', 'k', 'h', 'I']) => {
            let hint = "`kernel: false` leaves out the kernel, and idle CPUs are left out anyway";
            ("a clock is not divided by letters".into(), hint.into())
        }
        Ok(event) => return Some(event),
        Err(Unsuitable { message, hint }) => (message, hint),
    };
    report.error(text.node, message, hint);
    None
}

/// Why a text names no event that can be sampled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {hint}")]
pub struct Unsuitable {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

/// The one event that a text names. It is no pattern, and has no modifiers about groups and precision.
///
/// # Errors
/// It names none, or several, or one that samples are not taken of.
pub fn one_event(text: &str) -> Result<Event, Unsuitable> {
    let groups = event::parse(text).map_err(|error| Unsuitable {
        message: format!("{} is not an event: {}", shown(text), error.message),
        hint: error.remedy.to_string(),
    })?;
    let group = text.contains('{');
    let mut events = groups.into_iter().flat_map(|group| group.events);
    let (first, more) = (events.next(), events.next());
    let unsuitable = |message: String, hint: &str| Err(Unsuitable { message, hint: hint.into() });
    let Some(first) = first else {
        return unsuitable(format!("{} names no event", shown(text)), "write one: cpu-clock");
    };
    let pattern = matches!(&first.name, Name::Tracepoint { system, event }
        if [system, event].iter().any(|part| part.contains(['*', '?', '['])));
    if group || more.is_some() {
        let what = if group { "a group" } else { "more than one event" };
        let message = format!("{} is {what}, and a profile is of one event", shown(text));
        unsuitable(message, "make a profile of each: their samples mean different things")
    } else if pattern {
        let message = format!("{} is a pattern, and a profile is of one event", shown(text));
        unsuitable(message, "write the name of one")
    } else if first.modifiers.contains(['p', 'P']) {
        let message = "samples are as exact as the event is by itself: `p` and `P` are not asked for";
        unsuitable(message.into(), "leave them out")
    } else if first.modifiers.contains(['S', 'W']) {
        let message = "`S` and `W` are about groups, and a profile is of one event";
        unsuitable(message.into(), "leave them out")
    } else {
        Ok(first)
    }
}
