//! Refusals with reasons and remedies, and the reliability of counts. Without I/O.

mod board;
mod classify;
mod scope;
mod verdict;

pub use board::{Board, Line, SameReason, Ticket};
pub use classify::{Attempt, Judgement, classify, no_descriptors};
pub use scope::{CpuScope, Scope, ScopeWords};
pub use verdict::{History, Interval, Verdict, judge};

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::error::Errno;
use crate::named_enum::named_enum;

named_enum! {
    /// Class of a refusal. The classes distinguish a defect, a full resource, a missing permission and missing support. In order of
    /// importance.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Cause {
        /// Supported and permitted, but it failed.
        Broken = "broken",
        /// Supported and permitted, but a limit is reached: descriptors, counters, memory or series.
        Exhausted = "exhausted",
        /// Supported, but this process lacks the permission.
        Forbidden = "forbidden",
        /// The target ended while it was being opened.
        Gone = "gone",
        /// This machine, kernel or PMU does not support it.
        Absent = "absent",
    }
}

/// An event that could not be opened for a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The event, as written by the user.
    pub event: Arc<str>,
    /// The target: `cpu 3`, `cgroup /system.slice/x.service on cpu 0`, `process 812 (nginx)`.
    pub target: String,
    /// Class of the refusal.
    pub cause: Cause,
    /// The errno. `None` if the refusal is not from the kernel.
    #[serde(skip)]
    pub errno: Option<Errno>,
    /// The reason.
    pub reason: String,
    /// The remedy. `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Whether this host has no tracepoint, function or file of this name: a typing error, or a name of other hosts.
    #[serde(skip)]
    pub unknown: bool,
}

impl Refusal {
    /// Returns the class, the reason and the remedy.
    pub fn why(&self) -> String {
        let remedy = self.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        format!("{}: {}{remedy}", self.cause, self.reason)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}", self.event, self.target, self.why())
    }
}
