//! The end of the service: SIGTERM and SIGINT, and how long the orderly way out may take.
//!
//! Signals have a thread of their own, so they are noticed whatever the server's thread waits for. From the first signal on
//! it also watches the way out: if the process still runs after [`LIMIT`], it is ended.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::clock::{Clock, Monotonic};
use crate::sys::usage;

/// From the first signal until the process is ended whatever it does. Service managers and people wait 5 s.
const LIMIT: Duration = Duration::from_millis(4500);

/// From the first signal until pushing is not waited for any more.
pub(super) const PUSHED: Duration = Duration::from_millis(3000);

/// From the first signal until the collection thread is not waited for any more. A file of `/proc` may hold up its reader
/// for as long as the process that it describes is stuck in the kernel.
pub(super) const COLLECTED: Duration = Duration::from_millis(3500);

/// How long the last line of the log may take to be written.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The exit code of a process that was ended.
const ENDED: i32 = 1;

/// A signal to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Requested {
    /// What it is called.
    pub(super) signal: &'static str,
    /// When it came.
    pub(super) at: Monotonic,
}

impl Requested {
    /// How much is left of `limit` since the signal.
    pub(super) fn left_of(self, limit: Duration, clock: &Clock) -> Duration {
        limit.saturating_sub(clock.monotonic().since(self.at))
    }
}

/// Starts the thread. Once this returns, SIGTERM and SIGINT no longer end the process by themselves; the receiver has the
/// first of them.
///
/// # Errors
/// The kernel's refusal of a thread, a runtime or the handlers.
pub(super) fn on_signals(clock: Clock) -> io::Result<watch::Receiver<Option<Requested>>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = watch::channel(None);
    let (ready, listening) = channel::<io::Result<Infallible>>();
    thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            let handlers = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
            let (mut terminate, mut interrupt) = match handlers {
                (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
                (Err(error), _) | (_, Err(error)) => return drop(ready.send(Err(error))),
            };
            drop(ready);
            let signal = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            stop.send_replace(Some(Requested { signal, at: clock.monotonic() }));
            sleep(LIMIT).await;
            end();
        });
    })?;
    match listening.recv() {
        Ok(Err(error)) => Err(error),
        // The sender is dropped once the handlers are there.
        _ => Ok(stopped),
    }
}

/// Ends the process. The log may be what it is stuck in, so a thread of its own writes the last line.
fn end() {
    let last_words =
        || tracing::error!("exit forced: the service did not stop within {LIMIT:?} of the signal");
    if thread::Builder::new().spawn(last_words).is_ok() {
        thread::sleep(LAST_WORDS);
    }
    usage::end_now(ENDED);
}

#[cfg(test)]
mod tests;
