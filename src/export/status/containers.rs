//! What the status says of the names of containers.

use serde::Serialize;

use super::pushes::rfc3339_if_any;
use crate::clock::Timestamp;

/// Who containers are, and who tells.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Containers {
    /// Containers whose names are known.
    pub known: u64,
    /// Containers that are counted, and that nobody knows.
    pub unknown: u64,
    /// Those who are asked, the one that is believed first in front.
    pub sources: Vec<ContainerSource>,
}

/// Somebody who tells the names of containers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ContainerSource {
    /// `cri`, `docker`, `kubelet` or `api_server`.
    pub source: String,
    /// The path of a socket, or a URL.
    pub place: String,
    /// When it answered last.
    #[serde(serialize_with = "rfc3339_if_any")]
    pub answered: Option<Timestamp>,
    /// How many containers it then told of.
    pub containers: u64,
    /// Why it does not answer; `None` if it does.
    pub failing: Option<String>,
}
