//! The health of the exporter in one line.

use crate::export::page::figures::{count, duration};
use crate::health::Cause;
use crate::history::{Figure, Grid, History, Scope};
use crate::named_enum::named_enum;
use crate::status::Status;

/// Age of the last collection, in intervals, above which collection has stopped. At least three seconds.
const STALE_INTERVALS: u32 = 3;

named_enum! {
    /// How bad it is. The name is the class of the element.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Level {
        Good = "good",
        Warn = "warn",
        Bad = "bad",
    }
}

/// The state of the exporter: the worst level, and a phrase for each problem.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) level: Level,
    pub(super) problems: Vec<String>,
}

/// Judges the exporter. Events that this machine does not have are no problem.
pub(super) fn health(status: &Status, lost: f64) -> Health {
    let mut health = Health { level: Level::Good, problems: Vec::new() };
    let mut problem = |level: Level, text: String| {
        health.level = health.level.max(level);
        health.problems.push(text);
    };
    match status.collection {
        None => problem(Level::Warn, "no collection has finished yet".to_owned()),
        Some(last) => {
            let age = std::time::Duration::from_millis(status.now.0.saturating_sub(last.at.0));
            if age > (last.interval * STALE_INTERVALS).max(std::time::Duration::from_secs(3)) {
                problem(Level::Bad, format!("the last collection is {} old", duration(age)));
            }
        }
    }
    if status.configuration.failed_reload.is_some() {
        problem(Level::Warn, "the configuration reload failed".to_owned());
    }
    let refused: usize = status
        .refusals
        .iter()
        .filter(|refusal| ![Cause::Absent, Cause::Gone].contains(&refusal.cause))
        .map(|refusal| refusal.events.len())
        .sum();
    if refused > 0 {
        let events = if refused == 1 { "event" } else { "events" };
        problem(Level::Warn, format!("{} {events} could not be opened", count(refused as u64)));
    }
    if lost > 0.0 {
        let text = format!("{lost:.1} records per second are lost because rings are full");
        problem(Level::Warn, text);
    }
    if let Some(reduced) = status.threads.as_ref().and_then(|threads| threads.reduced.as_ref()) {
        problem(Level::Warn, format!("the detail of thread metrics is reduced: {reduced}"));
    }
    if !status.files.stuck.is_empty() {
        let stuck = status.files.stuck.len() as u64;
        problem(Level::Warn, format!("{} file operations hang", count(stuck)));
    }
    for push in status.pushes.iter().filter(|push| push.failing.is_some()) {
        problem(Level::Warn, format!("the push of {} by {} fails", push.signal, push.format));
    }
    health
}

/// Returns the number of records per second that were lost over the range.
pub(super) fn lost(history: &History, grid: &Grid) -> f64 {
    let machine = history.subject(Scope::Machine, "");
    machine.and_then(|machine| machine.value(Figure::LostRecords, 0.0, grid)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::example;

    #[test]
    fn what_the_machine_does_not_have_is_no_problem() {
        let mut status = example();
        status.configuration.failed_reload = None;
        status.refusals.retain(|refusal| refusal.cause == Cause::Absent);
        status.files.stuck.clear();
        status.pushes.clear();
        status.threads = None;
        assert!(!status.refusals.is_empty());
        assert_eq!(health(&status, 0.0), Health { level: Level::Good, problems: Vec::new() });
    }

    #[test]
    fn each_problem_has_a_phrase() {
        let health = health(&example(), 12.34);
        assert_eq!(health.level, Level::Warn);
        assert!(health.problems.contains(&"the configuration reload failed".to_owned()));
        assert!(
            health.problems.contains(&"12.3 records per second are lost because rings are full".to_owned())
        );
    }

    #[test]
    fn a_collection_that_has_stopped_is_bad() {
        let mut status = example();
        status.now.0 += 3_600_000;
        let health = health(&status, 0.0);
        assert_eq!(health.level, Level::Bad);
        assert!(health.problems[0].starts_with("the last collection is 1\u{a0}h"), "{:?}", health.problems);
    }
}
