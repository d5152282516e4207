//! A terminal that is drawn on, and that tells which keys are pressed.

use std::io::{self, IsTerminal, Read};
use std::sync::Arc;
use std::thread;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::Notify;

use crate::cli::put;

/// The other screen, so that what stood there comes back; no cursor; lines that are too long are cut.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const END: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The lines of a terminal that does not say how many it has.
const USUAL_ROWS: usize = 24;

/// The screen. Dropping it gives back the terminal as it was.
#[derive(Debug)]
pub(super) struct Screen {
    before: Termios,
    /// Told when somebody wants it to end.
    quit: Arc<Notify>,
}

impl Screen {
    /// Takes the terminal; `None` where standard input or output is none.
    ///
    /// # Errors
    /// When the terminal does not obey.
    pub(super) fn take() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut now = before.clone();
        // Keys come at once and unseen.
        now.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        now.special_codes[SpecialCodeIndex::VMIN] = 1;
        now.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Stopped by Ctrl-Z, it would leave the other screen behind.
        now.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &now)?;
        let screen = Self { before, quit: Arc::new(Notify::new()) };
        put(BEGIN)?;
        let quit = Arc::clone(&screen.quit);
        // It ends with the program: nobody can be woken from a read, and keys that nobody reads are lost anyway.
        thread::Builder::new().name("keys".into()).spawn(move || {
            let mut typed = [0; 64];
            while let Ok(count @ 1..) = io::stdin().lock().read(&mut typed) {
                if typed.iter().take(count).any(|key| b"qQ".contains(key)) {
                    quit.notify_one();
                }
            }
        })?;
        Ok(Some(screen))
    }

    /// Its lines.
    pub(super) fn rows(&self) -> usize {
        let known = tcgetwinsize(io::stdout()).map(|size| usize::from(size.ws_row));
        known.ok().filter(|&rows| rows > 0).unwrap_or(USUAL_ROWS)
    }

    /// Shows this in place of what was there.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(super) fn show(&self, text: &str) -> io::Result<()> {
        put(frame(text, self.rows()))
    }

    /// Waits until somebody wants it to end.
    pub(super) async fn quit(&self) {
        self.quit.notified().await;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone need not be put in order.
        let given_back = put(END);
        if tcsetattr(io::stdin(), OptionalActions::Now, &self.before).is_err() || given_back.is_err() {
            tracing::debug!("the terminal cannot be given back");
        }
    }
}

/// What a terminal of so many lines has to be told to show a text: each line in its place, and nothing else.
fn frame(text: &str, rows: usize) -> String {
    let lines: Vec<String> = text.lines().take(rows).map(|line| format!("{line}\x1b[K")).collect();
    format!("\x1b[H{}\x1b[J", lines.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_for_the_screen_does_not_scroll_it() {
        assert_eq!(frame("a\nb\nc\n", 2), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
        assert_eq!(frame("", 2), "\x1b[H\x1b[J");
    }
}
