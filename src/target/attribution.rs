//! How counts are told apart by cgroup or process.

use schemars::JsonSchema;
use serde::Deserialize;

/// How counts are told apart by cgroup or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attribution {
    /// Whichever is cheaper: `dedicated` for at most 4 targets that are named (cgroups without patterns, processes by
    /// pid) and on kernels that have no stream, else `stream`.
    #[default]
    Auto,
    /// One event group per CPU, in whose records at context switches the kernel says what was counted, and for whom.
    #[doc(alias = "PERF_SAMPLE_CGROUP")]
    Stream,
    /// Descriptors for every target.
    #[doc(alias = "PERF_FLAG_PID_CGROUP")]
    Dedicated,
}

/// Up to so many named targets, descriptors of their own are taken to be cheaper than the stream: they cost
/// descriptors on each CPU and a PMU that is programmed anew when one of the few is switched to or from, while the
/// stream costs a record for every switch of everybody.
pub(super) const FEW_TARGETS: usize = 4;
