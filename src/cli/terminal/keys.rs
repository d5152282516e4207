//! Keys with the same effect in all views.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Maximum length of a typed text in characters.
pub(in crate::cli) const TYPED: usize = 200;

/// What the loop has to do after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Reply {
    /// Draw.
    Draw,
    /// Draw every cell, because another program may have written on the screen.
    Redraw,
    /// Give the terminal back and stop until the shell continues the process.
    Suspend,
    /// End.
    Quit,
}

/// Returns the keys of an event: none if a key was released.
pub(in crate::cli) fn pressed(key: KeyEvent) -> impl Iterator<Item = KeyEvent> {
    // A terminal sends Alt with a key as Esc before it, which cannot be distinguished from two keys in quick succession.
    let escape = key.modifiers.contains(KeyModifiers::ALT).then(|| KeyCode::Esc.into());
    let alone = KeyEvent { modifiers: key.modifiers - KeyModifiers::ALT, ..key };
    escape.into_iter().chain([alone]).filter(move |_| key.kind != KeyEventKind::Release)
}

/// Returns the reply to Ctrl-C, Ctrl-Z and Ctrl-L.
pub(in crate::cli) fn control(key: KeyEvent) -> Option<Reply> {
    match key.code {
        _ if !key.modifiers.contains(KeyModifiers::CONTROL) => None,
        KeyCode::Char('c') => Some(Reply::Quit),
        KeyCode::Char('z') => Some(Reply::Suspend),
        KeyCode::Char('l') => Some(Reply::Redraw),
        _ => None,
    }
}

/// Applies a key to a text that the user types. Returns whether the key is part of the text or edits it.
pub(in crate::cli) fn edit(text: &mut String, key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('u') if control => text.clear(),
        // Some terminals send Ctrl-H for Backspace.
        KeyCode::Char('h') if control => {
            text.pop();
        }
        KeyCode::Backspace => {
            text.pop();
        }
        KeyCode::Char(typed) => {
            if !control && !typed.is_control() && text.chars().count() < TYPED {
                text.push(typed);
            }
        }
        _ => return false,
    }
    true
}

/// Returns the row to which a key moves the selection of row `at`, with `page` rows on the screen. It may be beyond the last row.
pub(in crate::cli) fn moved(code: KeyCode, at: usize, page: usize) -> Option<usize> {
    match code {
        KeyCode::Up => Some(at.saturating_sub(1)),
        KeyCode::Down => Some(at + 1),
        KeyCode::PageUp => Some(at.saturating_sub(page)),
        KeyCode::PageDown => Some(at + page),
        KeyCode::Home => Some(0),
        KeyCode::End => Some(usize::MAX),
        _ => None,
    }
}
