use ratatui::crossterm::event::KeyEventKind;

use super::*;
use crate::cli::report::browser::code::tests::annotated;
use crate::cli::report::browser::table::Row;
use crate::cli::terminal::testing::key;
use crate::profile::Mode;
use crate::profile::Profile;
use crate::profile::sample_profiles::{Builder, example, native, task};
use crate::recording::About;
use crate::report::Options;

/// Returns the events of profiles of one recording.
pub(in crate::cli::report::browser) fn events<'p>(
    profiles: &'p [Profile],
    about: &'p About,
    options: &Options,
) -> Vec<Event<'p>> {
    let event = |profile| Event { input: None, profile, about, options: options.clone() };
    profiles.iter().map(event).collect()
}

pub(in crate::cli::report::browser) fn press(state: &mut State<'_>, code: KeyCode) {
    assert_eq!(state.press(key(code)), Reply::Draw, "{code:?}");
    state.resize(10);
}

/// Presses each character of a text.
pub(in crate::cli::report::browser) fn write(state: &mut State<'_>, text: &str) {
    text.chars().for_each(|c| press(state, KeyCode::Char(c)));
}

/// Calls `test` with the state of the example: nginx, node, postgres and a kernel thread.
fn with_state(test: impl FnOnce(&mut State<'_>)) {
    let (profiles, about) = ([example()], About::default());
    let mut state = State::new(events(&profiles, &about, &Options::default())).unwrap();
    state.resize(10);
    test(&mut state);
}

fn names<'s>(state: &'s State<'_>) -> Vec<&'s str> {
    state.table().rows().iter().map(|row| state.table().function(*row)).collect()
}

fn selected<'s>(state: &'s State<'_>) -> &'s str {
    state.table().function(state.table().selected().unwrap())
}

/// Returns the texts of a column of the shown entries.
fn column<'s>(state: &'s State<'_>, key: Key) -> Vec<&'s str> {
    let table = state.table();
    let (column, _) = table.entries().columns().into_iter().find(|(_, of)| *of == key).unwrap();
    let entries = table.rows().iter().map(|row| table.entry(*row).unwrap());
    entries.map(|entry| table.entries().text(entry, column)).collect()
}

fn select(state: &mut State<'_>, name: &str) {
    let place = names(state).iter().position(|shown| *shown == name).unwrap();
    press(state, KeyCode::Home);
    (0..place).for_each(|_| press(state, KeyCode::Down));
}

#[test]
fn plus_expands_and_collapses_one_level_of_a_call_tree() {
    with_state(|state| {
        select(state, "main");
        let (at, entries) = (state.table().cursor.at(), state.table().rows().len());
        write(state, "+");
        let row = state.table().selected().unwrap();
        assert_eq!((names(state)[at + 1], state.table().rows().len()), ("main", entries + 1));
        assert_eq!(state.table().fold(row), Fold::Expanded);
        // A branch has the functions with one callee each, and then the branches of the last one.
        press(state, KeyCode::Down);
        write(state, "+");
        let below = &names(state)[at + 1..at + 4];
        assert_eq!(below, ["main", "ngx_worker_process_cycle", "writev"]);
        write(state, "+");
        assert_eq!(state.table().rows().len(), entries + 1);
        press(state, KeyCode::Up);
        write(state, "+");
        assert_eq!(state.table().rows().len(), entries);
    });
}

#[test]
fn e_expands_a_whole_entry_and_collapses_it_and_c_collapses_it() {
    with_state(|state| {
        select(state, "main");
        let entries = state.table().rows().len();
        write(state, "e");
        let expanded = state.table().rows().len();
        assert!(names(state).contains(&"ngx_http_parse_request_line") && expanded > entries + 5);
        // Also from a line of the tree, with one level collapsed.
        press(state, KeyCode::Down);
        write(state, "+e");
        assert_eq!(state.table().rows().len(), expanded);
        write(state, "e");
        assert_eq!((state.table().rows().len(), selected(state)), (entries, "main"));
        write(state, "ec");
        assert_eq!(state.table().rows().len(), entries);
    });
}

#[test]
fn capital_e_expands_all_entries_and_capital_c_collapses_them() {
    with_state(|state| {
        let entries = state.table().rows().len();
        write(state, "E");
        let rows = state.table().rows();
        assert!(rows.iter().all(|row| state.table().fold(*row) != Fold::Collapsed), "{rows:?}");
        assert!(rows.len() > 2 * entries);
        write(state, "C");
        assert_eq!(state.table().rows().len(), entries);
    });
}

#[test]
fn d_zooms_into_a_shared_object_and_out_of_it() {
    with_state(|state| {
        let all = names(state).len();
        select(state, "uv_run");
        write(state, "d");
        assert!(column(state, Key::Dso).iter().all(|dso| *dso == "node") && names(state).len() < all);
        assert_eq!(selected(state), "uv_run", "the selected entry stays selected");
        assert!(state.table().title().ends_with(", Shared Object: node"), "{}", state.table().title());
        assert!(!state.table().columns().iter().any(|(_, key, _)| *key == Key::Dso));
        write(state, "d");
        assert_eq!((names(state).len(), selected(state)), (all, "uv_run"));
    });
}

#[test]
fn zooms_are_combined_and_esc_removes_the_last_one() {
    with_state(|state| {
        let all = names(state).len();
        select(state, "writev");
        write(state, "t");
        assert!(column(state, Key::Comm).iter().all(|comm| *comm == "nginx"));
        let of_thread = names(state).len();
        write(state, "k");
        assert!(column(state, Key::Dso).iter().all(|dso| *dso == KERNEL));
        assert!(names(state).contains(&"tcp_sendmsg") && !names(state).contains(&"kthread"));
        press(state, KeyCode::Esc);
        assert_eq!(names(state).len(), of_thread);
        press(state, KeyCode::Left);
        assert_eq!(names(state).len(), all);
        press(state, KeyCode::Esc);
        assert_eq!(state.message.as_deref(), Some("q quits"));
    });
}

#[test]
fn a_zoom_without_its_column_says_which_column_is_missing() {
    let (profiles, about) = ([example()], About::default());
    let options = Options { sort: vec![Key::Pid, Key::Symbol], ..Options::default() };
    let mut state = State::new(events(&profiles, &about, &options)).unwrap();
    for (typed, message) in
        [("d", "the table has no column dso: see --sort"), ("k", "the column dso has no [kernel.kallsyms]")]
    {
        write(&mut state, typed);
        assert_eq!(state.message.as_deref(), Some(message));
    }
    write(&mut state, "t");
    assert!(column(&state, Key::Pid).iter().all(|task| task.trim() == "4711:node"), "{:?}", names(&state));
}

#[test]
fn a_filter_selects_functions_without_regard_to_case() {
    with_state(|state| {
        let all = names(state).len();
        write(state, "/NGX_http");
        assert!(state.typing && !names(state).is_empty());
        assert!(names(state).iter().all(|name| name.contains("ngx_http")), "{:?}", names(state));
        press(state, KeyCode::Backspace);
        press(state, KeyCode::Enter);
        assert_eq!((state.typing, &*state.table().filter), (false, "NGX_htt"));
        assert!(state.table().title().ends_with(", filter: NGX_htt"));
        press(state, KeyCode::Esc);
        assert_eq!(names(state).len(), all);
        write(state, "/q");
        press(state, KeyCode::Esc);
        assert_eq!((names(state).len(), &*state.table().filter), (all, ""));
    });
}

#[test]
fn tab_shows_the_next_event_and_each_event_keeps_its_view() {
    let mut other = Builder::default();
    other.add(&task(1, "init", "/"), Mode::User, 1, &[native("/sbin/init", "main")]);
    let (profiles, about) = ([example(), other.0], About::default());
    let mut state = State::new(events(&profiles, &about, &Options::default())).unwrap();
    write(&mut state, "/hash");
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Tab);
    assert_eq!(names(&state), ["main"]);
    press(&mut state, KeyCode::BackTab);
    assert_eq!(names(&state), ["hash_search"]);
    with_state(|state| {
        press(state, KeyCode::Tab);
        assert_eq!(state.message.as_deref(), Some("there is one event"));
    });
}

