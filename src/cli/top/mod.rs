//! `perf-exporter top`: the equivalent of `perf top`, with the profiler of the service.
//!
//! ```text
//! sample::Sampling ─► source (profiles, in a thread) ─► samples (tables) ─┐
//! stat::Summed ─► counters (of the target or the selected row) ───────────┴► state ─► draw ─► Screen
//! Screen (keys) ─────────────────────────────────────────────────────────────┘
//! ```
//!
//! Without a terminal, `batch` prints each profile as a table.

mod args;
mod batch;
mod counters;
mod draw;
mod samples;
mod source;
mod state;

use std::sync::Arc;

use anyhow::Context;
use tokio::time::{Instant, sleep_until};

use super::observe::{Ending, Failure, Host, Signals, Subject, Wait, WaitEvent, if_any, measure, notes};
use super::sample::{Sampling, sampler};
use super::terminal::{Input, Screen};
use crate::config::profiled::{Rate, Unwind};
use crate::sys::Kernel;
pub(super) use args::TopArgs;
use counters::Counters;
use draw::draw;
use source::{Source, SourceThread};
use state::{Settings, Standing, State};

/// Shows tables until the user quits.
pub(super) fn top<K: Kernel>(args: &TopArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let subject = host.find(&args.sample.target_args.target(&[]))?;
    let window = if args.zero { args.delay() } else { args.window() };
    let sampler = sampler(&args.sample, &subject, &host.catalog, window)?;
    measure(async |signals| {
        let mut sampling = Sampling::open(host, &sampler, &subject, None)?;
        let screen = if args.batch { None } else { Screen::take().context("cannot set up the terminal")? };
        let (recorder, entry) = (Arc::clone(&sampling.recorder), Arc::clone(&sampling.sampler.entry));
        let source = Source::new(recorder, entry, args.window(), args.zero)?;
        let ends = subject.ends_with(host.roots);
        match screen {
            None => {
                let mut wait = Wait::new(signals, None, ends, Some(args.delay()), None);
                batch::run(args, &mut sampling, source, &mut wait).await
            }
            Some(screen) => interact(args, host, &subject, sampling, source, screen, signals).await,
        }
    })
}

/// Shows tables on the screen and answers keys.
async fn interact<K: Kernel>(
    args: &TopArgs,
    host: &Host<'_, K>,
    subject: &Subject,
    sampling: Sampling<'_, K>,
    source: Source,
    screen: Screen,
    signals: &mut Signals,
) -> Result<Ending, Failure> {
    let subject_text = subject_text(subject);
    let state = State::new(settings(args, &sampling, &subject_text), args.delay());
    let counters = Counters::open(host, subject, &subject_text, sampling.budget());
    let display = Display {
        iterations: args.iterations,
        sampling,
        source: SourceThread::start(source)?,
        counters,
        screen,
        state,
        tables: 0,
        next: Instant::now() + args.delay(),
    };
    display.run(Wait::new(signals, None, subject.ends_with(host.roots), None, None)).await
}

/// Describes the target.
fn subject_text(subject: &Subject) -> String {
    let list = |what: &str, plural: &str, ids: &[u32]| match ids {
        [one] => format!("{what} {one}"),
        several => format!("{plural} {}", several.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
    };
    match (subject, &subject.cgroups()[..]) {
        (Subject::Machine { chosen: false, .. }, _) => "whole machine".to_owned(),
        (Subject::Processes(pids), _) => list("process", "processes", pids),
        (Subject::Threads(tids), _) => list("thread", "threads", tids),
        (Subject::Cgroups { .. }, [one]) => format!("cgroup {one}"),
        (Subject::Cgroups { .. }, several) => format!("cgroups {}", several.join(",")),
        (Subject::Machine { cpus, .. }, _) => format!("CPUs {cpus}"),
        (Subject::Command, _) => subject.describe(""),
    }
}

fn settings<K: Kernel>(args: &TopArgs, sampling: &Sampling<'_, K>, subject_text: &str) -> Settings {
    let Sampling { sampler, on, .. } = sampling;
    let event = sampler.events.first().map_or("", |event| &*event.name);
    let rate = match sampler.rate {
        Rate::Frequency(frequency) => format!("{frequency} Hz"),
        Rate::Period(_) => sampler.rate.to_string(),
    };
    Settings {
        heading: format!("{subject_text} on {on} CPUs; {event}, {rate}"),
        unsampled: unsampled(sampling),
        chains: sampler.unwind != Unwind::Nothing,
        limit: args.limit(),
    }
}

/// Returns in one line what is not sampled.
fn unsampled<K: Kernel>(sampling: &Sampling<'_, K>) -> Option<String> {
    let refused = notes::refused(&sampling.refusals()).into_iter();
    let refused = refused.map(|note| format!("not sampled on some targets: {}", note.reason));
    let texts: Vec<String> =
        sampling.user_space_only().map(str::to_owned).into_iter().chain(refused).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// The interactive display.
struct Display<'a, K: Kernel> {
    /// Number of tables after which the display ends.
    iterations: Option<u64>,
    sampling: Sampling<'a, K>,
    source: SourceThread,
    counters: Counters<'a, K>,
    screen: Screen,
    state: State,
    /// Number of tables shown.
    tables: u64,
    /// Time of the next table.
    next: Instant,
}

impl<K: Kernel> Display<'_, K> {
    async fn run(mut self, mut wait: Wait<'_>) -> Result<Ending, Failure> {
        loop {
            self.screen.show(|frame| draw(&mut self.state, frame))?;
            let live = self.state.standing() != Standing::Ended;
            tokio::select! {
                happened = wait.next() => match happened {
                    WaitEvent::Stopped(number) => return Ok(Ending::of_view(number)),
                    WaitEvent::Ended => {
                        wait.forget_targets();
                        self.state.end();
                        self.tick();
                    }
                    WaitEvent::TimeUp | WaitEvent::Interval => {}
                },
                input = self.screen.input() => {
                    // Without a terminal, nothing can be shown.
                    let Some(input) = input else { return Ok(Ending::Done) };
                    if !self.apply(input).await? {
                        return Ok(Ending::Done);
                    }
                }
                samples = self.source.made() => {
                    self.state.show(samples?);
                    self.tables += u64::from(self.state.standing() != Standing::Paused);
                    if self.iterations == Some(self.tables) {
                        return Ok(Ending::Done);
                    }
                }
                () = if_any(live.then(|| sleep_until(self.next))) => self.tick(),
            }
        }
    }

    /// Ends an interval: requests the next table, and reads the counters.
    fn tick(&mut self) {
        self.sampling.profiler.collect();
        match self.state.standing() {
            Standing::Paused => self.source.skip(),
            Standing::Live | Standing::Ended => self.source.request(),
        }
        let counted = self.counters.read();
        self.state.count(counted);
        self.counters.select(self.state.scope());
        self.next = Instant::now() + self.state.delay();
    }

    /// Applies an input and those that have arrived already. Returns whether the display goes on.
    async fn apply(&mut self, input: Input) -> Result<bool, Failure> {
        let delay = self.state.delay();
        let goes_on = self.screen.apply(input, |key| self.state.press(key)).await?;
        if self.state.delay() != delay {
            self.next = self.next - delay + self.state.delay();
        }
        Ok(goes_on)
    }
}
