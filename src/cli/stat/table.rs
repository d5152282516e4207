//! What a measurement came to, as plain data: one row per event and place, in the order in which they were asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::derive::{Metric, derive};
use crate::counter::Count;
use crate::event::Event;
use crate::health::Interval;

/// An event that was asked for.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// As it is printed.
    pub(super) name: Arc<str>,
    /// As it was resolved; `None` if this machine cannot name it.
    pub(super) event: Option<Event>,
}

/// What one event counted at one place, or over all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Sum {
    /// The count, scaled up where it shared the PMU.
    pub(super) scaled: u64,
    /// The times of all places together.
    pub(super) interval: Interval,
    /// Whether it could be opened anywhere.
    pub(super) opened: bool,
}

/// The state of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    /// The count in the unit of the row.
    Counted(f64),
    /// It was open, and what it was to count never ran, or it never came to the PMU.
    NotCounted,
    /// It could not be opened.
    NotSupported,
}

/// One line of the result.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// The CPU, where CPUs are not added up.
    pub(super) cpu: Option<u32>,
    /// The cgroup, where several are counted.
    pub(super) cgroup: Option<String>,
    /// The event as it is printed.
    pub(super) event: Arc<str>,
    /// What it came to.
    pub(super) value: Value,
    /// The unit of the value: `msec` for the clocks, a word of the PMU's, or nothing.
    pub(super) unit: String,
    /// How long it was on the PMU, over all places, in nanoseconds.
    pub(super) running: u64,
    /// The part of the time in which it could count that it did, in percent.
    pub(super) percent: f64,
    /// Standard deviation of the mean over several runs, in percent of the mean.
    pub(super) deviation: Option<f64>,
    /// What the count means beside others.
    pub(super) metric: Option<Metric>,
}

/// Which counts are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregate {
    /// None: all places are added up.
    Everything,
    /// Those of different CPUs (`-A`).
    PerCpu,
}

/// The sums of each event, for each CPU or for all together.
pub(super) type Sums = HashMap<(Option<u32>, Arc<str>), Sum>;

/// Adds up counts. `name_of` gives the printed name of a counter.
pub(super) fn add_up(
    counts: &[Count],
    aggregate: Aggregate,
    name_of: impl Fn(&Count) -> Option<Arc<str>>,
) -> Sums {
    let mut sums = Sums::new();
    for count in counts {
        let Some(name) = name_of(count) else { continue };
        let cpu = (aggregate == Aggregate::PerCpu).then_some(count.place);
        let sum = sums.entry((cpu, name)).or_default();
        sum.opened = true;
        sum.scaled = sum.scaled.saturating_add(count.scaled);
        sum.interval.enabled += count.interval.enabled;
        sum.interval.running += count.interval.running;
    }
    sums
}

/// One row for each event that was asked for, and with `-A` for each CPU of it.
pub(super) fn rows(asked: &[Asked], sums: &Sums, cgroup: Option<&str>, elapsed: Duration) -> Vec<Row> {
    let mut rows = Vec::new();
    for event in asked {
        let mut cpus: Vec<Option<u32>> =
            sums.keys().filter(|(_, name)| *name == event.name).map(|&(cpu, _)| cpu).collect();
        cpus.sort_unstable();
        if cpus.is_empty() {
            cpus.push(None);
        }
        for cpu in cpus {
            let sum = sums.get(&(cpu, Arc::clone(&event.name))).copied().unwrap_or_default();
            let all_of_cpu = |name: &str| -> Option<u64> {
                let found = sums.iter().find(|((at, known), _)| *at == cpu && bare(known) == name);
                found.filter(|(_, sum)| sum.interval.running > 0).map(|(_, sum)| sum.scaled)
            };
            rows.push(row(event, cpu, cgroup, sum, all_of_cpu, elapsed));
        }
    }
    rows
}

fn row(
    asked: &Asked,
    cpu: Option<u32>,
    cgroup: Option<&str>,
    sum: Sum,
    other: impl Fn(&str) -> Option<u64>,
    elapsed: Duration,
) -> Row {
    let (factor, unit) = match asked.event.as_ref().and_then(|event| event.scale.as_ref()) {
        // perf prints the clocks in milliseconds, and everything else in the PMU's unit.
        Some(scale) if &*scale.unit == "seconds" => (scale.factor * 1e3, "msec".to_owned()),
        Some(scale) => (scale.factor, scale.unit.to_string()),
        None => (1.0, String::new()),
    };
    let value = match sum {
        Sum { opened: false, .. } => Value::NotSupported,
        Sum { interval: Interval { running: 0, .. }, .. } => Value::NotCounted,
        _ => Value::Counted(sum.scaled as f64 * factor),
    };
    let metric = match value {
        Value::Counted(_) => derive(bare(&asked.name), sum.scaled, other, elapsed),
        _ => None,
    };
    Row {
        cpu,
        cgroup: cgroup.map(str::to_owned),
        event: Arc::clone(&asked.name),
        value,
        unit,
        running: sum.interval.running,
        percent: sum.interval.ratio().unwrap_or(1.0) * 100.0,
        deviation: None,
        metric,
    }
}

