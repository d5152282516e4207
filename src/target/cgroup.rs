//! Cgroups: what there is, what is selected, and what came and went.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{CgroupMount, Diff, Glob};
use crate::error::FileError;
use crate::host::entries;

/// How deep below the root cgroups are followed.
const DEEPEST: usize = 64;

/// How many cgroups are followed.
const MOST: usize = 65_536;

/// What the kernel knows a cgroup by while it exists: the inode number of its directory, which is also the id in
/// `PERF_SAMPLE_CGROUP`. A cgroup that is removed and made again has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

/// One cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its identity.
    pub id: CgroupId,
    /// Its path below the root of the hierarchy, `/` for the root itself. Bytes that are not UTF-8 are U+FFFD.
    pub path: Arc<str>,
    /// How far below the root it lies; 0 for the root.
    pub depth: usize,
    dir: PathBuf,
}

/// Which cgroups to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupSelection {
    /// Paths to take; one pattern that matches is enough. `/` is the root cgroup, which only its own name selects.
    pub include: Vec<Glob>,
    /// Paths to leave out, stronger than `include`.
    pub exclude: Vec<Glob>,
    /// How deep below the root a cgroup may lie (`/a` is 1); `None` = any depth.
    pub depth: Option<usize>,
    /// Whether a cgroup's counts include those of the cgroups below it. If not, each count has one place, and sums
    /// over cgroups count nothing twice.
    pub descendants: bool,
}

impl CgroupSelection {
    /// Whether the cgroup is one of them.
    pub fn matches(&self, cgroup: &Cgroup) -> bool {
        // The root holds everything, the idle CPU included: no pattern is to take it by accident.
        let included = |glob: &Glob| match &*cgroup.path {
            "/" => glob.as_str() == "/",
            path => glob.matches(path),
        };
        self.depth.is_none_or(|depth| cgroup.depth <= depth)
            && self.include.iter().any(included)
            && !self.exclude.iter().any(|glob| glob.matches(&cgroup.path))
    }
}

/// The path of the cgroup above, if `path` is not the root: `/a` for `/a/b`, `/` for `/a`.
pub fn parent_of(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (parent, _) => Some(parent),
    }
}

/// The cgroups of one hierarchy, as of the last look.
#[derive(Debug, Clone)]
pub struct Cgroups {
    root: PathBuf,
    known: BTreeMap<CgroupId, Arc<Cgroup>>,
    left_out: u64,
}

impl Cgroups {
    /// Nothing is known before the first [`refresh`](Self::refresh).
    pub fn new(mount: &CgroupMount) -> Self {
        Self { root: mount.dir.clone(), known: BTreeMap::new(), left_out: 0 }
    }

    /// Looks again. Those added come parents first, those removed as well. A cgroup that vanishes meanwhile is not an
    /// error. Costs one `stat` for each cgroup, and one `readdir` for each that has others below it.
    ///
    /// # Errors
    /// When the root itself cannot be read; what was known stays known.
    pub fn refresh(&mut self) -> Result<Diff<Arc<Cgroup>, CgroupId>, FileError> {
        let meta = self.root.metadata().map_err(|error| FileError::io(&self.root, &error))?;
        let top = Cgroup { id: CgroupId(meta.ino()), path: "/".into(), depth: 0, dir: self.root.clone() };
        let mut now: BTreeMap<CgroupId, Arc<Cgroup>> = BTreeMap::new();
        let mut diff = Diff::default();
        let mut waiting = vec![top];
        self.left_out = 0;
        while let Some(cgroup) = waiting.pop() {
            if now.len() >= MOST {
                self.left_out += 1;
                continue;
            }
            if cgroup.depth < DEEPEST {
                below(&cgroup, &mut waiting);
            } else {
                self.left_out += 1;
            }
            // A new cgroup may get the inode number of an old one; a renamed one keeps its own.
            let cgroup = match self.known.get(&cgroup.id) {
                Some(old) if old.path == cgroup.path => Arc::clone(old),
                _ => {
                    let new = Arc::new(cgroup);
                    diff.added.push(Arc::clone(&new));
                    new
                }
            };
            now.insert(cgroup.id, cgroup);
        }
        let gone = self.known.values().filter(|old| now.get(&old.id).is_none_or(|new| new.path != old.path));
        let mut gone: Vec<&Arc<Cgroup>> = gone.collect();
        gone.sort_by_key(|cgroup| cgroup.depth);
        diff.removed = gone.iter().map(|cgroup| cgroup.id).collect();
        diff.added.sort_by(|a, b| (a.depth, &a.path).cmp(&(b.depth, &b.path)));
        self.known = now;
        Ok(diff)
    }

    /// Those known, parents first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Cgroup>> {
        let mut all: Vec<&Arc<Cgroup>> = self.known.values().collect();
        all.sort_by(|a, b| (a.depth, &a.path).cmp(&(b.depth, &b.path)));
        all.into_iter()
    }

    /// How many were found and not followed at the last look, because they lie too deep or are too many.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Cgroup {
    /// Opens its directory, which names it to `perf_event_open`.
    ///
    /// # Errors
    /// The kernel's refusal; absent if it was removed meanwhile.
    pub fn open(&self) -> Result<File, FileError> {
        File::open(&self.dir).map_err(|error| FileError::io(&self.dir, &error))
    }
}

