//! Events while counters run: intervals, the end of a command or of the measured processes, signals.

use std::future::{pending, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::task::{self, Poll};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal as Number, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use super::{Ending, Failure};
use crate::host;

/// Interval at which the measured processes are checked for their end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Shortest and longest duration accepted on the command line, in seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=1e7;

/// Parses a duration in seconds.
///
/// # Errors
/// Describes the expected text.
pub(in crate::cli) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| SECONDS.contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        format!("expected seconds from {} to {}, such as 10 or 0.5", SECONDS.start(), SECONDS.end())
    })
}

/// Handlers for `SIGCHLD` and the signals that end a measurement. Active while this value exists.
#[derive(Debug)]
pub(in crate::cli) struct Signals {
    /// `SIGINT`, `SIGTERM` and `SIGHUP`.
    stop: [(Number, Signal); 3],
    child: Signal,
}

impl Signals {
    /// Installs the handlers. Must be called within a runtime, before a child is started.
    ///
    /// # Errors
    /// If the kernel rejects a handler.
    pub(in crate::cli) fn catch() -> io::Result<Self> {
        let stop = [
            (Number::INT, signal(SignalKind::interrupt())?),
            (Number::TERM, signal(SignalKind::terminate())?),
            (Number::HUP, signal(SignalKind::hangup())?),
        ];
        Ok(Self { stop, child: signal(SignalKind::child())? })
    }
}

/// Runs a measurement in a runtime of its own, with signal handlers installed.
///
/// # Errors
/// If the handlers cannot be installed, or if the measurement fails.
pub(in crate::cli) fn measure<T>(
    measurement: impl AsyncFnOnce(&mut Signals) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(async {
        let mut signals = Signals::catch().context("cannot catch signals")?;
        measurement(&mut signals).await
    })
}

/// An event for the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum WaitEvent {
    /// An interval is over.
    Interval,
    /// The command, or all measured processes, ended.
    Ended,
    /// The time is over.
    TimeUp,
    /// A signal requests the end.
    Stopped(Number),
}

/// Waits for events of a measurement.
#[derive(Debug)]
pub(in crate::cli) struct Wait<'s> {
    signals: &'s mut Signals,
    child: Option<Child>,
    /// Exit status of the child.
    pub(in crate::cli) status: Option<ExitStatus>,
    /// `/proc/PID` of the measured processes, if the measurement ends with them.
    counted: Vec<PathBuf>,
    intervals: Option<Interval>,
    deadline: Option<Instant>,
    look: Interval,
    /// Whether a signal was already received, and the child was given time to end.
    interrupted: bool,
}

/// Returns an interval that ticks first after one period.
fn every(period: Duration) -> Interval {
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval
}

