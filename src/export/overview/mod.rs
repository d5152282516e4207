//! The overview of the machine on `/`, the pages of one cgroup (`/cgroup`) and of one program (`/program`), and `/api/v1/history`.
//!
//! The pages are complete without scripts. The script adds values under the pointer, the selection of a range, and a refresh.

mod anomalies;
mod busiest;
pub(in crate::export) mod chart;
mod compared;
mod details;
mod health;
pub(in crate::export) mod json;
mod missing;
pub(in crate::export) mod query;
mod table;

use std::fmt::Display;

use crate::anomaly::Report;
use crate::clock::Timestamp;
use crate::export::page::html::Html;
use crate::export::page::joined;
use crate::export::page::profile::HEAD_START;
use crate::export::page::threads::threads;
use crate::export::query::encode;
use crate::history::{Figure, Grid, History, Scope, SharedHistory, Subject};
use crate::host::CpuSet;
use crate::metrics::Snapshot;
use crate::status::{Status, Threads};
use crate::targets::Glob;
use busiest::{QUANTILE, changes};
use chart::{Shown, chart, clock};
use json::container_labels;
pub use json::{json, json_with};
pub use query::{HISTORY, PAGE, PageQuery, SUBJECT};
use query::{RANGES, Range, seconds, subject_address};

/// Maximum number of steps of a chart.
const STEPS: usize = 300;

/// Rows of each table of the busiest.
const ROWS: usize = 15;

/// Lines of the lists of changes and of the longest waits.
const LINES: usize = 6;

/// Range over which "now" is measured, in milliseconds.
const NOW: u64 = 60_000;

/// Range that is compared with the time before, in milliseconds.
const RECENT: u64 = 300_000;

/// Figures of the machine and of subjects, in the order of their charts.
const CHARTS: [Figure; 12] = [
    Figure::Cpu,
    Figure::RunqueueLatency,
    Figure::Ipc,
    Figure::CacheMisses,
    Figure::Switches,
    Figure::Preemptions,
    Figure::Migrations,
    Figure::Faults,
    Figure::Forks,
    Figure::Calls,
    Figure::Errors,
    Figure::BlockLatency,
];

/// Input of a page.
#[derive(Debug, Clone, Copy)]
pub struct View<'v> {
    /// The status of the exporter.
    pub status: &'v Status,
    /// The last collection, if there is one.
    pub snapshot: Option<&'v Snapshot>,
    /// The history.
    pub history: &'v SharedHistory,
    /// The last comparison of figures with their past.
    pub report: &'v Report,
    /// The parameters.
    pub query: &'v PageQuery,
    /// The nonce of the script: hexadecimal digits.
    pub nonce: &'v str,
}

/// Renders the overview of the machine.
pub fn machine(view: View<'_>) -> String {
    let mut html = Html::default();
    begin(&mut html, "Overview", "/");
    let shown = view.history.read(|history| {
        let grid = history.grid(view.query.window(view.status.now), STEPS);
        main(&mut html, view, &grid, "", "");
        health_line(&mut html, view.status, history);
        ranges(&mut html, view, "/", &grid);
        let subject = history.subject(Scope::Machine, "");
        let cpus = view.status.host.cpus.parse::<CpuSet>().map_or(0, |online| online.len());
        charts(&mut html, subject, &grid, &format!("of {cpus} CPUs"));
        missing::missing(&mut html, view.status, Scope::Machine, |figure| {
            subject.is_some_and(|subject| subject.measures(figure))
        });
        anomalies::anomalies(&mut html, history, view.snapshot);
        let now = recent(history, view, &grid);
        html.raw("<div class=\"tables\">");
        for scope in [Scope::Cgroup, Scope::Program] {
            table::busiest_table(&mut html, history, scope, view.query, (&grid, &now));
        }
        html.raw("</div>");
        changed(&mut html, history, view);
    });
    if shown.is_none() {
        without_history(&mut html, view.status);
    }
    waits(&mut html, view.status);
    end(html, view.nonce)
}

