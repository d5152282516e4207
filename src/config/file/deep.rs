//! Keys of an entry of `deep`, and of a request for a set of events.

use schemars::JsonSchema;
use serde::Deserialize;

use super::PodRule;
use crate::config::decode::At;
use crate::config::value::{Event, List, Period};
use crate::event::Preset;

/// Maximum of `limits.deep_cgroups`. Each cgroup needs a descriptor for each event and CPU.
pub(in crate::config) const DEEP_CGROUPS_MAX: u64 = 1024;

/// Whether pods may request a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Annotation {
    /// Pods may request the set.
    Allowed,
    /// Annotations have no effect.
    Ignored,
}

/// A set of events that is counted for a few cgroups, for a limited time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Deep {
    /// The events, in the syntax of `perf stat -e`.
    #[schemars(extend("examples" = [["L1-dcache-load-misses", "LLC-load-misses"]]))]
    pub(in crate::config) events: Option<At<List<Event>>>,
    /// A `perf stat` event set, instead of `events`.
    pub(in crate::config) preset: Option<At<Preset>>,
    /// Whether all events form one group, as in `counters`.
    pub(in crate::config) group: Option<At<bool>>,
    /// Metrics or groups of metrics, to count the events that they are computed from, as in `counters`.
    #[schemars(extend("examples" = [["topdown-l2"]]))]
    pub(in crate::config) metrics: Option<At<List<String>>>,
    /// Patterns of the paths of the cgroups; one match is enough. `*` matches within a path component, `**` across slashes.
    #[schemars(extend("examples" = [["/system.slice/nginx.service"]]))]
    pub(in crate::config) cgroups: Option<At<List<String>>>,
    /// Rules for containers and pods, in addition to `cgroups`; one match is enough.
    #[schemars(extend("examples" = [[{"namespace": "shop", "pod": "web-*"}]]))]
    pub(in crate::config) pods: Option<At<List<PodRule>>>,
    /// How long the events are counted: 1s to 24h, once after the start of the exporter or after a reload that adds or changes the set.
    /// Without it, as long as the set is in the file; for a pod with the annotation, 10m.
    #[serde(rename = "for")]
    pub(in crate::config) lasts: Option<At<Period>>,
    /// Whether pods may request the set with the annotation `perf-exporter/deep: NAME`: `allowed`, or `ignored` (the default). Each pod is
    /// counted once, for the time in `for`.
    pub(in crate::config) annotation: Option<At<Annotation>>,
}

/// A request for a set of events: the body of `POST /api/v1/deep`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct DeepRequest {
    /// Name of the set. A request with the name of an active one replaces it.
    pub(in crate::config) name: Option<At<String>>,
    pub(in crate::config) events: Option<At<List<Event>>>,
    pub(in crate::config) preset: Option<At<Preset>>,
    pub(in crate::config) group: Option<At<bool>>,
    pub(in crate::config) metrics: Option<At<List<String>>>,
    pub(in crate::config) cgroups: Option<At<List<String>>>,
    pub(in crate::config) pods: Option<At<List<PodRule>>>,
    #[serde(rename = "for")]
    pub(in crate::config) lasts: Option<At<Period>>,
    /// Text for the log and the list.
    pub(in crate::config) reason: Option<At<String>>,
}
