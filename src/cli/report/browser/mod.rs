//! The interactive view of recordings, as that of `perf report`.
//!
//! ```text
//! Event (profile, options) ─► table (entries, zooms, expanded call trees) ─┐
//! Annotator ─► code (instructions of a function) ──────────────────────────┴► state ─► draw ─► Screen
//! Screen (keys) ──────────────────────────────────────────────────────────────┘
//! ```

mod code;
mod cursor;
mod draw;
mod state;
mod table;

use anyhow::{Context, anyhow};

use crate::annotate::Annotator;
use crate::cli::observe::{Ending, Failure, Wait, WaitEvent, measure};
use crate::cli::terminal::Screen;
use draw::draw;
use state::State;
pub(super) use table::Event;

/// Shows events on the terminal until the user quits.
pub(super) fn browse(events: Vec<Event<'_>>, mut annotator: Annotator) -> Result<Ending, Failure> {
    let mut state = State::new(events).context("the inputs have no samples")?;
    measure(async |signals| {
        let screen = Screen::take().context("cannot set up the terminal")?;
        let mut screen = screen.ok_or_else(|| anyhow!("standard input and output are not a terminal"))?;
        let mut wait = Wait::new(signals, None, Vec::new(), None, None);
        loop {
            screen.show(|frame| draw(&mut state, frame))?;
            // The message that this takes time is on the screen.
            if let Some((profile, target)) = state.take_target() {
                state.annotated(annotator.annotate(profile, &target));
                continue;
            }
            tokio::select! {
                happened = wait.next() => if let WaitEvent::Stopped(number) = happened {
                    return Ok(Ending::of_view(number));
                },
                input = screen.input() => {
                    // Without a terminal, nothing can be shown.
                    let Some(input) = input else { return Ok(Ending::Done) };
                    if !screen.apply(input, |key| state.press(key)).await? {
                        return Ok(Ending::Done);
                    }
                }
            }
        }
    })
}
