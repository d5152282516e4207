//! A read-only FUSE file system that stops answering on a test's request. It uses `/dev/fuse` directly, without libfuse.
//!
//! A stopped file system still reads each request and keeps it. This is the hard case: a caller whose request was read waits
//! uninterruptibly, and even SIGKILL does not end that wait. Names and attributes are never cached, so each look-up and each `stat` is a
//! request. Contents are cached, so a program whose pages are resident keeps running.
//!
//! The daemon is a thread of the test. `/dev/fuse` is closed when the thread or the process exits, and the kernel then fails all requests.
//! So no caller waits longer than the test runs, or than the limit given to [`Mount::stop`].

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use perf_exporter::host::{list, read_at_most, read_text};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::time::{ClockId, clock_gettime};

/// Maximum size of a file, in bytes.
const FILE_LIMIT: u64 = 256 << 20;

/// Size of the request buffer in bytes. The kernel requires at least 8 KiB.
const REQUEST_SIZE: usize = 64 << 10;

/// Inode number of the root directory. Files have the numbers after it.
const ROOT: u64 = 1;

/// The requests that a stopped file system does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Look-ups of names, and opening of files.
    Open,
    /// Reads of contents, by `read` and by page faults.
    Read,
    /// Reads of attributes.
    Stat,
    /// All of these.
    Everything,
}

impl Stop {
    fn covers(self, opcode: u32) -> bool {
        let kind = match opcode {
            op::LOOKUP | op::OPEN | op::OPENDIR => Self::Open,
            op::READ | op::READDIR => Self::Read,
            op::GETATTR | op::STATX | op::STATFS | op::ACCESS => Self::Stat,
            _ => return false,
        };
        self == Self::Everything || self == kind
    }
}

/// A mounted file system. It is unmounted when it is dropped, and kept requests then fail.
#[derive(Debug)]
pub(crate) struct Mount {
    shared: Arc<Shared>,
    daemon: Option<JoinHandle<()>>,
    dir: tempfile::TempDir,
}

impl Mount {
    /// Mounts copies of `files`, given as pairs of name and source. `read_ahead` is in bytes; with 0, only requested pages become resident.
    ///
    /// # Panics
    /// If the file system cannot be mounted. Check [`Feature::Fuse`](super::Feature::Fuse) before.
    pub(crate) fn of(files: &[(&str, &Path)], read_ahead: u32) -> Self {
        let files = files.iter().map(|(name, source)| Node {
            name: (*name).to_owned(),
            content: read_at_most(source, FILE_LIMIT).unwrap_or_else(|error| panic!("{error}")),
        });
        let files: Vec<Node> = files.collect();
        let dir = tempfile::Builder::new().prefix("perf-exporter-fuse-").tempdir().unwrap();
        let mut open = OpenOptions::new();
        let device = open.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/fuse").unwrap();
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions\0",
            device.as_raw_fd()
        );
        let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        mount("perf-exporter-test", dir.path(), "fuse", flags, data)
            .unwrap_or_else(|error| panic!("{}: mount: {error}", dir.path().display()));
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let shared = Arc::new(Shared { control: Mutex::default(), wake });
        let daemon = Daemon { device, files, read_ahead, shared: Arc::clone(&shared) };
        let daemon = thread::Builder::new().name("fuse".to_owned()).spawn(move || daemon.run()).unwrap();
        Self { shared, daemon: Some(daemon), dir }
    }

    /// Returns the mount point.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of one of the files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Stops answering these requests. The test itself must not touch the mount from now on. Without a call of `resume` within `at_most`,
    /// the daemon ends and all requests fail, so the test fails instead of hanging.
    pub(crate) fn stop(&self, stop: Stop, at_most: Duration) {
        self.shared.control().stopped = Some((stop, now() + at_most));
    }

    /// Answers all kept requests and all later ones.
    pub(crate) fn resume(&self) {
        self.shared.control().stopped = None;
        self.shared.wake();
    }

    /// Returns the ids of the threads whose requests are kept.
    pub(crate) fn waiting(&self) -> Vec<u32> {
        self.shared.control().kept.iter().map(|request| request.tid).collect()
    }

    /// Reports whether a thread of a process or of its children waits for an answer. The request may be its own, or that of another thread
    /// for the same page.
    pub(crate) fn delays(&self, pid: u32) -> bool {
        let of_page = || !self.waiting().is_empty() && threads(pid).iter().any(|task| uninterruptible(task));
        // A wait for a disk is shorter.
        let for_long = || {
            (0..4).all(|_| {
                thread::sleep(Duration::from_millis(100));
                of_page()
            })
        };
        let waiting = self.waiting();
        let asked = |task: &PathBuf| {
            let tid = task.file_name().and_then(|name| name.to_str()?.parse().ok());
            tid.is_some_and(|tid| waiting.contains(&tid))
        };
        threads(pid).iter().any(asked) || for_long()
    }
}

