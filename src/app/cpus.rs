//! The thread that detects CPUs that go offline or come online between two collections.
//!
//! The kernel removes the events of a CPU that goes offline. When the CPU is online again, nothing is counted on it until events are opened
//! again. The kernel reports both changes by uevents, except after a suspension and except in some containers. Therefore the thread also
//! reads the list of CPUs periodically.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::engine::Request;
use crate::host::{Online, Roots};

/// Interval between reads of the CPU list, with and without uevents.
const WITH_EVENTS: Duration = Duration::from_secs(1);
const WITHOUT_EVENTS: Duration = Duration::from_millis(250);

/// The netlink multicast group of kernel events.
const KERNEL: u32 = 1;

/// Path prefix of a CPU in an event: `online@/devices/system/cpu/cpu1`.
const OF_CPU: &[u8] = b"@/devices/system/cpu/cpu";

/// Maximum number of events read before the CPU list is read.
const BATCH: usize = 64;

/// Starts the thread. Without it, changes of CPUs are only detected at collections.
pub(super) fn start(roots: Roots, requests: Sender<Request>) {
    let events = listen().inspect_err(|errno| {
        tracing::info!(%errno, every = ?WITHOUT_EVENTS, "cannot listen to uevents; polling the list of CPUs instead");
    });
    let follow = move || follow(&roots, &requests, events.ok().as_ref());
    if let Err(error) = thread::Builder::new().name("cpus".into()).spawn(follow) {
        tracing::warn!(%error, "cannot start the CPU hotplug thread; a CPU that comes online is not counted until the next collection");
    }
}

/// Opens the netlink socket for kernel events.
fn listen() -> Result<OwnedFd, rustix::io::Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL))?;
    Ok(socket)
}

/// Requests an update of the CPUs after each change, until the collection thread has ended.
fn follow(roots: &Roots, requests: &Sender<Request>, events: Option<&OwnedFd>) {
    // The collector may have read the CPU list before this thread. The first read therefore always counts as a change.
    let mut before = None;
    loop {
        let now = Online::read(roots).ok();
        if now.is_some() && now != before {
            if requests.send(Request::FollowCpus).is_err() {
                return;
            }
            before = now;
        }
        match events {
            Some(events) => while !wait(events) {},
            None => thread::sleep(WITHOUT_EVENTS),
        }
    }
}

/// Waits for an event. Returns whether to read the CPU list: after a CPU event, after the interval, or after an error.
fn wait(events: &impl AsFd) -> bool {
    let timeout = Timespec { tv_sec: WITH_EVENTS.as_secs() as i64, tv_nsec: 0 };
    match poll(&mut [PollFd::new(events, PollFlags::IN)], Some(&timeout)) {
        Ok(1..) => {}
        Ok(_) | Err(rustix::io::Errno::INTR) => return true,
        // Prevents a busy loop.
        Err(_) => {
            thread::sleep(WITH_EVENTS);
            return true;
        }
    }
    let mut event = [0; 256];
    for _ in 0..BATCH {
        match recv(events, &mut event[..], RecvFlags::DONTWAIT) {
            Ok((length, _)) => {
                let event = event.get(..length).unwrap_or_default();
                if event.windows(OF_CPU.len()).any(|part| part == OF_CPU) {
                    return true;
                }
            }
            Err(rustix::io::Errno::AGAIN) => return false,
            // The kernel dropped events because the socket buffer was full.
            Err(_) => return true,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Timeout of a test that waits for the thread.
    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_change_of_the_cpus_is_reported_also_where_the_kernel_reports_none() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let online = roots.sys.join("devices/system/cpu/online");
        std::fs::create_dir_all(online.parent().unwrap()).unwrap();
        std::fs::write(&online, "0-1\n").unwrap();
        let (requests, received) = channel();
        thread::spawn(move || follow(&roots, &requests, None));
        let is_asked_for = || matches!(received.recv_timeout(LIMIT), Ok(Request::FollowCpus));
        assert!(is_asked_for(), "the first read");
        assert!(received.try_recv().is_err());
        std::fs::write(&online, "0\n").unwrap();
        assert!(is_asked_for());
    }

    #[test]
    fn only_events_of_cpus_are_a_reason_to_look() {
        let (sender, receiver) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::NONBLOCK, None)
                .unwrap();
        let looks = |event: &[u8]| {
            rustix::io::write(&sender, event).unwrap();
            wait(&receiver)
        };
        assert!(looks(b"online@/devices/system/cpu/cpu1\0ACTION=online"));
        assert!(!looks(b"add@/devices/virtual/net/veth1\0ACTION=add"));
    }
}
