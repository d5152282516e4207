//! What a check reports of groups and descriptors.

use serde::Serialize;

use crate::health::Scope;
use crate::host::Facts;
use crate::plan::{Counter, Group, Source, StreamSupport, Why};

/// What it takes of the limit on open files.
#[derive(Debug, Default, Serialize)]
pub(super) struct Descriptors {
    /// Open for a moment just now; `None` if nothing was to be opened.
    pub(super) used: Option<usize>,
    pub(super) limit: usize,
    /// What the switch stream takes on all CPUs, however many cgroups and processes there are.
    pub(super) stream: usize,
    /// What tracepoints and probes take on all CPUs whose fields are looked into.
    pub(super) traced: usize,
    /// What profiles take on all CPUs.
    pub(super) sampled: usize,
    /// What groups take besides.
    #[serde(flatten)]
    pub(super) takes: Takes,
}

/// What groups take.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Takes {
    /// On all CPUs.
    pub(super) cpus: usize,
    /// For each cgroup that is counted by every entry for cgroups.
    pub(super) per_cgroup: usize,
    /// For each thread that is counted by every entry for processes.
    pub(super) per_thread: usize,
}

/// Events that are counted together, for whom, and how.
#[derive(Debug, Serialize)]
pub(super) struct GroupRow {
    pub(super) entry: String,
    pub(super) scope: Scope,
    /// Where the host has several PMUs for one event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pmu: Option<String>,
    /// How targets are told apart: `stream` or `dedicated`.
    pub(super) attribution: &'static str,
    /// Why so, where there are targets to be told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    pub(super) events: Vec<String>,
    pub(super) metrics: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) targets: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_out: Option<usize>,
    /// On how many CPUs it is opened, each cgroup on all of them.
    pub(super) cpus: usize,
    /// What each further CPU, cgroup or thread takes: nothing by the stream.
    pub(super) descriptors_per_target: usize,
    /// What it takes or would take with descriptors of its own.
    #[serde(skip)]
    pub(super) dedicated_per_target: usize,
}

impl Takes {
    /// What groups take beside the stream.
    pub(super) fn of(groups: &[GroupRow]) -> Self {
        let mut all = Self::default();
        let opened = groups.iter().filter(|group| !group.is_refused());
        opened.for_each(|group| all.add(group, group.descriptors_per_target));
        all
    }

    /// Adds a group that takes so many for each target.
    pub(super) fn add(&mut self, group: &GroupRow, each: usize) {
        match group.scope {
            Scope::Cgroup => self.per_cgroup += each,
            Scope::Process => self.per_thread += each,
            Scope::Cpus(_) => self.cpus += each * group.cpus,
        }
    }

    /// How many for whom.
    pub(super) fn shares(self) -> [(usize, &'static str); 3] {
        [(self.cpus, "all CPUs"), (self.per_cgroup, "each cgroup"), (self.per_thread, "each thread")]
    }
}

impl GroupRow {
    /// A group of which `counters` are opened, on a machine that has this of the stream.
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
            why: Some(group.why(support)).filter(|&why| why != Why::Whole).map(|why| why.to_string()),
            events: counters.iter().map(|counter| counter.event.name.to_string()).collect(),
            metrics: counters.iter().map(|counter| counter.metric.sample_name()).collect(),
            targets: None,
            left_out: None,
            cpus,
            descriptors_per_target: if streamed { 0 } else { dedicated },
            dedicated_per_target: dedicated,
        }
    }

    /// Whether it was tried, and opened for nobody.
    pub(super) fn is_refused(&self) -> bool {
        self.targets == Some(0) && self.left_out.is_some_and(|left_out| left_out > 0)
    }

    /// Whether the switch stream counts it.
    pub(super) fn is_streamed(&self) -> bool {
        self.attribution == "stream"
    }
}
