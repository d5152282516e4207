//! Scopes: what counts are attributed to. Everything that differs between scopes is here, and all other modules ask.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::host::Cpu;

/// What counts are attributed to, which decides where events are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// CPUs, with everything that runs on them: on each CPU.
    Cpus(CpuScope),
    /// Cgroups: for each cgroup on each CPU.
    Cgroup,
    /// Processes: for each thread.
    Process,
}

/// Which CPUs have a series together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuScope {
    /// All CPUs.
    Host,
    /// Each CPU has its own.
    Cpu,
    /// The CPUs of each NUMA node.
    Numa,
    /// Each CPU that a PMU beside the cores names as its own has its own.
    Pmu,
}

/// The words of a scope.
#[derive(Debug, Clone, Copy)]
pub struct ScopeWords {
    /// In the configuration, in metric names and labels, on pages.
    pub name: &'static str,
    /// One of its targets, in refusals: `NUMA node`.
    pub target: &'static str,
    /// How the counts of a series are added up, for the help of its metric.
    pub over: &'static str,
    /// The targets of a group, in the plural: `CPUs`.
    pub targets: &'static str,
    /// What takes descriptors of its own in a group: `cpu`, `thread`.
    pub each: &'static str,
}

impl Scope {
    /// All CPUs together.
    pub const HOST: Self = Self::Cpus(CpuScope::Host);
    /// Each CPU.
    pub const CPU: Self = Self::Cpus(CpuScope::Cpu);
    /// The CPUs of each NUMA node.
    pub const NUMA: Self = Self::Cpus(CpuScope::Numa);
    /// Each CPU of a PMU beside the cores.
    pub const PMU: Self = Self::Cpus(CpuScope::Pmu);

    /// All of them.
    pub const ALL: [Self; 6] = [Self::HOST, Self::CPU, Self::NUMA, Self::PMU, Self::Cgroup, Self::Process];

    /// Its words.
    pub const fn words(self) -> ScopeWords {
        let (name, target, over, targets, each) = match self {
            Self::Cpus(CpuScope::Host) => ("host", "host", "over all CPUs", "CPUs", "cpu"),
            Self::Cpus(CpuScope::Cpu) => ("cpu", "CPU", "per CPU", "CPUs", "cpu"),
            Self::Cpus(CpuScope::Numa) => ("numa", "NUMA node", "per NUMA node", "CPUs", "cpu"),
            Self::Cpus(CpuScope::Pmu) => ("pmu", "PMU", "per PMU", "PMU CPUs", "cpu of each PMU"),
            Self::Cgroup => ("cgroup", "cgroup", "per cgroup, over all CPUs", "cgroups", "cgroup"),
            Self::Process => {
                ("process", "process", "per group of processes, over all CPUs", "processes", "thread")
            }
        };
        ScopeWords { name, target, over, targets, each }
    }

    /// The word in the configuration, in metric names and labels, and on pages.
    pub const fn as_str(self) -> &'static str {
        self.words().name
    }

    /// The word in front of metric names; `None` for metrics over all CPUs, whose names begin with what they are about.
    pub const fn prefix(self) -> Option<&'static str> {
        match self {
            Self::Cpus(CpuScope::Host) => None,
            scope => Some(scope.as_str()),
        }
    }

    /// The label that its series have; `None` if there is one series, or if the configuration names the labels.
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::Cpus(cpus) => cpus.label(),
            Self::Cgroup => Some("cgroup"),
            Self::Process => None,
        }
    }

    /// The same for events of a PMU beside the cores; `None` where such a PMU does not know who caused what it counts. A socket
    /// can have several NUMA nodes.
    pub const fn beside_cores(self) -> Option<CpuScope> {
        match self {
            Self::Cpus(CpuScope::Host) => Some(CpuScope::Host),
            Self::Cpus(CpuScope::Cpu | CpuScope::Pmu) => Some(CpuScope::Pmu),
            Self::Cpus(CpuScope::Numa) | Self::Cgroup | Self::Process => None,
        }
    }
}

impl CpuScope {
    /// The label that its series have; `None` if there is one series.
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::Host => None,
            Self::Cpu | Self::Pmu => Some("cpu"),
            Self::Numa => Some("numa_node"),
        }
    }

    /// The label of the series that a CPU counts in.
    pub fn label_of(self, cpu: Cpu) -> Option<(&'static str, Arc<str>)> {
        let value = match self {
            Self::Host => return None,
            Self::Cpu | Self::Pmu => cpu.number,
            Self::Numa => cpu.node,
        };
        Some((self.label()?, value.to_string().into()))
    }

    /// The number under which what happens on a CPU is added up until its series is looked up.
    pub const fn number_of(self, cpu: u32) -> u32 {
        match self {
            Self::Host => 0,
            Self::Cpu | Self::Numa | Self::Pmu => cpu,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
