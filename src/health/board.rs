//! The account of what is refused: one line per event, scope and reason, however many targets it concerns.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Cause, Refusal, Scope};
use crate::error::printable;

/// How many different lines are kept. More than this says the same thing in other words.
const MOST_LINES: usize = 500;

/// What makes two refusals the same line: entry, scope, event, cause and reason.
type Key = (Arc<str>, Scope, Arc<str>, Cause, String);

/// One line of the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The entry of the configuration.
    pub entry: Arc<str>,
    /// For whom it was to count.
    pub scope: Scope,
    /// One of the refusals: the first.
    #[serde(flatten)]
    pub refusal: Refusal,
    /// How many targets are refused for this reason now.
    pub targets: usize,
}

impl Line {
    /// Whether it is about this event of an entry, whatever the scope.
    pub fn is_of_event(&self, entry: &str, event: &str) -> bool {
        *self.entry == *entry && *self.refusal.event == *event
    }

    /// Whether it is about this event of an entry in this scope.
    pub fn is_of(&self, entry: &str, scope: Scope, event: &str) -> bool {
        self.scope == scope && self.is_of_event(entry, event)
    }
}

/// What could not be opened for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SameReason {
    /// The events, each once.
    pub events: Vec<Arc<str>>,
    /// One of the places: `cpu 0`, `cgroup /system.slice/a.service on cpu 1`, …
    pub target: String,
    /// In how many places one of the events is refused.
    pub count: usize,
    /// The class of the answer.
    pub cause: Cause,
    /// What the kernel said and what it means here.
    pub reason: String,
    /// What would help; empty if nothing would.
    pub remedy: String,
}

/// Lines with the same reason together, what deserves attention first.
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

/// What [`Board::add`] gives for a refusal, to take it back with.
#[derive(Debug)]
#[must_use = "a refusal stays on the board until its ticket is given back"]
pub struct Ticket(Option<Arc<Key>>);

/// The refusals in force.
#[derive(Debug, Default)]
pub struct Board {
    lines: BTreeMap<Arc<Key>, Line>,
    /// Lines that have not been logged yet.
    news: Vec<Arc<Key>>,
    beyond: usize,
}

impl Board {
    /// Enters a refusal.
    pub fn add(&mut self, entry: &Arc<str>, scope: Scope, refusal: Refusal) -> Ticket {
        let (event, reason) = (Arc::clone(&refusal.event), refusal.reason.clone());
        let key = (Arc::clone(entry), scope, event, refusal.cause, reason);
        if let Some((key, _)) = self.lines.get_key_value(&key) {
            let key = Arc::clone(key);
            if let Some(line) = self.lines.get_mut(&key) {
                line.targets += 1;
            }
            return Ticket(Some(key));
        }
        if self.lines.len() >= MOST_LINES {
            self.beyond += 1;
            return Ticket(None);
        }
        let key = Arc::new(key);
        self.news.push(Arc::clone(&key));
        // Cgroups and processes are named by whoever starts them, and the line goes to the log and to terminals.
        let refusal = Refusal { target: printable(&refusal.target), ..refusal };
        let line = Line { entry: Arc::clone(entry), scope, refusal, targets: 1 };
        self.lines.insert(Arc::clone(&key), line);
        Ticket(Some(key))
    }

    /// Takes a refusal back: its target is gone, or is counted after all.
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

    /// Writes what is new since the last time to the log: one line for each reason, for a machine without a PMU
    /// refuses every hardware event alike.
    pub fn log_news(&mut self) {
        for same in by_reason(self.news.iter().filter_map(|key| self.lines.get(key))) {
            let SameReason { events, target, cause, reason, remedy, .. } = same;
            let remedy = if remedy.is_empty() { remedy } else { format!("; {remedy}") };
            tracing::warn!("not counted, {cause}: {} (first: {target}): {reason}{remedy}", events.join(", "));
        }
        self.news.clear();
    }

    /// The lines with the same reason together, what deserves attention first.
    pub fn by_reason(&self) -> Vec<SameReason> {
        by_reason(self.lines.values())
    }

    /// The lines, by entry, scope and event.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &Line> {
        self.lines.values()
    }

    /// In how many places something is refused, of the lines about it.
    pub fn places(&self, is_about: impl Fn(&Line) -> bool) -> u64 {
        self.lines().filter(|line| is_about(line)).map(|line| line.targets as u64).sum()
    }

    /// Refusals that are in no line because there were too many different ones.
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
        let tickets: Vec<Ticket> = (0..MOST_LINES + 7).map(add).collect();
        assert_eq!((board.lines().len(), board.beyond()), (MOST_LINES, 7));
        tickets.into_iter().for_each(|ticket| board.remove(ticket));
        assert_eq!((board.lines().len(), board.beyond()), (0, 0));
    }
}
