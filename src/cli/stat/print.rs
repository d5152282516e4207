//! Output of results in the selected format to the selected destination.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use anyhow::Context;

use super::metric_table::MetricTable;
use super::output::{Format, OutputArgs, Sink};
use super::table::{Frame, Reading, Row, Totals};
use super::text::Layout;
use super::{machine, text};
use crate::cli::observe::Failure;
use crate::cli::observe::notes::Note;
use crate::sys::usage::CpuTime;

/// Writes results in the selected format to the selected destination.
pub(super) struct Printer {
    out: Box<dyn Write>,
    format: Format,
    layout: Layout,
    /// The table of metrics, if counts are not shown.
    metric_table: Option<MetricTable>,
    /// Whether the table of durations is written.
    table: bool,
    /// Whether raw counts are written. Only as text.
    verbose: bool,
    /// Whether the column heading of intervals was already written.
    named: bool,
}

impl Printer {
    /// Opens the destination. With `table`, the duration of each run is written.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(super) fn open(
        args: &OutputArgs,
        table: bool,
        metric_table: Option<MetricTable>,
    ) -> Result<Self, Failure> {
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
        let format = args.format();
        let layout = Layout { grouped: args.groups_thousands() };
        let verbose = args.verbose && format == Format::Text;
        Ok(Self { out, format, layout, metric_table, table, verbose, named: false })
    }

    /// Writes the counts of an interval.
    pub(super) fn interval(&mut self, frame: &Frame<'_>, reading: &Reading, at: Duration) -> io::Result<()> {
        let aggregation = frame.parts.aggregation;
        if !self.named && self.format == Format::Text && self.metric_table.is_none() {
            text::interval_heading(&mut self.out, aggregation)?;
        } else if !self.named {
            self.titles(frame, &text::time_heading(aggregation), true)?;
        }
        self.named = true;
        if self.verbose {
            text::raw_counts(&mut self.out, frame, reading)?;
        }
        self.rows(&Totals::of(frame.lines, reading).rows(frame), Some(at))?;
        self.out.flush()
    }

    /// Writes the titles of the columns of metrics, if counts are not shown. `before` is the text before them in the table.
    fn titles(&mut self, frame: &Frame<'_>, before: &str, has_time: bool) -> io::Result<()> {
        let Some(table) = &self.metric_table else { return Ok(()) };
        match &self.format {
            Format::Text => table.titles(&mut self.out, frame, before),
            Format::Csv(separator) => table.csv_titles(&mut self.out, frame, has_time, separator),
            Format::Json => Ok(()),
        }
    }

    /// Writes the raw counts of one run. `number` counts from 1.
    pub(super) fn run(&mut self, frame: &Frame<'_>, reading: &Reading, number: u32) -> io::Result<()> {
        if !self.verbose || self.named {
            return Ok(());
        }
        if frame.repeated {
            writeln!(self.out, "[ run #{number} ]")?;
        }
        text::raw_counts(&mut self.out, frame, reading)
    }

    /// Writes the result of a measurement without intervals.
    pub(super) fn result(
        &mut self,
        subject_text: &str,
        frame: &Frame<'_>,
        rows: &[Row],
        totals: &Totals,
        cpu: Option<CpuTime>,
    ) -> io::Result<()> {
        if self.format == Format::Text {
            text::heading(&mut self.out, subject_text, totals.elapsed.count)?;
        }
        self.titles(frame, &" ".repeat(frame.parts.aggregation.heading().len()), false)?;
        self.rows(rows, None)?;
        if self.format == Format::Text {
            text::footer(&mut self.out, totals, cpu, self.table)?;
        }
        self.out.flush()
    }

    fn rows(&mut self, rows: &[Row], at: Option<Duration>) -> io::Result<()> {
        let out = &mut self.out;
        match (&self.format, &self.metric_table) {
            (Format::Text, None) => text::rows(out, rows, at, self.layout),
            (Format::Text, Some(table)) => table.rows(out, rows, at),
            (Format::Csv(separator), None) => machine::csv(out, rows, at, separator),
            (Format::Csv(separator), Some(table)) => table.csv(out, rows, at, separator),
            (Format::Json, None) => machine::json(out, rows, at),
            (Format::Json, Some(table)) => table.json(out, rows, at),
        }
    }

    /// Ends the output. Notes are only written as text: the formats of perf for programs have no field for them.
    pub(super) fn notes(&mut self, notes: &[Note]) -> io::Result<()> {
        if self.format == Format::Text {
            text::notes(&mut self.out, notes)?;
            writeln!(self.out)?;
        }
        self.out.flush()
    }
}
