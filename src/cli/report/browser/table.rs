//! The table of an event: its entries after zooms and a filter, with the expanded call trees. Without I/O.

use rustc_hash::FxHashMap;
use unicode_width::UnicodeWidthStr;

use super::cursor::Cursor;
use crate::annotate::Target;
use crate::clean::{NAME, clean};
use crate::profile::Profile;
use crate::recording::About;
use crate::report::{Call, Entries, Entry, Key, Options, bare, rounded};

/// Maximum number of lines of all expanded call trees together.
const LINES: usize = 1 << 20;

/// An event of an input.
#[derive(Debug)]
pub(in crate::cli::report) struct Event<'p> {
    /// The name of the input, if there are several.
    pub(in crate::cli::report) input: Option<String>,
    pub(in crate::cli::report) profile: &'p Profile,
    pub(in crate::cli::report) about: &'p About,
    pub(in crate::cli::report) options: Options,
}

/// A line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    /// The entry: its place in [`Entries::all`].
    pub(super) entry: usize,
    /// The line of its call tree; `None` for the entry itself.
    pub(super) call: Option<usize>,
}

/// A limit to one text in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Zoom {
    column: usize,
    key: Key,
    cell: u32,
}

/// Whether lines below a row are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    /// There are none.
    Leaf,
    Collapsed,
    Expanded,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table<'p> {
    /// What is sampled.
    heading: String,
    entries: Entries<'p>,
    /// The column that the filter reads: that of functions, or else the last one.
    named: Option<(usize, Key)>,
    /// The last one is the first that Esc removes.
    zooms: Vec<Zoom>,
    /// Text that the function of each row contains, in upper or lower case.
    pub(super) filter: String,
    /// The call trees of expanded entries, with whether each line is expanded.
    trees: FxHashMap<usize, Vec<(Call, bool)>>,
    rows: Vec<Row>,
    /// The width of each column of [`Options::sort`] in columns of the screen: that of its heading and of the shown entries.
    widths: Vec<usize>,
    pub(super) cursor: Cursor,
}

impl<'p> Table<'p> {
    pub(super) fn new(event: &Event<'p>) -> Self {
        let Event { input, profile, options, .. } = event;
        let heading = format!(
            "{}Samples: {} of event '{}', Event count (approx.): {}",
            input.as_ref().map_or_else(String::new, |input| format!("{}: ", clean(input, NAME))),
            rounded(profile.taken()),
            clean(&profile.kind.name, NAME),
            profile.total()
        );
        let entries = Entries::new(profile, options);
        let columns = entries.columns();
        let named = columns.iter().find(|(_, key)| *key == Key::Symbol).or(columns.last()).copied();
        let mut table = Self {
            heading,
            entries,
            named,
            zooms: Vec::new(),
            filter: String::new(),
            trees: FxHashMap::default(),
            rows: Vec::new(),
            widths: Vec::new(),
            cursor: Cursor::default(),
        };
        table.refresh();
        table
    }

    /// Returns the first line: what is sampled, and to what the rows are limited.
    pub(super) fn title(&self) -> String {
        let mut title = self.heading.clone();
        for zoom in &self.zooms {
            title += &format!(", {}: {}", zoom.key.heading().trim(), self.zoomed(*zoom));
        }
        if !self.filter.is_empty() {
            title += &format!(", filter: {}", self.filter);
        }
        title
    }

