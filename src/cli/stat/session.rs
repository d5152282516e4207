//! One measurement from start to end: opens, runs the command, waits, reads, prints.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::print::{self, Frame, Style};
use super::table::{Aggregate, Asked, Row, add_up, mean, mean_and_deviation, rows};
use crate::clock::{Clock, Monotonic};
use crate::counter::{Budget, Count, Measurement, Whom};
use crate::health::Refusal;
use crate::host::{Facts, Roots};
use crate::plan::Group;
use crate::sys::live::{Live, LiveEvent};
use crate::sys::spawn::Waiting;
use crate::sys::usage;

/// How often it is looked whether the processes of `-p` still run.
const LOOK: Duration = Duration::from_millis(50);

/// A measurement that is ready to begin.
pub(super) struct Session {
    /// Whom to count besides the command, and what their rows are called.
    pub(super) whom: Vec<(Option<String>, Whom)>,
    /// The command; may be empty.
    pub(super) command: Vec<String>,
    /// Whether it is the command that is counted.
    pub(super) alone: bool,
    pub(super) asked: Vec<Asked>,
    pub(super) groups: Vec<Arc<Group>>,
    pub(super) refusals: Vec<Refusal>,
    pub(super) core_pmu_present: bool,
    pub(super) facts: Facts,
    pub(super) roots: Roots,
    /// The processes and threads at whose end the measurement ends.
    pub(super) pids: Vec<u32>,
    pub(super) title: String,
    pub(super) aggregate: Aggregate,
    pub(super) interval: Option<Duration>,
    pub(super) interval_count: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) repeat: u32,
    pub(super) style: Style,
    pub(super) out: Box<dyn Write>,
}

/// How a measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The command did, with this exit code; 128 and the number of a signal that killed it.
    Command(u8),
    /// There was no command.
    ByItself,
    /// No event could be opened.
    NothingCounted,
}

/// The command is not a program that can be run.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {program}: {error}")]
pub(super) struct NotExecuted {
    program: String,
    error: io::Error,
}

