//! State of the interactive display: what is shown, and what each key changes. Without I/O.

use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::counters::{CounterText, Scope};
use super::samples::{Group, Key, Row, Samples};
use crate::cli::terminal::{Reply, control, edit, moved, pressed};

/// The keys and their meanings, in the order of the help.
pub(super) const KEYS: [(&str, &str); 19] = [
    ("s", "sort by Self: the function without the functions that it calls"),
    ("t", "sort by Total: the function with the functions that it calls"),
    ("n", "sort by name"),
    ("m", "sort by module"),
    ("r", "reverse the order"),
    ("/", "show rows that contain a text; Enter keeps the filter"),
    ("Esc", "remove the filter; without a filter, go back"),
    ("g, G", "group by function, module, comm, cgroup, thread; G: backwards"),
    ("Enter", "callers and callees of a function; functions of any other row"),
    ("Backspace", "go back"),
    ("Up, Down, k, j", "move the selection"),
    ("PgUp, PgDn", "move the selection by one screen"),
    ("Home, End", "select the first or the last row"),
    ("Left, Right", "scroll long names"),
    ("p, Space", "pause: the table stays, sampling goes on"),
    ("+, -", "more or less time between two tables"),
    ("Ctrl-L, Ctrl-Z", "draw the screen again; suspend"),
    ("?, h", "this help; any key closes it"),
    ("q, Ctrl-C", "quit"),
];

/// Times between two tables, in seconds, that `+` and `-` select.
const DELAYS: [u64; 9] = [1, 2, 3, 5, 10, 20, 30, 60, 300];

/// Columns by which `Left` and `Right` scroll names.
const SCROLL: usize = 20;

/// The column by which rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Column {
    #[default]
    Own,
    Total,
    Name,
    Module,
}

/// Facts that do not change.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// The event, the rate and the target.
    pub(super) heading: String,
    /// What is not sampled, and why.
    pub(super) unsampled: Option<String>,
    /// Whether samples contain call chains.
    pub(super) chains: bool,
    /// Maximum number of rows of a table.
    pub(super) limit: Option<usize>,
}

/// Whether new tables are shown, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// New tables are shown.
    Live,
    /// The user paused the display.
    Paused,
    /// The sampled processes have ended.
    Ended,
}

/// One level of the drill-down.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct View {
    pub(super) what: What,
    /// Text that the name or the module of each shown row contains, in upper or lower case.
    pub(super) filter: String,
    /// The selected row. `None` selects the first row of a table, or the function itself.
    selected: Option<Key>,
    /// Position of the selected row, for the case that the row disappears.
    place: usize,
}

/// Content of a view.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    /// The rows of a group, within a row of another group.
    Table { group: Group, within: Option<Key> },
    /// A function with its callers and callees, within a row of another group.
    Function { function: Key, within: Option<Key> },
}

impl Default for What {
    fn default() -> Self {
        Self::Table { group: Group::Function, within: None }
    }
}

impl View {
    fn new(what: What) -> Self {
        Self { what, ..Self::default() }
    }

    fn within(&self) -> Option<&Key> {
        let (What::Table { within, .. } | What::Function { within, .. }) = &self.what;
        within.as_ref()
    }
}

/// The state.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) settings: Settings,
    samples: Samples,
    /// Whether a profile has arrived.
    pub(super) sampled: bool,
    /// The shown view.
    view: View,
    /// The views to which `Backspace` goes back, the nearest one last.
    parents: Vec<View>,
    sort: Column,
    reversed: bool,
    /// Whether keys are part of the filter.
    pub(super) typing: bool,
    pub(super) help: bool,
    paused: bool,
    ended: bool,
    delay: Duration,
    /// Columns by which names are scrolled.
    pub(super) scrolled: usize,
    /// Rows of the shown view, after filter and sorting. In a view of a function: callers, the function, callees.
    rows: Vec<Row>,
    /// Number of callers in `rows`. 0 in a table.
    callers: usize,
    /// Counters of the last interval.
    pub(super) counters: CounterText,
    /// Number of rows that fit on the screen.
    page: usize,
}

impl State {
    /// Creates the state before the first profile. `delay` is the time between two tables.
    pub(super) fn new(settings: Settings, delay: Duration) -> Self {
        Self { settings, delay, page: 1, ..Self::default() }
    }

    /// Returns the shown view.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Returns the shown profile.
    pub(super) fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Returns the rows to show, in order.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the number of callers at the start of [`rows`](Self::rows). The function follows them, and then its callees.
    pub(super) fn callers(&self) -> usize {
        self.callers
    }

    /// Returns the column by which rows are sorted, and whether the order is reversed.
    pub(super) fn order(&self) -> (Column, bool) {
        (self.sort, self.reversed)
    }

