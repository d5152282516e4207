//! Which cgroup hierarchy perf events see, and where it is mounted.

use std::path::{Path, PathBuf};

use crate::host::{Roots, read_text};

/// The two kinds of hierarchies that the `perf_event` controller can be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// cgroup v2, where it always is unless a v1 hierarchy has taken it.
    V2,
    /// A v1 hierarchy mounted with `-o perf_event`.
    V1,
}

/// The mounted hierarchy that perf events see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// The directory of the root cgroup, as this process opens it.
    pub dir: PathBuf,
    /// Its kind.
    pub hierarchy: Hierarchy,
}

/// Why no cgroup can be counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CgroupsAbsent {
    /// The kernel has no cgroups for perf events, or they were switched off.
    #[error(
        "the kernel does not count per cgroup: it needs CONFIG_CGROUP_PERF and no cgroup_disable=perf_event"
    )]
    Unsupported,
    /// v1 has the controller, and this process cannot see where.
    #[error(
        "perf_event is on a cgroup v1 hierarchy that is not mounted here, so events see no cgroup at all; mount it \
         (mount -t cgroup -o perf_event cgroup DIR), or mount and unmount it to give the controller back to cgroup v2"
    )]
    BoundElsewhere,
    /// No mount.
    #[error(
        "no cgroup file system is mounted; in a container, mount the host's /sys/fs/cgroup (see --host-root)"
    )]
    NotMounted,
}

/// One cgroup mount.
struct Mount {
    dir: PathBuf,
    hierarchy: Hierarchy,
}

impl CgroupMount {
    /// Finds it by the mount table and `/proc/cgroups`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(roots: &Roots) -> Result<Self, CgroupsAbsent> {
        let table = read_text(&roots.proc.join("mounts")).unwrap_or_default();
        let mounts: Vec<Mount> = table.lines().filter_map(|line| mount(line, roots)).collect();
        let wanted = match controller(&read_text(&roots.proc.join("cgroups")).unwrap_or_default()) {
            Controller::Disabled => return Err(CgroupsAbsent::Unsupported),
            Controller::OnV1 => Hierarchy::V1,
            Controller::Free => Hierarchy::V2,
        };
        let found = mounts.into_iter().find(|mount| mount.hierarchy == wanted);
        match (found, wanted) {
            (Some(Mount { dir, hierarchy }), _) => Ok(Self { dir, hierarchy }),
            (None, Hierarchy::V1) => Err(CgroupsAbsent::BoundElsewhere),
            (None, Hierarchy::V2) => Err(CgroupsAbsent::NotMounted),
        }
    }
}

/// Where `/proc/cgroups` says that the controller is.
#[derive(Debug, PartialEq, Eq)]
enum Controller {
    Disabled,
    OnV1,
    Free,
}

/// Reads `/proc/cgroups`: name, hierarchy (0 = none or v2), number of cgroups, enabled. Kernels built without v1 have
/// no such file, or no line for the controller.
fn controller(text: &str) -> Controller {
    let Some(line) = text.lines().find(|line| line.starts_with("perf_event\t")) else {
        return Controller::Free;
    };
    let mut fields = line.split('\t').skip(1);
    match (fields.next(), fields.nth(1)) {
        (_, Some("0")) => Controller::Disabled,
        (Some("0"), _) => Controller::Free,
        _ => Controller::OnV1,
    }
}

/// A line of the mount table, if it is a cgroup mount that perf events may be on and that can be opened.
///
/// Under a host root the table is either the host's, whose paths lie below the root, or this container's own, whose
/// paths begin with it.
fn mount(line: &str, roots: &Roots) -> Option<Mount> {
    let mut fields = line.split(' ');
    let (path, kind, options) = (unescape(fields.nth(1)?), fields.next()?, fields.next()?);
    let hierarchy = match kind {
        "cgroup2" => Hierarchy::V2,
        "cgroup" if options.split(',').any(|option| option == "perf_event") => Hierarchy::V1,
        _ => return None,
    };
    let inside = Path::new(&path).starts_with(&roots.prefix).then(|| PathBuf::from(&path));
    let dir = inside.into_iter().chain([roots.mounted(&path)]).find(|dir| dir.is_dir())?;
    Some(Mount { dir, hierarchy })
}

