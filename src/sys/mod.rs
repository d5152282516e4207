//! The interface to the kernel, and the only unsafe code of the program.
//!
//! A call of `perf_event_open` is described by values ([`Attr`], [`Place`]) that are passed to a [`Kernel`]: [`Live`](live::Live) makes the
//! system call, [`FakeKernel`](fake::FakeKernel) responds from a table. An errno is passed through unchanged; [`health`](crate::health)
//! explains it.

#![expect(unsafe_code, reason = "the only module with unsafe code; each block has a safety comment")]

mod budget;
mod descriptors;
pub mod fake;
pub mod live;
pub mod malloc_settings;
pub mod privileges;
mod profile_attr;
mod registers;
mod ring;
mod sample;
pub mod sandbox;
pub mod scheduling;
pub mod spawn;
pub mod usage;

pub use crate::config::profiled::Rate;
pub use budget::Budget;
pub use descriptors::{InheritedSocket, OpenDescriptors, inherited_sockets};
pub use registers::Registers;
pub use sample::{Drained, Fields, ReadFormat, Ring, Sampling, Sideband, WAKE_UP, wake_up};

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::error::Errno;
use crate::event::{self, Modifiers, ProbePoint, Selector};

/// A kernel that opens events.
pub trait Kernel {
    /// An open event. Dropping it closes it.
    type Event: Event + fmt::Debug + Send + 'static;

    /// Opens one event, as a member of `leader`'s group if there is one.
    ///
    /// # Errors
    /// The kernel's errno; `EINVAL` also for a filter that it rejects.
    fn open(&self, attr: &Attr, place: Place<'_>, leader: Option<&Self::Event>)
    -> Result<Self::Event, Errno>;

    /// Closes events, possibly after this function has returned. When the last event of a tracepoint is closed, the kernel waits until no
    /// CPU can be in its handler (an RCU grace period). On an overloaded machine this takes seconds.
    fn close(&self, events: Vec<Self::Event>) {
        drop(events);
    }
}

/// An open event.
pub trait Event {
    /// A ring for the records of this event.
    type Ring: Ring + Send + fmt::Debug + 'static;

    /// Reads the group that this event leads into `words`: the number of members, nanoseconds enabled, nanoseconds running, then one value
    /// per member in the order of opening. The format is `PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING`, without the times
    /// if this event's [`ReadFormat`] omits them. Returns the number of words read. 0 means that a pinned group could not be placed on the
    /// PMU and is in error state.
    ///
    /// When a CPU goes offline, the kernel dissolves the groups of its events: the leader is then the only member. A read of a member that
    /// writes no records ([`Attr::reads_alone`]) always returns one word, its own count. It keeps this count after its CPU went offline.
    ///
    /// # Errors
    /// The kernel's errno; `ENOSPC` when `words` is too small for the group.
    fn read(&self, words: &mut [u64]) -> Result<usize, Errno>;

    /// Starts the whole group.
    ///
    /// # Errors
    /// The kernel's errno.
    fn enable(&self) -> Result<(), Errno>;

    /// Stops the whole group.
    ///
    /// # Errors
    /// The kernel's errno.
    fn disable(&self) -> Result<(), Errno>;

    /// Returns the ID of this event in records.
    ///
    /// # Errors
    /// The kernel's errno.
    fn id(&self) -> Result<u64, Errno>;

    /// Creates a ring of `pages` pages for records, a power of two, plus one page for positions. An event has one ring at a time: drop it
    /// before creating another.
    ///
    /// # Errors
    /// `EPERM` when the memory exceeds `perf_event_mlock_kb` and `RLIMIT_MEMLOCK`, which do not apply to a process with `CAP_IPC_LOCK`;
    /// `ENOMEM`; `EINVAL` for other numbers of pages.
    fn map(&self, pages: usize) -> Result<Self::Ring, Errno>;

    /// Redirects the records of this event into the ring of `to`, an event on the same CPU, until that ring is dropped.
    ///
    /// # Errors
    /// The kernel's errno; `EINVAL` for events of other CPUs or clocks.
    fn write_to(&self, to: &Self) -> Result<(), Errno>;

