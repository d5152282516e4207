//! Keys of `scheduler` and `syscalls`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Cgroups, PodsOrRules, Processes, TaskPer};
use crate::config::decode::At;
use crate::config::value::{List, Period};

/// Scheduler metrics.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Scheduler {
    /// Targets. An empty list disables the section.
    pub(in crate::config) per: Option<At<List<TaskPer>>>,
    /// Whether to report which threads preempt others; `true` by default.
    pub(in crate::config) preemption: Option<At<bool>>,
    /// Cgroups for this section, instead of those of the file. Keys that it omits are as in the file.
    pub(in crate::config) cgroups: Option<At<Cgroups>>,
    /// Containers and pods for this section, in addition to `cgroups.include` of the section. If it has neither, both are as in the file.
    pub(in crate::config) pods: Option<At<PodsOrRules>>,
    /// Processes for this section, instead of those of the file. Keys that it omits are as in the file.
    pub(in crate::config) processes: Option<At<Processes>>,
}

/// System call metrics.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Syscalls {
    /// Targets; `host` by default. An empty list disables the section.
    pub(in crate::config) per: Option<At<List<TaskPer>>>,
    /// Names of system calls, or patterns of names; one match is enough. All by default. The kernel writes no records of other system
    /// calls.
    #[schemars(extend("examples" = [["futex", "epoll_*", "fsync", "connect"]]))]
    pub(in crate::config) include: Option<At<List<String>>>,
    /// Names or patterns to exclude; takes precedence over `include`.
    #[schemars(extend("examples" = [["clock_*", "getpid"]]))]
    pub(in crate::config) exclude: Option<At<List<String>>>,
    /// Calls that have been running for longer than this are reported as stuck until they return: 100ms to 24h; `10s` by default.
    pub(in crate::config) stuck: Option<At<Period>>,
    /// Cgroups for this section, instead of those of the file. Keys that it omits are as in the file.
    pub(in crate::config) cgroups: Option<At<Cgroups>>,
    /// Containers and pods for this section, in addition to `cgroups.include` of the section. If it has neither, both are as in the file.
    pub(in crate::config) pods: Option<At<PodsOrRules>>,
    /// Processes for this section, instead of those of the file. Keys that it omits are as in the file.
    pub(in crate::config) processes: Option<At<Processes>>,
}
