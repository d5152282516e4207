//! Tables of `--metric-only`: one line per cgroup and part, one column per metric. Without I/O.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::aggregation::PartLabel;
use super::machine::seconds;
use super::metric::{Metric, is_percent};
use super::table::{Frame, Row};

/// Width of a column, as in perf.
const WIDTH: usize = 20;
/// Minimum width of a cgroup, as in perf.
const CGROUP: usize = 16;

/// A column of the table.
#[derive(Debug, Clone, PartialEq)]
struct Column {
    /// Index of the line that the metric belongs to.
    line: usize,
    name: &'static str,
    title: String,
}

/// The columns of all tables of one measurement.
#[derive(Debug, Default)]
pub(super) struct MetricTable {
    columns: Vec<Column>,
}

/// The metrics of one cgroup and part.
struct Line<'a> {
    part: Option<&'a PartLabel>,
    cgroup: Option<&'a Arc<str>>,
    /// Values in the order of the columns.
    values: Vec<Option<&'a Metric>>,
}

/// A line as JSON.
struct Object<'a> {
    columns: &'a [Column],
    line: &'a Line<'a>,
    interval: Option<f64>,
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        self.interval.map_or(Ok(()), |seconds| map.serialize_entry("interval", &seconds))?;
        self.line.part.map_or(Ok(()), |part| part.entries(&mut map))?;
        self.line.cgroup.map_or(Ok(()), |cgroup| map.serialize_entry("cgroup", &**cgroup))?;
        for (column, metric) in self.columns.iter().zip(&self.line.values) {
            metric.map_or(Ok(()), |metric| map.serialize_entry(&column.title, &metric.plain()))?;
        }
        map.end()
    }
}

impl MetricTable {
    /// Returns the table of the metrics that the events of `frame` can have. As in perf, rates and the number of utilized CPUs are only
    /// included if they are selected by name, or if there is no other metric.
    pub(super) fn new(frame: &Frame<'_>) -> Self {
        let mut all = Vec::new();
        for (line, of) in frame.lines.iter().enumerate() {
            for metric in frame.possible_metrics(line) {
                let title = match &*metric.unit {
                    unit if unit.starts_with("of all") || unit.starts_with('/') => {
                        format!("{} {unit}", of.name)
                    }
                    unit => unit.to_owned(),
                };
                let ratio = !metric.unit.contains("/sec") && metric.unit != "CPUs utilized";
                all.push((ratio, Column { line, name: metric.name, title }));
            }
        }
        let keeps_all = frame.metrics.by_name || !all.iter().any(|(ratio, _)| *ratio);
        let mut columns: Vec<Column> = Vec::new();
        for (_, mut column) in all.into_iter().filter(|(ratio, _)| keeps_all || *ratio) {
            let event = |column: &Column| frame.lines.get(column.line).map(|line| &line.name);
            // Several metrics may need the same event.
            if columns.iter().any(|other| other.name == column.name && event(other) == event(&column)) {
                continue;
            }
            // Each kind of core of a hybrid machine has its own column.
            if columns.iter().any(|other| other.title == column.title) {
                let of = frame.lines.get(column.line).map_or("", |line| &*line.name);
                column.title = format!("{of} {}", column.title);
            }
            columns.push(column);
        }
        Self { columns }
    }

    /// Writes the titles of the columns. `before` is the text before them.
    pub(super) fn titles(&self, out: &mut dyn Write, frame: &Frame<'_>, before: &str) -> io::Result<()> {
        let cgroup = if frame.cgroups.is_empty() { 0 } else { CGROUP + 1 };
        let titles = self.columns.iter().map(|column| format!("{:>WIDTH$} ", column.title));
        writeln!(out, "{}", format!("{before}{:cgroup$}{}", "", titles.collect::<String>()).trim_end())
    }

    /// Writes the names of the fields of CSV.
    pub(super) fn csv_titles(
        &self,
        out: &mut dyn Write,
        frame: &Frame<'_>,
        has_time: bool,
        separator: &str,
    ) -> io::Result<()> {
        let time = has_time.then_some("time").into_iter();
        let part = frame.parts.aggregation.fields().iter().copied();
        let cgroup = (!frame.cgroups.is_empty()).then_some("cgroup");
        let titles = self.columns.iter().map(|column| &*column.title);
        let fields: Vec<&str> = time.chain(part).chain(cgroup).chain(titles).collect();
        writeln!(out, "{}", fields.join(separator))
    }

