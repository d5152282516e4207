//! Result rows: counts summed over the CPUs or threads of a part and averaged over runs, with derived metrics. Without I/O.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::aggregation::{Part, PartLabel, Parts};
use super::derive::{metrics, possible};
use super::metric::Metric;
use super::metric_list::Shown;
use super::select::Line;
use crate::cli::observe::Mean;
use crate::health::Interval;

/// Key of a sum of counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Index of the cgroup; 0 without cgroups.
    pub cgroup: usize,
    /// Index of the line.
    pub line: usize,
    /// The part of the target.
    pub part: Part,
}

/// The sum of counts under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    /// The count as read from the kernel.
    pub raw: u64,
    /// The count, scaled for the time in which the event was not on the PMU.
    pub scaled: u64,
    /// Enabled and running time, summed over CPUs or threads.
    pub interval: Interval,
    /// Number of CPUs or threads.
    pub places: u32,
}

impl Sum {
    /// Adds a count of another CPU or thread in the same interval.
    pub(super) fn add(&mut self, raw: u64, scaled: u64, interval: Interval) {
        self.raw = self.raw.saturating_add(raw);
        self.scaled = self.scaled.saturating_add(scaled);
        self.interval += interval;
    }
}

/// The count of a line on one CPU or of one thread, for a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaceCount {
    /// Index of the cgroup; 0 without cgroups.
    pub cgroup: usize,
    /// Index of the line.
    pub line: usize,
    /// The CPU or thread.
    pub place: u32,
    /// The count as read from the kernel.
    pub raw: u64,
    /// Enabled and running time.
    pub interval: Interval,
}

/// Counts of one run, one interval or a whole measurement.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    /// Duration of the reading.
    pub elapsed: Duration,
    /// Sums of all open events.
    pub sums: BTreeMap<Key, Sum>,
    /// The counts before they were summed. Empty if they are not recorded.
    pub counts: Vec<PlaceCount>,
}

impl Reading {
    /// Returns the sum of a line in a cgroup over all parts. `None` if the event is not open.
    pub(super) fn whole(&self, cgroup: usize, line: usize) -> Option<Sum> {
        let mut whole: Option<Sum> = None;
        for (_, sum) in self.sums.range(range(cgroup, line)) {
            let whole = whole.get_or_insert_default();
            whole.add(sum.raw, sum.scaled, sum.interval);
            whole.places += sum.places;
        }
        whole
    }
}

/// Returns the range of the keys of a line in a cgroup.
fn range(cgroup: usize, line: usize) -> std::ops::Range<Key> {
    let first = |line| Key { cgroup, line, part: Part::Whole };
    first(line)..first(line + 1)
}

/// Statistics over several readings of the same lines.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    /// Duration of the readings, in seconds.
    pub elapsed: Mean,
    /// Duration of each reading, in seconds.
    pub durations: Vec<f64>,
    cells: BTreeMap<Key, Cell>,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    /// Value in the unit of the line, over the readings in which the event was on the PMU.
    value: Mean,
    interval: Interval,
    readings: u64,
    /// Number of CPUs or threads.
    places: u32,
}

/// Value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    /// The event could not be opened.
    NotSupported,
    /// The event was open, but it was never on the PMU or its target did not run.
    NotCounted,
    /// Value in the unit of the line.
    Counted(f64),
}

impl Value {
    /// Returns the number, or 0 without one.
    fn number(self) -> f64 {
        if let Self::Counted(value) = self { value } else { 0.0 }
    }

    /// Formats the value. `counted` formats a number.
    pub(super) fn shown(self, counted: impl FnOnce(f64) -> String) -> String {
        match self {
            Self::NotSupported => "<not supported>".into(),
            Self::NotCounted => "<not counted>".into(),
            Self::Counted(value) => counted(value),
        }
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// The cgroup, if cgroups were requested.
    pub cgroup: Option<Arc<str>>,
    /// The part of the target, if parts are shown separately.
    pub part: Option<PartLabel>,
    /// Index of the line.
    pub line: usize,
    /// Name of the event.
    pub event: Arc<str>,
    /// Unit. Empty for a plain number.
    pub unit: Arc<str>,
    /// Whether the value has decimals.
    pub is_quantity: bool,
    /// The count.
    pub value: Value,
    /// Standard error of the mean of several runs, in percent. `None` for one run.
    pub error: Option<f64>,
    /// Mean enabled and running time of the runs.
    pub interval: Interval,
    /// Metrics derived from the count.
    pub metrics: Vec<Metric>,
}

impl Row {
    /// Returns the percentage of the enabled time in which the event was counted. As in perf, it is 100 without enabled time.
    pub(super) fn running_percent(&self) -> f64 {
        self.interval.ratio().map_or(100.0, |ratio| 100.0 * ratio)
    }
}

/// The layout of the rows.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Lines in output order.
    pub lines: &'a [Line],
    /// Cgroups. Empty for other targets.
    pub cgroups: &'a [Arc<str>],
    /// Parts of the target that are shown separately.
    pub parts: &'a Parts,
    /// Whether there are several runs.
    pub repeated: bool,
    /// Metrics to show.
    pub metrics: &'a Shown,
}

