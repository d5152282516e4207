//! Routes: signals with their receivers.

use std::time::Duration;

use hyper::Uri;

use crate::config::push::Signal;

/// Route of one signal to its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The pushed signal.
    pub signal: Signal,
    /// URI of the receiver.
    pub uri: Uri,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Names of the headers that the configuration adds to each request. Their values may be secrets.
    pub headers: Vec<String>,
    /// Interval of requests; `None` sends data as it arrives.
    pub interval: Option<Duration>,
    /// Time limit for the receiver's response.
    pub timeout: Duration,
    /// Maximum number of queued bytes.
    pub queue: u64,
}

/// A signal in a format, which has its own queue and accounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::export) struct Flow {
    /// [`Format::NAME`](super::Format::NAME).
    pub(in crate::export) format: &'static str,
    /// The signal.
    pub(in crate::export) signal: Signal,
}

impl Flow {
    /// Returns the values of the labels `format` and `signal`.
    pub(super) fn labels(self) -> [&'static str; 2] {
        [self.format, self.signal.as_str()]
    }

    /// Returns the values of the labels `format` and `signal`, and of a third label.
    pub(super) fn with(self, outcome: &str) -> [&str; 3] {
        [self.format, self.signal.as_str(), outcome]
    }
}
