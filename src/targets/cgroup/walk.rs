//! Repeated scans of the cgroup tree.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::iter;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use super::{Cgroup, CgroupId, ContainerPath, parent_of, pod_uid};
use crate::error::FileError;
use crate::host;
use crate::targets::{ContainerMetadata, Diff, Obstacle, SkippedTargets};

/// Maximum depth of cgroups below the root. Containers in containers in pods reach a depth of about ten.
const DEPTH_LIMIT: usize = 64;

/// Maximum number of cgroups. The kernel itself has no limit (`cgroup.max.descendants` is `max`).
const COUNT_LIMIT: usize = 1 << 16;

/// The cgroups of one hierarchy. Scanning them needs no privilege: every user may read every directory of a cgroup file system, unless its
/// mode was changed.
#[derive(Debug)]
pub struct Cgroups {
    dir: Arc<Path>,
    known: HashMap<CgroupId, Known>,
    round: u64,
    left_out: SkippedTargets,
}

#[derive(Debug)]
struct Known {
    cgroup: Arc<Cgroup>,
    /// The directory to open. It differs from the cgroup's path, which may contain U+FFFD.
    dir: Arc<Path>,
    /// The last refresh that found it.
    round: u64,
}

/// A directory below a cgroup.
struct Child {
    name: String,
    /// The name on disk, if it is different.
    raw: Option<OsString>,
    id: CgroupId,
}

impl Cgroups {
    /// Returns the tree at `dir`, usually [`CgroupMount::dir`](super::CgroupMount::dir). Reads nothing yet.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.into(), known: HashMap::new(), round: 0, left_out: SkippedTargets::default() }
    }

    /// Scans the tree and returns the changes; `added` and `changed` have parents before their children. The first refresh adds everything.
    ///
    /// A cgroup that was removed and created again with the same path is a different one: removed and added. A cgroup that disappears
    /// during the scan is not an error. If an existing directory cannot be read, the known cgroups below it are kept, and
    /// [`left_out`](Self::left_out) counts it.
    ///
    /// The cost is one `stat` per cgroup, and one `readdir` per cgroup that has children.
    ///
    /// # Errors
    /// When the root itself cannot be read. All known cgroups are kept then.
    pub fn refresh(&mut self) -> Result<Diff<Arc<Cgroup>, CgroupId>, FileError> {
        let mut left_out = SkippedTargets::default();
        let root = fs::metadata(&self.dir).map_err(|error| FileError::io(&*self.dir, &error))?;
        let top = children(&self.dir, COUNT_LIMIT - 1, &mut left_out)?;

        self.round += 1;
        let mut walk =
            Walk { round: self.round, known: &mut self.known, diff: Diff::default(), left_out, count: 0 };
        let root =
            walk.visit(None, Child { name: String::new(), raw: None, id: CgroupId(root.ino()) }, &self.dir);
        let unread = root.map(|(root, dir)| walk.descend(&root, &dir, top)).unwrap_or_default();
        let Walk { mut diff, left_out, .. } = walk;

        self.known.retain(|&id, known| {
            let above = || iter::successors(parent_of(&known.cgroup.path), |path| parent_of(path));
            let kept = known.round == self.round || above().any(|path| unread.contains(path));
            if !kept {
                diff.removed.push(id);
            }
            kept
        });
        diff.removed.sort_unstable();
        self.left_out = left_out;
        Ok(diff)
    }

    /// Updates the metadata of all cgroups of containers, and adds those whose metadata changed to `diff`, parents before their children.
    pub fn describe(&mut self, metadata: &dyn ContainerMetadata, diff: &mut Diff<Arc<Cgroup>, CgroupId>) {
        let is_of_container = |path: &str| ContainerPath::of(path).is_some() || pod_uid(path).is_some();
        let mut known: Vec<&mut Known> =
            self.known.values_mut().filter(|known| is_of_container(&known.cgroup.path)).collect();
        known
            .sort_unstable_by(|a, b| (a.cgroup.depth, &a.cgroup.path).cmp(&(b.cgroup.depth, &b.cgroup.path)));
        let paths: Vec<Arc<str>> = known.iter().map(|known| Arc::clone(&known.cgroup.path)).collect();
        let places = |list: &[Arc<Cgroup>]| -> HashMap<CgroupId, usize> {
            list.iter().enumerate().map(|(place, cgroup)| (cgroup.id, place)).collect()
        };
        let (added, changed) = (places(&diff.added), places(&diff.changed));
        for (known, container) in known.into_iter().zip(metadata.identities(&paths)) {
            if known.cgroup.container == container {
                continue;
            }
            let described = Arc::new(Cgroup { container, ..Cgroup::clone(&known.cgroup) });
            known.cgroup = Arc::clone(&described);
            let id = described.id;
            let listed = match (added.get(&id), changed.get(&id)) {
                (Some(&place), _) => diff.added.get_mut(place),
                (None, Some(&place)) => diff.changed.get_mut(place),
                (None, None) => None,
            };
            match listed {
                Some(listed) => *listed = described,
                None => diff.changed.push(described),
            }
        }
    }

    /// Returns the cgroups that the last refresh found, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Cgroup>> {
        self.known.values().map(|known| &known.cgroup)
    }

    /// Returns the number of cgroups that the last refresh found and skipped. Their counts are still included in those of the cgroups above
    /// them.
    pub fn left_out(&self) -> SkippedTargets {
        self.left_out
    }

    /// Opens the directory of a cgroup, for `PERF_FLAG_PID_CGROUP`.
    ///
    /// # Errors
    /// The kernel's error; `ENOENT` also if a different cgroup has the path by now.
    pub fn open(&self, cgroup: &Cgroup) -> Result<File, FileError> {
        let absent = |dir: &Path| FileError::io(dir, &io::Error::from_raw_os_error(libc::ENOENT));
        let Some(known) = self.known.get(&cgroup.id) else {
            return Err(absent(&self.dir.join(cgroup.path.trim_start_matches('/'))));
        };
        let opened = File::open(&known.dir).and_then(|file| Ok((file.metadata()?.ino(), file)));
        match opened {
            Ok((inode, file)) if inode == cgroup.id.0 => Ok(file),
            Ok(_) => Err(absent(&known.dir)),
            Err(error) => Err(FileError::io(&*known.dir, &error)),
        }
    }
}

