//! The board of refusals: one line per event, scope and reason, with the number of targets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Cause, Refusal, Scope};
use crate::error::printable;

/// Maximum number of lines. Further lines would hardly add information.
const MAX_LINES: usize = 500;

/// Key of a line: entry, scope, event, cause and reason.
type Key = (Arc<str>, Scope, Arc<str>, Cause, String);

/// One line of the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Name of the configuration entry.
    pub entry: Arc<str>,
    /// The scope of the counts.
    pub scope: Scope,
    /// The first of the refusals.
    #[serde(flatten)]
    pub refusal: Refusal,
    /// Number of targets that are currently refused for this reason.
    pub targets: usize,
    /// Position of the event in the configuration file, if it is known: `FILE:LINE:COLUMN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Arc<str>>,
}

impl Line {
    /// Reports whether the line is about this event of an entry, in any scope.
    pub fn is_of_event(&self, entry: &str, event: &str) -> bool {
        *self.entry == *entry && *self.refusal.event == *event
    }

    /// Reports whether the line is about this event of an entry in this scope.
    pub fn is_of(&self, entry: &str, scope: Scope, event: &str) -> bool {
        self.scope == scope && self.is_of_event(entry, event)
    }
}

/// The events that could not be opened for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SameReason {
    /// The events, without duplicates.
    pub events: Vec<Arc<str>>,
    /// One of the targets: `cpu 0`, `cgroup /system.slice/a.service on cpu 1`, …
    pub target: String,
    /// Number of targets, summed over the events.
    pub count: usize,
    /// Class of the refusal.
    pub cause: Cause,
    /// The reason, with the error of the kernel and its meaning on this host.
    pub reason: String,
    /// The remedy. Empty if there is none.
    pub remedy: String,
}

/// Groups lines by reason, in order of importance.
fn by_reason<'a>(lines: impl Iterator<Item = &'a Line>) -> Vec<SameReason> {
    let mut reasons: BTreeMap<(Cause, &str, Option<&str>), SameReason> = BTreeMap::new();
    for Line { refusal, targets, .. } in lines {
        let Refusal { event, target, cause, reason, remedy, .. } = refusal;
        let same = reasons.entry((*cause, reason, remedy.as_deref())).or_insert_with(|| SameReason {
            events: Vec::new(),
            target: target.clone(),
            count: 0,
            cause: *cause,
            reason: reason.clone(),
            remedy: remedy.clone().unwrap_or_default(),
        });
        if !same.events.contains(event) {
            same.events.push(Arc::clone(event));
        }
        same.count += targets;
    }
    reasons.into_values().collect()
}

/// Handle of a refusal from [`Board::add`], used to remove it.
#[derive(Debug)]
#[must_use = "a refusal stays on the board until its ticket is passed to Board::remove"]
pub struct Ticket(Option<Arc<Key>>);

/// The current refusals.
#[derive(Debug, Default)]
pub struct Board {
    lines: BTreeMap<Arc<Key>, Line>,
    /// Lines that have not been logged yet.
    news: Vec<Arc<Key>>,
    beyond: usize,
}

impl Board {
    /// Adds a refusal.
    pub fn add(&mut self, entry: &Arc<str>, scope: Scope, refusal: Refusal) -> Ticket {
        self.add_at(entry, scope, refusal, None)
    }

    /// Adds a refusal of an event at a position in the configuration file.
    pub fn add_at(
        &mut self,
        entry: &Arc<str>,
        scope: Scope,
        refusal: Refusal,
        position: Option<Arc<str>>,
    ) -> Ticket {
        let (event, reason) = (Arc::clone(&refusal.event), refusal.reason.clone());
        let key = (Arc::clone(entry), scope, event, refusal.cause, reason);
        if let Some((key, _)) = self.lines.get_key_value(&key) {
            let key = Arc::clone(key);
            if let Some(line) = self.lines.get_mut(&key) {
                line.targets += 1;
            }
            return Ticket(Some(key));
        }
        if self.lines.len() >= MAX_LINES {
            self.beyond += 1;
            return Ticket(None);
        }
        let key = Arc::new(key);
        self.news.push(Arc::clone(&key));
        // Names of cgroups and processes are untrusted input, and the line is written to the log and to terminals.
        let refusal = Refusal { target: printable(&refusal.target), ..refusal };
        let line = Line { entry: Arc::clone(entry), scope, refusal, targets: 1, position };
        self.lines.insert(Arc::clone(&key), line);
        Ticket(Some(key))
    }

