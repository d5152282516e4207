//! The groups and descriptors in the report of a check.

use serde::Serialize;

use crate::health::Scope;
use crate::host::Facts;
use crate::plan::{Counter, Group, Source, SourceReason, StreamSupport};

/// Descriptors that the configuration needs, and the limit on open files.
#[derive(Debug, Default, Serialize)]
pub(super) struct Descriptors {
    /// Descriptors opened during the check. `None` with `--no-open`.
    pub(super) used: Option<usize>,
    pub(super) limit: usize,
    /// Descriptors of the switch stream on all CPUs. Independent of the number of cgroups and processes.
    pub(super) stream: usize,
    /// Descriptors of decoded tracepoints and probes on all CPUs.
    pub(super) traced: usize,
    /// Descriptors of profiles on all CPUs.
    pub(super) sampled: usize,
    /// Descriptors of dedicated groups.
    #[serde(flatten)]
    pub(super) takes: GroupDescriptors,
}

/// Descriptors of dedicated groups, by scope.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct GroupDescriptors {
    /// On all CPUs.
    pub(super) cpus: usize,
    /// Per cgroup that every entry for cgroups selects.
    pub(super) per_cgroup: usize,
    /// Per thread that every entry for processes selects.
    pub(super) per_thread: usize,
}

/// Events that are counted together, with their scope and attribution.
#[derive(Debug, Serialize)]
pub(super) struct GroupRow {
    pub(super) entry: String,
    pub(super) scope: Scope,
    /// The PMU, if the host has several PMUs for the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pmu: Option<String>,
    /// Attribution of counts to targets: `stream` or `dedicated`.
    pub(super) attribution: &'static str,
    /// Reason for this attribution. `None` for groups without targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    pub(super) events: Vec<String>,
    pub(super) metrics: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) targets: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_out: Option<usize>,
    /// Number of CPUs on which the group is opened. A cgroup is opened on each of them.
    pub(super) cpus: usize,
    /// Descriptors per additional CPU, cgroup or thread. Zero with the stream.
    pub(super) descriptors_per_target: usize,
    /// Descriptors per target with dedicated counters, whether or not they are used.
    #[serde(skip)]
    pub(super) dedicated_per_target: usize,
}

impl GroupDescriptors {
    /// Returns the descriptors of groups outside the stream.
    pub(super) fn of(groups: &[GroupRow]) -> Self {
        let mut all = Self::default();
        let opened = groups.iter().filter(|group| !group.is_refused());
        opened.for_each(|group| all.add(group, group.descriptors_per_target));
        all
    }

    /// Adds a group that needs `each` descriptors per target.
    pub(super) fn add(&mut self, group: &GroupRow, each: usize) {
        match group.scope {
            Scope::Cgroup => self.per_cgroup += each,
            Scope::Process => self.per_thread += each,
            Scope::Cpus(_) => self.cpus += each * group.cpus,
        }
    }

    /// Returns the descriptors and the unit that needs them.
    pub(super) fn shares(self) -> [(usize, &'static str); 3] {
        [(self.cpus, "all CPUs"), (self.per_cgroup, "each cgroup"), (self.per_thread, "each thread")]
    }
}

impl GroupRow {
    /// Creates the row of a group. `counters` are those that can be opened.
    pub(super) fn new(group: &Group, counters: &[Counter], facts: &Facts, support: &StreamSupport) -> Self {
        let cpus = group.cpus(&facts.online).len();
        let each = if group.scope() == Scope::Cgroup { cpus } else { 1 };
        let dedicated = counters.len() * each;
        let streamed = group.source == Source::Stream;
        Self {
            entry: group.entry.to_string(),
            scope: group.scope(),
            pmu: group.pmu.as_deref().map(str::to_owned),
            attribution: if streamed { "stream" } else { "dedicated" },
            why: Some(group.why(support))
                .filter(|&why| why != SourceReason::Whole)
                .map(|why| why.to_string()),
            events: counters.iter().map(|counter| counter.event.name.to_string()).collect(),
            metrics: counters.iter().map(|counter| counter.metric.sample_name()).collect(),
            targets: None,
            left_out: None,
            cpus,
            descriptors_per_target: if streamed { 0 } else { dedicated },
            dedicated_per_target: dedicated,
        }
    }

    /// Reports whether the group was tried but could not be opened for any target.
    pub(super) fn is_refused(&self) -> bool {
        self.targets == Some(0) && self.left_out.is_some_and(|left_out| left_out > 0)
    }

    /// Reports whether the switch stream counts this group.
    pub(super) fn is_streamed(&self) -> bool {
        self.attribution == "stream"
    }
}
