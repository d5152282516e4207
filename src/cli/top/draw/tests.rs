use std::time::Duration;

use proptest::prelude::*;
use ratatui::crossterm::event::KeyCode;

use super::*;
use crate::cli::terminal::testing::{self, any_key, key};
use crate::cli::top::counters::CounterText;
use crate::cli::top::samples::Samples;
use crate::cli::top::state::tests::{state, write};
use crate::cli::top::state::{Settings, State};
use crate::profile::Profile;
use crate::profile::sample_profiles::{any_profile, hostile};

/// Returns the screen as text.
fn screen(state: &mut State, width: u16, height: u16) -> String {
    testing::screen(|frame| draw(state, frame), (width, height))
}

fn counted() -> State {
    let mut state = state();
    state.settings.heading = "whole machine on 2 CPUs; cpu-clock, 99 Hz".into();
    state.count(CounterText {
        title: "whole machine".into(),
        items: ["1.94 CPUs", "1.23k context-switches/s", "3 cpu-migrations/s", "340 page-faults/s"]
            .map(str::to_owned)
            .to_vec(),
        missing: Some("no hardware counters on this machine".into()),
    });
    state
}

fn enter(state: &mut State) {
    state.press(key(KeyCode::Enter));
}

#[test]
fn the_table_of_functions_is_as_recorded() {
    let mut state = counted();
    write(&mut state, "jj");
    insta::assert_snapshot!(screen(&mut state, 80, 24));
}

#[test]
fn the_table_on_a_wide_screen_is_as_recorded() {
    let mut state = counted();
    write(&mut state, "t/ng");
    insta::assert_snapshot!(screen(&mut state, 160, 16));
}

#[test]
fn groups_are_as_recorded() {
    let mut text = String::new();
    for _ in 0..4 {
        let mut state = state();
        write(&mut state, &"g".repeat(text.lines().count() / 9 + 1));
        text += &screen(&mut state, 80, 9);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn callers_and_callees_are_as_recorded() {
    let mut state = counted();
    write(&mut state, "/ngx_worker");
    enter(&mut state);
    enter(&mut state);
    insta::assert_snapshot!(screen(&mut state, 80, 24));
}

#[test]
fn functions_of_a_row_with_a_filter_are_as_recorded() {
    let mut state = state();
    write(&mut state, "gg");
    enter(&mut state);
    write(&mut state, "/v8");
    enter(&mut state);
    write(&mut state, "p");
    insta::assert_snapshot!(screen(&mut state, 80, 12));
}

#[test]
fn the_help_fits_on_a_small_screen_and_is_as_recorded() {
    let mut state = state();
    write(&mut state, "?");
    let text = screen(&mut state, 80, 24);
    assert!(!text.contains('\u{2026}') && KEYS.iter().all(|(_, meaning)| text.contains(meaning)), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_screen_without_rows_says_why() {
    let mut state = State::new(Settings::default(), Duration::from_secs(2));
    assert!(screen(&mut state, 80, 24).contains("The first table appears after 2 s."));
    state.show(Samples::new(Profile::default()));
    assert!(screen(&mut state, 80, 24).contains("no samples so far"));
    let mut state = self::state();
    write(&mut state, "/nothing");
    let text = screen(&mut state, 80, 24);
    assert!(text.contains("No row contains \"nothing\". Press Esc to remove the filter."), "{text}");
    assert!(text.contains(" Filter: nothing\u{2588}"), "{text}");
}

#[test]
fn what_is_not_sampled_and_ended_processes_are_shown() {
    let mut state = state();
    state.settings.unsampled = Some("user space only: CAP_PERFMON is missing".into());
    state.settings.chains = false;
    state.end();
    enter(&mut state);
    let text = screen(&mut state, 80, 24);
    for words in
        ["user space only: CAP_PERFMON", "ended: the processes have exited", "Callees: none: samples have"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn the_selected_row_is_always_visible() {
    let mut state = state();
    for step in 0..60 {
        let name = state.rows()[state.selected()].name.clone();
        let start: String = name.chars().take(12).collect();
        let text = screen(&mut state, 100, 14);
        assert!(text.contains(&start), "{step}: {name}: {text}");
        write(&mut state, if step < 30 { "j" } else { "k" });
    }
}

#[test]
fn hostile_names_stay_within_their_rows() {
    let mut state = State::new(Settings::default(), Duration::from_secs(2));
    state.show(Samples::new(hostile()));
    for keys in ["", "g", "g", "g", "g"] {
        write(&mut state, keys);
        state.count(CounterText { title: "x".repeat(500), items: vec!["y".repeat(500)], missing: None });
        let text = screen(&mut state, 80, 40);
        assert!(!text.contains(|c: char| c != '\n' && crate::clean::is_misleading(c)), "{text:?}");
        assert_eq!(text.lines().count(), 40);
    }
}

proptest! {
    #[test]
    fn any_keys_on_any_screen_show_something(
        profile in any_profile(),
        keys in prop::collection::vec(any_key("stnmr/gGp ?h+-jkaq\u{6f22}"), 0..40),
        (width, height) in (1u16..120, 1u16..40),
    ) {
        let mut state = State::new(Settings::default(), Duration::from_secs(2));
        for (at, key) in keys.into_iter().enumerate() {
            if at % 7 == 3 {
                state.show(Samples::new(profile.clone()));
            }
            state.press(key);
            let text = screen(&mut state, width, height);
            prop_assert_eq!(text.lines().count(), usize::from(height));
            prop_assert!(state.rows().is_empty() || state.selected() < state.rows().len());
        }
    }
}
