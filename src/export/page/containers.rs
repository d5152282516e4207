//! The section of the status page about container metadata.

use super::age;
use super::figures::{count, duration};
use super::html::Html;
use crate::status::Status;

pub(super) fn containers(html: &mut Html, status: &Status) {
    let containers = &status.containers;
    if containers.sources.is_empty() {
        return;
    }
    html.put(
        "<h2>Container metadata<small>{} containers known, {} measured without metadata</small></h2><div class=\"cards\">",
        [&count(containers.known as u64), &count(containers.unknown as u64)],
    );
    for source in &containers.sources {
        html.put(
            "<section class=\"card\"><header><h3>{}</h3><small>{}</small></header><dl><dt>State</dt><dd>",
            [&source.kind, &source.place],
        );
        match (&source.failure, source.answered) {
            (Some(failure), _) => html.put("<b>failed</b>: {}", [&failure.why]),
            (None, Some(_)) => html.raw("ok"),
            (None, None) => html.raw("not queried yet"),
        };
        html.raw("</dd>");
        if let Some(at) = source.answered {
            let (containers, ago) = (count(source.containers as u64), duration(age(status, at)));
            html.put("<dt>Last result</dt><dd>{} containers, {} ago</dd>", [&containers, &ago]);
        }
        html.raw("</dl></section>");
    }
    html.raw("</div>");
}