/// Returns the threads of a process and of its children, as directories in `/proc`.
fn threads(pid: u32) -> Vec<PathBuf> {
    let dir = PathBuf::from(format!("/proc/{pid}/task"));
    let mut tasks: Vec<PathBuf> =
        list(&dir).unwrap_or_default().into_iter().map(|task| dir.join(task)).collect();
    let children: Vec<u32> = tasks
        .iter()
        .flat_map(|task| {
            let children = read_text(&task.join("children")).unwrap_or_default();
            children.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>()
        })
        .collect();
    tasks.extend(children.into_iter().flat_map(threads));
    tasks
}

fn uninterruptible(task: &Path) -> bool {
    read_text(&task.join("status")).unwrap_or_default().contains("\nState:\tD")
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.shared.control().ended = true;
        self.shared.wake();
        // The end of the thread closes /dev/fuse, which ends all waits.
        drop(self.daemon.take().map(JoinHandle::join));
        if let Err(error) = unmount(self.dir.path(), UnmountFlags::DETACH) {
            eprintln!("{}: unmount: {error}", self.dir.path().display());
        }
    }
}

/// State shared by the test and the daemon.
#[derive(Debug)]
struct Shared {
    control: Mutex<Control>,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Control {
    stopped: Option<(Stop, Duration)>,
    kept: Vec<Request>,
    ended: bool,
}

impl Shared {
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // An event counter that is full wakes the daemon as well.
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
    }
}

#[derive(Debug)]
struct Node {
    name: String,
    content: Vec<u8>,
}

/// Operations, with the numbers of `linux/fuse.h`.
mod op {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const ACCESS: u32 = 34;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const STATX: u32 = 52;
}

/// A request: `struct fuse_in_header` and the bytes after it.
#[derive(Debug)]
struct Request {
    opcode: u32,
    unique: u64,
    node: u64,
    /// Thread that made the request.
    tid: u32,
    body: Vec<u8>,
}

