use ratatui::crossterm::event::KeyEventKind;

use super::*;
use crate::cli::terminal::TYPED;
use crate::cli::terminal::testing::key;
use crate::profile::sample_profiles::example;

/// Returns the state with the example profile: nginx, node, postgres and a kernel thread.
pub(in crate::cli::top) fn state() -> State {
    let settings = Settings { heading: "cpu-clock, 99 Hz".into(), chains: true, ..Settings::default() };
    let mut state = State::new(settings, Duration::from_secs(2));
    state.show(Samples::new(example()));
    state.resize(10);
    state
}

fn press(state: &mut State, code: KeyCode) {
    assert_eq!(state.press(key(code)), Reply::Draw, "{code:?}");
}

/// Presses each character of a text.
pub(in crate::cli::top) fn write(state: &mut State, text: &str) {
    text.chars().for_each(|c| press(state, KeyCode::Char(c)));
}

fn names(state: &State) -> Vec<&str> {
    state.rows().iter().map(|row| &*row.name).collect()
}

fn selected(state: &State) -> &str {
    &state.rows()[state.selected()].name
}

#[test]
fn functions_are_sorted_by_their_own_shares_at_first() {
    let state = state();
    assert_eq!(state.order(), (Column::Own, false));
    assert!(state.rows().is_sorted_by(|a, b| a.own >= b.own));
    assert_eq!(selected(&state), "RegExp:<[^>]+>");
}

#[test]
fn a_letter_sorts_by_its_column_and_r_reverses_the_order() {
    let mut state = state();
    write(&mut state, "t");
    assert!(state.rows().is_sorted_by(|a, b| a.total >= b.total));
    write(&mut state, "r");
    assert!(state.rows().is_sorted_by(|a, b| a.total <= b.total));
    write(&mut state, "rn");
    assert!(names(&state).is_sorted());
    write(&mut state, "m");
    assert!(state.rows().is_sorted_by(|a, b| a.module <= b.module));
    write(&mut state, "s");
    assert_eq!(state.order(), (Column::Own, false));
}

#[test]
fn g_goes_through_all_groups_and_capital_g_backwards() {
    let mut state = state();
    let mut groups = Vec::new();
    for _ in 0..6 {
        let What::Table { group, .. } = state.view().what else { panic!("no table") };
        groups.push(group.as_str());
        write(&mut state, "g");
    }
    assert_eq!(groups, ["function", "module", "comm", "cgroup", "thread", "function"]);
    write(&mut state, "GG");
    assert!(matches!(state.view().what, What::Table { group: Group::Thread, .. }), "{:?}", state.view());
}

#[test]
fn a_filter_selects_names_and_modules_without_regard_to_case() {
    let mut state = state();
    let all = state.rows().len();
    write(&mut state, "/NGX_http");
    assert!(
        state.typing && names(&state).iter().all(|name| name.contains("ngx_http")),
        "{:?}",
        names(&state)
    );
    assert!(!state.rows().is_empty());
    press(&mut state, KeyCode::Enter);
    assert!(!state.typing && state.view().filter == "NGX_http");
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.rows().len(), all);
    write(&mut state, "/postgres");
    assert!(names(&state).contains(&"hash_search"), "the module matches: {:?}", names(&state));
}

#[test]
fn a_filter_is_edited_by_the_usual_keys() {
    let mut state = state();
    write(&mut state, "/hashq?");
    assert!(!state.help, "letters are part of the filter");
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Backspace);
    assert_eq!((&*state.view().filter, names(&state)), ("hash", vec!["hash_search"]));
    state.press(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
    assert_eq!((&*state.view().filter, state.typing), ("", true));
    write(&mut state, "x");
    press(&mut state, KeyCode::Esc);
    assert_eq!((&*state.view().filter, state.typing), ("", false));
    write(&mut state, &format!("/{}", "x".repeat(2 * TYPED)));
    assert_eq!(state.view().filter.len(), TYPED);
}

#[test]
fn arrows_and_letters_move_the_selection_within_the_rows() {
    let mut state = state();
    let last = state.rows().len() - 1;
    for (code, place) in [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::Char('j'), 2),
        (KeyCode::Char('k'), 1),
        (KeyCode::PageDown, 11),
        (KeyCode::PageUp, 1),
        (KeyCode::End, last),
        (KeyCode::Down, last),
        (KeyCode::Home, 0),
    ] {
        press(&mut state, code);
        assert_eq!(state.selected(), place, "{code:?}");
    }
}

#[test]
fn a_selected_function_stays_selected_wherever_it_goes() {
    let mut state = state();
    write(&mut state, "jj");
    let name = selected(&state).to_owned();
    write(&mut state, "n");
    assert_eq!(selected(&state), name);
    state.show(Samples::new(example()));
    assert_eq!(selected(&state), name);
    // If it is gone, the row at its position is selected.
    let place = state.selected();
    state.show(Samples::default());
    assert_eq!(state.selected(), 0);
    state.show(Samples::new(example()));
    assert!(state.selected() <= place);
}

#[test]
fn enter_shows_callers_and_callees_and_each_key_back_returns() {
    let mut state = state();
    write(&mut state, "/ngx_worker");
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Enter);
    let What::Function { function, within: None } = &state.view().what else { panic!("{:?}", state.view()) };
    assert_eq!(function.name(), "ngx_worker_process_cycle");
    assert_eq!((names(&state)[0], state.callers(), state.selected()), ("main", 1, 1));
    assert_eq!(selected(&state), "ngx_worker_process_cycle");
    assert_eq!(names(&state)[2], "writev", "the callee with the largest share");
    // The selected callee becomes the function.
    write(&mut state, "j");
    press(&mut state, KeyCode::Enter);
    assert_eq!((selected(&state), names(&state)[0]), ("writev", "ngx_worker_process_cycle"));
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Esc);
    assert_eq!(selected(&state), "writev", "the row that was selected before");
    press(&mut state, KeyCode::Backspace);
    assert_eq!(state.view().filter, "ngx_worker");
    press(&mut state, KeyCode::Backspace);
    assert!(matches!(state.view().what, What::Table { .. }), "the first table has no parent");
}

