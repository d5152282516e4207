//! Incidents: evidence about a time in which something was wrong, kept as files.
//!
//! An [`Incident`] describes the time, why the evidence was collected ([`Trigger`]) and what of it is missing. [`Store`] keeps each incident as
//! one tar archive: the evidence, and the description last. This module does not collect evidence.

mod archive;
mod scheduling;
mod store;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

pub use archive::Archive;
pub use scheduling::{LongWait, RanMeanwhile, Scheduling, StuckCall};
pub use store::{Bounds, Listed, NoIncident, Store, Written};

/// Version of the format of archives. An archive with a higher version is neither read nor removed.
pub const FORMAT: u32 = 1;

/// Maximum number of further triggers that an incident keeps.
const FURTHER: usize = 32;

/// The identifier of an incident: the time at which it was noticed, in UTC, and a number if there were several in one second
/// (`20261127T194210Z`, `20261127T194210Z-2`). Identifiers are in the order of time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct IncidentId(Arc<str>);

impl IncidentId {
    /// Returns the identifier of the incident with this number among those of the same second. The first number is 1.
    pub fn new(noticed: Timestamp, number: u32) -> Self {
        let time: String =
            format!("{noticed}").chars().filter(char::is_ascii_alphanumeric).take(15).collect();
        let number = if number > 1 { format!("-{number}") } else { String::new() };
        Self(format!("{time}Z{number}").into())
    }

    /// Returns the identifier that a text is, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let (time, number) = text.split_once('-').unwrap_or((text, "2"));
        let (date, clock) = time.strip_suffix('Z')?.split_once('T')?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = (1..=4).contains(&number.len()) && digits(number) && !number.starts_with('0');
        (date.len() == 8 && clock.len() == 6 && digits(date) && digits(clock) && is_number)
            .then(|| Self(text.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for IncidentId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| "this is not the identifier of an incident".to_owned())
    }
}

impl std::fmt::Display for IncidentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why the evidence was collected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Trigger {
    /// A figure of a cgroup was unlike its past.
    Anomaly {
        /// The entry of `anomalies`.
        kind: String,
        /// The last value that was judged.
        value: f64,
        /// The usual value.
        usual: f64,
        /// The number of usual deviations between both.
        score: f64,
    },
    /// A client requested it.
    Request {
        /// The reason that the client gave.
        reason: String,
    },
    /// An alert fired.
    Alert {
        /// Its name.
        name: String,
        /// Its summary.
        summary: String,
    },
    /// The signal SIGUSR2.
    Signal,
}

impl Trigger {
    /// Returns the word for the label `trigger`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Anomaly { .. } => "anomaly",
            Self::Request { .. } => "request",
            Self::Alert { .. } => "alert",
            Self::Signal => "signal",
        }
    }

    /// Returns the trigger in a few words. Parts of it come from clients.
    pub fn text(&self) -> String {
        match self {
            Self::Anomaly { kind, value, usual, .. } => {
                format!("{kind}: {} instead of {}", short(*value), short(*usual))
            }
            Self::Request { reason } if reason.is_empty() => "requested".to_owned(),
            Self::Request { reason } => format!("requested: {reason}"),
            Self::Alert { name, summary } if summary.is_empty() => format!("alert {name}"),
            Self::Alert { name, summary } => format!("alert {name}: {summary}"),
            Self::Signal => "SIGUSR2".to_owned(),
        }
    }
}

/// Formats a number with about three digits.
fn short(number: f64) -> String {
    let decimals = match number.abs() {
        ..0.001 => 6,
        ..1.0 => 4,
        ..100.0 => 2,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

/// Another cgroup that was active meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suspected {
    /// The path of the cgroup.
    pub cgroup: String,
    /// How it was found: `correlation` or `ran_meanwhile`.
    #[serde(default)]
    pub basis: String,
    /// The score, at most 1.
    pub score: f64,
    /// Number of intervals that the correlation compares, or of waits.
    #[serde(default)]
    pub samples: u64,
}

/// A range of time, in Unix milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The begin.
    pub from_ms: u64,
    /// The end.
    pub to_ms: u64,
}

/// A profile in an archive: the files `NAME-during.pb.gz` and `NAME-before.pb.gz`, and the same as folded stacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profiled {
    /// The entry of `profiles`.
    pub name: String,
    /// Number of samples during the incident.
    pub during: u64,
    /// Number of samples before it.
    pub before: u64,
    /// Number of samples that were lost during the incident.
    pub lost: u64,
}

/// The description of an incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// [`FORMAT`].
    pub format: u32,
    /// The identifier.
    pub id: IncidentId,
    /// The name of the node.
    pub node: String,
    /// The version of the program.
    pub version: String,
    /// Why the evidence was collected.
    pub trigger: Trigger,
    /// The cgroup; `None` = the machine.
    pub cgroup: Option<String>,
    /// The namespace, the pod and the container of the cgroup, if they are known.
    pub labels: Vec<(String, String)>,
    /// When it began, in Unix milliseconds. This is earlier than the time at which it was noticed.
    pub began_ms: u64,
    /// When it ended; `None` if that is not known: it continues, or the program ended before.
    pub ended_ms: Option<u64>,
    /// Causes that are no other cgroup: CPU quota, steal. One sentence each.
    #[serde(default)]
    pub causes: Vec<String>,
    /// Other cgroups that were active meanwhile, the most likely first.
    pub suspects: Vec<Suspected>,
    /// Triggers of the same incident that followed.
    pub further: Vec<Trigger>,
    /// Number of triggers beyond those.
    pub more: u64,
    /// The time of the profiles of the incident.
    pub during: Span,
    /// The time before, with which they are compared.
    pub before: Span,
    /// The scheduler at its begin and at its end.
    #[serde(default)]
    pub scheduling: Vec<Scheduling>,
    /// The profiles in the archive.
    pub profiles: Vec<Profiled>,
    /// What is missing, and why: one sentence each.
    pub missing: Vec<String>,
}

impl Incident {
    /// Adds a trigger of the same incident.
    pub fn note(&mut self, trigger: Trigger) {
        if self.further.len() < FURTHER {
            self.further.push(trigger);
        } else {
            self.more += 1;
        }
    }

    /// Returns the subject in words.
    pub fn subject(&self) -> &str {
        self.cgroup.as_deref().unwrap_or("the machine")
    }
}
