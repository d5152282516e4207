//! Two tables side by side, in the layout of `perf diff`.

use std::collections::BTreeMap;
use std::fmt;

use super::entries::Entries;
use super::layout::{Columns, widest};
use super::{Key, percent};

/// The entries of a base and of another profile with equal cells, with the largest change first.
#[derive(Debug)]
pub struct Differences {
    keys: Vec<Key>,
    rows: Vec<Row>,
}

#[derive(Debug, PartialEq)]
struct Row {
    cells: Vec<String>,
    /// The shares in percent; `None` without an entry.
    base: Option<f64>,
    now: Option<f64>,
}

impl Row {
    /// Returns the change in percentage points; `None` for an entry of the base that has disappeared.
    fn delta(&self) -> Option<f64> {
        Some(self.now? - self.base.unwrap_or(0.0))
    }
}

impl Differences {
    /// Compares two tables with the same columns.
    pub fn of(base: &Entries<'_>, now: &Entries<'_>) -> Self {
        let mut rows: BTreeMap<Vec<String>, (Option<f64>, Option<f64>)> = BTreeMap::new();
        for (is_base, entries) in [(true, base), (false, now)] {
            for entry in entries.all.iter().filter(|entry| entry.own > 0) {
                let cells = entry.cells.iter().map(|cell| entries.cells.text(*cell).to_owned()).collect();
                let row = rows.entry(cells).or_default();
                let share = Some(percent(entry.own, entries.total));
                if is_base { row.0 = share } else { row.1 = share }
            }
        }
        let mut rows: Vec<Row> =
            rows.into_iter().map(|(cells, (base, now))| Row { cells, base, now }).collect();
        // Stable, so that equal changes are in the order of their cells. Entries that have disappeared come last.
        let size = |row: &Row| row.delta().map_or(-1.0, f64::abs);
        rows.sort_by(|one, other| {
            size(other)
                .total_cmp(&size(one))
                .then_with(|| other.base.unwrap_or(0.0).total_cmp(&one.base.unwrap_or(0.0)))
        });
        Self { keys: now.options.sort.clone(), rows }
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = Columns::new(self.keys.iter().copied(), |column| {
            widest(self.rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| &**cell))
        });
        columns.head(f, vec!["Baseline".to_owned(), "Delta Abs".to_owned()])?;
        for row in &self.rows {
            let base = row.base.map_or_else(String::new, |share| format!("{share:.2}%"));
            let delta = row.delta().map_or_else(String::new, |delta| format!("{delta:+.2}%"));
            let figures = vec![format!("{base:>8}"), format!("{delta:>9}")];
            columns.line(f, figures, row.cells.iter().map(|cell| &**cell))?;
        }
        Ok(())
    }
}
