//! What is pushed.

use serde::Serialize;

use crate::clock::Timestamp;

/// A signal that is pushed in a format. Counts are of data points, samples or log records since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PushStatus {
    /// The name of the format's section under `export`: `otlp`.
    pub format: &'static str,
    /// `metrics`, `profiles` or `logs`.
    pub signal: &'static str,
    /// Where to.
    pub endpoint: String,
    /// `grpc` or `http/protobuf`.
    pub protocol: &'static str,
    /// Why the last request was not taken; `None` if it was.
    pub failing: Option<PushFailure>,
    /// When a request was taken last.
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
    pub since: Timestamp,
    /// The reason, and what may help.
    pub why: String,
}
