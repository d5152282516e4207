//! Drawing of the interactive display. Without I/O.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::samples::{Group, Row};
use super::state::{Column, KEYS, Standing, State, What};
use crate::cli::terminal::{fit, fit_to, put_lines, without_columns};

/// Height of a screen that has room for counters and for the line of keys.
const ROOMY: u16 = 12;

/// Maximum number of lines of counters, without the line of missing counters.
const COUNTER_LINES: usize = 3;

/// Widths of a screen that has room for the column of values, and for that of modules.
const WIDE: usize = 70;
const MEDIUM: usize = 50;

/// Maximum width of the column of modules.
const MODULE: usize = 24;

/// Width of the column of values.
const VALUE: usize = 12;

/// Indent of notes in the body.
const INDENT: &str = "  ";

/// Draws the state, and notes in it how many rows fit.
pub(super) fn draw(state: &mut State, frame: &mut Frame<'_>) {
    let area = frame.area();
    state.resize(page(state, area));
    put_lines(&if state.help { help(area.width) } else { screen(state, area) }, frame);
}

/// Returns the number of rows that fit on a screen.
fn page(state: &State, area: Rect) -> usize {
    let taken = above(state, area).len() + below(state, area).len();
    usize::from(area.height).saturating_sub(taken).max(1)
}

fn screen(state: &State, area: Rect) -> Vec<Line<'static>> {
    let mut lines = above(state, area);
    let rows = page(state, area);
    lines.extend(body(state, rows, usize::from(area.width)));
    let footer = below(state, area);
    lines.resize(usize::from(area.height).saturating_sub(footer.len()), Line::default());
    lines.extend(footer);
    lines
}

/// Returns the lines above the rows.
fn above(state: &State, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let mut lines = vec![header(state, width)];
    lines.push(Line::raw(fit(&format!(" {}", summary(state)), width)));
    if area.height >= ROOMY {
        lines.extend(state.settings.unsampled.iter().map(|text| Line::raw(fit(&format!(" {text}"), width))));
        lines.extend(counters(state, width));
        lines.push(Line::default());
    }
    lines.push(groups(state, width));
    lines.push(columns(state, width));
    lines
}

/// Returns the lines below the rows.
fn below(state: &State, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    if state.typing {
        // The end of a long filter is shown, where the user types.
        let text = &state.view().filter;
        let hidden = text.width().saturating_sub(width.saturating_sub(12));
        return vec![Line::raw(format!(" Filter: {}\u{2588}", without_columns(text, hidden)))];
    }
    let keys = match &state.view().what {
        _ if area.height < ROOMY => return Vec::new(),
        What::Table { group: Group::Function, .. } => {
            "Enter callers  / filter  s t n m sort  g group  p pause  ? help  q quit"
        }
        What::Table { .. } => "Enter functions  / filter  s n sort  g group  p pause  ? help  q quit",
        What::Function { .. } => {
            "Enter go to the function  Backspace back  / filter  p pause  ? help  q quit"
        }
    };
    vec![Line::styled(fit(&format!(" {keys}"), width), Modifier::DIM)]
}

/// Returns the first line: what is sampled, and whether new tables are shown.
fn header(state: &State, width: usize) -> Line<'static> {
    let standing = match state.standing() {
        Standing::Live => format!("every {} s", state.delay().as_secs()),
        Standing::Paused => "paused".to_owned(),
        Standing::Ended => "ended: the processes have exited".to_owned(),
    };
    let left = fit(
        &format!(" perf-exporter top: {}", state.settings.heading),
        width.saturating_sub(standing.width() + 3),
    );
    Line::styled(fit(&format!("{left}  {standing} "), width), Modifier::REVERSED)
}

fn summary(state: &State) -> String {
    match state.sampled {
        false => format!("The first table appears after {} s.", state.delay().as_secs()),
        true => state.samples().describe(),
    }
}

/// Returns the lines of counters: as many of them in a line as fit.
fn counters(state: &State, width: usize) -> Vec<Line<'static>> {
    let counters = &state.counters;
    if counters.title.is_empty() {
        return Vec::new();
    }
    let title = format!(" {}:", fit_to(&counters.title, width.saturating_sub(4).min(50)));
    let indent = title.width().min(width / 4);
    let mut lines = vec![title];
    for item in &counters.items {
        match lines.last_mut() {
            Some(line) if line.width() + 2 + item.width() <= width => {
                line.push_str("  ");
                line.push_str(item);
            }
            _ => lines.push(format!("{:indent$}  {item}", "")),
        }
    }
    lines.truncate(COUNTER_LINES);
    lines.extend(counters.missing.iter().map(|missing| fit(&format!("   {missing}"), width)));
    lines.into_iter().map(Line::raw).collect()
}

