//! Where a socket is.

use std::path::PathBuf;

use schemars::{Schema, json_schema};

use super::{Refused, Scalar, scalar};

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

impl Scalar for Socket {
    const NAME: &'static str = "Socket";
    const EXPECTED: &'static str = "the path of a socket from the root on, `auto` or `off`";

    fn of_text(text: &str) -> Result<Self, Refused> {
        Self::parse(text).ok_or(Refused::Value)
    }

    fn of_bool(on: bool) -> Result<Self, Refused> {
        // Helm and kubectl read YAML 1.1, where `off` is a truth value, and write it anew.
        if on { Err(Refused::Value) } else { Ok(Self::Off) }
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [{ "type": "string", "pattern": SOCKET_PATTERN }, { "type": "boolean" }] })
    }
}

scalar!(Socket);
