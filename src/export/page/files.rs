//! The section of the status page about file systems that do not respond.

use super::figures::{count, duration};
use super::html::Html;
use crate::status::Status;

pub(super) fn files(html: &mut Html, status: &Status) {
    let files = &status.files;
    if files.stuck.is_empty() {
        return;
    }
    html.put(
        "<section><h2>Unresponsive file systems<small>{} operations timed out since the start</small></h2>\
         <div class=\"card\"><table>\
         <tr><th>Mount</th><th>Type</th><th>Process</th><th>File</th><th>Since</th></tr>",
        [&count(files.late)],
    );
    // The list is short: the number of blocked operations is limited.
    for stuck in &files.stuck {
        let pid = stuck.pid.map(|pid| pid.to_string()).unwrap_or_default();
        html.put(
            "<tr><td><code>{}</code></td><td>{}</td><td class=\"number\">{}</td><td><code>{}</code></td>\
             <td class=\"number\">{}</td></tr>",
            [&stuck.mount, &stuck.filesystem, &pid, &stuck.path, &duration(stuck.since)],
        );
    }
    html.raw(
        "</table><p>Stacks and executable names of programs on these mounts are incomplete until the mounts respond. Check the \
         server or the FUSE daemon of the mount, or unmount it with <code>umount -f</code>.</p></div></section>",
    );
}
