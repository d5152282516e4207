//! Metrics that are measured and not published, because of `metrics`.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use super::words::heading;
use crate::config;
use crate::metrics::Metadata;
use crate::plan::Plan;

/// A metric that is not published.
#[derive(Debug, Serialize)]
pub(super) struct UnpublishedRow {
    pub(super) metric: String,
    /// The level from which on it is published. `None` if the configuration excludes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) level: Option<&'static str>,
}

impl UnpublishedRow {
    /// Returns the planned metrics that are not published, sorted by name.
    pub(super) fn all(plan: &Plan, published: &config::Metrics) -> Vec<Self> {
        let counters = plan.groups.iter().flat_map(|group| &group.counters).map(|counter| &counter.metric);
        let outputs = plan.traces.iter().flat_map(|trace| &trace.outputs);
        let traced = outputs.flat_map(|output| output.hits.iter().chain(&output.amount));
        let row = |metric: &Arc<Metadata>| Self {
            metric: metric.sample_name(),
            level: (metric.detail().level > published.level).then(|| metric.detail().level.as_str()),
        };
        let unpublished = counters.chain(traced).filter(|metric| published.level_of(metric).is_none());
        let mut rows: Vec<Self> = unpublished.map(row).collect();
        rows.sort_by(|a, b| a.metric.cmp(&b.metric));
        rows.dedup_by(|a, b| a.metric == b.metric);
        rows
    }
}

/// Writes the metrics as text.
pub(super) fn write(out: &mut impl Write, rows: &[UnpublishedRow]) -> io::Result<()> {
    heading(out, rows, "Measured for the pages, and not published (`metrics`)")?;
    for UnpublishedRow { metric, level } in rows {
        match level {
            Some(level) => writeln!(out, "  {metric}  from level {level} on")?,
            None => writeln!(out, "  {metric}  excluded")?,
        }
    }
    Ok(())
}
