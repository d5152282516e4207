//! Keys for the fields of an event: labels, sums and histograms.

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

/// Fields that become labels: each label with its field, in the order of the file.
#[derive(Debug)]
pub(in crate::config) struct Labels(pub(in crate::config) Vec<(At<String>, At<String>)>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;

        impl<'de> Visitor<'de> for LabelsVisitor {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("field names or a block of `label: field`")
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
            "description": "Field names, or a block of `label: field`.",
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } },
                { "type": "object", "additionalProperties": { "type": "string" } },
            ],
            "examples": ["function", ["oldstate", "newstate"], { "op": "rwbs" }],
        })
    }
}

/// A field to sum.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Sum {
    /// The field.
    pub(in crate::config) of: At<String>,
    /// The unit of the field; a plain number by default.
    pub(in crate::config) unit: Option<At<Unit>>,
}

/// Value of a histogram: a field or a duration. The short form `seconds` is the duration.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "TextOrBlock", deny_unknown_fields)]
#[schemars(rename = "Histogram", description = "The long form of a histogram.", transform = Histogram::short_form)]
pub(in crate::config) struct Histogram {
    /// The field. If omitted, the histogram is of the duration.
    #[serde(default)]
    of: Option<At<String>>,
    /// The unit of the field; a plain number by default.
    #[serde(default)]
    pub(in crate::config) unit: Option<At<Unit>>,
    /// The upper bounds of the buckets in seconds, bytes or plain numbers, in ascending order. The default is powers of two; native
    /// histograms have a finer resolution.
    #[serde(default)]
    #[schemars(extend("examples" = [[0.001, 0.01, 0.1, 1]]))]
    pub(in crate::config) buckets: Option<At<List<f64>>>,
}

impl Histogram {
    fn short_form(schema: &mut Schema) {
        or_short(
            schema,
            "`seconds` for the duration, or a field and its buckets.",
            &json!({ "const": "seconds" }),
        );
    }
}

impl At<Histogram> {
    /// Returns the field; `None` for the duration.
    pub(in crate::config) fn of(&self) -> Option<&At<String>> {
        self.value.of.as_ref().filter(|of| of.node != self.node)
    }

    /// Returns the short form, if it is not `seconds`.
    pub(in crate::config) fn unknown_text(&self) -> Option<&str> {
        let text = self.value.of.as_ref().filter(|of| of.node == self.node)?;
        (text.value != "seconds").then_some(&text.value)
    }
}
