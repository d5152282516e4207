//! Quantities of cgroups that a history records in addition to the fixed ones, because an entry of `anomalies` needs them.

use std::sync::Arc;

use crate::metrics::Labels;

/// Maximum number of additional counters.
pub const COUNTERS_MAX: usize = 8;

/// Maximum number of additional distributions of times.
pub const LATENCIES_MAX: usize = 8;

/// The additional quantities of cgroups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Additional {
    /// Families of counters, at most [`COUNTERS_MAX`].
    pub counters: Arc<[Arc<str>]>,
    /// Distributions of times, at most [`LATENCIES_MAX`].
    pub latencies: Arc<[Latency]>,
    /// Families of hardware events, each with the entry of `counters` that counts it: the running ratios of these entries are recorded.
    pub events: Arc<[(Arc<str>, Arc<str>)]>,
}

/// A distribution of times of cgroups.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Latency {
    /// The family, a histogram in seconds.
    pub family: Arc<str>,
    /// The only system call that is recorded; `None` = all series of a cgroup.
    pub call: Option<Arc<str>>,
}

impl Additional {
    /// Returns the number of an entry of `counters`: the place of its first family.
    pub(super) fn entry(&self, entry: &str) -> Option<u8> {
        let place = self.events.iter().position(|(_, of)| &**of == entry)?;
        u8::try_from(place).ok()
    }

    /// Returns the number of the entry that counts a family.
    pub(super) fn entry_of(&self, family: &str) -> Option<u8> {
        let (_, entry) = self.events.iter().find(|(known, _)| &**known == family)?;
        self.entry(entry)
    }
}

impl Latency {
    /// Reports whether a series is recorded.
    pub(super) fn records(&self, labels: &Labels) -> bool {
        self.call.as_deref().is_none_or(|call| labels.get("syscall") == Some(call))
    }
}
