//! Changes between two profiles, as shares of their totals.

use std::fmt;

use super::folded::Values;

/// Totals of two profiles, by which their values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    totals: Values,
}

impl Comparison {
    /// Compares shares of these totals. With `normalized`, a value of the base is a share of the base. So profiles of different durations and
    /// loads are comparable. Otherwise, it is a share of the total of the profile, and changes of the load are visible.
    pub fn new(totals: Values, normalized: bool) -> Self {
        let base = if normalized { totals.base } else { totals.this };
        Self { totals: Values { base, ..totals } }
    }

    /// Returns the shares of a value.
    pub fn of(self, values: Values) -> Change {
        let percent = |part: u64, total: u64| 100.0 * part as f64 / total.max(1) as f64;
        Change { base: percent(values.base, self.totals.base), this: percent(values.this, self.totals.this) }
    }
}

/// Share of a value in two profiles, in percent: `12.30% → 20.10% (+7.80 points)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Share in the base.
    pub base: f64,
    /// Share in the profile.
    pub this: f64,
}

impl Change {
    /// Returns the change in percentage points.
    pub fn points(self) -> f64 {
        self.this - self.base
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}% \u{2192} {:.2}% ({} points)", self.base, self.this, Points(self.points()))
    }
}

/// Percentage points with a sign: `+7.80`, `−0.25`, `0.00`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Points(pub f64);

impl fmt::Display for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = format!("{:.2}", self.0.abs());
        let sign = match self.0 {
            _ if size == "0.00" => "",
            points if points < 0.0 => "\u{2212}",
            _ => "+",
        };
        f.pad(&format!("{sign}{size}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_that_of_shares_and_not_of_values() {
        let totals = Values { this: 500, base: 1000 };
        let values = Values { this: 100, base: 123 };
        let normalized = Comparison::new(totals, true).of(values);
        assert_eq!(normalized.to_string(), "12.30% \u{2192} 20.00% (+7.70 points)");
        let values = Comparison::new(totals, false).of(values);
        assert_eq!(values.to_string(), "24.60% \u{2192} 20.00% (\u{2212}4.60 points)");
    }

    #[test]
    fn what_rounds_to_zero_has_no_sign() {
        assert_eq!([0.0, 0.004, -0.004].map(|points| Points(points).to_string()), ["0.00"; 3]);
        assert_eq!(format!("{:>8}", Points(-12.5)), "  \u{2212}12.50");
    }

    #[test]
    fn empty_profiles_have_no_shares() {
        let change = Comparison::new(Values::default(), true).of(Values::default());
        assert_eq!((change.base, change.this), (0.0, 0.0));
    }
}