impl<'a> Frame<'a> {
    /// Returns the layout of one run without cgroups, with all metrics.
    pub(super) fn of(lines: &'a [Line], parts: &'a Parts) -> Self {
        Self { lines, cgroups: &[], parts, repeated: false, metrics: Shown::automatic() }
    }

    /// Returns the metrics that a line can have, with arbitrary values.
    pub(super) fn possible_metrics(&self, line: usize) -> Vec<Metric> {
        let Some(own) = self.lines.get(line) else { return Vec::new() };
        possible(self.metrics, own.count(1.0), &|key| {
            self.lines.iter().any(|other| other.is_related(key, own))
        })
    }
}

impl Totals {
    /// Returns the totals of one reading.
    pub(super) fn of(lines: &[Line], reading: &Reading) -> Self {
        let mut totals = Self::default();
        totals.add(lines, reading);
        totals
    }

    /// Adds a reading.
    pub(super) fn add(&mut self, lines: &[Line], reading: &Reading) {
        let seconds = reading.elapsed.as_secs_f64();
        self.elapsed.add(seconds);
        self.durations.push(seconds);
        for (key, sum) in &reading.sums {
            let Some(line) = lines.get(key.line) else { continue };
            let cell = self.cells.entry(*key).or_default();
            cell.readings += 1;
            cell.interval += sum.interval;
            cell.places = sum.places;
            if sum.interval.running > 0 {
                cell.value.add(line.quantity(sum.scaled));
            }
        }
    }

    /// Returns the rows, sorted by cgroup, then by line and part, or by part and line.
    pub(super) fn rows(&self, frame: &Frame<'_>) -> Vec<Row> {
        let mut rows = Vec::new();
        for cgroup in 0..frame.cgroups.len().max(1) {
            let of_line = |line| self.rows_of_line(frame, cgroup, line);
            let mut of_cgroup: Vec<(Part, Row)> = (0..frame.lines.len()).flat_map(of_line).collect();
            if frame.parts.aggregation.orders_by_part() {
                of_cgroup.sort_by_key(|(part, _)| *part);
            }
            rows.extend(of_cgroup.into_iter().map(|(_, row)| row));
        }
        rows
    }

    /// Returns the rows of a line in a cgroup, sorted by part.
    fn rows_of_line(&self, frame: &Frame<'_>, cgroup: usize, line: usize) -> Vec<(Part, Row)> {
        let cells = self.cells.range(range(cgroup, line));
        let mut rows: Vec<_> =
            cells.filter_map(|(key, cell)| Some((key.part, self.row(frame, *key, cell)?))).collect();
        if frame.parts.shows_busiest() {
            rows.retain(|(_, row)| row.value.number() > 0.0);
            rows.sort_by(|(_, one), (_, other)| other.value.number().total_cmp(&one.value.number()));
            return rows;
        }
        if !rows.is_empty() {
            return rows;
        }
        let absent = |part| Some((part, absent_row(frame, Key { cgroup, line, part }, None)?));
        frame.parts.all().into_iter().filter_map(absent).collect()
    }

    fn row(&self, frame: &Frame<'_>, key: Key, cell: &Cell) -> Option<Row> {
        let line = frame.lines.get(key.line)?;
        let row = absent_row(frame, key, Some(cell.places))?;
        let readings = cell.readings.max(1);
        let interval =
            Interval { enabled: cell.interval.enabled / readings, running: cell.interval.running / readings };
        if cell.value.count == 0 {
            return Some(Row { value: Value::NotCounted, interval, ..row });
        }
        let value = cell.value.mean;
        let elapsed = Duration::try_from_secs_f64(self.elapsed.mean).unwrap_or_default();
        let of = |operand: &str| self.other(frame, key, operand);
        let metrics = metrics(frame.metrics, line.count(value), elapsed, &of);
        Some(Row {
            value: Value::Counted(value),
            error: frame.repeated.then(|| cell.value.relative_error()),
            interval,
            metrics,
            ..row
        })
    }

