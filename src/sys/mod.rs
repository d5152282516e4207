//! The seam to the kernel, and the only unsafe code of the program.
//!
//! Everything that `perf_event_open` is asked for is a value ([`Attr`], [`Place`]), given to a [`Kernel`]: the
//! [live](live::Live) one makes the system call, the [fake](fake::FakeKernel) one answers from a table. An errno
//! passes through unchanged; what it means is judged in [`health`](crate::health).

#![expect(unsafe_code, reason = "this is the one module where it may stand; each block is argued")]

pub mod fake;
pub mod live;
pub mod spawn;
pub mod usage;

use std::fmt;
use std::os::fd::BorrowedFd;

use crate::error::Errno;
use crate::event::{Modifiers, Selector};

/// What can open events.
pub trait Kernel {
    /// An open event; dropping it closes it.
    type Event: Event + fmt::Debug;

    /// Opens one event for counting, as a member of `leader`'s group if there is one.
    ///
    /// # Errors
    /// The kernel's errno.
    fn open(&self, attr: &Attr, place: Place<'_>, leader: Option<&Self::Event>)
    -> Result<Self::Event, Errno>;
}

/// An open event.
pub trait Event {
    /// Reads the group that this event leads into `words`: the number of members, nanoseconds enabled, nanoseconds
    /// running, then one value per member in the order in which they were opened
    /// (`PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING`). Returns how many words were read: 0 means
    /// that a pinned group could not be placed on the PMU and is in error state.
    ///
    /// # Errors
    /// The kernel's errno; `ENOSPC` when `words` is too small for the group.
    fn read(&self, words: &mut [u64]) -> Result<usize, Errno>;

    /// Starts the counting of the whole group.
    ///
    /// # Errors
    /// The kernel's errno.
    fn enable(&self) -> Result<(), Errno>;

    /// Stops the counting of the whole group.
    ///
    /// # Errors
    /// The kernel's errno.
    fn disable(&self) -> Result<(), Errno>;
}

/// How an event is opened for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// What to count.
    pub selector: Selector,
    /// With which bits. `precise`, `weak` and `leader_sampling` do not change a count and are not passed on.
    pub modifiers: Modifiers,
    /// Who is counted besides the thread that the event is opened for.
    pub inherit: Inherit,
    /// When counting starts.
    pub start: Start,
}

/// Whether what the thread starts later is counted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inherit {
    /// The thread alone. The only choice for CPUs and cgroups.
    #[default]
    Nothing,
    /// Threads that it creates, but not processes. Linux 5.13.
    #[doc(alias = "inherit_thread")]
    Threads,
    /// Threads and processes that it creates.
    #[doc(alias = "inherit")]
    Children,
}

/// When counting starts. Members of a group follow their leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// With the first [`Event::enable`] of the leader.
    #[default]
    Later,
    /// With the next `execve` of the thread.
    #[doc(alias = "enable_on_exec")]
    OnExec,
    /// As soon as the leader counts: what every member of a group is opened with.
    WithLeader,
}

/// Where to count. Only the combinations that the kernel has can be written.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// Everything on one CPU. Needs `CAP_PERFMON` or `perf_event_paranoid` below 1.
    Cpu(u32),
    /// What runs in a cgroup, and in those below it, on one CPU. Needs what [`Place::Cpu`] needs.
    #[doc(alias = "PERF_FLAG_PID_CGROUP")]
    Cgroup {
        /// The cgroup's directory, open.
        dir: BorrowedFd<'a>,
        /// The CPU.
        cpu: u32,
    },
    /// One thread, on whatever CPU it runs. Needs to be allowed to trace it, or `CAP_PERFMON`.
    Thread(u32),
}
