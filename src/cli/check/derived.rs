//! Metrics that entries ask for, with their expressions on this host and in PromQL.

use std::io::{self, Write};

use serde::Serialize;

use super::words::heading;
use crate::config::{Counters, MetricUse};
use crate::event::metric::Expression;
use crate::event::{Catalog, syntax};
use crate::plan::Plan;
use crate::targets::Targets;

/// A metric of an entry.
#[derive(Debug, Serialize)]
pub(super) struct MetricRow {
    entry: String,
    metric: String,
    /// The expression, with the properties of this host.
    expression: String,
    /// Unit; empty for a plain number.
    unit: String,
    /// The expression over the exported counters, for each scope of the entry that has all of them. Without the factor of the unit.
    promql: Vec<String>,
}

impl MetricRow {
    /// Returns the metrics that this host has, in the order of the entries. Others are among the refusals.
    pub(super) fn all(counters: &[Counters], catalog: &Catalog, plan: &Plan) -> Vec<Self> {
        let mut rows = Vec::new();
        for entry in counters {
            for (metric, expression, unit) in
                entry.metrics.iter().flat_map(|metric| expressions(metric, catalog))
            {
                let queries = entry.per.iter().filter_map(|per| promql(&expression, per, catalog, plan));
                let (promql, expression) = (queries.collect(), expression.to_string());
                rows.push(Self { entry: entry.name.to_string(), metric, expression, unit, promql });
            }
        }
        rows
    }
}

/// Returns the name, expression and unit of a metric, or of each metric of a group, on this host.
fn expressions(metric: &MetricUse, catalog: &Catalog) -> Vec<(String, Expression, String)> {
    match metric {
        MetricUse::BuiltIn(name) => {
            let metrics = catalog.metrics(name).unwrap_or_default().into_iter();
            let named = metrics.flat_map(|metric| {
                let of = metric.definition;
                metric
                    .formulas
                    .into_iter()
                    .map(|formula| (of.name.to_owned(), formula, of.unit.text.to_owned()))
            });
            named.collect()
        }
        MetricUse::Derived(derived) => {
            let expression = catalog.on_host(&derived.expression);
            vec![(derived.name.to_string(), expression, derived.unit.to_string())]
        }
    }
}

/// Returns an expression in PromQL. `None` if a counter of these targets is missing, or PromQL has no equivalent.
fn promql(expression: &Expression, per: &Targets, catalog: &Catalog, plan: &Plan) -> Option<String> {
    let rate = |event: &syntax::Event| {
        let resolved = catalog.resolve(event).ok()?;
        let first = resolved.first()?;
        let groups = plan.groups.iter().filter(|group| group.targets == *per);
        let mut counters = groups.flat_map(|group| &group.counters);
        let counter = counters.find(|counter| counter.event.stem == first.stem)?;
        let rate = format!("rate({}[5m])", counter.metric.sample_name());
        Some(if first.pmu.is_some() { format!("sum without (pmu) ({rate})") } else { rate })
    };
    expression.promql(&rate)
}

/// Writes the metrics as text.
pub(super) fn write(out: &mut impl Write, rows: &[MetricRow]) -> io::Result<()> {
    heading(out, rows, "Metrics of these events")?;
    for MetricRow { entry, metric, expression, unit, promql } in rows {
        let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
        writeln!(out, "  {entry}: {metric}{unit} = {expression}")?;
        promql.iter().try_for_each(|query| writeln!(out, "    {query}"))?;
    }
    Ok(())
}
