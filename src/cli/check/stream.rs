//! The switch stream in the report of a check.

use std::sync::Arc;

use serde::Serialize;

use super::rows::{GroupDescriptors, GroupRow};
use crate::counter::StreamState;
use crate::health::Scope;
use crate::host::Facts;

/// The switch stream.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StreamRow {
    /// Unit of attribution: `cgroup` or `process`.
    pub(super) granularity: String,
    /// The event at which the kernel writes a record.
    pub(super) leader: &'static str,
    pub(super) cpus: usize,
    /// Descriptors on all CPUs.
    pub(super) descriptors: usize,
    /// Descriptors on the CPU with the most descriptors.
    pub(super) descriptors_per_cpu: usize,
    /// Groups of hardware events on each CPU, as the names of the entries that each group serves. Software events are in one further group.
    pub(super) groups: Vec<Vec<String>>,
    pub(super) record_bytes: usize,
    pub(super) ring_bytes: u64,
    /// Maximum total size of the rings in bytes, to which they grow if records are lost.
    pub(super) ring_bytes_limit: u64,
    /// The limit on the growth of the rings.
    pub(super) ring_bound: RingBound,
    /// Whether the NMI watchdog uses a hardware counter on every CPU.
    pub(super) nmi_watchdog: bool,
    /// Descriptors needed for the same counts without the stream.
    pub(super) dedicated: Dedicated,
}

/// Limit on the growth of rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum RingBound {
    #[serde(rename = "limits.memory")]
    RingMemory,
    #[serde(rename = "kernel.perf_event_mlock_kb")]
    MlockKb,
    /// The rings have their maximum useful size: a larger ring does not help a reader that is so far behind.
    #[serde(rename = "ample")]
    Ample,
}

/// Descriptors of the stream's groups if they were dedicated.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Dedicated {
    #[serde(flatten)]
    pub(super) takes: GroupDescriptors,
    /// For the current cgroups, and one thread of each process. `None` if targets were not enumerated.
    pub(super) at_least_now: Option<usize>,
}

impl StreamRow {
    pub(super) fn new(state: &StreamState, groups: &[GroupRow], facts: &Facts) -> Self {
        let entries = |group: &Vec<Arc<str>>| group.iter().map(ToString::to_string).collect();
        Self {
            granularity: state.granularity.to_string(),
            leader: state.granularity.leader(),
            cpus: state.cpus,
            descriptors: state.descriptors,
            descriptors_per_cpu: state.descriptors_per_cpu,
            groups: state.groups.iter().map(entries).collect(),
            record_bytes: state.record_bytes,
            ring_bytes: state.ring_bytes,
            ring_bytes_limit: state.ring_bytes_limit,
            ring_bound: match state.rings {
                rings if rings.bound_by_kernel => RingBound::MlockKb,
                rings if rings.is_ample() => RingBound::Ample,
                _ => RingBound::RingMemory,
            },
            nmi_watchdog: facts.nmi_watchdog,
            dedicated: Dedicated::of(groups),
        }
    }
}

impl Dedicated {
    fn of(groups: &[GroupRow]) -> Self {
        let mut all = Self::default();
        for group in groups.iter().filter(|group| group.is_streamed() && !group.is_refused()) {
            let each = group.dedicated_per_target;
            all.takes.add(group, each);
            let now = group.targets.map(|targets| match group.scope {
                Scope::Cgroup | Scope::Process => each * targets,
                Scope::Cpus(_) => each * group.cpus,
            });
            all.at_least_now = now.map(|now| all.at_least_now.unwrap_or(0) + now);
        }
        all
    }
}
