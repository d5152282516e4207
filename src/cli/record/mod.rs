//! `perf-exporter record`: combines `perf record`, `perf report`, `perf script` and `perf flamegraph`, with the profiler of the service.
//!
//! ```text
//! args ─► sample::sampler, observe::Subject ─► Sampling ◄─ observe::Wait (time, child, signals)
//!                                           │     └─ Profile ─► output: pprof, folded, flame graph, page, table
//!                                           └► perf_data: records as they are
//! ```
//!
//! Processes and commands have samplers of their own on every CPU, which the kernel also opens for their children. The alternative is to
//! sample the whole machine and filter. It would cost as much as the machine is busy, require privileges for CPU-wide events, and miss
//! children when a fork record is lost.

mod args;
pub(super) mod output;
mod perf_data;
mod summary;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use super::observe::{Ending, Failure, Host, Program, Subject, WaitEvent, measure, notes};
use super::sample::{Sampling, lowered, sampler};
use crate::export::flamegraph::nothing;
use crate::plan::Sampler;
use crate::profile::{Profile, Selection};
use crate::sys::Kernel;
use crate::sys::spawn::Waiting;
use args::Format;
pub(super) use args::RecordArgs;
pub(super) use output::write_comparison;
use output::{Output, encode};
pub(super) use perf_data::FileRecording;
#[cfg(test)]
pub(super) use perf_data::attr;
use summary::{Closing, PREFIX, progress};

/// Interval at which samples are read.
const TICK: Duration = Duration::from_secs(1);

/// Shortest possible window of the profiler. The recording keeps its own samples, and there are no pages that use the window.
const WINDOW: Duration = Duration::from_secs(2);

/// Records, writes the profile, and ends like the command.
pub(super) fn record<K: Kernel>(args: &RecordArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let format = args.format().map_err(Failure::Usage)?;
    let subject = host.find(&args.sample.target_args.target(&args.command))?;
    let sampler = sampler(&args.sample, &subject, &host.catalog, WINDOW)?;
    let output = Output::find(args.output(), format)?;
    if let Some(text) = lowered(&args.sample, &subject, host.facts()) {
        writeln!(io::stderr(), "{PREFIX} {text} ]")?;
    }
    if format == Format::PerfData {
        let RecordArgs { command, duration, compress, .. } = args;
        let recording = FileRecording { command, duration: *duration, compress: *compress };
        return perf_data::record(recording, &output, host, &subject, &sampler);
    }
    let (program, clock) = (Program::new(&args.command), &host.clock);
    measure(async |signals| {
        let child = program.fork()?;
        let mut sampling = Sampling::open(host, &sampler, &subject, child.as_ref().map(Waiting::pid))?;
        let recording = sampling.begin()?;
        let begin = clock.monotonic();
        let mut wait =
            program.start(child, subject.ends_with(host.roots), signals, Some(TICK), args.duration)?;
        // While a command is recorded, the terminal belongs to the command.
        let mut line = Line::on_terminal(!matches!(subject, Subject::Command));
        let happened = loop {
            match wait.next().await {
                WaitEvent::Interval => {
                    sampling.profiler.collect();
                    line.show(&progress(clock.monotonic().since(begin), &sampling.profiler.losses(), None));
                }
                happened => break happened,
            }
        };
        let duration = clock.monotonic().since(begin);
        sampling.close();
        line.show("resolving symbols");
        let ending = wait.end(happened).await;
        let profile = sampling.recorder.end(recording, &Selection::default()).map_err(anyhow::Error::from);
        line.clear();
        let profile = Profile { duration, ..profile? };
        let bytes = encode(&profile, format, args.title.as_deref())?;
        output.write(&bytes)?;
        report_written(&profile, &sampling, (&output.name(), bytes.len()))?;
        Ok(ending)
    })
}

/// Records memory accesses or other samples into a file of perf at `path`, and ends like the command.
pub(super) fn record_file<K: Kernel>(
    path: &Path,
    recording: FileRecording<'_>,
    host: &Host<'_, K>,
    subject: &Subject,
    sampler: &Sampler,
) -> Result<Ending, Failure> {
    let output = Output::find(path, Format::PerfData)?;
    perf_data::record(recording, &output, host, subject, sampler)
}

/// Reports on standard error what was written, its size, and what is missing. `written` is a name and a size in bytes.
fn report_written<K: Kernel>(
    profile: &Profile,
    sampling: &Sampling<'_, K>,
    written: (&str, usize),
) -> io::Result<()> {
    let Sampling { profiler, on: cpus, .. } = sampling;
    let (throttled, shortfalls) = (profiler.losses().throttled, &profiler.shortfalls());
    let closing = Closing {
        written: (written.0, written.1 as u64),
        taken: profile.taken(),
        duration: profile.duration,
        nothing: &nothing(profile, 0),
        lost: &profile.lost,
        cpus: *cpus,
        throttled,
        shortfalls,
    };
    let mut out = io::stderr().lock();
    closing.lines().iter().try_for_each(|line| writeln!(out, "{line}"))?;
    sampling.user_space_only().iter().try_for_each(|text| writeln!(out, "  {text}"))?;
    notes::write_refused(&mut out, "recorded", &sampling.refusals())
}

/// A progress line on a terminal that is overwritten at each update.
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
            // A closed terminal is not an error.
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
