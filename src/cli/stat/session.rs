//! One measurement: opens, starts and reads counters, waits, and stops them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use super::aggregation::Parts;
use super::args::Times;
use super::select::Selection;
use super::table::{Key, PlaceCount, Reading};
use crate::cli::observe::{Ending, Failure, Program, Signals, Subject, Wait, WaitEvent};
use crate::clock::Clock;
use crate::counter::Measurement;
use crate::error::Errno;
use crate::health::{Cause, Interval, Refusal};
use crate::host::{Facts, Roots};
use crate::sys::spawn::Waiting;
use crate::sys::usage::{self, CpuTime};
use crate::sys::{Budget, Event, Kernel};
use crate::targets::OpenTarget;

/// Inputs of a measurement.
#[derive(Debug)]
pub(super) struct Session<'a, K> {
    pub kernel: &'a K,
    pub roots: &'a Roots,
    pub facts: &'a Facts,
    pub core_pmu: bool,
    pub clock: &'a Clock,
    pub selection: &'a Selection,
    pub subject: &'a Subject,
    /// Parts of the target that are shown separately.
    pub parts: &'a Parts,
    /// Whether the target is all threads of the machine, which may end while they are counted.
    pub all_threads: bool,
    /// Whether readings keep the count of each CPU or thread, for a recording.
    pub keeps_counts: bool,
    pub program: Program<'a>,
    pub around: Around<'a>,
    pub times: Times,
}

/// Commands of a shell before and after each run of the program.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Around<'a> {
    pub before: Option<&'a OsStr>,
    pub after: Option<&'a OsStr>,
}

/// Runs a command of a shell, if there is one.
///
/// # Errors
/// If it cannot be run or fails.
fn run(option: &str, command: Option<&OsStr>) -> anyhow::Result<()> {
    let Some(command) = command else { return Ok(()) };
    let context = || format!("{option} {}", command.display());
    let status = Command::new("sh").arg("-c").arg(command).status().with_context(context)?;
    if status.success() { Ok(()) } else { Err(anyhow::anyhow!("{status}").context(context())) }
}

/// The result of a measurement.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Counts since the last interval. `None` if the measurement ended with an interval.
    pub reading: Option<Reading>,
    /// Time of the end, relative to the start.
    pub at: Duration,
    /// Reasons why events could not be opened.
    pub refusals: Vec<Refusal>,
    /// CPU time of the command and its reaped children, if it ended.
    pub cpu: Option<CpuTime>,
    /// How the measurement ended.
    pub ending: Ending,
    /// Whether a signal requested the end.
    pub stopped: bool,
}

/// The open measurements, and the reasons why other events could not be opened.
type Opened<E> = (Vec<Measurement<E>>, Vec<Refusal>);

impl<K: Kernel> Session<'_, K> {
    /// Measures once. Passes each interval to `each`, with the time of its end.
    ///
    /// # Errors
    /// If no event can be opened, the command cannot be run, or `each` fails.
    pub(super) async fn measure(
        &self,
        signals: &mut Signals,
        mut each: impl FnMut(&Reading, Duration) -> io::Result<()>,
    ) -> Result<Outcome, Failure> {
        run("--pre", self.around.before)?;
        let before = usage::children_cpu_time();
        let waiting = self.program.fork()?;
        let (mut open, refusals) = self.open(waiting.as_ref())?;
        let counts_command = matches!(self.subject, Subject::Command);
        if !counts_command && self.times.delay.is_none() {
            start(&open)?;
        }
        let mut begin = self.clock.monotonic();
        let Times { interval, interval_count, timeout, .. } = self.times;
        let counted = if self.all_threads { Vec::new() } else { self.subject.ends_with(self.roots) };
        let mut wait = self.program.start(waiting, counted, signals, interval, timeout)?;
        let mut early = self.delay(&mut wait, &open).await?;
        if self.times.delay.is_some() {
            begin = self.clock.monotonic();
        }
        let (mut last, mut intervals) = (begin, 0);
        let happened = loop {
            let happened = match early.take() {
                Some(happened) => happened,
                None => wait.next().await,
            };
            if happened != WaitEvent::Interval {
                break happened;
            }
            let now = self.clock.monotonic();
            each(&self.read(&mut open, now.since(last)), now.since(begin))?;
            last = now;
            intervals += 1;
            if interval_count == Some(intervals) {
                break happened;
            }
        };
        let end = self.clock.monotonic();
        for errno in open.iter().filter_map(|measurement| measurement.stop().err()) {
            tracing::warn!("cannot disable all counters before the last reading: {errno}");
        }
        let reading = (happened != WaitEvent::Interval).then(|| self.read(&mut open, end.since(last)));
        let ending = wait.end(happened).await;
        let cpu = wait.status.filter(|_| counts_command).map(|_| usage::children_cpu_time().since(before));
        run("--post", self.around.after)?;
        Ok(Outcome {
            reading,
            at: end.since(begin),
            refusals,
            cpu,
            ending,
            stopped: wait.was_interrupted() || matches!(happened, WaitEvent::Stopped(_)),
        })
    }

    /// Waits for the delay, if there is one, and starts the counters after it. Returns the event that ended the measurement before.
    async fn delay(
        &self,
        wait: &mut Wait<'_>,
        open: &[Measurement<K::Event>],
    ) -> Result<Option<WaitEvent>, Failure> {
        let Times { delay: Some(delay), interval, timeout, .. } = self.times else { return Ok(None) };
        wait.schedule(None, Some(delay));
        let happened = wait.next().await;
        if happened != WaitEvent::TimeUp {
            return Ok(Some(happened));
        }
        start(open)?;
        wait.schedule(interval, timeout);
        Ok(None)
    }

    /// Opens all events that can be opened: per cgroup if cgroups are shown separately, otherwise for the whole target. Returns the
    /// refusals of the other events. As perf, a command also runs if no event is selected, or none exists on this machine.
    fn open(&self, child: Option<&Waiting>) -> Result<Opened<K::Event>, Failure> {
        let mut budget = Budget::new(usage::raise_descriptor_limit(), 0, None);
        let mut targets = self.subject.open_targets(self.roots, child.map(Waiting::pid))?;
        if self.times.delay.is_some() {
            // The counters of a command must not start with its program.
            targets = targets.into_iter().map(without_start).collect();
        }
        let (kernel, facts) = (self.kernel, self.facts);
        let (open, mut refusals) =
            open_all(kernel, facts, self.core_pmu, &mut budget, self.selection, &targets);
        if self.all_threads {
            refusals.retain(|refusal| refusal.errno != Some(Errno::ESRCH));
        }
        let is_absent = |refusal: &Refusal| refusal.cause == Cause::Absent;
        let runs_anyway = child.is_some() && refusals.iter().all(is_absent);
        match open.iter().all(Measurement::is_empty) && !runs_anyway {
            true => Err(Failure::Nothing(refusals)),
            false => Ok((open, refusals)),
        }
    }

    /// Reads the counts since the last reading, which was `elapsed` ago.
    fn read(&self, open: &mut [Measurement<K::Event>], elapsed: Duration) -> Reading {
        let key = |cgroup, line, place| Key { cgroup, line, part: self.parts.of(place) };
        read_all(open, self.selection, elapsed, self.keeps_counts, key)
    }
}

