//! Status of push exports.

use serde::Serialize;

use crate::clock::Timestamp;

/// A signal that is pushed in a format. Counts are data points, samples or log records since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PushStatus {
    /// Name of the format's section under `export`: `otlp`.
    pub format: &'static str,
    /// `metrics`, `profiles` or `logs`.
    pub signal: &'static str,
    /// URL of the receiver.
    pub endpoint: String,
    /// `grpc` or `http/protobuf`.
    pub protocol: &'static str,
    /// Failure of the last request; `None` if it was accepted.
    pub failing: Option<PushFailure>,
    /// Time of the last accepted request.
    pub last_accepted: Option<Timestamp>,
    /// Last message of the receiver about a partial rejection.
    pub message: Option<String>,
    /// Accepted items.
    pub accepted: u64,
    /// Items rejected from accepted requests.
    pub partly_rejected: u64,
    /// Items rejected with their requests.
    pub rejected: u64,
    /// Items dropped because the queue was full or the exporter stopped.
    pub dropped: u64,
    /// Number of queued requests.
    pub waiting_requests: u64,
    /// Size of the queued requests in bytes.
    pub waiting_bytes: u64,
}

/// A failure to push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PushFailure {
    /// Time of the first failure since the last success.
    pub since: Timestamp,
    /// The reason and a remedy.
    pub why: String,
}