/// Renders the page of a cgroup or a program.
///
/// # Errors
/// If the query has no name.
pub fn subject(view: View<'_>, scope: Scope) -> Result<String, String> {
    let name =
        view.query.name.as_deref().ok_or_else(|| format!("the key name is missing: the {scope} to show"))?;
    let mut html = Html::default();
    begin(&mut html, if scope == Scope::Cgroup { "Cgroup" } else { "Program" }, "");
    let mut selection = format!("{}=", scope.as_str());
    encode(&Glob::literal(name), &mut selection);
    let shown = view.history.read(|history| {
        let grid = history.grid(view.query.window(view.status.now), STEPS);
        let path = format!("/{}", scope.as_str());
        main(&mut html, view, &grid, &path, &selection);
        html.put("<h2 class=\"name\"><code>{}</code></h2>", [&name]);
        let own = history.subject(scope, name);
        own.iter().for_each(|own| container(&mut html, own));
        ranges(&mut html, view, &subject_address(scope, name, ""), &grid);
        flame_graphs(&mut html, view.status, &selection, &grid);
        let Some(own) = own else {
            html.put(
                "<p class=\"quiet\">No {} of this name was active in the recorded time, or it was among the least active ones \
                 when the memory of the history was full.</p>",
                [&scope],
            );
            return false;
        };
        let machine = history.subject(Scope::Machine, "");
        let cpu = |subject: &Subject| subject.value(Figure::Cpu, QUANTILE, &grid);
        details::share(&mut html, cpu(own), machine.and_then(cpu));
        charts(&mut html, Some(own), &grid, "CPUs");
        missing::missing(&mut html, view.status, scope, |figure| own.measures(figure));
        if scope == Scope::Cgroup {
            compared::compared(&mut html, view.report, name);
        }
        let range = history.list_range(view.query.window(view.status.now));
        details::of_range(&mut html, own, &range, &view.query.range_text())
    });
    if shown.is_none() {
        without_history(&mut html, view.status);
    }
    if let (None | Some(false), Some(snapshot)) = (shown, view.snapshot) {
        details::since_start(&mut html, (scope, name), snapshot, &view.query.range_text());
    }
    Ok(end(html, view.nonce))
}

/// Renders a page with the reason why there is no other.
pub fn refused(sentence: &str, nonce: &str) -> String {
    plain("Overview", "", nonce, |html| {
        html.put("<div class=\"banner warn\"><p>{}</p></div>", [&sentence]);
    })
}

/// Renders a page without a range of time: `content` writes the main element.
pub(in crate::export) fn plain(
    title: &'static str,
    path: &'static str,
    nonce: &str,
    content: impl FnOnce(&mut Html),
) -> String {
    let mut html = Html::default();
    begin(&mut html, title, path);
    html.raw("<main>");
    content(&mut html);
    end(html, nonce)
}

fn begin(html: &mut Html, title: &'static str, path: &'static str) {
    html.raw(HEAD_START).raw("<title>").raw(title).raw(concat!(
        " - perf-exporter</title><style>",
        include_str!("../page/page.css"),
        include_str!("overview.css"),
        "</style></head><body><header><h1><a href=\"/\">perf-exporter</a></h1><nav>"
    ));
    for (words, address) in [
        ("Overview", "/"),
        ("Flame graph", "/flamegraph"),
        ("Functions", "/top"),
        ("Heat map", "/heatmap"),
        ("Incidents", "/incidents"),
        ("Status", "/status"),
        ("Metrics", "/metrics"),
    ] {
        let current = if address == path { " aria-current=\"page\"" } else { "" };
        html.raw("<a href=\"").raw(address).raw("\"").raw(current).raw(">").raw(words).raw("</a>");
    }
    html.raw("</nav></header>");
}

/// Opens the main element, with the data that the script needs: the grid of all charts, whether the range moves with time, the path of the
/// page, and the selection of profiles.
fn main(html: &mut Html, view: View<'_>, grid: &Grid, path: &str, selection: &str) {
    let is_live = matches!(view.query.range, Range::Last(_));
    html.put(
        "<main data-from=\"{}\" data-step=\"{}\" data-count=\"{}\" data-live=\"{}\" data-path=\"",
        [&grid.from.0, &grid.step, &grid.count, &u8::from(is_live)],
    );
    html.address(path).raw("\" data-selection=\"").address(selection).raw("\">");
}

fn end(mut html: Html, nonce: &str) -> String {
    html.raw(
        "</main><div id=\"selected\" class=\"card\" hidden><b></b><a data-to=\"zoom\">Zoom in</a><a data-to=\"flame\">Flame graph of \
         this</a><a data-to=\"compare\">Compare with before</a><button type=\"button\" aria-label=\"Close\">\u{d7}</button></div>",
    );
    html.put("<script nonce=\"{}\">", [&nonce])
        .raw(include_str!("overview.js"))
        .raw("</script></body></html>\n");
    html.finish()
}

fn health_line(html: &mut Html, status: &Status, history: &History) {
    let recent = history.span(before(status.now, RECENT), status.now);
    let health = health::health(status, health::lost(history, &recent));
    html.put("<p class=\"health {}\"><b></b>", [&health.level]);
    if health.problems.is_empty() {
        html.raw("Counting");
        if let Some(last) = status.collection {
            html.put(", {} series", [&crate::export::page::figures::count(last.series)]);
        }
    }
    joined(html, "; ", health.problems.iter().take(LINES), |html, problem| {
        html.text(problem);
    });
    html.put(
        ". <a href=\"/status\">Details</a> <span class=\"quiet\">{}</span></p>",
        [&format_args!("{:#}", status.now)],
    );
}

/// Writes the links to other ranges, and the range that is shown.
fn ranges(html: &mut Html, view: View<'_>, address: &str, grid: &Grid) {
    let separator = if address.contains('?') { '&' } else { '?' };
    html.raw("<p class=\"ranges\">");
    for minutes in RANGES {
        let range = Range::Last(std::time::Duration::from_secs(minutes * 60));
        let current = if view.query.range == range { " aria-current=\"true\"" } else { "" };
        html.raw("<a href=\"")
            .address(address)
            .address(&format!("{separator}last={minutes}m"))
            .raw("\"")
            .raw(current);
        html.put(">{} min</a>", [&minutes]);
    }
    html.put(
        "<span class=\"quiet\">{} to {} UTC, steps of {} s</span></p>",
        [&clock(grid.from.0), &clock(grid.to().0), &(grid.step as f64 / 1000.0)],
    );
}

