//! Drawing of the interactive view. Without I/O.

use ratatui::Frame;
use ratatui::style::Modifier;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::code::Code;
use super::state::{Panel, State};
use super::table::{Fold, Row, Table};
use crate::cli::terminal::{fit, put_lines, without_columns};
use crate::report::{Figure, Key};

/// Smallest width of the last column, for which other columns are left out.
const LAST: usize = 20;

/// Columns by which each level of a call tree is indented, as in perf.
const LEVEL: usize = 3;

/// Draws the state, and notes in it how many rows fit.
pub(super) fn draw(state: &mut State<'_>, frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    // The title, the headings of the table, and the footer.
    let taken = if state.panel().is_some() || state.code().is_some() { 2 } else { 3 };
    state.resize(height.saturating_sub(taken));
    let mut lines = match (state.panel(), state.code()) {
        (Some(panel), _) => panel_lines(state, panel, width),
        (None, Some(code)) => code_lines(state, code, width),
        (None, None) => table_lines(state, width),
    };
    lines.resize(height.saturating_sub(1), Line::default());
    lines.push(footer(state, width));
    put_lines(&lines, frame);
}

/// Returns the last line: a filter that the user types, an answer, or the most useful keys.
fn footer(state: &State<'_>, width: usize) -> Line<'static> {
    if state.typing {
        // The end of a long filter is shown, where the user types.
        let (what, text) = match state.code() {
            Some(code) => ("Search", &code.search),
            None => ("Filter", &state.table().filter),
        };
        let hidden = text.width().saturating_sub(width.saturating_sub(12));
        return Line::raw(format!(" {what}: {}\u{2588}", without_columns(text, hidden)));
    }
    let keys = match (&state.message, state.panel()) {
        (Some(message), _) => message,
        (None, Some(panel)) if panel.is_menu() => "Enter do  Esc back",
        (None, Some(_)) => "Esc back",
        (None, None) if state.code().is_some() => {
            "Tab next hottest  j jump  s source  / search  n next  h help  Esc back"
        }
        (None, None) => {
            "Enter menu  + expand  a annotate  d dso  t thread  k kernel  / filter  h help  q quit"
        }
    };
    Line::styled(fit(&format!(" {keys}"), width), Modifier::DIM)
}

fn title(text: &str, width: usize) -> Line<'static> {
    Line::styled(fit(&format!(" {text}"), width), Modifier::REVERSED)
}

/// Returns a row of the body.
fn row(text: &str, is_selected: bool, scrolled: usize, width: usize) -> Line<'static> {
    let style = if is_selected { Modifier::REVERSED } else { Modifier::empty() };
    Line::styled(fit(without_columns(text, scrolled), width), style)
}

fn panel_lines(state: &State<'_>, panel: &Panel, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(&panel.title, width)];
    let visible = panel.cursor.visible(panel.lines.len(), state.page());
    for place in visible {
        let text = panel.lines.get(place).map_or("", |line| line);
        lines.push(row(&format!("  {text}"), place == panel.cursor.at(), state.scrolled, width));
    }
    lines
}

fn code_lines(state: &State<'_>, code: &Code, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(&code.title(), width)];
    for place in code.cursor.visible(code.len(), state.page()) {
        lines.push(row(&code.line(place), place == code.cursor.at(), state.scrolled, width));
    }
    lines
}

fn table_lines(state: &State<'_>, width: usize) -> Vec<Line<'static>> {
    let table = state.table();
    let rows = table.rows();
    let visible = table.cursor.visible(rows.len(), state.page());
    let shown = rows.get(visible.clone()).unwrap_or_default();
    let columns = Columns::new(table, width);
    let heading = without_columns(&columns.heading(table), state.scrolled).to_owned();
    let mut lines =
        vec![title(&table.title(), width), Line::styled(fit(&heading, width), Modifier::UNDERLINED)];
    if rows.is_empty() {
        let filter = &table.filter;
        let why = match filter.is_empty() {
            true => "no entries".to_owned(),
            false => format!("No function contains {filter:?}. Press Esc to remove the filter."),
        };
        lines.push(Line::raw(fit(&format!("  {why}"), width)));
    }
    for (place, shown) in visible.zip(shown) {
        let text = match table.call(*shown) {
            Some(_) => call(table, *shown),
            None => columns.entry(table, *shown),
        };
        lines.push(row(&text, place == table.cursor.at(), state.scrolled, width));
    }
    lines
}

/// Returns the sign that a call tree of a row can be expanded or collapsed.
fn sign(table: &Table<'_>, row: Row) -> char {
    match table.fold(row) {
        Fold::Leaf => ' ',
        Fold::Collapsed => '+',
        Fold::Expanded => '-',
    }
}

/// Returns a line of a call tree.
fn call(table: &Table<'_>, row: Row) -> String {
    let Some(call) = table.call(row) else { return String::new() };
    let share = call.share.map_or_else(String::new, |share| format!("{share:.2}% "));
    let indent = LEVEL * (call.depth + 1);
    format!("{:indent$}{} {share}{}", "", sign(table, row), table.entries().name(call))
}

/// The columns of texts with their widths.
struct Columns(Vec<(usize, Key, usize)>);

impl Columns {
    /// Returns the columns of a table. On a narrow screen, the first ones are left out.
    fn new(table: &Table<'_>, width: usize) -> Self {
        let most = (width / 3).max(LAST);
        let mut columns = table.columns();
        columns.iter_mut().for_each(|(.., width)| *width = most.min(*width));
        let figures: usize = table.entries().figures().iter().map(|figure| figure.head().width() + 2).sum();
        while columns.len() > 1 {
            let before: usize = columns.iter().rev().skip(1).map(|(_, _, width)| width + 2).sum();
            if figures + before + LAST <= width {
                break;
            }
            columns.remove(0);
        }
        Self(columns)
    }

    fn heading(&self, table: &Table<'_>) -> String {
        let figures = table.entries().figures().iter().map(Figure::head).collect();
        self.line(' ', figures, self.0.iter().map(|(_, key, _)| key.heading()))
    }

    /// Returns the line of an entry.
    fn entry(&self, table: &Table<'_>, row: Row) -> String {
        let Some(entry) = table.entry(row) else { return String::new() };
        let figures = table.entries().figures().iter().map(|figure| figure.cell(entry)).collect();
        let texts = self.0.iter().map(|(column, ..)| table.entries().text(entry, *column));
        self.line(sign(table, row), figures, texts)
    }

    fn line<'t>(&self, sign: char, figures: Vec<String>, texts: impl Iterator<Item = &'t str>) -> String {
        let last = self.0.len().saturating_sub(1);
        let mut cells = figures;
        for (place, ((_, _, width), text)) in self.0.iter().zip(texts).enumerate() {
            // The last column can be scrolled.
            cells.push(if place == last { text.to_owned() } else { fit(text, *width) });
        }
        format!("{sign} {}", cells.join("  "))
    }
}

#[cfg(test)]
mod tests;
