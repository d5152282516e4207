//! The result of a request.

use std::time::Duration;

/// What a receiver made of a request. Each format judges the answers of its receivers; retries, counts and messages follow from
/// this value alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::export) enum Outcome {
    /// The receiver accepted the request.
    Taken,
    /// The receiver accepted the request except for some items. They are not sent again.
    Partly {
        /// Rejected data points, samples or log records.
        rejected: u64,
        /// The reason, as the receiver gives it.
        message: String,
    },
    /// The receiver did not accept the request. It is sent again.
    Again {
        /// The pause that the receiver asks for, if it does.
        after: Option<Duration>,
        /// The reason.
        why: String,
        /// Whether the connection is replaced.
        reconnect: bool,
    },
    /// The receiver will never accept the request, so it is dropped.
    Refused {
        /// The reason.
        why: String,
    },
}

impl Outcome {
    /// No connection, or no answer.
    pub(in crate::export) fn unreachable(why: impl Into<String>) -> Self {
        Self::Again { after: None, why: why.into(), reconnect: true }
    }
}
