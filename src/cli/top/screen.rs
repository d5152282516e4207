//! Terminal screen with key input.

use std::io::{self, IsTerminal, Read};
use std::sync::Arc;
use std::thread;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::Notify;

use crate::cli::put;

/// Sequences for the alternate screen, which preserves the previous content, without a cursor and with truncated long lines.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const END: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Lines of a terminal that does not report its size.
const USUAL_ROWS: usize = 24;

/// The screen. Restores the terminal when dropped.
#[derive(Debug)]
pub(super) struct Screen {
    before: Termios,
    /// Notified when the user quits.
    quit: Arc<Notify>,
}

impl Screen {
    /// Takes over the terminal. Returns `None` if standard input or output is not a terminal.
    ///
    /// # Errors
    /// If the terminal cannot be configured.
    pub(super) fn take() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut now = before.clone();
        // Keys are read immediately and not echoed.
        now.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        now.special_codes[SpecialCodeIndex::VMIN] = 1;
        now.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Disable Ctrl-Z: it would suspend the program on the alternate screen.
        now.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &now)?;
        let screen = Self { before, quit: Arc::new(Notify::new()) };
        put(BEGIN)?;
        let quit = Arc::clone(&screen.quit);
        // The thread ends with the process: a blocking read cannot be interrupted, and unread keys do not matter.
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

    /// Returns the number of lines.
    pub(super) fn rows(&self) -> usize {
        let known = tcgetwinsize(io::stdout()).map(|size| usize::from(size.ws_row));
        known.ok().filter(|&rows| rows > 0).unwrap_or(USUAL_ROWS)
    }

    /// Replaces the content of the screen.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn show(&self, text: &str) -> io::Result<()> {
        put(frame(text, self.rows()))
    }

    /// Waits until the user quits.
    pub(super) async fn quit(&self) {
        self.quit.notified().await;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let given_back = put(END);
        if tcsetattr(io::stdin(), OptionalActions::Now, &self.before).is_err() || given_back.is_err() {
            tracing::debug!("cannot restore the terminal");
        }
    }
}

/// Returns the control sequences that draw a text on a terminal of this height, with one line per row.
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
