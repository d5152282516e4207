//! Arrows for the jumps of a function, in columns beside its rows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Annotated, Row};

/// Maximum number of columns. Jumps for which there is none are not drawn.
const COLUMNS: usize = 8;

/// The arrows of a function.
#[derive(Debug)]
pub(super) struct Arrows {
    /// The jumps of each column: from the first row to the last row, and whether the arrow points to the first row.
    columns: Vec<BTreeMap<usize, (usize, bool)>>,
}

impl Arrows {
    /// Chooses the columns: short jumps are nearer to the code.
    pub(super) fn new(annotated: &Annotated) -> Self {
        let rows = annotated.rows.iter().enumerate();
        let mut jumps: Vec<(usize, usize, bool)> = rows
            .filter_map(|(from, row)| match row {
                Row::Instruction { jump: Some(to), .. } if *to != from => {
                    Some((from.min(*to), from.max(*to), *to < from))
                }
                _ => None,
            })
            .collect();
        jumps.sort_unstable_by_key(|&(first, last, is_up)| (last - first, Reverse(first), is_up));
        let mut columns: Vec<BTreeMap<usize, (usize, bool)>> = Vec::new();
        for (first, last, is_up) in jumps {
            let is_free = |column: &BTreeMap<usize, (usize, bool)>| {
                column.range(..=last).next_back().is_none_or(|(_, &(end, _))| end < first)
            };
            let free = columns.iter().position(is_free);
            let place = free.or_else(|| (columns.len() < COLUMNS).then_some(columns.len()));
            let Some(place) = place else { continue };
            if place == columns.len() {
                columns.push(BTreeMap::new());
            }
            if let Some(column) = columns.get_mut(place) {
                column.insert(first, (last, is_up));
            }
        }
        Self { columns }
    }

    /// Returns the arrows beside a row. All rows of a function have the same width.
    pub(super) fn beside(&self, row: usize) -> String {
        let mut line = vec![' '; self.columns.len()];
        let (mut is_end, mut head) = (false, false);
        // The first column is the innermost one, at the right. An arrow crosses the columns inside of it.
        for (place, column) in self.columns.iter().enumerate().rev() {
            let at = self.columns.len() - 1 - place;
            let found = column.range(..=row).next_back().filter(|(_, (last, _))| row <= *last);
            let through = if is_end { '\u{2500}' } else { ' ' };
            let drawn = match found {
                None => through,
                Some((&first, &(last, is_up))) => {
                    let (is_first, is_last) = (row == first, row == last);
                    head |= is_first && is_up || is_last && !is_up;
                    let was_end = is_end;
                    is_end |= is_first || is_last;
                    match (is_first, is_last, was_end) {
                        (true, _, false) => '\u{250c}',
                        (true, _, true) => '\u{252c}',
                        (_, true, false) => '\u{2514}',
                        (_, true, true) => '\u{2534}',
                        (_, _, true) => '\u{253c}',
                        _ => '\u{2502}',
                    }
                }
            };
            // In bounds: one character for each column.
            line[at] = drawn;
        }
        let mut text: String = line.into_iter().collect();
        if !self.columns.is_empty() {
            text.push(match (head, is_end) {
                (true, _) => '>',
                (false, true) => '\u{2500}',
                (false, false) => ' ',
            });
        }
        text
    }
}
