//! Reasons why events were not opened: one note per reason, with all of its events.

use std::io::{self, Write};

use crate::health::Refusal;

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Note {
    /// The events, without duplicates.
    pub events: Vec<String>,
    /// The reason.
    pub reason: String,
    /// The remedy. `None` if there is none.
    pub remedy: Option<String>,
}

/// Returns the notes for refused events.
pub(in crate::cli) fn refused(refusals: &[Refusal]) -> Vec<Note> {
    let mut notes = Vec::new();
    for refusal in refusals {
        let reason = format!("{}: {}", refusal.cause, refusal.reason);
        add(&mut notes, &refusal.event, reason, refusal.remedy.clone());
    }
    notes
}

/// Writes which events could not be opened on all targets. `done` is the action as a past participle, such as `counted`.
pub(in crate::cli) fn write_refused(out: &mut dyn Write, done: &str, refusals: &[Refusal]) -> io::Result<()> {
    if !refusals.is_empty() {
        writeln!(out, "Could not be {done} on some targets:")?;
    }
    write(out, &refused(refusals))
}

/// Adds an event with a reason. Merges equal reasons and drops duplicate events.
pub(in crate::cli) fn add(notes: &mut Vec<Note>, event: &str, reason: String, remedy: Option<String>) {
    match notes.iter_mut().find(|note| note.reason == reason && note.remedy == remedy) {
        Some(note) if note.events.iter().any(|known| known == event) => {}
        Some(note) => note.events.push(event.to_owned()),
        None => notes.push(Note { events: vec![event.to_owned()], reason, remedy }),
    }
}

/// Writes each note on lines of its own.
pub(in crate::cli) fn write(out: &mut dyn Write, notes: &[Note]) -> io::Result<()> {
    for note in notes {
        writeln!(out, "  {}\n    {}", note.events.join(", "), note.reason)?;
        note.remedy.iter().try_for_each(|remedy| writeln!(out, "    {remedy}"))?;
    }
    Ok(())
}