impl<'s> Wait<'s> {
    /// Begins to wait for the end of `child`, for the end of all `counted` (paths below `/proc`), for intervals, and for the `timeout`.
    pub(in crate::cli) fn new(
        signals: &'s mut Signals,
        child: Option<Child>,
        counted: Vec<PathBuf>,
        interval: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Self {
        let look = every(POLL_INTERVAL);
        let (intervals, deadline) = (None, None);
        let mut wait =
            Self { signals, child, status: None, counted, intervals, deadline, look, interrupted: false };
        wait.schedule(interval, timeout);
        wait
    }

    /// Replaces the intervals and the timeout. Both begin now.
    pub(in crate::cli) fn schedule(&mut self, interval: Option<Duration>, timeout: Option<Duration>) {
        self.intervals = interval.map(every);
        self.deadline = timeout.map(|timeout| Instant::now() + timeout);
    }

    /// Waits for the next event.
    ///
    /// As in perf and `time`, the first signal gives the command time to end. The terminal sends Ctrl-C to the command too; other signals
    /// are forwarded to it. The second signal ends the measurement.
    pub(in crate::cli) async fn next(&mut self) -> WaitEvent {
        loop {
            let Signals { stop, child } = &mut *self.signals;
            tokio::select! {
                _ = child.recv(), if self.child.is_some() => {
                    if self.has_ended() {
                        return WaitEvent::Ended;
                    }
                }
                number = poll_fn(|context| came(stop, context)) => {
                    if self.child.is_none() || self.interrupted {
                        return WaitEvent::Stopped(number);
                    }
                    self.interrupted = true;
                    if number != Number::INT {
                        self.send(number);
                    }
                }
                () = if_any(self.deadline.map(sleep_until)) => {
                    self.deadline = None;
                    return WaitEvent::TimeUp;
                }
                _ = if_any(self.intervals.as_mut().map(Interval::tick)) => return WaitEvent::Interval,
                _ = self.look.tick(), if !self.counted.is_empty() => {
                    if self.counted.iter().all(|path| has_ended(path)) {
                        return WaitEvent::Ended;
                    }
                }
            }
        }
    }

    /// Ends the command after the last event, if it has not ended by itself, and returns the ending of the measurement.
    pub(in crate::cli) async fn end(&mut self, happened: WaitEvent) -> Ending {
        match happened {
            WaitEvent::Ended => {}
            WaitEvent::Interval => self.for_child().await,
            WaitEvent::TimeUp => {
                self.send(Number::TERM);
                self.for_child().await;
            }
            WaitEvent::Stopped(_) => self.send(Number::TERM),
        }
        match (happened, self.status) {
            (WaitEvent::Stopped(number), _) => Ending::Signal(number),
            // The exporter itself ended the command.
            (WaitEvent::TimeUp, _) | (_, None) => Ending::Done,
            (_, Some(status)) => Ending::Command(status),
        }
    }

    /// Stops waiting for the end of the measured processes.
    pub(in crate::cli) fn forget_targets(&mut self) {
        self.counted.clear();
    }

    /// Reports whether a signal was received and the child was given time to end.
    pub(in crate::cli) fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Waits for the end of the child without a timeout. A signal kills the child.
    async fn for_child(&mut self) {
        (self.intervals, self.deadline) = (None, None);
        self.counted.clear();
        let interrupted = std::mem::replace(&mut self.interrupted, true);
        while self.child.is_some() && !self.has_ended() {
            match self.next().await {
                WaitEvent::Stopped(_) => self.send(Number::KILL),
                WaitEvent::Interval | WaitEvent::Ended | WaitEvent::TimeUp => {}
            }
        }
        self.interrupted = interrupted;
    }

    /// Sends a signal to the child, if it has not been reaped. Until then its PID cannot be reused.
    fn send(&self, number: Number) {
        let Some(child) = self.child.as_ref().filter(|_| self.status.is_none()) else { return };
        if let Err(errno) = kill_process(Pid::from_child(child), number) {
            tracing::warn!("cannot signal the command: signal {}: {errno}", number.as_raw());
        }
    }

    /// Reaps the child if it has ended, and returns whether it has.
    fn has_ended(&mut self) -> bool {
        let Some(child) = &mut self.child else { return false };
        match child.try_wait() {
            Ok(None) => return false,
            Ok(Some(status)) => self.status = Some(status),
            // Another part of the process has reaped the child, which is not expected. Its exit status is lost.
            Err(error) => tracing::warn!("cannot wait for the command: {error}"),
        }
        self.child = None;
        true
    }
}

/// Reports whether the process or thread with this directory below `/proc` has ended. A zombie without other threads has ended, even if its
/// parent has not reaped it.
fn has_ended(dir: &Path) -> bool {
    let Ok(stat) = host::read_text(&dir.join("stat")) else { return true };
    // The name before the state may contain any character, including parentheses.
    let zombie = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
    zombie && host::list(&dir.join("task")).map_or(true, |threads| threads.len() <= 1)
}

/// Polls for the first received signal.
fn came(signals: &mut [(Number, Signal)], context: &mut task::Context<'_>) -> Poll<Number> {
    let came =
        |(number, signal): &mut (Number, Signal)| signal.poll_recv(context).is_ready().then_some(*number);
    signals.iter_mut().find_map(came).map_or(Poll::Pending, Poll::Ready)
}

/// Awaits the future. Never completes without a future.
pub(in crate::cli) async fn if_any<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_zombie_has_ended_unless_other_threads_of_it_run() {
        let proc = tempfile::tempdir().unwrap();
        let process = |name: &str, stat: &str, threads: &[&str]| {
            let dir = proc.path().join(name);
            threads.iter().for_each(|thread| fs::create_dir_all(dir.join("task").join(thread)).unwrap());
            fs::write(dir.join("stat"), stat).unwrap();
            has_ended(&dir)
        };
        assert!(!process("1", "1 (init) S 0", &["1"]));
        assert!(!process("2", "2 (a) Z (b) R 1", &["2"]));
        assert!(process("3", "3 (gone) Z 1", &["3"]));
        assert!(!process("4", "4 (leader) Z 1", &["4", "5"]));
        assert!(has_ended(&proc.path().join("6")));
    }
}
