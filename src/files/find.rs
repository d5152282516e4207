//! Opening of files in the root of the host, of a process, or of the processes of a cgroup.
//!
//! Processes in a container control what its paths refer to. Therefore a path is resolved with the root of the process as the top
//! directory, whatever links contain (`openat2` with `RESOLVE_IN_ROOT`, Linux 5.6). Only regular files are opened for reading, because
//! opening a device can have side effects. The kernel receives the opened file, not its path.
//!
//! A probe applies to the file, whichever process executes it. Containers of one image that share a layer on disk (overlayfs) share its
//! files: a probe found through one of them counts the calls of all.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};

use super::opened::descriptor_path;
use super::wire::{OpenRequest, Purpose};
use super::{Contents, Opened, ProcessFile, Root, RootError};
use crate::error::{Errno, FileError};
use crate::host::{self, Roots};

/// Maximum number of processes of a cgroup whose roots are searched.
const PROCESS_LIMIT: usize = 256;
/// Maximum number of descendant cgroups that are searched for processes.
const CGROUP_LIMIT: usize = 1024;
/// Maximum number of directory entries that are searched for a similar name.
const NAMES_LIMIT: usize = 4096;
/// Maximum number of parent directories that are tried to find the missing one.
const DEPTH_LIMIT: usize = 64;
/// Maximum number of retries of a lookup that was interrupted by a concurrent rename.
const ATTEMPTS: usize = 16;

/// Found file.
pub(super) struct Found {
    /// Opened with `O_PATH`, so that no file system receives a request; files of `/proc/PID` are opened for reading.
    pub(super) place: OwnedFd,
    is_readable: bool,
    pub(super) shown: PathBuf,
    pub(super) pid: Option<u32>,
}

impl Found {
    /// Opens the file for reading; `keep_place` also keeps the `O_PATH` descriptor.
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

/// Finds a file, without opening it for reading, except files of `/proc/PID`.
///
/// # Errors
/// The part of the path that is missing, forbidden or of the wrong kind.
pub(super) fn find(request: &OpenRequest, roots: &Roots) -> Result<Found, RootError> {
    match request {
        OpenRequest::Path { root, path, cgroup_dir, purpose } => {
            // A link is then found itself, and is no regular file.
            let flags = if *purpose == Purpose::ReadPublic { OFlags::NOFOLLOW } else { OFlags::empty() };
            find_path(root, (path, flags), roots, cgroup_dir.as_deref())
        }
        OpenRequest::Mapped { pid, range, .. } => find_mapped(*pid, *range, roots),
        OpenRequest::Process { pid, file } => open_process(*pid, *file, roots),
    }
}

/// Finds a file by its path in a root. `cgroup_dir` is the directory of the cgroup of `root`. The file is opened in the root of the first
/// process, in the cgroup or a descendant, in which it exists.
fn find_path(
    root: &Root,
    (path, flags): (&str, OFlags),
    roots: &Roots,
    cgroup_dir: Option<&Path>,
) -> Result<Found, RootError> {
    if !path.starts_with('/') {
        return Err(RootError::NotAbsolute(path.to_owned()));
    }
    let path = Path::new(path);
    match (root, cgroup_dir) {
        (Root::Host, _) => RootDir::host(roots)?.find_file(path, flags),
        (Root::Process(pid), _) => RootDir::process(roots, *pid)?.find_file(path, flags),
        (Root::Cgroup(cgroup), Some(dir)) => find_in_cgroup(roots, cgroup, dir, path),
        (Root::Cgroup(cgroup), None) => Err(RootError::NoCgroup(cgroup.to_string())),
    }
}

/// Finds the file that a process has mapped at exactly this address range, whatever its path refers to now (`/proc/PID/map_files`).
/// Requires `CAP_CHECKPOINT_RESTORE` (Linux 5.9) or `CAP_SYS_ADMIN`.
fn find_mapped(pid: u32, (start, end): (u64, u64), roots: &Roots) -> Result<Found, RootError> {
    let name = format!("{start:x}-{end:x}");
    let shown = roots.proc.join(pid.to_string()).join("map_files").join(name);
    // A magic link of /proc, which refers to the file itself without a directory lookup.
    let place = rustix::fs::open(&shown, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let place = place.map_err(|errno| match errno.into() {
        Errno::ENOENT | Errno::ESRCH => RootError::Absent { missing: shown.clone(), link: None, near: None },
        errno @ (Errno::EACCES | Errno::EPERM) => RootError::MappingForbidden { path: shown.clone(), errno },
        _ => FileError::io(&shown, &errno.into()).into(),
    })?;
    regular(place, shown, Some(pid))
}

/// Opens a file of `/proc/PID`. Reading it can block: `maps` while the process changes its mappings, `mem` on a page fault.
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

/// Checks that the file is regular.
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
            match RootDir::process(roots, pid).and_then(|inside| inside.find_file(path, OFlags::empty())) {
                // The PID may have been reused. The opened file remains valid, so the membership can be checked again.
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

/// Returns the processes of the cgroup itself. A descendant may be removed concurrently or may be threaded (`EOPNOTSUPP`), and then has
/// none.
fn processes(dir: &Path, first: bool, cgroup: &str) -> Result<Vec<u32>, RootError> {
    match host::read_text(&dir.join("cgroup.procs")) {
        // Processes outside this PID namespace are 0.
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok().filter(|&pid| pid != 0)).collect()),
        Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => Ok(Vec::new()),
        Err(error) if error.is_absent() && first => Err(RootError::NoCgroup(cgroup.to_owned())),
        Err(error) if error.is_absent() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Root directory for path lookups.
struct RootDir {
    dir: OwnedFd,
    /// Prefix of displayed paths on the host.
    shown: PathBuf,
    pid: Option<u32>,
    /// Resolution of links.
    resolve: ResolveFlags,
}

impl RootDir {
    /// Opens the root of the host, which may be below a prefix.
    fn host(roots: &Roots) -> Result<Self, RootError> {
        let own = roots.prefix.as_os_str().is_empty() || roots.prefix == Path::new("/");
        let shown = if own { PathBuf::from("/") } else { roots.prefix.clone() };
        let dir = open_dir(&shown).map_err(|errno| FileError::io(&shown, &errno.into()))?;
        // The author of the configuration may use /proc/PID/root as a path of the host.
        let resolve = if own { ResolveFlags::empty() } else { WITHIN };
        Ok(Self { dir, shown, pid: None, resolve })
    }

    /// Opens the root of a process.
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

    /// Returns the path in this root as seen on the host.
    fn shown(&self, path: &Path) -> PathBuf {
        self.shown.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Finds a regular file. `flags` are additional ones.
    fn find_file(&self, path: &Path, flags: OFlags) -> Result<Found, RootError> {
        let place = self.find(path, OFlags::PATH | flags).map_err(|errno| self.refusal(path, errno))?;
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

    /// Converts the error of a lookup.
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

    /// Returns the missing part of a path, and a similar existing name.
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

/// Links cannot leave the root, and magic links of `/proc` are not followed.
const WITHIN: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// Returns the directory entry that was most likely meant: the nearest name, or one with this prefix, such as `libc.so.6`.
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
