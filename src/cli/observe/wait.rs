//! What happens while counters run: time passes, a command or the processes that are counted end, a signal comes.

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

/// How often to look whether the processes that are counted are still there.
const LOOK: Duration = Duration::from_millis(100);

/// The shortest time that somebody may ask for, in seconds, and the longest.
const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=1e7;

/// For how long to look, as somebody types it.
///
/// # Errors
/// What was expected instead.
pub(in crate::cli) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| SECONDS.contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        format!("expected seconds from {} to {}, such as 10 or 0.5", SECONDS.start(), SECONDS.end())
    })
}

/// The signals that end a measurement, and the one that tells of a child. Caught as long as this lives.
#[derive(Debug)]
pub(in crate::cli) struct Signals {
    /// Those that ask to stop.
    stop: [(Number, Signal); 3],
    child: Signal,
}

impl Signals {
    /// Begins to catch them. Must be called within a runtime, before a child is started.
    ///
    /// # Errors
    /// When the kernel refuses a handler.
    pub(in crate::cli) fn catch() -> io::Result<Self> {
        let stop = [
            (Number::INT, signal(SignalKind::interrupt())?),
            (Number::TERM, signal(SignalKind::terminate())?),
            (Number::HUP, signal(SignalKind::hangup())?),
        ];
        Ok(Self { stop, child: signal(SignalKind::child())? })
    }
}

/// Runs a measurement on a runtime of its own, in which signals are caught.
///
/// # Errors
/// When signals cannot be caught, and when the measurement fails.
pub(in crate::cli) fn measure<T>(
    measurement: impl AsyncFnOnce(&mut Signals) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot wait for signals")?.block_on(async {
        let mut signals = Signals::catch().context("cannot catch signals")?;
        measurement(&mut signals).await
    })
}

/// Something for the measurement to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Happened {
    /// An interval is over.
    Interval,
    /// The command ended, or everybody who is counted.
    Ended,
    /// The time is up.
    TimeUp,
    /// Somebody asks to stop.
    Stopped(Number),
}

/// A measurement's wait for its end.
#[derive(Debug)]
pub(in crate::cli) struct Wait<'s> {
    signals: &'s mut Signals,
    child: Option<Child>,
    /// How the child ended.
    pub(in crate::cli) status: Option<ExitStatus>,
    /// `/proc/PID` of those who are counted, if the measurement ends with them.
    counted: Vec<PathBuf>,
    intervals: Option<Interval>,
    deadline: Option<Instant>,
    look: Interval,
    /// Whether a signal came already, and the child was left to end by it.
    asked: bool,
}

impl<'s> Wait<'s> {
    /// Begins to wait for `child`, for all of `counted` (paths below `/proc`) to be gone, for the end of intervals, or
    /// for the `timeout`.
    pub(in crate::cli) fn new(
        signals: &'s mut Signals,
        child: Option<Child>,
        counted: Vec<PathBuf>,
        interval: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Self {
        let now = Instant::now();
        let every = |period| {
            let mut interval = interval_at(now + period, period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
            interval
        };
        Self {
            signals,
            child,
            status: None,
            counted,
            intervals: interval.map(every),
            deadline: timeout.map(|timeout| now + timeout),
            look: every(LOOK),
            asked: false,
        }
    }

    /// Waits for the next thing.
    ///
    /// As perf and `time` do, a first signal leaves a command its time to end: Ctrl-C has reached it too, and the others
    /// are passed on to it. A second one is for us.
    pub(in crate::cli) async fn next(&mut self) -> Happened {
        loop {
            let Signals { stop, child } = &mut *self.signals;
            tokio::select! {
                _ = child.recv(), if self.child.is_some() => {
                    if self.has_ended() {
                        return Happened::Ended;
                    }
                }
                number = poll_fn(|context| came(stop, context)) => {
                    if self.child.is_none() || self.asked {
                        return Happened::Stopped(number);
                    }
                    self.asked = true;
                    if number != Number::INT {
                        self.send(number);
                    }
                }
                () = if_any(self.deadline.map(sleep_until)) => {
                    self.deadline = None;
                    return Happened::TimeUp;
                }
                _ = if_any(self.intervals.as_mut().map(Interval::tick)) => return Happened::Interval,
                _ = self.look.tick(), if !self.counted.is_empty() => {
                    if self.counted.iter().all(|path| has_ended(path)) {
                        return Happened::Ended;
                    }
                }
            }
        }
    }

    /// Ends the command after what has happened, if it has not ended by itself, and tells how all of it ended.
    pub(in crate::cli) async fn end(&mut self, happened: Happened) -> Ending {
        match happened {
            Happened::Ended => {}
            Happened::Interval => self.for_child().await,
            Happened::TimeUp => {
                self.send(Number::TERM);
                self.for_child().await;
            }
            Happened::Stopped(_) => self.send(Number::TERM),
        }
        match (happened, self.status) {
            (Happened::Stopped(number), _) => Ending::Signal(number),
            // It was we who ended it.
            (Happened::TimeUp, _) | (_, None) => Ending::Done,
            (_, Some(status)) => Ending::Command(status),
        }
    }

    /// Whether somebody has asked to stop, and the child was left to end by it.
    pub(in crate::cli) fn was_asked(&self) -> bool {
        self.asked
    }

    /// Waits for the child's end, however long it takes; a signal kills it.
    async fn for_child(&mut self) {
        (self.intervals, self.deadline) = (None, None);
        self.counted.clear();
        let asked = std::mem::replace(&mut self.asked, true);
        while self.child.is_some() && !self.has_ended() {
            match self.next().await {
                Happened::Stopped(_) => self.send(Number::KILL),
                Happened::Interval | Happened::Ended | Happened::TimeUp => {}
            }
        }
        self.asked = asked;
    }

    /// Sends the child a signal, if it has not been waited for: so the number is still its own.
    fn send(&self, number: Number) {
        let Some(child) = self.child.as_ref().filter(|_| self.status.is_none()) else { return };
        if let Err(errno) = kill_process(Pid::from_child(child), number) {
            tracing::warn!("the command cannot be sent signal {}: {errno}", number.as_raw());
        }
    }

    /// Takes notice of the child's end.
    fn has_ended(&mut self) -> bool {
        let Some(child) = &mut self.child else { return false };
        match child.try_wait() {
            Ok(None) => return false,
            Ok(Some(status)) => self.status = Some(status),
            // Somebody else has waited for it, which nobody here does: there is no status to wait for any more.
            Err(error) => tracing::warn!("the end of the command was missed: {error}"),
        }
        self.child = None;
        true
    }
}

/// Whether the process or thread with this directory below `/proc` has ended: a zombie without other threads has, though
/// its parent may not look for a long time.
fn has_ended(dir: &Path) -> bool {
    let Ok(stat) = host::read_text(&dir.join("stat")) else { return true };
    // The name before the state may hold anything, parentheses too.
    let zombie = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
    zombie && host::list(&dir.join("task")).map_or(true, |threads| threads.len() <= 1)
}

/// The first of these signals that has come.
fn came(signals: &mut [(Number, Signal)], context: &mut task::Context<'_>) -> Poll<Number> {
    let came =
        |(number, signal): &mut (Number, Signal)| signal.poll_recv(context).is_ready().then_some(*number);
    signals.iter_mut().find_map(came).map_or(Poll::Pending, Poll::Ready)
}

/// What a future gives; without one this never ends.
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