/// State of one refresh.
struct Walk<'a> {
    known: &'a mut HashMap<CgroupId, Known>,
    round: u64,
    diff: Diff<Arc<Cgroup>, CgroupId>,
    left_out: SkippedTargets,
    count: usize,
}

impl Walk<'_> {
    /// Visits everything below `root`, whose children are in `top`. Returns the paths that could not be read.
    fn descend(&mut self, root: &Arc<Cgroup>, dir: &Arc<Path>, top: Vec<Child>) -> HashSet<Arc<str>> {
        let mut unread = HashSet::new();
        let mut pending = vec![(Arc::clone(root), Arc::clone(dir), Some(top))];
        while let Some((parent, dir, read)) = pending.pop() {
            let room = COUNT_LIMIT - self.count;
            let children = match read.map_or_else(|| children(&dir, room, &mut self.left_out), Ok) {
                Ok(children) => children,
                Err(error) => {
                    let obstacle = Obstacle::of(&error);
                    self.left_out.count(obstacle);
                    if obstacle != Obstacle::Absent {
                        unread.insert(Arc::clone(&parent.path));
                    }
                    continue;
                }
            };
            if parent.depth == DEPTH_LIMIT {
                self.left_out.too_deep += children.len();
                continue;
            }
            for child in children {
                let visited = self.visit(Some(&parent), child, &dir);
                pending.extend(visited.map(|(cgroup, dir)| (cgroup, dir, None)));
            }
        }
        unread
    }

    /// Adds a cgroup to the known ones. Returns `None` if it is skipped.
    fn visit(
        &mut self,
        parent: Option<&Cgroup>,
        child: Child,
        dir: &Arc<Path>,
    ) -> Option<(Arc<Cgroup>, Arc<Path>)> {
        if self.count == COUNT_LIMIT {
            self.left_out.too_many += 1;
            return None;
        }
        let above = parent.map_or("", |parent| if parent.depth == 0 { "" } else { &parent.path });
        match self.known.get_mut(&child.id) {
            // It was moved during the scan, and is found for the second time.
            Some(known) if known.round == self.round => return None,
            Some(known) if is_named(&known.cgroup.path, above, &child.name) => {
                known.round = self.round;
                self.count += 1;
                return Some((Arc::clone(&known.cgroup), Arc::clone(&known.dir)));
            }
            _ => {}
        }
        let cgroup = Arc::new(Cgroup {
            id: child.id,
            path: format!("{above}/{}", child.name).into(),
            depth: parent.map_or(0, |parent| parent.depth + 1),
            container: None,
        });
        let dir: Arc<Path> = match parent {
            Some(_) => dir.join(child.raw.unwrap_or_else(|| child.name.into())).into(),
            None => Arc::clone(dir),
        };
        let known = Known { cgroup: Arc::clone(&cgroup), dir: Arc::clone(&dir), round: self.round };
        let renamed = self.known.insert(child.id, known).is_some();
        let list = if renamed { &mut self.diff.changed } else { &mut self.diff.added };
        list.push(Arc::clone(&cgroup));
        self.count += 1;
        Some((cgroup, dir))
    }
}

