//! The table of perf (`tools/perf/util/stat-display.c`), with thousands separators independent of the locale, and with the reasons for
//! missing counts below it. Without I/O.

use std::io::{self, Write};
use std::time::Duration;

use super::aggregation::{Aggregation, PartLabel};
use super::machine::seconds;
use super::metric::Metric;
use super::table::{Frame, Reading, Row, Totals};
use crate::cli::observe::notes::{self as refusals, Note};
use crate::event::metric::Style;
use crate::export::page::figures::grouped;
use crate::sys::usage::CpuTime;

/// Width of the count.
const COUNT: usize = 18;
/// Minimum width of the name.
const NAME: usize = 32;
/// Minimum width of the unit: `msec`.
const UNIT: usize = 4;
/// Width of a metric, including the longest unit: `of all dTLB cache accesses`.
const METRIC: usize = 38;

/// Layout of the numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Whether thousands are separated by commas.
    pub grouped: bool,
}

/// Writes the heading with the target.
pub(super) fn heading(out: &mut dyn Write, subject_text: &str, runs: u64) -> io::Result<()> {
    let runs = if runs > 1 { format!(" ({runs} runs)") } else { String::new() };
    writeln!(out, "\n Performance counter stats for {subject_text}{runs}:\n")
}

/// Writes the column headings of intervals.
pub(super) fn interval_heading(out: &mut dyn Write, aggregation: Aggregation) -> io::Result<()> {
    writeln!(out, "{}            counts unit events", time_heading(aggregation))
}

/// Returns the headings of the columns before the counts of intervals.
pub(super) fn time_heading(aggregation: Aggregation) -> String {
    format!("#           time {}", aggregation.heading())
}

/// Writes the raw count of each event, and the time in which it was enabled and running, in nanoseconds, summed over all parts.
pub(super) fn raw_counts(out: &mut dyn Write, frame: &Frame<'_>, reading: &Reading) -> io::Result<()> {
    for cgroup in 0..frame.cgroups.len().max(1) {
        for (index, line) in frame.lines.iter().enumerate() {
            let Some(sum) = reading.whole(cgroup, index) else { continue };
            let of = frame.cgroups.get(cgroup).map(|path| format!(" {path}")).unwrap_or_default();
            writeln!(
                out,
                "{}{of}: {} {} {}",
                line.name, sum.raw, sum.interval.enabled, sum.interval.running
            )?;
        }
    }
    Ok(())
}

/// Writes the rows. `at` is the end time of an interval.
pub(super) fn rows(
    out: &mut dyn Write,
    rows: &[Row],
    at: Option<Duration>,
    layout: Layout,
) -> io::Result<()> {
    let widest = |of: fn(&Row) -> usize, least| rows.iter().map(of).max().unwrap_or(0).max(least);
    let unit = widest(|row| row.unit.chars().count(), UNIT);
    let name = widest(|row| row.event.chars().count(), NAME);
    let width = widest(|row| row.cgroup.as_ref().map_or(0, |cgroup| cgroup.chars().count()), 0);
    for row in rows {
        let count = row.value.shown(|value| count(value, row.is_quantity, layout));
        let mut head = prefix(row, at);
        head += &format!("{count:>COUNT$} {:<unit$} {:<name$}", row.unit, row.event);
        if let Some(cgroup) = &row.cgroup {
            head += &format!(" {cgroup:<width$}");
        }
        let behind = head.chars().count();
        let mut metrics = row.metrics.iter().map(metric);
        let line = format!("{head}{:METRIC$}{}", metrics.next().unwrap_or_default(), quality(row));
        writeln!(out, "{}", line.trim_end())?;
        metrics.try_for_each(|more| writeln!(out, "{:behind$}{}", "", more.trim_end()))?;
    }
    Ok(())
}

/// Returns the columns before the count.
fn prefix(row: &Row, at: Option<Duration>) -> String {
    let time = at.map(|at| seconds(at) + " ").unwrap_or_default();
    time + &row.part.as_ref().map(PartLabel::columns).unwrap_or_default()
}

fn metric(metric: &Metric) -> String {
    let value = metric.value;
    let number = match metric.style {
        Style::Fine | Style::Rate => format!("{value:8.3}"),
        Style::Ratio => format!("{value:7.2} "),
        Style::Percent => format!("{value:7.2}%"),
        Style::Tenths => format!("{value:8.1}%"),
        Style::Whole => format!("{value:8.0}"),
    };
    format!(" # {number} {}", metric.unit)
}

/// Returns the standard error over runs, and the percentage of the time in which the event was counted.
fn quality(row: &Row) -> String {
    let spread = row.error.filter(|&error| error != 0.0).map(noise).unwrap_or_default();
    let shared = row.interval.running != row.interval.enabled;
    let running = if shared { format!("  ({:.2}%)", row.running_percent()) } else { String::new() };
    spread + &running
}

fn noise(percent: f64) -> String {
    format!("  ( +-{percent:6.2}% )")
}

/// Formats a number.
fn count(value: f64, is_quantity: bool, layout: Layout) -> String {
    let plain = if is_quantity { format!("{value:.2}") } else { format!("{value:.0}") };
    if !layout.grouped {
        return plain;
    }
    let (whole, decimals) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    grouped(whole, ',') + decimals
}

/// Writes the elapsed time, and the CPU time of a command that ran once. `table` adds the time of each run.
pub(super) fn footer(
    out: &mut dyn Write,
    totals: &Totals,
    cpu: Option<CpuTime>,
    table: bool,
) -> io::Result<()> {
    let elapsed = &totals.elapsed;
    let mean = elapsed.mean;
    writeln!(out)?;
    if elapsed.count > 1 {
        let error = elapsed.error();
        // Digits up to the order of the standard error, and two more.
        let digits = if error > 0.0 { (-error.log10()).ceil().clamp(0.0, 7.0) as usize + 2 } else { 9 };
        if table {
            table_of_runs(out, totals, digits)?;
        }
        let spread = format!("{mean:17.digits$} +- {error:.digits$} seconds time elapsed");
        writeln!(out, " {spread}{}", noise(elapsed.relative_error()))?;
    } else {
        writeln!(out, " {mean:17.9} seconds time elapsed")?;
    }
    if let Some(CpuTime { user, system }) = cpu {
        writeln!(out, "\n {:17.9} seconds user", user.as_secs_f64())?;
        writeln!(out, " {:17.9} seconds sys", system.as_secs_f64())?;
    }
    Ok(())
}

/// Writes the time of each run, its difference from the mean, and one `#` plus one per 5 % of difference.
fn table_of_runs(out: &mut dyn Write, totals: &Totals, digits: usize) -> io::Result<()> {
    let mean = totals.elapsed.mean;
    let shown = format!(" {mean:17.digits$}");
    let indent = shown.len() - shown.trim_start().len();
    writeln!(out, "{:indent$}# Table of individual measurements:", "")?;
    for run in &totals.durations {
        let difference = run - mean;
        let twentieths = if *run > 0.0 { (100.0 * difference / run).abs() as usize / 5 } else { 0 };
        writeln!(out, " {run:17.digits$} ({difference:+.digits$}) {}", "#".repeat(1 + twentieths))?;
    }
    writeln!(out, "\n{:indent$}# Final result:", "")
}

/// Writes why events were not counted, and remedies.
pub(super) fn notes(out: &mut dyn Write, notes: &[Note]) -> io::Result<()> {
    if notes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nCould not be opened on this host:")?;
    refusals::write(out, notes)
}
