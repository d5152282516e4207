//! The part of the page about threads that stand out.

use super::figures::duration;
use super::html::Html;
use super::{LINES, and_more};
use crate::status::Threads;
use std::time::Duration;

pub(super) fn threads(html: &mut Html, threads: &Threads) {
    if let Some(reduced) = &threads.reduced {
        html.raw(
            "<div class=\"banner warn\"><p><b>Less is told of threads than was asked for</b>, to keep to ",
        )
        .raw("<code>limits.cpu</code>: ")
        .text(reduced)
        .raw(".</p></div>");
    }
    if threads.delays.is_empty() && threads.stuck.is_empty() {
        return;
    }
    html.raw("<h2>Threads<small>that waited longest, in the last minute and right now</small></h2><div class=\"cards\">");
    if !threads.delays.is_empty() {
        html.raw("<section class=\"card\"><header><h3>For a CPU</h3></header><dl>");
        for delay in threads.delays.iter().take(LINES) {
            thread(html, &delay.comm, delay.pid, delay.tid);
            html.raw("<dd>").text(seconds(delay.seconds)).raw(" for CPU ").text(delay.cpu);
            html.raw(", until ").text(format_args!("{:#}", delay.at)).raw("</dd>");
        }
        and_more(html, threads.delays.len());
        html.raw("</dl></section>");
    }
    if !threads.stuck.is_empty() {
        html.raw("<section class=\"card\"><header><h3>In a system call</h3></header><dl>");
        for stuck in threads.stuck.iter().take(LINES) {
            thread(html, &stuck.comm, stuck.pid, stuck.tid);
            html.raw("<dd>").text(seconds(stuck.seconds)).raw(" in <code>").text(&stuck.syscall);
            html.raw("</code></dd>");
        }
        and_more(html, threads.stuck.len());
        html.raw("</dl></section>");
    }
    html.raw("</div>");
}

fn thread(html: &mut Html, comm: &str, pid: u32, tid: u32) {
    html.raw("<dt>").text(if comm.is_empty() { "thread" } else { comm }).raw(" <small>").text(tid);
    if pid != 0 && pid != tid {
        html.raw(" of ").text(pid);
    }
    html.raw("</small></dt>");
}

fn seconds(seconds: f64) -> impl std::fmt::Display {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
