//! What the status says of pushing.

use serde::{Serialize, Serializer};

use super::rfc3339;
use crate::clock::Timestamp;

/// A signal that is pushed in a format. Counts are of data points, samples or log records since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PushStatus {
    /// The name of the format's section under `export`: `otlp`.
    pub format: String,
    /// `metrics`, `profiles` or `logs`.
    pub signal: String,
    /// Where to.
    pub endpoint: String,
    /// `grpc` or `http/protobuf`.
    pub protocol: String,
    /// Why the last request was not taken; `None` if it was.
    pub failing: Option<PushFailure>,
    /// When a request was taken last.
    #[serde(serialize_with = "rfc3339_if_any")]
    pub last_taken: Option<Timestamp>,
    /// What the receiver said last about a part that it did not take.
    pub message: Option<String>,
    /// Taken.
    pub taken: u64,
    /// Not taken, of requests that were.
    pub rejected: u64,
    /// Refused with their requests.
    pub refused: u64,
    /// Dropped because too much waited, or the exporter did not wait for them.
    pub dropped: u64,
    /// Requests that wait.
    pub waiting_requests: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PushFailure {
    /// Since when none is.
    #[serde(serialize_with = "rfc3339")]
    pub since: Timestamp,
    /// The reason, and what may help.
    pub why: String,
}

pub(super) fn rfc3339_if_any<S: Serializer>(
    time: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => rfc3339(time, serializer),
        None => serializer.serialize_none(),
    }
}
