//! The tables of the busiest cgroups and programs.

use super::busiest::{QUANTILE, busiest};
use super::chart::{Shown, sparkline};
use super::query::PageQuery;
use super::{ROWS, named};
use crate::export::page::figures::count;
use crate::export::page::html::Html;
use crate::history::{Figure, Grid, History, Scope, Subject, Window};

/// Figures of the columns, with their headings.
const COLUMNS: [(Figure, &str); 8] = [
    (Figure::Cpu, "CPUs"),
    (Figure::Ipc, "IPC"),
    (Figure::RunqueueLatency, "Run queue p99"),
    (Figure::Switches, "Switches"),
    (Figure::Preemptions, "Preempted"),
    (Figure::Faults, "Faults"),
    (Figure::Forks, "Forks"),
    (Figure::Calls, "System calls"),
];

/// Steps of a sparkline.
const SPARK_STEPS: usize = 60;

/// Writes the subjects with the most of the figure by which the page is sorted. `grid` is the range of the page, `now` that of the values.
pub(super) fn busiest_table(
    html: &mut Html,
    history: &History,
    scope: Scope,
    query: &PageQuery,
    (grid, now): (&Grid, &Grid),
) {
    let rows = busiest(history, scope, query.sort, now, ROWS);
    if rows.is_empty() {
        return;
    }
    let all = history.subjects(scope).count();
    html.put(
        "<section class=\"card busiest\"><header><h3>Busiest {}</h3><small>{}</small></header>",
        [&if scope == Scope::Cgroup { "cgroups" } else { "programs" }, &count(all as u64)],
    );
    let values = |figure| -> Vec<Option<f64>> {
        rows.iter().map(|(_, subject, _)| subject.value(figure, QUANTILE, now)).collect()
    };
    let columns: Vec<(Figure, &str, Vec<Option<f64>>)> = COLUMNS
        .iter()
        .map(|&(figure, heading)| (figure, heading, values(figure)))
        .filter(|(figure, _, values)| *figure == query.sort || values.iter().any(Option::is_some))
        .collect();
    html.raw("<div class=\"scroll\"><table><thead><tr><th>");
    html.raw(if scope == Scope::Cgroup { "Cgroup" } else { "Program" }).raw("</th><th></th>");
    for (figure, heading, _) in &columns {
        let sorted = if *figure == query.sort { " aria-sort=\"descending\"" } else { "" };
        html.raw("<th class=\"number\"").raw(sorted).raw("><a href=\"");
        html.address(&format!("/?{}&sort={figure}", query.range_text()))
            .raw("\">")
            .raw(heading)
            .raw("</a></th>");
    }
    html.raw("</tr></thead><tbody>");
    let window = Window { from: grid.from, to: grid.to(), step: None };
    let spark = history.grid(window, SPARK_STEPS);
    for (place, (name, subject, _)) in rows.iter().enumerate() {
        row(
            html,
            (scope, name, subject),
            (query.sort, &spark),
            columns.iter().map(|(figure, _, values)| (*figure, values.get(place).copied().flatten())),
        );
    }
    html.raw("</tbody></table></div></section>");
}

fn row(
    html: &mut Html,
    (scope, name, subject): (Scope, &str, &Subject),
    (sort, spark): (Figure, &Grid),
    values: impl Iterator<Item = (Figure, Option<f64>)>,
) {
    html.raw("<tr><td>");
    named(html, scope, name, Some(subject));
    html.raw("</td><td>");
    if let Some(values) = subject.values(sort, QUANTILE, spark) {
        sparkline(html, &values);
    }
    html.raw("</td>");
    for (figure, value) in values {
        html.raw("<td class=\"number\">");
        match value {
            Some(value) => html.text(Shown(figure, value)),
            None => html.raw("<span class=\"quiet\">\u{2013}</span>"),
        };
        html.raw("</td>");
    }
    html.raw("</tr>");
}
