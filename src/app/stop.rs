//! Shutdown of the service: SIGTERM and SIGINT, and time limits for an orderly shutdown.
//!
//! Signals are handled on a thread of their own, independent of the server's thread. From the first signal on, this thread also monitors
//! the shutdown. If the process still runs after [`LIMIT`], it is ended.

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

/// Time from the first signal until the process is ended forcibly. Service managers and users wait for about 5 s.
const LIMIT: Duration = Duration::from_millis(4500);

/// Time from the first signal until the push thread is no longer waited for.
pub(super) const PUSHED: Duration = Duration::from_millis(3000);

/// Time from the first signal until the collection thread is no longer waited for. A read in `/proc` can block while the process that it
/// describes is stuck in the kernel.
pub(super) const COLLECTED: Duration = Duration::from_millis(3500);

/// Time from the first signal until the history thread is no longer waited for. It writes what was learned, and a disk can hang.
pub(super) const RECORDED: Duration = Duration::from_millis(4000);

/// Maximum time to write the last log line.
const LAST_LOG_TIMEOUT: Duration = Duration::from_millis(100);

/// Exit code of a forced exit.
const ENDED: i32 = 1;

/// A signal to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Requested {
    /// Name of the signal.
    pub(super) signal: &'static str,
    /// Time of the signal.
    pub(super) at: Monotonic,
}

impl Requested {
    /// Returns the remaining part of `limit` since the signal.
    pub(super) fn left_of(self, limit: Duration, clock: &Clock) -> Duration {
        limit.saturating_sub(clock.monotonic().since(self.at))
    }
}

/// Starts the signal thread. When this function returns, SIGTERM and SIGINT no longer end the process by default. The receiver contains the
/// first signal.
///
/// # Errors
/// If the kernel rejects a thread, a runtime or the handlers.
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
        // The sender is dropped after the handlers are installed.
        _ => Ok(stopped),
    }
}

/// Ends the process. Logging may be what blocks, therefore a separate thread writes the last line.
fn end() {
    let last_words =
        || tracing::error!("exit forced: the service did not stop within {LIMIT:?} of the signal");
    if thread::Builder::new().spawn(last_words).is_ok() {
        thread::sleep(LAST_LOG_TIMEOUT);
    }
    usage::end_now(ENDED);
}

#[cfg(test)]
mod tests;