/// Selects an item of the menu.
fn choose(state: &mut State<'_>, item: &str) -> Reply {
    press(state, KeyCode::Enter);
    let panel = state.panel().unwrap();
    assert!(panel.is_menu());
    let place = panel.lines.iter().position(|line| line == item);
    let place = place.unwrap_or_else(|| panic!("{item}: {:?}", panel.lines));
    (0..place).for_each(|_| press(state, KeyCode::Down));
    state.press(key(KeyCode::Enter))
}

#[test]
fn enter_opens_a_menu_with_what_the_selected_row_allows() {
    with_state(|state| {
        select(state, "uv_run");
        assert_eq!(choose(state, "Zoom into dso node"), Reply::Draw);
        assert!(state.panel().is_none() && column(state, Key::Dso).iter().all(|dso| *dso == "node"));
        let shown = names(state).len();
        choose(state, "Expand uv_run");
        assert!(names(state).len() > shown);
        choose(state, "Collapse uv_run");
        assert_eq!(names(state).len(), shown);
        choose(state, "Zoom out of dso node");
        assert!(names(state).len() > shown);
        press(state, KeyCode::Enter);
        press(state, KeyCode::Esc);
        assert!(state.panel().is_none());
        assert_eq!(choose(state, "Quit"), Reply::Quit);
    });
}

