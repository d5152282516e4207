//! State of the interactive view: what is shown, and what each key changes. Without I/O.

use std::collections::BTreeMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::code::{self, Code};
use super::cursor::Cursor;
use super::table::{Event, Fold, Table};
use crate::annotate::{Annotated, NotAnnotated, Target};
use crate::clean::NAME;
use crate::cli::terminal::{Reply, control, edit, pressed};
use crate::profile::Profile;
use crate::report::{Header, Key};

/// The keys of the table and their meanings, in the order of the help.
pub(super) const KEYS: [(&str, &str); 19] = [
    ("Enter, m", "menu of what can be done with the selected row"),
    ("+", "expand or collapse the selected row by one level"),
    ("e", "expand or collapse the whole call tree of an entry"),
    ("c", "collapse the call tree of an entry"),
    ("E, C", "expand all call trees; collapse all"),
    ("a", "annotate: instructions of the function, source lines"),
    ("d", "zoom into the shared object of the entry, or out of it"),
    ("t", "zoom into its thread, or out of it"),
    ("k", "zoom into the kernel, or out of it"),
    ("/", "show functions that contain a text; Enter keeps the filter"),
    ("Esc", "remove the filter, or else the last zoom"),
    ("Tab, Shift-Tab", "next, previous event"),
    ("i", "header of the recording: machine, command, events"),
    ("Up, Down", "move the selection"),
    ("PgUp, PgDn, Space", "move the selection by one screen"),
    ("Home, End", "select the first or the last row"),
    ("Right, Left", "scroll to the right; back, and then as Esc"),
    ("h, ?, F1", "this help"),
    ("q, Ctrl-C", "quit; Ctrl-Z suspends, Ctrl-L draws again"),
];

/// Columns by which `Right` and `Left` scroll.
const SCROLL: usize = 10;

/// The module of the kernel.
const KERNEL: &str = "[kernel.kallsyms]";

/// What an item of the menu does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Annotate,
    Zoom(Key),
    Toggle,
    Header,
    Help,
    Quit,
}

/// A text or a menu over the table.
#[derive(Debug, Default)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    /// The action of each line of a menu; none for a text.
    actions: Vec<Action>,
    pub(super) cursor: Cursor,
}

impl Panel {
    pub(super) fn is_menu(&self) -> bool {
        !self.actions.is_empty()
    }
}

/// The state.
#[derive(Debug)]
pub(super) struct State<'p> {
    events: Vec<Event<'p>>,
    /// The shown event.
    event: usize,
    table: Table<'p>,
    /// Tables of events that were shown before.
    others: BTreeMap<usize, Table<'p>>,
    /// The function that covers the table.
    code: Option<Code>,
    /// The function to annotate.
    target: Option<Target>,
    /// A text or menu that covers the function or the table.
    panel: Option<Panel>,
    /// Whether keys are part of the filter, or of the searched text.
    pub(super) typing: bool,
    /// The answer to a key without an effect, until the next key.
    pub(super) message: Option<String>,
    /// Columns by which lines are scrolled.
    pub(super) scrolled: usize,
    /// Number of rows that fit on the screen.
    page: usize,
}

impl<'p> State<'p> {
    /// Shows the first event; `None` without events.
    pub(super) fn new(events: Vec<Event<'p>>) -> Option<Self> {
        Some(Self {
            table: Table::new(events.first()?),
            events,
            event: 0,
            others: BTreeMap::new(),
            code: None,
            target: None,
            panel: None,
            typing: false,
            message: None,
            scrolled: 0,
            page: 1,
        })
    }

