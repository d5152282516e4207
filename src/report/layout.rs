//! Lines of tables: figures, then texts as wide as the widest of their column.

use std::fmt;

use super::Key;

/// Separator between columns.
pub(super) const SEPARATOR: &str = "  ";

/// The columns of texts, with their widths.
#[derive(Debug)]
pub(super) struct Columns(Vec<(Key, usize)>);

impl Columns {
    /// Returns columns that are as wide as their headings and the widest of their texts. `widest` returns the latter for a column.
    pub(super) fn new(keys: impl Iterator<Item = Key>, widest: impl Fn(usize) -> usize) -> Self {
        let width = |(column, key): (usize, Key)| (key, key.heading().chars().count().max(widest(column)));
        Self(keys.enumerate().map(width).collect())
    }

    /// Writes the headings, and a line of dots below each.
    pub(super) fn head(&self, f: &mut fmt::Formatter<'_>, figures: Vec<String>) -> fmt::Result {
        let mut heads = figures;
        heads.extend(self.0.iter().map(|(key, width)| format!("{:<width$}", key.heading())));
        let dots: Vec<String> = heads.iter().map(|head| ".".repeat(head.chars().count())).collect();
        writeln!(f, "# {}\n# {}\n#", heads.join(SEPARATOR), dots.join(SEPARATOR))
    }

    /// Writes an entry. As in perf, a function in the last column is not padded.
    pub(super) fn line<'t>(
        &self,
        f: &mut fmt::Formatter<'_>,
        figures: Vec<String>,
        texts: impl Iterator<Item = &'t str>,
    ) -> fmt::Result {
        let mut cells = figures;
        for (place, ((key, width), text)) in self.0.iter().zip(texts).enumerate() {
            let is_last = place + 1 == self.0.len() && *key == Key::Symbol;
            cells.push(format!("{text:<0$}", if is_last { 0 } else { *width }));
        }
        writeln!(f, "  {}", cells.join(SEPARATOR))
    }
}

/// Returns the length of the longest text.
pub(super) fn widest<'t>(texts: impl Iterator<Item = &'t str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}
