//! USDT probes of the programs that are running: of the files that their processes execute.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;

use serde::Serialize;

use crate::cli::probe::{Marker, Source, markers};
use crate::error::printable;
use crate::host::{self, Roots};
use crate::probe::Root;

/// Maximum number of files that are searched.
const FILES: usize = 4096;

/// The USDT probes of one file.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    file: String,
    /// A process that has mapped the file, if the file is in the file system of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(flatten)]
    marker: Marker,
}

/// Returns the USDT probes of all files that processes have mapped as code. Files that cannot be opened are left out.
pub(super) fn rows(roots: &Roots) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((path, inode), pid) in mapped(roots) {
        let is_here = roots.mounted(&path).metadata().is_ok_and(|found| found.ino() == inode);
        let (root, pid) = if is_here { (Root::Host, None) } else { (Root::Process(pid), Some(pid)) };
        let source = Source { path, root };
        let Ok(binary) = source.open(roots) else { continue };
        let row = |marker| Row { file: source.path.clone(), pid, marker };
        rows.extend(markers(&source, &binary).into_iter().map(row));
    }
    rows
}

/// Returns the mapped files by path and inode, with a process of each.
fn mapped(roots: &Roots) -> BTreeMap<(String, u64), u32> {
    let mut files = BTreeMap::new();
    let pids = host::list(&roots.proc).unwrap_or_default();
    for pid in pids.iter().filter_map(|name| name.parse::<u32>().ok()) {
        // Processes end at any time.
        let maps = host::read_text(&roots.proc.join(pid.to_string()).join("maps")).unwrap_or_default();
        for key in maps.lines().filter_map(file) {
            if files.len() < FILES {
                files.entry(key).or_insert(pid);
            }
        }
    }
    files
}

/// Returns path and inode of a line of `/proc/PID/maps` with code.
fn file(line: &str) -> Option<(String, u64)> {
    let mut fields = line.splitn(6, ' ');
    let is_code = fields.nth(1)?.contains('x');
    let inode = fields.nth(2)?.parse().ok()?;
    let path = fields.next()?.trim_start();
    (is_code && path.starts_with('/') && !path.ends_with(" (deleted)")).then(|| (path.to_owned(), inode))
}

/// Writes the USDT probes as text.
pub(super) fn write(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    for Row { file, pid, marker } in rows {
        let at = pid.map(|pid| format!(" of process {pid}")).unwrap_or_default();
        let name = printable(&marker.name);
        writeln!(out, "{name:<52} {:<8} {:<14} USDT probe of {}{at}", "", "sdt", printable(file))?;
    }
    match rows.first() {
        Some(row) => writeln!(out, "\nIn the configuration: probes: {{{}}}", row.marker.yaml),
        None => writeln!(out, "no running program has USDT probes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_a_file_is_read_from_a_mapping() {
        let line =
            "7f0000000000-7f0000001000 r-xp 00002000 08:01 4711                       /usr/lib/libc.so.6";
        assert_eq!(file(line), Some(("/usr/lib/libc.so.6".to_owned(), 4711)));
        let spaced = "7f0000000000-7f0000001000 r-xp 00002000 08:01 7 /opt/a b";
        assert_eq!(file(spaced), Some(("/opt/a b".to_owned(), 7)));
        for other in [
            &line.replace("r-xp", "r--p"),
            "7f00-7f01 r-xp 0 00:00 0",
            "7f00-7f01 r-xp 0 00:00 0  [vdso]",
            "",
        ] {
            assert_eq!(file(other), None, "{other}");
        }
    }
}
