//! What may be said about the fields of an event: labels, sums and histograms.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::json;

use crate::config::decode::{At, TEXTS_OR_BLOCK};
use crate::config::traced::Unit;
use crate::config::value::{List, Texts, or_short};

/// Fields that become labels: each label and its field, in the order of the file.
#[derive(Debug)]
pub(in crate::config) struct Labels(pub(in crate::config) Vec<(At<String>, At<String>)>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;

        impl<'de> Visitor<'de> for LabelsVisitor {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of fields or a block of `label: field`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Labels, A::Error> {
                let fields = Vec::<At<String>>::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Labels(fields.into_iter().map(|field| (field.clone(), field)).collect()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Labels, A::Error> {
                Texts::deserialize(MapAccessDeserializer::new(map)).map(|named| Labels(named.0))
            }
        }

        deserializer.deserialize_tuple_struct(TEXTS_OR_BLOCK, 1, LabelsVisitor)
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

/// A field that is added up.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Sum {
    /// The field.
    pub(in crate::config) of: At<String>,
    /// What the field is in; a plain number by default.
    pub(in crate::config) unit: Option<At<Unit>>,
}

/// What is distributed: a field, or the time that passes. The text `seconds` is short for the latter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "TextOrBlock", deny_unknown_fields)]
#[schemars(rename = "Histogram", description = "The long form of a histogram.", transform = Histogram::short_form)]
pub(in crate::config) struct Histogram {
    /// The field. Left out, it is the time that passes.
    #[serde(default)]
    of: Option<At<String>>,
    /// What the field is in; a plain number by default.
    #[serde(default)]
    pub(in crate::config) unit: Option<At<Unit>>,
    /// The upper bounds of the buckets in seconds, bytes or plain numbers, growing. By default
    /// powers of two; native histograms are finer.
    #[serde(default)]
    #[schemars(extend("examples" = [[0.001, 0.01, 0.1, 1]]))]
    pub(in crate::config) buckets: Option<At<List<f64>>>,
}

impl Histogram {
    fn short_form(schema: &mut Schema) {
        or_short(
            schema,
            "`seconds`, the time that passes, or a field and its buckets.",
            &json!({ "const": "seconds" }),
        );
    }
}

impl At<Histogram> {
    /// The field; `None` if it is the time that passes.
    pub(in crate::config) fn of(&self) -> Option<&At<String>> {
        self.value.of.as_ref().filter(|of| of.node != self.node)
    }

    /// The text that stands for the whole, if it is not `seconds`.
    pub(in crate::config) fn unknown_text(&self) -> Option<&str> {
        let text = self.value.of.as_ref().filter(|of| of.node == self.node)?;
        (text.value != "seconds").then_some(&text.value)
    }
}
