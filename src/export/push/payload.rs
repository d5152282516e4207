//! Encoded requests.

use std::mem;

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

impl Encoded {
    /// Adds the request that was encoded into `bytes`, unless it is empty, and prepares the next one, which usually has a similar size.
    pub(in crate::export) fn end_request(&mut self, bytes: &mut Vec<u8>, items: &mut u64) {
        if *items > 0 {
            let next = Vec::with_capacity(bytes.len());
            let mut bytes = mem::replace(bytes, next);
            bytes.shrink_to_fit();
            self.payloads.push(Payload { bytes, items: mem::take(items) });
        }
    }
}
