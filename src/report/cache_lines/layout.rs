//! Tables with two lines of headings, in the layout of `perf c2c report`.

use std::fmt;

use crate::report::layout::SEPARATOR;

/// A column.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// The upper heading. It has the width of all columns that it covers.
    top: &'static str,
    /// Number of further columns that the upper heading covers.
    span: usize,
    /// The lower heading.
    name: &'static str,
    width: usize,
    /// Whether texts are left-aligned.
    left: bool,
}

impl Column {
    /// Creates a column of numbers.
    pub(super) const fn new(top: &'static str, name: &'static str, width: usize) -> Self {
        Self { top, span: 0, name, width, left: false }
    }

    /// Sets the number of further columns that the upper heading covers.
    pub(super) const fn over(self, span: usize) -> Self {
        Self { span, ..self }
    }

    /// Creates a column of texts, as wide as the longest one.
    pub(super) fn of_texts<'t>(
        top: &'static str,
        name: &'static str,
        texts: impl Iterator<Item = &'t str>,
    ) -> Self {
        let longest = texts.map(|text| text.chars().count()).max().unwrap_or(0);
        let width = longest.max(name.chars().count()).max(top.chars().count());
        Self { left: true, ..Self::new(top, name, width) }
    }
}

/// Writes the headings, and a line of dots below each column.
pub(super) fn head(f: &mut fmt::Formatter<'_>, columns: &[Column]) -> fmt::Result {
    let mut top = Vec::new();
    let mut place = 0;
    while let Some(column) = columns.get(place) {
        let covered = columns.iter().skip(place).take(column.span + 1);
        let width = covered.map(|column| column.width + SEPARATOR.len()).sum::<usize>() - SEPARATOR.len();
        top.push(format!("{:>width$}", column.top));
        place += column.span + 1;
    }
    let names: Vec<String> =
        columns.iter().map(|&Column { name, width, .. }| format!("{name:>width$}")).collect();
    let dots: Vec<String> = columns.iter().map(|column| ".".repeat(column.width)).collect();
    writeln!(f, "# {}", top.join(SEPARATOR))?;
    writeln!(f, "# {}\n# {}\n#", names.join(SEPARATOR), dots.join(SEPARATOR))
}

/// Writes a row, which may have fewer cells than there are columns. The last cell is not padded.
pub(super) fn row(f: &mut fmt::Formatter<'_>, columns: &[Column], cells: &[String]) -> fmt::Result {
    let aligned = columns.iter().zip(cells).map(|(&Column { width, left, .. }, cell)| match left {
        true => format!("{cell:<width$}"),
        false => format!("{cell:>width$}"),
    });
    let line = aligned.collect::<Vec<_>>().join(SEPARATOR);
    writeln!(f, "  {}", line.trim_end())
}
