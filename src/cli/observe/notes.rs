//! Why events were not opened: one note for each reason, however many events and places it concerns.

use std::io::{self, Write};

use crate::health::Refusal;

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Note {
    /// The events, each once.
    pub events: Vec<String>,
    /// Why.
    pub reason: String,
    /// What would help; `None` where nothing does.
    pub remedy: Option<String>,
}

/// The notes on refused events.
pub(in crate::cli) fn refused(refusals: &[Refusal]) -> Vec<Note> {
    let mut notes = Vec::new();
    for refusal in refusals {
        let reason = format!("{}: {}", refusal.cause, refusal.reason);
        add(&mut notes, &refusal.event, reason, refusal.remedy.clone());
    }
    notes
}

/// Writes which events could not be opened everywhere, if any. `done` is what should have been done: `counted`.
pub(in crate::cli) fn write_refused(out: &mut dyn Write, done: &str, refusals: &[Refusal]) -> io::Result<()> {
    if !refusals.is_empty() {
        writeln!(out, "Not {done} everywhere:")?;
    }
    write(out, &refused(refusals))
}

/// Adds a reason, unless it is there already.
pub(in crate::cli) fn add(notes: &mut Vec<Note>, event: &str, reason: String, remedy: Option<String>) {
    match notes.iter_mut().find(|note| note.reason == reason && note.remedy == remedy) {
        Some(note) if note.events.iter().any(|known| known == event) => {}
        Some(note) => note.events.push(event.to_owned()),
        None => notes.push(Note { events: vec![event.to_owned()], reason, remedy }),
    }
}

/// Writes them, each on lines of its own.
pub(in crate::cli) fn write(out: &mut dyn Write, notes: &[Note]) -> io::Result<()> {
    for note in notes {
        writeln!(out, "  {}\n    {}", note.events.join(", "), note.reason)?;
        note.remedy.iter().try_for_each(|remedy| writeln!(out, "    {remedy}"))?;
    }
    Ok(())
}
