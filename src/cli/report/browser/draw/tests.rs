use proptest::prelude::*;
use ratatui::crossterm::event::KeyCode;

use super::*;
use crate::cli::report::browser::code::tests::annotated;
use crate::cli::report::browser::state::KEYS;
use crate::cli::report::browser::state::tests::{events, press, write};
use crate::cli::terminal::testing::{self, any_key};
use crate::profile::Profile;
use crate::profile::sample_profiles::{any_profile, example, hostile};
use crate::recording::About;
use crate::report::{Chains, Options};

/// Returns the screen as text.
fn screen(state: &mut State<'_>, width: u16, height: u16) -> String {
    testing::screen(|frame| draw(state, frame), (width, height))
}

/// Calls `test` with a state.
fn with_state(profile: Profile, options: &Options, test: impl FnOnce(&mut State<'_>)) {
    let about = About {
        hostname: Some("node-7".into()),
        command: ["perf", "record", "-g", "nginx"].map(Into::into).to_vec(),
        ..About::default()
    };
    let profiles = [profile];
    test(&mut State::new(events(&profiles, &about, options)).unwrap());
}

#[test]
fn the_table_is_as_recorded() {
    with_state(example(), &Options::default(), |state| {
        insta::assert_snapshot!(screen(state, 80, 24));
        insta::assert_snapshot!(screen(state, 40, 10));
    });
    let options = Options { children: false, chains: Chains::None, counts: true, ..Options::default() };
    with_state(example(), &options, |state| insta::assert_snapshot!(screen(state, 80, 10)));
}

#[test]
fn a_call_tree_in_a_zoom_is_as_recorded() {
    with_state(example(), &Options::default(), |state| {
        write(state, "/main");
        press(state, KeyCode::Enter);
        write(state, "te");
        insta::assert_snapshot!(screen(state, 80, 24));
        insta::assert_snapshot!(screen(state, 40, 10));
    });
}

#[test]
fn texts_and_menus_are_as_recorded() {
    with_state(example(), &Options::default(), |state| {
        press(state, KeyCode::Enter);
        insta::assert_snapshot!(screen(state, 80, 10));
        press(state, KeyCode::Esc);
        write(state, "i");
        insta::assert_snapshot!(screen(state, 80, 10));
        write(state, "qh");
        let text = screen(state, 80, 24);
        assert!(
            !text.contains('\u{2026}') && KEYS.iter().all(|(_, meaning)| text.contains(meaning)),
            "{text}"
        );
        insta::assert_snapshot!(text);
    });
}

#[test]
fn an_annotated_function_is_as_recorded() {
    with_state(example(), &Options::default(), |state| {
        state.annotated(Ok(annotated()));
        press(state, KeyCode::Down);
        insta::assert_snapshot!(screen(state, 80, 24));
        insta::assert_snapshot!(screen(state, 40, 10));
        write(state, "s/mov");
        assert!(screen(state, 40, 10).contains(" Search: mov\u{2588}"));
    });
}

#[test]
fn a_filter_without_a_match_and_a_message_are_shown() {
    with_state(example(), &Options::default(), |state| {
        write(state, "/nothing");
        let text = screen(state, 80, 10);
        assert!(text.contains("No function contains \"nothing\". Press Esc to remove the filter."), "{text}");
        assert!(text.contains(" Filter: nothing\u{2588}"), "{text}");
        press(state, KeyCode::Esc);
        press(state, KeyCode::Tab);
        assert!(screen(state, 80, 10).contains("there is one event"));
    });
}

#[test]
fn scrolling_shows_the_rest_of_long_names() {
    with_state(example(), &Options::default(), |state| {
        write(state, "/CollectGarbage");
        press(state, KeyCode::Enter);
        let end = "AllocationSpace)";
        assert!(!screen(state, 70, 10).contains(end));
        (0..5).for_each(|_| press(state, KeyCode::Right));
        assert!(screen(state, 70, 10).contains(end));
    });
}

#[test]
fn hostile_names_stay_within_their_rows() {
    with_state(hostile(), &Options::default(), |state| {
        for keys in ["", "E", "d", "m"] {
            write(state, keys);
            let text = screen(state, 80, 40);
            assert!(!text.contains(|c: char| c != '\n' && crate::clean::is_misleading(c)), "{text:?}");
            assert_eq!(text.lines().count(), 40);
        }
    });
}

proptest! {
    #[test]
    fn any_keys_on_any_screen_show_something(
        profile in any_profile(),
        keys in prop::collection::vec(any_key("++ecECdtk/ihm q\u{6f22}"), 0..40),
        (width, height) in (1u16..120, 1u16..40),
    ) {
        with_state(profile, &Options::default(), |state| {
            for key in keys {
                state.press(key);
                if state.take_target().is_some() {
                    state.annotated(Ok(annotated()));
                }
                let text = screen(state, width, height);
                assert_eq!(text.lines().count(), usize::from(height));
                let (rows, at) = (state.table().rows().len(), state.table().cursor.at());
                assert!(rows == 0 || at < rows);
                // The selected row is on the screen.
                if state.panel().is_none() && state.code().is_none() && rows > 0 {
                    assert!(state.table().cursor.visible(rows, state.page()).contains(&at));
                }
            }
        });
    }
}
