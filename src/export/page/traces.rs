//! The section of the status page about tracepoints and probes.

use super::figures::count;
use super::html::Html;
use super::{event, joined, some};
use crate::status::{Pairs, TraceStatus};

pub(super) fn traces(html: &mut Html, entries: &[TraceStatus]) {
    if entries.is_empty() {
        return;
    }
    html.raw(
        "<h2>Tracepoints and probes<small>with decoded fields; the states count CPUs</small></h2>\
         <div class=\"cards\">",
    );
    some(html, entries, "</div>", |html, entry| {
        let head = "<section class=\"card\"><header><h3>{}</h3><span>{}</span><small>{}</small></header>";
        html.put(head, [&entry.entry, &entry.section, &entry.what]);
        some(html, &entry.events, "", event);
        html.put("<dl><dt>Hits</dt><dd>{} in {} series</dd>", [&count(entry.hits), &count(entry.series)]);
        entry.pairs.iter().for_each(|shown| pairs(html, shown));
        html.raw("</dl></section>");
    });
}

fn pairs(html: &mut Html, pairs: &Pairs) {
    html.put("<dt>Pending</dt><dd>{} begin events without an end event</dd>", [&count(pairs.waiting)]);
    if pairs.unpaired.is_empty() {
        return;
    }
    html.raw("<dt>Unpaired</dt><dd>");
    joined(html, ", ", &pairs.unpaired, |html, unpaired| {
        html.put("{} <code>{}</code>", [&count(unpaired.count), &unpaired.reason]);
    });
    html.raw("</dd>");
}
