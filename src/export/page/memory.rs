//! The section of the status page about memory and descriptors.

use super::figures::{bytes, count};
use super::html::Html;
use super::{bar, joined};
use crate::status::Status;

pub(super) fn memory(html: &mut Html, status: &Status) {
    html.raw("<section><h2>Memory<small>parts of <code>limits.memory</code></small></h2><div class=\"card\"><table>");
    for part in &status.memory {
        html.put("<tr><td><code>{}</code></td><td>", [&part.part.as_str()]);
        let percent = 100.0 * part.used as f64 / part.limit.max(1) as f64;
        let state = if percent > 95.0 { "stalled" } else { "counting" };
        bar(html, "bar usage", &[(state, percent.min(100.0))]);
        html.put("</td><td class=\"number\">{} of {}</td></tr>", [&bytes(part.used), &bytes(part.limit)]);
    }
    html.raw("</table><dl><dt>Open descriptors</dt><dd>");
    joined(html, ", ", status.open_descriptors.kinds(), |html, (kind, open)| {
        html.put("{} {}", [&count(open), &kind]);
    });
    html.raw("</dd></dl></div></section>");
}
