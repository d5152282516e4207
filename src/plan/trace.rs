//! What looks into records, as planned: a [`Trace`], its events, and what their records come to.

use std::sync::Arc;
use std::time::Duration;

use crate::config::traced::TracedKind;
use crate::event::Event;
use crate::event::format::Field;
use crate::metrics::{Buckets, Metadata};
use crate::sched::Layout;
use crate::syscall::Call;
use crate::target::Targets;

/// What looks into the records of one or more events.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Where it stands in the file.
    pub kind: TracedKind,
    /// What its series are made of.
    pub feed: Feed,
    /// The name of the entry.
    pub entry: Arc<str>,
    /// The events; of a pair the first and the second.
    pub sources: Vec<Source>,
    /// How the second event of a pair finds its first.
    pub pair: Option<Pairing>,
    /// For whom, each with its metrics.
    pub outputs: Vec<Output>,
    /// The names of the labels that are taken from fields.
    pub labels: Vec<Arc<str>>,
    /// Whether the event itself is a label, for there are several.
    pub event_label: bool,
    /// What is added up.
    pub measure: Amount,
    /// How many values of one label are kept apart.
    pub values: usize,
}

/// An event that writes records, and where in them things are.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// What to open, with its filter.
    pub event: Event,
    /// The number that its records begin with (`common_type`), if they are looked into.
    pub number: Option<u16>,
    /// What it tells besides its fields.
    pub role: Role,
    /// The parts of the key of a pair.
    pub key: Vec<Take>,
    /// For each label where its value is; `None` where the other event of the pair has it.
    pub labels: Vec<Option<Take>>,
    /// What is added up.
    pub value: Option<Field>,
}

/// Where a value is taken from.
#[derive(Debug, Clone, PartialEq)]
pub enum Take {
    /// A field of the record.
    Field(Field),
    /// The CPU of the ring.
    Cpu,
    /// The process.
    Pid,
    /// The thread.
    Tid,
}

/// How two events find one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairing {
    /// How long the first is remembered.
    pub timeout: Duration,
    /// How many are remembered at a time.
    pub pending: usize,
}

/// What is added up over the hits.
#[derive(Debug, Clone, PartialEq)]
pub enum Amount {
    /// Nothing.
    Hits,
    /// The field, times a factor.
    Sum(f64),
    /// The field, times a factor, in a histogram.
    Histogram(f64, Buckets),
    /// The seconds between two events, in a histogram.
    Elapsed(Buckets),
    /// The largest of late, times a factor: of the last collections, as far as they are not older than this. It is told
    /// anew each time, as are hits beside it.
    Most(f64, Duration),
}

/// For whom, and the metrics that it becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// For whom.
    pub targets: Targets,
    /// The number of hits; `None` where the histogram tells it.
    pub hits: Option<Arc<Metadata>>,
    /// The sum or the histogram.
    pub amount: Option<Arc<Metadata>>,
    /// Hits that stand in no series, or what they amount to; `None` where another metric tells it.
    pub unattributed: Option<Arc<Metadata>>,
}

/// The ring of a CPU that the records of a trace are written to. A lost record affects only traces of the same lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Records that are read as they come.
    Direct,
    /// Records of tracepoints and probes that are read in the order of their times, across CPUs. So are those of the next two.
    Ordered,
    /// Records of the scheduler.
    Scheduler,
    /// Records of system calls.
    Syscalls,
}

impl Lane {
    /// All of them, by number.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Ordered, Self::Scheduler, Self::Syscalls];

    /// Whether records are read in the order of their times, across CPUs.
    pub fn is_ordered(self) -> bool {
        self != Self::Direct
    }
}

impl Trace {
    /// The ring of its records.
    pub fn lane(&self) -> Lane {
        match self.kind {
            TracedKind::Scheduler => Lane::Scheduler,
            TracedKind::Syscalls => Lane::Syscalls,
            _ if self.is_ordered() => Lane::Ordered,
            _ => Lane::Direct,
        }
    }

    /// Whether records must be read in the order of their times, across CPUs: to pair them, and to know what a process
    /// was called at the time.
    pub fn is_ordered(&self) -> bool {
        self.pair.is_some()
            || self.feed != Feed::Records
            || self.outputs.iter().any(|output| matches!(output.targets, Targets::Processes(_)))
    }

    /// Whether its records must tell of the cgroup.
    pub fn needs_cgroup(&self) -> bool {
        let needs = |output: &Output| match &output.targets {
            Targets::Cgroups(_) => true,
            targets => targets.needs_cgroup(),
        };
        self.outputs.iter().any(needs)
    }

    /// Whether its records must tell of the process.
    pub fn needs_task(&self) -> bool {
        let takes = |take: &Take| matches!(take, Take::Pid | Take::Tid);
        let looks = |source: &Source| source.key.iter().chain(source.labels.iter().flatten()).any(takes);
        self.is_ordered() || self.sources.iter().any(looks)
    }
}

/// What the series of a trace are made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Feed {
    /// The fields of its records.
    Records,
    /// What follows from the records of all its events together: about one of so many tasks, for which the numbers are
    /// multiplied.
    Tasks(Fact, u32),
}

/// What is told of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fact {
    /// How long they were ready and waited for a CPU.
    Delay,
    /// The longest of these of late.
    LongestDelay,
    /// How long they ran.
    Run,
    /// How long they were off the CPU, by how they had left it.
    Wait,
    /// How often they left a CPU, of themselves or not.
    Switches,
    /// By whom they were preempted.
    Preemptions,
    /// By which other cgroups.
    PreemptedBy,
    /// How often they were given to another CPU.
    Migrations,
    /// How often they called the kernel, by system call.
    Calls,
    /// How often a call failed, by error.
    Errors,
    /// How long calls took.
    Durations,
    /// Calls that have not ended for longer than so many nanoseconds.
    Stuck(u64),
}

/// What an event tells besides its fields.
#[derive(Debug, Clone, PartialEq)]
pub enum Role {
    /// Nothing.
    Fields,
    /// What the scheduler does.
    Scheduler(Layout),
    /// A thread enters the kernel (`raw_syscalls:sys_enter`).
    Enter {
        /// The number of the call.
        number: Field,
        /// Those that are wanted, sorted; `None` = all. The kernel's filter lets pass more: it cannot tell programs of 32 bits,
        /// whose numbers mean other calls.
        calls: Option<Arc<[Call]>>,
    },
    /// A thread leaves it (`raw_syscalls:sys_exit`).
    Exit {
        /// The number of the call.
        number: Field,
        /// What it gives.
        result: Field,
    },
}

impl Role {
    /// Whether its records must tell of the cgroup: who is woken or moved is not who runs there.
    pub fn tells_cgroup(&self) -> bool {
        matches!(self, Self::Scheduler(Layout::Switch { .. }) | Self::Enter { .. })
    }
}
