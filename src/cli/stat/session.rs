//! One measurement: open, start, wait, read, stop.

use std::io;
use std::time::Duration;

use super::args::Times;
use super::select::Selection;
use super::table::{Key, Reading};
use crate::cli::observe::{Ending, Failure, Happened, Program, Signals, Subject, Wait};
use crate::clock::Clock;
use crate::counter::Measurement;
use crate::health::Refusal;
use crate::host::{Facts, Roots};
use crate::sys::Budget;
use crate::sys::spawn::Waiting;
use crate::sys::usage::{self, CpuTime};
use crate::sys::{Event, Kernel};

/// All that a measurement needs to know.
#[derive(Debug)]
pub(super) struct Session<'a, K> {
    pub kernel: &'a K,
    pub roots: &'a Roots,
    pub facts: &'a Facts,
    pub core_pmu: bool,
    pub clock: &'a Clock,
    pub selection: &'a Selection,
    pub subject: &'a Subject,
    /// Whether each CPU is shown by itself.
    pub per_cpu: bool,
    pub program: Program<'a>,
    pub times: Times,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What was counted since the last interval; `None` if the last interval was the end.
    pub reading: Option<Reading>,
    /// When it ended, as the time since its start.
    pub at: Duration,
    /// Why events could not be opened.
    pub refusals: Vec<Refusal>,
    /// The CPU time of the command that was counted and of what it waited for, if it ended.
    pub cpu: Option<CpuTime>,
    /// How it ended.
    pub ending: Ending,
    /// Whether somebody asked to stop.
    pub stopped: bool,
}

impl<K: Kernel> Session<'_, K> {
    /// Measures once; hands over each interval with the time of its end.
    ///
    /// # Errors
    /// When nothing can be counted, the command cannot be run, or `each` fails.
    pub(super) async fn measure(
        &self,
        signals: &mut Signals,
        mut each: impl FnMut(&Reading, Duration) -> io::Result<()>,
    ) -> Result<Outcome, Failure> {
        let before = usage::children_cpu_time();
        let waiting = self.program.fork()?;
        let mut open = self.open(waiting.as_ref().map(Waiting::pid))?;
        let counts_command = matches!(self.subject, Subject::Command);
        if !counts_command {
            open.start()
                .map_err(|errno| Failure::Failed(anyhow::anyhow!("the counters do not start: {errno}")))?;
        }
        let begin = self.clock.monotonic();
        let child =
            waiting.map(Waiting::start).transpose().map_err(|error| self.program.cannot_run(error))?;
        let ends_with = if child.is_some() { Vec::new() } else { self.subject.ends_with(self.roots) };
        let mut wait = Wait::new(signals, child, ends_with, self.times.interval, self.times.timeout);
        let (mut last, mut intervals) = (begin, 0);
        let happened = loop {
            let happened = wait.next().await;
            if happened != Happened::Interval {
                break happened;
            }
            let now = self.clock.monotonic();
            each(&open.read(self, now.since(last)), now.since(begin)).map_err(Failure::Output)?;
            last = now;
            intervals += 1;
            if self.times.interval_count == Some(intervals) {
                break happened;
            }
        };
        let end = self.clock.monotonic();
        open.stop();
        let reading = (happened != Happened::Interval).then(|| open.read(self, end.since(last)));
        let ending = wait.end(happened).await;
        Ok(Outcome {
            reading,
            at: end.since(begin),
            refusals: open.refusals,
            cpu: wait.status.filter(|_| counts_command).map(|_| usage::children_cpu_time().since(before)),
            ending,
            stopped: wait.was_asked() || matches!(happened, Happened::Stopped(_)),
        })
    }

    /// Opens everything that can be opened.
    fn open(&self, child: Option<u32>) -> Result<Open<K::Event>, Failure> {
        let mut budget = Budget::new(usage::raise_descriptor_limit(), 0, None);
        let mut open = Open { measurements: Vec::new(), refusals: self.selection.refusals.clone() };
        let whom = self.subject.whom(self.roots, child).map_err(Failure::Failed)?;
        for whom in &whom {
            let groups = &self.selection.groups;
            let (measurement, refusals) =
                Measurement::open(self.kernel, self.facts, self.core_pmu, &mut budget, groups, whom);
            open.measurements.push(measurement);
            open.refusals.extend(refusals);
        }
        match open.measurements.iter().all(Measurement::is_empty) {
            true => Err(Failure::Nothing(open.refusals)),
            false => Ok(open),
        }
    }
}

/// What is open: for each cgroup that is shown by itself, or for all that is counted.
struct Open<E> {
    measurements: Vec<Measurement<E>>,
    refusals: Vec<Refusal>,
}

impl<E: Event> Open<E> {
    fn start(&self) -> Result<(), crate::error::Errno> {
        self.measurements.iter().try_for_each(Measurement::start)
    }

    fn stop(&self) {
        for measurement in &self.measurements {
            if let Err(errno) = measurement.stop() {
                tracing::warn!("some counters ran on while others were read: {errno}");
            }
        }
    }

    /// What was counted since the last reading, which is `elapsed` ago.
    fn read<K>(&mut self, session: &Session<'_, K>, elapsed: Duration) -> Reading {
        let mut reading = Reading { elapsed, ..Reading::default() };
        for (cgroup, measurement) in self.measurements.iter_mut().enumerate() {
            let key = |group, counter, place| {
                let line = session.selection.line_of(group, counter)?;
                Some(Key { cgroup, line, cpu: session.per_cpu.then_some(place) })
            };
            for (group, counter, place) in measurement.counters() {
                reading.sums.extend(key(group, counter, place).map(|key| (key, Default::default())));
            }
            for count in measurement.read() {
                let Some(key) = key(count.group, count.counter, count.place) else { continue };
                reading.sums.entry(key).or_default().add(count.scaled, count.interval);
            }
        }
        reading
    }
}
