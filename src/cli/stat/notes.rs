//! Why events were not counted: one note for each reason, however many events and places it concerns.

use super::table::{Row, Value};
use crate::health::Refusal;
use crate::host::Facts;

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    /// The events, each once.
    pub events: Vec<String>,
    /// Why.
    pub reason: String,
    /// What would help; `None` where nothing does.
    pub remedy: Option<String>,
}

/// The notes on refused events.
pub(super) fn refused(refusals: &[Refusal]) -> Vec<Note> {
    let mut notes = Vec::new();
    for refusal in refusals {
        let reason = format!("{}: {}", refusal.cause, refusal.reason);
        note(&mut notes, &refusal.event, reason, refusal.remedy.clone());
    }
    notes
}

/// Adds the notes on rows that were open and have no count.
pub(super) fn add_uncounted(notes: &mut Vec<Note>, rows: &[Row], facts: &Facts) {
    for row in rows.iter().filter(|row| row.value == Value::NotCounted) {
        if row.interval.enabled == 0 {
            let remedy = "give it longer, or something to do".to_owned();
            note(notes, &row.event, "idle: nothing that was to be counted ran".into(), Some(remedy));
            continue;
        }
        let reason = "never on the PMU: there are more events than counters, or others hold them".into();
        let watchdog = match facts.nmi_watchdog {
            true => "; the NMI watchdog holds a counter (sysctl kernel.nmi_watchdog=0 frees it)",
            false => "",
        };
        let remedy = format!("count for longer, fewer events at once, or in smaller groups{watchdog}");
        note(notes, &row.event, reason, Some(remedy));
    }
}

fn note(notes: &mut Vec<Note>, event: &str, reason: String, remedy: Option<String>) {
    match notes.iter_mut().find(|note| note.reason == reason && note.remedy == remedy) {
        Some(note) if note.events.iter().any(|known| known == event) => {}
        Some(note) => note.events.push(event.to_owned()),
        None => notes.push(Note { events: vec![event.to_owned()], reason, remedy }),
    }
}
