//! The cgroup hierarchy of the `perf_event` controller.
//!
//! The kernel attaches the controller to one hierarchy only. This is cgroup v1 if a hierarchy with `perf_event` is mounted, otherwise
//! cgroup v2, where it is always enabled. Sources of the formats: `proc(5)` for `mountinfo`, `cgroups(7)` for `/proc/cgroups` and
//! `/proc/PID/cgroup`, `cgroup_namespaces(7)` for paths with `..`.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::{Cgroups, parent_of};
use crate::error::FileError;
use crate::host::{self, Roots, unescaped};

/// The directory of the hierarchy of `perf_event`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    hierarchy: Hierarchy,
    dir: PathBuf,
    /// The cgroup at `dir`, as named in our cgroup namespace: `/`; `/a` if a part of the tree is mounted; `/../..` if the mount reaches
    /// above the namespace.
    root: String,
    /// The cgroup that is `/` in our cgroup namespace, as a path below `dir`; known only if `root` has `..`.
    namespace: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hierarchy {
    V1,
    V2,
}

/// Reason why counting per cgroup is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CgroupAbsent {
    /// `/proc/cgroups` does not list the controller.
    #[error(
        "the kernel has no perf_event cgroup controller: counting per cgroup needs a kernel with CONFIG_CGROUP_PERF"
    )]
    NotBuilt,
    /// The controller was disabled at boot.
    #[error(
        "the perf_event cgroup controller is disabled: remove perf_event from cgroup_disable= on the kernel command \
         line and reboot"
    )]
    Disabled,
    /// The controller is on cgroup v2, which is not mounted.
    #[error(
        "no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup (in a container, mount the host's \
         /sys/fs/cgroup into it)"
    )]
    NotMounted,
    /// The controller is on a cgroup v1 hierarchy that is not mounted here. Until it is released, counting on cgroup v2 fails: the kernel
    /// returns `ENOENT`.
    #[error(
        "perf_event is on the cgroup v1 hierarchy {hierarchy}, which is not mounted where this process can see it: in \
         a container, mount the host's /sys/fs/cgroup into it; if it is not mounted anywhere, release it: \
         mount -t cgroup -o perf_event none DIR, wait a second, umount DIR"
    )]
    Detached {
        /// Its number in `/proc/cgroups`.
        hierarchy: u32,
    },
    /// A file or directory could not be read.
    #[error(
        "cgroups cannot be found: {0} (in a container, mount the host's /proc and /sys/fs/cgroup into it)"
    )]
    Unreadable(#[from] FileError),
}

impl CgroupMount {
    /// Finds the hierarchy in `/proc/cgroups` and in the mount table: that of this process, or that of process 1 if the host's files are
    /// below a prefix. Of several mounts of the hierarchy, selects the one that contains most of the tree.
    ///
    /// # Errors
    /// Returns the reason and the remedy.
    pub fn find(roots: &Roots) -> Result<Self, CgroupAbsent> {
        let table = mount_table(roots)?;
        let mut mounts: Vec<Mount> = table.lines().filter_map(Mount::parse).collect();
        let hierarchy = match controller(roots)? {
            (_, false) => return Err(CgroupAbsent::Disabled),
            (0, true) => Hierarchy::V2,
            (hierarchy, true) if !mounts.iter().any(|mount| mount.hierarchy == Hierarchy::V1) => {
                return Err(CgroupAbsent::Detached { hierarchy });
            }
            _ => Hierarchy::V1,
        };
        mounts.retain(|mount| mount.hierarchy == hierarchy);
        mounts.sort_by_key(Mount::narrowness);

        let mut refusal = CgroupAbsent::NotMounted;
        for Mount { root, point, .. } in mounts {
            let dir = roots.mounted(&point);
            match fs::metadata(&dir) {
                Ok(_) => {
                    let namespace = namespace(roots, hierarchy, &dir, &root);
                    return Ok(Self { hierarchy, dir, root, namespace });
                }
                Err(error) => refusal = FileError::io(dir, &error).into(),
            }
        }
        Err(refusal)
    }

