//! Encoded requests.

/// An encoded request: its uncompressed body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The message in the encoding of the format.
    pub bytes: Vec<u8>,
    /// Number of data points, samples or log records in it.
    pub items: u64,
}

/// Result of encoding a snapshot or profiles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    /// The requests, each within the size limit. Together they contain every item once.
    pub payloads: Vec<Payload>,
    /// Number of items that are too large for any request.
    pub left_out: u64,
}
