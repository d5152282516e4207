//! The section of the status page about profiles.

use super::figures::{bytes, count};
use super::html::Html;
use super::{event, joined, some};
use crate::status::ProfileStatus;

pub(super) fn profiled(html: &mut Html, entries: &[ProfileStatus]) {
    if entries.is_empty() {
        return;
    }
    html.raw("<h2>Profiles<small>sampled stacks; the states count CPUs</small></h2><div class=\"cards\">");
    some(html, entries, "</div>", |html, entry| {
        let head = "<section class=\"card\"><header><h3>{}</h3><small>{}</small></header>";
        html.put(head, [&entry.entry, &entry.what]);
        some(html, &entry.events, "", event);
        html.put("<dl><dt>Samples</dt><dd>{}</dd>", [&count(entry.samples)]);
        if let Some(begin) = entry.log_begin {
            let log = "<dt>In memory</dt><dd>{} samples since {} ({})</dd>";
            let (samples, size) = (count(entry.log_samples), bytes(entry.log_bytes));
            html.put(log, [&samples, &format_args!("{begin:#}"), &size]);
        }
        html.raw("<dt>Views</dt><dd>");
        let outputs = [("/flamegraph", "flame graph"), ("/top", "top"), ("/folded", "folded")];
        joined(html, ", ", outputs, |html, (path, name)| {
            html.put("<a href=\"{}?type={}\">{}</a>", [&path, &entry.entry, &name]);
        });
        html.raw("</dd></dl></section>");
    });
}