#[test]
fn enter_on_a_module_or_on_tasks_shows_their_functions() {
    let mut state = state();
    write(&mut state, "gg/node");
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Enter);
    assert!(
        names(&state).contains(&"uv_run") && !names(&state).contains(&"hash_search"),
        "{:?}",
        names(&state)
    );
    write(&mut state, "/uv_run");
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Enter);
    let What::Function { within, .. } = &state.view().what else { panic!("{:?}", state.view()) };
    assert_eq!(*within, Some(Key::Comm("node".into())));
    write(&mut state, "gg");
    assert!(matches!(state.view().what, What::Table { group: Group::Module, within: None }));
    press(&mut state, KeyCode::Backspace);
    assert!(
        matches!(state.view().what, What::Table { group: Group::Module, .. }),
        "a new group has no parent"
    );
}

#[test]
fn counters_follow_the_selected_tasks() {
    let mut state = state();
    assert_eq!(state.scope(), Scope::Target);
    write(&mut state, "gg");
    let scope = |state: &State| match state.scope() {
        Scope::Threads { of, threads } => (of.name(), threads),
        other => panic!("{other:?}"),
    };
    assert_eq!(scope(&state), ("node".to_owned(), vec![4711]));
    write(&mut state, "j");
    assert_eq!(scope(&state), ("nginx".to_owned(), vec![812]));
    press(&mut state, KeyCode::Enter);
    assert_eq!(scope(&state).0, "nginx", "the functions of a row have its counters");
    write(&mut state, "ggg");
    assert_eq!(state.scope(), Scope::Cgroup("/kubepods.slice/pod1/app".into()));
    write(&mut state, "g");
    assert_eq!(scope(&state).1, [4711]);
}

#[test]
fn a_paused_display_takes_no_profile_and_no_counters() {
    let mut state = state();
    let rows = state.rows().to_vec();
    write(&mut state, "p");
    assert_eq!(state.standing(), Standing::Paused);
    state.show(Samples::default());
    state.count(CounterText { title: "x".into(), ..CounterText::default() });
    assert_eq!((state.rows(), &*state.counters.title), (&rows[..], ""));
    write(&mut state, "n");
    assert!(names(&state).is_sorted(), "it still answers keys");
    write(&mut state, " ");
    state.show(Samples::default());
    assert_eq!((state.standing(), state.rows().len()), (Standing::Live, 0));
    state.end();
    write(&mut state, "p");
    assert_eq!(state.standing(), Standing::Ended);
}

#[test]
fn plus_and_minus_change_the_delay_within_bounds() {
    let mut state = state();
    let mut delays = Vec::new();
    for c in "++-----".chars() {
        write(&mut state, &c.to_string());
        delays.push(state.delay().as_secs());
    }
    assert_eq!(delays, [3, 5, 3, 2, 1, 1, 1]);
    write(&mut state, &"+".repeat(20));
    assert_eq!(state.delay(), Duration::from_secs(300));
}

#[test]
fn help_is_closed_by_any_key_that_has_no_other_effect_then() {
    let mut state = state();
    for open in ["?", "h"] {
        write(&mut state, open);
        assert!(state.help);
        write(&mut state, "q");
        assert!(!state.help);
    }
    assert_eq!(state.order(), (Column::Own, false));
}

#[test]
fn keys_with_control_quit_suspend_and_redraw_everywhere() {
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    for before in ["", "/x", "?"] {
        let mut state = state();
        write(&mut state, before);
        assert_eq!(state.press(control('z')), Reply::Suspend);
        assert_eq!(state.press(control('l')), Reply::Redraw);
        assert_eq!(state.press(control('c')), Reply::Quit);
    }
    assert_eq!(state().press(key(KeyCode::Char('q'))), Reply::Quit);
    let mut state = state();
    write(&mut state, "/q");
    assert_eq!(state.view().filter, "q", "q is a letter of a filter");
}

#[test]
fn esc_and_a_key_in_quick_succession_are_two_keys() {
    let mut state = state();
    write(&mut state, "/x");
    assert_eq!(state.press(KeyEvent::new(KeyCode::Char('n'), KeyModifiers::ALT)), Reply::Draw);
    assert_eq!((&*state.view().filter, state.typing, state.order().0), ("", false, Column::Name));
}

#[test]
fn a_released_key_is_not_pressed() {
    let released = KeyEvent { kind: KeyEventKind::Release, ..key(KeyCode::Char('q')) };
    assert_eq!(state().press(released), Reply::Draw);
}

#[test]
fn long_names_are_scrolled_as_far_as_there_are_any() {
    let mut state = state();
    for _ in 0..100 {
        press(&mut state, KeyCode::Right);
    }
    let longest = state.rows().iter().map(|row| row.name.len()).max().unwrap();
    assert!(state.scrolled > 0 && state.scrolled < longest, "{}", state.scrolled);
    for _ in 0..100 {
        press(&mut state, KeyCode::Left);
    }
    assert_eq!(state.scrolled, 0);
}

#[test]
fn a_limit_bounds_the_rows() {
    let mut state = state();
    state.settings.limit = Some(3);
    write(&mut state, "s");
    assert_eq!(state.rows().len(), 3);
}