impl Request {
    fn parse(bytes: &[u8]) -> Self {
        Self {
            opcode: u32_at(bytes, 4),
            unique: u64_at(bytes, 8),
            node: u64_at(bytes, 16),
            tid: u32_at(bytes, 32),
            body: bytes[40..].to_vec(),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The answering side. Its thread ends when the file system is unmounted.
struct Daemon {
    device: File,
    files: Vec<Node>,
    read_ahead: u32,
    shared: Arc<Shared>,
}

/// Answer to a request: contents or an errno.
type Answer = Result<Vec<u8>, i32>;

impl Daemon {
    fn run(mut self) {
        let mut buffer = vec![0; REQUEST_SIZE];
        while self.goes_on() {
            self.wait();
            for kept in self.released() {
                self.answer(&kept);
            }
            let size = match self.device.read(&mut buffer) {
                Ok(size) => size,
                // The file system was unmounted.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return,
                // No request is queued, or the read was interrupted.
                Err(_) => continue,
            };
            let request = Request::parse(&buffer[..size]);
            let mut control = self.shared.control();
            if control.stopped.is_some_and(|(stop, _)| stop.covers(request.opcode)) {
                control.kept.push(request);
            } else {
                drop(control);
                self.answer(&request);
            }
        }
    }

    fn goes_on(&self) -> bool {
        let control = self.shared.control();
        !control.ended && control.stopped.is_none_or(|(_, until)| now() < until)
    }

    fn wait(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let mut ready = [
            PollFd::new(&self.device, PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN),
        ];
        poll(&mut ready, Some(&timeout)).ok();
        rustix::io::read(&self.shared.wake, &mut [0; 8]).ok();
    }

    /// Removes and returns the kept requests that may now be answered.
    fn released(&self) -> Vec<Request> {
        let mut control = self.shared.control();
        let stopped = control.stopped.map(|(stop, _)| stop);
        let free = |request: &mut Request| !stopped.is_some_and(|stop| stop.covers(request.opcode));
        control.kept.extract_if(.., free).collect()
    }

    fn answer(&mut self, request: &Request) {
        let answer = match request.opcode {
            op::FORGET | op::BATCH_FORGET | op::INTERRUPT => return,
            op::INIT => Ok(self.init(&request.body)),
            op::LOOKUP => self.lookup(&request.body),
            op::GETATTR => Ok(self.attributes(request.node)),
            op::OPEN | op::OPENDIR => Ok(opened()),
            op::READ => Ok(self.read(request)),
            op::READDIR => Ok(self.entries(&request.body)),
            op::STATFS => Ok(self.statfs()),
            op::RELEASE | op::RELEASEDIR | op::DESTROY => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut reply = Reply::default();
        reply.u32s(&[16 + body.len() as u32, error as u32]).u64s(&[request.unique]);
        reply.0.extend(body);
        // The requesting thread may have exited.
        drop(self.device.write(&reply.0));
    }

    /// Returns `struct fuse_init_out` of version 7.31.
    fn init(&self, body: &[u8]) -> Vec<u8> {
        const ASYNC_READ: u32 = 1;
        let flags = u32_at(body, 12) & ASYNC_READ;
        let mut reply = Reply::default();
        reply.u32s(&[7, 31, self.read_ahead, flags]).u16s(&[64, 48]).u32s(&[4096, 1]).u16s(&[0, 0]);
        reply.u32s(&[0; 8]);
        reply.0
    }

    fn lookup(&self, name: &[u8]) -> Answer {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let found = self.files.iter().position(|file| file.name.as_bytes() == name).ok_or(libc::ENOENT)?;
        let node = ROOT + 1 + found as u64;
        let mut reply = Reply::default();
        // Node and generation, then cache validity times of zero.
        reply.u64s(&[node, 0, 0, 0]).u32s(&[0, 0]);
        self.attribute(node, &mut reply);
        Ok(reply.0)
    }

    fn attributes(&self, node: u64) -> Vec<u8> {
        let mut reply = Reply::default();
        reply.u64s(&[0]).u32s(&[0, 0]);
        self.attribute(node, &mut reply);
        reply.0
    }

    /// Writes `struct fuse_attr`.
    fn attribute(&self, node: u64, reply: &mut Reply) {
        let size = self.content(node).map_or(0, <[u8]>::len) as u64;
        let mode = if node == ROOT { 0o040_755 } else { 0o100_755 };
        reply.u64s(&[node, size, size.div_ceil(512), 0, 0, 0]);
        reply.u32s(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]);
    }

    fn content(&self, node: u64) -> Option<&[u8]> {
        let index = usize::try_from(node.checked_sub(ROOT + 1)?).ok()?;
        self.files.get(index).map(|file| &*file.content)
    }

    fn read(&self, request: &Request) -> Vec<u8> {
        let content = self.content(request.node).unwrap_or_default();
        let start = (u64_at(&request.body, 8) as usize).min(content.len());
        let end = (start + u32_at(&request.body, 16) as usize).min(content.len());
        content[start..end].to_vec()
    }

    /// Returns a `struct fuse_dirent` for each file that was not listed yet. All of them fit into one answer.
    fn entries(&self, body: &[u8]) -> Vec<u8> {
        let mut reply = Reply::default();
        for (index, file) in self.files.iter().enumerate().skip(u64_at(body, 8) as usize) {
            let index = index as u64;
            reply.u64s(&[ROOT + 1 + index, index + 1]).u32s(&[file.name.len() as u32, 8]);
            reply.0.extend(file.name.as_bytes());
            reply.0.resize(reply.0.len().next_multiple_of(8), 0);
        }
        reply.0.truncate(u32_at(body, 16) as usize);
        reply.0
    }

    /// Returns `struct fuse_kstatfs`.
    fn statfs(&self) -> Vec<u8> {
        let mut reply = Reply::default();
        reply.u64s(&[1, 0, 0, self.files.len() as u64, 0]).u32s(&[4096, 255, 4096]).u32s(&[0; 7]);
        reply.0
    }
}

/// Returns `struct fuse_open_out`: cached contents stay valid.
fn opened() -> Vec<u8> {
    const KEEP_CACHE: u32 = 1 << 1;
    let mut reply = Reply::default();
    reply.u64s(&[1]).u32s(&[KEEP_CACHE, 0]);
    reply.0
}

/// The bytes of an answer.
#[derive(Default)]
struct Reply(Vec<u8>);

impl Reply {
    fn u16s(&mut self, numbers: &[u16]) -> &mut Self {
        self.0.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        self
    }

    fn u32s(&mut self, numbers: &[u32]) -> &mut Self {
        self.0.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        self
    }

    fn u64s(&mut self, numbers: &[u64]) -> &mut Self {
        self.0.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        self
    }
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap()
}