    /// Writes the values as text.
    pub(super) fn rows(&self, out: &mut dyn Write, rows: &[Row], at: Option<Duration>) -> io::Result<()> {
        for line in self.lines(rows) {
            let mut text = at.map(|at| seconds(at) + " ").unwrap_or_default();
            text += &line.part.map(PartLabel::columns).unwrap_or_default();
            text += &line.cgroup.map(|cgroup| format!("{cgroup:<CGROUP$} ")).unwrap_or_default();
            for (column, metric) in self.columns.iter().zip(line.values) {
                let width = column.title.chars().count().max(WIDTH);
                let percent = metric.is_some_and(|metric| is_percent(metric.style));
                let value = metric.map(Metric::plain).unwrap_or_default() + if percent { "%" } else { "" };
                text += &format!("{value:>width$} ");
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }

    /// Writes the values as CSV.
    pub(super) fn csv(
        &self,
        out: &mut dyn Write,
        rows: &[Row],
        at: Option<Duration>,
        separator: &str,
    ) -> io::Result<()> {
        for line in self.lines(rows) {
            let time = at.map(seconds).into_iter();
            let part = line.part.into_iter().flat_map(PartLabel::fields);
            let cgroup = line.cgroup.map(ToString::to_string);
            let values = line.values.into_iter().map(|metric| metric.map(Metric::plain).unwrap_or_default());
            let fields: Vec<String> = time.chain(part).chain(cgroup).chain(values).collect();
            writeln!(out, "{}", fields.join(separator))?;
        }
        Ok(())
    }

    /// Writes the values as one JSON object per line. As in perf, values are texts.
    pub(super) fn json(&self, out: &mut dyn Write, rows: &[Row], at: Option<Duration>) -> io::Result<()> {
        for line in self.lines(rows) {
            let object =
                Object { columns: &self.columns, line: &line, interval: at.map(|at| at.as_secs_f64()) };
            serde_json::to_writer(&mut *out, &object)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Returns one line per cgroup and part, in the order of the rows.
    fn lines<'a>(&self, rows: &'a [Row]) -> Vec<Line<'a>> {
        let mut lines: Vec<Line<'a>> = Vec::new();
        for row in rows {
            let text = |part: Option<&'a PartLabel>| part.map(|part| &*part.text);
            let (part, cgroup) = (row.part.as_ref(), row.cgroup.as_ref());
            let known = lines.iter().position(|line| text(line.part) == text(part) && line.cgroup == cgroup);
            let at = known.unwrap_or_else(|| {
                lines.push(Line { part, cgroup, values: vec![None; self.columns.len()] });
                lines.len() - 1
            });
            let Some(line) = lines.get_mut(at) else { continue };
            for (column, value) in self.columns.iter().zip(&mut line.values) {
                let metric = row.metrics.iter().find(|metric| metric.name == column.name);
                *value = value.or(metric.filter(|_| column.line == row.line));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::stat::aggregation::{Aggregation, Part, Parts};
    use crate::cli::stat::metric_list::Shown;
    use crate::cli::stat::table::{Key, Totals};
    use crate::cli::stat::tests::testing::{cpus, lines, reading};

    fn written(
        events: &str,
        metrics: &[&'static str],
        parts: &Parts,
        counts: &[(Key, u64, u64, u64)],
    ) -> String {
        let lines = lines("intel-server", events);
        let metrics = Shown::of_recording(metrics.iter().copied());
        let frame = Frame { metrics: &metrics, ..Frame::of(&lines, parts) };
        let rows = Totals::of(&lines, &reading(1000, counts)).rows(&frame);
        let table = MetricTable::new(&frame);
        let at = Some(Duration::from_millis(1500));
        let mut out = Vec::new();
        table.titles(&mut out, &frame, "").unwrap();
        table.rows(&mut out, &rows, None).unwrap();
        table.csv_titles(&mut out, &frame, true, ",").unwrap();
        table.csv(&mut out, &rows, at, ",").unwrap();
        table.json(&mut out, &rows, at).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn whole(line: usize) -> Key {
        Key { cgroup: 0, line, part: Part::Whole }
    }

    #[test]
    fn each_ratio_has_a_column_and_rates_only_if_selected() {
        let counts = [(whole(0), 2_000_000_000, 9, 9), (whole(1), 4_000_000_000, 9, 9), (whole(2), 10, 9, 9)];
        let counts = [&counts[..], &[(whole(3), 40, 9, 9), (whole(4), 5_000_000, 9, 9)]].concat();
        let events = "task-clock,cycles,branch-misses,branches,page-faults";
        insta::assert_snapshot!(written(events, &[], &Parts::default(), &counts));
        let rate = written(events, &["page_faults_per_second"], &Parts::default(), &counts);
        assert!(rate.contains("page-faults /sec") && rate.contains("2500000.000"), "{rate}");
    }

    #[test]
    fn each_part_has_a_line_and_an_event_without_a_count_an_empty_cell() {
        let key = |line, cpu| Key { part: Part::Cpu(cpu), ..whole(line) };
        let counts =
            [(key(0, 0), 20, 9, 9), (key(0, 1), 20, 9, 9), (key(1, 0), 10, 9, 9), (key(1, 1), 0, 9, 0)];
        insta::assert_snapshot!(written(
            "cycles,instructions",
            &[],
            &cpus(Aggregation::Cpu, &[0, 1]),
            &counts
        ));
    }

    #[test]
    fn without_any_ratio_the_rates_are_shown() {
        let counts = [(whole(0), 500_000_000, 9, 9), (whole(1), 10, 9, 9)];
        let table = written("task-clock,page-faults", &[], &Parts::default(), &counts);
        assert!(table.contains("CPUs utilized") && table.contains("20.000"), "{table}");
    }
}
