//! A place in a text that a person wrote, as it can be shown: the surroundings, and a caret under the place.

/// How much of the text stands before and behind the place, in characters.
const SHOWN: usize = 48;

/// What stands at a place of a text, for a message of one line: `at "…"`, or `at the end`.
pub(super) fn at(text: &str, at: usize) -> String {
    let near: String = text[boundary(text, at)..].chars().take(SHOWN).collect();
    if near.is_empty() { "at the end".to_owned() } else { format!("at {near:?}") }
}

/// Two lines: the surroundings of the place, and a caret with `remedy` behind it.
pub(super) fn picture(text: &str, at: usize, remedy: &str) -> String {
    let (before, behind) = text.split_at(boundary(text, at));
    let skipped = before.chars().count().saturating_sub(SHOWN);
    let before: String = before.chars().skip(skipped).map(visible).collect();
    let behind: String = behind.chars().take(SHOWN).map(visible).collect();
    let indent = before.chars().count();
    format!("  {before}{behind}\n  {:indent$}^ {remedy}", "")
}

/// The last place at or before `at` where a character begins.
pub(super) fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// A character as it can stand in one line of a terminal.
fn visible(c: char) -> char {
    if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
}
