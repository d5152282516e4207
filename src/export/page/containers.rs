//! The part of the page about the names of containers.

use super::age;
use super::figures::{count, duration};
use super::html::Html;
use crate::status::Status;

pub(super) fn containers(html: &mut Html, status: &Status) {
    let containers = &status.containers;
    if containers.sources.is_empty() {
        return;
    }
    html.raw("<h2>Names of containers<small>");
    html.text(count(containers.known as u64)).raw(" known, ").text(count(containers.unknown as u64));
    html.raw(" counted and unknown</small></h2><div class=\"cards\">");
    for source in &containers.sources {
        html.raw("<section class=\"card\"><header><h3>").text(source.kind).raw("</h3><small>");
        html.text(&source.place).raw("</small></header><dl><dt>State</dt><dd>");
        match (&source.failure, source.answered) {
            (Some(failure), _) => drop(html.raw("<b>does not tell</b>: ").text(&failure.why)),
            (None, Some(_)) => drop(html.raw("tells")),
            (None, None) => drop(html.raw("was not asked yet")),
        }
        html.raw("</dd>");
        if let Some(at) = source.answered {
            html.raw("<dt>Told</dt><dd>").text(count(source.containers as u64)).raw(" containers, ");
            html.text(duration(age(status, at))).raw(" ago</dd>");
        }
        html.raw("</dl></section>");
    }
    html.raw("</div>");
}
