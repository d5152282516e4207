//! Checks of the sampled events, probes and waits, and of their rates.

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

/// Default samples per second and CPU. A prime number, so that samples do not synchronize with activity at round frequencies.
const FREQUENCY: u64 = 19;
/// Default maximum of recorded stacks of waits per second and CPU.
pub const LIMIT: u64 = 1000;
/// Default and bounds of the minimum duration of a recorded wait.
pub const THRESHOLD: Duration = Duration::from_millis(1);
const THRESHOLDS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// Minimum period of a clock event in nanoseconds; corresponds to the maximum frequency.
const CLOCK_PERIOD_MIN: u64 = 1_000_000_000 / FREQUENCY_MAX;

/// Returns the source of an entry with `event`; `None` if the event is invalid.
pub(super) fn event(text: &At<String>, entry: &At<Profile>, report: &mut Report<'_>) -> Option<Source> {
    let named = sampled(text, report);
    let clock = named.as_ref().is_some_and(|event| is_clock(&event.name));
    let rate = rate(entry, clock, Rate::Frequency(FREQUENCY), report);
    let filter = filter(&entry.filter, Fields::Event, report);
    let event = named?;
    let tracepoint = matches!(event.name, Name::Tracepoint { .. });
    if let (Some(at), false) = (&entry.filter, tracepoint) {
        let message = "`filter` applies only to tracepoints, and this event is not one";
        report.error(at.node, message, "leave it out");
    }
    if let (Some(at), true) = (entry.kernel.filter(|at| !at.value), tracepoint) {
        let message = "tracepoints are hit in the kernel: without kernel samples there is nothing to sample";
        report.error(at.node, message, "leave it out");
    } else if let Some(at) = entry.kernel.filter(|_| event.modifiers.contains(['u', 'k', 'h'])) {
        let message = format!("{} already has modifiers for user or kernel", shown(text));
        report.error(at.node, message, "remove the modifiers of the event, or this setting");
    }
    if let Some(at) = entry.idle.filter(|_| !clock) {
        let message = "`idle` applies only to clock events: no other event occurs on an idle CPU";
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

/// Returns the built-in source `base`, with the rate and the modes of an entry.
pub(super) fn over(base: &Source, entry: &At<Profile>, report: &mut Report<'_>) -> Source {
    let mut source = base.clone();
    if let Source::Event { event, rate: own, kernel, idle, .. } = &mut source {
        *own = rate(entry, is_clock(&event.name), *own, report);
        *kernel = entry.kernel.map_or(*kernel, |at| at.value);
        *idle = entry.idle.map_or(*idle, |at| at.value);
    }
    if let Some(at) = &entry.filter {
        let message = "`filter` applies only to tracepoints, and the built-in entry samples another event";
        report.error(at.node, message, "leave it out");
    }
    source
}

/// Returns the source of an entry with a probe; `None` if its location is invalid.
pub(super) fn probe((kind, location): Place, entry: &At<Profile>, report: &mut Report<'_>) -> Option<Source> {
    let within = traced::within(&entry.within, Some(kind), report);
    let about_events = [
        ("filter", "tracepoints", node_of(&entry.filter)),
        ("kernel", "events that occur in the kernel and in programs", node_of(&entry.kernel)),
        ("idle", "clock events", node_of(&entry.idle)),
    ];
    for (word, what, node) in about_events {
        if let Some(node) = node {
            let message = format!("`{word}` applies only to {what}, and this entry samples a probe");
            report.error(node, message, "leave it out");
        }
    }
    let rate = rate(entry, false, Rate::Period(1), report);
    Some(Source::Probe {
        definition: Definition { location: location?, within, arguments: Vec::new() },
        rate,
    })
}

/// Returns the source of an entry with `threshold`.
pub(super) fn off_cpu(entry: &At<Profile>, report: &mut Report<'_>) -> Source {
    let about_events = [
        ("filter", node_of(&entry.filter)),
        ("frequency", node_of(&entry.frequency)),
        ("period", node_of(&entry.period)),
        ("kernel", node_of(&entry.kernel)),
        ("idle", node_of(&entry.idle)),
    ];
    for (word, node) in about_events {
        if let Some(node) = node {
            let hint = match word {
                "frequency" | "period" => "write `limit`, the maximum number of stacks per second",
                _ => "leave it out",
            };
            let message = format!("`{word}` applies only to an `event`, and this entry samples waits");
            report.error(node, message, hint);
        }
    }
    Source::OffCpu {
        threshold: threshold(&entry.threshold, report),
        limit: report.number(&entry.limit, LIMIT_MAX).unwrap_or(LIMIT),
    }
}

fn threshold(written: &Option<At<Period>>, report: &mut Report<'_>) -> Duration {
    let Some(At { node, value: Period(threshold) }) = written else { return THRESHOLD };
    if !THRESHOLDS.contains(threshold) {
        let message = format!("{threshold:?} is more than {:?}", THRESHOLDS.end());
        report.error(*node, message, format!("the default is {THRESHOLD:?}"));
    }
    *threshold
}

/// Returns the sampling rate, or `usual` if the entry has none.
fn rate(entry: &Profile, clock: bool, usual: Rate, report: &mut Report<'_>) -> Rate {
    if let (Some(_), Some(period)) = (&entry.frequency, &entry.period) {
        let message = "`frequency` and `period` are mutually exclusive";
        report.error(period.node, message, "remove one of them");
    }
    if entry.frequency.is_some() {
        return Rate::Frequency(report.number(&entry.frequency, FREQUENCY_MAX).unwrap_or(FREQUENCY));
    }
    let Some(period) = &entry.period else { return usual };
    if clock && period.value < CLOCK_PERIOD_MIN {
        let message =
            format!("the period of a clock event is in nanoseconds and at least {CLOCK_PERIOD_MIN}");
        report.error(period.node, message, format!("write `frequency: {FREQUENCY}`"));
        return Rate::Frequency(FREQUENCY);
    }
    Rate::Period(report.number(&entry.period, PERIOD_MAX).unwrap_or(1))
}

/// Reports whether the event is a clock.
fn is_clock(name: &Name) -> bool {
    matches!(name, Name::Symbol(name) if matches!(&**name, "cpu-clock" | "task-clock"))
}

/// Returns the single event of a text, if an entry can sample it.
fn sampled(text: &At<String>, report: &mut Report<'_>) -> Option<Event> {
    let (message, hint): (String, String) = match one_event(text) {
        Ok(event) if event.alias.is_some() => {
            ("the profile is named after the entry".into(), "leave out `name=`".into())
        }
        Ok(event) if is_clock(&event.name) && event.modifiers.contains(['u', 'k', 'h', 'I']) => {
            let hint = "`kernel: false` excludes the kernel; idle CPUs are excluded by default";
            ("clock events do not support these modifiers".into(), hint.into())
        }
        Ok(event) => return Some(event),
        Err(Unsuitable { message, hint }) => (message, hint),
    };
    report.error(text.node, message, hint);
    None
}

/// Reason why a text is not an event that can be sampled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {hint}")]
pub struct Unsuitable {
    /// Description of the problem.
    pub message: String,
    /// Suggested correction.
    pub hint: String,
}

/// Parses a text that contains one event, without patterns and without modifiers for groups and precision.
///
/// # Errors
/// The text contains no event, several events, or an event that cannot be sampled.
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
        let message = format!("{} is {what}, but a profile samples one event", shown(text));
        unsuitable(message, "write one profile per event: their samples have different meanings")
    } else if pattern {
        let message = format!("{} is a pattern, but a profile samples one event", shown(text));
        unsuitable(message, "write the name of one")
    } else if first.modifiers.contains(['p', 'P']) {
        let message =
            "the modifiers `p` and `P` are not supported: samples have the precision of the event itself";
        unsuitable(message.into(), "leave them out")
    } else if first.modifiers.contains(['S', 'W']) {
        let message = "the modifiers `S` and `W` apply only to groups, but a profile samples one event";
        unsuitable(message.into(), "leave them out")
    } else {
        Ok(first)
    }
}
