//! Search for the files of probes: in one root, or in the containers that a rule selects.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

use crate::files::{Files, Opened, Root, RootError};
use crate::health::Cause;
use crate::host::Roots;
use crate::probe::Within;
use crate::probe::binary::Binary;
use crate::probe::debug_file::{DebugContents, find_debug_file};
use crate::targets::{CgroupMount, Cgroups, ContainerMetadata, ContainerPath, ContainerRule, pod_uid};

/// Maximum number of files that one entry probes. Each costs a descriptor on each CPU.
pub(super) const FILE_LIMIT: usize = 16;

/// Maximum number of cgroups that are searched for one entry.
const CGROUP_LIMIT: usize = 512;

/// Magic number of overlayfs in `statfs(2)`.
const OVERLAYFS: i64 = 0x794c_7630;

/// Identity of a probed file. Containers of one image have the same file, although each sees it on a file system of its own (overlayfs). A
/// probe counts the calls of all of them, so the file must be probed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FileKey {
    /// Device; 0 on overlayfs, which has a device number for each mount.
    device: u64,
    inode: u64,
    /// On overlayfs, where inode numbers of several file systems can be equal, size and time of modification; otherwise zeros.
    content: (u64, i64, i64),
}

impl FileKey {
    /// Returns the key of an open file; `None` if its attributes cannot be read.
    pub(super) fn of(opened: &Opened) -> Option<Self> {
        let stat = opened.file.stat().ok()?;
        let (seconds, nanoseconds) = stat.modified;
        Some(match opened.filesystem_type() {
            Some(OVERLAYFS) => {
                Self { device: 0, inode: stat.inode, content: (stat.size, seconds, nanoseconds) }
            }
            _ => Self { device: stat.device, inode: stat.inode, content: (0, 0, 0) },
        })
    }
}

/// A file at the path of a probe.
#[derive(Debug)]
pub(super) struct FoundFile {
    /// The root in which it was found.
    pub(super) root: Root,
    pub(super) opened: Opened,
}

/// Files that were found for a probe.
#[derive(Debug, Default)]
pub(super) struct FoundFiles {
    /// The distinct files, in the alphabetical order of the first cgroups in which they were found; at most [`FILE_LIMIT`].
    pub(super) files: Vec<FoundFile>,
    /// Their keys.
    pub(super) keys: Vec<FileKey>,
    /// What was not searched or is not probed, for users.
    pub(super) notes: Vec<String>,
}

/// Reason why no file was found.
#[derive(Debug)]
pub(super) enum NotFound {
    /// The file cannot be opened in the root.
    Root(RootError),
    /// The rule selects no cgroup now.
    NoContainer(String),
}

impl NotFound {
    pub(super) fn cause(&self) -> Cause {
        match self {
            Self::Root(RootError::ProcessForbidden { .. } | RootError::FileForbidden { .. }) => {
                Cause::Forbidden
            }
            Self::Root(
                RootError::NotAbsolute(_)
                | RootError::NotRegular { .. }
                | RootError::Link(_)
                | RootError::Unreadable(_),
            ) => Cause::Broken,
            Self::Root(_) | Self::NoContainer(_) => Cause::Absent,
        }
    }
}

impl NotFound {
    /// Reports whether the host has no file of this name. The file of a process or a container may be absent at times.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Root(RootError::Absent { .. }))
    }
}

impl std::fmt::Display for NotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Root(error) => error.fmt(f),
            Self::NoContainer(reason) => f.write_str(reason),
        }
    }
}

/// Means to find files of probes.
#[derive(Debug, Clone)]
pub(super) struct FileSources {
    pub(super) files: Files,
    /// Metadata of containers; `None` = unknown.
    pub(super) metadata: Option<Arc<dyn ContainerMetadata>>,
}

impl FileSources {
    /// Begins a search of the cgroups that exist now.
    pub(super) fn search(&self) -> Search<'_> {
        Search { sources: self, mount: mount_of(self.files.roots()), cgroups: OnceCell::new() }
    }
}

/// Returns the mount point of cgroups.
fn mount_of(roots: &Roots) -> Option<PathBuf> {
    Some(PathBuf::from(CgroupMount::find(roots).ok()?.dir()))
}

/// A search for the files of several probes.
pub(super) struct Search<'a> {
    sources: &'a FileSources,
    mount: Option<PathBuf>,
    /// Paths of all cgroups, sorted.
    cgroups: OnceCell<Vec<Arc<str>>>,
}