    pub(super) fn table(&self) -> &Table<'p> {
        &self.table
    }

    /// Returns the function that covers the table.
    pub(super) fn code(&self) -> Option<&Code> {
        self.code.as_ref()
    }

    /// Returns the text or menu that covers everything else.
    pub(super) fn panel(&self) -> Option<&Panel> {
        self.panel.as_ref()
    }

    /// Sets the number of rows that fit on the screen, and scrolls to the selected row.
    pub(super) fn resize(&mut self, page: usize) {
        self.page = page.max(1);
        match (&mut self.panel, &mut self.code) {
            (Some(panel), _) => panel.cursor.scroll(panel.lines.len(), self.page),
            (None, Some(code)) => code.cursor.scroll(code.len(), self.page),
            (None, None) => self.table.cursor.scroll(self.table.rows().len(), self.page),
        }
    }

    /// Returns the number of rows that fit on the screen.
    pub(super) fn page(&self) -> usize {
        self.page
    }

    /// Returns a function to annotate, with the profile that contains it. The caller passes the result to [`annotated`](Self::annotated).
    pub(super) fn take_target(&mut self) -> Option<(&'p Profile, Target)> {
        Some((self.events.get(self.event)?.profile, self.target.take()?))
    }

    /// Shows an annotated function, or why there is none.
    pub(super) fn annotated(&mut self, result: Result<Annotated, NotAnnotated>) {
        match result {
            Ok(annotated) => {
                let code = Code::new(annotated);
                (self.message, self.scrolled) = (code.notes(), 0);
                self.code = Some(code);
            }
            Err(error) => {
                self.message = None;
                let lines = vec![error.to_string()];
                self.panel = Some(Panel { title: "Not annotated".to_owned(), lines, ..Panel::default() });
            }
        }
    }

    /// Applies a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Reply {
        pressed(key).fold(Reply::Draw, |_, key| self.apply(key))
    }

    fn apply(&mut self, key: KeyEvent) -> Reply {
        if let Some(reply) = control(key) {
            return reply;
        }
        self.message = None;
        if self.typing {
            match self.code.is_some() {
                true => self.edit_search(key),
                false => self.edit_filter(key),
            }
        } else if key.modifiers.contains(KeyModifiers::CONTROL) {
            self.message = Some("h shows the keys".to_owned());
        } else if self.panel.is_some() {
            return self.press_in_panel(key.code);
        } else if self.code.is_some() {
            self.press_in_code(key.code);
        } else {
            return self.command(key.code);
        }
        Reply::Draw
    }

    /// Applies a key to the table.
    fn command(&mut self, code: KeyCode) -> Reply {
        match code {
            KeyCode::Char('q' | 'Q') => return Reply::Quit,
            KeyCode::Enter | KeyCode::Char('m') => self.open_menu(),
            KeyCode::Char('+') => self.table.toggle(),
            KeyCode::Char('e') => self.table.toggle_entry(),
            KeyCode::Char('c') => self.table.collapse_entry(),
            KeyCode::Char('E') => self.table.expand_all(),
            KeyCode::Char('C') => self.table.collapse_all(),
            KeyCode::Char('a') => self.annotate(),
            KeyCode::Char('d') => self.zoom(&[Key::Dso]),
            KeyCode::Char('t') => self.zoom(&[Key::Pid, Key::Comm]),
            KeyCode::Char('k') => {
                if !self.table.zoom_into(Key::Dso, KERNEL) {
                    self.message = Some(format!("the column dso has no {KERNEL}"));
                }
            }
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Tab => self.show_event(1),
            KeyCode::BackTab => self.show_event(self.events.len().saturating_sub(1)),
            KeyCode::Char('i') => self.open_header(),
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.open_help(&KEYS),
            KeyCode::Right => self.scrolled = (self.scrolled + SCROLL).min(NAME),
            KeyCode::Left if self.scrolled > 0 => self.scrolled = self.scrolled.saturating_sub(SCROLL),
            KeyCode::Left | KeyCode::Esc => {
                if !self.table.zoom_out() {
                    self.message = Some("q quits".to_owned());
                }
            }
            other => {
                let rows = self.table.rows().len();
                if !self.table.cursor.press(other, rows, self.page) {
                    self.message = Some("h shows the keys".to_owned());
                }
            }
        }
        Reply::Draw
    }

    /// Applies a key to a text or menu over the table.
    fn press_in_panel(&mut self, code: KeyCode) -> Reply {
        let Some(panel) = &mut self.panel else { return Reply::Draw };
        match code {
            KeyCode::Enter => {
                let action = panel.actions.get(panel.cursor.at()).copied();
                self.panel = None;
                return action.map_or(Reply::Draw, |action| self.act(action));
            }
            KeyCode::Right if panel.actions.is_empty() => {
                self.scrolled = (self.scrolled + SCROLL).min(NAME);
            }
            KeyCode::Left if self.scrolled > 0 => self.scrolled = self.scrolled.saturating_sub(SCROLL),
            other => {
                if !panel.cursor.press(other, panel.lines.len(), self.page) {
                    (self.panel, self.scrolled) = (None, 0);
                }
            }
        }
        Reply::Draw
    }

    /// Applies a key to a function.
    fn press_in_code(&mut self, code: KeyCode) {
        let Some(shown) = &mut self.code else { return };
        match code {
            KeyCode::Char('/') => {
                shown.search.clear();
                self.typing = true;
            }
            KeyCode::Char('i') => self.open_header(),
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.open_help(&code::KEYS),
            KeyCode::Right => self.scrolled = (self.scrolled + SCROLL).min(NAME),
            KeyCode::Left if self.scrolled > 0 => self.scrolled = self.scrolled.saturating_sub(SCROLL),
            KeyCode::Left | KeyCode::Esc | KeyCode::Char('q' | 'Q') => {
                (self.code, self.scrolled) = (None, 0);
            }
            other => {
                if !shown.press(other, self.page) {
                    self.message = Some("h shows the keys".to_owned());
                }
            }
        }
    }

    /// Applies a key while the user types a text to search.
    fn edit_search(&mut self, key: KeyEvent) {
        let Some(code) = &mut self.code else { return };
        match key.code {
            KeyCode::Enter => {
                self.typing = false;
                code.find(true);
            }
            KeyCode::Esc => self.typing = false,
            _ => {
                edit(&mut code.search, key);
            }
        }
    }

    /// Requests the annotation of the function in the selected row.
    fn annotate(&mut self) {
        let Some(row) = self.table.selected() else { return };
        let Some(target) = self.table.target(row) else {
            self.message = Some("the table has no column symbol: see --sort".to_owned());
            return;
        };
        self.message = target.symbol.as_ref().map(|name| format!("Reading the code of {name} \u{2026}"));
        self.target = Some(target);
    }

    fn act(&mut self, action: Action) -> Reply {
        match action {
            Action::Annotate => self.annotate(),
            Action::Zoom(key) => self.zoom(&[key]),
            Action::Toggle => self.table.toggle(),
            Action::Header => self.open_header(),
            Action::Help => self.open_help(&KEYS),
            Action::Quit => return Reply::Quit,
        }
        Reply::Draw
    }

    /// Applies a key while the user types a filter.
    fn edit_filter(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.table.filter.clear();
                self.table.refresh();
            }
            _ if edit(&mut self.table.filter, key) => self.table.refresh(),
            other => {
                let rows = self.table.rows().len();
                self.table.cursor.press(other, rows, self.page);
            }
        }
    }

    /// Zooms by the first of these columns that the table has.
    fn zoom(&mut self, keys: &[Key]) {
        if !keys.iter().any(|key| self.table.zoom(*key)) {
            let columns: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
            self.message = Some(format!("the table has no column {}: see --sort", columns.join(" or ")));
        }
    }

    /// Shows the event so many places further.
    fn show_event(&mut self, places: usize) {
        let next = (self.event + places) % self.events.len().max(1);
        let Some(event) = self.events.get(next).filter(|_| next != self.event) else {
            self.message = Some("there is one event".to_owned());
            return;
        };
        let table = self.others.remove(&next).unwrap_or_else(|| Table::new(event));
        self.others.insert(self.event, std::mem::replace(&mut self.table, table));
        self.event = next;
    }

    fn open_menu(&mut self) {
        let Some(row) = self.table.selected() else { return };
        let name = self.table.function(row);
        let mut items = Vec::new();
        if self.table.target(row).is_some() {
            items.push((format!("Annotate {name}"), Action::Annotate));
        }
        match self.table.fold(row) {
            Fold::Leaf => {}
            Fold::Collapsed => items.push((format!("Expand {name}"), Action::Toggle)),
            Fold::Expanded => items.push((format!("Collapse {name}"), Action::Toggle)),
        }
        for (key, text, is_zoomed) in self.table.zooms() {
            let direction = if is_zoomed { "out of" } else { "into" };
            let zoom = format!("Zoom {direction} {} {}", key.as_str(), text.trim());
            items.push((zoom, Action::Zoom(key)));
        }
        items.push(("Show the header of the recording".to_owned(), Action::Header));
        items.push(("Show the keys".to_owned(), Action::Help));
        items.push(("Quit".to_owned(), Action::Quit));
        let title = name.to_owned();
        let (lines, actions) = items.into_iter().unzip();
        self.panel = Some(Panel { title, lines, actions, cursor: Cursor::default() });
    }

    fn open_header(&mut self) {
        let Some(event) = self.events.get(self.event) else { return };
        let header = Header(event.about).to_string();
        let lines = header.lines().map(|line| line.trim_start_matches(['#', ' ', '=']).to_owned());
        let mut lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        let lost = event.about.lost.records + event.about.lost.samples;
        lines.push(format!("lost samples and records : {lost}"));
        lines.extend(event.about.notes.iter().cloned());
        self.panel = Some(Panel { title: "Header".to_owned(), lines, ..Panel::default() });
    }

    fn open_help(&mut self, keys: &[(&str, &str)]) {
        let lines = keys.iter().map(|(key, meaning)| format!("{key:<19}{meaning}")).collect();
        self.panel = Some(Panel { title: "Keys".to_owned(), lines, ..Panel::default() });
    }
}

#[cfg(test)]
pub(super) mod tests;
