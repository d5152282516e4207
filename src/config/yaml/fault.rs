//! Error messages for text that is not valid YAML, instead of those of the YAML library.

use super::remove::SECOND_DOCUMENT;
use crate::config::problem::shown;

/// Line and column, problem, and correction.
pub(super) type Explained = ((usize, usize), String, Option<String>);

/// Checks that the file is text that YAML allows.
///
/// # Errors
/// The first byte that is not UTF-8, or the first control character.
pub(super) fn characters(text: &[u8]) -> Result<&str, Explained> {
    let not_utf8 = |error: std::str::Utf8Error| {
        let before = String::from_utf8_lossy(&text[..error.valid_up_to()]);
        let byte = text.get(error.valid_up_to()).copied().unwrap_or_default();
        (
            place_behind(&before),
            format!("byte {byte:#04x} is not UTF-8"),
            Some("save the file as UTF-8".into()),
        )
    };
    let text = std::str::from_utf8(text).map_err(not_utf8)?;
    let forbidden = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    match text.char_indices().find(|&(_, c)| forbidden(c)) {
        Some((at, c)) => {
            let message = format!("the control character U+{:04X} is not allowed in YAML", u32::from(c));
            Err((place_behind(&text[..at]), message, Some("check whether it is a text file".into())))
        }
        None => Ok(text),
    }
}

/// Returns line and column of the character after `before`.
fn place_behind(before: &str) -> (usize, usize) {
    let line = before.rsplit('\n').next().unwrap_or_default();
    (1 + before.matches('\n').count(), 1 + line.chars().count())
}

const TAB: &str = "tab character";
const STRANGER: &str = "cannot start any token";

/// Messages for errors of the library: a part of the library's message, and the replacement. If that part describes the construct being
/// parsed, the problem is shown at its start, as for an unclosed bracket. Otherwise it is shown where the library stopped. The first match
/// applies.
const MEANINGS: [(&str, &str); 17] = [
    (TAB, "a tab cannot indent YAML; use spaces"),
    ("while scanning an alias", "an unquoted `*` begins a YAML alias; put the pattern in quotes: \"*\""),
    (
        "unknown anchor",
        "an unquoted `*` begins a YAML alias, and there is no anchor of this name; \
         put a pattern in quotes: \"*\"",
    ),
    ("while scanning an anchor", "an unquoted `&` begins a YAML anchor; put the text in quotes"),
    (
        "while scanning a quoted scalar",
        "the quotes that open here are never closed; close them on the same line",
    ),
    (
        "unknown escape character",
        "YAML does not support this escape sequence; use single quotes, in which a backslash is literal",
    ),
    (
        "while parsing a flow sequence",
        "the `[` that opens here is not closed, or a comma is missing in it; \
         close it with `]`, and put texts that contain brackets, braces or `: ` in quotes",
    ),
    (
        "while parsing a flow mapping",
        "the `{` that opens here is not closed, or a comma is missing in it; \
         close it with `}`, and put texts that contain brackets, braces or `: ` in quotes",
    ),
    (STRANGER, "an unquoted YAML text cannot begin with this character; put the text in quotes"),
    (
        "did not find expected node content",
        "an unquoted YAML text cannot begin with this character; put the text in quotes, such as \"[::]:7373\"",
    ),
    (
        "mapping values are not allowed",
        "`key: value` is not allowed here; check the indentation, and that the key on the previous line has \
         its colon and space; a text that contains `: ` needs quotes",
    ),
    (
        "sequence entries are not allowed",
        "a list item (`- …`) is not allowed on the line of its key; put each item on a separate line",
    ),
    (
        "did not find expected key",
        "inconsistent indentation, or extra text on this line; \
         align it with the lines of its block; put the whole text in quotes, not a part of it",
    ),
    (
        "did not find expected '-'",
        "a list item must begin with `- ` at the indentation of its list; align it with the other items",
    ),
    ("while scanning a simple key", "a key must be followed by a colon and a space; write `key: value`"),
    ("repetition limit", "the file's aliases (`*name`) expand to too many values; write the values out"),
    (
        "recursion limit",
        "the file is nested more than 128 levels deep, or an alias (`*name`) is inside its own anchor; \
         no setting is nested deeper than 6 levels",
    ),
];

