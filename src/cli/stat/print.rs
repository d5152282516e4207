//! The result as text for people, as perf's CSV, and as perf's JSON lines.

use std::io::{self, Write};
use std::time::Duration;

use super::table::{Row, Value};
use crate::health::Refusal;

/// How the result is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Style {
    /// perf's table.
    Text,
    /// perf's `-x`, with this separator.
    Csv(String),
    /// perf's `-j`: one object a line.
    Json,
}

/// What stands around the table of a whole measurement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame<'a> {
    /// `'make -j8'`, `'system wide'`, `process id '812'`.
    pub(super) title: &'a str,
    /// Runs that the rows are the mean of.
    pub(super) runs: usize,
    /// Wall time of each run: its mean, and the deviation of that.
    pub(super) elapsed: (Duration, Duration),
    /// User and system time of the command.
    pub(super) used: Option<(Duration, Duration)>,
    /// Why rows are not supported.
    pub(super) refusals: &'a [Refusal],
}

/// Writes the result of a whole measurement.
pub(super) fn whole(out: &mut dyn Write, style: &Style, rows: &[Row], frame: &Frame<'_>) -> io::Result<()> {
    if *style != Style::Text {
        return lines(out, style, rows, None);
    }
    let runs = if frame.runs > 1 { format!(" ({} runs)", frame.runs) } else { String::new() };
    writeln!(out, "\n Performance counter stats for {}{runs}:\n", frame.title)?;
    rows.iter().try_for_each(|row| writeln!(out, "{}", text(row)))?;
    let (mean, deviation) = frame.elapsed;
    match frame.runs {
        0 | 1 => writeln!(out, "\n{:>18.9} seconds time elapsed", mean.as_secs_f64())?,
        _ => {
            let percent = deviation.as_secs_f64() / mean.as_secs_f64().max(1e-9) * 100.0;
            let (mean, deviation) = (mean.as_secs_f64(), deviation.as_secs_f64());
            writeln!(out, "\n{mean:>18.7} +- {deviation:.7} seconds time elapsed  ( +- {percent:.2}% )")?;
        }
    }
    if let Some((user, system)) = frame.used {
        writeln!(
            out,
            "\n{:>18.9} seconds user\n{:>18.9} seconds sys",
            user.as_secs_f64(),
            system.as_secs_f64()
        )?;
    }
    writeln!(out)?;
    reasons(out, frame.refusals)
}

/// Writes the rows of one interval, which ended `at` after the start.
pub(super) fn interval(
    out: &mut dyn Write,
    style: &Style,
    rows: &[Row],
    at: Duration,
    first: bool,
) -> io::Result<()> {
    if *style != Style::Text {
        return lines(out, style, rows, Some(at));
    }
    if first {
        writeln!(out, "#           time             counts unit events")?;
    }
    rows.iter().try_for_each(|row| writeln!(out, "{:>16.9} {}", at.as_secs_f64(), text(row)))
}

fn lines(out: &mut dyn Write, style: &Style, rows: &[Row], at: Option<Duration>) -> io::Result<()> {
    rows.iter().try_for_each(|row| match style {
        Style::Csv(separator) => writeln!(out, "{}", csv(row, at, separator)),
        Style::Json | Style::Text => writeln!(out, "{}", json(row, at)),
    })
}

/// Why events are missing: each reason once.
pub(super) fn reasons(out: &mut dyn Write, refusals: &[Refusal]) -> io::Result<()> {
    let mut told: Vec<(&str, Option<&str>)> = Vec::new();
    for refusal in refusals {
        let reason = (&*refusal.reason, refusal.remedy.as_deref());
        if told.contains(&reason) {
            continue;
        }
        told.push(reason);
        let same = refusals.iter().filter(|other| (&*other.reason, other.remedy.as_deref()) == reason);
        let mut events: Vec<&str> = Vec::new();
        for other in same {
            if !events.contains(&&*other.event) {
                events.push(&other.event);
            }
        }
        writeln!(out, " {}: {}: {}", events.join(", "), refusal.cause, refusal.reason)?;
        refusal.remedy.iter().try_for_each(|remedy| writeln!(out, "   {remedy}"))?;
    }
    Ok(())
}

