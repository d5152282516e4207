//! Which file systems can hang, and whether a path leads into one: found out without asking any of them.
//!
//! Source of the format: `proc_pid_mountinfo(5)`.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use crate::host;

/// File systems that answer by themselves, or from a disk of this machine. Any other waits for a program or a machine.
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
/// How many mounts of a namespace are looked at; a node with a thousand containers has some ten thousand.
const MOST_MOUNTS: usize = 1 << 16;
/// How many directories and links a path leads through at most.
const MOST_STEPS: usize = 256;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Mount {
    /// The device of the file system, which is the same wherever it is mounted.
    pub(super) device: (u32, u32),
    /// Where it is mounted, as its processes see it.
    pub(super) point: PathBuf,
    pub(super) kind: String,
}

#[derive(Debug)]
struct Entry {
    mount: Mount,
    can_hang: bool,
}

/// A mount is not among those that were read: it came later, or nobody sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unlisted;

/// The mounts that a process sees.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    by_id: BTreeMap<u64, Entry>,
    /// What is mounted last at a place hides what was there before.
    by_point: BTreeMap<PathBuf, u64>,
}

impl Mounts {
    /// Reads `mountinfo` in the directory of a process in `/proc`. The kernel asks no file system for it. What cannot be
    /// read has no mounts. `host` are the mounts in which container runtimes look up the layers of an overlay.
    pub(super) fn read(process: &Path, host: Option<&Self>) -> Self {
        let mut mounts = Self::default();
        let text = host::read_text(&process.join("mountinfo")).unwrap_or_default();
        for (id, mount, options) in text.lines().take(MOST_MOUNTS).filter_map(parse) {
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

    /// The file system with this device, if it can hang.
    ///
    /// # Errors
    /// There is none with this device.
    pub(super) fn of_device(&self, device: (u32, u32)) -> Result<Option<&Mount>, Unlisted> {
        self.by_id
            .values()
            .find(|entry| entry.mount.device == device)
            .map(Entry::if_it_can_hang)
            .ok_or(Unlisted)
    }

    /// The file system with this number, if it can hang.
    ///
    /// # Errors
    /// There is none with this number.
    pub(super) fn of_id(&self, id: u64) -> Result<Option<&Mount>, Unlisted> {
        self.by_id.get(&id).map(Entry::if_it_can_hang).ok_or(Unlisted)
    }

    /// The same for the file system that a descriptor leads to. Asks no file system.
    ///
    /// # Errors
    /// It is not among these.
    pub(super) fn of_place(&self, place: &OwnedFd) -> Result<Option<&Mount>, Unlisted> {
        mount_id(place).map_or(Ok(None), |id| self.of_id(id))
    }

    /// The file system that can hang at exactly this place.
    fn at(&self, point: &Path) -> Option<&Mount> {
        self.by_id.get(self.by_point.get(point)?)?.if_it_can_hang()
    }

    /// The file system that can hang and that a path without links is in.
    fn holding(&self, path: &Path) -> Option<&Mount> {
        let id = path.ancestors().find_map(|dir| self.by_point.get(dir))?;
        self.by_id.get(id)?.if_it_can_hang()
    }

    /// The first file system that can hang which a path leads into, looked up below `root` with links that cannot leave it.
    /// No step is taken into that file system. `None` also where the path leads nowhere.
    ///
    /// # Errors
    /// The path leads into a mount that is not among these. It is asked nothing.
    pub(super) fn entered(&self, root: OwnedFd, path: &Path) -> Result<Option<&Mount>, Unlisted> {
        if let Some(mount) = self.at(Path::new("/")) {
            return Ok(Some(mount));
        }
        let mut walk = Walk { at: vec![root], path: PathBuf::from("/"), left: VecDeque::new() };
        walk.go_on(path);
        for _ in 0..MOST_STEPS {
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

/// The number of the mount that a descriptor leads to, as this process's `fdinfo` has it.
fn mount_id(place: &OwnedFd) -> Option<u64> {
    let text = host::read_text(Path::new(&format!("/proc/self/fdinfo/{}", place.as_raw_fd()))).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// A look-up under way: where it is, and what is left of the path.
struct Walk {
    /// The directories on the way, the root first; never empty.
    at: Vec<OwnedFd>,
    path: PathBuf,
    left: VecDeque<OsString>,
}

impl Walk {
    /// Puts a path in front of what is left.
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

    /// What `name` is in the directory. A file system that is mounted there is not asked.
    fn open(&self, name: &OsStr) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.at.last()?, name, flags, Mode::empty()).ok()
    }

    /// Goes on there, whose path has been entered already.
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

/// The number, the mount, and the options of the file system itself.
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

/// The directories that an overlay is made of, by the paths that its runtime gave.
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
        assert_eq!(mounts.at(Path::new("/shadowed")), None, "the last mount hides the one before");
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