/// Returns the line of groups, or of the row that contains the view, with the filter.
fn groups(state: &State, width: usize) -> Line<'static> {
    let view = state.view();
    let mut spans = match &view.what {
        What::Table { group, within: None } => {
            let mut spans = vec![Span::raw(" By")];
            for other in Group::ALL {
                let style = if other == *group { Modifier::REVERSED } else { Modifier::empty() };
                spans.extend([Span::raw(" "), Span::styled(format!(" {} ", other.as_str()), style)]);
            }
            spans
        }
        What::Table { within: Some(key), .. } => {
            vec![Span::styled(format!(" Functions of {} {}", key.group(), key.name()), Modifier::BOLD)]
        }
        What::Function { function, within } => {
            let mut text = format!(" Callers and callees of {}", function.name());
            if let Some(key) = within {
                text += &format!(" in {} {}", key.group(), key.name());
            }
            vec![Span::styled(text, Modifier::BOLD)]
        }
    };
    if !view.filter.is_empty() && !state.typing {
        let filter = format!("  filter: {}", view.filter);
        let left: String = spans.iter().map(|span| span.content.as_ref()).collect();
        if left.width() + filter.width() > width {
            spans = vec![Span::styled(fit_to(&left, width.saturating_sub(filter.width())), Modifier::BOLD)];
        }
        spans.push(Span::styled(filter, Modifier::BOLD));
    }
    Line::from(spans)
}

/// The columns of a view, and their widths. A width of 0 omits the column.
struct Widths {
    /// Whether there are columns for `Self` and `Total`, instead of one for a share.
    both: bool,
    value: usize,
    module: usize,
    name: usize,
}

impl Widths {
    fn of(state: &State, width: usize) -> Self {
        let (both, modules) = match state.view().what {
            What::Table { group, .. } => (!group.of_tasks(), group == Group::Function),
            What::Function { .. } => (false, true),
        };
        let value = if width >= WIDE { VALUE } else { 0 };
        let widest = state.rows().iter().map(|row| row.module.width()).max().unwrap_or(0);
        let module = if modules && width >= MEDIUM { widest.clamp(6, MODULE) } else { 0 };
        let shares = if both { 18 } else { 10 };
        let taken = shares + value + module + 2 * usize::from(module > 0);
        Self { both, value, module, name: width.saturating_sub(taken) }
    }

    /// Returns the cells of a line as one text.
    fn line(&self, [own, total, value, module, name]: [&str; 5]) -> String {
        let mut line = format!(" {own:>7}");
        if self.both {
            line += &format!(" {total:>7}");
        }
        if self.value > 0 {
            line += &format!("{value:>width$}", width = self.value);
        }
        line += "  ";
        if self.module > 0 {
            line += &fit(module, self.module);
            line += "  ";
        }
        line + &fit(name, self.name)
    }
}

/// Returns the line of column headings. An arrow marks the sorted column.
fn columns(state: &State, width: usize) -> Line<'static> {
    let widths = Widths::of(state, width);
    let (sorted, reversed) = state.order();
    let heading = |column: Column, word: &str| {
        let descends = matches!(column, Column::Own | Column::Total) != reversed;
        let arrow = if descends { '\u{25bc}' } else { '\u{25b2}' };
        if column == sorted { format!("{word}{arrow}") } else { word.to_owned() }
    };
    let (own, name) = match &state.view().what {
        What::Table { group, .. } if group.of_tasks() => ("Share", group.as_str()),
        What::Table { group, .. } => ("Self", group.as_str()),
        What::Function { .. } => ("Share", "function"),
    };
    // Without a column of its own, the order by total is that by share.
    let own = match sorted {
        Column::Total if !widths.both => heading(Column::Total, own),
        _ => heading(Column::Own, own),
    };
    let capital = name.chars().take(1).map(|first| first.to_ascii_uppercase()).chain(name.chars().skip(1));
    let name = heading(Column::Name, &capital.collect::<String>());
    let (total, module) = (heading(Column::Total, "Total"), heading(Column::Module, "Module"));
    Line::styled(widths.line([&own, &total, state.samples().unit(), &module, &name]), Modifier::UNDERLINED)
}

