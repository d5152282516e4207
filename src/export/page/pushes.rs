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
        html.put(
            "<section class=\"card\"><header><h3>{}</h3><span>{} by {}</span><small>{}</small></header><dl>",
            [&push.signal, &push.format, &push.protocol, &push.endpoint],
        );
        state(html, status, push);
        html.put("<dt>Taken</dt><dd>{} items", [&count(push.taken)]);
        if let Some(at) = push.last_taken {
            html.put(", last {} ago", [&duration(age(status, at))]);
        }
        html.raw("</dd>");
        let lost = [("Rejected", push.rejected), ("Refused", push.refused), ("Dropped", push.dropped)];
        for (what, number) in lost.into_iter().filter(|(_, number)| *number > 0) {
            html.put("<dt>{}</dt><dd>{} items</dd>", [&what, &count(number)]);
        }
        if let Some(message) = &push.message {
            html.put("<dt>Said</dt><dd>{}</dd>", [message]);
        }
        html.put(
            "<dt>Waiting</dt><dd>{} requests, {}</dd></dl></section>",
            [&count(push.waiting_requests), &bytes(push.waiting_bytes)],
        );
    }
    html.raw("</div>");
}

fn state(html: &mut Html, status: &Status, push: &PushStatus) {
    html.raw("<dt>State</dt><dd>");
    match (&push.failing, push.last_taken) {
        (Some(failure), _) => html.put(
            "<b>not taken for {}</b>, since {}: {}",
            [&duration(age(status, failure.since)), &format_args!("{:#}", failure.since), &failure.why],
        ),
        (None, Some(_)) => html.raw("taken"),
        (None, None) => html.raw("nothing was sent yet"),
    };
    html.raw("</dd>");
}