    /// Returns the count of an operand that a metric may combine with the count under `key`, in its base unit. It has the same cgroup, part
    /// and view. Counts of the same group are preferred.
    fn other(&self, frame: &Frame<'_>, key: Key, operand: &str) -> Option<f64> {
        let own = frame.lines.get(key.line)?;
        let candidates = || frame.lines.iter().enumerate().filter(|(_, line)| line.is_related(operand, own));
        let same_group = candidates().filter(|(_, line)| line.group == own.group);
        let counted = |(index, line): (usize, &Line)| {
            let value = self.cells.get(&Key { line: index, ..key })?.value;
            (value.count > 0).then(|| line.in_base_unit(value.mean))
        };
        same_group.chain(candidates()).find_map(counted)
    }
}

/// Returns the row of an event that is not open. `places` is the number of its CPUs, if it is.
fn absent_row(frame: &Frame<'_>, key: Key, places: Option<u32>) -> Option<Row> {
    let line = frame.lines.get(key.line)?;
    Some(Row {
        cgroup: frame.cgroups.get(key.cgroup).cloned(),
        part: frame.parts.label(key.part, places),
        line: key.line,
        event: Arc::clone(&line.name),
        unit: Arc::clone(&line.unit),
        is_quantity: line.is_quantity(),
        value: Value::NotSupported,
        error: frame.repeated.then_some(0.0),
        interval: Interval::default(),
        metrics: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::stat::aggregation::Aggregation;
    use crate::cli::stat::tests::testing::{cpus, lines, reading};

    /// Returns the rows of one second.
    fn rows(text: &str, counts: &[(Key, u64, u64, u64)], each_cpu: &[u32]) -> Vec<Row> {
        let lines = lines("intel-server", text);
        let totals = Totals::of(&lines, &reading(1000, counts));
        let parts = if each_cpu.is_empty() { Parts::default() } else { cpus(Aggregation::Cpu, each_cpu) };
        totals.rows(&Frame::of(&lines, &parts))
    }

    fn everywhere(line: usize) -> Key {
        Key { cgroup: 0, line, part: Part::Whole }
    }

    fn on(cpu: u32, line: usize) -> Key {
        Key { part: Part::Cpu(cpu), ..everywhere(line) }
    }

    fn labels(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|row| row.part.as_ref().map_or("", |part| &*part.text)).collect()
    }

    fn said(rows: &[Row]) -> Vec<String> {
        let metric = |metric: &Metric| format!("{:.2} {}", metric.value, metric.unit);
        rows.iter().flat_map(|row| row.metrics.iter().map(metric)).collect()
    }

    #[test]
    fn what_never_ran_is_not_counted_and_what_is_not_open_is_not_supported() {
        let rows =
            rows("cycles,instructions,branches", &[(everywhere(0), 0, 9, 0), (everywhere(1), 0, 9, 9)], &[]);
        let values: Vec<Value> = rows.iter().map(|row| row.value).collect();
        assert_eq!(values, [Value::NotCounted, Value::Counted(0.0), Value::NotSupported]);
        assert_eq!(rows[0].running_percent(), 0.0);
        assert_eq!((rows[2].interval, rows[2].running_percent()), (Interval::default(), 100.0));
    }

    #[test]
    fn a_ratio_stays_on_its_cpu() {
        let counts =
            [(on(0, 0), 100, 1, 1), (on(0, 1), 200, 1, 1), (on(1, 0), 100, 1, 1), (on(1, 1), 50, 1, 1)];
        let rows = rows("cycles,instructions", &counts, &[0, 1]);
        assert_eq!(labels(&rows), ["CPU0", "CPU1", "CPU0", "CPU1"]);
        let events: Vec<_> = rows.iter().map(|row| &*row.event).collect();
        assert_eq!(events, ["cycles", "cycles", "instructions", "instructions"]);
        assert_eq!(said(&rows), ["2.00 insn per cycle", "0.50 insn per cycle"]);
    }

    #[test]
    fn a_ratio_stays_on_its_type_of_core() {
        let lines = lines("intel-hybrid", "cycles,instructions,mem_load_retired.l3_miss");
        let names: Vec<&str> = lines.iter().map(|line| &*line.name).collect();
        let cycles = ["cpu_atom/cycles/", "cpu_core/cycles/"];
        let instructions = ["cpu_atom/instructions/", "cpu_core/instructions/"];
        assert_eq!(names, [&cycles[..], &instructions, &["cpu_core/mem_load_retired.l3_miss/"]].concat());
        let counts = [100, 200, 50, 500, 7].into_iter().enumerate();
        let counts: Vec<_> = counts.map(|(line, count)| (everywhere(line), count, 1, 1)).collect();
        let totals = Totals::of(&lines, &reading(1000, &counts));
        let rows = totals.rows(&Frame::of(&lines, &Parts::default()));
        assert_eq!(said(&rows), ["0.50 insn per cycle", "2.50 insn per cycle"]);
    }

    #[test]
    fn only_counts_of_the_same_side_are_related() {
        let counts = [(everywhere(0), 100, 1, 1), (everywhere(1), 40, 1, 1), (everywhere(2), 60, 1, 1)];
        assert!(said(&rows("cycles,instructions:u,branch-misses", &counts, &[])).is_empty());
        let user = rows("cycles,instructions:u,cycles:u", &counts, &[]);
        assert_eq!(said(&user), ["0.67 insn per cycle"]);
    }

    #[test]
    fn a_count_is_related_to_one_of_its_own_group_before_others() {
        let counts = [(everywhere(0), 100, 1, 1), (everywhere(1), 50, 1, 1), (everywhere(2), 10, 1, 1)];
        assert_eq!(said(&rows("cycles,{instructions,cycles}", &counts, &[])), ["5.00 insn per cycle"]);
    }

    #[test]
    fn an_event_that_opens_nowhere_has_a_row_for_each_cpu_that_is_shown() {
        let rows = rows("cycles", &[], &[0, 2]);
        assert_eq!(labels(&rows), ["CPU0", "CPU2"]);
    }

    #[test]
    fn sockets_are_ordered_before_events_and_have_the_number_of_counted_cpus() {
        let lines = lines("intel-server", "cycles,instructions,branches");
        let key = |line, socket| Key { cgroup: 0, line, part: Part::Socket(socket) };
        let counts =
            [(key(0, 0), 100, 1, 1), (key(0, 1), 70, 1, 1), (key(1, 0), 50, 1, 1), (key(1, 1), 7, 1, 1)];
        let reading = reading(1000, &counts);
        let whole = reading.whole(0, 0).unwrap();
        assert_eq!((whole.raw, whole.scaled, whole.interval.enabled), (170, 170, 2));
        assert_eq!(reading.whole(0, 2), None);
        let parts = cpus(Aggregation::Socket, &[0, 1]);
        let frame = Frame::of(&lines, &parts);
        let rows = Totals::of(&lines, &reading).rows(&frame);
        assert_eq!(labels(&rows), ["S0", "S0", "S0", "S1", "S1", "S1"]);
        assert_eq!(said(&rows), ["0.50 insn per cycle", "0.10 insn per cycle"]);
        assert_eq!(rows[2].value, Value::NotSupported);
        let counted: Vec<_> = rows.iter().map(|row| row.part.as_ref().unwrap().cpus).collect();
        assert_eq!(counted, [Some(1); 6]);
    }

    #[test]
    fn runs_have_a_mean_and_an_error_of_it() {
        let lines = lines("vm", "page-faults");
        let mut totals = Totals::default();
        for count in [90, 110] {
            totals.add(&lines, &reading(count, &[(everywhere(0), count, 8, 4)]));
        }
        let parts = Parts::default();
        let rows = totals.rows(&Frame { repeated: true, ..Frame::of(&lines, &parts) });
        assert_eq!((rows[0].value, rows[0].error), (Value::Counted(100.0), Some(10.0)));
        assert_eq!(rows[0].interval, Interval { enabled: 8, running: 4 });
        assert_eq!((totals.elapsed.count, totals.elapsed.mean), (2, 0.1));
        assert_eq!(totals.durations, [0.09, 0.11]);
        assert!((totals.elapsed.error() - 0.01).abs() < 1e-12);
    }

    #[test]
    fn one_value_has_no_error_and_zero_no_relative_one() {
        let mut spread = Mean::default();
        assert_eq!((spread.mean, spread.error(), spread.relative_error()), (0.0, 0.0, 0.0));
        spread.add(5.0);
        assert_eq!((spread.mean, spread.error()), (5.0, 0.0));
        let mut around_zero = Mean::default();
        [-1.0, 1.0].into_iter().for_each(|value| around_zero.add(value));
        assert_eq!((around_zero.error(), around_zero.relative_error()), (1.0, 0.0));
    }
}
