//! The selected row of a list, and the part of the list that is on the screen.

use std::ops::Range;

use ratatui::crossterm::event::KeyCode;

use crate::cli::terminal::moved;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    at: usize,
    /// The first row on the screen.
    first: usize,
}

impl Cursor {
    /// Returns the selected row.
    pub(super) fn at(self) -> usize {
        self.at
    }

    /// Selects a row, or the last one if there are fewer.
    pub(super) fn select(&mut self, at: usize, rows: usize) {
        self.at = at.min(rows.saturating_sub(1));
    }

    /// Applies a key that moves the selection. Returns whether it is one.
    pub(super) fn press(&mut self, code: KeyCode, rows: usize, page: usize) -> bool {
        let code = if code == KeyCode::Char(' ') { KeyCode::PageDown } else { code };
        let Some(at) = moved(code, self.at, page) else { return false };
        self.select(at, rows);
        true
    }

    /// Scrolls so that the selected row is on a screen of `page` rows.
    pub(super) fn scroll(&mut self, rows: usize, page: usize) {
        self.first = self.first.min(rows.saturating_sub(page)).min(self.at);
        self.first = self.first.max((self.at + 1).saturating_sub(page));
    }

    /// Returns the rows on a screen of `page` rows.
    pub(super) fn visible(self, rows: usize, page: usize) -> Range<usize> {
        self.first.min(rows)..self.first.saturating_add(page).min(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_follows_the_selection_and_stays_otherwise() {
        let mut cursor = Cursor::default();
        let mut press = |code, page| {
            cursor.press(code, 100, page);
            cursor.scroll(100, page);
            (cursor.at(), cursor.visible(100, page))
        };
        assert_eq!(press(KeyCode::Char(' '), 10), (10, 1..11));
        assert_eq!(press(KeyCode::Up, 10), (9, 1..11));
        assert_eq!(press(KeyCode::End, 10), (99, 90..100));
        assert_eq!(press(KeyCode::PageUp, 10), (89, 89..99));
        assert_eq!(press(KeyCode::Down, 5), (90, 89..94));
        assert_eq!(press(KeyCode::Home, 200), (0, 0..100));
    }
}
