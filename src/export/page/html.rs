//! An HTML writer that is safe against injection: only literals in the source are markup, everything else is escaped.

use std::fmt::{self, Display, Write};

use crate::export::flamegraph::Embedded;
use crate::export::markup::escape;

/// Maximum number of characters shown of one text. Command lines and cgroup paths can have thousands.
const SHOWN: usize = 240;

/// An HTML document under construction.
#[derive(Debug, Default)]
pub(in crate::export) struct Html(String);

impl Html {
    /// Appends markup. The `'static` bound excludes untrusted input.
    pub(in crate::export) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends text or the value of a quoted attribute. It is escaped, control characters are replaced, and long text is truncated.
    pub(in crate::export) fn text(&mut self, text: impl Display) -> &mut Self {
        let mut escaping = Escaping { out: &mut self.0, left: SHOWN };
        // Returns an error only on truncation, which is intended. Writing to a `String` does not fail.
        if write!(escaping, "{text}").is_err() {
            self.0.push('\u{2026}');
        }
        self
    }

    /// Appends markup, with one text for each `{}`, in order.
    pub(in crate::export) fn put<const N: usize>(
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

    /// Appends the whole text, for links: a truncated address is invalid. The caller must bound its length.
    pub(in crate::export) fn address(&mut self, text: &str) -> &mut Self {
        text.chars().for_each(|c| escape(c, &mut self.0));
        self
    }

    /// Appends a link. `attributes` begins with a space, or is empty. The caller must bound the length of the address.
    pub(super) fn link(&mut self, attributes: &'static str, address: &str, words: &str) -> &mut Self {
        self.raw("<a").raw(attributes).raw(" href=\"").address(address).put("\">{}</a>", [&words])
    }

    /// Appends an embedded SVG image.
    pub(in crate::export) fn picture(&mut self, picture: &Embedded) -> &mut Self {
        self.0.push_str(picture.as_str());
        self
    }

    pub(in crate::export) fn finish(self) -> String {
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
