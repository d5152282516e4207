//! Separate debug files with the symbols of a stripped file.

use std::path::{Component, Path};

use flate2::Crc;

use super::binary::Binary;
use crate::files::{Files, Opened, Root, is_readable_by};
use crate::host::ReadAt;

/// The directory where distributions install debug files.
const DEBUG_DIR: &str = "/usr/lib/debug";
/// The largest file whose checksum is computed, in bytes. The debug file of a browser is larger, and is found by its build id.
const CHECKED_LIMIT: u64 = 512 << 20;
/// The bytes to read at a time.
const CHUNK: usize = 256 << 10;

/// The required contents of a debug file.
#[derive(Debug, Clone, Copy)]
pub enum DebugContents {
    /// The names of all functions.
    AllNames,
    /// Lines and inlined functions.
    DebugInfo,
}

/// No debug file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDebugFile {
    /// Whether files could temporarily not be opened, so that a debug file may be found later.
    pub temporary: bool,
}

impl DebugContents {
    fn is_in(self, binary: &Binary<'_>) -> bool {
        match self {
            Self::AllNames => binary.has_all_names(),
            Self::DebugInfo => binary.has_debug_info(),
        }
    }
}

/// A debug file.
#[derive(Debug)]
pub struct FoundDebugFile {
    /// The root in which it was found.
    pub root: Root,
    /// Its path there.
    pub path: String,
    /// The file.
    pub opened: Opened,
}

/// Finds the debug file of `binary`, which is at `path` in `root`. Tries its build id, then the name in `.gnu_debuglink`; in this root
/// first, then on the host. A debug file of another build, without the required contents, or which neither the process of the root nor all
/// users may read, is ignored. `mount` is the cgroup file system, for the root of a cgroup.
///
/// # Errors
/// There is no such file, or it cannot be opened now.
pub fn find_debug_file(
    files: &Files,
    root: &Root,
    mount: Option<&Path>,
    path: &str,
    binary: &Binary<'_>,
    wanted: DebugContents,
) -> Result<FoundDebugFile, NoDebugFile> {
    let pid = if let Root::Process(pid) = root { Some(*pid) } else { None };
    let mut missing = NoDebugFile { temporary: false };
    let (build_id, link) = (binary.build_id(), binary.debug_link());
    let by_id = build_id.as_deref().and_then(|id| {
        let (start, rest) = id.split_at_checked(2)?;
        Some(format!("{DEBUG_DIR}/.build-id/{start}/{rest}.debug"))
    });
    let by_link = link.as_ref().map(|(name, _)| companion_paths(path, name)).unwrap_or_default();
    let crc = link.map(|(_, crc)| crc);
    for root in Some(root).filter(|root| **root != Root::Host).into_iter().chain([&Root::Host]) {
        for path in by_id.iter().chain(&by_link) {
            let opened = match files.open(root, path, mount) {
                Ok(opened) => opened,
                Err(error) => {
                    missing.temporary |= error.is_temporary();
                    continue;
                }
            };
            // A name in the root of a process can be a link to a file that only root may read.
            if !is_readable_by(files, pid, &opened) {
                continue;
            }
            let Ok(debug) = opened.binary() else { continue };
            let same_build = build_id.is_some() && debug.build_id() == build_id;
            if wanted.is_in(&debug) && (same_build || crc.is_some_and(|crc| checksum(&opened) == Some(crc))) {
                drop(debug);
                return Ok(FoundDebugFile { root: root.clone(), path: path.clone(), opened });
            }
        }
    }
    Err(missing)
}

/// Returns the paths where debuggers look for a debug file with this name.
fn companion_paths(path: &str, name: &str) -> Vec<String> {
    let mut components = Path::new(name).components();
    let is_name = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    let dir = path.strip_prefix('/').map(|path| path.rsplit_once('/').map_or("", |(dir, _)| dir));
    match dir {
        Some(dir) if is_name => {
            let slash = if dir.is_empty() { "" } else { "/" };
            vec![
                format!("/{dir}{slash}{name}"),
                format!("/{dir}{slash}.debug/{name}"),
                format!("{DEBUG_DIR}/{dir}{slash}{name}"),
            ]
        }
        _ => Vec::new(),
    }
}

/// Returns the CRC-32 of a whole file, if it is not too large.
fn checksum(opened: &Opened) -> Option<u32> {
    let length = opened.length().ok()?;
    if length > CHECKED_LIMIT {
        return None;
    }
    let (mut crc, mut buffer, mut at) = (Crc::new(), vec![0; CHUNK], 0);
    while at < length {
        let piece = &mut buffer[..usize::try_from(length - at).unwrap_or(CHUNK).min(CHUNK)];
        opened.read_exact_at(piece, at).ok()?;
        crc.update(piece);
        at += piece.len() as u64;
    }
    Some(crc.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debug_file_is_sought_beside_its_file_and_nowhere_that_its_name_leads_to() {
        let places = ["/usr/lib/x.debug", "/usr/lib/.debug/x.debug", "/usr/lib/debug/usr/lib/x.debug"];
        assert_eq!(companion_paths("/usr/lib/libx.so", "x.debug"), places);
        assert_eq!(companion_paths("/x", "y"), ["/y", "/.debug/y", "/usr/lib/debug/y"]);
        for (path, name) in [("/x", "../y"), ("/x", "/etc/passwd"), ("/x", ".."), ("/x", ""), ("[vdso]", "y")]
        {
            assert_eq!(companion_paths(path, name), [""; 0], "{path} {name}");
        }
    }
}
