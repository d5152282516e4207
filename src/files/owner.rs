//! Owners of files with symbols. A process chooses their names, and must not make this program show files that only others may read.

use std::{fs, io};

use super::{Files, Opened};
use crate::host;

/// Permission of all users to read a file.
const READ_BY_ALL: u32 = 0o004;

/// Reports whether a file belongs to the user of a process. In a mount namespace of its own, root may also own it, if all users may read it: a
/// user can create such a namespace, and mount a file there that only root may read.
///
/// # Errors
/// Returns an error if the attributes of the file cannot be read.
pub(crate) fn is_of_process(files: &Files, pid: u32, opened: &Opened) -> io::Result<bool> {
    let stat = opened.file.stat()?;
    let is_public_of_root = stat.uid == 0 && stat.mode & READ_BY_ALL != 0;
    Ok(users(files, pid).contains(&stat.uid) || (is_public_of_root && has_own_mounts(files, pid)))
}

/// Reports whether a process may read a file by itself, or all users may.
pub(crate) fn is_readable_by(files: &Files, pid: Option<u32>, opened: &Opened) -> bool {
    let Ok(stat) = opened.file.stat() else { return false };
    stat.mode & READ_BY_ALL != 0 || pid.is_some_and(|pid| users(files, pid).contains(&stat.uid))
}

/// Reports whether a process has another mount namespace than the host. Unknown namespaces are those of the host.
fn has_own_mounts(files: &Files, pid: u32) -> bool {
    let namespace = |pid: u32| fs::read_link(files.roots().proc.join(pid.to_string()).join("ns/mnt")).ok();
    matches!((namespace(pid), namespace(1)), (Some(own), Some(first)) if own != first)
}

/// Returns the user IDs of a process: real, effective, saved and file system. Empty if it has exited.
fn users(files: &Files, pid: u32) -> Vec<u32> {
    let status =
        host::read_text(&files.roots().proc.join(pid.to_string()).join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}
