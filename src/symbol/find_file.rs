//! Files by their identity: those that a recording or a profile refers to, where they are on this machine.

use super::FileHash;
use crate::files::{Files, Opened, Root, is_readable_by};
use crate::stack::BuildId;

/// The identity of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity<'a> {
    /// The path, in the root of the process that mapped the file.
    pub(crate) path: &'a str,
    /// The build id, of which perf records at most 20 bytes.
    pub(crate) build_id: Option<&'a BuildId>,
    /// The hash of the contents. It counts if there is no build id.
    pub(crate) hash: Option<FileHash>,
}

/// Why there is no file with an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileMissing {
    /// It does not exist on this machine, or cannot be read.
    Missing,
    /// The file on this machine is another one: it has another build id, or other contents.
    OtherBuild,
}

impl FileIdentity<'_> {
    fn is_of(&self, opened: &Opened) -> bool {
        match (self.build_id, self.hash) {
            (Some(wanted), _) => {
                let found = opened.binary().ok().and_then(|binary| binary.build_id());
                found.is_some_and(|found| found.starts_with(&wanted.to_string()))
            }
            (None, Some(hash)) => FileHash::of(opened) == Some(hash),
            (None, None) => true,
        }
    }
}

/// Opens the file with an identity: at its path in the roots of these processes, at its path on the host, or in the build id cache of perf
/// (`cache`: its directory). A file in the root of a process must be readable by that process or by all users.
///
/// # Errors
/// There is no such file, or it is another one.
pub(crate) fn find_file(
    files: &Files,
    pids: &[u32],
    wanted: FileIdentity<'_>,
    cache: Option<&str>,
) -> Result<Opened, FileMissing> {
    let mut missing = FileMissing::Missing;
    let processes = pids.iter().map(|&pid| (Root::Process(pid), Some(pid)));
    for (root, pid) in processes.chain([(Root::Host, None)]) {
        let Ok(opened) = files.open(&root, wanted.path, None) else { continue };
        if pid.is_some() && !is_readable_by(files, pid, &opened) {
            continue;
        }
        if wanted.is_of(&opened) {
            return Ok(opened);
        }
        missing = FileMissing::OtherBuild;
    }
    let id = wanted.build_id.map(ToString::to_string);
    let Some((start, rest)) = id.as_ref().and_then(|id| id.split_at_checked(2)) else { return Err(missing) };
    let cached = cache.map(|cache| format!("{cache}/.build-id/{start}/{rest}/elf"));
    let opened = cached.and_then(|path| files.open(&Root::Host, &path, None).ok());
    opened.filter(|opened| wanted.is_of(opened)).ok_or(missing)
}
