//! A metric with its name, unit and number format. Without I/O.

use crate::event::metric::{Definition, Style};

/// Prefixes of rates, one per thousand.
const PREFIXES: [&str; 4] = ["", "K", "M", "G"];

/// A metric derived from a count.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Metric {
    /// Name for `-M`. Empty for rates of other events.
    pub name: &'static str,
    /// Value of the metric.
    pub value: f64,
    /// Unit, as perf prints it.
    pub unit: String,
    /// Number format, as in perf.
    pub style: Style,
}

/// Reports whether a percent sign follows the number.
pub(super) fn is_percent(style: Style) -> bool {
    matches!(style, Style::Percent | Style::Tenths)
}

/// Formats a value without a percent sign.
fn format(style: Style, value: f64) -> String {
    match style {
        Style::Fine | Style::Rate => format!("{value:.3}"),
        Style::Ratio | Style::Percent => format!("{value:.2}"),
        Style::Tenths => format!("{value:.1}"),
        Style::Whole => format!("{value:.0}"),
    }
}

impl Metric {
    /// Returns a metric with the value of its formula.
    pub(super) fn of(definition: &'static Definition, value: f64) -> Self {
        let unit = definition.unit;
        match unit.style {
            Style::Rate => rate(definition.name, value),
            style => {
                Self { name: definition.name, value: value * unit.factor, unit: unit.text.to_owned(), style }
            }
        }
    }

    /// Formats the value without its unit and without a percent sign.
    pub(super) fn number(&self) -> String {
        format(self.style, self.value)
    }

    /// Formats the value without its unit. Rates are per second, without a prefix.
    pub(super) fn plain(&self) -> String {
        format(self.style, self.without_prefix())
    }

    /// Returns the value without the prefix of its unit: 2500 for 2.5 K/sec.
    fn without_prefix(&self) -> f64 {
        let power = PREFIXES.iter().position(|prefix| self.unit == format!("{prefix}/sec"));
        self.value * power.map_or(1.0, |power| 1000_f64.powi(power as i32))
    }
}

/// Returns a rate per second of CPU time, with the prefix that keeps it readable.
pub(super) fn rate(name: &'static str, per_second: f64) -> Metric {
    let mut value = per_second;
    let mut prefix = "";
    for larger in &PREFIXES[1..] {
        if value <= 1000.0 {
            break;
        }
        value /= 1000.0;
        prefix = larger;
    }
    Metric { name, value, unit: format!("{prefix}/sec"), style: Style::Rate }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::metric::find;

    #[test]
    fn a_rate_has_a_prefix_that_can_be_removed() {
        for (per_second, value) in [(2.5e6, 2.5), (700.0, 700.0), (3e12, 3000.0)] {
            let rate = rate("", per_second);
            assert!((rate.value - value).abs() < 1e-9, "{rate:?}");
            assert!((rate.without_prefix() / per_second - 1.0).abs() < 1e-9, "{rate:?}");
        }
    }

    #[test]
    fn a_value_is_converted_to_the_unit_of_its_metric() {
        for (name, value, shown, unit) in [
            ("IPC", 1.234, "1.23", "insn per cycle"),
            ("branch_miss_rate", 0.0123, "1.23", "of all branches"),
            ("retiring", 0.3, "30.0", "Retiring"),
            ("cs_per_second", 2500.0, "2500.000", "K/sec"),
            ("memory_bandwidth_read", 2.5e9, "2500.000", "MB/s"),
            ("cycles_per_elision", 49.6, "50", "cycles / elision"),
        ] {
            let metric = Metric::of(find(name).unwrap()[0], value);
            assert_eq!((&*metric.plain(), &*metric.unit), (shown, unit), "{name}");
        }
    }
}