fn start<E: Event>(open: &[Measurement<E>]) -> anyhow::Result<()> {
    let started = open.iter().try_for_each(Measurement::start);
    started.map_err(|errno| anyhow::anyhow!("cannot enable the counters: {errno}"))
}

/// Returns the same target with counters that start when they are enabled.
fn without_start(target: OpenTarget) -> OpenTarget {
    match target {
        OpenTarget::Command(pid) => OpenTarget::Threads(vec![pid]),
        other => other,
    }
}

/// Opens the selected events for each target. Returns one measurement per target, and the refusals of events that could not be opened.
pub(super) fn open_all<K: Kernel>(
    kernel: &K,
    facts: &Facts,
    core_pmu: bool,
    budget: &mut Budget,
    selection: &Selection,
    targets: &[OpenTarget],
) -> Opened<K::Event> {
    let (mut open, mut refusals) = (Vec::new(), selection.refusals.clone());
    for target in targets {
        let (measurement, refused) =
            Measurement::open(kernel, facts, core_pmu, budget, &selection.groups, target);
        open.push(measurement);
        refusals.extend(refused);
    }
    (open, refusals)
}

/// Reads the counts since the last reading, which was `elapsed` ago. `key` returns the key of a count from the index of its measurement,
/// its line, and its CPU or thread. Counts with equal keys are summed. With `keeps_counts`, the counts are kept too.
pub(super) fn read_all<E: Event>(
    open: &mut [Measurement<E>],
    selection: &Selection,
    elapsed: Duration,
    keeps_counts: bool,
    key: impl Fn(usize, usize, u32) -> Key,
) -> Reading {
    let mut reading = Reading { elapsed, ..Reading::default() };
    let mut places = BTreeSet::new();
    for (index, measurement) in open.iter_mut().enumerate() {
        let key = |group, counter, place| Some(key(index, selection.line_of(group, counter)?, place));
        for (group, counter, place) in measurement.counters() {
            let Some(key) = key(group, counter, place) else { continue };
            if keeps_counts {
                let (cgroup, line, interval) = (index, key.line, Interval::default());
                reading.counts.push(PlaceCount { cgroup, line, place, raw: 0, interval });
            }
            // Several instances of a PMU may count on one CPU.
            reading.sums.entry(key).or_default().places += u32::from(places.insert((key, place)));
        }
        for count in measurement.read() {
            let Some(key) = key(count.group, count.counter, count.place) else { continue };
            if keeps_counts {
                let (place, raw, interval) = (count.place, count.raw, count.interval);
                reading.counts.push(PlaceCount { cgroup: index, line: key.line, place, raw, interval });
            }
            reading.sums.entry(key).or_default().add(count.raw, count.scaled, count.interval);
        }
    }
    reading
}
