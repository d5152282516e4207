//! Charts of a figure over time, as inline SVG that needs no script.

use std::fmt;

use crate::export::page::html::Html;
use crate::history::{Figure, Grid};

/// Width and height of the coordinate system of a chart. The page scales it.
const SIZE: (f64, f64) = (600.0, 80.0);

/// Width and height of a sparkline.
const SPARK: (f64, f64) = (100.0, 18.0);

/// Formats a value of a figure with its unit, in few characters.
pub(super) struct Shown(pub(super) Figure, pub(super) f64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(figure, value) = *self;
        match figure {
            Figure::Cpu | Figure::Ipc | Figure::CacheMisses => f.write_str(&digits(value)),
            Figure::RunqueueLatency | Figure::BlockLatency => match value {
                ..1e-3 => write!(f, "{}\u{a0}\u{b5}s", digits(value * 1e6)),
                1e-3..1.0 => write!(f, "{}\u{a0}ms", digits(value * 1e3)),
                _ => write!(f, "{}\u{a0}s", digits(value)),
            },
            _ => {
                let (value, unit) = match value {
                    ..1e4 => (value, ""),
                    1e4..1e6 => (value / 1e3, "\u{a0}k"),
                    1e6..1e9 => (value / 1e6, "\u{a0}M"),
                    _ => (value / 1e9, "\u{a0}G"),
                };
                write!(f, "{}{unit}/s", digits(value))
            }
        }
    }
}

/// Formats a number with about three digits.
fn digits(value: f64) -> String {
    match value {
        ..0.0005 => "0".to_owned(),
        0.0005..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Returns the name of a figure on the pages.
pub(super) const fn name(figure: Figure) -> &'static str {
    match figure {
        Figure::Cpu => "CPU",
        Figure::Ipc => "Instructions per cycle",
        Figure::CacheMisses => "Cache misses per 1000 instructions",
        Figure::RunqueueLatency => "Run queue latency, p99",
        Figure::Preemptions => "Preemptions",
        Figure::Switches => "Context switches",
        Figure::Migrations => "Migrations",
        Figure::Faults => "Page faults",
        Figure::Forks => "Forks",
        Figure::Calls => "System calls",
        Figure::Errors => "System call errors",
        Figure::BlockLatency => "Block I/O latency, p99",
        Figure::LostRecords => "Lost records",
    }
}

/// Writes a chart: the name, the last value, the maximum, and an area over time. `data-v` contains the values for the script of the page.
/// `note` follows the last value.
pub(in crate::export) fn chart(
    html: &mut Html,
    figure: Figure,
    values: &[Option<f64>],
    grid: &Grid,
    note: &str,
) {
    let highest = highest(values);
    let last = values.iter().rev().find_map(|value| *value);
    html.put("<figure class=\"chart\" tabindex=\"0\" data-figure=\"{}\" data-v=\"", [&figure]);
    html.address(&listed(values)).put("\"><figcaption>{}<b>", [&name(figure)]);
    match last {
        Some(last) => html.text(Shown(figure, last)),
        None => html.raw("\u{2013}"),
    };
    html.raw("</b><small>").text(note).raw("</small><output></output></figcaption>");
    html.put(
        "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{} from 0 to {}\"><path d=\"",
        [&SIZE.0, &SIZE.1, &name(figure), &Shown(figure, highest)],
    );
    html.address(&area(values, highest, SIZE)).raw("\"/></svg>");
    html.put("<span class=\"most\">{}</span>", [&Shown(figure, highest)]);
    html.put(
        "<span class=\"times\"><span>{}</span><span>{}</span></span></figure>",
        [&clock(grid.from.0), &clock(grid.to().0)],
    );
}

/// Writes a sparkline.
pub(super) fn sparkline(html: &mut Html, values: &[Option<f64>]) {
    html.put(
        "<svg class=\"spark\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path d=\"",
        [&SPARK.0, &SPARK.1],
    );
    html.address(&area(values, highest(values), SPARK)).raw("\"/></svg>");
}

/// Formats the time of day: `18:42:10`.
pub(in crate::export) fn clock(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

fn highest(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}

/// Returns the values with about four digits, separated by commas; empty where nothing was measured.
fn listed(values: &[Option<f64>]) -> String {
    let mut text = String::new();
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        if let Some(value) = value.filter(|value| value.is_finite()) {
            let decimals =
                if value == 0.0 { 0 } else { (3.0 - value.log10().floor()).clamp(0.0, 9.0) as usize };
            text.push_str(&format!("{value:.decimals$}"));
        }
    }
    text
}

/// Returns a path with one closed area for each run of measured values.
fn area(values: &[Option<f64>], highest: f64, (width, height): (f64, f64)) -> String {
    let step = width / values.len().max(1) as f64;
    let mut path = String::new();
    let mut open = false;
    for (place, value) in values.iter().enumerate() {
        let x = place as f64 * step;
        match value {
            Some(value) => {
                let y = if highest > 0.0 { height * (1.0 - value / highest) } else { height };
                if !open {
                    path.push_str(&format!("M{x:.1} {height}"));
                }
                // A step is a bar as wide as its time.
                path.push_str(&format!("L{x:.1} {y:.1}H{:.1}", x + step));
            }
            None if open => {
                path.push_str(&format!("V{height}Z"));
            }
            None => {}
        }
        open = value.is_some();
    }
    if open {
        path.push_str(&format!("V{height}Z"));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_have_units() {
        let shown = |figure, value| Shown(figure, value).to_string();
        assert_eq!(shown(Figure::Cpu, 1.4234), "1.42");
        assert_eq!(shown(Figure::Switches, 0.0), "0/s");
        assert_eq!(shown(Figure::Switches, 9876.0), "9876/s");
        assert_eq!(shown(Figure::Switches, 12_345.0), "12.3\u{a0}k/s");
        assert_eq!(shown(Figure::Calls, 2_345_678.0), "2.35\u{a0}M/s");
        assert_eq!(shown(Figure::RunqueueLatency, 0.000_017), "17.0\u{a0}\u{b5}s");
        assert_eq!(shown(Figure::RunqueueLatency, 0.0042), "4.20\u{a0}ms");
        assert_eq!(shown(Figure::BlockLatency, 1.5), "1.50\u{a0}s");
    }

    #[test]
    fn what_was_not_measured_is_a_gap() {
        let values = [Some(1.0), None, Some(2.0), Some(0.0)];
        assert_eq!(
            area(&values, 2.0, (4.0, 10.0)),
            "M0.0 10L0.0 5.0H1.0V10ZM2.0 10L2.0 0.0H3.0L3.0 10.0H4.0V10Z"
        );
        assert_eq!(listed(&values), "1.000,,2.000,0");
        assert_eq!(area(&[], 0.0, SPARK), "");
    }

    #[test]
    fn numbers_of_any_size_are_listed() {
        assert_eq!(listed(&[Some(1e15), Some(1e-12), Some(f64::NAN)]), "1000000000000000,0.000000000,");
    }
}
