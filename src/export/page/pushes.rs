//! The section of the status page about pushes.

use super::age;
use super::figures::{bytes, count, duration};
use super::html::Html;
use crate::status::{PushStatus, Status};

pub(super) fn pushes(html: &mut Html, status: &Status) {
    if status.pushes.is_empty() {
        return;
    }
    html.raw(
        "<h2>Push export<small>items are data points, samples or log records</small></h2><div class=\"cards\">",
    );
    for push in &status.pushes {
        html.put(
            "<section class=\"card\"><header><h3>{}</h3><span>{} by {}</span><small>{}</small></header><dl>",
            [&push.signal, &push.format, &push.protocol, &push.endpoint],
        );
        state(html, status, push);
        html.put("<dt>Accepted</dt><dd>{} items", [&count(push.accepted)]);
        if let Some(at) = push.last_accepted {
            html.put(", last {} ago", [&duration(age(status, at))]);
        }
        html.raw("</dd>");
        let lost = [
            ("Rejected in part", push.partly_rejected),
            ("Rejected", push.rejected),
            ("Dropped", push.dropped),
        ];
        for (what, number) in lost.into_iter().filter(|(_, number)| *number > 0) {
            html.put("<dt>{}</dt><dd>{} items</dd>", [&what, &count(number)]);
        }
        if let Some(message) = &push.message {
            html.put("<dt>Receiver message</dt><dd>{}</dd>", [message]);
        }
        html.put(
            "<dt>Queued</dt><dd>{} requests, {}</dd></dl></section>",
            [&count(push.waiting_requests), &bytes(push.waiting_bytes)],
        );
    }
    html.raw("</div>");
}

fn state(html: &mut Html, status: &Status, push: &PushStatus) {
    html.raw("<dt>State</dt><dd>");
    match (&push.failing, push.last_accepted) {
        (Some(failure), _) => html.put(
            "<b>failing for {}</b>, since {}: {}",
            [&duration(age(status, failure.since)), &format_args!("{:#}", failure.since), &failure.why],
        ),
        (None, Some(_)) => html.raw("ok"),
        (None, None) => html.raw("nothing sent yet"),
    };
    html.raw("</dd>");
}
