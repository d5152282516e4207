//! Rejects text whose structure would make the YAML library slow, before the library parses it.
//!
//! The time of the library grows with the square of the nesting depth of flow collections, and of the number of `%TAG` directives.
//! [`check`] visits each character once.

use super::fault::Explained;

/// Maximum nesting depth. No setting is deeper than 6.
const DEPTH_LIMIT: usize = 64;
/// Maximum number of `[` and `{` in a file. Those that [`Depth`] considers part of a text are included, because they could still be a list.
const BRACKET_LIMIT: usize = 4096;
/// Maximum number of lines that begin with `%`.
const DIRECTIVE_LIMIT: usize = 16;

/// Checks the nesting of a whole file, in one pass.
///
/// # Errors
/// The first position that exceeds a limit.
pub(super) fn check(text: &str) -> Result<(), Explained> {
    let (mut depth, mut brackets, mut directives) = (Depth::default(), 0, 0);
    for (line, content) in text.lines().enumerate() {
        let at = |column: usize| (line + 1, column + 1);
        directives += usize::from(content.starts_with('%'));
        if directives > DIRECTIVE_LIMIT {
            let message = format!("the file has more than {DIRECTIVE_LIMIT} YAML directives (`%…`)");
            return Err((at(0), message, Some("remove them: none is needed".into())));
        }
        let compact = content.split_ascii_whitespace().take_while(|&word| word == "-" || word == "?");
        if compact.take(DEPTH_LIMIT + 1).count() > DEPTH_LIMIT {
            return Err(too_deep(at(0)));
        }
        depth.begin_line();
        for (column, c) in content.chars().enumerate() {
            brackets += usize::from(matches!(c, '[' | '{'));
            if brackets > BRACKET_LIMIT {
                let message =
                    format!("the file has more than {BRACKET_LIMIT} opening brackets (`[` and `{{`)");
                return Err((at(column), message, Some("write long lists with a line for each item".into())));
            }
            depth.next(c);
            if depth.open > DEPTH_LIMIT {
                return Err(too_deep(at(column)));
            }
        }
    }
    Ok(())
}

fn too_deep(place: (usize, usize)) -> Explained {
    let message = format!("lists and maps are nested more than {DEPTH_LIMIT} levels deep here");
    (
        place,
        message,
        Some(
            "close open brackets, or put texts that contain brackets in quotes; no setting is nested deeper than 6 levels"
                .into(),
        ),
    )
}

/// Number of open flow collections, as far as it can be determined without parsing.
#[derive(Default)]
struct Depth {
    open: usize,
    quote: Option<char>,
    /// Whether the next character follows a backslash in double quotes.
    escaped: bool,
    /// Whether the rest of the line is a comment.
    comment: bool,
    /// Previous character; a space at the start of a line.
    before: char,
}

impl Depth {
    fn begin_line(&mut self) {
        (self.comment, self.escaped, self.before) = (false, false, ' ');
    }

    fn next(&mut self, c: char) {
        let begins = self.before.is_whitespace() || matches!(self.before, '[' | '{' | ',');
        self.before = c;
        match (self.quote, c) {
            _ if self.comment => {}
            (Some(_), _) if std::mem::take(&mut self.escaped) => {}
            (Some('"'), '\\') => self.escaped = true,
            (Some(quote), _) if c == quote => self.quote = None,
            (Some(_), _) => {}
            (None, '#') if begins => self.comment = true,
            (None, '"' | '\'') if begins => self.quote = Some(c),
            (None, '[' | '{') if self.open > 0 || begins => self.open += 1,
            (None, ']' | '}') => self.open = self.open.saturating_sub(1),
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::syntax_error;

    #[test]
    fn what_is_nested_too_deep_is_refused_with_its_place() {
        let deep = "[".repeat(20_000);
        let expected = "2:68: lists and maps are nested more than 64 levels deep here; ";
        assert!(
            syntax_error(&format!("x: 1\na: {deep}\n")).starts_with(expected),
            "{}",
            syntax_error(&format!("a: {deep}"))
        );
        assert!(
            syntax_error(&"{a: ".repeat(20_000))
                .starts_with("1:257: lists and maps are nested more than 64 levels deep")
        );
        assert!(
            syntax_error(&"- ".repeat(20_000))
                .starts_with("1:1: lists and maps are nested more than 64 levels deep")
        );
        assert!(
            syntax_error(&"[\n".repeat(20_000))
                .starts_with("65:1: lists and maps are nested more than 64 levels deep")
        );
    }

    /// Each text closes open brackets inside a comment or quotes, or hides them there.
    #[test]
    fn brackets_that_pretend_to_be_closed_or_text_are_limited_too() {
        for trick in ["[ # ]\n", "[ ']',\n", "[ \"\\\"]\",\n", "a'[\n", "x: 'y\nz: [' [[\n"] {
            let text = trick.repeat(20_000);
            let refused = check(&text).unwrap_err();
            assert!(refused.1.contains("more than"), "{refused:?}");
        }
    }

    #[test]
    fn directives_are_limited() {
        let (place, message, _) = check(&"%TAG !a! x\n".repeat(70_000)).unwrap_err();
        assert_eq!((place, &*message), ((17, 1), "the file has more than 16 YAML directives (`%…`)"));
    }

    #[test]
    fn brackets_in_texts_and_comments_do_not_count() {
        let line = "a: \"[[[\" # {{{\nb: '[[' # it's [\nc: x[0\n- \"[\\\"[\"\n- [d, '[', {e: f}]\n";
        assert_eq!(check(&line.repeat(100)), Ok(()));
        assert_eq!(check(&"a: [b, {c: d}]\n".repeat(2000)), Ok(()));
    }
}
