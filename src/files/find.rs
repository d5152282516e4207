//! Opens a file inside the file system that it is in: the host's, that of a process, or that of the processes of a cgroup.
//!
//! Processes in a container decide what its paths lead to. Therefore a path is looked up with the root of the process as
//! the top of everything, whatever links contain (`openat2` with `RESOLVE_IN_ROOT`, Linux 5.6). Nothing is opened for
//! reading before it is known to be a regular file, because opening a device can have effects. The kernel is given the
//! file that was opened, not its path.
//!
//! A probe is on the file, whichever process executes it. Containers of one image that share a layer on disk (overlayfs)
//! share its files: a probe found through one of them counts the calls of all.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};

use super::opened::descriptor_path;
use super::wire::OpenRequest;
use super::{Contents, Opened, ProcessFile, Root, RootError};
use crate::error::{Errno, FileError};
use crate::host::{self, Roots};

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

/// A file that was found.
pub(super) struct Found {
    /// Opened with `O_PATH`, so no file system receives a request; or for reading if the file is one of `/proc/PID`.
    pub(super) place: OwnedFd,
    is_readable: bool,
    pub(super) shown: PathBuf,
    pub(super) pid: Option<u32>,
}

impl Found {
    /// Opens it for reading, and keeps its place open with `keep_place`.
    pub(super) fn open(self, keep_place: bool) -> Result<Opened, RootError> {
        let Self { place, is_readable, shown, pid } = self;
        if is_readable {
            return Ok(Opened { file: Contents::Local(place.into()), place: None, shown, pid });
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(descriptor_path(&place), flags, Mode::empty());
        let file = file.map_err(|errno| forbidden(&shown, errno))?;
        Ok(Opened { file: Contents::Local(file.into()), place: keep_place.then_some(place), shown, pid })
    }
}

/// Finds a file, and opens nothing for reading but files of `/proc/PID`.
///
/// # Errors
/// Says which part is missing, forbidden or of the wrong kind.
pub(super) fn find(request: &OpenRequest, roots: &Roots) -> Result<Found, RootError> {
    match request {
        OpenRequest::Path { root, path, cgroup_dir, .. } => {
            find_path(root, path, roots, cgroup_dir.as_deref())
        }
        OpenRequest::Mapped { pid, range, .. } => find_mapped(*pid, *range, roots),
        OpenRequest::Process { pid, file } => open_process(*pid, *file, roots),
    }
}

/// Finds a file by its path in a root. `cgroup_dir` is the directory of the cgroup that `root` names; of its processes,
/// and of those below it, the first one that has the file lends its root.
fn find_path(root: &Root, path: &str, roots: &Roots, cgroup_dir: Option<&Path>) -> Result<Found, RootError> {
    if !path.starts_with('/') {
        return Err(RootError::NotAbsolute(path.to_owned()));
    }
    let path = Path::new(path);
    match (root, cgroup_dir) {
        (Root::Host, _) => Inside::host(roots)?.find_file(path),
        (Root::Process(pid), _) => Inside::process(roots, *pid)?.find_file(path),
        (Root::Cgroup(cgroup), Some(dir)) => find_in_cgroup(roots, cgroup, dir, path),
        (Root::Cgroup(cgroup), None) => Err(RootError::NoCgroup(cgroup.to_string())),
    }
}

/// Finds a file that a process has mapped at exactly these addresses, whatever has become of its path
/// (`/proc/PID/map_files`). Needs `CAP_CHECKPOINT_RESTORE` (Linux 5.9) or `CAP_SYS_ADMIN`.
fn find_mapped(pid: u32, (start, end): (u64, u64), roots: &Roots) -> Result<Found, RootError> {
    let name = format!("{start:x}-{end:x}");
    let shown = roots.proc.join(pid.to_string()).join("map_files").join(name);
    // A link of /proc, which leads to the file itself and through no directory.
    let place = rustix::fs::open(&shown, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let place = place.map_err(|errno| match errno.into() {
        Errno::ENOENT | Errno::ESRCH => RootError::Absent { missing: shown.clone(), link: None, near: None },
        errno @ (Errno::EACCES | Errno::EPERM) => RootError::MappingForbidden { path: shown.clone(), errno },
        _ => FileError::io(&shown, &errno.into()).into(),
    })?;
    regular(place, shown, Some(pid))
}

/// Opens a file of `/proc/PID`. Reading it can hang: a list of mappings waits for a process that changes them, memory for
/// the page fault that brings it.
fn open_process(pid: u32, file: ProcessFile, roots: &Roots) -> Result<Found, RootError> {
    let shown = file.path(&roots.proc.join(pid.to_string()));
    let file = File::open(&shown).map_err(|error| FileError::io(&shown, &error))?;
    Ok(Found { place: file.into(), is_readable: true, shown, pid: Some(pid) })
}

fn forbidden(path: &Path, errno: rustix::io::Errno) -> RootError {
    match errno.into() {
        errno @ (Errno::EACCES | Errno::EPERM) => RootError::FileForbidden { path: path.to_owned(), errno },
        _ => FileError::io(path, &errno.into()).into(),
    }
}

/// Only a regular file is found.
fn regular(place: OwnedFd, shown: PathBuf, pid: Option<u32>) -> Result<Found, RootError> {
    let status = rustix::fs::fstat(&place).map_err(|errno| FileError::io(&shown, &errno.into()))?;
    let what = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => return Ok(Found { place, is_readable: false, shown, pid }),
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    Err(RootError::NotRegular { path: shown, what: what.into() })
}

fn find_in_cgroup(roots: &Roots, cgroup: &str, dir: &Path, path: &Path) -> Result<Found, RootError> {
    let mut queue = VecDeque::from([dir.to_owned()]);
    let (mut searched, mut tried, mut refusal) = (0, 0, None);
    while let Some(dir) = queue.pop_front() {
        searched += 1;
        for pid in processes(&dir, searched == 1, cgroup)? {
            if tried == PROCESS_LIMIT {
                return Err(refusal.unwrap_or_else(|| RootError::NoProcesses(cgroup.to_owned())));
            }
            tried += 1;
            match Inside::process(roots, pid).and_then(|inside| inside.find_file(path)) {
                // The number may be another process's by now; what was opened is held, so that it can be asked again.
                Ok(found) if processes(&dir, false, cgroup)?.contains(&pid) => return Ok(found),
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
        let dir = open_dir(&shown).map_err(|errno| FileError::io(&shown, &errno.into()))?;
        // Who writes our configuration may use /proc/PID/root as a path of the host.
        let resolve = if own { ResolveFlags::empty() } else { WITHIN };
        Ok(Self { dir, shown, pid: None, resolve })
    }

    /// That of a process.
    fn process(roots: &Roots, pid: u32) -> Result<Self, RootError> {
        let process = roots.proc.join(pid.to_string());
        let shown = process.join("root");
        let dir = open_dir(&shown).map_err(|errno| match errno.into() {
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

    /// Finds a regular file.
    fn find_file(&self, path: &Path) -> Result<Found, RootError> {
        let place = self.find(path, OFlags::PATH).map_err(|errno| self.refusal(path, errno))?;
        regular(place, self.shown(path), self.pid)
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
            Errno::ELOOP => RootError::Link(shown),
            Errno::ENOSYS => RootError::NoOpenat2,
            _ if errno == rustix::io::Errno::XDEV => RootError::Link(shown),
            _ => forbidden(&shown, errno),
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

/// Opens a directory with `O_PATH`.
pub(super) fn open_dir(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
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

#[cfg(test)]
mod tests;