    /// Changes the sampling period: the event writes a record each time that it has counted `period` from now on.
    ///
    /// # Errors
    /// The kernel's errno; `EINVAL` for 0, and for an event that writes no records.
    fn set_period(&self, period: u64) -> Result<(), Errno>;

    /// Returns the descriptor to poll for unread records; `None` if there is none.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Options for opening an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// The event to count.
    pub selector: Selector,
    /// Modifiers. `weak` and `leader_sampling` do not change a count and are not passed on, and `precise` only for events that write records.
    pub modifiers: Modifiers,
    /// Whether children of the thread inherit the event.
    pub inherit: Inherit,
    /// When counting starts.
    pub start: Start,
    /// Whether and how it writes records.
    pub sampling: Option<Sampling>,
    /// Number of bytes of records after which the poller of its ring is woken up, if the ring belongs to this event.
    pub wake_up: usize,
    /// The location of its probe, for the PMUs of dynamic probes.
    pub probe: Option<Arc<ProbePoint>>,
    /// Filter of hits (`PERF_EVENT_IOC_SET_FILTER`).
    pub filter: Option<Arc<str>>,
    /// An event that is counted as the leader of its group, without records. The kernel requires it for some events.
    pub leader: Option<Box<Self>>,
    /// Whether it is a member of a group whose records are [`ordered`](Sampling::ordered): all members use one clock.
    pub ordered: bool,
}

impl Attr {
    /// Returns the options for counting `event`, starting with the first [`Event::enable`].
    pub fn counting(event: &event::Event) -> Self {
        let (probe, filter) = (event.probe.clone(), event.filter.clone());
        Self { modifiers: event.modifiers, probe, filter, ..Self::of(event.selector) }
    }

    /// Returns the same options for a member of a group, which starts with its leader.
    #[must_use]
    pub fn of_member(self) -> Self {
        Self { modifiers: self.modifiers.of_member(), start: Start::WithLeader, ..self }
    }

    /// Reports whether a read returns the count of this event only: it is a member of a group, and writes no records.
    pub fn reads_alone(&self) -> bool {
        self.start == Start::WithLeader && self.sampling.is_none()
    }

    /// Returns the options of a software event of the kernel (`PERF_COUNT_SW_*`).
    pub fn software(config: u64, sampling: Option<Sampling>, start: Start) -> Self {
        let selector = Selector { kind: SOFTWARE, config: [config, 0, 0, 0] };
        Self { start, sampling, ..Self::of(selector) }
    }

    fn of(selector: Selector) -> Self {
        Self {
            selector,
            modifiers: Modifiers::default(),
            inherit: Inherit::default(),
            start: Start::default(),
            sampling: None,
            wake_up: WAKE_UP,
            probe: None,
            filter: None,
            leader: None,
            ordered: false,
        }
    }
}

/// `PERF_TYPE_SOFTWARE`.
pub const SOFTWARE: u32 = 1;

/// Whether threads or processes that the thread starts later are also counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inherit {
    /// The thread only. The only valid choice for CPUs and cgroups.
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
    /// Together with the leader: for every member of a group.
    WithLeader,
}

/// Target of an event. Only combinations that the kernel supports can be expressed.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// Everything on one CPU. Needs `CAP_PERFMON` or `perf_event_paranoid` below 1.
    Cpu(u32),
    /// Tasks in a cgroup, and in those below it, on one CPU. Needs the same privileges as [`Place::Cpu`].
    #[doc(alias = "PERF_FLAG_PID_CGROUP")]
    Cgroup {
        /// The open directory of the cgroup.
        dir: BorrowedFd<'a>,
        /// The CPU.
        cpu: u32,
    },
    /// One thread, on any CPU. Needs the right to trace it, or `CAP_PERFMON`.
    Thread(u32),
    /// One thread while it is on one CPU. Needs the same privileges as [`Place::Thread`]. Inherited events that write records are opened on
    /// each CPU separately, because the kernel does not allow a ring otherwise.
    ThreadOn {
        /// The thread.
        tid: u32,
        /// The CPU.
        cpu: u32,
    },
}
