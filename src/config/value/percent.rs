//! Percentages.

use schemars::{Schema, json_schema};

use super::{Refused, Scalar, scalar};

/// Syntax that [`Percent::parse`] accepts, without the bounds.
const PERCENT_PATTERN: &str = "^([0-9]+(\\.[0-9]+)?%|off)$";

/// Fraction written as a percentage, `2%` or `0.5%`; or `off`, for no bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::config) struct Percent(pub(in crate::config) Option<f64>);

impl Percent {
    fn parse(text: &str) -> Option<Self> {
        if text == "off" {
            return Some(Self(None));
        }
        let number = text.strip_suffix('%')?;
        let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let percent: f64 = number.parse().ok().filter(|_| plain)?;
        (percent > 0.0 && percent <= 100.0).then_some(Self(Some(percent / 100.0)))
    }
}

impl Scalar for Percent {
    const NAME: &'static str = "Percent";
    const EXPECTED: &'static str = "a percentage above 0% and up to 100%, such as `2%`, or `off`";

    fn of_text(text: &str) -> Result<Self, Refused> {
        Self::parse(text).ok_or(Refused::Value)
    }

    fn of_number(number: u64) -> Result<Self, Refused> {
        Err(Refused::Because(format!("the number {number} has no unit; write `{number}%`")))
    }

    fn of_bool(on: bool) -> Result<Self, Refused> {
        // YAML 1.1 parsers convert `off` to a boolean.
        if on { Err(Refused::Value) } else { Ok(Self(None)) }
    }

    fn schema() -> Schema {
        json_schema!({
            "description": "A percentage above 0% and up to 100%, or `off`.",
            "anyOf": [{ "type": "string", "pattern": PERCENT_PATTERN }, { "type": "boolean" }],
            "examples": ["2%", "0.5%", "off"],
        })
    }
}

scalar!(Percent);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_above_nothing_and_at_most_everything() {
        for (text, part) in [("2%", Some(0.02)), ("0.5%", Some(0.005)), ("100%", Some(1.0)), ("off", None)] {
            assert_eq!(Percent::parse(text), Some(Percent(part)), "{text}");
        }
        for text in ["0%", "101%", "-1%", "2", "%", "1e1%", "inf%", "nan%", "2 %", ""] {
            assert_eq!(Percent::parse(text), None, "{text}");
        }
    }
}
