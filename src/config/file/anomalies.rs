//! Entries of `anomalies`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::anomaly::Kind;
use crate::config::decode::At;

/// An entry of `anomalies`. Its name is the label `kind` of the metrics.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Anomaly {
    /// The figure: `cpi` (cycles per instruction), `cache_misses` (per 1000 instructions), `runqueue_latency` (99th percentile),
    /// `syscall_errors` (share of the calls), `forks` (per second).
    pub(in crate::config) of: At<Kind>,
    /// How unusual values are found: `robust` by medians, for each utilization; `cpi2` as in the paper CPI² of 2013. `robust` by default.
    pub(in crate::config) method: Option<At<MethodName>>,
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
