//! Where a text leaves the language, and what was expected there.

use std::fmt;
use std::sync::Arc;

use super::TEXT_LIMIT;

/// How much of the text stands before and behind the place of an error, in characters.
const SHOWN: usize = 48;

/// A text that is not a list of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The text as given, cut off at 16 KiB.
    pub text: Arc<str>,
    /// Where the error stands, in bytes from the start of the text.
    pub at: usize,
    /// What is wrong there.
    pub message: Arc<str>,
    /// What to write instead.
    pub remedy: Arc<str>,
}

impl fmt::Display for ParseError {
    /// One line; with `{:#}` a picture of three lines and a caret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, at, message, remedy } = self;
        let (before, behind) = text.split_at(boundary(text, *at));
        if !f.alternate() {
            let near: String = behind.chars().take(SHOWN).collect();
            let near = if near.is_empty() { "at the end".to_owned() } else { format!("at {near:?}") };
            return write!(f, "{message}, {near}: {remedy}");
        }
        let skipped = before.chars().count().saturating_sub(SHOWN);
        let before: String = before.chars().skip(skipped).map(visible).collect();
        let behind: String = behind.chars().take(SHOWN).map(visible).collect();
        let indent = before.chars().count();
        write!(f, "{message}\n  {before}{behind}\n  {:indent$}^ {remedy}", "")
    }
}

impl std::error::Error for ParseError {}

/// The last place at or before `at` where a character begins.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// A character as it can stand in one line of a terminal.
fn visible(c: char) -> char {
    if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
}

/// A [`ParseError`] before it knows its text.
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) remedy: String,
}

impl Fault {
    /// The error, with as much of its text as is worth keeping.
    pub(super) fn of(self, text: &str) -> ParseError {
        ParseError {
            text: text[..boundary(text, TEXT_LIMIT)].into(),
            at: self.at.min(TEXT_LIMIT),
            message: self.message.into(),
            remedy: self.remedy.into(),
        }
    }
}

pub(super) type Parsed<T> = Result<T, Fault>;

pub(super) fn fault<T>(at: usize, message: impl Into<String>, remedy: impl Into<String>) -> Parsed<T> {
    Err(Fault { at, message: message.into(), remedy: remedy.into() })
}

#[cfg(test)]
mod tests {
    use crate::event::parse;

    #[test]
    fn an_error_shows_its_place_and_what_to_do() {
        let error = parse("cycles,{instructions,faults").unwrap_err();
        assert_eq!(error.at, 27);
        assert_eq!(error.to_string(), "the group is not closed, at the end: expected ',' or '}'");
        let picture = format!("{error:#}");
        let lines: Vec<_> = picture.lines().collect();
        assert_eq!(lines[1], "  cycles,{instructions,faults");
        assert_eq!(lines[2].find('^'), Some(2 + 27));
    }

    #[test]
    fn a_long_text_is_shown_around_the_place_and_on_one_line() {
        let text = format!("{}\n,cycles:x,{}", "a,".repeat(200).trim_end_matches(','), "b".repeat(1000));
        let error = parse(&text).unwrap_err();
        let picture = format!("{error:#}");
        let lines: Vec<_> = picture.lines().collect();
        assert_eq!(lines.len(), 3, "{picture}");
        assert_eq!(lines[1].chars().nth(lines[2].find('^').unwrap()), Some('x'), "{picture}");
        assert!(lines[1].chars().count() < 110, "{picture}");
    }
}
