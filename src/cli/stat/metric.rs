//! A metric with its name, unit and number format. Without I/O.

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

/// Number format of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Three decimals.
    Fine,
    /// Two decimals.
    Ratio,
    /// Two decimals and a percent sign.
    Percent,
    /// One decimal and a percent sign.
    Tenths,
    /// No decimals.
    Whole,
}

impl Style {
    /// Reports whether a percent sign follows the number.
    pub(super) fn is_percent(self) -> bool {
        matches!(self, Self::Percent | Self::Tenths)
    }

    /// Formats a value without a percent sign.
    pub(super) fn format(self, value: f64) -> String {
        match self {
            Self::Fine => format!("{value:.3}"),
            Self::Ratio | Self::Percent => format!("{value:.2}"),
            Self::Tenths => format!("{value:.1}"),
            Self::Whole => format!("{value:.0}"),
        }
    }
}

impl Metric {
    pub(super) fn new(name: &'static str, style: Style, value: f64, unit: &str) -> Self {
        Self { name, value, unit: unit.to_owned(), style }
    }

    /// Returns the value without the prefix of its unit: 2500 for 2.5 K/sec.
    pub(super) fn without_prefix(&self) -> f64 {
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
    Metric::new(name, Style::Fine, value, &format!("{prefix}/sec"))
}
