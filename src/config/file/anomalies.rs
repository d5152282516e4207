//! Entries of `anomalies`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::decode::At;
use crate::config::value::Period;

/// An entry of `anomalies`. Its name is the label `kind` of the metrics.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Anomaly {
    /// The figure: `cpi` (cycles per instruction), `cache_misses` (per 1000 instructions), `runqueue_latency` (99th percentile),
    /// `syscall_errors` (share of the calls), `forks`, `major_faults`, `throttling`, `involuntary_switches` (per second), `off_cpu` (share of
    /// uninterruptible sleep), `syscall_latency` (of one `call`). With `per`: an event of `counters` that is counted per cgroup. With
    /// `quantile`: an entry of `probes` or `tracepoints`.
    #[schemars(extend("examples" = ["cpi", "cache_misses", "runqueue_latency", "syscall_errors", "forks", "major_faults", "throttling", "off_cpu", "involuntary_switches", "syscall_latency", "branch-misses"]))]
    pub(in crate::config) of: At<String>,
    /// Another event of `counters`: the figure is the ratio of both.
    #[schemars(extend("examples" = ["branches"]))]
    pub(in crate::config) per: Option<At<String>>,
    /// With `of: syscall_latency`: the system call.
    #[schemars(extend("examples" = ["fsync"]))]
    pub(in crate::config) call: Option<At<String>>,
    /// The quantile of a latency, 0.001 to 0.999; `0.99` by default. Without `call`, `of` is an entry of `probes` or `tracepoints` with a
    /// histogram of times per cgroup.
    #[schemars(extend("examples" = [0.99]))]
    pub(in crate::config) quantile: Option<At<f64>>,
    /// How unusual values are found: `robust` by medians, for each utilization; `cpi2` as in the paper CPI² of 2013. `robust` by default.
    pub(in crate::config) method: Option<At<MethodName>>,
    /// `day`: values are compared with those of the same hour of earlier days, where they are known.
    pub(in crate::config) season: Option<At<Season>>,
    /// Instead of `method`: a fixed limit. Values above it are unusual.
    #[schemars(extend("examples" = [0.2]))]
    pub(in crate::config) above: Option<At<f64>>,
    /// With `above`: the time for which values are above it, 10s to 1h; `1m` by default.
    #[serde(rename = "for")]
    pub(in crate::config) lasting: Option<At<Period>>,
}

/// The time after which a figure repeats itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Season {
    /// A day.
    Day,
}

/// How unusual values are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "AnomalyMethod")]
pub(in crate::config) enum MethodName {
    /// By median and median absolute deviation, for each utilization.
    #[default]
    Robust,
    /// By mean and standard deviation, renewed each day.
    Cpi2,
}
