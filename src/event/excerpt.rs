//! Excerpts of a text around an error position.

/// Maximum number of characters shown before and after the position.
const SHOWN: usize = 48;

/// Describes a position in one line: `at "…"`, or `at the end`.
pub(super) fn at(text: &str, at: usize) -> String {
    let near: String = text[boundary(text, at)..].chars().take(SHOWN).collect();
    if near.is_empty() { "at the end".to_owned() } else { format!("at {near:?}") }
}

/// Returns two lines: the text around the position, and a caret followed by `remedy`.
pub(super) fn picture(text: &str, at: usize, remedy: &str) -> String {
    let (before, behind) = text.split_at(boundary(text, at));
    let skipped = before.chars().count().saturating_sub(SHOWN);
    let before: String = before.chars().skip(skipped).map(visible).collect();
    let behind: String = behind.chars().take(SHOWN).map(visible).collect();
    let indent = before.chars().count();
    format!("  {before}{behind}\n  {:indent$}^ {remedy}", "")
}

/// Returns the last character boundary at or before `at`.
pub(super) fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Replaces control characters, for output in one line of a terminal.
fn visible(c: char) -> char {
    if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
}