/// Returns the replacement message for an error of the YAML library. `second_document` returns the position of a second document.
pub(super) fn explain(
    text: &str,
    error: &serde_yaml::Error,
    second_document: impl FnOnce() -> (usize, usize),
) -> Explained {
    let said = error.to_string();
    if said.contains("more than one document") {
        let hint = "keep one of them: settings are not merged across `---`";
        return (second_document(), SECOND_DOCUMENT.into(), Some(hint.into()));
    }
    let end = error.location().map_or((1, 1), |location| (location.line(), location.column()));
    // Outside a text, the library has no specific message for a tab.
    let stranger = character_at(text, end).filter(|_| said.contains(STRANGER));
    let sign = if stranger == Some('\t') { TAB } else { &said };
    let Some((sign, meaning)) = MEANINGS.iter().find(|(sign_of, _)| sign.contains(sign_of)) else {
        return (end, format!("not YAML: {}", shown(&said)), None);
    };
    let place = if sign.starts_with("while ") { begin(&said).unwrap_or(end) } else { end };
    let (message, hint) = meaning.split_once("; ").unwrap_or((meaning, ""));
    let message = match stranger {
        Some(c) if *sign == STRANGER => format!("{message}: `{c}`"),
        _ => message.to_owned(),
    };
    (place, message, Some(hint.into()))
}

/// Returns the start of the construct with the error: the last `line N column N` in the message of the library.
fn begin(said: &str) -> Option<(usize, usize)> {
    let (_, context) = said.rsplit_once(" at line ")?;
    let (line, column) = context.split_once(" column ")?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

fn character_at(text: &str, (line, column): (usize, usize)) -> Option<char> {
    text.lines().nth(line.checked_sub(1)?)?.chars().nth(column.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use crate::config::tests::syntax_error;

    #[test]
    fn yamls_traps_are_named_with_the_way_out() {
        for (text, expected) in [
            ("a: 1\n\tb: 2\n", "2:1: a tab cannot indent YAML; use spaces"),
            ("a:\n\t- b\n", "2:1: a tab cannot indent YAML; use spaces"),
            ("a: [*]\n", "1:5: an unquoted `*` begins a YAML alias; put the pattern in quotes: \"*\""),
            ("a: *nginx*\n", "1:4: an unquoted `*` begins a YAML alias; put the pattern in quotes: \"*\""),
            ("a: &\n", "1:4: an unquoted `&` begins a YAML anchor; put the text in quotes"),
            (
                "a: @b\n",
                "1:4: an unquoted YAML text cannot begin with this character: `@`; put the text in quotes",
            ),
            (
                "listen: [::]:7373\n",
                "1:10: an unquoted YAML text cannot begin with this character; put the text in quotes, such as \"[::]:7373\"",
            ),
            (
                "a: \"b\nc: 1\n",
                "1:4: the quotes that open here are never closed; close them on the same line",
            ),
            (
                r#"a: "\d""#,
                "1:5: YAML does not support this escape sequence; use single quotes, in which a backslash is literal",
            ),
            (
                "a: - b\n",
                "1:4: a list item (`- …`) is not allowed on the line of its key; put each item on a separate line",
            ),
            (
                "a: 1\n---\nb: 2\n",
                "3:1: a second YAML document begins here; keep one of them: settings are not merged across `---`",
            ),
        ] {
            assert_eq!(syntax_error(text), expected, "{text}");
        }
    }

    #[test]
    fn a_fault_inside_brackets_is_shown_where_they_open() {
        assert!(
            syntax_error("x: 1\na: [b, c\nd: 1\n").starts_with("2:4: the `[` that opens here is not closed")
        );
        assert!(
            syntax_error("x: 1\na: {b: c\nd: 1\n").starts_with("2:4: the `{` that opens here is not closed")
        );
    }

    #[test]
    fn wrong_indentation_is_shown_where_it_is_seen() {
        assert!(syntax_error("a:\n  b: 1\n c: 2\n").starts_with("3:2: inconsistent indentation"));
        assert!(syntax_error("a: b: c\n").starts_with("1:5: `key: value` is not allowed here"));
        assert!(syntax_error("a:\n- b\nc\n").starts_with("3:1: a key must be followed by a colon"));
    }

    #[test]
    fn an_alias_without_an_anchor_is_taken_for_a_pattern() {
        assert!(
            syntax_error("a: *b\n")
                .starts_with("1:4: an unquoted `*` begins a YAML alias, and there is no anchor")
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_with_their_place() {
        let place = |text: &[u8]| super::characters(text).unwrap_err().0;
        assert_eq!(place(b"a: 1\n\xc3\xa9: \xff"), (2, 4));
        assert_eq!(place("a: é\nb\u{7}".as_bytes()), (2, 2));
        assert_eq!(super::characters("a:\t\u{85}é\r\n".as_bytes()), Ok("a:\t\u{85}é\r\n"));
    }
}
