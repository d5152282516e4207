//! `perf-exporter list --presets`: the presets, and the metrics that each provides on this host.

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::wanted::Wanted;
use crate::config::{self, Config, Preset};
use crate::error::printable;
use crate::event::Catalog;
use crate::plan::{Entries, Plan, StreamSupport, plan};

/// One preset.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    preset: &'static str,
    /// The question that the preset answers.
    question: &'static str,
    entries: Vec<String>,
    /// Metrics whose events are available on this host.
    metrics: Vec<String>,
    /// Reasons why other metrics are missing, with remedies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusals: Vec<String>,
    yaml: String,
}

/// Returns the presets with a name that matches.
///
/// # Errors
/// If no preset matches.
pub(super) fn rows(wanted: &Wanted, catalog: &Catalog, support: &StreamSupport) -> anyhow::Result<Vec<Row>> {
    let presets = Preset::ALL.into_iter().filter(|preset| wanted.includes(preset.as_str()));
    let rows: Vec<Row> = presets.map(|preset| row(preset, catalog, support)).collect();
    if rows.is_empty() {
        let all = Preset::ALL.map(Preset::as_str).join(", ");
        anyhow::bail!("no preset matches {:?}; the presets are {all}", wanted.text());
    }
    Ok(rows)
}

fn row(preset: Preset, catalog: &Catalog, support: &StreamSupport) -> Row {
    let name = preset.as_str();
    let yaml = format!("presets: [{name}]");
    let config = config::load(yaml.as_bytes(), name).map(|(config, _)| config).unwrap_or_default();
    let Config { traced, .. } = config;
    let entries = Entries { traced: &traced, ..Entries::counters(&[]) };
    let plan = plan(&entries, catalog, support);
    let refusals = plan.refusals.iter().map(|refused| &refused.refusal);
    let mut refusals: Vec<_> =
        refusals.map(|refusal| format!("{}: {}", refusal.event, refusal.why())).collect();
    refusals.dedup();
    let entries = traced.iter().map(|entry| entry.name.to_string()).collect();
    Row { preset: name, question: preset.question(), entries, metrics: metrics(&plan), refusals, yaml }
}

/// Returns the metrics of a plan, with the labels that fields become.
fn metrics(plan: &Plan) -> Vec<String> {
    let counted = plan.groups.iter().flat_map(|group| {
        let scope = (group.scope() != crate::health::Scope::HOST).then(|| group.scope().as_str());
        let metrics = group.counters.iter().map(|counter| &counter.metric);
        metrics.map(move |metric| labelled(metric.sample_name(), scope.into_iter().collect()))
    });
    let traced = plan.traces.iter().flat_map(|trace| {
        let labels: Vec<&str> = trace.labels.iter().map(|label| &**label).collect();
        let metrics = trace.outputs.iter().flat_map(|output| output.hits.iter().chain(&output.amount));
        metrics.map(move |metric| labelled(metric.sample_name(), labels.clone()))
    });
    counted.chain(traced).collect()
}

fn labelled(name: String, labels: Vec<&str>) -> String {
    if labels.is_empty() { name } else { format!("{name}{{{}}}", labels.join(",")) }
}

/// Writes the presets as text.
pub(super) fn write(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    for row in rows {
        writeln!(out, "{:<12} {}", row.preset, row.question)?;
        row.metrics.iter().try_for_each(|metric| writeln!(out, "{:<12}   {metric}", ""))?;
        let refused = |refusal: &String| writeln!(out, "{:<12}   not available: {}", "", printable(refusal));
        row.refusals.iter().try_for_each(refused)?;
    }
    writeln!(out, "\nIn the configuration: {}", rows.first().map_or("", |row| &*row.yaml))
}
