//! Targets of a group: a scope, and the selected cgroups or processes.

use super::{Attribution, CgroupSelection, Needs, ProcessSelection};
use crate::health::{CpuScope, Scope};

/// The targets of a configuration entry, or of a group.
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

    /// Returns the scope.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Cpus(cpus) => Scope::Cpus(*cpus),
            Self::Cgroups(_) => Scope::Cgroup,
            Self::Processes(_) => Scope::Process,
        }
    }

    /// Returns the targets of a scope.
    pub fn new(scope: Scope, cgroups: &CgroupSelection, processes: &ProcessSelection) -> Self {
        match scope {
            Scope::Cpus(cpus) => Self::Cpus(cpus),
            Scope::Cgroup => Self::Cgroups(cgroups.clone()),
            Scope::Process => Self::Processes(processes.clone()),
        }
    }

    /// Reports whether its series have a label with this name.
    pub fn has_label(&self, name: &str) -> bool {
        match self {
            Self::Cpus(_) | Self::Cgroups(_) => self.scope().label() == Some(name),
            Self::Processes(selection) => selection.by.iter().any(|by| by.as_str() == name),
        }
    }

    /// Reports whether the series of a target have the same labels and count the same as with `other`, which may select other targets.
    pub fn has_series_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cpus(one), Self::Cpus(other)) => one == other,
            (Self::Cgroups(one), Self::Cgroups(other)) => one.descendants == other.descendants,
            (Self::Processes(one), Self::Processes(other)) => one.by == other.by,
            _ => false,
        }
    }

    /// Returns the configured attribution method; `None` for CPUs, where there is no choice.
    pub fn attribution(&self) -> Option<Attribution> {
        match self {
            Self::Cpus(_) => None,
            Self::Cgroups(selection) => Some(selection.attribution),
            Self::Processes(selection) => Some(selection.attribution),
        }
    }

    /// Reports whether a few targets are selected, each by name.
    pub fn names_few(&self) -> bool {
        match self {
            Self::Cpus(_) => false,
            Self::Cgroups(selection) => selection.names_few(),
            Self::Processes(selection) => selection.names_few(),
        }
    }

    /// Reports whether processes in different cgroups belong to different series.
    pub fn needs_cgroup(&self) -> bool {
        matches!(self, Self::Processes(selection) if selection.need().cgroup)
    }

    /// Reports whether whole CPUs are counted, with everything that runs there.
    pub fn are_cpus(&self) -> bool {
        matches!(self, Self::Cpus(_))
    }

    /// Adds the kinds of targets to scan for.
    pub fn add_needs(&self, needs: &mut Needs) {
        match self {
            Self::Cpus(_) => {}
            Self::Cgroups(selection) => {
                needs.cgroups = true;
                needs.containers |= !selection.pods.is_empty();
            }
            Self::Processes(selection) => needs.add_processes(selection),
        }
    }
}
