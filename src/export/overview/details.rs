//! Lists about one cgroup or program: time of its threads by state, preemptions, system calls, tracepoints and probes.

use std::time::Duration;

use super::chart::{Shown, clock};
use super::query::subject_address;
use crate::export::page::figures::{count, duration, percent};
use crate::export::page::html::Html;
use crate::history::{Figure, Grid, List, Listed, OTHER, Scope, Subject, totals};
use crate::metrics::Snapshot;

/// Maximum number of names in each list. What belongs to others is added up.
const LINES: usize = 10;

/// Writes the lists of a subject over a range, which is rounded to ten seconds. `parameters` is the range of the page, for links. Returns
/// whether the history has the lists.
pub(super) fn of_range(html: &mut Html, own: &Subject, range: &Grid, parameters: &str) -> bool {
    let Some(since) = own.lists_since() else { return false };
    let lists = own.lists(range);
    let is_shortened = since > range.from;
    if lists.is_empty() && !is_shortened {
        return true;
    }
    let (from, to) = (range.from.max(since), range.to());
    html.put(
        "<h2>Details<small>{} to {} UTC, rounded to 10 s</small></h2>",
        [&clock(from.0.min(to.0)), &clock(to.0)],
    );
    if is_shortened {
        html.put(
            "<p class=\"quiet\">These lists are recorded since {}. Before, the memory of the history was full.</p>",
            [&clock(since.0)],
        );
    }
    cards(html, &lists, parameters);
    true
}

/// Writes the lists of a subject since the begin of its series.
pub(super) fn since_start(
    html: &mut Html,
    (scope, name): (Scope, &str),
    snapshot: &Snapshot,
    parameters: &str,
) {
    let lists = totals(snapshot, scope, name);
    if !lists.is_empty() {
        html.put(
            "<h2>Details<small>since the exporter began to count this {}, because the history does not have these lists</small></h2>",
            [&scope],
        );
        cards(html, &lists, parameters);
    }
}

/// Writes how much of the machine's CPU time a subject uses.
pub(super) fn share(html: &mut Html, own: Option<f64>, machine: Option<f64>) {
    let (Some(own), Some(machine)) = (own, machine) else { return };
    if machine > 0.0 {
        html.put(
            "<p class=\"quiet\">It uses {} CPUs of {} in use on this machine: {}.</p>",
            [&Shown(Figure::Cpu, own), &Shown(Figure::Cpu, machine), &percent(100.0 * own / machine)],
        );
    }
}

const fn title(list: List) -> &'static str {
    match list {
        List::States => "Time of its threads",
        List::PreemptedBy => "Preempted by",
        List::Causes => "Preemptions by cause",
        List::Preempts => "Preempts",
        List::Calls => "System calls",
        List::Errors => "Errors of system calls",
        List::Events => "Tracepoints and probes",
    }
}

/// Returns the text of a name of a list.
fn text(list: List, name: &str) -> &str {
    match (list, name) {
        (List::States, "running") => "on a CPU",
        (List::Causes, "own") => "a thread of the same cgroup",
        (List::Causes, OTHER) => "a thread of another cgroup",
        (List::Causes, "kernel") => "a kernel thread",
        (List::Causes, "throttled") => "the CPU quota is used up",
        (List::Preempts | List::PreemptedBy | List::Calls | List::Errors, OTHER) => "others",
        _ => name,
    }
}

fn cards(html: &mut Html, lists: &[Listed], parameters: &str) {
    html.raw("<div class=\"cards\">");
    for listed in lists {
        let total = listed.total();
        let value = |value: f64| match listed.list.is_time() {
            true => {
                let time = duration(Duration::try_from_secs_f64(value).unwrap_or_default());
                format!("{time}, {}", percent(100.0 * value / total.max(f64::MIN_POSITIVE)))
            }
            false => count(value.round() as u64),
        };
        html.raw("<section class=\"card\"><header><h3>").raw(title(listed.list)).raw("</h3>");
        if !listed.list.is_time() && listed.lines.len() > 1 {
            html.put("<small>{}</small>", [&value(total)]);
        }
        html.raw("</header><table>");
        let shown = if listed.lines.len() > LINES + 1 { LINES } else { listed.lines.len() };
        let (first, rest) = listed.lines.split_at(shown);
        for (name, of_name) in first {
            html.raw("<tr><td>");
            let is_cgroup =
                matches!(listed.list, List::Preempts | List::PreemptedBy) && name.starts_with('/');
            if is_cgroup {
                html.raw("<a href=\"").address(&subject_address(Scope::Cgroup, name, parameters));
                html.put("\"><code>{}</code></a>", [name]);
            } else {
                html.text(text(listed.list, name));
            }
            html.put("</td><td class=\"number\">{}</td></tr>", [&value(*of_name)]);
        }
        if !rest.is_empty() {
            let of_rest = rest.iter().map(|line| line.1).sum();
            html.put("<tr><td>others</td><td class=\"number\">{}</td></tr>", [&value(of_rest)]);
        }
        html.raw("</table></section>");
    }
    html.raw("</div>");
}
