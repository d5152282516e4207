//! The seam to the kernel, and the only unsafe code of the program.
//!
//! Everything that `perf_event_open` is asked for is a value ([`Attr`], [`Place`]), given to a [`Kernel`]: the
//! [live](live::Live) one makes the system call, the [fake](fake::FakeKernel) one answers from a table. An errno
//! passes through unchanged; what it means is judged in [`health`](crate::health).

#![expect(unsafe_code, reason = "this is the one module where it may stand; each block is argued")]

pub mod allocator;
mod budget;
mod descriptors;
pub mod fake;
pub mod live;
mod registers;
mod ring;
mod sample;
mod sampler;
pub mod scheduling;
pub mod spawn;
pub mod usage;

pub use crate::config::profiled::Rate;
pub use budget::Budget;
pub use descriptors::OpenDescriptors;
pub use registers::Registers;
pub use sample::{Drained, Fields, ReadFormat, Ring, Sampling, Sideband, WAKE_UP};

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::error::Errno;
use crate::event::{self, Modifiers, ProbePoint, Selector};

/// What can open events.
pub trait Kernel {
    /// An open event; dropping it closes it.
    type Event: Event + fmt::Debug + Send + 'static;

    /// Opens one event, as a member of `leader`'s group if there is one.
    ///
    /// # Errors
    /// The kernel's errno; `EINVAL` also for a filter that it does not take.
    fn open(&self, attr: &Attr, place: Place<'_>, leader: Option<&Self::Event>)
    -> Result<Self::Event, Errno>;

    /// Closes events, and may do so after it has returned. When the last event of a tracepoint is closed, the kernel waits until
    /// no CPU can be in its handler (an RCU grace period): seconds, on a machine in trouble.
    fn close(&self, events: Vec<Self::Event>) {
        drop(events);
    }
}

/// An open event.
pub trait Event {
    /// A ring for the records of this event.
    type Ring: Ring + Send + fmt::Debug + 'static;

    /// Reads the group that this event leads into `words`: the number of members, nanoseconds enabled, nanoseconds
    /// running, then one value per member in the order in which they were opened
    /// (`PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING`; without the times if this event's
    /// [`ReadFormat`] leaves them out). Returns how many words were read: 0 means
    /// that a pinned group could not be placed on the PMU and is in error state.
    ///
    /// When a CPU goes offline, the kernel dissolves the groups of its events: the leader is then the only member. A member that
    /// writes no records ([`Attr::reads_alone`]) always reads one word, its own count, which it keeps after its CPU has gone.
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

    /// The number by which records name this event.
    ///
    /// # Errors
    /// The kernel's errno.
    fn id(&self) -> Result<u64, Errno>;

    /// Makes a ring of `pages` pages for records, a power of two, besides one page for positions. There is one ring
    /// at a time: drop it before asking for another.
    ///
    /// # Errors
    /// `EPERM` when the memory does not fit into `perf_event_mlock_kb` and `RLIMIT_MEMLOCK`, which do not bind a
    /// process with `CAP_IPC_LOCK`; `ENOMEM`; `EINVAL` for other numbers of pages.
    fn map(&self, pages: usize) -> Result<Self::Ring, Errno>;

    /// Lets this event write into the ring of `to`, which counts on the same CPU. Holds until that ring is dropped.
    ///
    /// # Errors
    /// The kernel's errno; `EINVAL` for events of other CPUs or clocks.
    fn write_to(&self, to: &Self) -> Result<(), Errno>;

    /// Writes a record each time it counted so many from now on, instead of as often as it was opened for.
    ///
    /// # Errors
    /// The kernel's errno; `EINVAL` for 0, and for an event that writes no records.
    fn set_period(&self, period: u64) -> Result<(), Errno>;

    /// What can be polled for unread records; `None` if nothing can.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// How an event is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// What to count.
    pub selector: Selector,
    /// With which bits. `precise`, `weak` and `leader_sampling` do not change a count and are not passed on.
    pub modifiers: Modifiers,
    /// Who is counted besides the thread that the event is opened for.
    pub inherit: Inherit,
    /// When counting starts.
    pub start: Start,
    /// Whether it writes records besides counting.
    pub sampling: Option<Sampling>,
    /// Where its probe is, for the PMUs that make one.
    pub probe: Option<Arc<ProbePoint>>,
    /// Which hits count (`PERF_EVENT_IOC_SET_FILTER`).
    pub filter: Option<Arc<str>>,
    /// Whether it is a member of a group whose records are [`ordered`](Sampling::ordered): all members have one clock.
    pub ordered: bool,
}

impl Attr {
    /// What counts `event` for whom it is opened for, from the first [`Event::enable`] on.
    pub fn counting(event: &event::Event) -> Self {
        let (probe, filter) = (event.probe.clone(), event.filter.clone());
        Self { modifiers: event.modifiers, probe, filter, ..Self::of(event.selector) }
    }

    /// The same as a member of a group, which follows its leader.
    #[must_use]
    pub fn of_member(self) -> Self {
        Self { modifiers: self.modifiers.of_member(), start: Start::WithLeader, ..self }
    }

    /// Whether a read gives the count of this event alone: it is a member of a group, and writes no records.
    pub fn reads_alone(&self) -> bool {
        self.start == Start::WithLeader && self.sampling.is_none()
    }

    /// A software event of the kernel (`PERF_COUNT_SW_*`).
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
            probe: None,
            filter: None,
            ordered: false,
        }
    }
}

/// `PERF_TYPE_SOFTWARE`.
pub const SOFTWARE: u32 = 1;

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
    /// One thread while it is on one CPU. Needs what [`Place::Thread`] needs. Events that are inherited and write records
    /// are opened on each CPU by itself, for the kernel gives a ring to no other.
    ThreadOn {
        /// The thread.
        tid: u32,
        /// The CPU.
        cpu: u32,
    },
}