impl Search<'_> {
    /// Opens the files at a path.
    pub(super) fn open(&self, within: &Within, path: &str) -> Result<FoundFiles, NotFound> {
        match within {
            Within::Root(root) => {
                let file = self.open_in(root, path).map_err(NotFound::Root)?;
                let keys = FileKey::of(&file).into_iter().collect();
                let file = FoundFile { root: root.clone(), opened: file };
                Ok(FoundFiles { files: vec![file], keys, notes: Vec::new() })
            }
            Within::Containers(rule) => self.open_in_containers(rule, path),
        }
    }

    /// Opens the debug file with the names of a stripped file.
    pub(super) fn debug_file(&self, root: &Root, path: &str, binary: &Binary<'_>) -> Option<Opened> {
        let (files, mount) = (&self.sources.files, self.mount.as_deref());
        let found = find_debug_file(files, root, mount, path, binary, DebugContents::AllNames);
        found.ok().map(|found| found.opened)
    }

    fn open_in(&self, root: &Root, path: &str) -> Result<Opened, RootError> {
        self.sources.files.open_to_probe(root, path, self.mount.as_deref())
    }

    fn open_in_containers(&self, rule: &ContainerRule, path: &str) -> Result<FoundFiles, NotFound> {
        let cgroups = self.selected(rule).map_err(NotFound::NoContainer)?;
        let mut found = FoundFiles::default();
        let (mut failure, mut beyond) = (None, 0);
        for cgroup in cgroups.iter().take(CGROUP_LIMIT) {
            let root = Root::Cgroup(Arc::clone(cgroup));
            let opened = match self.open_in(&root, path) {
                Ok(opened) => opened,
                Err(error) => {
                    // A cgroup without processes is the least helpful reason.
                    let is_empty = |error: &RootError| {
                        matches!(error, RootError::NoProcesses(_) | RootError::NoCgroup(_))
                    };
                    failure = failure.filter(|known| !is_empty(known) || is_empty(&error)).or(Some(error));
                    continue;
                }
            };
            let Some(key) = FileKey::of(&opened).filter(|key| !found.keys.contains(key)) else { continue };
            if found.files.len() == FILE_LIMIT {
                beyond += 1;
                continue;
            }
            found.files.push(FoundFile { root, opened });
            found.keys.push(key);
        }
        if cgroups.len() > CGROUP_LIMIT {
            let all = cgroups.len();
            found
                .notes
                .push(format!("{all} cgroups match {rule}; only the first {CGROUP_LIMIT} are searched"));
        }
        if beyond > 0 {
            found.notes.push(format!(
                "{path} is a different file in {beyond} further cgroups that match {rule}; an entry probes at most {FILE_LIMIT} \
                 files: use narrower patterns"
            ));
        }
        if found.files.is_empty() {
            let none = || NotFound::NoContainer(format!("no process of a cgroup that matches {rule} exists"));
            return Err(failure.map_or_else(none, NotFound::Root));
        }
        Ok(found)
    }

    /// Returns the paths of the cgroups that a rule selects, sorted; at least one.
    fn selected(&self, rule: &ContainerRule) -> Result<Vec<Arc<str>>, String> {
        let Some(mount) = &self.mount else { return Err("cgroups cannot be found".to_owned()) };
        let all = self.cgroups.get_or_init(|| {
            let mut cgroups = Cgroups::new(mount);
            if let Err(error) = cgroups.refresh() {
                tracing::debug!("cgroups cannot be searched for probes: {error}");
            }
            let mut paths: Vec<Arc<str>> = cgroups.iter().map(|cgroup| Arc::clone(&cgroup.path)).collect();
            paths.sort_unstable();
            paths
        });
        let mut paths: Vec<Arc<str>> = all.iter().filter(|path| rule.matches_path(path)).cloned().collect();
        if !rule.pod.is_empty() {
            paths.retain(|path| ContainerPath::of(path).is_some() || pod_uid(path).is_some());
            let metadata = self.sources.metadata.as_deref().filter(|metadata| metadata.has_sources());
            let Some(metadata) = metadata else {
                return Err(format!(
                    "{rule}: names of containers are unknown, because there is no metadata source"
                ));
            };
            let identities = metadata.identities(&paths);
            let unknown = identities.iter().filter(|identity| identity.is_none()).count();
            let mut identities = identities.into_iter();
            paths.retain(|_| identities.next().flatten().is_some_and(|identity| rule.pod.matches(&identity)));
            if paths.is_empty() && unknown > 0 {
                return Err(format!(
                    "no container matches {rule}; cgroups of containers without metadata so far: {unknown}"
                ));
            }
        }
        if paths.is_empty() {
            let what = if rule.pod.is_empty() { "cgroup" } else { "container" };
            return Err(format!("no {what} matches {rule}; the probe is installed when one does"));
        }
        Ok(paths)
    }
}

#[cfg(test)]
mod tests;
