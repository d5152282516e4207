//! The CSV and JSON formats of perf for `-x` and `-j` (`perf-stat(1)`, "CSV FORMAT", "JSON FORMAT"). Without I/O.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::aggregation::PartLabel;
use super::metric::Metric;
use super::table::Row;

/// Writes the rows as CSV with `separator`. The fields are: time of the interval and part of the target, if applicable; value; unit; event; cgroup, if
/// applicable; standard error over several runs, if applicable; run time in nanoseconds; percentage of the time in which the event was
/// counted; metric value; metric unit.
///
/// Names are not escaped. The caller must choose a separator that does not occur in names.
pub(super) fn csv(
    out: &mut dyn Write,
    rows: &[Row],
    at: Option<Duration>,
    separator: &str,
) -> io::Result<()> {
    for row in rows {
        let time = at.map(seconds);
        let head: Vec<String> = time.into_iter().chain(row.part.iter().flat_map(PartLabel::fields)).collect();
        let mut fields = head.clone();
        let decimals = if row.is_quantity { 2 } else { 0 };
        fields.push(row.value.shown(|value| format!("{value:.decimals$}")));
        fields.extend([row.unit.to_string(), row.event.to_string()]);
        fields.extend(row.cgroup.as_ref().map(ToString::to_string));
        fields.extend(row.error.map(|error| format!("{error:.2}%")));
        fields.extend([row.interval.running.to_string(), format!("{:.2}", row.running_percent())]);
        let between = fields.len() - head.len();
        let mut metrics = row.metrics.iter();
        fields.extend(metrics.next().map_or_else(|| [String::new(), String::new()], metric));
        writeln!(out, "{}", fields.join(separator))?;
        // Each further metric has a line of its own, on which all other fields are empty.
        for more in metrics {
            let empty = std::iter::repeat_n(String::new(), between);
            let fields: Vec<String> = head.iter().cloned().chain(empty).chain(metric(more)).collect();
            writeln!(out, "{}", fields.join(separator))?;
        }
    }
    Ok(())
}

/// Formats the end time of an interval.
pub(super) fn seconds(at: Duration) -> String {
    format!("{:6}.{:09}", at.as_secs(), at.subsec_nanos())
}

fn metric(metric: &Metric) -> [String; 2] {
    [metric.number(), metric.unit.clone()]
}

/// One line, with the keys of perf.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<f64>,
    #[serde(flatten, serialize_with = "part")]
    part: Option<&'a PartLabel>,
    #[serde(flatten)]
    count: Option<Count<'a>>,
    metric_value: f64,
    metric_unit: &'a str,
}

/// Writes the key of the part, and the number of its CPUs.
fn part<S: Serializer>(part: &Option<&PartLabel>, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    part.map_or(Ok(()), |part| part.entries(&mut map))?;
    map.end()
}

/// The fields that lines of further metrics omit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Count<'a> {
    /// A text, because the value may be `<not counted>`.
    counter_value: String,
    unit: &'a str,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variance: Option<f64>,
    event_runtime: u64,
    pcnt_running: f64,
}

/// Writes each row as one JSON object per line.
pub(super) fn json(out: &mut dyn Write, rows: &[Row], at: Option<Duration>) -> io::Result<()> {
    for row in rows {
        let mut count = Some(Count {
            counter_value: row.value.shown(|value| format!("{value:.6}")),
            unit: &row.unit,
            event: &row.event,
            cgroup: row.cgroup.as_deref(),
            variance: row.error.map(to_hundredths),
            event_runtime: row.interval.running,
            pcnt_running: to_hundredths(row.running_percent()),
        });
        let metrics = row.metrics.iter().map(|metric| (metric.value, &*metric.unit));
        let none = row.metrics.is_empty().then_some((0.0, ""));
        for (metric_value, metric_unit) in metrics.chain(none) {
            let object = Object {
                interval: at.map(|at| at.as_secs_f64()),
                part: row.part.as_ref(),
                count: count.take(),
                metric_value: (metric_value * 1e6).round() / 1e6,
                metric_unit,
            };
            serde_json::to_writer(&mut *out, &object)?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn to_hundredths(percent: f64) -> f64 {
    (percent * 100.0).round() / 100.0
}
