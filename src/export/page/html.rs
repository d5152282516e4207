//! HTML that cannot be broken out of: markup is what stands in the source, everything else is escaped.

use std::fmt::{self, Display, Write};

use crate::clean::is_misleading;
use crate::export::flamegraph::Embedded;

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

    /// Appends markup with a text in place of each `{}`, in their order.
    pub(super) fn put<const N: usize>(
        &mut self,
        markup: &'static str,
        texts: [&dyn Display; N],
    ) -> &mut Self {
        let mut pieces = markup.split("{}");
        self.raw(pieces.next().unwrap_or_default());
        debug_assert_eq!(pieces.clone().count(), N, "{markup}");
        for (text, piece) in texts.into_iter().zip(pieces) {
            self.text(text).raw(piece);
        }
        self
    }

    /// Appends all of a text, for links: half an address leads nowhere. What it is made of must be bounded.
    pub(super) fn address(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            escape(c, &mut self.0);
        }
        self
    }

    /// Appends a picture.
    pub(super) fn picture(&mut self, picture: &Embedded) -> &mut Self {
        self.0.push_str(picture.as_str());
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
            escape(c, self.out);
        }
        Ok(())
    }
}

fn escape(c: char, out: &mut String) {
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