    /// Returns the position of the selected row.
    pub(super) fn selected(&self) -> usize {
        self.view.place.min(self.rows.len().saturating_sub(1))
    }

    /// Returns the time between two tables.
    pub(super) fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns whether and why no new tables are shown.
    pub(super) fn standing(&self) -> Standing {
        match (self.ended, self.paused) {
            (true, _) => Standing::Ended,
            (false, true) => Standing::Paused,
            (false, false) => Standing::Live,
        }
    }

    /// Returns what counters are to be counted for: the row of tasks that is selected or contains the view, else the target.
    pub(super) fn scope(&self) -> Scope {
        let selected = self.rows.get(self.selected()).map(|row| &row.key);
        match self.view.within().into_iter().chain(selected).find(|key| key.group().of_tasks()) {
            Some(Key::Cgroup(path)) => Scope::Cgroup(Arc::clone(path)),
            Some(key) => Scope::Threads { of: key.clone(), threads: self.samples.threads(key) },
            None => Scope::Target,
        }
    }

    /// Shows a new profile, unless the display is paused.
    pub(super) fn show(&mut self, samples: Samples) {
        if !self.paused {
            (self.samples, self.sampled) = (samples, true);
            self.refresh();
        }
    }

    /// Shows new counters, unless the display is paused.
    pub(super) fn count(&mut self, counters: CounterText) {
        if !self.paused {
            self.counters = counters;
        }
    }

    /// Notes that the sampled processes have ended.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Sets the number of rows that fit on the screen.
    pub(super) fn resize(&mut self, page: usize) {
        self.page = page.max(1);
    }

