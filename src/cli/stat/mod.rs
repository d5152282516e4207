//! `perf-exporter stat`: the equivalent of `perf stat`, with the counters of the service.
//!
//! ```text
//! args ─► select (events) ──────────┐
//!      └► observe::Subject (target) ┴► session ◄─ observe::Wait (time, child, signals)
//!                                         └─ Reading ─► table (derive, aggregation) ─► Row ─► print (text, machine)
//! ```
//!
//! `record` writes the readings into a file as well. `report` makes readings from such a file.
//!
//! [`Summed`] counts in the same way for the display of another command.

mod aggregation;
mod args;
mod command;
mod derive;
mod hardware;
mod machine;
mod metric;
mod metric_list;
mod metric_table;
mod notes;
mod output;
mod print;
mod record;
mod report;
mod select;
mod session;
mod summed;
mod table;
mod text;
mod threads;

#[cfg(test)]
pub(super) mod tests;

use std::path::Path;

use super::observe::notes as refusals;
use super::observe::{self, Ending, Failure, Host, Program, Signals, Subject};
use crate::sys::Kernel;
use aggregation::{Aggregation, Parts};
use args::{StatArgs, Times};
use command::View;
pub(super) use command::{StatCommand, reordered};
use metric_table::MetricTable;
use print::Printer;
use record::Recorder;
use select::Selection;
use session::{Around, Outcome, Session};
#[cfg(test)]
pub(super) use summed::Figure;
pub(super) use summed::{Figures, Summed};
use table::{Frame, Reading, Totals};

/// Counts, records or reports.
pub(super) fn stat<K: Kernel>(command: &StatCommand, host: &Host<'_, K>) -> Result<Ending, Failure> {
    match &command.view {
        None => count(&command.args, None, host),
        Some(View::Record(args)) => {
            let (args, path) = args.split().map_err(Failure::Usage)?;
            count(&args, Some(&path), host)
        }
        Some(View::Report(args)) => report::report(args),
    }
}

/// Counts, prints the result, and ends like the command. With `recording`, the counts are written into this file.
fn count<K: Kernel>(
    args: &StatArgs,
    recording: Option<&Path>,
    host: &Host<'_, K>,
) -> Result<Ending, Failure> {
    let found = host.find(&args.target().map_err(Failure::Usage)?)?;
    let modes = args.modes(found.user_space_only(host.facts()));
    let metrics = args.metrics(&host.catalog)?;
    let events = args.events(&host.catalog, &metrics)?;
    let all_threads = args.aggregation() == Aggregation::Thread && matches!(found, Subject::Machine { .. });
    let subject_text = found.describe(&Program::new(&args.command).shown());
    let (subject, parts) = match all_threads {
        true => threads::all(host.roots, events.iter().map(|group| group.events.len()).sum())?,
        false => {
            let parts = Parts::new(args.aggregation(), &found, host.roots, host.facts())?;
            (found, parts)
        }
    };
    let selection = Selection::new(&host.catalog, modes, &subject.per(), &events)
        .map_err(|unresolved| Failure::Usage(anyhow::Error::new(unresolved).context("-e")))?;
    let (cgroups, times) = (subject.cgroups(), args.times());
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
        all_threads,
        keeps_counts: recording.is_some(),
        program: Program::new(&args.command),
        around: Around { before: args.pre.as_deref(), after: args.post.as_deref() },
        times,
    };
    let metric_table = args.metric_only().then(|| MetricTable::new(&frame));
    let mut printer = Printer::open(&args.output_args, args.table, metric_table)?;
    let begin = |path| Recorder::begin(path, host, &subject, &selection, &parts, times.interval);
    let mut recorder = recording.map(begin).transpose()?;
    let counted = observe::measure(async |signals| {
        measure(&session, &frame, &mut printer, recorder.as_mut(), &subject_text, signals).await
    });
    if let (Err(_), Some(recorder)) = (&counted, &recorder) {
        recorder.discard();
    }
    counted
}

/// Runs the requested number of measurements and prints the results.
async fn measure<K: Kernel>(
    session: &Session<'_, K>,
    frame: &Frame<'_>,
    printer: &mut Printer,
    mut recorder: Option<&mut Recorder>,
    subject_text: &str,
    signals: &mut Signals,
) -> Result<Ending, Failure> {
    let Times { interval, repeat, .. } = session.times;
    let mut totals = Totals::default();
    let mut run = 0;
    let last = loop {
        let print = |reading: &Reading, at| {
            recorder.as_mut().map_or(Ok(()), |recorder| recorder.add(reading, at))?;
            printer.interval(frame, reading, at)
        };
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
    if let Some(recorder) = recorder {
        reading.as_ref().map_or(Ok(()), |reading| recorder.add(reading, at))?;
    }
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
