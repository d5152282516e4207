//! Values of `per`: each section accepts some of the scopes.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::health::{CpuScope, Scope};

/// Declares the values that a section accepts and maps them to scopes.
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
    /// Target to count for.
    #[derive(Default)]
    Per: Scope {
        /// Each CPU: `perf_cpu_<event>_total{cpu}`.
        #[default]
        Cpu = CPU,
        /// Each NUMA node, as the sum of its CPUs: `perf_numa_<event>_total{numa_node}`.
        Numa = NUMA,
        /// Each cgroup of `cgroups`: `perf_cgroup_<event>_total{cgroup}`.
        Cgroup = Cgroup,
        /// The processes of `processes`: `perf_process_<event>_total`.
        Process = Process,
    }
}

words! {
    /// Target to count for.
    #[derive(Default)]
    TracedPer: Scope {
        /// The host, as the sum of all CPUs.
        #[default]
        Host = HOST,
        /// Each CPU.
        Cpu = CPU,
        /// Each NUMA node, as the sum of its CPUs.
        Numa = NUMA,
        /// Each cgroup of `cgroups`.
        Cgroup = Cgroup,
        /// The processes of `processes`.
        Process = Process,
    }
}

words! {
    /// Target of scheduler or system call metrics.
    #[derive(Default)]
    TaskPer: Scope {
        /// The host, as the sum of all CPUs.
        #[default]
        Host = HOST,
        /// Each NUMA node, as the sum of its CPUs.
        Numa = NUMA,
        /// Each cgroup of `cgroups`.
        Cgroup = Cgroup,
        /// The processes of `processes`.
        Process = Process,
    }
}

words! {
    /// Label by which the samples of a profile are distinguished, in addition to threads and cgroups.
    ProfilePer: CpuScope {
        /// The label `cpu`.
        Cpu = Cpu,
        /// The label `numa_node`.
        Numa = Numa,
    }
}
