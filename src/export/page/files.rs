//! The part of the page about file systems that do not answer.

use super::figures::{count, duration};
use super::html::Html;
use crate::status::Status;

pub(super) fn files(html: &mut Html, status: &Status) {
    let files = &status.files;
    if files.stuck.is_empty() {
        return;
    }
    html.raw("<section><h2>File systems that do not answer<small>");
    html.text(count(files.late));
    html.raw(" operations were late since the start</small></h2><div class=\"card\"><table>");
    html.raw("<tr><th>Mount</th><th>Type</th><th>Process</th><th>File</th><th>Since</th></tr>");
    // There are never more than a few.
    for stuck in &files.stuck {
        html.raw("<tr><td><code>").text(&stuck.mount).raw("</code></td><td>").text(&stuck.filesystem);
        html.raw("</td><td class=\"number\">");
        if let Some(pid) = stuck.pid {
            html.text(pid);
        }
        html.raw("</td><td><code>").text(&stuck.path).raw("</code></td><td class=\"number\">");
        html.text(duration(stuck.since)).raw("</td></tr>");
    }
    html.raw(
        "</table><p>Stacks and names of programs on these mounts are incomplete until the mounts answer. Find the \
         server or the FUSE daemon of the mount, or unmount it with <code>umount -f</code>.</p></div></section>",
    );
}
