//! What may be written under `scheduler` and `syscalls`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Cgroups, Processes, TaskPer};
use crate::config::decode::At;
use crate::config::value::{List, Period};

/// What is told of the scheduler.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Scheduler {
    /// For whom. An empty list turns it off.
    pub(in crate::config) per: Option<At<List<TaskPer>>>,
    /// Whether it is told by whom threads are preempted; `true` by default.
    pub(in crate::config) preemption: Option<At<bool>>,
    /// Other cgroups than those of the file; what is left out is as in the file.
    pub(in crate::config) cgroups: Option<At<Cgroups>>,
    /// Other processes than those of the file; what is left out is as in the file.
    pub(in crate::config) processes: Option<At<Processes>>,
}

/// What is told of system calls.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Syscalls {
    /// For whom; `host` by default. An empty list turns it off.
    pub(in crate::config) per: Option<At<List<TaskPer>>>,
    /// Names of system calls, or patterns of names; one that matches is enough. All by default. The kernel writes no record of
    /// the others.
    #[schemars(extend("examples" = [["futex", "epoll_*", "fsync", "connect"]]))]
    pub(in crate::config) include: Option<At<List<String>>>,
    /// Names or patterns to leave out; stronger than `include`.
    #[schemars(extend("examples" = [["clock_*", "getpid"]]))]
    pub(in crate::config) exclude: Option<At<List<String>>>,
    /// Calls that have not ended for longer than this are told as stuck, while they are: 100ms to 24h; `10s` by default.
    pub(in crate::config) stuck: Option<At<Period>>,
    /// Other cgroups than those of the file; what is left out is as in the file.
    pub(in crate::config) cgroups: Option<At<Cgroups>>,
    /// Other processes than those of the file; what is left out is as in the file.
    pub(in crate::config) processes: Option<At<Processes>>,
}
