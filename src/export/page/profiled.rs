//! The part of the page about what is sampled with its callers.

use super::figures::count;
use super::html::Html;
use super::{LINES, and_more, event};
use crate::status::ProfileStatus;

pub(super) fn profiled(html: &mut Html, entries: &[ProfileStatus]) {
    if entries.is_empty() {
        return;
    }
    html.raw(
        "<h2>Profiles<small>stacks of functions; the numbers are of CPUs</small></h2><div class=\"cards\">",
    );
    for entry in entries.iter().take(LINES) {
        html.raw("<section class=\"card\"><header><h3>").text(&entry.entry).raw("</h3><small>");
        html.text(&entry.what).raw("</small></header>");
        entry.events.iter().take(LINES).for_each(|shown| event(html, shown));
        and_more(html, entry.events.len());
        html.raw("<dl><dt>Samples</dt><dd>").text(count(entry.samples)).raw("</dd><dt>Shown as</dt><dd>");
        for (place, (path, name)) in
            [("/flamegraph", "flame graph"), ("/top", "top"), ("/folded", "folded")].iter().enumerate()
        {
            html.raw(if place == 0 { "" } else { ", " });
            html.raw("<a href=\"")
                .raw(path)
                .raw("?type=")
                .text(&entry.entry)
                .raw("\">")
                .raw(name)
                .raw("</a>");
        }
        html.raw("</dd></dl></section>");
    }
    html.raw("</div>");
    and_more(html, entries.len());
}
