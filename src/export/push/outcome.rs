//! The outcome of a request.

use std::time::Duration;

/// The outcome of a request. Each format evaluates the responses of its receivers. Retries, counts and messages depend only on this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::export) enum Outcome {
    /// The receiver accepted the request.
    Accepted,
    /// The receiver accepted the request except for some items. They are not sent again.
    Partly {
        /// Rejected data points, samples or log records.
        rejected: u64,
        /// The reason, as the receiver gives it.
        message: String,
    },
    /// The receiver did not accept the request. It is sent again.
    Again {
        /// Delay requested by the receiver; `None` if it requested none.
        after: Option<Duration>,
        /// The reason.
        why: String,
        /// Whether the connection is replaced.
        reconnect: bool,
    },
    /// The receiver will never accept the request, so it is dropped.
    Rejected {
        /// The reason.
        why: String,
    },
}

impl Outcome {
    /// Creates the outcome for a failed connection or a missing response.
    pub(in crate::export) fn unreachable(why: impl Into<String>) -> Self {
        Self::Again { after: None, why: why.into(), reconnect: true }
    }
}
