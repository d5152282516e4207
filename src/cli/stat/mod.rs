//! `perf-exporter stat`: what `perf stat` does, with the engine of the service.
//!
//! ```text
//! args ─► select (events) ─┐
//!      └► subject (whom) ──┴► session ◄─ wait (time, child, signals)
//!                                └─ Reading ─► table (derive) ─► Row ─► text, machine
//! ```

mod args;
mod derive;
mod machine;
mod notes;
mod select;
mod session;
mod subject;
mod table;
mod text;
mod wait;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Resource, getrlimit};

use super::{FAILED, USAGE, fail};
use crate::clock::Clock;
use crate::event::Catalog;
use crate::health::Refusal;
use crate::host::{Facts, Roots};
use crate::sys::Kernel;
use crate::sys::live::Live;
use crate::sys::usage::{self, CpuTime};
pub(super) use args::StatArgs;
use args::{Format, Sink, Times};
use notes::Note;
use select::Selection;
use session::{Ending, Outcome, Session};
use subject::Subject;
use table::{Frame, Reading, Row, Spread, Totals};
use wait::Signals;

/// As shells have it: the command is there and cannot be executed.
const CANNOT_EXECUTE: u8 = 126;

/// As shells have it: there is no such command.
const NOT_FOUND: u8 = 127;

/// Why there is no result.
#[derive(Debug)]
enum Failure {
    /// The arguments are wrong.
    Usage(anyhow::Error),
    /// It did not work.
    Failed(anyhow::Error),
    /// No event could be opened.
    Nothing(Vec<Refusal>),
    /// The command cannot be run.
    Command { program: String, error: io::Error },
    /// The result cannot be written.
    Output(io::Error),
}

/// Counts, prints, and ends as the command ended.
pub(super) fn stat(args: &StatArgs, roots: &Roots) -> ExitCode {
    match run(args, roots, &Live) {
        Ok(ending) => end(ending),
        Err(Failure::Usage(error)) => fail(USAGE, &error),
        Err(Failure::Failed(error)) => fail(FAILED, &error),
        Err(Failure::Nothing(refusals)) => fail(FAILED, &nothing(&refusals)),
        Err(Failure::Command { program, error }) => {
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
            fail(code, &anyhow::Error::new(error).context(format!("{program} cannot be run")))
        }
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(FAILED),
        Err(Failure::Output(error)) => {
            fail(FAILED, &anyhow::Error::new(error).context("the result cannot be written"))
        }
    }
}

/// Ends as what was measured ended: with its exit code, or by its signal.
fn end(ending: Ending) -> ExitCode {
    let status = match ending {
        Ending::Done => return ExitCode::SUCCESS,
        Ending::Command(status) => status,
        Ending::Signal(number) => ExitStatus::from_raw(number.as_raw()),
    };
    let Some(number) = status.signal() else {
        return ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED));
    };
    if let Err(error) = usage::die_by_signal(number) {
        tracing::debug!("cannot end by signal {number}: {error}");
    }
    // What a shell makes of a death by a signal.
    ExitCode::from(u8::try_from(128 + number).unwrap_or(FAILED))
}

/// That nothing could be counted, and why.
fn nothing(refusals: &[Refusal]) -> anyhow::Error {
    let mut why = String::new();
    for note in notes::refused(refusals) {
        why += &format!("\n  {}\n    {}", note.events.join(", "), note.reason);
        why.extend(note.remedy.map(|remedy| format!("\n    {remedy}")));
    }
    if why.is_empty() {
        return anyhow::anyhow!("nothing was counted: what was to be counted has ended");
    }
    anyhow::anyhow!("nothing can be counted here:{why}")
}

