//! `perf-exporter stat`: the equivalent of `perf stat`, with the counters of the service.
//!
//! ```text
//! args ─► select (events) ──────────┐
//!      └► observe::Subject (target) ┴► session ◄─ observe::Wait (time, child, signals)
//!                                         └─ Reading ─► table (derive, aggregation) ─► Row ─► print (text, machine)
//! ```
//!
//! [`Summed`] counts in the same way for the display of another command.

mod aggregation;
mod args;
mod derive;
mod hardware;
mod hardware_metrics;
mod machine;
mod metric;
mod metric_list;
mod metric_table;
mod notes;
mod output;
mod print;
mod role;
mod select;
mod session;
mod summed;
mod table;
mod text;

#[cfg(test)]
mod tests;

use super::observe::notes as refusals;
use super::observe::{self, Ending, Failure, Host, Program, Signals};
use crate::sys::Kernel;
use aggregation::Parts;
pub(super) use args::StatArgs;
use args::Times;
use metric_table::MetricTable;
use print::Printer;
use select::Selection;
use session::{Around, Outcome, Session};
#[cfg(test)]
pub(super) use summed::Figure;
pub(super) use summed::{Figures, Summed};
use table::{Frame, Reading, Totals};

/// Counts, prints the result, and ends like the command.
pub(super) fn stat<K: Kernel>(args: &StatArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let subject = host.find(&args.target().map_err(Failure::Usage)?)?;
    let modes = args.modes(subject.user_space_only(host.facts()));
    let events = args.events(&host.catalog)?;
    let selection = Selection::new(&host.catalog, modes, &subject.per(), &events)
        .map_err(|unresolved| Failure::Usage(anyhow::Error::new(unresolved).context("-e")))?;
    let parts = Parts::new(args.aggregation(), &subject, host.roots, host.facts())?;
    let (cgroups, times, metrics) = (subject.cgroups(), args.times(), args.metrics());
    let of_lines = Frame::of(&selection.lines, &parts);
    let frame = Frame { cgroups: &cgroups, repeated: times.repeat > 1, metrics: &metrics, ..of_lines };
    let session = Session {
        kernel: host.kernel,
        roots: host.roots,
        facts: host.facts(),
        core_pmu: host.catalog.has_core_pmu(),
        clock: &host.clock,
        selection: &selection,
        subject: &subject,
        parts: &parts,
        program: Program::new(&args.command),
        around: Around { before: args.pre.as_deref(), after: args.post.as_deref() },
        times,
    };
    let metric_table = args.metric_only().then(|| MetricTable::new(&frame));
    let mut printer = Printer::open(&args.output_args, metric_table)?;
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
        let print = |reading: &Reading, at| printer.interval(frame, reading, at);
        let outcome = session.measure(signals, print).await?;
        run += 1;
        if let Some(reading) = &outcome.reading {
            totals.add(frame.lines, reading);
            printer.run(frame, reading, run)?;
        }
        if run == repeat || outcome.stopped {
            break outcome;
        }
    };
    let Outcome { reading, at, refusals: refused, cpu, ending, .. } = last;
    let mut notes = refusals::refused(&refused);
    if interval.is_none() {
        let rows = totals.rows(frame);
        notes::add_uncounted(&mut notes, &rows, session.facts);
        let cpu = cpu.filter(|_| repeat == 1);
        printer.result(subject_text, frame, &rows, &totals, cpu)?;
    } else if let Some(reading) = &reading {
        printer.interval(frame, reading, at)?;
    }
    printer.notes(&notes)?;
    Ok(ending)
}
