//! Opens the file of a probe inside the file system that it is in: ours, that of a process, or that of the processes of
//! a cgroup.
//!
//! Whoever is in a container decides what its paths lead to. So they are looked up with the root of the process as the
//! top of everything, whatever links say (`openat2` with `RESOLVE_IN_ROOT`, Linux 5.6); nothing is opened for reading
//! before it is known to be a regular file, for opening a device can do things; and the kernel is given the file that
//! was opened, not its path.
//!
//! A probe is on the file, whoever executes it. Containers of one image that share a layer on disk (overlayfs) share its
//! files: a probe found through one of them counts the calls of all.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};

use super::Root;
use super::binary::{Binary, BinaryError};
use crate::error::{Errno, FileError, printable};
use crate::event::FileId;
use crate::host::{self, ReadAt, Roots};

/// The most processes of a cgroup whose file systems are looked into.
const PROCESS_LIMIT: usize = 256;
/// The most cgroups below one that are searched for processes.
const CGROUP_LIMIT: usize = 1024;
/// The most names of a directory among which one that was misspelt is sought.
const NAMES_LIMIT: usize = 4096;
/// How many directories of a path are tried to find the one that is missing.
const DEPTH_LIMIT: usize = 64;
/// How often a lookup is begun anew because somebody renamed a directory on the way.
const ATTEMPTS: usize = 16;

/// A file that a probe is to be put in.
#[derive(Debug)]
pub struct Opened {
    /// The file, open for reading. Keep it for as long as [`kernel_path`](Self::kernel_path) is used.
    pub file: File,
    /// Where a person on the host finds it: `/proc/PID/root/…` for a container's.
    pub shown: PathBuf,
    /// The process through which it was found.
    pub pid: Option<u32>,
}

/// Why a file cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// The path does not begin at the root.
    #[error("{} is not an absolute path: begin it with /", printable(.0))]
    NotAbsolute(String),
    /// There is no such process.
    #[error("there is no process {0}, or it has ended: its files can be found only while it runs")]
    NoProcess(u32),
    /// There is no such cgroup.
    #[error("there is no cgroup {}: it appears when its first process starts; start it and reload", printable(.0))]
    NoCgroup(String),
    /// Neither the cgroup nor any below it has a process.
    #[error(
        "no process is in cgroup {}: the files of a container are found through one; start it and reload",
        printable(.0)
    )]
    NoProcesses(String),
    /// This process may not look into that of others.
    #[error("the file system of process {pid} cannot be looked at ({errno}): that needs CAP_SYS_PTRACE")]
    ProcessForbidden {
        /// The process.
        pid: u32,
        /// The kernel's answer.
        errno: Errno,
    },
    /// This process may not look up the files that others have mapped.
    #[error(
        "{} cannot be looked at ({errno}): that needs CAP_CHECKPOINT_RESTORE (Linux 5.9) or CAP_SYS_ADMIN", shown(.path)
    )]
    MappingForbidden {
        /// The mapping.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// This process may not read the file.
    #[error("{} cannot be read ({errno}): give this user the right to, or CAP_DAC_READ_SEARCH", shown(.path))]
    FileForbidden {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The file is not there, or a directory on the way to it.
    #[error("{} is not there{}", shown(.missing), remark(.link.as_deref(), .near.as_deref()))]
    Absent {
        /// The first part of the path that is missing.
        missing: PathBuf,
        /// What it leads to, if it is a symbolic link; that is what is missing then.
        link: Option<PathBuf>,
        /// A name much like it in the same directory.
        near: Option<String>,
    },
    /// It cannot hold code.
    #[error("{} is {what}, not a regular file: name the program or library", shown(.path))]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The path leads through a link of `/proc`, or through links without end.
    #[error(
        "{} leads through a link that is not followed: one of /proc, which leads out of a container, or too many; name \
         the file without it",
        shown(.0)
    )]
    Link(PathBuf),
    /// The kernel cannot look up a path within a root.
    #[error(
        "paths inside of containers need the system call openat2 (Linux 5.6), which this kernel, or the seccomp filter \
         of this container, refuses: name the file by a path of the host"
    )]
    NoOpenat2,
    /// Something else is wrong.
    #[error("{0}")]
    Unreadable(#[from] FileError),
}

