//! `perf-exporter stat`: the equivalent of `perf stat`, with the counters of the service.
//!
//! ```text
//! args ─► select (events) ──────────┐
//!      └► observe::Subject (target) ┴► session ◄─ observe::Wait (time, child, signals)
//!                                         └─ Reading ─► table (derive) ─► Row ─► text, machine
//! ```
//!
//! [`Summed`] counts in the same way for the display of another command.

mod args;
mod derive;
mod machine;
mod notes;
mod select;
mod session;
mod summed;
mod table;
mod text;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use anyhow::Context;

use super::observe::notes::{self as refusals, Note};
use super::observe::{self, Ending, Failure, Host, Mean, Program, Signals};
use crate::sys::Kernel;
use crate::sys::usage::CpuTime;
pub(super) use args::StatArgs;
use args::{Format, Sink, Times};
use select::Selection;
use session::{Around, Outcome, Session};
#[cfg(test)]
pub(super) use summed::Figure;
pub(super) use summed::{Figures, Summed};
use table::{Frame, Reading, Row, Totals};

/// Counts, prints the result, and ends like the command.
pub(super) fn stat<K: Kernel>(args: &StatArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let subject = host.find(&args.target().map_err(Failure::Usage)?)?;
    let user_only = args.all_user || subject.user_space_only(host.facts());
    let selection = Selection::new(&host.catalog, user_only, &subject.per(), &args.events())
        .map_err(|unresolved| Failure::Usage(anyhow::Error::new(unresolved).context("-e")))?;
    let cpus: Vec<u32> = subject.event_cpus(host.facts()).iter().filter(|_| args.no_aggr).collect();
    let (cgroups, times) = (subject.cgroups(), args.times());
    let frame = Frame { lines: &selection.lines, cgroups: &cgroups, cpus: &cpus, repeated: times.repeat > 1 };
    let session = Session {
        kernel: host.kernel,
        roots: host.roots,
        facts: host.facts(),
        core_pmu: host.catalog.has_core_pmu(),
        clock: &host.clock,
        selection: &selection,
        subject: &subject,
        per_cpu: args.no_aggr,
        program: Program::new(&args.command),
        around: Around { before: args.pre.as_deref(), after: args.post.as_deref() },
        times,
    };
    let mut printer = Printer::open(args)?;
    let subject_text = subject.describe(&session.program.shown());
    observe::measure(async |signals| measure(&session, &frame, &mut printer, &subject_text, signals).await)
}

/// Runs the requested number of measurements and prints the results.
async fn measure<K: Kernel>(
    session: &Session<'_, K>,
    frame: &Frame<'_>,
    printer: &mut Printer,
    subject_text: &str,
    signals: &mut Signals,
) -> Result<Ending, Failure> {
    let Times { interval, repeat, .. } = session.times;
    let mut totals = Totals::default();
    let mut run = 0;
    let last = loop {
        let print = |reading: &Reading, at| {
            let rows = Totals::of(frame.lines, reading).rows(frame);
            printer.interval(&rows, at, !frame.cpus.is_empty())
        };
        let outcome = session.measure(signals, print).await?;
        if let Some(reading) = &outcome.reading {
            totals.add(frame.lines, reading);
        }
        run += 1;
        if run == repeat || outcome.stopped {
            break outcome;
        }
    };
    let Outcome { reading, at, refusals: refused, cpu, ending, .. } = last;
    let rows = totals.rows(frame);
    let mut notes = refusals::refused(&refused);
    if interval.is_none() {
        notes::add_uncounted(&mut notes, &rows, session.facts);
        let cpu = cpu.filter(|_| repeat == 1);
        printer.result(subject_text, &rows, &totals.elapsed, cpu)?;
    } else if reading.is_some() {
        printer.interval(&rows, at, !frame.cpus.is_empty())?;
    }
    printer.notes(&notes)?;
    Ok(ending)
}

/// Writes results in the selected format to the selected destination.
struct Printer {
    out: Box<dyn Write>,
    format: Format,
    /// Whether the column heading of intervals was already written.
    named: bool,
}

impl Printer {
    fn open(args: &StatArgs) -> Result<Self, Failure> {
        let out: Box<dyn Write> = match args.sink() {
            Sink::Stderr => Box::new(BufWriter::new(io::stderr())),
            Sink::Stdout => Box::new(BufWriter::new(io::stdout())),
            Sink::File { path, append } => {
                let mut options = File::options();
                options.create(true).write(true).append(append).truncate(!append);
                let file = options.open(path).with_context(|| format!("-o {}", path.display()))?;
                Box::new(BufWriter::new(file))
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

    fn result(
        &mut self,
        subject_text: &str,
        rows: &[Row],
        elapsed: &Mean,
        cpu: Option<CpuTime>,
    ) -> io::Result<()> {
        if self.format == Format::Text {
            text::heading(&mut self.out, subject_text, elapsed.count)?;
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

    /// Ends the output. Notes are only written as text: the formats of perf for programs have no field for them.
    fn notes(&mut self, notes: &[Note]) -> io::Result<()> {
        if self.format == Format::Text {
            text::notes(&mut self.out, notes)?;
            writeln!(self.out)?;
        }
        self.out.flush()
    }
}
