//! Values with a syntax of their own: addresses, durations, sizes, events, and lists that may be a single item.
//!
//! Each type declares its syntax twice, for the deserializer and for the schema. The tests of [`schema`](mod@super::schema) check that
//! both agree.

mod header;
mod mode;
mod percent;
mod scalar;
mod socket;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::{Value as Json, json};

use super::decode::{At, Pairs};
use super::problem::shown;
use crate::host::CpuSet;

pub(super) use header::HeaderText;
pub(super) use mode::FileMode;
pub(super) use percent::Percent;
use scalar::{Refused, Scalar, scalar};
pub use socket::Socket;

/// Syntax of the names of entries and events, which become parts of metric names. The same rule as [`is_name`], as a pattern.
const NAME_PATTERN: &str = "^[a-z_][a-z0-9_]*$";
/// Syntax that [`Period::parse`] accepts.
const PERIOD_PATTERN: &str = "^[0-9]+(ms|s|m|h)$";
/// Syntax that [`Size::parse`] accepts.
const SIZE_PATTERN: &str = "^[0-9]+(KiB|MiB|GiB|Ki|Mi|Gi)$";
/// Syntax that [`Cpus`] accepts, as far as a pattern can express it.
const CPUS_PATTERN: &str = "^[0-9]+(-[0-9]+(:[0-9]+)?)?(,[0-9]+(-[0-9]+(:[0-9]+)?)?)*$";

/// Reports whether a text can be part of a metric name without changes.
pub(super) fn is_name(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    !text.is_empty() && text.bytes().all(word) && !text.starts_with(|c: char| c.is_ascii_digit())
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Unparsed `ADDRESS:PORT` or `unix:PATH`.
#[derive(Debug)]
pub(super) struct Address(pub(super) String);

impl Scalar for Address {
    const NAME: &'static str = "Address";
    const INLINE: bool = true;
    const EXPECTED: &'static str = "an address and a port such as `0.0.0.0:7373`";

    fn of_text(text: &str) -> Result<Self, Refused> {
        Ok(Self(text.to_owned()))
    }

    fn of_number(port: u64) -> Result<Self, Refused> {
        let hint = format!("write `0.0.0.0:{port}`");
        Err(Refused::Because(format!("expected an address and a port, found the number {port}; {hint}")))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// Duration: a whole number and `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) struct Period(pub(super) Duration);

impl Period {
    pub(super) const fn milliseconds(number: u64) -> Self {
        Self(Duration::from_millis(number))
    }

    pub(super) const fn seconds(number: u64) -> Self {
        Self(Duration::from_secs(number))
    }

    /// Parses `500ms`, `15s`, `1m`, `1h`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let milliseconds = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        Some(Self(Duration::from_millis(number.checked_mul(milliseconds)?)))
    }
}

/// Formats the duration in its largest unit, with a fraction: `1.5s`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Scalar for Period {
    const NAME: &'static str = "Duration";
    const EXPECTED: &'static str = "a whole number with ms, s, m or h, such as `15s`";

    fn of_text(text: &str) -> Result<Self, Refused> {
        Self::parse(text).ok_or(Refused::Value)
    }

    fn of_number(number: u64) -> Result<Self, Refused> {
        match number {
            0 => Ok(Self(Duration::ZERO)),
            _ => Err(Refused::Because(format!(
                "the number {number} has no unit; write `{number}s` for seconds"
            ))),
        }
    }

    fn schema() -> Schema {
        json_schema!({
            "description": "A whole number and its unit: ms, s, m or h. 0 needs no unit.",
            "type": ["string", "integer"],
            "pattern": PERIOD_PATTERN,
            "minimum": 0,
            "maximum": 0,
            "examples": ["500ms", "15s", "1m"],
        })
    }
}

/// Amount of memory: bytes, or a whole number and `KiB`, `MiB` or `GiB`. Kubernetes omits the `B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) struct Size(pub(super) u64);

/// Units of sizes, in descending order.
const SIZE_UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Size {
    /// Parses `512KiB`, `64MiB`, `64Mi`, `1GiB`.
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let (_, bytes) =
            SIZE_UNITS.into_iter().find(|(name, _)| unit == *name || Some(unit) == name.strip_suffix('B'))?;
        Some(Self(number.parse::<u64>().ok()?.checked_mul(bytes)?))
    }

    /// Returns a correction for an invalid text with a recognizable size: `64MB`, `64m`, `64 MiB`, `4096B`, `"4096"`.
    fn meant(text: &str) -> Option<String> {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let number: u64 = number.parse().ok()?;
        let unit = unit.trim().to_ascii_lowercase();
        if matches!(&*unit, "" | "b" | "byte" | "bytes") {
            return Some(format!("write `{number}`, without quotes, for bytes"));
        }
        let (letter, rest) = unit.split_at_checked(1)?;
        let known = |(name, _): &(&str, _)| {
            name.to_ascii_lowercase().starts_with(letter) && matches!(rest, "" | "b" | "i" | "ib")
        };
        SIZE_UNITS.iter().find(|unit| known(unit)).map(|(name, _)| format!("write `{number}{name}`"))
    }
}

