//! Planned traces: a [`Trace`], its events, and how their records are decoded and aggregated.

use std::sync::Arc;
use std::time::Duration;

use crate::config::traced::TracedKind;
use crate::event::Event;
use crate::event::format::Field;
use crate::metrics::{Buckets, Metadata};
use crate::probe::Definition;
use crate::sched::Layout;
use crate::syscall::Call;
use crate::targets::Targets;

/// Trace: decodes the records of one or more events.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Section of the entry.
    pub kind: TracedKind,
    /// Input of its series.
    pub feed: Feed,
    /// Name of the entry.
    pub entry: Arc<str>,
    /// Events; for a pair, the first and the second.
    pub sources: Vec<Source>,
    /// Matching parameters of a pair.
    pub pair: Option<Pairing>,
    /// Targets with their metrics.
    pub outputs: Vec<Output>,
    /// Names of the labels that are taken from fields.
    pub labels: Vec<Arc<str>>,
    /// Whether the event is a label, because there are several.
    pub event_label: bool,
    /// Probe whose files change with the containers that it follows. The totals continue when they do.
    pub follows: Option<Arc<Definition>>,
    /// Aggregation.
    pub measure: Amount,
    /// Maximum number of distinct values of one label.
    pub values: usize,
}

/// Event that writes records, and the location of values in them.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Event to open, with its filter.
    pub event: Event,
    /// ID at the start of its records (`common_type`), if they are decoded.
    pub number: Option<u16>,
    /// Meaning of the record, beyond its fields.
    pub role: Role,
    /// Key of a pair.
    pub key: Vec<ValueLocation>,
    /// Location of each label value; `None` if the other event of the pair contains it.
    pub labels: Vec<Option<ValueLocation>>,
    /// Field to aggregate.
    pub value: Option<Field>,
}

/// Location of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueLocation {
    /// Field of the record.
    Field(Field),
    /// CPU of the ring.
    Cpu,
    /// Process ID.
    Pid,
    /// Thread ID.
    Tid,
}

/// Matching parameters of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairing {
    /// Maximum time from the first event to the second.
    pub timeout: Duration,
    /// Maximum number of pending first events.
    pub pending: usize,
}

/// Aggregation over the hits.
#[derive(Debug, Clone, PartialEq)]
pub enum Amount {
    /// Number of hits only.
    Hits,
    /// Sum of the field times a factor.
    Sum(f64),
    /// Histogram of the field times a factor.
    Histogram(f64, Buckets),
    /// Histogram of the seconds between two events.
    Elapsed(Buckets),
    /// Maximum times a factor, over the collections within this duration. It is recomputed at each collection, as is the number of hits.
    Most(f64, Duration),
}

/// Targets, with their metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Targets.
    pub targets: Targets,
    /// Metric of the number of hits; `None` if the histogram contains it.
    pub hits: Option<Arc<Metadata>>,
    /// Metric of the sum or the histogram.
    pub amount: Option<Arc<Metadata>>,
    /// Metric of the hits or amounts outside all series; `None` if another metric contains them.
    pub unattributed: Option<Arc<Metadata>>,
}

/// Ring of a CPU that contains the records of a trace. A lost record affects only traces of the same ring class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingClass {
    /// Records that are read immediately.
    Direct,
    /// Records of tracepoints and probes that are read in time order across CPUs, as in the two following lanes.
    Ordered,
    /// Scheduler records.
    Scheduler,
    /// System call records.
    Syscalls,
}

impl RingClass {
    /// All lanes, by index.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Ordered, Self::Scheduler, Self::Syscalls];

    /// Reports whether records are read in time order across CPUs.
    pub fn is_ordered(self) -> bool {
        self != Self::Direct
    }
}

impl Trace {
    /// Returns the ring class of the records.
    pub fn class(&self) -> RingClass {
        match self.kind {
            TracedKind::Scheduler => RingClass::Scheduler,
            TracedKind::Syscalls => RingClass::Syscalls,
            _ if self.is_ordered() => RingClass::Ordered,
            _ => RingClass::Direct,
        }
    }

    /// Reports whether records must be read in time order across CPUs: to match pairs, and to attribute records to the name that a process
    /// had at the time.
    pub fn is_ordered(&self) -> bool {
        self.pair.is_some()
            || self.feed != Feed::Records
            || self.outputs.iter().any(|output| matches!(output.targets, Targets::Processes(_)))
    }

    /// Reports whether the records must contain the cgroup.
    pub fn needs_cgroup(&self) -> bool {
        let needs = |output: &Output| match &output.targets {
            Targets::Cgroups(_) => true,
            targets => targets.needs_cgroup(),
        };
        self.outputs.iter().any(needs)
    }

    /// Reports whether the records must contain the process.
    pub fn needs_task(&self) -> bool {
        let takes = |take: &ValueLocation| matches!(take, ValueLocation::Pid | ValueLocation::Tid);
        let looks = |source: &Source| source.key.iter().chain(source.labels.iter().flatten()).any(takes);
        self.is_ordered() || self.sources.iter().any(looks)
    }
}

/// Input of the series of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Feed {
    /// Fields of the records.
    Records,
    /// Fact derived from the records of all events, for one in N tasks; the values are multiplied by N.
    Tasks(Fact, u32),
}

/// Fact about tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fact {
    /// Run queue latency: time from runnable to running.
    Delay,
    /// Maximum run queue latency in the last minute.
    LongestDelay,
    /// Time on a CPU.
    Run,
    /// Time off the CPU, by the state in which the task left it.
    Wait,
    /// Context switches, voluntary or involuntary.
    Switches,
    /// Preemptions, by the kind of the incoming task.
    Preemptions,
    /// Preemptions, by the other cgroup.
    PreemptedBy,
    /// Migrations to another CPU.
    Migrations,
    /// System calls, by name.
    Calls,
    /// Failed system calls, by error.
    Errors,
    /// Duration of system calls.
    Durations,
    /// Calls that have been in progress for longer than this many nanoseconds.
    Stuck(u64),
}

/// Meaning of an event's records, beyond their fields.
#[derive(Debug, Clone, PartialEq)]
pub enum Role {
    /// Fields only.
    Fields,
    /// Scheduler event.
    Scheduler(Layout),
    /// Entry of a system call (`raw_syscalls:sys_enter`).
    Enter {
        /// System call number.
        number: Field,
        /// Selected calls, sorted; `None` = all. The filter in the kernel accepts more, because it cannot distinguish 32-bit programs,
        /// whose numbers mean other calls.
        calls: Option<Arc<[Call]>>,
    },
    /// Exit of a system call (`raw_syscalls:sys_exit`).
    Exit {
        /// System call number.
        number: Field,
        /// Return value.
        result: Field,
    },
}

impl Role {
    /// Reports whether the records must contain the cgroup. In wakeup and migration records, the affected task is not the current task.
    pub fn tells_cgroup(&self) -> bool {
        matches!(self, Self::Scheduler(Layout::Switch { .. }) | Self::Enter { .. })
    }
}
