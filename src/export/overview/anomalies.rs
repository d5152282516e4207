//! The cgroups whose figures are unlike their past.

use super::named;
use crate::export::page::html::Html;
use crate::history::{History, Scope};
use crate::metrics::{Family, Point, Snapshot};

/// Writes the current anomalies of a collection with their suspects. Writes nothing if there are none.
pub(super) fn anomalies(html: &mut Html, history: &History, snapshot: Option<&Snapshot>) {
    let points = |name| snapshot.and_then(|snapshot| snapshot.family(name)).map_or(&[][..], Family::points);
    let active = points("perf_anomaly_active");
    if active.is_empty() {
        return;
    }
    let label = |point: &'_ Point, name| point.labels.get(name).unwrap_or_default().to_owned();
    let is_same = |one: &Point, other: &Point| {
        ["kind", "cgroup"].iter().all(|name| one.labels.get(name) == other.labels.get(name))
    };
    html.raw("<h2>Anomalies<small>figures unlike their own past</small></h2><div class=\"card\"><table><thead><tr><th>Cgroup</th>");
    html.raw(
        "<th>Figure</th><th class=\"number\">Usual deviations</th><th>Suspects</th></tr></thead><tbody>",
    );
    for point in active {
        let score = points("perf_anomaly_score").iter().find(|score| is_same(score, point));
        let score = score.and_then(|score| score.value.number()).unwrap_or(0.0);
        html.raw("<tr><td>");
        let cgroup = label(point, "cgroup");
        named(html, Scope::Cgroup, &cgroup, history.subject(Scope::Cgroup, &cgroup));
        html.put(
            "</td><td>{}</td><td class=\"number\">{}</td><td>",
            [&label(point, "kind"), &format!("{score:.1}")],
        );
        let mut suspects = points("perf_anomaly_suspect_correlation")
            .iter()
            .filter(|suspect| is_same(suspect, point))
            .peekable();
        if suspects.peek().is_none() {
            html.raw("<span class=\"quiet\">none stands out</span>");
        }
        for suspect in suspects {
            let name = label(suspect, "suspect");
            named(html, Scope::Cgroup, &name, history.subject(Scope::Cgroup, &name));
            html.put(" <small>{}</small> ", [&format!("{:.2}", suspect.value.number().unwrap_or(0.0))]);
        }
        html.raw("</td></tr>");
    }
    html.raw("</tbody></table></div>");
}
