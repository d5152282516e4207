//! For whom an entry counts: `per`, `cgroups` and `processes`, which mean the same under `counters`, `tracepoints` and
//! `probes`.

use super::decode::At;
use super::report::Report;
use super::selection::{Selections, cgroups, not_empty, once, processes};
use super::value::List;
use super::yaml::NodeId;
use super::{Per, file};
use crate::target::{CgroupSelection, ProcessSelection};

/// What an entry says about it.
pub(super) struct Whom<'e, W> {
    /// The entry.
    pub(super) entry: NodeId,
    pub(super) per: Option<&'e At<List<W>>>,
    pub(super) cgroups: Option<&'e At<file::Cgroups>>,
    pub(super) processes: Option<&'e At<file::Processes>>,
}

/// A word of `per`.
pub(super) trait Word: Copy + PartialEq {
    /// What holds where an entry says nothing, and how it is written.
    const DEFAULT: (Self, &'static str);
    const CGROUP: Self;
    const PROCESS: Self;

    /// Its meaning.
    fn per(self, cgroups: &CgroupSelection, processes: &ProcessSelection) -> Per;
}

impl Word for file::Per {
    const DEFAULT: (Self, &'static str) = (Self::Cpu, "cpu");
    const CGROUP: Self = Self::Cgroup;
    const PROCESS: Self = Self::Process;

    fn per(self, cgroups: &CgroupSelection, processes: &ProcessSelection) -> Per {
        match self {
            Self::Cpu => Per::Cpu,
            Self::Cgroup => Per::Cgroup(cgroups.clone()),
            Self::Process => Per::Process(processes.clone()),
        }
    }
}

impl Word for file::TracedPer {
    const DEFAULT: (Self, &'static str) = (Self::Host, "host");
    const CGROUP: Self = Self::Cgroup;
    const PROCESS: Self = Self::Process;

    fn per(self, cgroups: &CgroupSelection, processes: &ProcessSelection) -> Per {
        match self {
            Self::Host => Per::Host,
            Self::Cpu => Per::Cpu,
            Self::Cgroup => Per::Cgroup(cgroups.clone()),
            Self::Process => Per::Process(processes.clone()),
        }
    }
}

/// For whom an entry counts.
pub(super) fn per<W: Word>(whom: &Whom<'_, W>, selections: &Selections, report: &mut Report<'_>) -> Vec<Per> {
    let (default, name) = W::DEFAULT;
    not_empty(whom.per, "counts for nobody", &format!("leave `per` out for `{name}`"), report);
    let words = match whom.per {
        Some(per) => once(per, report),
        None if report.gives(whom.entry, "per") => Vec::new(),
        None => vec![default],
    };
    let overrides = [
        (whom.cgroups.map(|at| at.node), W::CGROUP, "cgroup"),
        (whom.processes.map(|at| at.node), W::PROCESS, "process"),
    ];
    for (node, word, name) in overrides {
        let unheard = !words.contains(&word) && !whom.per.is_some_and(|per| report.blames(per.node));
        if let Some(node) = node.filter(|_| unheard && !words.is_empty()) {
            let message = format!("this has no effect: the entry does not count per {name}");
            report.warning(node, message, Some(format!("add `{name}` to its `per`, or leave it out")));
        }
    }
    let cgroups = cgroups(whom.cgroups, &selections.cgroups, report);
    let processes = processes(whom.processes, &selections.processes, report);
    words.into_iter().map(|word| word.per(&cgroups, &processes)).collect()
}

impl Per {
    /// The word in the file and in the names of metrics.
    pub(super) fn scope(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cpu => "cpu",
            Self::Cgroup(_) => "cgroup",
            Self::Process(_) => "process",
        }
    }

    /// The same for other cgroups and processes.
    pub(super) fn reselected(&self, selections: &Selections) -> Self {
        match self {
            Self::Host => Self::Host,
            Self::Cpu => Self::Cpu,
            Self::Cgroup(_) => Self::Cgroup(selections.cgroups.clone()),
            Self::Process(_) => Self::Process(selections.processes.clone()),
        }
    }
}
