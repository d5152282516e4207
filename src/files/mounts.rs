//! Detection of file systems that can block, and of paths that lead into them, without a request to any of them.
//!
//! Source of the format: `proc_pid_mountinfo(5)`.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use crate::host;

/// File systems that are in memory or on a local disk. All others depend on another process or machine.
const LOCAL: [&str; 30] = [
    "bcachefs",
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devtmpfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "iso9660",
    "jfs",
    "mqueue",
    "proc",
    "ramfs",
    "rootfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
];
/// Maximum number of mounts per namespace; a node with a thousand containers has about ten thousand.
const MAX_MOUNTS: usize = 1 << 16;
/// Maximum number of directories and links in a path lookup.
const MAX_STEPS: usize = 256;

/// Mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Mount {
    /// Device of the file system, which is the same for all of its mounts.
    pub(super) device: (u32, u32),
    /// Mount point as seen by its processes.
    pub(super) point: PathBuf,
    pub(super) kind: String,
}

#[derive(Debug)]
struct Entry {
    mount: Mount,
    can_hang: bool,
}

/// Mount that is missing from the list: it was mounted later, or is not visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unlisted;

/// Mounts visible to a process.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    by_id: BTreeMap<u64, Entry>,
    /// The most recent mount at a mount point hides earlier ones.
    by_point: BTreeMap<PathBuf, u64>,
}

impl Mounts {
    /// Reads `mountinfo` in the `/proc` directory of a process, for which the kernel sends no request to a file system. An unreadable file
    /// yields an empty list. `host` contains the mounts in which container runtimes resolve the layers of an overlay.
    pub(super) fn read(process: &Path, host: Option<&Self>) -> Self {
        let mut mounts = Self::default();
        let text = host::read_text(&process.join("mountinfo")).unwrap_or_default();
        for (id, mount, options) in text.lines().take(MAX_MOUNTS).filter_map(parse) {
            let can_hang = match &*mount.kind {
                "overlay" => {
                    host.is_some_and(|host| layers(options).any(|layer| host.holding(&layer).is_some()))
                }
                kind => !LOCAL.contains(&kind),
            };
            mounts.by_point.insert(mount.point.clone(), id);
            mounts.by_id.insert(id, Entry { mount, can_hang });
        }
        mounts
    }

    /// Returns the file system with this device, if it can block.
    ///
    /// # Errors
    /// The list has no file system with this device.
    pub(super) fn of_device(&self, device: (u32, u32)) -> Result<Option<&Mount>, Unlisted> {
        self.by_id
            .values()
            .find(|entry| entry.mount.device == device)
            .map(Entry::if_it_can_hang)
            .ok_or(Unlisted)
    }

    /// Returns the file system with this mount ID, if it can block.
    ///
    /// # Errors
    /// The list has no mount with this ID.
    pub(super) fn of_id(&self, id: u64) -> Result<Option<&Mount>, Unlisted> {
        self.by_id.get(&id).map(Entry::if_it_can_hang).ok_or(Unlisted)
    }

    /// Returns the file system of a descriptor, if it can block, without a request to any file system.
    ///
    /// # Errors
    /// The mount is not in the list.
    pub(super) fn of_place(&self, place: &OwnedFd) -> Result<Option<&Mount>, Unlisted> {
        mount_id(place).map_or(Ok(None), |id| self.of_id(id))
    }

    /// Returns the file system that is mounted at exactly this path, if it can block.
    fn at(&self, point: &Path) -> Option<&Mount> {
        self.by_id.get(self.by_point.get(point)?)?.if_it_can_hang()
    }

    /// Returns the file system that contains a path without links, if it can block.
    fn holding(&self, path: &Path) -> Option<&Mount> {
        let id = path.ancestors().find_map(|dir| self.by_point.get(dir))?;
        self.by_id.get(id)?.if_it_can_hang()
    }

