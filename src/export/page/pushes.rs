//! The part of the page about what is pushed.

use super::age;
use super::figures::{bytes, count, duration};
use super::html::Html;
use crate::status::{PushStatus, Status};

pub(super) fn pushes(html: &mut Html, status: &Status) {
    if status.pushes.is_empty() {
        return;
    }
    html.raw(
        "<h2>Pushed<small>items are data points, samples, log records</small></h2><div class=\"cards\">",
    );
    for push in &status.pushes {
        html.raw("<section class=\"card\"><header><h3>").text(push.signal).raw("</h3><span>");
        html.text(push.format)
            .raw(" by ")
            .text(push.protocol)
            .raw("</span><small>")
            .text(&push.endpoint)
            .raw("</small></header><dl>");
        state(html, status, push);
        html.raw("<dt>Taken</dt><dd>").text(count(push.taken)).raw(" items");
        if let Some(at) = push.last_taken {
            html.raw(", last ").text(duration(age(status, at))).raw(" ago");
        }
        html.raw("</dd>");
        for (what, number) in
            [("Rejected", push.rejected), ("Refused", push.refused), ("Dropped", push.dropped)]
        {
            if number > 0 {
                html.raw("<dt>").text(what).raw("</dt><dd>").text(count(number)).raw(" items</dd>");
            }
        }
        if let Some(message) = &push.message {
            html.raw("<dt>Said</dt><dd>").text(message).raw("</dd>");
        }
        html.raw("<dt>Waiting</dt><dd>").text(count(push.waiting_requests)).raw(" requests, ");
        html.text(bytes(push.waiting_bytes)).raw("</dd></dl></section>");
    }
    html.raw("</div>");
}

fn state(html: &mut Html, status: &Status, push: &PushStatus) {
    html.raw("<dt>State</dt><dd>");
    match (&push.failing, push.last_taken) {
        (Some(failure), _) => {
            html.raw("<b>not taken for ").text(duration(age(status, failure.since))).raw("</b>, since ");
            html.text(format_args!("{:#}", failure.since)).raw(": ").text(&failure.why);
        }
        (None, Some(_)) => drop(html.raw("taken")),
        (None, None) => drop(html.raw("nothing was sent yet")),
    }
    html.raw("</dd>");
}