/// Puts what lies directly below into `waiting`. What cannot be read has nothing below it: it is gone.
fn below(cgroup: &Cgroup, waiting: &mut Vec<Cgroup>) {
    // Every directory below adds one link (`..`); with none there is nothing to read. File systems that do not count
    // them say 1.
    if cgroup.dir.metadata().is_ok_and(|meta| meta.nlink() == 2) {
        return;
    }
    let Ok(entries) = entries(&cgroup.dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name();
        let parent = cgroup.path.trim_end_matches('/');
        waiting.push(Cgroup {
            id: CgroupId(entry.ino()),
            path: format!("{parent}/{}", name.to_string_lossy()).into(),
            depth: cgroup.depth + 1,
            dir: Path::join(&cgroup.dir, &name),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::target::Hierarchy;

    fn hierarchy() -> (tempfile::TempDir, Cgroups) {
        let dir = tempfile::tempdir().unwrap();
        let mount = CgroupMount { dir: dir.path().to_owned(), hierarchy: Hierarchy::V2 };
        (dir, Cgroups::new(&mount))
    }

    fn added(diff: &Diff<Arc<Cgroup>, CgroupId>) -> Vec<&str> {
        diff.added.iter().map(|cgroup| &*cgroup.path).collect()
    }

    fn selection(include: &[&str]) -> CgroupSelection {
        let include = include.iter().map(|glob| Glob::new(glob).unwrap()).collect();
        CgroupSelection { include, exclude: Vec::new(), depth: None, descendants: false }
    }

    fn cgroup(path: &str) -> Cgroup {
        let depth = if path == "/" { 0 } else { path.matches('/').count() };
        Cgroup { id: CgroupId(1), path: path.into(), depth, dir: PathBuf::new() }
    }

    #[test]
    fn what_came_and_what_went_is_told_once_and_parents_come_first() {
        let (dir, mut cgroups) = hierarchy();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::create_dir_all(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        assert_eq!(added(&cgroups.refresh().unwrap()), ["/", "/a", "/b", "/b/c"]);
        assert_eq!(cgroups.refresh().unwrap(), Diff::default());
        fs::remove_dir_all(dir.path().join("b")).unwrap();
        let diff = cgroups.refresh().unwrap();
        assert_eq!((diff.added.len(), diff.removed.len()), (0, 2));
        assert_eq!(cgroups.iter().map(|cgroup| &*cgroup.path).collect::<Vec<_>>(), ["/", "/a"]);
    }

    #[test]
    fn a_renamed_cgroup_is_removed_and_added() {
        let (dir, mut cgroups) = hierarchy();
        fs::create_dir(dir.path().join("old")).unwrap();
        cgroups.refresh().unwrap();
        fs::rename(dir.path().join("old"), dir.path().join("new")).unwrap();
        let diff = cgroups.refresh().unwrap();
        assert_eq!(added(&diff), ["/new"]);
        assert_eq!(diff.removed, [diff.added[0].id]);
    }

    #[test]
    fn names_may_be_hostile() {
        use std::os::unix::ffi::OsStrExt;
        let (dir, mut cgroups) = hierarchy();
        for name in [&b"a\\x2db.service"[..], b"new\nline", b"\xff\xfe", &[b'n'; 255]] {
            fs::create_dir(dir.path().join(std::ffi::OsStr::from_bytes(name))).unwrap();
        }
        let diff = cgroups.refresh().unwrap();
        assert_eq!(diff.added.len(), 5);
        assert!(added(&diff).contains(&"/\u{fffd}\u{fffd}"));
        assert!(diff.added.iter().all(|cgroup| cgroup.open().is_ok()));
    }

    #[test]
    fn an_unreadable_root_is_an_error_and_what_was_known_stays() {
        let (dir, mut cgroups) = hierarchy();
        cgroups.refresh().unwrap();
        drop(dir);
        assert!(cgroups.refresh().unwrap_err().is_absent());
        assert_eq!(cgroups.iter().count(), 1);
    }

    #[test]
    fn only_its_own_name_selects_the_root() {
        assert!(!selection(&["/**", "**", "*"]).matches(&cgroup("/")));
        assert!(selection(&["/"]).matches(&cgroup("/")));
        assert!(selection(&["/**"]).matches(&cgroup("/a/b")));
    }

    #[test]
    fn exclusion_and_depth_are_stronger_than_inclusion() {
        let mut some = selection(&["/**"]);
        some.exclude = vec![Glob::new("**/session-*.scope").unwrap()];
        some.depth = Some(2);
        assert!(some.matches(&cgroup("/a/b")));
        assert!(!some.matches(&cgroup("/a/b/c")));
        assert!(!some.matches(&cgroup("/user.slice/session-1.scope")));
    }

    #[test]
    fn every_path_but_the_root_has_a_parent() {
        assert_eq!(parent_of("/a/b"), Some("/a"));
        assert_eq!(parent_of("/a"), Some("/"));
        assert_eq!(parent_of("/"), None);
    }
}