    /// Returns the first file system on a path that can block. The path is resolved below `root` with links that cannot leave it. The
    /// lookup stops before that file system. Returns `None` also if the path does not exist.
    ///
    /// # Errors
    /// The path leads into a mount that is not in the list. The lookup stops before it.
    pub(super) fn entered(&self, root: OwnedFd, path: &Path) -> Result<Option<&Mount>, Unlisted> {
        if let Some(mount) = self.at(Path::new("/")) {
            return Ok(Some(mount));
        }
        let mut walk = Walk { at: vec![root], path: PathBuf::from("/"), left: VecDeque::new() };
        walk.go_on(path);
        for _ in 0..MAX_STEPS {
            let Some(name) = walk.left.pop_front() else { break };
            if name == ".." {
                walk.go_up();
                continue;
            }
            walk.path.push(&name);
            if let Some(mount) = self.at(&walk.path) {
                return Ok(Some(mount));
            }
            let Some(next) = walk.open(&name) else { break };
            if let Some(mount) = self.of_place(&next)? {
                return Ok(Some(mount));
            }
            if walk.enter(next).is_none() {
                break;
            }
        }
        Ok(None)
    }
}

impl Entry {
    fn if_it_can_hang(&self) -> Option<&Mount> {
        self.can_hang.then_some(&self.mount)
    }
}

/// Returns the mount ID of a descriptor, from `fdinfo` of this process.
fn mount_id(place: &OwnedFd) -> Option<u64> {
    let text = host::read_text(Path::new(&format!("/proc/self/fdinfo/{}", place.as_raw_fd()))).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// State of a lookup: the current position and the remaining path.
struct Walk {
    /// Directories on the path, the root first; never empty.
    at: Vec<OwnedFd>,
    path: PathBuf,
    left: VecDeque<OsString>,
}

impl Walk {
    /// Prepends a path to the remaining path.
    fn go_on(&mut self, path: &Path) {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.left.push_front(name.to_owned()),
                Component::ParentDir => self.left.push_front("..".into()),
                Component::RootDir => {
                    self.at.truncate(1);
                    self.path = PathBuf::from("/");
                }
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }

    fn go_up(&mut self) {
        self.path.pop();
        self.at.truncate(self.at.len().saturating_sub(1).max(1));
    }

    /// Opens `name` in the directory, without a request to a file system mounted there.
    fn open(&self, name: &OsStr) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.at.last()?, name, flags, Mode::empty()).ok()
    }

    /// Continues the lookup at `next`, whose path has already been appended.
    fn enter(&mut self, next: OwnedFd) -> Option<()> {
        let is_link = FileType::from_raw_mode(rustix::fs::fstat(&next).ok()?.st_mode) == FileType::Symlink;
        if !is_link {
            self.at.push(next);
            return Some(());
        }
        let link = rustix::fs::readlinkat(next.as_fd(), "", Vec::new()).ok()?;
        self.path.pop();
        self.go_on(Path::new(OsStr::from_bytes(link.to_bytes())));
        Some(())
    }
}

/// Parses the mount ID, the mount, and the options of the file system.
fn parse(line: &str) -> Option<(u64, Mount, &str)> {
    let (own, file_system) = line.split_once(" - ")?;
    let mut fields = own.split(' ');
    let id = fields.next()?.parse().ok()?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let point = PathBuf::from(host::unescaped(fields.nth(1)?));
    let mut fields = file_system.splitn(3, ' ');
    let kind = fields.next()?.to_owned();
    let options = fields.nth(1).unwrap_or_default();
    Some((id, Mount { device: (major.parse().ok()?, minor.parse().ok()?), point, kind }, options))
}