impl Opened {
    /// The headers of the file.
    ///
    /// # Errors
    /// As [`Binary::read`].
    pub fn binary(&self) -> Result<Binary<'_>, BinaryError> {
        Binary::read(self, &self.shown)
    }

    /// The headers of the file, which is closed with them.
    ///
    /// # Errors
    /// As [`Binary::read`].
    pub fn into_binary(self) -> Result<Binary<'static>, BinaryError> {
        let shown = self.shown.clone();
        Binary::read(self, &shown)
    }

    /// Which file it is; `None` if the kernel does not say.
    pub fn id(&self) -> Option<FileId> {
        let metadata = self.file.metadata().ok()?;
        Some(FileId { device: metadata.dev(), inode: metadata.ino() })
    }

    /// The path by which the kernel finds exactly this file, while it is open here: its canonical path if it is the
    /// host's and that can be written to `uprobe_events`, else that of our descriptor, which nobody can put another
    /// file behind.
    pub fn kernel_path(&self) -> PathBuf {
        let descriptor = descriptor_path(&self.file);
        if self.pid.is_some() {
            return descriptor;
        }
        match fs::read_link(&descriptor) {
            Ok(path) if is_word(&path) && is_same(&self.file, &path) => path,
            _ => descriptor,
        }
    }
}

