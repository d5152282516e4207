//! Attributes and resources of all signals.
//!
//! Keys and strings are written inline, never as references to a string table, which receivers of profiles do not resolve.

use std::borrow::Cow;
use std::sync::Arc;

use crate::export::protobuf::wire::{Message, Sink};

/// Schema URL of the attributes.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// A key-value pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attribute {
    /// Key from the OpenTelemetry semantic conventions: `container.id`.
    pub key: Cow<'static, str>,
    /// Value of the attribute.
    pub value: Scalar,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// A string.
    Text(Arc<str>),
    /// An integer.
    Integer(i64),
    /// A boolean.
    Bool(bool),
}

impl Attribute {
    /// Creates an attribute with a string value.
    pub fn text(key: impl Into<Cow<'static, str>>, value: impl Into<Arc<str>>) -> Self {
        Self { key: key.into(), value: Scalar::Text(value.into()) }
    }

    /// Creates an attribute with an integer value.
    pub fn integer(key: impl Into<Cow<'static, str>>, value: i64) -> Self {
        Self { key: key.into(), value: Scalar::Integer(value) }
    }
}

/// Attributes of an OTLP resource, which identify the sender: sorted by key, without duplicate keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    attributes: Vec<Attribute>,
}

impl Resource {
    /// Creates a resource. Of duplicate keys the last value is kept; empty keys are dropped.
    pub fn new(attributes: impl IntoIterator<Item = Attribute>) -> Self {
        Self::default().with(attributes)
    }

    /// Adds attributes; they replace existing values.
    #[must_use]
    pub fn with(mut self, attributes: impl IntoIterator<Item = Attribute>) -> Self {
        for attribute in attributes.into_iter().filter(|attribute| !attribute.key.is_empty()) {
            match self.attributes.binary_search_by(|known| known.key.cmp(&attribute.key)) {
                // In bounds: the index was returned by the search.
                Ok(at) => self.attributes[at] = attribute,
                Err(at) => self.attributes.insert(at, attribute),
            }
        }
        self
    }

    /// Removes some keys.
    #[must_use]
    pub fn without(mut self, keys: &[&str]) -> Self {
        self.attributes.retain(|attribute| !keys.contains(&&*attribute.key));
        self
    }

    /// Returns the value of a text attribute.
    pub fn text(&self, key: &str) -> Option<&str> {
        let known = self.attributes.iter().find(|attribute| &*attribute.key == key)?;
        match &known.value {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the attributes, sorted by key.
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Scalar> {
        let at = self.attributes.binary_search_by(|known| (*known.key).cmp(key)).ok()?;
        self.attributes.get(at).map(|attribute| &attribute.value)
    }
}

/// Message `opentelemetry.proto.common.v1.AnyValue`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Any<'a> {
    Text(&'a str),
    Integer(i64),
    Bool(bool),
}

impl Message for Any<'_> {
    fn write(&self, to: &mut impl Sink) {
        match *self {
            Self::Text(text) => to.string(1, text),
            Self::Bool(value) => to.unsigned(2, u64::from(value)),
            Self::Integer(value) => to.unsigned(3, value.cast_unsigned()),
        }
    }
}

/// Message `opentelemetry.proto.common.v1.KeyValue`.
pub(super) struct KeyValue<'a>(pub(super) &'a str, pub(super) Any<'a>);

impl Message for KeyValue<'_> {
    fn write(&self, to: &mut impl Sink) {
        to.string(1, self.0);
        to.message(2, &self.1);
    }
}

impl Message for Attribute {
    fn write(&self, to: &mut impl Sink) {
        let value = match &self.value {
            Scalar::Text(text) => Any::Text(text),
            Scalar::Integer(value) => Any::Integer(*value),
            Scalar::Bool(value) => Any::Bool(*value),
        };
        KeyValue(&self.key, value).write(to);
    }
}

/// Message `opentelemetry.proto.resource.v1.Resource`.
impl Message for Resource {
    fn write(&self, to: &mut impl Sink) {
        self.attributes.iter().for_each(|attribute| to.message(1, attribute));
    }
}

impl From<&Resource> for opentelemetry_sdk::Resource {
    fn from(resource: &Resource) -> Self {
        let pairs = resource.attributes.iter().map(|Attribute { key, value }| {
            let value = match value {
                Scalar::Text(text) => opentelemetry::Value::String(Arc::clone(text).into()),
                Scalar::Integer(value) => opentelemetry::Value::I64(*value),
                Scalar::Bool(value) => opentelemetry::Value::Bool(*value),
            };
            opentelemetry::KeyValue::new(key.clone(), value)
        });
        Self::builder_empty().with_schema_url(pairs, SCHEMA_URL).build()
    }
}

/// Message `opentelemetry.proto.common.v1.InstrumentationScope`: this program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope;

impl Message for Scope {
    fn write(&self, to: &mut impl Sink) {
        to.string(1, env!("CARGO_PKG_NAME"));
        to.string(2, env!("CARGO_PKG_VERSION"));
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::resource::v1::Resource as Decoded;
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_resource_has_each_key_once_and_the_last_word_holds() {
        let resource = Resource::new([
            Attribute::text("service.name", "a"),
            Attribute::integer("process.pid", -7),
            Attribute::text("", "nothing"),
        ]);
        let resource = resource.with([Attribute::text("service.name", "b")]);
        assert_eq!(resource.get("service.name"), Some(&Scalar::Text("b".into())));
        assert_eq!(resource.clone().without(&["service.name"]).attributes().len(), 1);
        let mut bytes = Vec::new();
        resource.write(&mut bytes);
        let decoded = Decoded::decode(&*bytes).unwrap();
        let read: Vec<_> = decoded
            .attributes
            .into_iter()
            .map(|pair| (pair.key, pair.value.unwrap().value.unwrap()))
            .collect();
        let expected = [
            ("process.pid".to_owned(), Value::IntValue(-7)),
            ("service.name".to_owned(), Value::StringValue("b".into())),
        ];
        assert_eq!(read, expected);
    }
}
