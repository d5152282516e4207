//! Encoded requests.

/// A request that is ready to be sent: the body, not compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The message of the format.
    pub bytes: Vec<u8>,
    /// Data points, samples or log records in it.
    pub items: u64,
}

/// What an encoder makes of a snapshot or of profiles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    /// The requests, each within the limit. Together they have every item once.
    pub payloads: Vec<Payload>,
    /// Items that are too large to be in any request.
    pub left_out: u64,
}