    /// Applies a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Reply {
        pressed(key).fold(Reply::Draw, |_, key| self.apply(key))
    }

    fn apply(&mut self, key: KeyEvent) -> Reply {
        if let Some(reply) = control(key) {
            return reply;
        }
        if self.typing {
            self.edit_filter(key);
        } else if key.modifiers.contains(KeyModifiers::CONTROL) {
            // Some terminals send Ctrl-H for Backspace.
            if key.code == KeyCode::Char('h') && !self.help {
                self.back();
            }
        } else if self.help {
            self.help = false;
        } else if matches!(key.code, KeyCode::Char('q' | 'Q')) {
            return Reply::Quit;
        } else {
            self.command(key.code);
        }
        Reply::Draw
    }

    /// Applies a key that is not part of a filter.
    fn command(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('s') => self.sort(Column::Own),
            KeyCode::Char('t') => self.sort(Column::Total),
            KeyCode::Char('n') => self.sort(Column::Name),
            KeyCode::Char('m') => self.sort(Column::Module),
            KeyCode::Char('r') => {
                self.reversed = !self.reversed;
                self.refresh();
            }
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('g') => self.group(1),
            KeyCode::Char('G') => self.group(Group::ALL.len() - 1),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('+' | '=') => self.change_delay(true),
            KeyCode::Char('-') => self.change_delay(false),
            KeyCode::Enter => self.open(),
            KeyCode::Esc if !self.view.filter.is_empty() => self.remove_filter(),
            KeyCode::Esc | KeyCode::Backspace => self.back(),
            KeyCode::Left => self.scrolled = self.scrolled.saturating_sub(SCROLL),
            KeyCode::Right => self.scroll(),
            other => self.select_by(other),
        }
    }

    /// Applies a key that moves the selection.
    fn select_by(&mut self, code: KeyCode) {
        let code = match code {
            KeyCode::Char('k') => KeyCode::Up,
            KeyCode::Char('j') => KeyCode::Down,
            other => other,
        };
        if let Some(place) = moved(code, self.selected(), self.page) {
            self.select(place);
        }
    }

    /// Applies a key while the user types a filter.
    fn edit_filter(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.remove_filter();
            }
            _ if edit(&mut self.view.filter, key) => self.refresh(),
            other => self.select_by(other),
        }
    }

    fn remove_filter(&mut self) {
        self.view.filter.clear();
        self.refresh();
    }

    fn sort(&mut self, column: Column) {
        self.sort = column;
        self.refresh();
    }

    /// Shows the group so many places further, in a new table of the whole target.
    fn group(&mut self, places: usize) {
        let now = match &self.view.what {
            What::Table { group, .. } => Group::ALL.iter().position(|other| other == group),
            What::Function { .. } => None,
        };
        let next = now.map_or(0, |now| (now + places) % Group::ALL.len());
        let group = Group::ALL.get(next).copied().unwrap_or(Group::Function);
        self.view = View::new(What::Table { group, within: None });
        self.parents.clear();
        self.refresh();
    }

    /// Goes one level deeper: to the callers and callees of a function, or to the functions of another row.
    fn open(&mut self) {
        let Some(key) = self.rows.get(self.selected()).map(|row| row.key.clone()) else { return };
        let what = match (&self.view.what, key) {
            (What::Function { function, .. }, key) if *function == key => return,
            (What::Table { within, .. } | What::Function { within, .. }, key @ Key::Function { .. }) => {
                // The functions of a module are called from other modules.
                let within = within.clone().filter(|key| !matches!(key, Key::Module(_)));
                What::Function { function: key, within }
            }
            (_, key) => What::Table { group: Group::Function, within: Some(key) },
        };
        self.parents.push(std::mem::replace(&mut self.view, View::new(what)));
        self.refresh();
    }

    fn back(&mut self) {
        if let Some(parent) = self.parents.pop() {
            self.view = parent;
            self.refresh();
        }
    }

    fn scroll(&mut self) {
        let longest = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        if self.scrolled + SCROLL < longest {
            self.scrolled += SCROLL;
        }
    }

    fn change_delay(&mut self, longer: bool) {
        let seconds = self.delay.as_secs();
        let next = match longer {
            true => DELAYS.iter().find(|delay| **delay > seconds),
            false => DELAYS.iter().rev().find(|delay| **delay < seconds),
        };
        self.delay = next.map_or(self.delay, |&seconds| Duration::from_secs(seconds));
    }

    fn select(&mut self, place: usize) {
        let place = place.min(self.rows.len().saturating_sub(1));
        // The first row of a table of code stays selected, whichever row it is.
        let follows = |row: &&Row| place > 0 || self.callers > 0 || row.key.group().of_tasks();
        self.view.selected = self.rows.get(place).filter(follows).map(|row| row.key.clone());
        self.view.place = place;
    }

    /// Computes the rows of the shown view, and the position of the selected row.
    fn refresh(&mut self) {
        let view = &self.view;
        let filter = view.filter.to_lowercase();
        let matches = |row: &Row| {
            let contains = |text: &str| text.to_lowercase().contains(&filter);
            filter.is_empty() || contains(&row.name) || contains(&row.module)
        };
        let (callers, rows) = match &view.what {
            What::Table { group, within } => {
                let mut rows = self.samples.rows(*group, within.as_ref());
                rows.retain(matches);
                self.sort_rows(&mut rows);
                rows.truncate(self.settings.limit.unwrap_or(usize::MAX));
                (0, rows)
            }
            What::Function { function, within } => {
                let found = self.samples.neighbors(function, within.as_ref());
                let (mut callers, mut callees) = (found.callers, found.callees);
                for rows in [&mut callers, &mut callees] {
                    rows.retain(matches);
                    self.sort_rows(rows);
                    rows.truncate(self.settings.limit.unwrap_or(usize::MAX));
                }
                (callers.len(), [callers, vec![found.function], callees].concat())
            }
        };
        (self.callers, self.rows) = (callers, rows);
        self.find_selected();
    }

    /// Finds the selected row again. If it is gone, the row at its position is selected.
    fn find_selected(&mut self) {
        let view = &mut self.view;
        if view.selected.is_none() {
            // Counters of tasks are counted for the selected row, which therefore must not change by itself.
            let first = self.rows.first().map(|row| &row.key);
            view.selected = first.filter(|key| key.group().of_tasks()).cloned();
            view.place = self.callers;
            return;
        }
        // A recursive function is its own caller and callee: the row at the previous position is preferred.
        let is_selected = |place: usize| self.rows.get(place).map(|row| &row.key) == view.selected.as_ref();
        let places = std::iter::once(view.place).chain(0..self.rows.len());
        let found = places.into_iter().find(|&place| is_selected(place));
        view.place = found.unwrap_or(view.place).min(self.rows.len().saturating_sub(1));
    }

    fn sort_rows(&self, rows: &mut [Row]) {
        let tasks = matches!(self.view.what, What::Table { group, .. } if group.of_tasks());
        let by_name = |a: &Row, b: &Row| a.name.cmp(&b.name).then_with(|| a.key.cmp(&b.key));
        rows.sort_by(|a, b| {
            let order = match self.sort {
                Column::Own => b.own.cmp(&a.own).then(b.total.cmp(&a.total)),
                Column::Total => b.total.cmp(&a.total).then(b.own.cmp(&a.own)),
                Column::Module if !tasks => a.module.cmp(&b.module).then(b.own.cmp(&a.own)),
                Column::Name | Column::Module => std::cmp::Ordering::Equal,
            };
            let order = order.then_with(|| by_name(a, b));
            if self.reversed { order.reverse() } else { order }
        });
    }
}

#[cfg(test)]
pub(super) mod tests;