fn run<K: Kernel>(args: &StatArgs, roots: &Roots, kernel: &K) -> Result<Ending, Failure> {
    let facts = Facts::read(roots);
    let catalog = Catalog::load(roots, &facts);
    let subject = Subject::find(&args.target().map_err(Failure::Usage)?, roots, &facts)?;
    let user_only = counts_user_space_only(&subject, &facts);
    let selection = Selection::new(&catalog, user_only, &subject.per(), &args.events())
        .map_err(|unresolved| Failure::Usage(anyhow::Error::new(unresolved).context("-e")))?;
    let cpus = if args.per_cpu() { subject.cpus() } else { Vec::new() };
    let (cgroups, times) = (subject.cgroups(), args.times());
    let frame = Frame { lines: &selection.lines, cgroups: &cgroups, cpus: &cpus, repeated: times.repeat > 1 };
    let session = Session {
        kernel,
        roots,
        facts: &facts,
        core_pmu: catalog.has_core_pmu(),
        clock: &Clock::system(),
        selection: &selection,
        subject: &subject,
        per_cpu: args.per_cpu(),
        command: args.command(),
        times,
        descriptors: getrlimit(Resource::Nofile),
    };
    let mut printer = Printer::open(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot wait for signals")
        .map_err(Failure::Failed)?;
    let command: Vec<_> = args.command().iter().map(|word| word.to_string_lossy()).collect();
    let whom = subject.describe(&command.join(" "));
    runtime.block_on(measure(&session, &frame, &mut printer, &whom))
}

/// Whether the kernel would refuse to count itself (`perf_event_paranoid` 2, no `CAP_PERFMON`). Of CPUs and cgroups it
/// refuses everything then, and says so itself.
fn counts_user_space_only(subject: &Subject, facts: &Facts) -> bool {
    let own_work = matches!(subject, Subject::Processes(_) | Subject::Threads(_) | Subject::Command);
    own_work && facts.paranoid.is_some_and(|level| level >= 2) && !facts.capabilities.perfmon()
}

/// Measures as often as was asked for, and prints.
async fn measure<K: Kernel>(
    session: &Session<'_, K>,
    frame: &Frame<'_>,
    printer: &mut Printer,
    whom: &str,
) -> Result<Ending, Failure> {
    let mut signals = Signals::catch().context("cannot catch signals").map_err(Failure::Failed)?;
    let Times { interval, repeat, .. } = session.times;
    let mut totals = Totals::default();
    let mut run = 0;
    let last = loop {
        let print = |reading: &Reading, at| {
            let rows = Totals::of(frame.lines, reading).rows(frame);
            printer.interval(&rows, at, !frame.cpus.is_empty())
        };
        let outcome = session.measure(&mut signals, print).await?;
        if let Some(reading) = &outcome.reading {
            totals.add(frame.lines, reading);
        }
        run += 1;
        if run == repeat || outcome.stopped {
            break outcome;
        }
    };
    let Outcome { reading, at, refusals, cpu, ending, .. } = last;
    let rows = totals.rows(frame);
    let mut notes = notes::refused(&refusals);
    if interval.is_none() {
        notes::add_uncounted(&mut notes, &rows, session.facts);
        let cpu = cpu.filter(|_| repeat == 1);
        printer.result(whom, &rows, &totals.elapsed, cpu).map_err(Failure::Output)?;
    } else if reading.is_some() {
        printer.interval(&rows, at, !frame.cpus.is_empty()).map_err(Failure::Output)?;
    }
    printer.notes(&notes).map_err(Failure::Output)?;
    Ok(ending)
}

/// Where and how the result is written.
struct Printer {
    out: Box<dyn Write>,
    format: Format,
    /// Whether the columns of intervals are named already.
    named: bool,
}

impl Printer {
    fn open(args: &StatArgs) -> Result<Self, Failure> {
        let out: Box<dyn Write> = match args.sink() {
            Sink::Stderr => Box::new(BufWriter::new(io::stderr())),
            Sink::Stdout => Box::new(BufWriter::new(io::stdout())),
            Sink::File(path) => {
                let file = File::create(path).with_context(|| format!("-o {}", path.display()));
                Box::new(BufWriter::new(file.map_err(Failure::Failed)?))
            }
        };
        Ok(Self { out, format: args.format(), named: false })
    }

    fn interval(&mut self, rows: &[Row], at: Duration, per_cpu: bool) -> io::Result<()> {
        if self.format == Format::Text && !self.named {
            text::interval_heading(&mut self.out, per_cpu)?;
        }
        self.named = true;
        self.rows(rows, Some(at))?;
        self.out.flush()
    }

    fn result(&mut self, whom: &str, rows: &[Row], elapsed: &Spread, cpu: Option<CpuTime>) -> io::Result<()> {
        if self.format == Format::Text {
            text::heading(&mut self.out, whom, elapsed.count())?;
        }
        self.rows(rows, None)?;
        if self.format == Format::Text {
            text::footer(&mut self.out, elapsed, cpu)?;
        }
        self.out.flush()
    }

    fn rows(&mut self, rows: &[Row], at: Option<Duration>) -> io::Result<()> {
        match &self.format {
            Format::Text => text::rows(&mut self.out, rows, at),
            Format::Csv(separator) => machine::csv(&mut self.out, rows, at, separator),
            Format::Json => machine::json(&mut self.out, rows, at),
        }
    }

    /// Ends the output. The notes are for people: the formats for programs have no place for them.
    fn notes(&mut self, notes: &[Note]) -> io::Result<()> {
        if self.format == Format::Text {
            text::notes(&mut self.out, notes)?;
            writeln!(self.out)?;
        }
        self.out.flush()
    }
}
