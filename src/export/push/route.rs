//! What is pushed where.

use std::time::Duration;

use hyper::Uri;

use crate::config::push::Signal;

/// One signal's way to its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// What is pushed.
    pub signal: Signal,
    /// The receiver.
    pub uri: Uri,
    /// The name of the protocol.
    pub protocol: &'static str,
    /// The names of the headers that users add to each request. Their values may be secrets.
    pub headers: Vec<String>,
    /// How often requests are made; `None` = as the data comes.
    pub interval: Option<Duration>,
    /// How long the receiver may take to answer.
    pub timeout: Duration,
    /// How many bytes may be queued.
    pub queue: u64,
}

/// A signal in a format: what queues and accounts are kept for.
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

    /// Returns these and the value of a third label.
    pub(super) fn with(self, outcome: &str) -> [&str; 3] {
        [self.format, self.signal.as_str(), outcome]
    }
}
