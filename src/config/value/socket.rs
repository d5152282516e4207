//! Paths of sockets.

use std::path::PathBuf;

use schemars::{Schema, json_schema};

use super::{Refused, Scalar, scalar};

/// Syntax that [`Socket::parse`] accepts.
const SOCKET_PATTERN: &str = "^(auto|off|(unix://)?/.*)$";

/// Location of the socket of a container runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Socket {
    /// The usual paths, as far as they exist.
    #[default]
    Auto,
    /// Disabled.
    Off,
    /// Path of the socket.
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
    const EXPECTED: &'static str = "the absolute path of a socket, `auto` or `off`";

    fn of_text(text: &str) -> Result<Self, Refused> {
        Self::parse(text).ok_or(Refused::Value)
    }

    fn of_bool(on: bool) -> Result<Self, Refused> {
        // Helm and kubectl parse YAML 1.1, where `off` is a boolean, and write `false`.
        if on { Err(Refused::Value) } else { Ok(Self::Off) }
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [{ "type": "string", "pattern": SOCKET_PATTERN }, { "type": "boolean" }] })
    }
}

scalar!(Socket);
