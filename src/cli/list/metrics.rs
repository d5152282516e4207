//! `perf-exporter list metric`: the metrics of this host, with their expressions.

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::wanted::Wanted;
use crate::event::Catalog;
use crate::event::metric::Metric;

/// One metric.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    metric: &'static str,
    /// Another name.
    #[serde(skip_serializing_if = "str::is_empty")]
    alias: &'static str,
    group: &'static str,
    unit: &'static str,
    /// The type of core with this expression, on a machine with several types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pmu: Option<String>,
    expression: String,
    /// The groups of events that it needs.
    events: Vec<String>,
    help: &'static str,
    yaml: String,
}

/// Returns the metrics of this host that match one of the patterns by name, alias or group. All without a pattern.
///
/// # Errors
/// If no metric matches: which CPUs have it, or the closest name.
pub(super) fn rows(patterns: &[Wanted], catalog: &Catalog) -> anyhow::Result<Vec<Row>> {
    let includes = |metric: &Metric| {
        let of = metric.definition;
        let names = [of.name, of.alias, of.group.as_str()];
        let named = |wanted: &Wanted| names.iter().any(|name| !name.is_empty() && wanted.includes(name));
        patterns.is_empty() || patterns.iter().any(named)
    };
    let metrics = catalog.all_metrics();
    let rows: Vec<Row> = metrics.iter().filter(|metric| includes(metric)).flat_map(row).collect();
    if let (true, Some(pattern)) = (rows.is_empty(), patterns.first()) {
        let why = catalog.metrics(pattern.text()).err();
        anyhow::bail!(
            "{}",
            why.map_or_else(|| format!("no metric matches {:?}", pattern.text()), |no| no.to_string())
        );
    }
    Ok(rows)
}

fn row(metric: &Metric) -> impl Iterator<Item = Row> {
    let of = metric.definition;
    metric.formulas.iter().map(|formula| Row {
        metric: of.name,
        alias: of.alias,
        group: of.group.as_str(),
        unit: of.unit.text,
        pmu: metric.pmu.as_ref().map(ToString::to_string),
        expression: formula.to_string(),
        events: metric.needs.iter().map(ToString::to_string).collect(),
        help: of.help,
        yaml: format!("metrics: [{}]", of.name),
    })
}

/// Writes the metrics as text.
pub(super) fn write(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    for row in rows {
        let or = if row.alias.is_empty() { String::new() } else { format!(" OR {}", row.alias) };
        writeln!(
            out,
            "{:<32} {:<12} {:<26} {}",
            format!("{}{or}", row.metric),
            row.group,
            row.unit,
            row.help
        )?;
        let on = row.pmu.as_ref().map(|pmu| format!("on {pmu}: ")).unwrap_or_default();
        writeln!(out, "    {on}{}", row.expression)?;
    }
    if let Some(Row { metric, yaml, .. }) = rows.first() {
        writeln!(out, "\nOn the command line: perf-exporter stat -M {metric}")?;
        writeln!(out, "In the configuration: counters: {{mine: {{{yaml}}}}}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::stat::tests::testing::machine_with;

    fn text(patterns: &[&str]) -> anyhow::Result<String> {
        let (_dir, catalog) = machine_with(
            "cpu",
            &["slots", "topdown-retiring", "topdown-bad-spec", "topdown-fe-bound", "topdown-be-bound"],
        );
        let patterns: Vec<Wanted> =
            patterns.iter().map(|pattern| Wanted::new(Some(pattern)).unwrap()).collect();
        let mut out = Vec::new();
        write(&mut out, &rows(&patterns, &catalog)?)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn metrics_have_their_unit_and_their_expression() {
        let found = text(&["retir", "IPC"]).unwrap();
        assert!(found.starts_with("insn_per_cycle OR IPC            default      insn per cycle"), "{found}");
        assert!(found.contains("\n    instructions / cycles\n"), "{found}");
        assert!(found.contains("    topdown-retiring / (topdown-fe-bound + "), "{found}");
        assert!(found.ends_with("counters: {mine: {metrics: [insn_per_cycle]}}\n"), "{found}");
        assert_eq!(text(&["topdown-l1"]).unwrap().matches("topdown-l1").count(), 4);
    }

    #[test]
    fn a_metric_of_other_cpus_leads_to_them() {
        let error = text(&["heavy_operations"]).unwrap_err().to_string();
        assert!(error.contains("Sapphire Rapids") && error.contains("retiring"), "{error}");
        assert!(text(&["horses"]).unwrap_err().to_string().contains("no metric"));
    }
}
