//! The words of `per`: each section can name some of the scopes.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::health::{CpuScope, Scope};

/// Makes the words of a section, and the scopes that they name.
macro_rules! words {
    ($(#[$about:meta])+ $words:ident: $scopes:ident { $($(#[$meaning:meta])+ $word:ident = $scope:ident,)+ }) => {
        $(#[$about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub(in crate::config) enum $words {
            $($(#[$meaning])+ $word,)+
        }

        impl From<$words> for $scopes {
            fn from(word: $words) -> Self {
                match word {
                    $($words::$word => Self::$scope,)+
                }
            }
        }
    };
}

words! {
    /// For whom to count.
    #[derive(Default)]
    Per: Scope {
        /// For each CPU: `perf_cpu_<event>_total{cpu}`.
        #[default]
        Cpu = CPU,
        /// For the CPUs of each NUMA node together: `perf_numa_<event>_total{numa_node}`.
        Numa = NUMA,
        /// For each cgroup of `cgroups`: `perf_cgroup_<event>_total{cgroup}`.
        Cgroup = Cgroup,
        /// For the processes of `processes`: `perf_process_<event>_total`.
        Process = Process,
    }
}

words! {
    /// For whom to count.
    #[derive(Default)]
    TracedPer: Scope {
        /// For all CPUs together.
        #[default]
        Host = HOST,
        /// For each CPU.
        Cpu = CPU,
        /// For the CPUs of each NUMA node together.
        Numa = NUMA,
        /// For each cgroup of `cgroups`.
        Cgroup = Cgroup,
        /// For the processes of `processes`.
        Process = Process,
    }
}

words! {
    /// For whom it is told what threads do.
    #[derive(Default)]
    TaskPer: Scope {
        /// For all CPUs together.
        #[default]
        Host = HOST,
        /// For the CPUs of each NUMA node together.
        Numa = NUMA,
        /// For each cgroup of `cgroups`.
        Cgroup = Cgroup,
        /// For the processes of `processes`.
        Process = Process,
    }
}

words! {
    /// By what the samples of a profile are told apart, besides threads and cgroups.
    ProfilePer: CpuScope {
        /// By CPU: the label `cpu`.
        Cpu = Cpu,
        /// By NUMA node: the label `numa_node`.
        Numa = Numa,
    }
}
