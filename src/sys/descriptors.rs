//! The descriptors of this process: the open ones by kind, and sockets passed by the service manager.

use std::fs;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use serde::{Serialize, Serializer};

use crate::host::{self, Environment};

/// Maximum number of descriptors to examine, besides those of events. Any others count as [`OpenDescriptors::other`].
const MAX: usize = 4096;

/// Open descriptors by kind. Each descriptor counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenDescriptors {
    /// Perf events.
    pub event: u64,
    /// Files and directories.
    pub file: u64,
    /// Sockets.
    pub socket: u64,
    /// Pipes, eventfds, epoll instances and the like.
    pub other: u64,
}

impl OpenDescriptors {
    /// Counts the descriptors of this process, of which `events` are known to be perf events. Does not access the files themselves, and
    /// takes about a microsecond per descriptor.
    pub fn count(events: usize) -> Self {
        // Not below a configured root: `self` may be another process in the host's /proc.
        let dir = Path::new("/proc/self/fd");
        let names = host::list(dir).unwrap_or_default();
        let mut found = Self { event: events as u64, ..Self::default() };
        let mut looked_at = 0;
        for name in names.iter().take(events.saturating_add(MAX)) {
            let Ok(target) = fs::read_link(dir.join(name)) else { continue };
            looked_at += 1;
            match target.to_str() {
                Some("anon_inode:[perf_event]") => {}
                Some(text) if text.starts_with("socket:") => found.socket += 1,
                Some(text) if !text.starts_with('/') => found.other += 1,
                _ => found.file += 1,
            }
        }
        // Without the descriptor that the directory was read with, which is closed by now.
        let known = found.event + found.file + found.socket + found.other;
        if looked_at == events.saturating_add(MAX) {
            found.other += (names.len() as u64).saturating_sub(known);
        }
        found
    }

    /// Returns the count of each kind, with the value of the label `kind`.
    pub fn kinds(self) -> [(&'static str, u64); 4] {
        [("event", self.event), ("file", self.file), ("socket", self.socket), ("other", self.other)]
    }
}

/// Serialized as a list of the kinds: `[{"kind": "event", "open": 12}, …]`.
impl Serialize for OpenDescriptors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct OfKind {
            kind: &'static str,
            open: u64,
        }
        serializer.collect_seq(self.kinds().map(|(kind, open)| OfKind { kind, open }))
    }
}

/// First descriptor that a service manager passes (`SD_LISTEN_FDS_START`).
const FIRST_PASSED: RawFd = 3;

/// Maximum number of sockets that are taken from the service manager.
const MAX_PASSED: RawFd = 64;

/// A socket that the service manager has passed.
#[derive(Debug)]
pub struct InheritedSocket {
    /// The socket, which children do not inherit.
    pub descriptor: OwnedFd,
    /// Its name (`FileDescriptorName=` of the socket unit).
    pub name: String,
}

/// Takes the sockets that the service manager has passed to the process `pid`, which is this one, by the variables `LISTEN_PID`,
/// `LISTEN_FDS` and `LISTEN_FDNAMES` (sd_listen_fds(3)). A second call returns none.
pub fn inherited_sockets(environment: &Environment, pid: u32) -> Vec<InheritedSocket> {
    let number = |name| environment.get(name).and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(pid) {
        return Vec::new();
    }
    let count =
        number("LISTEN_FDS").and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0).min(MAX_PASSED);
    let mut names = environment.get("LISTEN_FDNAMES").unwrap_or_default().split(':');
    let sockets =
        (FIRST_PASSED..FIRST_PASSED + count).map(|number| (number, names.next().unwrap_or_default()));
    sockets
        .filter_map(|(number, name)| {
            Some(InheritedSocket { descriptor: take(number)?, name: name.to_owned() })
        })
        .collect()
}

/// Takes a descriptor that was open when the program was started. Returns `None` if there is none with this number.
fn take(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: the descriptor is only asked for its flags. If it is not open, the kernel answers EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(borrowed).ok()?;
    if flags.contains(FdFlags::CLOEXEC) {
        // It was opened by this process: a descriptor with this flag does not survive the start of a program.
        return None;
    }
    fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC).ok()?;
    // SAFETY: the descriptor is open and lacked CLOEXEC. The standard library and this program set that flag on all descriptors that they
    // open, so it was passed at the start of the program, and no object owns it. It has the flag from now on, so it is taken only once.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted() {
        let before = OpenDescriptors::count(0);
        let file = fs::File::open("/proc/self/exe").unwrap();
        let files: Vec<fs::File> = (0..50).map(|_| file.try_clone().unwrap()).collect();
        let sockets: Vec<_> = (0..50).map(|_| std::os::unix::net::UnixDatagram::unbound().unwrap()).collect();
        let now = OpenDescriptors::count(7);
        // Concurrent tests open and close some, too.
        assert!(now.file >= before.file + 30, "{now:?} {before:?} {}", files.len());
        assert!(now.socket >= before.socket + 30, "{now:?} {before:?} {}", sockets.len());
        assert_eq!(now.event, 7);
    }
    #[test]
    fn sockets_are_taken_only_by_the_process_that_they_were_passed_to_and_only_once() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        // Like a descriptor that was open at the start.
        let passed = rustix::io::fcntl_dupfd_cloexec(&socket, 900).unwrap();
        let number = std::os::fd::IntoRawFd::into_raw_fd(passed);
        assert!(take(number).is_none(), "it was opened by this process");
        // SAFETY: the descriptor is open, and this test owns it.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::empty()).unwrap();
        let taken = take(number).unwrap();
        assert!(fcntl_getfd(&taken).unwrap().contains(FdFlags::CLOEXEC));
        assert!(take(number).is_none());
        assert!(take(901).is_none(), "it is not open");
        let environment = |pid: &str| {
            [("LISTEN_PID", pid), ("LISTEN_FDS", "4294967295")].into_iter().collect::<Environment>()
        };
        assert!(inherited_sockets(&environment("1"), 2).is_empty());
        assert!(inherited_sockets(&environment("here"), 2).is_empty());
    }
}
