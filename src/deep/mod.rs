//! Sets of events that are counted for a few cgroups, for a limited time: which are in force, and as which entries of `counters`.
//!
//! A set begins with the file, by a request, or by the annotation of a pod. [`Registry`] keeps the sets in force and those that have ended.
//! It opens nothing: [`entries`](Registry::entries) returns entries of `counters`, which are planned and counted as those of the file.
//!
//! Sets with the same events are one entry, which selects the cgroups of all of them, because two entries must not add to one metric.
//! The entry is named after its events. So it keeps its open events when one of several sets begins or ends.

mod registry;
#[cfg(test)]
mod tests;

pub use registry::{Deep, MAX_REQUESTED, Registry};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::clock::{Monotonic, Timestamp};
use crate::config::{DeepRequest, DeepSet};
use crate::named_enum::named_enum;

named_enum! {
    /// What a set begins with.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Origin {
        /// An entry of `deep` in the file.
        File = "file",
        /// A request of a client.
        Request = "request",
        /// The annotation of a pod.
        Annotation = "annotation",
    }
}

/// What a client wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// A set begins.
    Begin {
        /// The set.
        request: Box<DeepRequest>,
        /// The client.
        requester: String,
    },
    /// The set with this identifier ends.
    End(u64),
}

/// The state of the set that began; `None` for a set that ended. Or why nothing changed.
pub type Outcome = Result<Option<DeepState>, Refusal>;

/// A moment, by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Time that decides when a set ends.
    pub monotonic: Monotonic,
    /// Time that is shown.
    pub wall: Timestamp,
}

/// A set of events in force, as the status and `GET /api/v1/deep` show it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeepState {
    /// Identifier in this process.
    pub id: u64,
    /// Name in the file or in the request.
    pub name: Arc<str>,
    /// What it began with.
    pub origin: Origin,
    /// The event groups, in the syntax of `perf stat -e`.
    pub events: Vec<String>,
    /// Patterns of cgroups, and rules for pods.
    pub selection: Vec<String>,
    /// Number of cgroups that it selects now.
    pub cgroups: usize,
    /// Name of the entry that counts it, in `perf_event_state` and in the list of counters.
    pub entry: Arc<str>,
    /// Events that `counters` counts per cgroup all the time: the metric, and the name of the entry.
    pub already_counted: BTreeMap<String, Arc<str>>,
    /// Time at which it began.
    pub began: Timestamp,
    /// Time at which it ends; `None` = when the file no longer contains it.
    pub ends: Option<Timestamp>,
    /// The reason that the client gave.
    pub reason: String,
    /// The client that requested it, or the pod.
    pub requester: String,
}

/// A set of events that did not begin, or ended early, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedSet {
    /// Name of the set.
    pub name: Arc<str>,
    /// What it would begin with, or began with.
    pub origin: Origin,
    /// The client or the pod.
    pub requester: String,
    /// Why it is not counted.
    #[serde(flatten)]
    pub refusal: Refusal,
}

/// What is known of all sets of events.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct DeepReport {
    /// The sets in force, the oldest first.
    pub active: Vec<DeepState>,
    /// Sets of the file and of pods that did not begin, and sets that ended because they selected too many cgroups.
    pub refused: Vec<RefusedSet>,
}

/// Why a set does not begin: one sentence, and what helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{reason}; {remedy}")]
pub struct Refusal {
    /// The kind, which decides the status code of the response.
    #[serde(skip)]
    pub kind: RefusalKind,
    /// The reason.
    pub reason: String,
    /// What helps.
    pub remedy: String,
}

/// Kinds of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request is wrong, or selects too much.
    Wrong,
    /// It names nothing that exists.
    Unknown,
    /// Other sets are in the way.
    Conflict,
    /// There are too many sets.
    Busy,
    /// The exporter is stopping.
    Stopping,
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(kind: RefusalKind, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), remedy: remedy.into() }
    }

    /// Creates the refusal of a set that selects `number` cgroups, where `limit` are allowed.
    fn too_many(number: usize, limit: usize) -> Self {
        let reason = format!("the set selects {number} cgroups, and limits.deep_cgroups allows {limit}");
        Self::new(RefusalKind::Wrong, reason, "select fewer cgroups, or set limits.deep_cgroups higher")
    }
}

/// Prefix of entries of sets. Names in the file contain no colon.
const PREFIX: &str = "deep:";

/// Returns the name of the entry that counts the events of a set.
fn entry_of(set: &DeepSet) -> Arc<str> {
    let of_metrics = || set.events.words().join("+");
    format!("{PREFIX}{}", set.metrics().next().unwrap_or_else(of_metrics)).into()
}

/// Reports whether an entry of `counters` counts sets of events for a limited time.
pub fn is_entry(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Returns a time after `now`, on the clock that is shown.
fn shown_after(now: Timestamp, later: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(u64::try_from(later.as_millis()).unwrap_or(u64::MAX)))
}
