//! `perf-exporter record`: what `perf record` does together with `perf report`, `perf script` and `perf flamegraph`, with
//! the engine of the service.
//!
//! ```text
//! args ─► sample::sampler, observe::Subject ─► Sampling ◄─ observe::Wait (time, child, signals)
//!                                                 └─ Profile ─► output: pprof, folded, flame graph, page, table
//! ```
//!
//! Processes and commands have samplers of their own on every CPU, which the kernel opens for their children as well.
//! Sampling the machine and keeping what is theirs would cost as much as the machine is busy, need the right to look at
//! CPUs, and miss children whenever a record about a fork is lost.

mod args;
mod output;
mod told;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use super::observe::{Ending, Failure, Happened, Program, Signals, Subject, Wait, exit, notes};
use super::sample::{Host, Sampling, sampler};
use crate::clock::Clock;
use crate::event::Catalog;
use crate::host::{Facts, Roots};
use crate::profile::{Profile, Selection};
use crate::sys::Kernel;
use crate::sys::live::Live;
use crate::sys::spawn::Waiting;
use args::Format;
pub(super) use args::RecordArgs;
use output::{Output, encode};
use told::{Closing, progress};

/// How often it is looked at what was read so far.
const TICK: Duration = Duration::from_secs(1);

/// How far pages would look back. There are none: what is recorded is kept by itself, and this is forgotten soon.
const WINDOW: Duration = Duration::from_secs(2);

/// Records, writes, and ends as the command ended.
pub(super) fn record(args: &RecordArgs, roots: &Roots) -> ExitCode {
    exit(run(args, roots, &Live), "recorded")
}

fn run<K: Kernel>(args: &RecordArgs, roots: &Roots, kernel: &K) -> Result<Ending, Failure> {
    let (sink, format) = args.sink().map_err(Failure::Usage)?;
    let facts = Facts::read(roots);
    let catalog = Catalog::load(roots, &facts);
    let subject = Subject::find(&args.sample.whom.target(&args.command), roots, &facts)?;
    let recorder = Recorder {
        host: Host { kernel, roots, facts: &facts, clock: &Clock::system() },
        sampler: sampler(&args.sample, &subject, &catalog, WINDOW)?,
        program: Program::new(&args.command),
        subject,
        duration: args.duration,
    };
    let output = Output::find(sink, format).map_err(Failure::Failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot wait for signals")
        .map_err(Failure::Failed)?;
    let recorded = runtime.block_on(recorder.record())?;
    recorded.write(&output, format, args.title.as_deref())?;
    Ok(recorded.ending)
}

/// What is to be recorded.
struct Recorder<'a, K> {
    host: Host<'a, K>,
    sampler: crate::plan::Sampler,
    subject: Subject,
    program: Program<'a>,
    duration: Option<Duration>,
}

/// What was recorded.
struct Recorded<'a, K: Kernel> {
    profile: Profile,
    sampling: Sampling<'a, K>,
    ending: Ending,
}

impl<'a, K: Kernel> Recorder<'a, K> {
    async fn record(&self) -> Result<Recorded<'a, K>, Failure> {
        let Self { host, subject, program, .. } = self;
        let mut signals = Signals::catch().context("cannot catch signals").map_err(Failure::Failed)?;
        let child = program.fork()?;
        let pid = child.as_ref().map(Waiting::pid);
        let mut sampling = Sampling::open(*host, &self.sampler, subject, pid)?;
        let asked = sampling.ask()?;
        let begin = host.clock.monotonic();
        let child = child.map(Waiting::start).transpose().map_err(|error| program.cannot_run(error))?;
        let ends_with = if child.is_some() { Vec::new() } else { subject.ends_with(host.roots) };
        let mut wait = Wait::new(&mut signals, child, ends_with, Some(TICK), self.duration);
        // The terminal is the command's if it is what is recorded.
        let mut line = Line::on_terminal(!matches!(subject, Subject::Command));
        let happened = loop {
            match wait.next().await {
                Happened::Interval => {
                    sampling.collect();
                    line.show(&progress(host.clock.monotonic().since(begin), &sampling.losses()));
                }
                happened => break happened,
            }
        };
        let elapsed = host.clock.monotonic().since(begin);
        sampling.close();
        line.show("looking up names");
        let ending = wait.end(happened).await;
        let profile =
            sampling.asked().end(asked, &Selection::default()).map_err(|error| Failure::Failed(error.into()));
        line.clear();
        let profile = profile?;
        Ok(Recorded { profile: Profile { duration: elapsed, ..profile }, sampling, ending })
    }
}

impl<K: Kernel> Recorded<'_, K> {
    /// Writes it, and tells what was written and what is missing.
    fn write(&self, output: &Output, format: Format, title: Option<&str>) -> Result<(), Failure> {
        let bytes = encode(&self.profile, format, title).map_err(Failure::Output)?;
        output.write(&bytes).map_err(Failure::Output)?;
        let closing = Closing {
            written: (&output.name(), bytes.len()),
            profile: &self.profile,
            cpus: self.sampling.cpus(),
            throttled: self.sampling.losses().throttled,
            shortfalls: &self.sampling.shortfalls(),
        };
        self.tell(&closing).map_err(Failure::Output)
    }

    fn tell(&self, closing: &Closing<'_>) -> io::Result<()> {
        let mut out = io::stderr().lock();
        closing.lines().iter().try_for_each(|line| writeln!(out, "{line}"))?;
        self.sampling.user_space_only().iter().try_for_each(|text| writeln!(out, "  {text}"))?;
        let refused = notes::refused(&self.sampling.refusals());
        if !refused.is_empty() {
            writeln!(out, "Not recorded everywhere:")?;
        }
        notes::write(&mut out, &refused)
    }
}

/// A line that is written over and over, where somebody sees it.
struct Line {
    shown: bool,
    on: bool,
}

impl Line {
    fn on_terminal(wanted: bool) -> Self {
        Self { shown: false, on: wanted && io::stderr().is_terminal() }
    }

    fn show(&mut self, text: &str) {
        if self.on {
            // Whoever closed the terminal misses nothing.
            drop(write!(io::stderr(), "\r{text}\x1b[K"));
            self.shown = true;
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}
