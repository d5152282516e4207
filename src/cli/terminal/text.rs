//! Texts with a width in columns.

use ratatui::Frame;
use ratatui::text::Line;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Writes lines from the top of the screen on.
pub(in crate::cli) fn put_lines(lines: &[Line<'_>], frame: &mut Frame<'_>) {
    let area = frame.area();
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        frame.buffer_mut().set_line(area.x, y, line, area.width);
    }
}

/// Truncates or pads a text to exactly `width` columns. A truncated text ends with an ellipsis.
pub(in crate::cli) fn fit(text: &str, width: usize) -> String {
    let mut fitted = fit_to(text, width);
    let padding = width.saturating_sub(fitted.width());
    fitted.extend(std::iter::repeat_n(' ', padding));
    fitted
}

/// Truncates a text to at most `width` columns. A truncated text ends with an ellipsis.
pub(in crate::cli) fn fit_to(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut fitted = String::new();
    let mut taken = 1;
    for c in text.chars() {
        taken += c.width().unwrap_or(0);
        if taken > width {
            break;
        }
        fitted.push(c);
    }
    if width > 0 {
        fitted.push('\u{2026}');
    }
    fitted
}

/// Returns a text without its first columns.
pub(in crate::cli) fn without_columns(text: &str, columns: usize) -> &str {
    let mut skipped = 0;
    for (at, c) in text.char_indices() {
        if skipped >= columns {
            return text.get(at..).unwrap_or_default();
        }
        skipped += c.width().unwrap_or(0);
    }
    if columns == 0 { text } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_by_their_width_on_the_screen() {
        assert_eq!(fit("abc", 5), "abc  ");
        assert_eq!(fit("abcdef", 5), "abcd\u{2026}");
        // Ideographs take two columns.
        assert_eq!(fit("\u{6f22}\u{5b57}\u{6f22}", 5), "\u{6f22}\u{5b57}\u{2026}");
        assert_eq!(fit("\u{6f22}\u{5b57}\u{6f22}", 4), "\u{6f22}\u{2026} ");
        assert_eq!((fit("abc", 0), fit("abc", 1)), (String::new(), "\u{2026}".into()));
        assert_eq!(
            (without_columns("abc", 1), without_columns("abc", 0), without_columns("abc", 9)),
            ("bc", "abc", "")
        );
    }
}
