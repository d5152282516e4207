//! What is shown: counts added up over CPUs or threads, averaged over runs, with what is derived from them. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::derive::{Metric, Role, metrics};
use super::select::Line;
use crate::health::Interval;

/// Which counts are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Which of the cgroups; 0 if none were asked for.
    pub cgroup: usize,
    /// Which line.
    pub line: usize,
    /// The CPU, if each is shown by itself.
    pub cpu: Option<u32>,
}

/// What was counted under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    /// The count, scaled up for the time that the event was not on the PMU.
    pub scaled: u64,
    /// That time, added up over CPUs or threads.
    pub interval: Interval,
}

impl Sum {
    /// Adds what was counted elsewhere in the same time.
    pub(super) fn add(&mut self, scaled: u64, interval: Interval) {
        self.scaled = self.scaled.saturating_add(scaled);
        self.interval.enabled += interval.enabled;
        self.interval.running += interval.running;
    }
}

/// One run of a command, one interval, or a whole measurement.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    /// How long it took.
    pub elapsed: Duration,
    /// What was open, and what it counted.
    pub sums: BTreeMap<Key, Sum>,
}

/// A mean, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Spread {
    count: u32,
    mean: f64,
    /// The sum of squared differences from the mean (Welford's method).
    squares: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let difference = value - self.mean;
        self.mean += difference / f64::from(self.count);
        self.squares += difference * (value - self.mean);
    }

    /// How many values there were.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Their mean; 0 if there were none.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// The standard deviation of the mean; 0 for a single value.
    pub(super) fn error(&self) -> f64 {
        let count = f64::from(self.count);
        if self.count < 2 { 0.0 } else { (self.squares / (count - 1.0) / count).sqrt() }
    }

    /// The standard deviation of the mean, in percent of it.
    pub(super) fn relative_error(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { 100.0 * self.error() / self.mean }
    }
}

/// Readings of the same lines, put together.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    /// The time that each took, in seconds.
    pub elapsed: Spread,
    cells: BTreeMap<Key, Cell>,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    /// In the line's unit; of the readings in which the event was on the PMU.
    value: Spread,
    interval: Interval,
    readings: u64,
}

/// What a line says in place of a number, or the number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    /// It could not be opened.
    NotSupported,
    /// It was open and never on the PMU, or nothing of what was to be counted ran.
    NotCounted,
    /// In the unit of the line.
    Counted(f64),
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// The cgroup, if cgroups were asked for.
    pub cgroup: Option<Arc<str>>,
    /// The CPU, if each is shown by itself.
    pub cpu: Option<u32>,
    /// The event.
    pub event: Arc<str>,
    /// The unit; empty for a plain number.
    pub unit: Arc<str>,
    /// Whether the value has decimals.
    pub is_quantity: bool,
    /// The count.
    pub value: Value,
    /// How unsure the mean of several runs is, in percent; `None` for one run.
    pub error: Option<f64>,
    /// When it could have counted and when it did; the mean of the runs.
    pub interval: Interval,
    /// What follows from it.
    pub metrics: Vec<Metric>,
}

impl Row {
    /// The part of the time in which it counted, in percent; 100 where there was no such time, as perf has it.
    pub(super) fn running_percent(&self) -> f64 {
        self.interval.ratio().map_or(100.0, |ratio| 100.0 * ratio)
    }
}

/// What the rows are about.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// The lines, in their order.
    pub lines: &'a [Line],
    /// The cgroups; empty if the measurement is of something else.
    pub cgroups: &'a [Arc<str>],
    /// The CPUs, if each is shown by itself; else empty.
    pub cpus: &'a [u32],
    /// Whether there are several runs.
    pub repeated: bool,
}

impl Totals {
    /// The totals of one reading.
    pub(super) fn of(lines: &[Line], reading: &Reading) -> Self {
        let mut totals = Self::default();
        totals.add(lines, reading);
        totals
    }

    /// Takes one more reading in.
    pub(super) fn add(&mut self, lines: &[Line], reading: &Reading) {
        self.elapsed.add(reading.elapsed.as_secs_f64());
        for (key, sum) in &reading.sums {
            let Some(line) = lines.get(key.line) else { continue };
            let cell = self.cells.entry(*key).or_default();
            cell.readings += 1;
            cell.interval.enabled += sum.interval.enabled;
            cell.interval.running += sum.interval.running;
            if sum.interval.running > 0 {
                cell.value.add(line.quantity(sum.scaled));
            }
        }
    }

    /// The rows: cgroup by cgroup, in it line by line, in it CPU by CPU.
    pub(super) fn rows(&self, frame: &Frame<'_>) -> Vec<Row> {
        let mut rows = Vec::new();
        for cgroup in 0..frame.cgroups.len().max(1) {
            for line in 0..frame.lines.len() {
                let any = Key { cgroup, line, cpu: None };
                let last = Key { cpu: Some(u32::MAX), ..any };
                let before = rows.len();
                rows.extend(
                    self.cells.range(any..=last).filter_map(|(key, cell)| self.row(frame, *key, cell)),
                );
                if rows.len() == before {
                    let absent = |cpu| Key { cpu, ..any };
                    let keys: Vec<Key> = match frame.cpus {
                        [] => vec![any],
                        cpus => cpus.iter().map(|&cpu| absent(Some(cpu))).collect(),
                    };
                    rows.extend(keys.into_iter().filter_map(|key| absent_row(frame, key)));
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
        if cell.value.count() == 0 {
            return Some(Row { value: Value::NotCounted, interval, ..row });
        }
        let value = cell.value.mean();
        let elapsed = Duration::try_from_secs_f64(self.elapsed.mean()).unwrap_or_default();
        let metrics = metrics(line.role, value, elapsed, |role| self.other(frame, key, role));
        Some(Row {
            value: Value::Counted(value),
            error: frame.repeated.then(|| cell.value.relative_error()),
            interval,
            metrics,
            ..row
        })
    }

    /// The count with this role that can be related to the one under `key`: of the same cgroup and CPU, from the same
    /// view (time has none), and rather from the same group than from another.
    fn other(&self, frame: &Frame<'_>, key: Key, role: Role) -> Option<f64> {
        let own = frame.lines.get(key.line)?;
        let related = |line: &Line| line.role == role && (role == Role::Clock || line.view == own.view);
        let candidates = || frame.lines.iter().enumerate().filter(|(_, line)| related(line));
        let same_group = candidates().filter(|(_, line)| line.group == own.group);
        let counted = |(line, _)| {
            let value = self.cells.get(&Key { line, ..key })?.value;
            (value.count() > 0).then(|| value.mean())
        };
        same_group.chain(candidates()).find_map(counted)
    }
}

/// The row of what is not open.
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
