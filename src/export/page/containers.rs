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
    html.put(
        "<h2>Names of containers<small>{} known, {} counted and unknown</small></h2><div class=\"cards\">",
        [&count(containers.known as u64), &count(containers.unknown as u64)],
    );
    for source in &containers.sources {
        html.put(
            "<section class=\"card\"><header><h3>{}</h3><small>{}</small></header><dl><dt>State</dt><dd>",
            [&source.kind, &source.place],
        );
        match (&source.failure, source.answered) {
            (Some(failure), _) => html.put("<b>does not tell</b>: {}", [&failure.why]),
            (None, Some(_)) => html.raw("tells"),
            (None, None) => html.raw("was not asked yet"),
        };
        html.raw("</dd>");
        if let Some(at) = source.answered {
            let (containers, ago) = (count(source.containers as u64), duration(age(status, at)));
            html.put("<dt>Told</dt><dd>{} containers, {} ago</dd>", [&containers, &ago]);
        }
        html.raw("</dl></section>");
    }
    html.raw("</div>");
}
