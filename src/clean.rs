//! Sanitizing of untrusted names for terminals.

use std::borrow::Cow;

/// Truncates `name` to at most `limit` bytes. Replaces control characters, bidirectional formatting characters and characters that XML does
/// not allow with U+FFFD. A terminal would interpret control characters, and a name of 100 kB is not useful.
pub(crate) fn clean(name: &str, limit: usize) -> Cow<'_, str> {
    // Fast path: most names are printable ASCII, and this check is vectorized.
    if name.len() <= limit && name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Cow::Borrowed(name);
    }
    let end = (0..=limit.min(name.len())).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    // `end` is in bounds and on a character boundary.
    let shown = &name[..end];
    if end == name.len() && !shown.contains(is_misleading) {
        return Cow::Borrowed(name);
    }
    let mut text = shown.replace(is_misleading, "\u{fffd}");
    if end < name.len() {
        text.push('\u{2026}');
    }
    Cow::Owned(text)
}

/// Displayed in place of a missing name.
pub(crate) const UNKNOWN: &str = "[unknown]";

/// The longest name of a function, module or task that is displayed, in bytes.
pub(crate) const NAME: usize = 1 << 10;

/// Returns the name of a function as tables, stacks and links show it: without white space around it, at most [`NAME`] bytes, `[unknown]`
/// if nothing remains.
pub(crate) fn function_name(name: &str) -> Cow<'_, str> {
    match name.trim() {
        "" => Cow::Borrowed(UNKNOWN),
        name => clean(name, NAME),
    }
}

/// Reports whether a character is a control character, a bidirectional formatting character, a line or paragraph separator, or a
/// noncharacter.
pub(crate) fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_talk_to_a_terminal() {
        assert_eq!(clean("\u{1b}[31mred\nb\u{202e}", 99), "\u{fffd}[31mred\u{fffd}b\u{fffd}");
        assert!(matches!(clean("operator new(unsigned long)", 99), Cow::Borrowed(_)));
    }

    #[test]
    fn the_name_of_a_function_is_never_empty() {
        assert_eq!(function_name(" main\n"), "main");
        assert_eq!(function_name("\u{2028} "), "[unknown]");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(clean("äöü", 3), "ä\u{2026}");
        assert_eq!(clean("äöü", 6), "äöü");
    }
}
