//! The section of the status page about the threads with the longest waits.

use super::figures::duration;
use super::html::Html;
use super::some;
use crate::status::Threads;
use std::time::Duration;

pub(in crate::export) fn threads(html: &mut Html, threads: &Threads) {
    if let Some(reduced) = &threads.reduced {
        html.put(
            "<div class=\"banner warn\"><p><b>Detail of thread metrics is reduced</b> to keep to \
             <code>limits.cpu</code>: {}.</p></div>",
            [reduced],
        );
    }
    if threads.delays.is_empty() && threads.stuck.is_empty() {
        return;
    }
    html.raw("<h2>Threads<small>longest waits, in the last minute and now</small></h2><div class=\"cards\">");
    if !threads.delays.is_empty() {
        html.raw("<section class=\"card\"><header><h3>Waiting for a CPU</h3></header><dl>");
        some(html, &threads.delays, "", |html, delay| {
            thread(html, &delay.comm, delay.pid, delay.tid);
            html.put(
                "<dd>{} for CPU {}, until {}</dd>",
                [&seconds(delay.seconds), &delay.cpu, &format_args!("{:#}", delay.at)],
            );
        });
        html.raw("</dl></section>");
    }
    if !threads.stuck.is_empty() {
        html.raw("<section class=\"card\"><header><h3>In a system call</h3></header><dl>");
        some(html, &threads.stuck, "", |html, stuck| {
            thread(html, &stuck.comm, stuck.pid, stuck.tid);
            html.put("<dd>{} in <code>{}</code></dd>", [&seconds(stuck.seconds), &stuck.syscall]);
        });
        html.raw("</dl></section>");
    }
    html.raw("</div>");
}

fn thread(html: &mut Html, comm: &str, pid: u32, tid: u32) {
    html.put("<dt>{} <small>{}", [&if comm.is_empty() { "thread" } else { comm }, &tid]);
    if pid != 0 && pid != tid {
        html.put(" of {}", [&pid]);
    }
    html.raw("</small></dt>");
}

fn seconds(seconds: f64) -> impl std::fmt::Display {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