/// Returns the visible rows, with the selected one in the middle unless it is near the start or the end.
fn body(state: &State, height: usize, width: usize) -> Vec<Line<'static>> {
    if let Some(sentence) = sentence(state) {
        return vec![Line::default(), Line::raw(fit(&format!("{INDENT}{sentence}"), width))];
    }
    let widths = Widths::of(state, width);
    let entries = entries(state);
    let selected =
        entries.iter().position(|entry| matches!(entry, Entry::Row(at, _) if *at == state.selected()));
    let first = selected.unwrap_or(0).saturating_sub(height / 2).min(entries.len().saturating_sub(height));
    let visible = entries.into_iter().skip(first).take(height);
    let line = |entry: Entry<'_>| match entry {
        Entry::Note(text) => Line::styled(fit(&format!("{INDENT}{text}"), width), Modifier::DIM),
        Entry::Row(at, row) => {
            let center = matches!(state.view().what, What::Function { .. }) && at == state.callers();
            let style = match (at == state.selected(), center) {
                (true, _) => Modifier::REVERSED,
                (false, true) => Modifier::BOLD,
                (false, false) => Modifier::empty(),
            };
            Line::styled(fit(&self::row(state, &widths, row), width), style)
        }
    };
    visible.map(line).collect()
}

/// A line of the body.
enum Entry<'s> {
    /// A row at a position.
    Row(usize, &'s Row),
    /// A heading or a note.
    Note(String),
}

/// Returns the lines of the body.
fn entries(state: &State) -> Vec<Entry<'_>> {
    let mut rows = state.rows().iter().enumerate().map(|(at, row)| Entry::Row(at, row));
    if matches!(state.view().what, What::Table { .. }) {
        return rows.collect();
    }
    let why = if state.settings.chains { "none" } else { "none: samples have no call chains" };
    let part = |title: &str, count: usize| match count {
        0 => Entry::Note(format!("{title}: {why}")),
        _ => Entry::Note(title.to_owned()),
    };
    let callers = state.callers();
    let callees = state.rows().len().saturating_sub(callers + 1);
    let mut entries = vec![part("Callers", callers)];
    entries.extend(rows.by_ref().take(callers));
    let percent = |sum: u64| state.samples().percent(sum);
    let sums = state.rows().get(callers).map(|row| (percent(row.own), percent(row.total)));
    let (own, total) = sums.unwrap_or_default();
    entries.push(Entry::Note(format!("Function: Self {own:.2}%, Total {total:.2}%")));
    entries.extend(rows.by_ref().take(1));
    entries.push(part("Callees", callees));
    entries.extend(rows);
    entries
}

/// Returns the sentence for a view without rows.
fn sentence(state: &State) -> Option<String> {
    let filter = &state.view().filter;
    match (state.rows().is_empty(), filter.is_empty()) {
        (false, _) => None,
        (true, false) => Some(format!("No row contains {filter:?}. Press Esc to remove the filter.")),
        (true, true) if !state.sampled => {
            Some("Sampling has begun. Reading the symbols of large programs takes some seconds.".to_owned())
        }
        (true, true) if state.samples().total() == 0 => Some(state.samples().nothing()),
        (true, true) => Some("no samples in this interval".to_owned()),
    }
}

fn row(state: &State, widths: &Widths, row: &Row) -> String {
    let samples = state.samples();
    let percent = |sum: u64| format!("{:.2}%", samples.percent(sum));
    let name = without_columns(&row.name, state.scrolled);
    let mark = row.key.mark();
    let name = if mark.is_empty() { name.to_owned() } else { format!("{mark} {name}") };
    // With one column of shares, it shows the stacks that contain the row: for tasks, and for callers and callees.
    let (share, value) = if widths.both { (row.own, row.own) } else { (row.total, row.total) };
    widths.line([&percent(share), &percent(row.total), &samples.value(value), &row.module, &name])
}

fn help(width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let mut lines =
        vec![Line::styled(fit(" perf-exporter top: keys", width), Modifier::REVERSED), Line::default()];
    lines.extend(KEYS.iter().map(|(key, meaning)| Line::raw(format!("{INDENT}{key:<16}{meaning}"))));
    lines.push(Line::default());
    lines.push(Line::raw(format!(
        "{INDENT}[k] marks kernel functions, [j] JIT code. Counters cover the last interval."
    )));
    lines
}

#[cfg(test)]
mod tests;