/// A name without its modifiers: `cycles` for `cycles:u`, and for `cpu_core/cycles/`.
pub(super) fn bare(name: &str) -> &str {
    match name.split_once('/') {
        Some((_, rest)) => rest.split('/').next().unwrap_or(rest),
        None => name.split(':').next().unwrap_or(name),
    }
}

/// The mean of several runs, each a list of the same rows.
pub(super) fn mean(runs: &[Vec<Row>]) -> Vec<Row> {
    let Some(first) = runs.first() else { return Vec::new() };
    let of_row = |(index, row): (usize, &Row)| {
        let runs: Vec<&Row> = runs.iter().filter_map(|rows| rows.get(index)).collect();
        let values: Vec<f64> = runs
            .iter()
            .filter_map(|row| match row.value {
                Value::Counted(value) => Some(value),
                _ => None,
            })
            .collect();
        if values.is_empty() {
            return row.clone();
        }
        let (mean, deviation) = mean_and_deviation(&values);
        let metrics: Vec<f64> = runs.iter().filter_map(|row| Some(row.metric.as_ref()?.value)).collect();
        let metric =
            row.metric.clone().map(|metric| Metric { value: mean_and_deviation(&metrics).0, ..metric });
        Row {
            value: Value::Counted(mean),
            running: runs.iter().map(|row| row.running).sum::<u64>() / runs.len() as u64,
            percent: runs.iter().map(|row| row.percent).sum::<f64>() / runs.len() as f64,
            deviation: Some(if mean == 0.0 { 0.0 } else { deviation / mean * 100.0 }),
            metric,
            ..row.clone()
        }
    };
    first.iter().enumerate().map(of_row).collect()
}

/// The mean and the standard deviation of the mean.
pub(super) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(counter: usize, place: u32, scaled: u64, enabled: u64, running: u64) -> Count {
        Count { group: 0, counter, place, raw: scaled, scaled, interval: Interval { enabled, running } }
    }

    fn asked(names: &[&str]) -> Vec<Asked> {
        names.iter().map(|&name| Asked { name: name.into(), event: None }).collect()
    }

    fn table(counts: &[Count], aggregate: Aggregate, names: &[&'static str]) -> Vec<Row> {
        let sums = add_up(counts, aggregate, |count| names.get(count.counter).map(|&name| name.into()));
        rows(&asked(names), &sums, None, Duration::from_secs(1))
    }

    #[test]
    fn places_are_added_up_unless_they_are_to_be_kept_apart() {
        let counts = [count(0, 0, 3, 10, 10), count(0, 1, 4, 10, 5)];
        let all = table(&counts, Aggregate::Everything, &["page-faults"]);
        assert_eq!((all.len(), all[0].value, all[0].percent), (1, Value::Counted(7.0), 75.0));
        let each = table(&counts, Aggregate::PerCpu, &["page-faults"]);
        let each: Vec<_> = each.iter().map(|row| (row.cpu, row.value)).collect();
        assert_eq!(each, [(Some(0), Value::Counted(3.0)), (Some(1), Value::Counted(4.0))]);
    }

    #[test]
    fn what_never_ran_is_not_counted_and_what_never_opened_is_not_supported() {
        let rows = table(&[count(0, 0, 0, 10, 0)], Aggregate::Everything, &["cycles", "instructions"]);
        assert_eq!((rows[0].value, rows[1].value), (Value::NotCounted, Value::NotSupported));
    }

    #[test]
    fn a_ratio_stays_on_its_cpu() {
        let counts =
            [count(0, 0, 100, 1, 1), count(1, 0, 200, 1, 1), count(0, 1, 100, 1, 1), count(1, 1, 50, 1, 1)];
        let rows = table(&counts, Aggregate::PerCpu, &["cycles", "instructions"]);
        let ipc: Vec<f64> = rows[2..].iter().map(|row| row.metric.as_ref().unwrap().value).collect();
        assert_eq!(ipc, [2.0, 0.5]);
    }

    #[test]
    fn several_runs_have_a_mean_and_a_deviation_of_it() {
        let run = |scaled| table(&[count(0, 0, scaled, 1, 1)], Aggregate::Everything, &["page-faults"]);
        let rows = mean(&[run(90), run(110)]);
        assert_eq!((rows[0].value, rows[0].deviation), (Value::Counted(100.0), Some(10.0)));
    }

    #[test]
    fn modifiers_and_pmus_do_not_hide_what_an_event_is() {
        assert_eq!(
            (bare("cycles:u"), bare("cpu_core/cycles/"), bare("cycles")),
            ("cycles", "cycles", "cycles")
        );
    }
}
