//! What becomes of the fields of an event: labels, and histograms.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::List;
use crate::config::decode::{At, TEXT_OR_BLOCK};
use crate::config::file::Unit;
use crate::config::problem::shown;

/// Fields that become labels.
#[derive(Debug)]
pub(in crate::config) enum Labels {
    /// One, under its own name.
    One(String),
    /// Several, under their own names.
    Several(Vec<At<String>>),
    /// `label: field`.
    Named(Vec<(At<String>, At<String>)>),
}

impl At<Labels> {
    /// Each label and its field, in the order of the file.
    pub(in crate::config) fn pairs(&self) -> Vec<(At<&str>, At<&str>)> {
        fn text(at: &At<String>) -> At<&str> {
            At { node: at.node, value: &at.value }
        }
        match &self.value {
            Labels::One(field) => {
                let field = At { node: self.node, value: field.as_str() };
                vec![(field, field)]
            }
            Labels::Several(fields) => fields.iter().map(|field| (text(field), text(field))).collect(),
            Labels::Named(pairs) => pairs.iter().map(|(label, field)| (text(label), text(field))).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;

        impl<'de> Visitor<'de> for LabelsVisitor {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of fields or a block of `label: field`")
            }

            fn visit_str<E: de::Error>(self, field: &str) -> Result<Labels, E> {
                Ok(Labels::One(field.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Labels, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = list.next_element()? {
                    fields.push(field);
                }
                Ok(Labels::Several(fields))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Labels::Named(pairs))
            }
        }

        deserializer.deserialize_any(LabelsVisitor)
    }
}

impl JsonSchema for Labels {
    fn schema_name() -> Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Names of fields, or a block of `label: field`.",
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } },
                { "type": "object", "additionalProperties": { "type": "string" } },
            ],
            "examples": ["function", ["oldstate", "newstate"], { "op": "rwbs" }],
        })
    }
}

/// What is distributed.
#[derive(Debug)]
pub(in crate::config) enum Histogram {
    /// `seconds`: the time that passes.
    Seconds,
    /// A field, or the time that passes in buckets of the user's.
    Block(HistogramBlock),
}

/// The long form of a histogram.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct HistogramBlock {
    /// The field. Left out, it is the time that passes.
    pub(in crate::config) of: Option<At<String>>,
    /// What the field is in; a plain number by default.
    pub(in crate::config) unit: Option<At<Unit>>,
    /// The upper bounds of the buckets in seconds, bytes or plain numbers, growing. By default
    /// powers of two; native histograms are finer.
    #[schemars(extend("examples" = [[0.001, 0.01, 0.1, 1]]))]
    pub(in crate::config) buckets: Option<At<List<f64>>>,
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HistogramVisitor;

        impl<'de> Visitor<'de> for HistogramVisitor {
            type Value = Histogram;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`seconds` or a block with `of`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Histogram, E> {
                match text {
                    "seconds" => Ok(Histogram::Seconds),
                    _ => Err(E::custom(format_args!(
                        "expected `seconds`, the time that passes, or a block, found the text {}; a field is written \
                         {{of: field, unit: bytes}}",
                        shown(text)
                    ))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Histogram, A::Error> {
                HistogramBlock::deserialize(MapAccessDeserializer::new(map)).map(Histogram::Block)
            }
        }

        deserializer.deserialize_struct(TEXT_OR_BLOCK, &["of", "unit", "buckets"], HistogramVisitor)
    }
}

impl JsonSchema for Histogram {
    fn schema_name() -> Cow<'static, str> {
        "Histogram".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "`seconds`, the time that passes, or a field and its buckets.",
            "anyOf": [{ "const": "seconds" }, HistogramBlock::json_schema(generator)],
        })
    }
}