    /// Returns the directory of the topmost visible cgroup.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the cgroup in the content of a `/proc/PID/cgroup`, as a [`Cgroup::path`](super::Cgroup::path). `None` if it is outside of
    /// the mount, or if its position is not visible from this cgroup namespace.
    pub fn cgroup_of(&self, content: &str) -> Option<Arc<str>> {
        let (ups, path) = climb(own_line(content, self.hierarchy)?);
        let (root_ups, root_path) = climb(&self.root);
        let found = if ups == root_ups {
            let below = path.strip_prefix(root_path)?;
            if !below.is_empty() && !below.starts_with('/') {
                return None;
            }
            below.to_owned()
        } else if ups < root_ups && root_path.is_empty() {
            let namespace = self.namespace.as_deref()?;
            let above = (0..ups).try_fold(namespace, |above, _| parent_of(above))?;
            format!("{}{path}", above.trim_end_matches('/'))
        } else {
            return None;
        };
        Some(if found.is_empty() { "/".into() } else { found.into() })
    }
}

/// Reads the mount table with paths that [`Roots::mounted`] can open.
fn mount_table(roots: &Roots) -> Result<String, FileError> {
    let elsewhere = roots.prefix.components().any(|part| matches!(part, Component::Normal(_)));
    let own = || host::read_text(&roots.proc.join("self/mountinfo"));
    if !elsewhere {
        return own();
    }
    host::read_text(&roots.proc.join("1/mountinfo")).or_else(|_| own())
}

/// Reads the line of `perf_event` in `/proc/cgroups`. Returns the number of its cgroup v1 hierarchy, or 0 if it is on cgroup v2, and
/// whether it is enabled.
fn controller(roots: &Roots) -> Result<(u32, bool), CgroupAbsent> {
    let path = roots.proc.join("cgroups");
    let text = match host::read_text(&path) {
        Err(error) if error.is_absent() => return Err(CgroupAbsent::NotBuilt),
        text => text?,
    };
    let mut lines = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let fields = lines.find(|fields| fields.first() == Some(&"perf_event")).ok_or(CgroupAbsent::NotBuilt)?;
    match *fields {
        [_, hierarchy, _, enabled] => hierarchy.parse().ok().map(|hierarchy| (hierarchy, enabled != "0")),
        _ => None,
    }
    .ok_or_else(|| FileError::malformed(path, "the line of perf_event does not have four columns").into())
}

/// A line of the mount table that may be the hierarchy of `perf_event`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    hierarchy: Hierarchy,
    root: String,
    point: String,
}

impl Mount {
    /// Parses `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG…] - TYPE SOURCE SUPER_OPTIONS`; `None` for other file systems and for
    /// malformed lines.
    fn parse(line: &str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let kind = file_system.next()?;
        let options = file_system.nth(1)?;
        let hierarchy = match kind {
            "cgroup2" => Hierarchy::V2,
            "cgroup" if options.split(',').any(|option| option == "perf_event") => Hierarchy::V1,
            _ => return None,
        };
        let mut mount = mount.split(' ').skip(3);
        // Bytes that are not UTF-8 become U+FFFD.
        let mut path = || Some(unescaped(mount.next()?).to_string_lossy().into_owned());
        Some(Self { hierarchy, root: path()?, point: path()? })
    }

    /// Returns a sort key that orders mounts with more of the tree first.
    fn narrowness(&self) -> impl Ord + use<> {
        let (ups, path) = climb(&self.root);
        (path.matches('/').count(), usize::MAX - ups)
    }
}

/// Splits `/../../a/b` into the number of `..` and `/a/b`. The remainder of `/` is empty.
fn climb(path: &str) -> (usize, &str) {
    let mut rest = path;
    let mut ups = 0;
    while let Some(after) =
        rest.strip_prefix("/..").filter(|after| after.is_empty() || after.starts_with('/'))
    {
        rest = after;
        ups += 1;
    }
    (ups, if rest == "/" { "" } else { rest })
}

