//! Names that programs chose themselves, made harmless for terminals, and bounded.

use std::borrow::Cow;

/// `name` with control characters, characters that reorder the text around them, and those that XML does not know
/// replaced by U+FFFD, and cut behind `limit` bytes or a little less. A terminal would obey the first, and a name of
/// 100 kB helps nobody.
pub(crate) fn clean(name: &str, limit: usize) -> Cow<'_, str> {
    // Most are so, and this is told many bytes at a time.
    if name.len() <= limit && name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Cow::Borrowed(name);
    }
    let end = (0..=limit.min(name.len())).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    // In bounds and on a boundary, as was just found.
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

/// Whether a character is something else than text.
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
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(clean("äöü", 3), "ä\u{2026}");
        assert_eq!(clean("äöü", 6), "äöü");
    }
}
