//! The section of the status page about sets of events that are counted for a limited time.

use super::age;
use super::figures::{count, duration};
use super::html::Html;
use crate::deep::{DeepState, RefusedSet};
use crate::status::Status;

pub(super) fn deep(html: &mut Html, status: &Status) {
    let report = &status.deep;
    if report.active.is_empty() && report.refused.is_empty() {
        return;
    }
    html.raw(
        "<h2>Sets of events for a limited time<small>section deep, POST /api/v1/deep, and annotations of pods</small></h2><div class=\"cards\">",
    );
    report.active.iter().for_each(|state| active(html, status, state));
    report.refused.iter().for_each(|set| refused(html, set));
    html.raw("</div>");
}

fn active(html: &mut Html, status: &Status, state: &DeepState) {
    html.put(
        "<section class=\"card\"><header><h3>{}</h3><span>{}</span><small>{}</small></header><dl>\
         <dt>Events</dt><dd>{}</dd>",
        [&state.name, &state.origin, &state.requester, &state.events.join(" ")],
    );
    html.put(
        "<dt>Cgroups</dt><dd>{}: {}</dd><dt>Since</dt><dd>{}</dd>",
        [&count(state.cgroups as u64), &state.selection.join(", "), &duration(age(status, state.began))],
    );
    match state.ends {
        Some(ends) => html.put("<dt>Ends</dt><dd>{}</dd>", [&format_args!("{ends:#}")]),
        None => html.raw("<dt>Ends</dt><dd>when the file no longer contains it</dd>"),
    };
    if !state.reason.is_empty() {
        html.put("<dt>Reason</dt><dd>{}</dd>", [&state.reason]);
    }
    for (metric, entry) in &state.already_counted {
        html.put("<dt>Counted already</dt><dd>{} by {}</dd>", [metric, entry]);
    }
    html.raw("</dl></section>");
}

fn refused(html: &mut Html, set: &RefusedSet) {
    html.put(
        "<section class=\"card\"><header><h3>{}</h3><span>{}</span><small>{}</small></header><dl>\
         <dt>State</dt><dd><b>not counted</b>: {}</dd></dl></section>",
        [&set.name, &set.origin, &set.requester, &set.refusal],
    );
}
