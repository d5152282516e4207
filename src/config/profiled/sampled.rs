//! What is sampled: an event and how often, or waits.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Rate, Source};
use crate::config::decode::At;
use crate::config::file::{FREQUENCY_MAX, LIMIT_MAX, PERIOD_MAX, Profile};
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::selection::number;
use crate::config::traced::{Fields, filter};
use crate::config::value::Period;
use crate::config::yaml::NodeId;
use crate::event;
use crate::event::syntax::{Event, Name};

/// How many samples a second and CPU. A prime, as profilers take: it does not fall into step with what happens a round
/// number of times a second.
const FREQUENCY: u64 = 19;
/// How many stacks of waits a second and CPU.
const LIMIT: u64 = 1000;
/// The shortest wait that is kept, and the bounds of that.
const THRESHOLD: Duration = Duration::from_millis(1);
const THRESHOLDS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// The shortest period of a clock in nanoseconds: that of the highest frequency.
const CLOCK_PERIOD_MIN: u64 = 1_000_000_000 / FREQUENCY_MAX;

/// What an entry with `event` samples; `None` if the event cannot be understood.
pub(super) fn event(text: &At<String>, entry: &At<Profile>, report: &mut Report<'_>) -> Option<Source> {
    let named = sampled(text, report);
    let clock = named.as_ref().is_some_and(|event| is_clock(&event.name));
    let rate = rate(entry, clock, report);
    let filter = filter(entry.filter.as_ref(), Fields::Event, report);
    let event = named?;
    let tracepoint = matches!(event.name, Name::Tracepoint { .. });
    if let (Some(at), false) = (&entry.filter, tracepoint) {
        let message = "`filter` is about the fields of a tracepoint, and this is none";
        report.error(at.node, message, Some("leave it out".into()));
    }
    if let (Some(at), true) = (entry.kernel.filter(|at| !at.value), tracepoint) {
        let message = "a tracepoint is passed in the kernel: without that there is nothing to sample";
        report.error(at.node, message, Some("leave it out".into()));
    } else if let Some(at) = entry.kernel.filter(|_| event.modifiers.contains(['u', 'k', 'h'])) {
        let message = format!("{} says already where it is sampled", shown(text));
        report.error(at.node, message, Some("leave out the letters behind the event, or this".into()));
    }
    if let Some(at) = entry.idle.filter(|_| !clock) {
        let message = "`idle` is about clocks: nothing else happens on an idle CPU";
        report.error(at.node, message, Some("leave it out".into()));
    }
    Some(Source::Event {
        event,
        filter,
        rate,
        kernel: entry.kernel.is_none_or(|at| at.value),
        idle: entry.idle.is_some_and(|at| at.value),
    })
}

/// What an entry with `threshold` samples.
pub(super) fn off_cpu(entry: &At<Profile>, report: &mut Report<'_>) -> Source {
    let about_events: [(&str, Option<NodeId>); 5] = [
        ("filter", entry.filter.as_ref().map(|at| at.node)),
        ("frequency", entry.frequency.as_ref().map(|at| at.node)),
        ("period", entry.period.as_ref().map(|at| at.node)),
        ("kernel", entry.kernel.as_ref().map(|at| at.node)),
        ("idle", entry.idle.as_ref().map(|at| at.node)),
    ];
    for (word, node) in about_events {
        if let Some(node) = node {
            let hint = match word {
                "frequency" | "period" => "write `limit`, how many stacks a second",
                _ => "leave it out",
            };
            let message = format!("`{word}` is about an `event`, and this entry samples waits");
            report.error(node, message, Some(hint.into()));
        }
    }
    Source::OffCpu {
        threshold: threshold(entry.threshold.as_ref(), report),
        limit: number(entry.limit.as_ref(), LIMIT_MAX, report).unwrap_or(LIMIT),
    }
}

fn threshold(written: Option<&At<Period>>, report: &mut Report<'_>) -> Duration {
    let Some(At { node, value: Period(threshold) }) = written else { return THRESHOLD };
    if !THRESHOLDS.contains(threshold) {
        let message = format!("{threshold:?} is more than {:?}", THRESHOLDS.end());
        report.error(*node, message, Some(format!("{THRESHOLD:?} is the default")));
    }
    *threshold
}

/// How often.
fn rate(entry: &Profile, clock: bool, report: &mut Report<'_>) -> Rate {
    if let (Some(_), Some(period)) = (&entry.frequency, &entry.period) {
        let message = "an entry has a `frequency` or a `period`, not both: the one follows from the other";
        report.error(period.node, message, Some("leave out one of them".into()));
    }
    if let Some(frequency) = &entry.frequency {
        return Rate::Frequency(number(Some(frequency), FREQUENCY_MAX, report).unwrap_or(FREQUENCY));
    }
    let Some(period) = &entry.period else { return Rate::Frequency(FREQUENCY) };
    if clock && period.value < CLOCK_PERIOD_MIN {
        let message = format!("the period of a clock is in nanoseconds, and at least {CLOCK_PERIOD_MIN}");
        report.error(period.node, message, Some(format!("write `frequency: {FREQUENCY}`")));
        return Rate::Frequency(FREQUENCY);
    }
    Rate::Period(number(Some(period), PERIOD_MAX, report).unwrap_or(1))
}

/// Whether an event is time.
fn is_clock(name: &Name) -> bool {
    matches!(name, Name::Symbol(name) if matches!(&**name, "cpu-clock" | "task-clock"))
}

/// The one event that a text names, if it can be sampled.
fn sampled(text: &At<String>, report: &mut Report<'_>) -> Option<Event> {
    let groups = match event::parse(text) {
        Ok(groups) => groups,
        Err(error) => {
            let message = format!("{} is not an event: {}", shown(text), error.message);
            report.error(text.node, message, Some(error.remedy.to_string()));
            return None;
        }
    };
    let group = text.contains('{');
    let mut events = groups.into_iter().flat_map(|group| group.events);
    let (first, more) = (events.next()?, events.next());
    let pattern = matches!(&first.name, Name::Tracepoint { system, event }
        if [system, event].iter().any(|part| part.contains(['*', '?', '['])));
    let (message, hint): (String, &str) = if group || more.is_some() {
        let what = if group { "a group" } else { "more than one event" };
        let message = format!("{} is {what}, and a profile is of one event", shown(text));
        (message, "make an entry of each: their samples mean different things")
    } else if pattern {
        (format!("{} is a pattern, and a profile is of one event", shown(text)), "write the name of one")
    } else if first.alias.is_some() {
        ("the profile is named by the entry".to_owned(), "leave out `name=`")
    } else if first.modifiers.contains(['p', 'P']) {
        let message = "samples are as exact as the event is by itself: `p` and `P` are not asked for";
        (message.to_owned(), "leave them out")
    } else if first.modifiers.contains(['S', 'W']) {
        let message = "`S` and `W` are about groups, and a profile is of one event";
        (message.to_owned(), "leave them out")
    } else if is_clock(&first.name) && first.modifiers.contains(['u', 'k', 'h', 'I']) {
        let message = "a clock is not divided by letters";
        (message.to_owned(), "`kernel: false` leaves out the kernel, and idle CPUs are left out anyway")
    } else {
        return Some(first);
    };
    report.error(text.node, message, Some(hint.into()));
    None
}