/// One line of the table.
fn text(row: &Row) -> String {
    let mut line = String::new();
    if let Some(cpu) = row.cpu {
        line.push_str(&format!("CPU{cpu:<5} "));
    }
    let value = match row.value {
        Value::Counted(value) if row.unit.is_empty() => grouped(value.round(), 0),
        Value::Counted(value) => grouped(value, 2),
        Value::NotCounted => "<not counted>".into(),
        Value::NotSupported => "<not supported>".into(),
    };
    line.push_str(&format!("{value:>18} {:4} ", row.unit));
    line.push_str(&row.event);
    if let Some(cgroup) = &row.cgroup {
        line.push(' ');
        line.push_str(&printable(cgroup));
    }
    let pad =
        |line: &mut String, to: usize| line.extend(std::iter::repeat_n(' ', to.saturating_sub(line.len())));
    if let Some(metric) = &row.metric {
        pad(&mut line, 57);
        line.push_str(&match metric.percentage {
            true => format!("# {:>7.2}% {:<20}", metric.value, metric.unit),
            false => format!("# {:>8.3} {:<20}", metric.value, metric.unit),
        });
    }
    if let Some(deviation) = row.deviation {
        pad(&mut line, 88);
        line.push_str(&format!("( +- {deviation:.2}% )"));
    }
    if row.percent < 99.995 && matches!(row.value, Value::Counted(_)) {
        pad(&mut line, 88);
        line.push_str(&format!("({:.2}%)", row.percent));
    }
    line.trim_end().to_owned()
}

