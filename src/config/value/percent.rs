//! A part of something.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// What [`Percent::parse`] reads, but for the bounds.
const PERCENT_PATTERN: &str = "^([0-9]+(\\.[0-9]+)?%|off)$";

/// A part of something: `2%`, `0.5%`; or `off`, for no bound.
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

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PercentVisitor;

        impl Visitor<'_> for PercentVisitor {
            type Value = Percent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a percentage above 0% and up to 100%, such as `2%`, or `off`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Percent, E> {
                Percent::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Percent, E> {
                // YAML 1.1 reads `off` as a truth value.
                if on { Err(E::invalid_value(de::Unexpected::Bool(on), &self)) } else { Ok(Percent(None)) }
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Percent, E> {
                Err(E::custom(format_args!("the number {number} has no unit; write `{number}%`")))
            }
        }

        deserializer.deserialize_any(PercentVisitor)
    }
}

impl JsonSchema for Percent {
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A percentage above 0% and up to 100%, or `off`.",
            "anyOf": [{ "type": "string", "pattern": PERCENT_PATTERN }, { "type": "boolean" }],
            "examples": ["2%", "0.5%", "off"],
        })
    }
}

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