impl ReadAt for Opened {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        ReadAt::read_at(&self.file, buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

/// The path of a descriptor of this process. That is always below our own `/proc`, wherever the host's is mounted.
fn descriptor_path(fd: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Whether the parser of `uprobe_events` takes it for one word: it splits at blanks, and `#` begins a comment.
fn is_word(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().all(|&byte| byte.is_ascii_graphic() && byte != b'#')
}

/// Whether a path still leads to an open file.
fn is_same(file: &File, path: &Path) -> bool {
    let [Ok(own), Ok(there)] = [file.metadata(), fs::metadata(path)] else { return false };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}

/// Opens a file by its path in a root. `cgroup_dir` is the directory of the cgroup that `root` names; of its processes,
/// and of those below it, the first one that has the file lends its root.
///
/// # Errors
/// Says which part is missing, forbidden or of the wrong kind.
pub fn open(root: &Root, path: &str, roots: &Roots, cgroup_dir: Option<&Path>) -> Result<Opened, RootError> {
    if !path.starts_with('/') {
        return Err(RootError::NotAbsolute(path.to_owned()));
    }
    let path = Path::new(path);
    match (root, cgroup_dir) {
        (Root::Host, _) => Inside::host(roots)?.open(path),
        (Root::Process(pid), _) => Inside::process(roots, *pid)?.open(path),
        (Root::Cgroup(cgroup), Some(dir)) => open_in_cgroup(roots, cgroup, dir, path),
        (Root::Cgroup(cgroup), None) => Err(RootError::NoCgroup(cgroup.to_string())),
    }
}

/// Opens a file that a process has mapped at exactly these addresses, whatever has become of its path
/// (`/proc/PID/map_files`). Needs `CAP_CHECKPOINT_RESTORE` (Linux 5.9) or `CAP_SYS_ADMIN`.
///
/// # Errors
/// The process or the mapping is gone, this process may not look, or it is no regular file.
pub fn open_mapped(pid: u32, (start, end): (u64, u64), roots: &Roots) -> Result<Opened, RootError> {
    let name = format!("{start:x}-{end:x}");
    let shown = roots.proc.join(pid.to_string()).join("map_files").join(name);
    // A link of /proc, which leads to the file itself and through no directory.
    let place = rustix::fs::open(&shown, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let place = place.map_err(|errno| match errno.into() {
        Errno::ENOENT | Errno::ESRCH => RootError::Absent { missing: shown.clone(), link: None, near: None },
        errno @ (Errno::EACCES | Errno::EPERM) => RootError::MappingForbidden { path: shown.clone(), errno },
        _ => FileError::io(&shown, &errno.into()).into(),
    })?;
    let refusal = |errno: rustix::io::Errno| match errno.into() {
        errno @ (Errno::EACCES | Errno::EPERM) => RootError::FileForbidden { path: shown.clone(), errno },
        _ => FileError::io(&shown, &errno.into()).into(),
    };
    let file = regular(&place, &shown, refusal)?;
    Ok(Opened { file, shown, pid: Some(pid) })
}

/// Opens what was found to be read, if it is a regular file.
fn regular(
    place: &OwnedFd,
    shown: &Path,
    refusal: impl FnOnce(rustix::io::Errno) -> RootError,
) -> Result<File, RootError> {
    let status = rustix::fs::fstat(place).map_err(|errno| FileError::io(shown, &errno.into()))?;
    let what = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => {
            // The same file once more, now to be read.
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = rustix::fs::open(descriptor_path(place), flags, Mode::empty()).map_err(refusal)?;
            return Ok(file.into());
        }
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    Err(RootError::NotRegular { path: shown.to_owned(), what })
}

fn open_in_cgroup(roots: &Roots, cgroup: &str, dir: &Path, path: &Path) -> Result<Opened, RootError> {
    let mut queue = VecDeque::from([dir.to_owned()]);
    let (mut searched, mut tried, mut refusal) = (0, 0, None);
    while let Some(dir) = queue.pop_front() {
        searched += 1;
        for pid in processes(&dir, searched == 1, cgroup)? {
            if tried == PROCESS_LIMIT {
                return Err(refusal.unwrap_or_else(|| RootError::NoProcesses(cgroup.to_owned())));
            }
            tried += 1;
            match Inside::process(roots, pid).and_then(|inside| inside.open(path)) {
                // The number may be another process's by now; what was opened is held, so that it can be asked again.
                Ok(opened) if processes(&dir, false, cgroup)?.contains(&pid) => return Ok(opened),
                Ok(_) | Err(RootError::NoProcess(_)) => {}
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        let children = host::entries(&dir).into_iter().flatten().flatten();
        let children = children.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        queue.extend(
            children.map(|entry| entry.path()).take(CGROUP_LIMIT.saturating_sub(searched + queue.len())),
        );
    }
    Err(refusal.unwrap_or_else(|| RootError::NoProcesses(cgroup.to_owned())))
}

/// The processes of a cgroup itself. One below the first may end meanwhile, or have threads that are told apart
/// (`EOPNOTSUPP`): it has none then.
fn processes(dir: &Path, first: bool, cgroup: &str) -> Result<Vec<u32>, RootError> {
    match host::read_text(&dir.join("cgroup.procs")) {
        // Processes that our pid namespace does not have are 0.
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok().filter(|&pid| pid != 0)).collect()),
        Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => Ok(Vec::new()),
        Err(error) if error.is_absent() && first => Err(RootError::NoCgroup(cgroup.to_owned())),
        Err(error) if error.is_absent() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// A root to look up paths in.
struct Inside {
    dir: OwnedFd,
    /// What stands before its paths for a person on the host.
    shown: PathBuf,
    pid: Option<u32>,
    /// How links are followed.
    resolve: ResolveFlags,
}

impl Inside {
    /// The host's, which may be below a prefix.
    fn host(roots: &Roots) -> Result<Self, RootError> {
        let own = roots.prefix.as_os_str().is_empty() || roots.prefix == Path::new("/");
        let shown = if own { PathBuf::from("/") } else { roots.prefix.clone() };
        let dir = rustix::fs::open(&shown, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let dir = dir.map_err(|errno| FileError::io(&shown, &errno.into()))?;
        // Who writes our configuration may use /proc/PID/root as a path of the host.
        let resolve = if own { ResolveFlags::empty() } else { WITHIN };
        Ok(Self { dir, shown, pid: None, resolve })
    }

    /// That of a process.
    fn process(roots: &Roots, pid: u32) -> Result<Self, RootError> {
        let process = roots.proc.join(pid.to_string());
        let shown = process.join("root");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&shown, flags, Mode::empty()).map_err(|errno| match errno.into() {
            Errno::ENOENT | Errno::ESRCH => RootError::NoProcess(pid),
            errno @ (Errno::EACCES | Errno::EPERM) => RootError::ProcessForbidden { pid, errno },
            _ => FileError::io(&shown, &errno.into()).into(),
        })?;
        Ok(Self { dir, shown, pid: Some(pid), resolve: WITHIN })
    }

    /// Where a person finds a path of this root.
    fn shown(&self, path: &Path) -> PathBuf {
        self.shown.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Opens a regular file.
    fn open(&self, path: &Path) -> Result<Opened, RootError> {
        let place = self.find(path, OFlags::PATH).map_err(|errno| self.refusal(path, errno))?;
        let shown = self.shown(path);
        let file = regular(&place, &shown, |errno| self.refusal(path, errno))?;
        Ok(Opened { file, shown, pid: self.pid })
    }

    fn find(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            match rustix::fs::openat2(&self.dir, path, flags, Mode::empty(), self.resolve) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::NOSYS) if self.resolve.is_empty() => {
                    return rustix::fs::openat(&self.dir, path, flags, Mode::empty());
                }
                answer => return answer,
            }
        }
        Err(rustix::io::Errno::AGAIN)
    }

    /// Why a path cannot be opened.
    fn refusal(&self, path: &Path, errno: rustix::io::Errno) -> RootError {
        let shown = self.shown(path);
        match errno.into() {
            Errno::ENOENT | Errno::ENOTDIR => self.absent(path),
            errno @ (Errno::EACCES | Errno::EPERM) => RootError::FileForbidden { path: shown, errno },
            Errno::ELOOP => RootError::Link(shown),
            Errno::ENOSYS => RootError::NoOpenat2,
            _ if errno == rustix::io::Errno::XDEV => RootError::Link(shown),
            _ => FileError::io(shown, &errno.into()).into(),
        }
    }

    /// Which part of a path is missing, and what is there instead.
    fn absent(&self, path: &Path) -> RootError {
        let mut missing = path;
        for parent in path.ancestors().skip(1).take(DEPTH_LIMIT) {
            if self.find(parent, OFlags::PATH).is_ok() {
                break;
            }
            missing = parent;
        }
        let parent = missing.parent().unwrap_or(missing);
        let dir = self.find(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK).ok();
        let name = missing.file_name().and_then(|name| name.to_str());
        let hint = dir.zip(name).map(|(dir, name)| {
            let link = rustix::fs::readlinkat(dir.as_fd(), name, Vec::new()).ok();
            let link = link.map(|link| PathBuf::from(String::from_utf8_lossy(link.to_bytes()).into_owned()));
            (link, near(dir, name))
        });
        let (link, near) = hint.unwrap_or_default();
        RootError::Absent { missing: self.shown(missing), link, near }
    }
}

/// No link leads out of a root, and none of `/proc` is followed.
const WITHIN: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// The name in a directory that was most likely meant: the nearest, or one that goes on, as `libc.so.6` does.
fn near(dir: OwnedFd, name: &str) -> Option<String> {
    let entries = Dir::new(dir).ok()?.take(NAMES_LIMIT).map_while(Result::ok);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned)).collect();
    names.retain(|other| other != name && other != "." && other != "..");
    names.sort_unstable();
    let nearest = crate::event::nearest(name, names.iter().map(String::as_str));
    nearest
        .or_else(|| names.iter().map(String::as_str).find(|other| other.starts_with(name)))
        .map(str::to_owned)
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

fn remark(link: Option<&Path>, near: Option<&str>) -> String {
    match (link, near) {
        (Some(link), _) => format!(", as a symbolic link to {} that leads nowhere in this root", shown(link)),
        (None, Some(near)) => format!("; the directory has {}", printable(near)),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests;