/// A number with separators between thousands, and so many digits behind the point.
fn grouped(value: f64, digits: usize) -> String {
    let plain = format!("{value:.digits$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) && digit.is_ascii_digit() {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// Without the control characters that a cgroup's name may hold.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// `[time] [CPU] value unit event [cgroup] [deviation] run-time percentage metric metric-unit`, as `perf stat -x`.
fn csv(row: &Row, at: Option<Duration>, separator: &str) -> String {
    let mut fields: Vec<String> = Vec::new();
    fields.extend(at.map(|at| format!("{:>6.9}", at.as_secs_f64())));
    fields.extend(row.cpu.map(|cpu| format!("CPU{cpu}")));
    fields.push(match row.value {
        Value::Counted(value) if row.unit.is_empty() => format!("{:.0}", value.round()),
        Value::Counted(value) => format!("{value:.2}"),
        Value::NotCounted => "<not counted>".into(),
        Value::NotSupported => "<not supported>".into(),
    });
    fields.push(row.unit.clone());
    fields.push(row.event.to_string());
    fields.extend(row.cgroup.as_deref().map(printable));
    fields.extend(row.deviation.map(|deviation| format!("{deviation:.2}%")));
    fields.push(row.running.to_string());
    fields.push(format!("{:.2}", row.percent));
    match &row.metric {
        Some(metric) => fields.extend([format!("{:.3}", metric.value), metric.unit.to_owned()]),
        None => fields.extend([String::new(), String::new()]),
    }
    fields.join(separator)
}

/// One object with perf's keys.
fn json(row: &Row, at: Option<Duration>) -> String {
    let mut object = serde_json::Map::new();
    let mut put = |key: &str, value: serde_json::Value| object.insert(key.into(), value);
    if let Some(at) = at {
        put("interval", at.as_secs_f64().into());
    }
    if let Some(cpu) = row.cpu {
        put("cpu", cpu.to_string().into());
    }
    // A text, as in perf: it may say that there is no count.
    let value = match row.value {
        Value::Counted(value) => format!("{value:.6}"),
        Value::NotCounted => "<not counted>".into(),
        Value::NotSupported => "<not supported>".into(),
    };
    put("counter-value", value.into());
    put("unit", row.unit.as_str().into());
    if let Some(cgroup) = &row.cgroup {
        put("cgroup", cgroup.as_str().into());
    }
    put("event", (&*row.event).into());
    if let Some(deviation) = row.deviation {
        put("variance", deviation.into());
    }
    put("event-runtime", row.running.into());
    put("pcnt-running", row.percent.into());
    if let Some(metric) = &row.metric {
        put("metric-value", metric.value.into());
        put("metric-unit", metric.unit.into());
    }
    serde_json::Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::derive::Metric;
    use super::*;
    use crate::health::Cause;

    fn row(event: &str, value: Value, unit: &str, metric: Option<(f64, &'static str, bool)>) -> Row {
        Row {
            cpu: None,
            cgroup: None,
            event: event.into(),
            value,
            unit: unit.into(),
            running: 1_000_000,
            percent: 100.0,
            deviation: None,
            metric: metric.map(|(value, unit, percentage)| Metric { value, unit, percentage }),
        }
    }

    fn specimen() -> Vec<Row> {
        vec![
            row("task-clock", Value::Counted(1234.567), "msec", Some((0.987, "CPUs utilized", false))),
            row("cycles", Value::Counted(3_456_789_012.0), "", Some((2.8, "GHz", false))),
            Row {
                percent: 42.5,
                ..row("branch-misses", Value::Counted(999.0), "", Some((1.5, "of all branches", true)))
            },
            row("LLC-loads", Value::NotSupported, "", None),
            Row { cpu: Some(3), ..row("page-faults", Value::NotCounted, "", None) },
            Row { cgroup: Some("/a\nb".into()), ..row("cs", Value::Counted(1_000.0), "", None) },
        ]
    }

    fn printed(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn refusal() -> Refusal {
        Refusal {
            event: "LLC-loads".into(),
            target: "cpu 0".into(),
            cause: Cause::Absent,
            errno: None,
            reason: "this machine's PMU does not count it".into(),
            remedy: Some("perf-exporter list shows what can be counted here".into()),
        }
    }

    #[test]
    fn the_table_is_as_recorded() {
        let refusals = [refusal(), refusal()];
        let frame = Frame {
            title: "'make -j8'",
            runs: 1,
            elapsed: (Duration::from_millis(1250), Duration::ZERO),
            used: Some((Duration::from_millis(1200), Duration::from_millis(34))),
            refusals: &refusals,
        };
        insta::assert_snapshot!(printed(|out| whole(out, &Style::Text, &specimen(), &frame)));
    }

    #[test]
    fn several_runs_are_as_recorded() {
        let rows = vec![Row { deviation: Some(1.234), ..specimen().remove(0) }];
        let frame = Frame {
            title: "'true'",
            runs: 3,
            elapsed: (Duration::from_micros(1140), Duration::from_micros(59)),
            used: None,
            refusals: &[],
        };
        insta::assert_snapshot!(printed(|out| whole(out, &Style::Text, &rows, &frame)));
    }

    #[test]
    fn intervals_are_as_recorded() {
        let at = Duration::from_micros(100_170);
        insta::assert_snapshot!(printed(|out| interval(out, &Style::Text, &specimen()[..2], at, true)));
    }

    #[test]
    fn csv_has_perfs_columns() {
        let at = Some(Duration::from_millis(1500));
        let lines: Vec<String> = specimen().iter().map(|row| csv(row, None, ",")).collect();
        assert_eq!(
            lines,
            [
                "1234.57,msec,task-clock,1000000,100.00,0.987,CPUs utilized",
                "3456789012,,cycles,1000000,100.00,2.800,GHz",
                "999,,branch-misses,1000000,42.50,1.500,of all branches",
                "<not supported>,,LLC-loads,1000000,100.00,,",
                "CPU3,<not counted>,,page-faults,1000000,100.00,,",
                "1000,,cs,/a\u{fffd}b,1000000,100.00,,",
            ]
        );
        assert_eq!(csv(&specimen()[1], at, ";"), "1.500000000;3456789012;;cycles;1000000;100.00;2.800;GHz");
    }

    #[test]
    fn json_has_perfs_keys_and_is_json_whatever_a_cgroup_is_called() {
        let line = json(&specimen()[5], Some(Duration::from_millis(100)));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["counter-value"], "1000.000000");
        assert_eq!((&value["interval"], &value["cgroup"]), (&0.1.into(), &"/a\nb".into()));
        assert_eq!(value["pcnt-running"], 100.0);
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(1_234_567.0, 0), "1,234,567");
        assert_eq!(grouped(999.5, 2), "999.50");
        assert_eq!(grouped(1000.0, 2), "1,000.00");
        assert_eq!(grouped(0.0, 0), "0");
    }
}
