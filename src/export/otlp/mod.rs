//! What OpenTelemetry takes: metrics and profiles as the bytes of OTLP requests. [`push`](super::push) sends them.
//!
//! ```text
//! Snapshot ─► metrics ──┬► Payload ─► push
//! Profiles ─► profiles ─┘
//! ```
//!
//! The encoders are pure. They write the protobuf messages themselves, one pass over the data, for a request of a hundred
//! thousand series as a tree of objects takes many times the memory of its bytes; tests read what they write with the
//! generated types of `opentelemetry-proto`.
//!
//! Format: <https://github.com/open-telemetry/opentelemetry-proto/tree/v1.11.0/opentelemetry/proto>.

pub mod attribute;
pub mod metrics;
pub mod profiles;
pub mod resource;

/// A request that is ready to be sent: the body, not compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// `ExportMetricsServiceRequest` or `ExportProfilesServiceRequest`.
    pub bytes: Vec<u8>,
    /// How many data points or samples are in it, as a partial success counts them.
    pub items: u64,
}

/// What something became.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    /// The requests, each within the limit. Together they have every item once.
    pub payloads: Vec<Payload>,
    /// Items that are too large to be in any request.
    pub left_out: u64,
}
