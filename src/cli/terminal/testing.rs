//! A screen and keys without a terminal.

use proptest::prelude::*;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Frame, Terminal};

/// Returns a screen of this size as text.
pub(in crate::cli) fn screen(draw: impl FnOnce(&mut Frame<'_>), (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(draw).unwrap();
    terminal.backend().to_string()
}

/// Returns a key without modifiers.
pub(in crate::cli) fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

/// Any key that a view reads: those of all views, and `letters`.
pub(in crate::cli) fn any_key(letters: &str) -> impl Strategy<Value = KeyEvent> + use<> {
    let codes = [
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Backspace,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Tab,
        KeyCode::BackTab,
    ];
    let letters = letters.chars().map(KeyCode::Char);
    prop::sample::select(codes.into_iter().chain(letters).collect::<Vec<_>>()).prop_map(key)
}
