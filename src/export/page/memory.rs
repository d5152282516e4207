//! The part of the page about memory and descriptors.

use super::bar;
use super::figures::{bytes, count};
use super::html::Html;
use crate::status::Status;

pub(super) fn memory(html: &mut Html, status: &Status) {
    html.raw("<section><h2>Memory<small>shares of <code>limits.memory</code></small></h2><div class=\"card\"><table>");
    for part in &status.memory {
        html.raw("<tr><td><code>").text(part.part.as_str()).raw("</code></td><td>");
        let percent = 100.0 * part.used as f64 / part.limit.max(1) as f64;
        let state = if percent > 95.0 { "stalled" } else { "counting" };
        bar(html, "bar usage", &[(state, percent.min(100.0))]);
        html.raw("</td><td class=\"number\">").text(bytes(part.used)).raw(" of ");
        html.text(bytes(part.limit)).raw("</td></tr>");
    }
    html.raw("</table><dl><dt>Open descriptors</dt><dd>");
    for (place, (kind, open)) in status.open_descriptors.kinds().into_iter().enumerate() {
        html.raw(if place == 0 { "" } else { ", " }).text(count(open)).raw(" ").text(kind);
    }
    html.raw("</dd></dl></div></section>");
}