/// Returns the path in the line of this hierarchy: `4:cpu,perf_event:/a` or `0::/a`.
fn own_line(content: &str, hierarchy: Hierarchy) -> Option<&str> {
    content.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let found = match hierarchy {
            Hierarchy::V1 => controllers.split(',').any(|name| name == "perf_event"),
            Hierarchy::V2 => number == "0" && controllers.is_empty(),
        };
        found.then_some(path)
    })
}

/// Finds the cgroup that is `/` in our cgroup namespace, where the mount reaches above it. This is the case in a container with a private
/// cgroup namespace and a mount of the host's cgroups. The kernel does not report its name, but this process is in it or below it, and is
/// listed in `cgroup.procs`.
fn namespace(roots: &Roots, hierarchy: Hierarchy, dir: &Path, root: &str) -> Option<String> {
    let (ups @ 1.., "") = climb(root) else {
        return None;
    };
    let content = host::read_text(&roots.proc.join("self/cgroup")).ok()?;
    let (0, path) = climb(own_line(&content, hierarchy)?) else {
        return None;
    };
    let link = fs::read_link(roots.proc.join("self")).ok()?;
    let pid: u32 = link.to_str()?.parse().ok()?;
    let depth = ups + path.matches('/').count();
    let holds_us = |cgroup: &str| {
        let procs = host::read_text(&dir.join(cgroup.trim_start_matches('/')).join("cgroup.procs"));
        procs.is_ok_and(|procs| procs.lines().any(|line| line.parse() == Ok(pid)))
    };
    let cgroups = Cgroups::new(dir).refresh().ok()?.added;
    let candidates = cgroups.iter().filter(|cgroup| cgroup.depth == depth);
    let ours = candidates.filter_map(|cgroup| Some((cgroup, cgroup.path.strip_suffix(path)?)));
    ours.into_iter().find(|(cgroup, _)| holds_us(&cgroup.path)).map(|(_, namespace)| namespace.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    const V2_TABLE: &str = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID_TABLE: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V1_TABLE: &str = "\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        33 31 0:30 / /sys/fs/cgroup/net_cls,perf_event rw - cgroup cgroup rw,net_cls,perf_event\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    /// Returns a host with this mount table, `perf_event` on this hierarchy, and these directories.
    fn host(mountinfo: &str, perf_event: u32, dirs: &[&str]) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        fs::create_dir_all(roots.proc.join("77")).unwrap();
        symlink("77", roots.proc.join("self")).unwrap();
        fs::write(roots.proc.join("self/mountinfo"), mountinfo).unwrap();
        let cgroups = format!(
            "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\nperf_event\t{perf_event}\t2\t1\n"
        );
        fs::write(roots.proc.join("cgroups"), cgroups).unwrap();
        for path in dirs {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        (dir, roots)
    }

    /// Returns the directory that is found for `perf_event`, as a path of the host.
    fn found(mountinfo: &str, perf_event: u32, dirs: &[&str]) -> Result<String, CgroupAbsent> {
        let (dir, roots) = host(mountinfo, perf_event, dirs);
        let mount = CgroupMount::find(&roots)?;
        Ok(mount.dir().strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned())
    }

    fn mount(hierarchy: Hierarchy, root: &str, namespace: Option<&str>) -> CgroupMount {
        CgroupMount { hierarchy, dir: "/c".into(), root: root.into(), namespace: namespace.map(Into::into) }
    }

    fn cgroup_of(root: &str, namespace: Option<&str>, path: &str) -> Option<String> {
        let mount = mount(Hierarchy::V2, root, namespace);
        mount.cgroup_of(&format!("1:cpu:/wrong\n0::{path}\n")).map(|path| path.to_string())
    }

    #[test]
    fn each_layout_has_its_directory() {
        assert_eq!(found(V2_TABLE, 0, &["sys/fs/cgroup"]).unwrap(), "sys/fs/cgroup");
        assert_eq!(found(HYBRID_TABLE, 0, &["sys/fs/cgroup/unified"]).unwrap(), "sys/fs/cgroup/unified");
        let v1 = "sys/fs/cgroup/net_cls,perf_event";
        assert_eq!(found(V1_TABLE, 4, &[v1, "sys/fs/cgroup/unified"]).unwrap(), v1);
    }

    #[test]
    fn a_v1_hierarchy_that_lingers_unmounted_is_not_cgroup_v2() {
        let absent = found(HYBRID_TABLE, 9, &["sys/fs/cgroup/unified"]).unwrap_err();
        assert_eq!(absent, CgroupAbsent::Detached { hierarchy: 9 });
        assert!(absent.to_string().contains("umount"));
    }

    #[test]
    fn what_is_missing_is_told_apart() {
        assert_eq!(found("", 0, &[]), Err(CgroupAbsent::NotMounted));
        let Err(CgroupAbsent::Unreadable(error)) = found(V2_TABLE, 0, &[]) else { panic!() };
        assert!(error.is_absent() && error.path.ends_with("sys/fs/cgroup"));

        let (_dir, roots) = host(V2_TABLE, 0, &["sys/fs/cgroup"]);
        let cgroups = roots.proc.join("cgroups");
        fs::write(&cgroups, "cpu\t0\t1\t1\n").unwrap();
        assert_eq!(CgroupMount::find(&roots), Err(CgroupAbsent::NotBuilt));
        fs::write(&cgroups, "perf_event\t0\t1\t0\n").unwrap();
        assert_eq!(CgroupMount::find(&roots), Err(CgroupAbsent::Disabled));
        fs::write(&cgroups, "perf_event\tmany\n").unwrap();
        assert!(CgroupMount::find(&roots).unwrap_err().to_string().contains("four columns"));
        fs::remove_file(&cgroups).unwrap();
        assert_eq!(CgroupMount::find(&roots), Err(CgroupAbsent::NotBuilt));
        fs::remove_file(roots.proc.join("self/mountinfo")).unwrap();
        let message = CgroupMount::find(&roots).unwrap_err().to_string();
        assert!(message.contains("mountinfo: ENOENT") && message.contains("mount the host's"), "{message}");
    }

    #[test]
    fn below_a_prefix_the_mount_table_is_that_of_the_host() {
        let (_dir, roots) = host("", 0, &["sys/fs/cgroup", "proc/1"]);
        fs::write(roots.proc.join("1/mountinfo"), V2_TABLE).unwrap();
        assert!(CgroupMount::find(&roots).is_ok());
    }

    #[test]
    fn a_mount_point_may_have_a_blank_in_it() {
        let table = r"30 23 0:26 / /my\040c\134 rw - cgroup2 none rw";
        assert_eq!(found(table, 0, &[r"my c\"]).unwrap(), r"my c\");
    }

    #[test]
    fn of_several_mounts_the_one_that_shows_most_and_is_there_is_taken() {
        let table = "\
            1 1 0:1 /pod /part rw - cgroup2 c rw\n\
            2 1 0:1 / /own rw - cgroup2 c rw\n\
            3 1 0:1 /../.. /whole rw - cgroup2 c rw\n";
        assert_eq!(found(table, 0, &["part", "own", "whole"]).unwrap(), "whole");
        assert_eq!(found(table, 0, &["part", "own"]).unwrap(), "own");
        assert_eq!(found(table, 0, &["part"]).unwrap(), "part");
    }

    #[test]
    fn a_process_is_in_the_cgroup_of_the_hierarchy_that_perf_event_is_on() {
        let content = "9:name=systemd:/s\n4:net_cls,perf_event:/v1/a:b\n0::/v2\n";
        let path = |hierarchy| mount(hierarchy, "/", None).cgroup_of(content);
        assert_eq!(path(Hierarchy::V1).as_deref(), Some("/v1/a:b"));
        assert_eq!(path(Hierarchy::V2).as_deref(), Some("/v2"));
        assert_eq!(mount(Hierarchy::V2, "/", None).cgroup_of("4:cpu:/x\ngarbage\n0:\n"), None);
    }

    #[test]
    fn where_a_part_of_the_tree_is_mounted_paths_are_those_of_the_part() {
        assert_eq!(cgroup_of("/", None, "/").as_deref(), Some("/"));
        assert_eq!(cgroup_of("/pods", None, "/pods/a").as_deref(), Some("/a"));
        assert_eq!(cgroup_of("/pods", None, "/pods").as_deref(), Some("/"));
        assert_eq!(cgroup_of("/pods", None, "/pods2/a"), None);
        assert_eq!(cgroup_of("/pods", None, "/"), None);
        assert_eq!(cgroup_of("/", None, "/../sibling"), None);
        assert_eq!(cgroup_of("/", None, "/..dots/x").as_deref(), Some("/..dots/x"));
    }

    #[test]
    fn in_a_cgroup_namespace_the_hosts_paths_are_found_again() {
        let at = |path| cgroup_of("/../..", Some("/pods/me"), path);
        assert_eq!(at("/../../system/x").as_deref(), Some("/system/x"));
        assert_eq!(at("/../..").as_deref(), Some("/"));
        assert_eq!(at("/../other").as_deref(), Some("/pods/other"));
        assert_eq!(at("/").as_deref(), Some("/pods/me"));
        assert_eq!(at("/child").as_deref(), Some("/pods/me/child"));
        assert_eq!(at("/../../../x"), None);
        assert_eq!(cgroup_of("/..", Some("/me"), "/").as_deref(), Some("/me"));
        assert_eq!(cgroup_of("/../..", None, "/child"), None);
        assert_eq!(cgroup_of("/../..", None, "/../../a").as_deref(), Some("/a"));
        assert_eq!(cgroup_of("/../part", Some("/me"), "/../part/x").as_deref(), Some("/x"));
    }

    #[test]
    fn our_own_place_is_found_by_looking_for_this_process() {
        let table = "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 c rw\n";
        let pods = "sys/fs/cgroup/pods";
        let (dir, roots) = host(table, 0, &[&format!("{pods}/me/sub"), &format!("{pods}/other/sub")]);
        fs::write(roots.proc.join("self/cgroup"), "0::/sub\n").unwrap();
        for (pod, procs) in [("me", "5\n77\n"), ("other", "770\n7\n")] {
            fs::write(dir.path().join(pods).join(pod).join("sub/cgroup.procs"), procs).unwrap();
        }
        let mount = CgroupMount::find(&roots).unwrap();
        assert_eq!(mount.cgroup_of("0::/x").as_deref(), Some("/pods/me/x"));
    }

    proptest! {
        #[test]
        fn no_mount_table_makes_it_panic(line in r"[ -~]{0,20}( - (cgroup|cgroup2) [a-z]{0,3} [a-z_,]{0,12})?") {
            if let Some(mount) = Mount::parse(&line) {
                prop_assert!(line.contains(" - cgroup"));
                prop_assert!(mount.root.len() + mount.point.len() <= line.len());
            }
        }

        #[test]
        fn an_escaped_mount_point_is_read_back(point in r"/[a-z \\\t\n#0-9]{0,12}") {
            let mut escaped = String::new();
            for byte in point.bytes() {
                match byte {
                    b' ' | b'\t' | b'\n' | b'\\' | b'#' => escaped += &format!("\\{byte:03o}"),
                    _ => escaped.push(char::from(byte)),
                }
            }
            let mount = Mount::parse(&format!("1 1 0:1 / {escaped} rw a:1 b:2 - cgroup2 none rw"));
            prop_assert_eq!(mount.map(|mount| mount.point), Some(point));
        }

        #[test]
        fn no_path_makes_it_panic_and_every_answer_is_a_path(
            root in "/(\\.\\./){0,3}[a-b/]{0,4}", path in "/(\\.\\./){0,3}[a-b/]{0,4}",
            content in "[0-9:a-z/.\n]{0,40}",
        ) {
            let mount = mount(Hierarchy::V2, &root, Some("/a/b"));
            for content in [content, format!("0::{path}")] {
                prop_assert!(mount.cgroup_of(&content).is_none_or(|path| path.starts_with('/')));
            }
        }
    }
}
