//! The report of an incident: one page without external resources.

use super::{Charts, FUNCTIONS, Pair};
use crate::clock::Timestamp;
use crate::export::overview::chart::chart;
use crate::export::page::figures::{count, duration};
use crate::export::page::html::Html;
use crate::export::page::profile::{begin_offline, end, offline_profile};
use crate::incident::Incident;

/// Name of the report in an archive.
pub const REPORT: &str = "report.html";

/// Renders the report. `profile` is the one with the most samples.
pub(super) fn report(incident: &Incident, charts: &[Charts], profile: Option<&Pair>) -> String {
    let mut html = Html::default();
    begin_offline(&mut html, &format!("Incident {}", incident.id), include_str!("../overview/overview.css"));
    summary(&mut html, incident);
    suspects(&mut html, incident);
    for Charts { heading, grid, values } in charts {
        html.put("<h2 class=\"name\">{}</h2><div class=\"charts\">", [heading]);
        for (figure, values) in values {
            chart(&mut html, *figure, values, grid, "");
        }
        html.raw("</div>");
    }
    if let Some(Pair { name, during, before }) = profile {
        let base = Some(before).filter(|before| before.taken() > 0);
        let compared = if base.is_some() {
            "compared with the time before"
        } else {
            "without samples of the time before"
        };
        html.put("<h2>Profile {}<small>{}; the archive has all profiles</small></h2>", [name, &compared]);
        offline_profile(&mut html, during, base, None, FUNCTIONS);
    }
    missing(&mut html, incident);
    end(html)
}

fn summary(html: &mut Html, incident: &Incident) {
    let time = |milliseconds| format!("{:#}", Timestamp(milliseconds));
    html.raw("<div class=\"card\"><table><tbody>");
    let mut row = |name: &'static str, value: &str| {
        html.raw("<tr><th>").raw(name).put("</th><td>{}</td></tr>", [&value]);
    };
    row("Trigger", &incident.trigger.text());
    row("Subject", incident.subject());
    for (name, value) in &incident.labels {
        let name = match name.as_str() {
            "namespace" => "Namespace",
            "pod" => "Pod",
            _ => "Container",
        };
        row(name, value);
    }
    row("Began", &time(incident.began_ms));
    match incident.ended_ms {
        Some(ended) => {
            let length = std::time::Duration::from_millis(ended.saturating_sub(incident.began_ms));
            row("Ended", &format!("{}, after {}", time(ended), duration(length)));
        }
        None => row("Ended", "not ended when this was written"),
    }
    row("Node", &incident.node);
    for profile in &incident.profiles {
        let lost = if profile.lost > 0 { format!(", {} lost", count(profile.lost)) } else { String::new() };
        let (during, before) = (count(profile.during), count(profile.before));
        row("Profile", &format!("{}: {during} samples{lost}; before: {before}", profile.name));
    }
    for trigger in &incident.further {
        row("Then", &trigger.text());
    }
    if incident.more > 0 {
        row("Then", &format!("{} more triggers", count(incident.more)));
    }
    html.raw("</tbody></table></div>");
}

fn suspects(html: &mut Html, incident: &Incident) {
    if incident.cgroup.is_none() {
        return;
    }
    html.raw("<h2>Suspects<small>other cgroups that were active meanwhile: the cause may be another one</small></h2>");
    if incident.suspects.is_empty() {
        html.raw("<p class=\"quiet\">No other cgroup stands out.</p>");
        return;
    }
    html.raw("<div class=\"card\"><table><thead><tr><th>Cgroup</th><th class=\"number\">Correlation</th></tr></thead><tbody>");
    for suspect in &incident.suspects {
        let score = format!("{:.2}", suspect.score);
        html.put("<tr><td>{}</td><td class=\"number\">{}</td></tr>", [&suspect.cgroup, &score]);
    }
    html.raw("</tbody></table></div>");
}

fn missing(html: &mut Html, incident: &Incident) {
    if incident.missing.is_empty() {
        return;
    }
    html.raw("<h2>Missing</h2><ul>");
    for sentence in &incident.missing {
        html.put("<li>{}</li>", [sentence]);
    }
    html.raw("</ul>");
}
