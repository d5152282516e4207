//! Cursor over a text from a user, and the parse errors that it produces.

use std::fmt;
use std::sync::Arc;

use super::excerpt;

/// Maximum length of the text that an error keeps, in bytes.
pub(super) const TEXT_LIMIT: usize = 16 << 10;

/// Reports whether a character can be part of an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Reports whether a text is an identifier of C: letters, digits and `_`, without a digit at the start.
pub(crate) fn is_identifier(text: &str) -> bool {
    text.chars().all(is_word) && text.starts_with(|first: char| !first.is_ascii_digit())
}

/// A cursor over a text. `state` holds further parser state.
pub(crate) struct Cursor<'t, S = ()> {
    pub(crate) text: &'t str,
    /// Byte offset. Always a character boundary because the cursor moves by whole characters, so slicing there cannot fail.
    pub(crate) at: usize,
    pub(crate) state: S,
}

impl<'t, S> Cursor<'t, S> {
    pub(crate) fn new(text: &'t str, state: S) -> Self {
        Self { text, at: 0, state }
    }

    pub(crate) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Consumes a token if it is next.
    pub(crate) fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    pub(crate) fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !wanted(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Consumes a token that must be next.
    pub(crate) fn expect(&mut self, token: &str, message: &str, remedy: &str) -> Parsed<()> {
        let at = self.at;
        if self.take(token) { Ok(()) } else { fault(at, message, remedy) }
    }

    pub(crate) fn skip_space(&mut self) {
        self.take_while(char::is_whitespace);
    }
}

/// A text that does not conform to its grammar: an event list, a filter, a probe definition or a probe argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The text as given, truncated at 16 KiB.
    pub text: Arc<str>,
    /// The position of the error, in bytes from the start of the text.
    pub at: usize,
    /// What is wrong at this position.
    pub message: Arc<str>,
    /// What to write instead.
    pub remedy: Arc<str>,
}

impl fmt::Display for ParseError {
    /// Formats the error as one line. With `{:#}`, three lines with a caret under the position.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, at, message, remedy } = self;
        if f.alternate() {
            return write!(f, "{message}\n{}", excerpt::picture(text, *at, remedy));
        }
        write!(f, "{message}, {}: {remedy}", excerpt::at(text, *at))
    }
}

impl std::error::Error for ParseError {}

/// One or more independent errors of a text: each wrong argument of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseErrors(pub Vec<ParseError>);

impl fmt::Display for ParseErrors {
    /// Formats the errors as [`ParseError`], in one line or, with `{:#}`, one after the other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            match (index, f.alternate()) {
                (0, _) => {}
                (_, true) => f.write_str("\n")?,
                (_, false) => f.write_str("; ")?,
            }
            fmt::Display::fmt(error, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ParseErrors {}

impl From<ParseError> for ParseErrors {
    fn from(error: ParseError) -> Self {
        Self(vec![error])
    }
}

impl ParseErrors {
    /// Returns all values, or all errors.
    ///
    /// # Errors
    /// At least one of the results is an error.
    pub fn collect<T, E: Into<ParseError>>(
        results: impl Iterator<Item = Result<T, E>>,
    ) -> Result<Vec<T>, Self> {
        let (mut values, mut errors) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(value) => values.push(value),
                Err(error) => errors.push(error.into()),
            }
        }
        if errors.is_empty() { Ok(values) } else { Err(Self(errors)) }
    }
}

/// A [`ParseError`] without its text.
pub(crate) struct Fault {
    at: usize,
    message: String,
    remedy: String,
}

impl Fault {
    pub(crate) fn new(at: usize, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { at, message: message.into(), remedy: remedy.into() }
    }

    /// Returns the error with its text, truncated at [`TEXT_LIMIT`].
    pub(crate) fn of(self, text: &str) -> ParseError {
        self.within(text, TEXT_LIMIT)
    }

    /// Returns the error with at most `limit` bytes of its text.
    pub(super) fn within(self, text: &str, limit: usize) -> ParseError {
        let Self { at, message, remedy } = self;
        let text: Arc<str> = text[..excerpt::boundary(text, limit)].into();
        ParseError { at: at.min(text.len()), text, message: message.into(), remedy: remedy.into() }
    }
}

pub(crate) type Parsed<T> = Result<T, Fault>;

pub(crate) fn fault<T>(at: usize, message: impl Into<String>, remedy: impl Into<String>) -> Parsed<T> {
    Err(Fault::new(at, message, remedy))
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