/// Returns the layer directories of an overlay, as paths given by its runtime.
fn layers(options: &str) -> impl Iterator<Item = PathBuf> {
    options
        .split(',')
        .filter_map(|option| option.split_once('='))
        .filter(|(key, _)| matches!(*key, "lowerdir" | "lowerdir+" | "datadir+" | "upperdir"))
        .flat_map(|(_, paths)| paths.split(':'))
        .filter(|path| path.starts_with('/'))
        .map(|path| PathBuf::from(host::unescaped(path)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn mounts(text: &str, host: Option<&Mounts>) -> Mounts {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mountinfo"), text).unwrap();
        Mounts::read(dir.path(), host)
    }

    const ALL: &str = "\
20 1 254:0 / / rw - ext4 /dev/vda rw
21 20 0:50 / /mnt/my\\040files rw shared:1 - fuse.sshfs me@there: rw,user_id=0
22 20 0:51 / /shadowed rw - nfs4 there:/ rw
23 20 0:52 / /shadowed rw - tmpfs tmpfs rw
24 20 0:53 / /auto rw - autofs systemd-1 rw
25 20 0:54 / /images rw - fuse none rw
";

    #[test]
    fn file_systems_that_wait_for_others_can_hang_and_those_of_this_machine_cannot() {
        let mounts = mounts(ALL, None);
        let hangs = |found: Result<Option<&Mount>, Unlisted>| found.map(|mount| mount.is_some());
        assert_eq!(mounts.of_device((0, 50)).unwrap().unwrap().kind, "fuse.sshfs");
        assert_eq!(hangs(mounts.of_device((254, 0))), Ok(false));
        assert_eq!(hangs(mounts.of_device((9, 9))), Err(Unlisted));
        assert_eq!([24, 23, 26].map(|id| hangs(mounts.of_id(id))), [Ok(true), Ok(false), Err(Unlisted)]);
        assert_eq!(mounts.at(Path::new("/mnt/my files")).unwrap().device, (0, 50));
        assert_eq!(mounts.at(Path::new("/shadowed")), None, "the last mount hides the previous one");
        assert_eq!(mounts.holding(Path::new("/mnt/my files/a/b")).unwrap().device, (0, 50));
        assert_eq!(mounts.holding(Path::new("/etc/passwd")), None);
    }

    #[test]
    fn an_overlay_can_hang_if_one_of_its_layers_can() {
        let host = mounts(ALL, None);
        let overlay = |layers: &str| {
            let line = format!("30 1 0:60 / / rw - overlay overlay rw,{layers},workdir=/var/w\n");
            mounts(&line, Some(&host)).at(Path::new("/")).is_some()
        };
        assert!(overlay("lowerdir=/var/a:/images/b,upperdir=/var/u"));
        assert!(overlay("lowerdir=/var/a,upperdir=/images/u"));
        assert!(!overlay("lowerdir=/var/a:/var/b,upperdir=/var/u"));
    }

    #[test]
    fn a_path_is_followed_through_links_up_to_the_mount_and_not_into_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("mnt/my files/inside")).unwrap();
        fs::create_dir_all(at("usr/lib")).unwrap();
        symlink("/mnt", at("usr/absolute")).unwrap();
        symlink("../usr/absolute/my files", at("usr/chain")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("../../../../../../mnt/my files", at("usr/lib/up")).unwrap();
        let root = || rustix::fs::open(dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let here = ALL.replacen("20", &mount_id(&root()).unwrap().to_string(), 1);
        let listed = mounts(&here, None);
        let entered = |path: &str| listed.entered(root(), Path::new(path)).unwrap().map(|mount| mount.device);
        for path in [
            "/mnt/my files/inside/x",
            "/mnt/my files",
            "/usr/chain/x",
            "/usr/../mnt/./my files",
            "/../usr/absolute/my files",
            "/usr/lib/up/x",
        ] {
            assert_eq!(entered(path), Some((0, 50)), "{path}");
        }
        for path in ["/usr/lib", "/mnt", "/loop", "/missing/mnt/my files", "/usr/lib/../lib"] {
            assert_eq!(entered(path), None, "{path}");
        }
        let before = mounts("", None);
        assert_eq!(before.entered(root(), Path::new("/usr/lib")), Err(Unlisted), "it was mounted later");
    }

    #[test]
    fn lines_that_are_no_mounts_are_passed_over() {
        let broken = "x\n1 2 3:4\n1 2 a:b / / rw - ext4 x rw\n1 2 3:4 / /a\\0 rw - fuse\n - \n";
        assert_eq!(mounts(broken, None).by_id.len(), 1);
    }
}
