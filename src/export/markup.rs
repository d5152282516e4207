//! Escaping of texts in HTML and SVG.

use crate::clean::is_misleading;

/// Appends a character of a text or of a quoted attribute. Control characters and other characters that XML does not allow are replaced.
pub(super) fn escape(c: char, out: &mut String) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#39;"),
        c if is_misleading(c) => out.push(char::REPLACEMENT_CHARACTER),
        c => out.push(c),
    }
}

/// Returns an escaped text.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| escape(c, &mut out));
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_contains_markup(text in any::<String>()) {
            prop_assert!(!escaped(&text).contains(['<', '>', '"', '\'', '\n', '\0']));
        }
    }
}