impl NotExecuted {
    /// The exit codes of a shell: 127 for a program that is not there, 126 for one that cannot be run.
    pub(super) fn exit_code(&self) -> u8 {
        if self.error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

/// What is open, and under which name its rows go.
type Open = Vec<(Option<String>, Measurement<LiveEvent>)>;

/// What one run came to.
struct Run {
    rows: Vec<Row>,
    elapsed: Duration,
    ended: Ended,
    /// Ctrl-C, or SIGTERM: no further run.
    interrupted: bool,
}

impl Session {
    /// Measures as often as it was asked for, and prints.
    pub(super) fn run(mut self) -> anyhow::Result<Ended> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot wait for signals")?;
        let used_before = usage::children_time();
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..self.repeat {
            let run = runtime.block_on(self.once())?;
            let stop = run.interrupted;
            runs.push(run);
            if stop {
                break;
            }
        }
        let last = runs.last().map_or(Ended::ByItself, |run| run.ended);
        if self.interval.is_none() {
            self.print(&runs, used_before)?;
        } else if self.style == Style::Text {
            print::reasons(&mut self.out, &self.refusals)?;
        }
        self.out.flush().context("cannot write the result")?;
        let counted =
            runs.iter().flat_map(|run| &run.rows).any(|row| row.value != super::table::Value::NotSupported);
        Ok(match last {
            Ended::ByItself if !counted => Ended::NothingCounted,
            last => last,
        })
    }

    fn print(&mut self, runs: &[Run], used_before: (Duration, Duration)) -> anyhow::Result<()> {
        let elapsed: Vec<f64> = runs.iter().map(|run| run.elapsed.as_secs_f64()).collect();
        let (average, deviation) = mean_and_deviation(&elapsed);
        let rows = match runs {
            [run] => run.rows.clone(),
            runs => mean(&runs.iter().map(|run| run.rows.clone()).collect::<Vec<_>>()),
        };
        let used = (!self.command.is_empty() && runs.len() == 1).then(|| {
            let (user, system) = usage::children_time();
            (user.saturating_sub(used_before.0), system.saturating_sub(used_before.1))
        });
        let frame = Frame {
            title: &self.title,
            runs: runs.len(),
            elapsed: (Duration::from_secs_f64(average), Duration::from_secs_f64(deviation)),
            used,
            refusals: &self.refusals,
        };
        print::whole(&mut self.out, &self.style, &rows, &frame).context("cannot write the result")
    }

    /// One run.
    async fn once(&mut self) -> anyhow::Result<Run> {
        let clock = Clock::system();
        let waiting = match &self.command[..] {
            [] => None,
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments);
                Some(Waiting::fork(command).with_context(|| format!("cannot start {program}"))?)
            }
        };
        let mut open = self.open(waiting.as_ref().map(Waiting::pid));
        for (_, measurement) in open.iter().filter(|_| !self.alone) {
            measurement.start().context("cannot start the counters")?;
        }
        let start = clock.monotonic();
        let child = match waiting.map(Waiting::start) {
            None => None,
            Some(Ok(child)) => Some(child),
            Some(Err(error)) => {
                let program = self.command.first().cloned().unwrap_or_default();
                return Err(NotExecuted { program, error }.into());
            }
        };
        let (ended, interrupted) = self.wait(child, &mut open, &clock, start).await?;
        for (_, measurement) in &open {
            measurement.stop().context("cannot stop the counters")?;
        }
        let elapsed = clock.monotonic().since(start);
        let rows = if self.interval.is_some() { Vec::new() } else { self.read(&mut open, elapsed) };
        Ok(Run { rows, elapsed, ended, interrupted })
    }

    /// Opens for everybody. What is refused is kept once.
    fn open(&mut self, command: Option<u32>) -> Open {
        let mut budget = Budget::new(usage::raise_descriptor_limit(), 0, None);
        let command = command.filter(|_| self.alone).map(|pid| (None, Whom::Command(pid)));
        let mut open = Open::new();
        for (name, whom) in
            self.whom.iter().map(|(name, whom)| (name, whom)).chain(command.iter().map(|(n, w)| (n, w)))
        {
            let (measurement, refusals) =
                Measurement::open(&Live, &self.facts, self.core_pmu_present, &mut budget, &self.groups, whom);
            for refusal in refusals {
                let same = |known: &Refusal| known.event == refusal.event && known.reason == refusal.reason;
                if !self.refusals.iter().any(same) {
                    self.refusals.push(refusal);
                }
            }
            open.push((name.clone(), measurement));
        }
        open
    }

    /// Waits until the command, the processes, the time or the user's patience ends, printing intervals meanwhile.
    async fn wait(
        &mut self,
        child: Option<Child>,
        open: &mut Open,
        clock: &Clock,
        start: Monotonic,
    ) -> anyhow::Result<(Ended, bool)> {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        let mut exited = child.map(|mut child| tokio::task::spawn_blocking(move || child.wait()));
        let mut ticks = interval(self.interval.unwrap_or(LOOK));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await;
        let patience = sleep(self.timeout.unwrap_or(Duration::MAX));
        tokio::pin!(patience);
        let (mut printed, mut last) = (0, start);
        let outcome = loop {
            let command = async {
                match &mut exited {
                    Some(exited) => exited.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                status = command => {
                    let status = status.context("cannot wait for the command")?.context("cannot wait for the command")?;
                    break (Ended::Command(code(status)), false);
                }
                _ = interrupt.recv() => break (self.without_command(), true),
                _ = terminate.recv() => break (self.without_command(), true),
                () = &mut patience => break (self.without_command(), true),
                _ = ticks.tick() => {
                    if self.interval.is_some() {
                        self.print_interval(open, clock.monotonic(), &mut last, start, printed == 0)?;
                        printed += 1;
                    }
                    if self.interval_count.is_some_and(|count| printed >= count) || self.all_gone() {
                        break (self.without_command(), true);
                    }
                }
            }
        };
        if self.interval.is_some() && self.interval_count.is_none_or(|count| printed < count) {
            self.print_interval(open, clock.monotonic(), &mut last, start, printed == 0)?;
        }
        Ok(outcome)
    }

    /// How it ends when the command goes on, or there is none.
    fn without_command(&self) -> Ended {
        if self.command.is_empty() { Ended::ByItself } else { Ended::Command(0) }
    }

    fn print_interval(
        &mut self,
        open: &mut Open,
        now: Monotonic,
        last: &mut Monotonic,
        start: Monotonic,
        first: bool,
    ) -> anyhow::Result<()> {
        let rows = self.read(open, now.since(*last));
        *last = now;
        print::interval(&mut self.out, &self.style, &rows, now.since(start), first)
            .and_then(|()| self.out.flush())
            .context("cannot write the result")
    }

    /// What was counted since the last reading.
    fn read(&self, open: &mut Open, elapsed: Duration) -> Vec<Row> {
        let name_of = |count: &Count| {
            let counter = self.groups.get(count.group)?.counters.get(count.counter)?;
            Some(Arc::clone(&counter.event.name))
        };
        let of = |(name, measurement): &mut (Option<String>, Measurement<LiveEvent>)| {
            let sums = add_up(&measurement.read(), self.aggregate, name_of);
            rows(&self.asked, &sums, name.as_deref(), elapsed)
        };
        open.iter_mut().flat_map(of).collect()
    }

    /// Whether all processes of `-p` have ended. A zombie counts nothing any more.
    fn all_gone(&self) -> bool {
        let runs = |pid: &u32| {
            let stat = crate::host::read_text(&self.roots.proc.join(pid.to_string()).join("stat"));
            stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
        };
        !self.pids.is_empty() && !self.pids.iter().any(runs)
    }
}

/// The exit code that passes on how a command ended.
fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        (None, None) => u8::MAX,
    }
}