    /// Removes a refusal, because its target has ended or is counted now.
    pub fn remove(&mut self, ticket: Ticket) {
        let Some(key) = ticket.0 else {
            self.beyond = self.beyond.saturating_sub(1);
            return;
        };
        if let Some(line) = self.lines.get_mut(&key) {
            line.targets -= 1;
            if line.targets == 0 {
                self.lines.remove(&key);
            }
        }
    }

    /// Logs refusals that are new since the last call: one log line per reason, because a machine without a PMU refuses every hardware
    /// event for the same reason, and one for each position in the configuration file.
    pub fn log_changes(&mut self) {
        let news = || self.news.iter().filter_map(|key| self.lines.get(key));
        for Line { refusal, position, .. } in news() {
            let Some(position) = position else { continue };
            tracing::warn!(
                name: "perf_exporter.event.refused",
                "event could not be opened: {position}: {}: {}", refusal.event, refusal.why()
            );
        }
        for same in by_reason(news().filter(|line| line.position.is_none())) {
            let SameReason { events, target, cause, reason, remedy, .. } = same;
            let remedy = if remedy.is_empty() { remedy } else { format!("; {remedy}") };
            tracing::warn!(
                name: "perf_exporter.event.refused",
                "event could not be opened: {cause}: {} (first target: {target}): {reason}{remedy}",
                events.join(", ")
            );
        }
        self.news.clear();
    }

    /// Returns the lines grouped by reason, in order of importance.
    pub fn by_reason(&self) -> Vec<SameReason> {
        by_reason(self.lines.values())
    }

    /// Returns the lines in the order of entry, scope and event.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &Line> {
        self.lines.values()
    }

    /// Returns the number of refused targets in the selected lines.
    pub fn places(&self, is_about: impl Fn(&Line) -> bool) -> u64 {
        self.lines().filter(|line| is_about(line)).map(|line| line.targets as u64).sum()
    }

    /// Returns the number of refusals without a line, because the board is full.
    pub fn beyond(&self) -> usize {
        self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(event: &str, target: &str) -> Refusal {
        Refusal {
            event: event.into(),
            target: target.into(),
            cause: Cause::Absent,
            errno: None,
            reason: "no PMU".into(),
            remedy: None,
            unknown: false,
        }
    }

    #[test]
    fn the_same_reason_for_many_targets_is_one_line_until_the_last_is_taken_back() {
        let mut board = Board::default();
        let entry: Arc<str> = "core".into();
        let first = board.add(&entry, Scope::CPU, refusal("cycles", "cpu 0"));
        let second = board.add(&entry, Scope::CPU, refusal("cycles", "cpu 1"));
        let _other = board.add(&entry, Scope::CPU, refusal("instructions", "cpu 0"));
        let lines = |board: &Board| -> Vec<(String, usize)> {
            board.lines().map(|line| (line.refusal.event.to_string(), line.targets)).collect()
        };
        assert_eq!(lines(&board), [("cycles".into(), 2), ("instructions".into(), 1)]);
        board.remove(first);
        assert_eq!(lines(&board)[0], ("cycles".into(), 1));
        board.remove(second);
        assert_eq!(lines(&board), [("instructions".into(), 1)]);
    }

    #[test]
    fn events_that_are_refused_for_one_reason_are_told_together() {
        let mut board = Board::default();
        for (entry, event) in [("core", "cycles"), ("core", "instructions"), ("more", "cycles")] {
            let _ticket = board.add(&entry.into(), Scope::CPU, refusal(event, "cpu 0"));
        }
        let groups = board.by_reason();
        assert_eq!(groups.len(), 1);
        assert_eq!((groups[0].events.join(", "), groups[0].count), ("cycles, instructions".into(), 3));
    }

    #[test]
    fn a_name_of_a_target_stays_on_its_line() {
        let mut board = Board::default();
        let _ticket = board.add(&"core".into(), Scope::Cgroup, refusal("cycles", "cgroup /a\n\u{1b}[2J"));
        assert_eq!(board.lines().next().unwrap().refusal.target, "cgroup /a\\n\\u{1b}[2J");
    }

    #[test]
    fn a_flood_of_different_reasons_is_bounded_and_counted() {
        let mut board = Board::default();
        let entry: Arc<str> = "core".into();
        let add = |n| board.add(&entry, Scope::CPU, refusal(&format!("e{n}"), "cpu 0"));
        let tickets: Vec<Ticket> = (0..MAX_LINES + 7).map(add).collect();
        assert_eq!((board.lines().len(), board.beyond()), (MAX_LINES, 7));
        tickets.into_iter().for_each(|ticket| board.remove(ticket));
        assert_eq!((board.lines().len(), board.beyond()), (0, 0));
    }
}
