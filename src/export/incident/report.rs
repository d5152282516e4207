//! The report of an incident: one page without external resources.

use super::{Charts, FUNCTIONS, Pair};
use crate::clock::Timestamp;
use crate::export::overview::chart::chart;
use crate::export::page::figures::{count, duration};
use crate::export::page::html::Html;
use crate::export::page::profile::{begin_offline, end, offline_profile};
use crate::incident::{Incident, Scheduling};

/// Name of the report in an archive.
pub const REPORT: &str = "report.html";

/// Renders the report. `profile` is the one with the most samples.
pub(super) fn report(incident: &Incident, charts: &[Charts], profile: Option<&Pair>) -> String {
    let mut html = Html::default();
    begin_offline(&mut html, &format!("Incident {}", incident.id), include_str!("../overview/overview.css"));
    summary(&mut html, incident);
    suspects(&mut html, incident);
    incident.scheduling.iter().for_each(|scheduling| scheduler(&mut html, incident, scheduling));
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
    for cause in &incident.causes {
        html.put("<p>First, {}.</p>", [cause]);
    }
    if incident.suspects.is_empty() {
        html.raw("<p class=\"quiet\">No other cgroup stands out.</p>");
        return;
    }
    let rows = incident.suspects.iter().map(|suspect| {
        let basis = if suspect.basis == "ran_meanwhile" {
            format!("share of {} waits for a CPU in which it ran", count(suspect.samples))
        } else {
            format!("correlation of its CPU time in {} intervals", count(suspect.samples))
        };
        [suspect.cgroup.clone(), basis, format!("{:.2}", suspect.score)]
    });
    table(html, ["Cgroup", "Basis", "Score"], rows);
}

/// Writes the cgroups that ran while threads waited for a CPU, the longest waits, and system calls in progress.
fn scheduler(html: &mut Html, incident: &Incident, scheduling: &Scheduling) {
    let time = |milliseconds| format!("{:#}", Timestamp(milliseconds));
    let length = |seconds: f64| duration(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    let Scheduling { span, file, waits, waited_seconds, .. } = scheduling;
    let covered = length(span.to_ms.saturating_sub(span.from_ms) as f64 / 1000.0);
    let until = time(span.to_ms);
    html.put("<h2>Waits for a CPU<small>the {} until {}</small></h2>", [&covered, &until]);
    let (number, total) = (count(*waits), length(*waited_seconds));
    html.put("<p>Threads of {} waited {} times, {} in total.", [&incident.subject(), &&*number, &&*total]);
    if let Some(file) = file {
        let worst = length(scheduling.worst.to_ms.saturating_sub(scheduling.worst.from_ms) as f64 / 1000.0);
        html.put(" The file {} of the archive has the worst {}: open it with Perfetto.", [file, &worst]);
    }
    html.raw("</p><div class=\"tables\">");
    let ran =
        scheduling.meanwhile.iter().map(|ran| [ran.cgroup.clone(), format!("{:.0}%", ran.share * 100.0)]);
    table(html, ["Ran meanwhile", "Share of the time"], ran);
    let longest = scheduling.longest.iter().map(|wait| {
        let thread = format!("{} (process {}, thread {})", wait.comm, wait.pid, wait.tid);
        [thread, format!("CPU {}, {}", wait.cpu, time(wait.at_ms)), length(wait.seconds)]
    });
    table(html, ["Longest waits", "Ran on", "Waited"], longest);
    let stuck = scheduling.stuck.iter().map(|stuck| {
        let thread = format!("{} (process {}, thread {})", stuck.comm, stuck.pid, stuck.tid);
        [thread, stuck.call.clone(), length(stuck.seconds)]
    });
    table(html, ["Calls in progress, of all processes", "Call", "For"], stuck);
    html.raw("</div>");
}

/// Writes a table; its last column has numbers. Nothing if there are no rows.
fn table<const N: usize>(html: &mut Html, heads: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    let class = |column| if column + 1 == N { " class=\"number\"" } else { "" };
    html.raw("<div class=\"card\"><table><thead><tr>");
    for (column, head) in heads.into_iter().enumerate() {
        html.raw("<th").raw(class(column)).put(">{}</th>", [&head]);
    }
    html.raw("</tr></thead><tbody>");
    for row in rows {
        html.raw("<tr>");
        for (column, cell) in row.iter().enumerate() {
            html.raw("<td").raw(class(column)).put(">{}</td>", [cell]);
        }
        html.raw("</tr>");
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