#[test]
fn i_shows_the_header_and_h_the_keys_until_another_key() {
    let about = About { hostname: Some("node-7".into()), ..About::default() };
    let profiles = [example()];
    let mut state = State::new(events(&profiles, &about, &Options::default())).unwrap();
    write(&mut state, "i");
    assert_eq!(state.panel().unwrap().lines, ["hostname : node-7", "lost samples and records : 0"]);
    write(&mut state, "q");
    assert!(state.panel().is_none());
    for open in ["h", "?"] {
        write(&mut state, open);
        assert_eq!(state.panel().unwrap().lines.len(), KEYS.len());
        press(&mut state, KeyCode::Down);
        assert_eq!(state.panel().unwrap().cursor.at(), 1);
        press(&mut state, KeyCode::Esc);
    }
    choose(&mut state, "Show the header of the recording");
    assert!(state.panel().is_some());
}

#[test]
fn a_annotates_the_function_of_a_row_and_the_result_covers_the_table() {
    with_state(|state| {
        select(state, "main");
        write(state, "a");
        assert_eq!(state.message.as_deref(), Some("Reading the code of main \u{2026}"));
        let (_, target) = state.take_target().unwrap();
        let main = Target { symbol: Some("main".into()), module: Some("nginx".into()) };
        assert_eq!((target, state.take_target().is_none()), (main, true));
        state.annotated(Ok(annotated()));
        assert_eq!(state.message.as_deref(), Some("hot.c is newer than the program"));
        write(state, "/ret");
        assert!(state.typing);
        press(state, KeyCode::Enter);
        let code = state.code().unwrap();
        assert!(code.line(code.cursor.at()).ends_with("ret"));
        write(state, "/q");
        press(state, KeyCode::Esc);
        write(state, "h");
        assert_eq!(state.panel().unwrap().lines.len(), code::KEYS.len());
        write(state, "q");
        assert!(state.panel().is_none() && state.code().is_some());
        write(state, "q");
        assert!(state.code().is_none());
        assert_eq!(selected(state), "main");
        // A function of a call tree, by the menu.
        write(state, "+");
        press(state, KeyCode::Down);
        choose(state, "Annotate main");
        assert_eq!(state.take_target().unwrap().1.module, None);
        state.annotated(Err(NotAnnotated::NoSamples));
        assert_eq!(state.panel().unwrap().lines, [NotAnnotated::NoSamples.to_string()]);
    });
    let (profiles, about) = ([example()], About::default());
    let options = Options { sort: vec![Key::Comm], ..Options::default() };
    let mut state = State::new(events(&profiles, &about, &options)).unwrap();
    write(&mut state, "a");
    assert_eq!(state.message.as_deref(), Some("the table has no column symbol: see --sort"));
}

#[test]
fn arrows_move_the_selection_and_scroll() {
    with_state(|state| {
        let last = names(state).len() - 1;
        for (code, place) in [
            (KeyCode::Up, 0),
            (KeyCode::Down, 1),
            (KeyCode::PageDown, 11),
            (KeyCode::PageUp, 1),
            (KeyCode::Char(' '), 11),
            (KeyCode::End, last),
            (KeyCode::Home, 0),
        ] {
            press(state, code);
            assert_eq!(state.table().cursor.at(), place, "{code:?}");
        }
        press(state, KeyCode::Right);
        press(state, KeyCode::Right);
        press(state, KeyCode::Left);
        assert_eq!(state.scrolled, SCROLL);
        press(state, KeyCode::F(5));
        assert_eq!(state.message.as_deref(), Some("h shows the keys"));
    });
}

#[test]
fn keys_with_control_quit_suspend_and_redraw_everywhere() {
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    for before in ["", "/x", "h"] {
        with_state(|state| {
            write(state, before);
            assert_eq!(state.press(control('z')), Reply::Suspend);
            assert_eq!(state.press(control('l')), Reply::Redraw);
            assert_eq!(state.press(control('c')), Reply::Quit);
        });
    }
    with_state(|state| {
        let released = KeyEvent { kind: KeyEventKind::Release, ..key(KeyCode::Char('q')) };
        assert_eq!(state.press(released), Reply::Draw);
        assert_eq!(state.press(key(KeyCode::Char('q'))), Reply::Quit);
    });
}

#[test]
fn rows_below_the_percent_limit_are_left_out() {
    let (profiles, about) = ([example()], About::default());
    let options = Options { percent_limit: 20.0, ..Options::default() };
    let state = State::new(events(&profiles, &about, &options)).unwrap();
    let table = state.table();
    assert!(!table.rows().is_empty() && table.rows().len() < table.entries().all().len());
    assert!(table.rows().iter().all(|row| table.entries().is_large(table.entry(*row).unwrap())));
    assert_eq!(table.call(Row { entry: 0, call: Some(7) }), None);
}

#[test]
fn without_events_there_is_no_view() {
    assert!(State::new(Vec::new()).is_none());
}
