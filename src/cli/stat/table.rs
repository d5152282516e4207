//! Result rows: counts summed over CPUs or threads and averaged over runs, with derived metrics. Without I/O.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::derive::{Metric, Role, metrics};
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
    /// The CPU, if each CPU is shown separately.
    pub cpu: Option<u32>,
}

/// The sum of counts under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    /// The count, scaled for the time in which the event was not on the PMU.
    pub scaled: u64,
    /// Enabled and running time, summed over CPUs or threads.
    pub interval: Interval,
}

impl Sum {
    /// Adds a count of another CPU or thread in the same interval.
    pub(super) fn add(&mut self, scaled: u64, interval: Interval) {
        self.scaled = self.scaled.saturating_add(scaled);
        self.interval += interval;
    }
}

/// Counts of one run, one interval or a whole measurement.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    /// Duration of the reading.
    pub elapsed: Duration,
    /// Sums of all open events.
    pub sums: BTreeMap<Key, Sum>,
}

/// Statistics over several readings of the same lines.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    /// Duration of the readings, in seconds.
    pub elapsed: Mean,
    cells: BTreeMap<Key, Cell>,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    /// Value in the unit of the line, over the readings in which the event was on the PMU.
    value: Mean,
    interval: Interval,
    readings: u64,
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
    /// The CPU, if each CPU is shown separately.
    pub cpu: Option<u32>,
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
    /// CPUs, if each CPU is shown separately. Otherwise empty.
    pub cpus: &'a [u32],
    /// Whether there are several runs.
    pub repeated: bool,
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
        self.elapsed.add(reading.elapsed.as_secs_f64());
        for (key, sum) in &reading.sums {
            let Some(line) = lines.get(key.line) else { continue };
            let cell = self.cells.entry(*key).or_default();
            cell.readings += 1;
            cell.interval += sum.interval;
            if sum.interval.running > 0 {
                cell.value.add(line.quantity(sum.scaled));
            }
        }
    }

    /// Returns the rows, sorted by cgroup, line and CPU.
    pub(super) fn rows(&self, frame: &Frame<'_>) -> Vec<Row> {
        let mut rows = Vec::new();
        for cgroup in 0..frame.cgroups.len().max(1) {
            for line in 0..frame.lines.len() {
                let any = Key { cgroup, line, cpu: None };
                let last = Key { cpu: Some(u32::MAX), ..any };
                let before = rows.len();
                let cells = self.cells.range(any..=last);
                rows.extend(cells.filter_map(|(key, cell)| self.row(frame, *key, cell)));
                if rows.len() == before {
                    let of_cpus = frame.cpus.iter().map(|&cpu| Key { cpu: Some(cpu), ..any });
                    let keys = of_cpus.chain(frame.cpus.is_empty().then_some(any));
                    rows.extend(keys.filter_map(|key| absent_row(frame, key)));
                }
            }
        }
        rows
    }

    fn row(&self, frame: &Frame<'_>, key: Key, cell: &Cell) -> Option<Row> {
        let line = frame.lines.get(key.line)?;
        let row = absent_row(frame, key)?;
        let readings = cell.readings.max(1);
        let interval =
            Interval { enabled: cell.interval.enabled / readings, running: cell.interval.running / readings };
        if cell.value.count == 0 {
            return Some(Row { value: Value::NotCounted, interval, ..row });
        }
        let value = cell.value.mean;
        let elapsed = Duration::try_from_secs_f64(self.elapsed.mean).unwrap_or_default();
        let metrics = metrics(line.role, value, elapsed, |role| self.other(frame, key, role));
        Some(Row {
            value: Value::Counted(value),
            error: frame.repeated.then(|| cell.value.relative_error()),
            interval,
            metrics,
            ..row
        })
    }

    /// Returns the count with this role that a metric may combine with the count under `key`. It has the same cgroup, CPU and view (clocks
    /// have no view). Counts of the same group are preferred.
    fn other(&self, frame: &Frame<'_>, key: Key, role: Role) -> Option<f64> {
        let own = frame.lines.get(key.line)?;
        let related = |line: &Line| line.role == role && (role == Role::Clock || line.view == own.view);
        let candidates = || frame.lines.iter().enumerate().filter(|(_, line)| related(line));
        let same_group = candidates().filter(|(_, line)| line.group == own.group);
        let counted = |(line, _)| {
            let value = self.cells.get(&Key { line, ..key })?.value;
            (value.count > 0).then_some(value.mean)
        };
        same_group.chain(candidates()).find_map(counted)
    }
}

/// Returns the row of an event that is not open.
fn absent_row(frame: &Frame<'_>, key: Key) -> Option<Row> {
    let line = frame.lines.get(key.line)?;
    Some(Row {
        cgroup: frame.cgroups.get(key.cgroup).cloned(),
        cpu: key.cpu,
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
    use crate::cli::stat::tests::testing::{lines, reading};

    /// Returns the rows of one second.
    fn rows(text: &str, counts: &[(Key, u64, u64, u64)], cpus: &[u32]) -> Vec<Row> {
        let lines = lines("intel-server", text);
        let totals = Totals::of(&lines, &reading(1000, counts));
        totals.rows(&Frame { lines: &lines, cgroups: &[], cpus, repeated: false })
    }

    fn everywhere(line: usize) -> Key {
        Key { cgroup: 0, line, cpu: None }
    }

    fn on(cpu: u32, line: usize) -> Key {
        Key { cpu: Some(cpu), ..everywhere(line) }
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
        let cpus: Vec<_> = rows.iter().map(|row| (row.cpu, &*row.event)).collect();
        assert_eq!(
            cpus,
            [(Some(0), "cycles"), (Some(1), "cycles"), (Some(0), "instructions"), (Some(1), "instructions")]
        );
        assert_eq!(said(&rows), ["2.00 insn per cycle", "0.50 insn per cycle"]);
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
        assert_eq!(rows.iter().map(|row| row.cpu).collect::<Vec<_>>(), [Some(0), Some(2)]);
    }

    #[test]
    fn runs_have_a_mean_and_an_error_of_it() {
        let lines = lines("vm", "page-faults");
        let mut totals = Totals::default();
        for count in [90, 110] {
            totals.add(&lines, &reading(count, &[(everywhere(0), count, 8, 4)]));
        }
        let rows = totals.rows(&Frame { lines: &lines, cgroups: &[], cpus: &[], repeated: true });
        assert_eq!((rows[0].value, rows[0].error), (Value::Counted(100.0), Some(10.0)));
        assert_eq!(rows[0].interval, Interval { enabled: 8, running: 4 });
        assert_eq!((totals.elapsed.count, totals.elapsed.mean), (2, 0.1));
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