/// Formats the size as in a file, in the largest unit of which it is a multiple.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        match SIZE_UNITS.into_iter().find(|(_, unit)| bytes != 0 && bytes.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{}{name}", bytes / unit),
            None => write!(f, "{bytes} bytes"),
        }
    }
}

impl Scalar for Size {
    const NAME: &'static str = "Size";
    const EXPECTED: &'static str = "bytes, or a whole number with KiB, MiB or GiB, such as `64MiB`";

    fn of_text(text: &str) -> Result<Self, Refused> {
        Self::parse(text).ok_or_else(|| match Self::meant(text) {
            Some(hint) => Refused::Because(format!("{} is not a size; {hint}", shown(text))),
            None => Refused::Value,
        })
    }

    fn of_number(bytes: u64) -> Result<Self, Refused> {
        Ok(Self(bytes))
    }

    fn schema() -> Schema {
        json_schema!({
            "description": "Bytes, or a whole number and its unit: KiB, MiB or GiB.",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": SIZE_PATTERN }],
            "examples": ["512KiB", "64MiB", "1GiB"],
        })
    }
}

/// CPU list in the format of the kernel: `0-3,8`. A single CPU may be a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cpus(pub(super) CpuSet);

impl Scalar for Cpus {
    const NAME: &'static str = "Cpus";
    const INLINE: bool = true;
    const EXPECTED: &'static str = "a list of CPUs such as `0-3,8`";

    fn of_text(text: &str) -> Result<Self, Refused> {
        let cpus = text.parse::<CpuSet>().ok().filter(|cpus| !cpus.is_empty());
        cpus.map(Self).ok_or(Refused::Value)
    }

    fn of_number(number: u64) -> Result<Self, Refused> {
        Self::of_text(&number.to_string())
    }

    fn schema() -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": CpuSet::HIGHEST },
                { "type": "string", "pattern": CPUS_PATTERN },
            ],
            "examples": ["0-3,8", 0],
        })
    }
}

scalar!(Address, Period, Size, Cpus);

/// List of values, or a single value.
#[derive(Debug, Clone)]
pub(super) struct List<T>(Vec<At<T>>);

impl<T> Deref for List<T> {
    type Target = [At<T>];

    fn deref(&self) -> &[At<T>] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The deserializer of `decode` converts a single value to a list.
        Vec::deserialize(deserializer).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("List_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let item = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [{ "type": "array", "items": item }, item] })
    }
}

/// Named values in the order of the file. `IDENTIFIERS`: whether the schema restricts names to those that are valid in metric names.
#[derive(Debug)]
pub(super) struct Entries<T, const IDENTIFIERS: bool = true>(pub(super) Vec<(At<String>, At<T>)>);

/// Map of texts, `name: text`: headers, attributes.
pub(super) type Texts = Entries<String, false>;

impl<'de, T: Deserialize<'de>, const IDENTIFIERS: bool> Deserialize<'de> for Entries<T, IDENTIFIERS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs(PhantomData)).map(Self)
    }
}

impl<T: JsonSchema, const IDENTIFIERS: bool> JsonSchema for Entries<T, IDENTIFIERS> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Map_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema =
            json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() });
        if IDENTIFIERS {
            schema.insert("propertyNames".into(), json!({ "pattern": NAME_PATTERN }));
        }
        schema
    }
}

/// Event: its text, alone or with a name.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename = "TextOrBlock", deny_unknown_fields)]
#[schemars(rename = "Event", description = "The long form of an event.", transform = Event::short_form)]
pub(super) struct Event {
    /// The event, in the syntax of `perf stat -e`.
    pub(super) event: At<String>,
    /// The name in its metrics: the `name` in `perf_cpu_<name>_total`.
    #[serde(default)]
    #[schemars(regex(pattern = NAME_PATTERN))]
    pub(super) name: Option<At<String>>,
}

