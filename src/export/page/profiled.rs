//! The part of the page about what is sampled with its callers.

use super::figures::count;
use super::html::Html;
use super::{event, joined, some};
use crate::status::ProfileStatus;

pub(super) fn profiled(html: &mut Html, entries: &[ProfileStatus]) {
    if entries.is_empty() {
        return;
    }
    html.raw(
        "<h2>Profiles<small>stacks of functions; the numbers are of CPUs</small></h2><div class=\"cards\">",
    );
    some(html, entries, "</div>", |html, entry| {
        let head = "<section class=\"card\"><header><h3>{}</h3><small>{}</small></header>";
        html.put(head, [&entry.entry, &entry.what]);
        some(html, &entry.events, "", event);
        html.put("<dl><dt>Samples</dt><dd>{}</dd><dt>Shown as</dt><dd>", [&count(entry.samples)]);
        let outputs = [("/flamegraph", "flame graph"), ("/top", "top"), ("/folded", "folded")];
        joined(html, ", ", outputs, |html, (path, name)| {
            html.put("<a href=\"{}?type={}\">{}</a>", [&path, &entry.entry, &name]);
        });
        html.raw("</dd></dl></section>");
    });
}