/// Reports whether `path` is `above`, a slash and `name`.
fn is_named(path: &str, above: &str, name: &str) -> bool {
    path.strip_prefix(above).and_then(|rest| rest.strip_prefix('/')) == Some(name)
}

/// Returns the directories in `dir`, at most `room` of them, sorted by name and with distinct names. Counts the others in `left_out`.
fn children(dir: &Path, room: usize, left_out: &mut SkippedTargets) -> Result<Vec<Child>, FileError> {
    let failed = |error: io::Error| FileError::io(dir, &error);
    // A directory with two links has no subdirectory, as most cgroups. This check avoids reading the names of all their control files. (One
    // link means that the file system does not count subdirectories.)
    if fs::metadata(dir).map_err(failed)?.nlink() == 2 {
        return Ok(Vec::new());
    }
    let mut children = Vec::new();
    for entry in host::entries(dir)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if children.len() == room {
            left_out.too_many += 1;
            continue;
        }
        let (name, raw) = match entry.file_name().into_string() {
            Ok(name) => (name, None),
            Err(raw) => (raw.to_string_lossy().into_owned(), Some(raw)),
        };
        children.push(Child { name, raw, id: CgroupId(entry.ino()) });
    }
    // Two series with the same labels would make the scrape invalid. The directory whose name really is the printable form comes first.
    children.sort_unstable_by(|a, b| (&a.name, &a.raw, a.id).cmp(&(&b.name, &b.raw, b.id)));
    let met = children.len();
    children.dedup_by(|later, earlier| later.name == earlier.name);
    left_out.ambiguous += met - children.len();
    Ok(children)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::process;

    use super::*;
    use crate::error::Errno;
    use crate::host::Roots;
    use crate::targets::CgroupMount;
    use crate::targets::testing::unprivileged;

    fn tree(paths: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in paths {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        dir
    }

    fn paths(cgroups: &[Arc<Cgroup>]) -> Vec<&str> {
        cgroups.iter().map(|cgroup| &*cgroup.path).collect()
    }

    fn sorted(cgroups: &[Arc<Cgroup>]) -> Vec<&str> {
        let mut paths = paths(cgroups);
        paths.sort_unstable();
        paths
    }

    fn inode(path: &Path) -> CgroupId {
        CgroupId(fs::metadata(path).unwrap().ino())
    }

    #[test]
    fn the_first_look_adds_everything_and_the_second_nothing() {
        let dir = tree(&["a/b", "c"]);
        fs::write(dir.path().join("cgroup.procs"), "1").unwrap();
        let mut cgroups = Cgroups::new(dir.path());
        let diff = cgroups.refresh().unwrap();
        assert_eq!(sorted(&diff.added), ["/", "/a", "/a/b", "/c"]);
        let b = diff.added.iter().find(|cgroup| &*cgroup.path == "/a/b").unwrap();
        assert_eq!((b.id, b.depth), (inode(&dir.path().join("a/b")), 2));
        assert!(cgroups.refresh().unwrap().is_empty());
        assert_eq!(cgroups.left_out(), SkippedTargets::default());
    }

    #[test]
    fn parents_are_added_before_their_children() {
        let dir = tree(&["a/b/c", "d/e", "d/f/g"]);
        let added = Cgroups::new(dir.path()).refresh().unwrap().added;
        for (place, cgroup) in added.iter().enumerate().skip(1) {
            let parent = parent_of(&cgroup.path).unwrap();
            assert!(paths(&added[..place]).contains(&parent), "{}", cgroup.path);
        }
    }

    #[test]
    fn what_goes_takes_everything_below_it_along() {
        let dir = tree(&["a/b", "c"]);
        let mut cgroups = Cgroups::new(dir.path());
        cgroups.refresh().unwrap();
        let mut gone = vec![inode(&dir.path().join("a")), inode(&dir.path().join("a/b"))];
        gone.sort_unstable();
        // In this order, because the test's file system reuses an inode at once, unlike the kernel's cgroup file system.
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        let diff = cgroups.refresh().unwrap();
        assert_eq!(diff.removed, gone);
        assert_eq!(paths(&diff.added), ["/d"]);
    }

    #[test]
    fn a_cgroup_made_again_under_the_same_path_is_another_one() {
        let dir = tree(&["a"]);
        let mut cgroups = Cgroups::new(dir.path());
        let before = cgroups.refresh().unwrap().added.pop().unwrap();
        fs::create_dir(dir.path().join("new")).unwrap();
        fs::remove_dir(dir.path().join("a")).unwrap();
        fs::rename(dir.path().join("new"), dir.path().join("a")).unwrap();
        assert_eq!(cgroups.open(&before).unwrap_err().errno(), Some(Errno::ENOENT));
        let diff = cgroups.refresh().unwrap();
        assert_eq!(diff.removed, [before.id]);
        assert_eq!(paths(&diff.added), ["/a"]);
        assert!(cgroups.open(&diff.added[0]).is_ok());
        assert_eq!(cgroups.open(&before).unwrap_err().errno(), Some(Errno::ENOENT));
    }

    #[test]
    fn a_renamed_cgroup_is_the_same_one_and_so_are_those_below_it() {
        let dir = tree(&["a/b"]);
        let mut cgroups = Cgroups::new(dir.path());
        cgroups.refresh().unwrap();
        fs::rename(dir.path().join("a"), dir.path().join("z")).unwrap();
        let diff = cgroups.refresh().unwrap();
        assert_eq!(paths(&diff.changed), ["/z", "/z/b"]);
        assert!(diff.added.is_empty() && diff.removed.is_empty());
        assert!(cgroups.open(&diff.changed[1]).is_ok());
    }

    #[test]
    fn an_unreadable_directory_hides_nothing_that_was_known() {
        let dir = tree(&["a/b/c", "d"]);
        let mut cgroups = Cgroups::new(dir.path());
        cgroups.refresh().unwrap();
        let a = dir.path().join("a");
        fs::set_permissions(&a, fs::Permissions::from_mode(0o0)).unwrap();
        fs::remove_dir(dir.path().join("d")).unwrap();
        let (diff, mut cgroups) = unprivileged(move || (cgroups.refresh().unwrap(), cgroups));
        assert_eq!(diff.removed.len(), 1);
        assert_eq!(cgroups.left_out(), SkippedTargets { forbidden: 1, ..SkippedTargets::default() });
        fs::set_permissions(&a, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(cgroups.refresh().unwrap().is_empty());
    }

    #[test]
    fn an_absent_root_is_an_error_and_nothing_is_forgotten() {
        let dir = tree(&["root/a"]);
        let (root, away) = (dir.path().join("root"), dir.path().join("away"));
        let mut cgroups = Cgroups::new(&root);
        assert_eq!(cgroups.refresh().unwrap().added.len(), 2);
        fs::rename(&root, &away).unwrap();
        assert!(cgroups.refresh().unwrap_err().is_absent());
        fs::rename(&away, &root).unwrap();
        assert!(cgroups.refresh().unwrap().is_empty());
    }

    #[test]
    fn names_of_every_kind_are_followed_and_can_be_opened() {
        let dir = tree(&[r"a\x2db.scope", "new\nline", "blank tab\t", &"x".repeat(255)]);
        fs::create_dir(dir.path().join(OsStr::from_bytes(b"odd\xff"))).unwrap();
        let mut cgroups = Cgroups::new(dir.path());
        let added = cgroups.refresh().unwrap().added;
        let long = format!("/{}", "x".repeat(255));
        assert_eq!(
            sorted(&added),
            ["/", r"/a\x2db.scope", "/blank tab\t", "/new\nline", "/odd\u{fffd}", &long]
        );
        for cgroup in &added {
            assert_eq!(CgroupId(cgroups.open(cgroup).unwrap().metadata().unwrap().ino()), cgroup.id);
        }
        assert!(cgroups.refresh().unwrap().is_empty());
    }

    #[test]
    fn of_two_names_that_print_alike_the_true_one_is_followed() {
        let dir = tree(&["odd\u{fffd}"]);
        fs::create_dir(dir.path().join(OsStr::from_bytes(b"odd\xff"))).unwrap();
        fs::create_dir(dir.path().join(OsStr::from_bytes(b"odd\xfe"))).unwrap();
        let mut cgroups = Cgroups::new(dir.path());
        let added = cgroups.refresh().unwrap().added;
        assert_eq!(paths(&added), ["/", "/odd\u{fffd}"]);
        assert_eq!(added[1].id, inode(&dir.path().join("odd\u{fffd}")));
        assert_eq!(cgroups.left_out(), SkippedTargets { ambiguous: 2, ..SkippedTargets::default() });
    }

    #[test]
    fn below_the_depth_limit_nothing_is_followed() {
        let deep = "d/".repeat(DEPTH_LIMIT + 2);
        let dir = tree(&[&deep]);
        let mut cgroups = Cgroups::new(dir.path());
        let added = cgroups.refresh().unwrap().added;
        assert_eq!(added.iter().map(|cgroup| cgroup.depth).max(), Some(DEPTH_LIMIT));
        assert_eq!(cgroups.left_out(), SkippedTargets { too_deep: 1, ..SkippedTargets::default() });
    }

    #[test]
    fn a_path_that_is_too_long_to_open_is_counted_and_its_siblings_are_followed() {
        let dir = tree(&["a/b"]);
        let name = "n".repeat(250);
        let mut at = File::open(dir.path()).unwrap();
        for _ in 0..20 {
            rustix::fs::mkdirat(&at, &name, 0o755.into()).unwrap();
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
            at = rustix::fs::openat(&at, &name, flags, 0.into()).unwrap().into();
        }
        let mut cgroups = Cgroups::new(dir.path());
        let added = cgroups.refresh().unwrap().added;
        assert!(paths(&added).contains(&"/a/b"));
        assert_eq!(cgroups.left_out(), SkippedTargets { broken: 1, ..SkippedTargets::default() });
    }

    #[test]
    fn over_the_limit_on_their_number_directories_are_counted_and_the_others_kept() {
        let dir = tree(&["a", "b", "c"]);
        let mut left_out = SkippedTargets::default();
        assert_eq!(children(dir.path(), 2, &mut left_out).unwrap().len(), 2);
        assert_eq!(left_out, SkippedTargets { too_many: 1, ..SkippedTargets::default() });
    }

    #[test]
    fn links_and_files_are_no_cgroups() {
        let dir = tree(&["a"]);
        std::os::unix::fs::symlink("..", dir.path().join("a/up")).unwrap();
        fs::write(dir.path().join("a/cpu.stat"), "").unwrap();
        assert_eq!(paths(&Cgroups::new(dir.path()).refresh().unwrap().added), ["/", "/a"]);
    }

    /// Against the kernel: readdir and `stat` return the same ID, and creation and removal of a cgroup are detected.
    #[test]
    fn a_real_cgroup_comes_and_goes() {
        let mount = match CgroupMount::find(&Roots::default()) {
            Ok(mount) => mount,
            Err(absent) => return println!("skipped: {absent}"),
        };
        let mut cgroups = Cgroups::new(mount.dir());
        cgroups.refresh().unwrap();
        let name = format!("perf-exporter-test-{}", process::id());
        let dir = mount.dir().join(&name);
        if let Err(error) = fs::create_dir_all(dir.join("inner")) {
            return println!("skipped: cannot create a cgroup: {}", FileError::io(dir, &error));
        }
        let appeared = cgroups.refresh().unwrap();
        let (outer_id, inner_id) = (inode(&dir), inode(&dir.join("inner")));
        fs::remove_dir(dir.join("inner")).unwrap();
        fs::remove_dir(&dir).unwrap();
        let vanished = cgroups.refresh().unwrap();

        // Other tests create cgroups, too.
        let ours: Vec<_> = appeared.added.iter().filter(|cgroup| cgroup.path.contains(&name)).collect();
        let inner = format!("/{name}/inner");
        assert_eq!(
            ours.iter().map(|cgroup| (&*cgroup.path, cgroup.id)).collect::<Vec<_>>(),
            [(&inner[..=name.len()], outer_id), (&*inner, inner_id)]
        );
        assert!(vanished.removed.contains(&outer_id) && vanished.removed.contains(&inner_id));
    }
}