impl Event {
    fn short_form(schema: &mut Schema) {
        let about = "An event in the syntax of `perf stat -e`, alone or with a name for its metrics.";
        or_short(schema, about, &json!({ "type": "string" }));
    }
}

/// Extends the schema of a block with its short form.
pub(super) fn or_short(block: &mut Schema, about: &str, short: &Json) {
    *block = json_schema!({ "description": about, "anyOf": [short, block] });
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::config::tests::{good, report};

    #[test]
    fn durations_are_a_whole_number_and_a_unit() {
        let parse = |text| Period::parse(text).map(|Period(duration)| duration);
        assert_eq!(parse("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse("15s"), Some(Duration::from_secs(15)));
        assert_eq!(parse("2m"), Some(Duration::from_secs(120)));
        assert_eq!(parse("1h"), Some(Duration::from_secs(3600)));
        for text in
            ["", "s", "5", "1.5s", "-1s", "5 s", "5sec", "99999999999999999999s", "18446744073709551615h"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_duration_without_a_unit_is_told_how_to_get_one() {
        let expected = "1:24: collection.interval: the number 10 has no unit; write `10s` for seconds";
        assert_eq!(report("collection: {interval: 10}"), expected);
        assert_eq!(good("collection: {freshness: 0}").collection.freshness, Duration::ZERO);
        assert!(
            report("collection: {interval: 1.5s}").contains("expected a whole number with ms, s, m or h")
        );
        assert!(report("collection: {interval: 1.5}").contains("found the number 1.5"));
    }

    #[test]
    fn sizes_are_bytes_or_a_whole_number_and_a_unit() {
        let parse = |text| Size::parse(text).map(|Size(bytes)| bytes);
        assert_eq!(parse("512KiB"), Some(512 << 10));
        assert_eq!(parse("64MiB"), Some(64 << 20));
        assert_eq!(parse("2GiB"), Some(2 << 30));
        assert_eq!((parse("1Ki"), parse("1Mi"), parse("1Gi")), (Some(1 << 10), Some(1 << 20), Some(1 << 30)));
        for text in
            ["", "KiB", "64", "64M", "64MB", "64 MiB", "64mib", "1.5GiB", "-1MiB", "+1MiB", "17179869184GiB"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        let memory = |text: &str| good(&format!("limits: {{ring_memory: {text}}}")).limits.ring_memory;
        assert_eq!(memory("1048576"), memory("1MiB"));
    }

    #[test]
    fn sizes_are_shown_as_they_are_written() {
        for text in ["512KiB", "64MiB", "1GiB", "1025KiB"] {
            assert_eq!(Size::parse(text).unwrap().to_string(), text);
        }
        assert_eq!((Size(0).to_string(), Size(1025).to_string()), ("0 bytes".into(), "1025 bytes".into()));
    }

    #[test]
    fn a_size_in_another_notation_is_given_back_in_ours() {
        let report =
            |text: &str| report(&format!("limits: {{ring_memory: {text}}}")).split_off("1:23: ".len());
        for (text, better) in [
            ("64MB", "write `64MiB`"),
            ("64M", "write `64MiB`"),
            ("64mi", "write `64MiB`"),
            ("64 MiB", "write `64MiB`"),
            ("2gb", "write `2GiB`"),
            ("4096k", "write `4096KiB`"),
            ("1048576B", "write `1048576`, without quotes, for bytes"),
            ("'1048576'", "write `1048576`, without quotes, for bytes"),
        ] {
            let shown = text.trim_matches('\'');
            assert_eq!(report(text), format!("limits.ring_memory: `{shown}` is not a size; {better}"));
        }
        let expected =
            "limits.ring_memory: expected bytes, or a whole number with KiB, MiB or GiB, such as `64MiB`";
        for (text, found) in [
            ("1.5GiB", "the text `1.5GiB`"),
            ("5%", "the text `5%`"),
            ("1TiB", "the text `1TiB`"),
            ("lots", "the text `lots`"),
            ("é", "the text `é`"),
            ("1é", "the text `1é`"),
            ("-1", "the number -1"),
            ("1.5", "the number 1.5"),
            ("[]", "a list"),
        ] {
            assert_eq!(report(text), format!("{expected}, found {found}"));
        }
    }

    #[test]
    fn names_are_what_a_metric_can_be_called() {
        for name in ["a", "_", "l1_data", "_2"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "2a", "A", "a-b", "a b", "é"] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn entries_keep_the_order_of_the_file() {
        let config = good("counters: {z: {events: cycles}, a: {events: faults}, m: {events: cs}}");
        assert_eq!(config.counters.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), ["z", "a", "m"]);
    }
}
