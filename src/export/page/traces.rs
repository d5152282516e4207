//! The part of the page about tracepoints and probes.

use super::figures::count;
use super::html::Html;
use super::{LINES, and_more, event};
use crate::status::{Pairs, TraceStatus};

pub(super) fn traces(html: &mut Html, entries: &[TraceStatus]) {
    if entries.is_empty() {
        return;
    }
    html.raw(
        "<h2>Tracepoints and probes<small>whose fields are looked into; the numbers are of CPUs</small></h2>\
         <div class=\"cards\">",
    );
    for entry in entries.iter().take(LINES) {
        html.raw("<section class=\"card\"><header><h3>").text(&entry.entry).raw("</h3><span>");
        html.text(entry.section).raw("</span><small>").text(&entry.what).raw("</small></header>");
        entry.events.iter().take(LINES).for_each(|shown| event(html, shown));
        and_more(html, entry.events.len());
        html.raw("<dl><dt>Hits</dt><dd>").text(count(entry.hits)).raw(" in ").text(count(entry.series));
        html.raw(" series</dd>");
        entry.pairs.iter().for_each(|shown| pairs(html, shown));
        html.raw("</dl></section>");
    }
    html.raw("</div>");
    and_more(html, entries.len());
}

fn pairs(html: &mut Html, pairs: &Pairs) {
    html.raw("<dt>Waiting</dt><dd>").text(count(pairs.waiting)).raw(" for their second event</dd>");
    if pairs.unpaired.is_empty() {
        return;
    }
    html.raw("<dt>Unpaired</dt><dd>");
    for (place, unpaired) in pairs.unpaired.iter().enumerate() {
        html.raw(if place == 0 { "" } else { ", " });
        html.text(count(unpaired.count)).raw(" <code>").text(unpaired.reason).raw("</code>");
    }
    html.raw("</dd>");
}
