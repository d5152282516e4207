//! HTML that cannot be broken out of: markup is what stands in the source, everything else is escaped.

use std::fmt::{self, Display, Write};

/// How much of one text is shown, in characters. Command lines and cgroup paths can be thousands long.
const SHOWN: usize = 240;

/// A document being written.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Appends markup. `'static` keeps everything out that came from outside.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends text, or the value of an attribute between quotes: escaped, control characters replaced, and cut if it
    /// is long.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        let mut escaping = Escaping { out: &mut self.0, left: SHOWN };
        // Fails where it is cut, which is as it should be; writing to a `String` does not fail.
        if write!(escaping, "{text}").is_err() {
            self.0.push('\u{2026}');
        }
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

struct Escaping<'s> {
    out: &'s mut String,
    left: usize,
}

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            match c {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '"' => self.out.push_str("&quot;"),
                '\'' => self.out.push_str("&#39;"),
                c if is_misleading(c) => self.out.push(char::REPLACEMENT_CHARACTER),
                c => self.out.push(c),
            }
        }
        Ok(())
    }
}

/// Control characters, and those that reorder the text around them.
fn is_misleading(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(text: &str) -> String {
        let mut html = Html::default();
        html.text(text);
        html.finish()
    }

    #[test]
    fn markup_in_a_text_is_text() {
        assert_eq!(escaped("<b title='x'>&\"</b>"), "&lt;b title=&#39;x&#39;&gt;&amp;&quot;&lt;/b&gt;");
        assert_eq!(escaped("a\u{7}\u{202e}b"), "a\u{fffd}\u{fffd}b");
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(escaped(&"x".repeat(SHOWN)), "x".repeat(SHOWN));
        assert_eq!(escaped(&"x".repeat(SHOWN + 1)), "x".repeat(SHOWN) + "\u{2026}");
    }

    proptest! {
        #[test]
        fn no_text_contains_markup(text in any::<String>()) {
            let escaped = escaped(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'', '\n', '\0']));
        }
    }
}
