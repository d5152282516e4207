//! Method of attributing counts to cgroups or processes.

use schemars::JsonSchema;
use serde::Deserialize;

/// Method of attributing counts to cgroups or processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attribution {
    /// The method with less overhead: `dedicated` for at most 4 targets that are selected by name (cgroups without patterns, processes by
    /// pid) and on kernels without support for `stream`, otherwise `stream`.
    #[default]
    Auto,
    /// One event group per CPU, which writes a record at each context switch. The record contains the counts and the outgoing task or
    /// cgroup.
    #[doc(alias = "PERF_SAMPLE_CGROUP")]
    Stream,
    /// Events and descriptors for every target.
    #[doc(alias = "PERF_FLAG_PID_CGROUP")]
    Dedicated,
}

/// Maximum number of targets selected by name for which dedicated descriptors are assumed to have less overhead than the stream. Dedicated
/// events cost descriptors on each CPU, and the PMU is reprogrammed when one of the targets is switched in or out. The stream costs a
/// record for every switch.
pub(super) const FEW_TARGETS: usize = 4;
