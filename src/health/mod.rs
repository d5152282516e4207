//! What did not work, why, and what would help; and what a counter's numbers are worth. Pure: judged from values.

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
use crate::words::words;

words! {
    /// The answers that must never be mixed up: it does not work, there is no room, it is not allowed, it is not there.
    /// In the order in which they deserve attention.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Cause {
        /// It should work and does not.
        Broken = "broken",
        /// It is there and allowed, and a limit stands in the way: descriptors, counters, memory, series.
        Exhausted = "exhausted",
        /// It is there, and this process may not use it.
        Forbidden = "forbidden",
        /// The target went away while it was being opened.
        Gone = "gone",
        /// This machine, kernel or PMU does not have it.
        Absent = "absent",
    }
}

/// An event that could not be opened somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The event as the user wrote it.
    pub event: Arc<str>,
    /// Where: `cpu 3`, `cgroup /system.slice/x.service on cpu 0`, `process 812 (nginx)`.
    pub target: String,
    /// The class of the answer.
    pub cause: Cause,
    /// What the kernel said, if it was the kernel.
    #[serde(skip)]
    pub errno: Option<Errno>,
    /// Why, in words that name the thing.
    pub reason: String,
    /// What would help; `None` where nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Refusal {
    /// The class of the answer, why, and what would help.
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
