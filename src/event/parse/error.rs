//! Where a text leaves the language, and what was expected there.

use std::fmt;
use std::sync::Arc;

use super::TEXT_LIMIT;
use crate::event::excerpt;

/// A text that is not in the language it should be in: a list of events, the place of a probe, an argument.
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
        if f.alternate() {
            return write!(f, "{message}\n{}", excerpt::picture(text, *at, remedy));
        }
        write!(f, "{message}, {}: {remedy}", excerpt::at(text, *at))
    }
}

impl std::error::Error for ParseError {}

/// A [`ParseError`] before it knows its text.
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) message: String,
    pub(crate) remedy: String,
}

impl Fault {
    /// The error, with as much of its text as is worth keeping.
    pub(crate) fn of(self, text: &str) -> ParseError {
        ParseError {
            text: text[..excerpt::boundary(text, TEXT_LIMIT)].into(),
            at: self.at.min(TEXT_LIMIT),
            message: self.message.into(),
            remedy: self.remedy.into(),
        }
    }
}

pub(crate) type Parsed<T> = Result<T, Fault>;

pub(crate) fn fault<T>(at: usize, message: impl Into<String>, remedy: impl Into<String>) -> Parsed<T> {
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