    pub(super) fn entries(&self) -> &Entries<'p> {
        &self.entries
    }

    /// Returns the rows to show, in order.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the columns to show, with their widths: all except those that zooms limit to one text.
    pub(super) fn columns(&self) -> Vec<(usize, Key, usize)> {
        let mut columns = self.entries.columns();
        columns.retain(|(column, _)| self.zooms.iter().all(|zoom| zoom.column != *column));
        let width = |column: usize| self.widths.get(column).copied().unwrap_or(0);
        columns.into_iter().map(|(column, key)| (column, key, width(column))).collect()
    }

    /// Returns the entry of a row.
    pub(super) fn entry(&self, row: Row) -> Option<&Entry> {
        self.entries.all().get(row.entry)
    }

    /// Returns the line of a call tree in a row.
    pub(super) fn call(&self, row: Row) -> Option<&Call> {
        self.trees.get(&row.entry)?.get(row.call?).map(|(call, _)| call)
    }

    pub(super) fn fold(&self, row: Row) -> Fold {
        let expanded = match (row.call, self.trees.get(&row.entry)) {
            (Some(call), Some(calls)) => match calls.get(call) {
                Some((call, expanded)) if call.below > 0 => *expanded,
                _ => return Fold::Leaf,
            },
            (None, Some(_)) => true,
            (_, None) if self.entry(row).is_some_and(|entry| self.entries.has_calls(entry)) => false,
            (_, None) => return Fold::Leaf,
        };
        if expanded { Fold::Expanded } else { Fold::Collapsed }
    }

    /// Returns the selected row.
    pub(super) fn selected(&self) -> Option<Row> {
        self.rows.get(self.cursor.at()).copied()
    }

    /// Expands or collapses the selected row by one level.
    pub(super) fn toggle(&mut self) {
        let Some(row) = self.selected() else { return };
        match row.call {
            Some(call) => {
                let calls = self.trees.get_mut(&row.entry);
                if let Some((_, expanded)) = calls.and_then(|calls| calls.get_mut(call)) {
                    *expanded = !*expanded;
                }
            }
            None if self.trees.remove(&row.entry).is_none() => self.expand(row.entry, false),
            None => {}
        }
        self.refresh();
    }

    /// Expands all levels of the entry of the selected row, or collapses the entry.
    pub(super) fn toggle_entry(&mut self) {
        let Some(Row { entry, .. }) = self.selected() else { return };
        match self.trees.get(&entry).is_some_and(|calls| calls.iter().all(|(_, expanded)| *expanded)) {
            true => self.collapse_entry(),
            false => self.expand(entry, true),
        }
        self.refresh();
    }

    /// Collapses the entry of the selected row.
    pub(super) fn collapse_entry(&mut self) {
        if let Some(row) = self.selected() {
            self.trees.remove(&row.entry);
            self.refresh();
        }
    }

    /// Expands all levels of all shown entries, until the limit of lines is reached.
    pub(super) fn expand_all(&mut self) {
        let shown: Vec<usize> =
            self.rows.iter().filter(|row| row.call.is_none()).map(|row| row.entry).collect();
        let mut lines = 0;
        for entry in shown {
            self.expand(entry, true);
            lines += self.trees.get(&entry).map_or(0, Vec::len);
            if lines >= LINES {
                break;
            }
        }
        self.refresh();
    }

    /// Collapses all entries.
    pub(super) fn collapse_all(&mut self) {
        self.trees.clear();
        self.refresh();
    }

    fn expand(&mut self, place: usize, all: bool) {
        let Some(entry) = self.entries.all().get(place).filter(|entry| self.entries.has_calls(entry)) else {
            return;
        };
        let calls = self.entries.calls(entry).into_iter().map(|call| (call, all)).collect();
        self.trees.insert(place, calls);
    }

    /// Limits the rows to the text that the selected entry has in a column, or removes this limit. Returns whether there is such a column.
    pub(super) fn zoom(&mut self, key: Key) -> bool {
        let Some((column, _)) = self.entries.columns().into_iter().find(|(_, of)| *of == key) else {
            return false;
        };
        let entry = self.selected().and_then(|row| self.entry(row));
        let cell = entry.and_then(|entry| entry.cells.get(column)).copied();
        self.limit(column, key, cell);
        true
    }

    /// Limits the rows to a text of a column, or removes the limit of this column. Returns whether the table has an entry with the text.
    pub(super) fn zoom_into(&mut self, key: Key, text: &str) -> bool {
        let column = self.entries.columns().into_iter().find(|(_, of)| *of == key);
        let Some((column, _)) = column else { return false };
        let mut entries = self.entries.all().iter();
        let found = entries.find(|entry| self.entries.text(entry, column) == text);
        let Some(cell) = found.and_then(|entry| entry.cells.get(column)).copied() else { return false };
        self.limit(column, key, Some(cell));
        true
    }

    /// Adds or removes a limit.
    fn limit(&mut self, column: usize, key: Key, cell: Option<u32>) {
        let before = self.zooms.len();
        self.zooms.retain(|zoom| zoom.column != column);
        if let (true, Some(cell)) = (self.zooms.len() == before, cell) {
            self.zooms.push(Zoom { column, key, cell });
        }
        self.refresh();
    }

    /// Removes the filter, or the last limit. Returns whether there was one.
    pub(super) fn zoom_out(&mut self) -> bool {
        let had = !self.filter.is_empty() || self.zooms.pop().is_some();
        self.filter.clear();
        self.refresh();
        had
    }

    /// Returns the columns in which a zoom is possible: with the text of the selected entry or of the zoom, and whether it is zoomed.
    pub(super) fn zooms(&self) -> Vec<(Key, &str, bool)> {
        let selected = self.selected().and_then(|row| self.entry(row));
        let columns = self.entries.columns().into_iter().filter(|(_, key)| *key != Key::Symbol);
        let zoom = |(column, key): (usize, Key)| {
            let zoomed = self.zooms.iter().find(|zoom| zoom.column == column);
            let text = zoomed.map(|zoom| self.zoomed(*zoom));
            let text = text.or_else(|| selected.map(|entry| self.entries.text(entry, column)))?;
            Some((key, text, zoomed.is_some()))
        };
        columns.filter_map(zoom).collect()
    }

    /// Returns the function of a row; the text of its last column without a column of functions.
    pub(super) fn function(&self, row: Row) -> &str {
        if let Some(call) = self.call(row) {
            return self.entries.name(call);
        }
        let text = self.named.zip(self.entry(row));
        text.map_or("", |((column, key), entry)| bare(key, self.entries.text(entry, column)))
    }

    /// Returns the function of a row for its annotation. `None` without a column of functions.
    pub(super) fn target(&self, row: Row) -> Option<Target> {
        self.named.filter(|(_, key)| *key == Key::Symbol)?;
        // A function of a call tree can be in any module.
        let entry = self.entry(row).filter(|_| row.call.is_none());
        let module = self.entries.columns().into_iter().find(|(_, key)| *key == Key::Dso).zip(entry);
        let module = module.map(|((column, _), entry)| self.entries.text(entry, column).to_owned());
        Some(Target { symbol: Some(self.function(row).to_owned()), module })
    }

    fn zoomed(&self, zoom: Zoom) -> &str {
        let mut entries = self.entries.all().iter();
        let of = |entry: &&Entry| entry.cells.get(zoom.column) == Some(&zoom.cell);
        entries.find(of).map_or("", |entry| self.entries.text(entry, zoom.column).trim())
    }

    /// Computes the rows. The selected row stays selected; if it is gone, its entry is, or else the row at its place.
    pub(super) fn refresh(&mut self) {
        let selected = self.selected();
        let filter = self.filter.to_lowercase();
        let is_shown = |row: &Row| {
            let Some(entry) = self.entry(*row) else { return false };
            self.entries.is_large(entry)
                && self.zooms.iter().all(|zoom| entry.cells.get(zoom.column) == Some(&zoom.cell))
                && (filter.is_empty() || self.function(*row).to_lowercase().contains(&filter))
        };
        let (mut rows, mut widths) = (Vec::new(), Vec::new());
        for (column, key) in self.entries.columns() {
            widths.resize(column, 0);
            widths.push(key.heading().width());
        }
        let all = (0..self.entries.all().len()).map(|entry| Row { entry, call: None });
        for row in all.filter(is_shown) {
            rows.push(row);
            for (column, width) in widths.iter_mut().enumerate() {
                let text = self.entry(row).map_or("", |entry| self.entries.text(entry, column));
                *width = text.width().max(*width);
            }
            let calls = self.trees.get(&row.entry).map_or(&[][..], |calls| calls);
            let mut next = 0;
            while let Some((call, expanded)) = calls.get(next) {
                rows.push(Row { call: Some(next), ..row });
                next += 1 + if *expanded { 0 } else { call.below };
            }
        }
        let found = selected.and_then(|selected| {
            let same = rows.iter().position(|row| *row == selected);
            same.or_else(|| rows.iter().position(|row| row.entry == selected.entry))
        });
        self.cursor.select(found.unwrap_or(self.cursor.at()), rows.len());
        (self.rows, self.widths) = (rows, widths);
    }
}
