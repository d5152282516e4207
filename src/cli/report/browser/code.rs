//! The instructions of a function, with its source lines and the share of each. Without I/O.

use std::cmp::Reverse;
use std::fmt::Write as _;

use ratatui::crossterm::event::KeyCode;

use super::cursor::Cursor;
use crate::annotate::{Annotated, Row};
use crate::clean::{NAME, clean};

/// The keys and their meanings, in the order of the help.
pub(super) const KEYS: [(&str, &str); 11] = [
    ("Tab, Shift-Tab", "next, previous hottest instruction"),
    ("H", "the hottest instruction"),
    ("j, Enter", "jump to the target of the selected jump"),
    ("s", "show or hide source lines"),
    ("/", "search a text; Enter selects the next row that contains it"),
    ("n, N", "next, previous row that contains the text"),
    ("Up, Down", "move the selection"),
    ("PgUp, PgDn, Space", "move the selection by one screen"),
    ("Home, End", "select the first or the last row"),
    ("Right, Left", "scroll to the right; back, and then as Esc"),
    ("q, Esc", "back to the table"),
];

/// The view.
#[derive(Debug)]
pub(super) struct Code {
    annotated: Annotated,
    /// The shown rows: their places in [`Annotated::rows`].
    shown: Vec<usize>,
    has_source: bool,
    /// The instructions with samples, the hottest first.
    hottest: Vec<usize>,
    /// The text that the user searches.
    pub(super) search: String,
    pub(super) cursor: Cursor,
}

impl Code {
    /// Selects the hottest instruction.
    pub(super) fn new(annotated: Annotated) -> Self {
        let value = |row: &Row| match row {
            Row::Instruction { value, .. } => *value,
            Row::Source { .. } => 0,
        };
        let values: Vec<u64> = annotated.rows.iter().map(value).collect();
        // In bounds: places of rows.
        let mut hottest: Vec<usize> = (0..values.len()).filter(|&row| values[row] > 0).collect();
        hottest.sort_by_key(|&row| (Reverse(values[row]), row));
        let mut code = Self {
            annotated,
            shown: Vec::new(),
            has_source: true,
            hottest,
            search: String::new(),
            cursor: Cursor::default(),
        };
        code.refresh();
        code.select_hot(0);
        code
    }

    /// Returns what is annotated.
    pub(super) fn title(&self) -> String {
        let Annotated { function, module, event, samples, value, total, .. } = &self.annotated;
        let share = if *total == 0 { 0.0 } else { *value as f64 * 100.0 / *total as f64 };
        let (function, module, event) = (clean(function, NAME), clean(module, NAME), clean(event, NAME));
        format!("{function}  {module}  {samples} samples of '{event}', {share:.2}%")
    }

    /// Returns what is missing, as one text.
    pub(super) fn notes(&self) -> Option<String> {
        let notes = &self.annotated.notes;
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// Returns the number of shown rows.
    pub(super) fn len(&self) -> usize {
        self.shown.len()
    }

    /// Returns the text of a shown row. An arrow leads from the selected jump to its target.
    pub(super) fn line(&self, place: usize) -> String {
        let Some(row) = self.shown.get(place).and_then(|row| self.annotated.rows.get(*row)) else {
            return String::new();
        };
        let arrow = self.arrow(place);
        match row {
            Row::Source { file, line, text, .. } => {
                let name = file.rsplit('/').next().unwrap_or_default();
                let text = text.as_deref().unwrap_or_default();
                format!("{:8} \u{2502} {arrow}{}", "", clean(&format!("{name}:{line}  {text}"), NAME))
            }
            Row::Instruction { address, text, value, jump, .. } => {
                let mut line = String::new();
                match *value {
                    0 => write!(line, "{:8}", ""),
                    value => write!(line, "{:8.2}", self.annotated.percent(value)),
                }
                .ok();
                let sign = match jump {
                    Some(to) if self.shown.get(place) < Some(to) => '\u{2193}',
                    Some(_) => '\u{2191}',
                    None => ' ',
                };
                format!("{line} \u{2502} {arrow}{address:8x}: {sign} {}", clean(text, NAME))
            }
        }
    }

    /// Returns the part of the arrow of the selected jump in a row.
    fn arrow(&self, place: usize) -> &'static str {
        let from = self.cursor.at();
        let Some(to) = self.target() else { return "  " };
        let is_end = place == from || place == to;
        match place {
            _ if from == to || !(from.min(to)..=from.max(to)).contains(&place) => "  ",
            _ if !is_end => "\u{2502} ",
            _ if place == to && to < from => "\u{250c}>",
            _ if place == to => "\u{2514}>",
            _ if to < from => "\u{2514}\u{2500}",
            _ => "\u{250c}\u{2500}",
        }
    }

    /// Returns the place of the target of the selected jump.
    fn target(&self) -> Option<usize> {
        match self.annotated.rows.get(self.selected()?)? {
            Row::Instruction { jump, .. } => self.shown.binary_search(&(*jump)?).ok(),
            Row::Source { .. } => None,
        }
    }

    fn selected(&self) -> Option<usize> {
        self.shown.get(self.cursor.at()).copied()
    }

    /// Applies a key. Returns whether it is one of this view.
    pub(super) fn press(&mut self, code: KeyCode, page: usize) -> bool {
        let hot = self.selected().and_then(|row| self.hottest.iter().position(|hot| *hot == row));
        let last = self.hottest.len().saturating_sub(1);
        match code {
            KeyCode::Tab => self.select_hot(hot.map_or(0, |hot| if hot == last { 0 } else { hot + 1 })),
            KeyCode::BackTab => self.select_hot(hot.and_then(|hot| hot.checked_sub(1)).unwrap_or(last)),
            KeyCode::Char('H') => self.select_hot(0),
            KeyCode::Char('j') | KeyCode::Enter => {
                if let Some(to) = self.target() {
                    self.cursor.select(to, self.shown.len());
                }
            }
            KeyCode::Char('s') => {
                self.has_source = !self.has_source;
                self.refresh();
            }
            KeyCode::Char('n') => self.find(true),
            KeyCode::Char('N') => self.find(false),
            other => return self.cursor.press(other, self.shown.len(), page),
        }
        true
    }

    /// Selects the next or the previous row that contains the searched text, in upper or lower case.
    pub(super) fn find(&mut self, forward: bool) {
        let (at, rows) = (self.cursor.at(), self.shown.len());
        let search = self.search.to_lowercase();
        let mut places: Vec<usize> = (at + 1..rows).chain(0..at).collect();
        if !forward {
            places.reverse();
        }
        let found = places.into_iter().find(|&place| self.line(place).to_lowercase().contains(&search));
        if let Some(place) = found.filter(|_| !search.is_empty()) {
            self.cursor.select(place, rows);
        }
    }

    fn select_hot(&mut self, place: usize) {
        let row = self.hottest.get(place).and_then(|hot| self.shown.binary_search(hot).ok());
        if let Some(row) = row {
            self.cursor.select(row, self.shown.len());
        }
    }

    /// Computes the shown rows. The selected row stays selected; a hidden one is replaced by the next.
    fn refresh(&mut self) {
        let selected = self.selected();
        let rows = self.annotated.rows.iter().enumerate();
        let is_shown = |row: &Row| self.has_source || matches!(row, Row::Instruction { .. });
        self.shown = rows.filter(|(_, row)| is_shown(row)).map(|(place, _)| place).collect();
        if let Some(selected) = selected {
            let place = self.shown.partition_point(|row| *row < selected);
            self.cursor.select(place, self.shown.len());
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
