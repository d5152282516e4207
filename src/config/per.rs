//! For whom an entry counts: `per`, `cgroups` and `processes`, which mean the same in every section; and which scopes the
//! `per` of each section can name.

use schemars::JsonSchema;
use serde::Deserialize;

use super::decode::At;
use super::file;
use super::report::Report;
use super::selection::{Selections, cgroups, not_empty, once, processes};
use super::value::List;
use super::yaml::NodeId;
use crate::health::{CpuScope, Scope};
use crate::target::Targets;

/// For whom to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Per {
    /// For each CPU: `perf_cpu_<event>_total{cpu}`.
    Cpu,
    /// For the CPUs of each NUMA node together: `perf_numa_<event>_total{numa_node}`.
    Numa,
    /// For each cgroup of `cgroups`: `perf_cgroup_<event>_total{cgroup}`.
    Cgroup,
    /// For the processes of `processes`: `perf_process_<event>_total`.
    Process,
}

/// For whom to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum TracedPer {
    /// For all CPUs together.
    Host,
    /// For each CPU.
    Cpu,
    /// For the CPUs of each NUMA node together.
    Numa,
    /// For each cgroup of `cgroups`.
    Cgroup,
    /// For the processes of `processes`.
    Process,
}

/// For whom it is told what threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum TaskPer {
    /// For all CPUs together.
    Host,
    /// For the CPUs of each NUMA node together.
    Numa,
    /// For each cgroup of `cgroups`.
    Cgroup,
    /// For the processes of `processes`.
    Process,
}

/// By what the samples of a profile are told apart, besides threads and cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProfilePer {
    /// By CPU: the label `cpu`.
    Cpu,
    /// By NUMA node: the label `numa_node`.
    Numa,
}

impl ProfilePer {
    /// The scope that it names.
    pub(super) fn cpus(self) -> CpuScope {
        match self {
            Self::Cpu => CpuScope::Cpu,
            Self::Numa => CpuScope::Numa,
        }
    }
}

/// A word of `per`.
pub(super) trait Word: Copy + PartialEq {
    /// The scope of entries without `per`.
    const DEFAULT: Scope;

    /// The scope that it names.
    fn scope(self) -> Scope;
}

impl Word for Per {
    const DEFAULT: Scope = Scope::CPU;

    fn scope(self) -> Scope {
        match self {
            Self::Cpu => Scope::CPU,
            Self::Numa => Scope::NUMA,
            Self::Cgroup => Scope::Cgroup,
            Self::Process => Scope::Process,
        }
    }
}

impl Word for TracedPer {
    const DEFAULT: Scope = Scope::HOST;

    fn scope(self) -> Scope {
        match self {
            Self::Host => Scope::HOST,
            Self::Cpu => Scope::CPU,
            Self::Numa => Scope::NUMA,
            Self::Cgroup => Scope::Cgroup,
            Self::Process => Scope::Process,
        }
    }
}

impl Word for TaskPer {
    const DEFAULT: Scope = Scope::HOST;

    fn scope(self) -> Scope {
        match self {
            Self::Host => Scope::HOST,
            Self::Numa => Scope::NUMA,
            Self::Cgroup => Scope::Cgroup,
            Self::Process => Scope::Process,
        }
    }
}

/// What an entry says about it.
pub(super) struct Whom<'e, W> {
    /// The entry.
    pub(super) entry: NodeId,
    pub(super) per: Option<&'e At<List<W>>>,
    pub(super) cgroups: Option<&'e At<file::Cgroups>>,
    pub(super) processes: Option<&'e At<file::Processes>>,
}

/// For whom an entry counts.
pub(super) fn per<W: Word>(
    whom: &Whom<'_, W>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Vec<Targets> {
    not_empty(whom.per, "counts for nobody", &format!("leave `per` out for `{}`", W::DEFAULT), report);
    let scopes: Vec<Scope> = match whom.per {
        Some(per) => once(per, report).into_iter().map(Word::scope).collect(),
        None if report.gives(whom.entry, "per") => Vec::new(),
        None => vec![W::DEFAULT],
    };
    let overrides =
        [(whom.cgroups.map(|at| at.node), Scope::Cgroup), (whom.processes.map(|at| at.node), Scope::Process)];
    for (node, scope) in overrides {
        let unheard = !scopes.contains(&scope) && !whom.per.is_some_and(|per| report.blames(per.node));
        if let Some(node) = node.filter(|_| unheard && !scopes.is_empty()) {
            let message = format!("this has no effect: the entry does not count per {scope}");
            report.warning(node, message, Some(format!("add `{scope}` to its `per`, or leave it out")));
        }
    }
    let cgroups = cgroups(whom.cgroups, &selections.cgroups, report);
    let processes = processes(whom.processes, &selections.processes, report);
    scopes.into_iter().map(|scope| Targets::new(scope, &cgroups, &processes)).collect()
}

/// The same scopes for other cgroups and processes.
pub(super) fn reselected(per: &[Targets], selections: &Selections) -> Vec<Targets> {
    let Selections { cgroups, processes } = selections;
    per.iter().map(|per| Targets::new(per.scope(), cgroups, processes)).collect()
}