/// A path of the mount table, in which space, tab, newline and backslash stand as `\040`, `\011`, `\012`, `\134`.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal =
            tail.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                // Three octal digits may exceed a byte (\777), which the kernel never writes.
                bytes.push(
                    digits.iter().fold(0u8, |byte, digit| byte.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use proptest::prelude::*;

    /// A host whose `/proc` has these files, and whose mount points exist.
    fn host(mounts: &str, cgroups: &str, dirs: &[&str]) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        fs::create_dir_all(&roots.proc).unwrap();
        fs::write(roots.proc.join("mounts"), mounts).unwrap();
        fs::write(roots.proc.join("cgroups"), cgroups).unwrap();
        for path in dirs {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        (dir, roots)
    }

    const FREE: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\nperf_event\t0\t73\t1\n";
    const ON_V1: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\nperf_event\t5\t9\t1\n";

    #[test]
    fn the_unified_hierarchy_is_found_in_both_layouts() {
        for path in ["sys/fs/cgroup", "sys/fs/cgroup/unified"] {
            let line = format!("proc /proc proc rw 0 0\ncgroup2 /{path} cgroup2 rw,nsdelegate 0 0\n");
            let (dir, roots) = host(&line, FREE, &[path]);
            let found = CgroupMount::find(&roots).unwrap();
            assert_eq!(found, CgroupMount { dir: dir.path().join(path), hierarchy: Hierarchy::V2 });
        }
    }

    #[test]
    fn a_v1_hierarchy_takes_the_controller_from_v2() {
        let table = "cgroup2 /cg2 cgroup2 rw 0 0\n\
                     cgroup /cg/cpu cgroup rw,cpu 0 0\n\
                     cgroup /cg/perf\\040event cgroup rw,perf_event 0 0\n";
        let (dir, roots) = host(table, ON_V1, &["cg2", "cg/cpu", "cg/perf event"]);
        let found = CgroupMount::find(&roots).unwrap();
        assert_eq!(found, CgroupMount { dir: dir.path().join("cg/perf event"), hierarchy: Hierarchy::V1 });
    }

    #[test]
    fn a_v1_hierarchy_that_lingers_unmounted_is_told_from_no_cgroups_at_all() {
        let (_dir, roots) = host("cgroup2 /cg2 cgroup2 rw 0 0\n", ON_V1, &["cg2"]);
        assert_eq!(CgroupMount::find(&roots), Err(CgroupsAbsent::BoundElsewhere));
        let (_dir, roots) = host("proc /proc proc rw 0 0\n", FREE, &[]);
        assert_eq!(CgroupMount::find(&roots), Err(CgroupsAbsent::NotMounted));
        let disabled = "perf_event\t0\t1\t0\n";
        let (_dir, roots) = host("cgroup2 /cg2 cgroup2 rw 0 0\n", disabled, &["cg2"]);
        assert_eq!(CgroupMount::find(&roots), Err(CgroupsAbsent::Unsupported));
    }

    #[test]
    fn in_a_container_the_hosts_mount_below_the_root_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("host");
        fs::create_dir_all(prefix.join("proc")).unwrap();
        fs::create_dir_all(prefix.join("sys/fs/cgroup")).unwrap();
        let roots = Roots::under(&prefix);
        let own = format!("cgroup2 {} cgroup2 ro 0 0\n", prefix.join("sys/fs/cgroup").display());
        fs::write(roots.proc.join("mounts"), own).unwrap();
        assert_eq!(CgroupMount::find(&roots).unwrap().dir, prefix.join("sys/fs/cgroup"));
    }

    proptest! {
        #[test]
        fn no_mount_table_makes_it_panic(text in "(cgroup2? [^\n]{0,30} cgroup2? [a-z,\\\\0-9]{0,20} 0 0\n){0,5}.{0,40}") {
            let (_dir, roots) = host(&text, FREE, &[]);
            let _ = CgroupMount::find(&roots);
            let _ = unescape(&text);
        }
    }
}
