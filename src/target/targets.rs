//! What a group counts for: a scope, and which cgroups or processes of it.

use super::{Attribution, CgroupSelection, Needs, ProcessSelection};
use crate::health::{CpuScope, Scope};

/// The targets of an entry of the configuration, or of a group.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// CPUs, with everything that runs on them.
    Cpus(CpuScope),
    /// The selected cgroups.
    Cgroups(CgroupSelection),
    /// The selected processes.
    Processes(ProcessSelection),
}

impl Targets {
    /// All CPUs together.
    pub const HOST: Self = Self::Cpus(CpuScope::Host);
    /// Each CPU.
    pub const CPU: Self = Self::Cpus(CpuScope::Cpu);

    /// The scope.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Cpus(cpus) => Scope::Cpus(*cpus),
            Self::Cgroups(_) => Scope::Cgroup,
            Self::Processes(_) => Scope::Process,
        }
    }

    /// The targets of a scope.
    pub fn new(scope: Scope, cgroups: &CgroupSelection, processes: &ProcessSelection) -> Self {
        match scope {
            Scope::Cpus(cpus) => Self::Cpus(cpus),
            Scope::Cgroup => Self::Cgroups(cgroups.clone()),
            Scope::Process => Self::Processes(processes.clone()),
        }
    }

    /// Whether its series have a label of this name.
    pub fn has_label(&self, name: &str) -> bool {
        match self {
            Self::Cpus(_) | Self::Cgroups(_) => self.scope().label() == Some(name),
            Self::Processes(selection) => selection.by.iter().any(|by| by.as_str() == name),
        }
    }

    /// How the configuration wants counts to be attributed, where there is a choice.
    pub fn attribution(&self) -> Option<Attribution> {
        match self {
            Self::Cpus(_) => None,
            Self::Cgroups(selection) => Some(selection.attribution),
            Self::Processes(selection) => Some(selection.attribution),
        }
    }

    /// Whether it is a few targets, each by its name.
    pub fn names_few(&self) -> bool {
        match self {
            Self::Cpus(_) => false,
            Self::Cgroups(selection) => selection.names_few(),
            Self::Processes(selection) => selection.names_few(),
        }
    }

    /// Whether processes must be told apart by their cgroups.
    pub fn needs_cgroup(&self) -> bool {
        matches!(self, Self::Processes(selection) if selection.need().cgroup)
    }

    /// Whether whole CPUs are counted, whoever runs there.
    pub fn are_cpus(&self) -> bool {
        matches!(self, Self::Cpus(_))
    }

    /// Adds what must be looked for on the host.
    pub fn add_needs(&self, needs: &mut Needs) {
        match self {
            Self::Cpus(_) => {}
            Self::Cgroups(_) => needs.cgroups = true,
            Self::Processes(selection) => needs.add_processes(selection),
        }
    }
}
