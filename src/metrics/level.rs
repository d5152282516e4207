//! How much is published: the level of each metric, and what a level omits of a metric.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::named_enum::named_enum;

named_enum! {
    /// How many metrics are published. A level includes the metrics of the levels before it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Level {
        /// Metrics of the host, counters of cgroups, entries of the file, and the exporter itself.
        #[default]
        Basic = "basic",
        /// Also what the dashboards and alerts need of each cgroup.
        Standard = "standard",
        /// Everything that is measured.
        Full = "full",
    }
}

/// What is published of a family at each level.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Detail {
    /// The lowest level at which the family is published.
    pub level: Level,
    /// Series of the family that are published at level `full` only.
    pub full_only: Option<FullOnly>,
    /// Bounds of the classic buckets below level `full`; `None` = all. Each is a bound of the family's histograms.
    pub bounds: Option<&'static [f64]>,
}

/// Selection of series by values of one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullOnly {
    /// Label name.
    pub label: &'static str,
    /// Label values.
    pub values: &'static [&'static str],
}

impl Detail {
    /// Returns the detail of a family that is published from this level on, with all of its series.
    pub const fn from(level: Level) -> Self {
        Self { level, full_only: None, bounds: None }
    }
}