fn charts(html: &mut Html, subject: Option<&Subject>, grid: &Grid, cpus: &str) {
    html.raw("<div class=\"charts\">");
    for figure in CHARTS {
        let values = subject.and_then(|subject| subject.values(figure, QUANTILE, grid));
        if let Some(values) = values {
            chart(html, figure, &values, grid, if figure == Figure::Cpu { cpus } else { "" });
        }
    }
    html.raw("</div>");
    if subject.is_none() {
        html.raw("<p class=\"quiet\">Charts begin with the second collection.</p>");
    }
}

/// Returns the range of the tables: the last minute, or the fixed range.
fn recent(history: &History, view: View<'_>, grid: &Grid) -> Grid {
    match view.query.range {
        Range::Fixed(..) => grid.whole(),
        Range::Last(_) => history.span(before(view.status.now, NOW), view.status.now),
    }
}

/// Returns the time this many milliseconds before.
fn before(time: Timestamp, length: u64) -> Timestamp {
    Timestamp(time.0.saturating_sub(length))
}

fn changed(html: &mut Html, history: &History, view: View<'_>) {
    let (Some(observed), now) = (history.observed(), view.status.now) else { return };
    html.raw("<h2>What changed most<small>the last 5 minutes against the hour before</small></h2><div class=\"card\">");
    let begin = before(now, RECENT);
    if observed.from.0 + RECENT > begin.0 {
        html.raw("<p class=\"quiet\">This needs ten minutes of history.</p></div>");
        return;
    }
    let earlier = history.span(observed.from, begin);
    let recent = history.span(begin, now);
    let changes = changes(history, &earlier, &recent, LINES);
    if changes.is_empty() {
        html.raw("<p class=\"quiet\">Nothing changed by half or more.</p></div>");
        return;
    }
    html.raw("<table>");
    for change in changes {
        html.raw("<tr><td>");
        named(html, change.scope, change.name, None);
        html.put(
            "</td><td>{}</td><td class=\"number\">{} \u{2192} <b>{}</b></td></tr>",
            [
                &chart::name(change.figure),
                &Shown(change.figure, change.before),
                &Shown(change.figure, change.now),
            ],
        );
    }
    html.raw("</table></div>");
}

/// Writes a link to the page of a subject, with the names of its pod and container.
fn named(html: &mut Html, scope: Scope, name: &str, subject: Option<&Subject>) {
    if scope == Scope::Machine {
        html.raw("the machine");
        return;
    }
    html.raw("<a href=\"").address(&subject_address(scope, name, "")).raw("\">");
    let labels: Vec<&str> = subject
        .map(|subject| container_labels(subject.labels()).map(|label| label.1).collect())
        .unwrap_or_default();
    match labels.is_empty() {
        true => html.put("<code>{}</code></a>", [&name]),
        false => html.put("{}</a> <small><code>{}</code></small>", [&labels.join(" / "), &name]),
    };
}

fn container(html: &mut Html, subject: &Subject) {
    for (place, (label, value)) in container_labels(subject.labels()).enumerate() {
        html.raw(if place == 0 { "<p>" } else { ", " }).put("{} <b>{}</b>", [&label, &value]);
    }
}

/// Writes links to the profiles of a subject in the range of the page.
fn flame_graphs(html: &mut Html, status: &Status, selection: &str, grid: &Grid) {
    html.raw("<p class=\"actions\">");
    let range = format!("&from={}&to={}", seconds(grid.from), seconds(grid.to()));
    for profile in &status.profiles {
        let mut address = "/flamegraph?type=".to_owned();
        encode(&profile.entry, &mut address);
        html.raw("<a href=\"").address(&format!("{address}&{selection}{range}"));
        html.put("\">Flame graph: {}</a>", [&profile.entry]);
    }
    html.raw("</p>");
}

fn without_history(html: &mut Html, status: &Status) {
    html.put("<main data-live=\"0\"><h2>{}</h2>", [&(&status.host.kernel as &dyn Display)]);
    html.raw(
        "<p>No history is kept: it is disabled. These lines of the configuration enable it:</p>\
         <pre>history: {for: 1h, step: 1s}</pre><p><a href=\"/status\">Status of the exporter</a></p>",
    );
}

/// Writes the longest waits for a CPU and the system calls that take long.
fn waits(html: &mut Html, status: &Status) {
    let Some(all) = &status.threads else { return };
    let (delays, stuck) = (all.delays.iter().take(LINES).cloned(), all.stuck.iter().take(LINES).cloned());
    threads(html, &Threads { reduced: None, delays: delays.collect(), stuck: stuck.collect() });
}

#[cfg(test)]
mod tests;
