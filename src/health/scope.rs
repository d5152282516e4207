//! Scopes: what counts are attributed to. All differences between scopes are defined here.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::host::Cpu;

/// What counts are attributed to. Determines where events are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// CPUs and everything that runs on them. Opened on each CPU.
    Cpus(CpuScope),
    /// Cgroups. Opened for each cgroup on each CPU.
    Cgroup,
    /// Processes. Opened for each thread.
    Process,
}

/// The CPUs that share a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuScope {
    /// All CPUs share one series.
    Host,
    /// Each CPU has a series.
    Cpu,
    /// The CPUs of each NUMA node share a series.
    Numa,
    /// Each CPU in the CPU list of an uncore PMU has a series.
    Pmu,
}

/// The names of a scope.
#[derive(Debug, Clone, Copy)]
pub struct ScopeWords {
    /// Name in the configuration, in metric names and labels, and on pages.
    pub name: &'static str,
    /// A single target in refusals, such as `NUMA node`.
    pub target: &'static str,
    /// How the counts of a series are aggregated, for the help text of its metric.
    pub over: &'static str,
    /// The targets of a group, plural, such as `CPUs`.
    pub targets: &'static str,
    /// The unit that needs its own descriptors, such as `cpu` or `thread`.
    pub each: &'static str,
}

impl Scope {
    /// All CPUs together.
    pub const HOST: Self = Self::Cpus(CpuScope::Host);
    /// Each CPU.
    pub const CPU: Self = Self::Cpus(CpuScope::Cpu);
    /// Each NUMA node.
    pub const NUMA: Self = Self::Cpus(CpuScope::Numa);
    /// Each CPU of an uncore PMU.
    pub const PMU: Self = Self::Cpus(CpuScope::Pmu);

    /// All scopes.
    pub const ALL: [Self; 6] = [Self::HOST, Self::CPU, Self::NUMA, Self::PMU, Self::Cgroup, Self::Process];

    /// Returns the names of the scope.
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

    /// Returns the name in the configuration, in metric names and labels, and on pages.
    pub const fn as_str(self) -> &'static str {
        self.words().name
    }

    /// Returns the prefix of metric names. `None` for metrics over all CPUs, which have no prefix.
    pub const fn prefix(self) -> Option<&'static str> {
        match self {
            Self::Cpus(CpuScope::Host) => None,
            scope => Some(scope.as_str()),
        }
    }

    /// Returns the label of the series. `None` if there is one series, or if the configuration defines the labels.
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::Cpus(cpus) => cpus.label(),
            Self::Cgroup => Some("cgroup"),
            Self::Process => None,
        }
    }

    /// Returns the scope for events of an uncore PMU. `None` where such a PMU cannot attribute its counts. A socket can have several NUMA
    /// nodes.
    pub const fn beside_cores(self) -> Option<CpuScope> {
        match self {
            Self::Cpus(CpuScope::Host) => Some(CpuScope::Host),
            Self::Cpus(CpuScope::Cpu | CpuScope::Pmu) => Some(CpuScope::Pmu),
            Self::Cpus(CpuScope::Numa) | Self::Cgroup | Self::Process => None,
        }
    }
}

impl CpuScope {
    /// Returns the label of the series. `None` if there is one series.
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::Host => None,
            Self::Cpu | Self::Pmu => Some("cpu"),
            Self::Numa => Some("numa_node"),
        }
    }

    /// Returns the label of the series that a CPU contributes to.
    pub fn label_of(self, cpu: Cpu) -> Option<(&'static str, Arc<str>)> {
        let value = match self {
            Self::Host => return None,
            Self::Cpu | Self::Pmu => cpu.number,
            Self::Numa => cpu.node,
        };
        Some((self.label()?, value.to_string().into()))
    }

    /// Returns the number under which counts of a CPU are summed before their series is looked up.
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
