//! Where a socket is.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// What [`Socket::parse`] reads.
const SOCKET_PATTERN: &str = "^(auto|off|(unix://)?/.*)$";

/// Where the socket of a runtime is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Socket {
    /// Where it usually is, if it is there.
    #[default]
    Auto,
    /// Nobody is asked.
    Off,
    /// Here.
    At(PathBuf),
}

impl Socket {
    fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("unix://").unwrap_or(text) {
            _ if text == "auto" => Some(Self::Auto),
            _ if text == "off" => Some(Self::Off),
            path if path.starts_with('/') => Some(Self::At(path.into())),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Socket {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SocketVisitor;

        impl Visitor<'_> for SocketVisitor {
            type Value = Socket;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a socket from the root on, `auto` or `off`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Socket, E> {
                Socket::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Socket, E> {
                // Helm and kubectl read YAML 1.1, where `off` is a truth value, and write it anew.
                if on { Err(E::invalid_value(de::Unexpected::Bool(on), &self)) } else { Ok(Socket::Off) }
            }
        }

        deserializer.deserialize_any(SocketVisitor)
    }
}

impl JsonSchema for Socket {
    fn schema_name() -> Cow<'static, str> {
        "Socket".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string", "pattern": SOCKET_PATTERN }, { "type": "boolean" }] })
    }
}
