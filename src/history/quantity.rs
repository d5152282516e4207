//! The recorded quantities and lists, and the metrics that they are read from.

use std::mem::discriminant;

use super::lists::{List, OTHER};
use crate::metrics::{Family, Kind, Labels, Metadata, Snapshot};
use crate::named_enum::named_enum;

named_enum! {
    /// A kind of subject.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Scope {
        /// The whole machine.
        Machine = "machine",
        /// Cgroups, and so containers.
        Cgroup = "cgroup",
        /// Programs, by the name of the process.
        Program = "program",
    }
}

impl Scope {
    /// Number of scopes.
    pub(super) const COUNT: usize = Self::ALL.len();

    /// Returns the label that contains the name of a subject.
    pub(super) const fn label(self) -> Option<&'static str> {
        match self {
            Self::Machine => None,
            Self::Cgroup => Some("cgroup"),
            Self::Program => Some("comm"),
        }
    }
}

/// A recorded series of a subject. Its values are amounts per step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Quantity {
    /// CPU time, in microseconds.
    Cpu,
    /// Cycles of the CPU.
    Cycles,
    /// Instructions.
    Instructions,
    /// Misses of the last-level cache.
    CacheMisses,
    /// Context switches.
    Switches,
    /// Migrations to another CPU.
    Migrations,
    /// Page faults.
    Faults,
    /// Preemptions.
    Preemptions,
    /// Created processes and threads.
    Forks,
    /// System calls.
    Calls,
    /// System calls that returned an error.
    Errors,
    /// Records that were lost because a ring was full.
    Lost,
    /// The number of waits for a CPU of at most 2ⁿ seconds, and of more than half of that. `i8::MAX`: of any longer time.
    Runqueue(i8),
    /// The number of requests to block devices with such a latency.
    Block(i8),
}

impl Quantity {
    /// Returns the number of its source, as a bit. Each quantity has one source.
    pub(super) fn bit(self) -> u32 {
        let reads = |source: &Source| match source.reading {
            Reading::Sum(quantity, _) => quantity == self,
            Reading::Buckets(quantity) => discriminant(&quantity(0)) == discriminant(&self),
            Reading::Lines => false,
        };
        SOURCES.iter().position(reads).map_or(0, |number| 1 << number)
    }
}

/// What is read from a family.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reading {
    /// A counter, in units of `1 / factor`.
    Sum(Quantity, f64),
    /// A histogram, by bucket.
    Buckets(fn(i8) -> Quantity),
    /// Nothing but the lines of a list.
    Lines,
}

/// The name of a line of a list.
#[derive(Debug, Clone, Copy)]
enum Name {
    /// The value of a label.
    Label(&'static str),
    /// The same for all series.
    Fixed(&'static str),
    /// The entry of the configuration, which is the rest of the name of the family.
    Entry,
}

/// The families of a reading, by scope, without the suffix of their kind. The first one of a list that a snapshot contains is used. The
/// series of a family with the same subject are added up: those of all CPUs, PMUs, calls and causes.
pub(super) struct Source {
    pub(super) reading: Reading,
    families: [&'static [&'static str]; Scope::COUNT],
    /// The only series that are read: those with this label.
    only: Option<(&'static str, &'static str)>,
    /// The list that gets the same increments by name.
    lines: Option<(List, Name)>,
    /// The label with the subject, if it is not that of the scope. Such a series creates no subject, because its other labels are those of
    /// another one.
    subject: Option<&'static str>,
}

/// A family of a snapshot, and how it is read.
#[derive(Clone, Copy)]
pub(super) struct Found<'s> {
    pub(super) scope: Scope,
    pub(super) source: &'static Source,
    /// The number of the source, as a bit.
    pub(super) bit: u32,
    pub(super) family: &'s Family,
    entry: &'s str,
}

impl<'s> Found<'s> {
    /// Returns the subject of a series; `None` if the series is not read.
    pub(super) fn subject<'l>(&self, labels: &'l Labels) -> Option<&'l str> {
        if self.source.only.is_some_and(|(label, value)| labels.get(label) != Some(value)) {
            return None;
        }
        self.source.subject.or(self.scope.label()).map_or(Some(""), |label| labels.get(label))
    }

    /// Reports whether a series without a known subject creates it.
    pub(super) fn creates(&self) -> bool {
        self.source.subject.is_none()
    }

    /// Reports whether the increments are also recorded by name.
    pub(super) fn is_listed(&self) -> bool {
        self.source.lines.is_some()
    }

    /// Returns the list and the name to which a series of a subject belongs.
    pub(super) fn line<'l>(&'l self, subject: &str, labels: &'l Labels) -> Option<(List, &'l str)> {
        let (list, name) = self.source.lines?;
        let name = match name {
            Name::Label(label) => labels.get(label).unwrap_or(OTHER),
            Name::Fixed(name) => name,
            Name::Entry => self.entry,
        };
        // No cgroup preempts itself, but one of the aggregated cgroups another one.
        let is_itself = matches!(list, List::PreemptedBy | List::Preempts) && name == subject;
        (!is_itself).then_some((list, name))
    }
}

/// Returns all families of a snapshot that are read, with their sources.
pub(super) fn found(snapshot: &Snapshot) -> impl Iterator<Item = Found<'_>> {
    let of_source = move |(number, source): (usize, &'static Source)| {
        Scope::ALL.into_iter().zip(source.families).filter_map(move |(scope, names)| {
            let family = names.iter().find_map(|name| snapshot.family(name))?;
            Some(Found { scope, source, bit: 1 << number, family, entry: "" })
        })
    };
    let entries = snapshot.families().iter().filter_map(|family| {
        let (scope, entry) = entry(family.metadata())?;
        Some(Found { scope, source: &ENTRIES, bit: 1 << SOURCES.len(), family, entry })
    });
    SOURCES.iter().enumerate().flat_map(of_source).chain(entries)
}

/// Prefixes of the families that entries of the configuration create.
const PREFIXES: [(&str, Scope); 4] = [
    ("perf_tracepoint_", Scope::Machine),
    ("perf_probe_", Scope::Machine),
    ("perf_cgroup_", Scope::Cgroup),
    ("perf_process_", Scope::Program),
];

/// The beginnings of the names of built-in metrics behind these prefixes: charts and other lists contain them.
const BUILT_IN: [&str; 10] = [
    "cycles",
    "instructions",
    "cache_",
    "task_clock",
    "context_switches",
    "cpu_migrations",
    "page_faults",
    "major_faults",
    "sched_",
    "syscall",
];

/// Returns the scope and the name of an entry that counts hits. Sums of sizes and times are no hits.
fn entry(metadata: &Metadata) -> Option<(Scope, &str)> {
    let counts_hits = match metadata.kind() {
        Kind::Counter => metadata.unit().is_empty(),
        kind => kind == Kind::Histogram,
    };
    let of = |(prefix, scope): &(&str, Scope)| Some((*scope, metadata.name().strip_prefix(prefix)?));
    let (scope, entry) = PREFIXES.iter().find_map(of).filter(|_| counts_hits)?;
    (!BUILT_IN.iter().any(|known| entry.starts_with(known))).then_some((scope, entry))
}

/// The families of entries, which are found by their prefix.
static ENTRIES: Source = Source {
    reading: Reading::Lines,
    families: [&[]; Scope::COUNT],
    only: None,
    lines: Some((List::Events, Name::Entry)),
    subject: None,
};

/// Microseconds of a second.
const MICROSECONDS: f64 = 1e6;

const fn counter(
    quantity: Quantity,
    factor: f64,
    machine: &'static [&'static str],
    cgroup: &'static [&'static str],
    program: &'static [&'static str],
) -> Source {
    Source {
        reading: Reading::Sum(quantity, factor),
        families: [machine, cgroup, program],
        only: None,
        lines: None,
        subject: None,
    }
}

/// Returns a source of a list only.
const fn lines(list: List, name: Name, families: [&'static [&'static str]; Scope::COUNT]) -> Source {
    Source { reading: Reading::Lines, families, only: None, lines: Some((list, name)), subject: None }
}

impl Source {
    /// Returns the same source, which is also read as a list.
    const fn listed(self, list: List, name: Name) -> Self {
        Self { lines: Some((list, name)), ..self }
    }
}

/// All sources. `task-clock` of a CPU includes idle time, therefore the CPU time of the machine is that of its threads.
static SOURCES: [Source; 18] = [
    counter(
        Quantity::Cpu,
        MICROSECONDS,
        &["perf_sched_run_seconds", "perf_cgroup_task_clock_seconds", "perf_process_task_clock_seconds"],
        &["perf_cgroup_task_clock_seconds", "perf_cgroup_sched_run_seconds"],
        &["perf_process_task_clock_seconds", "perf_process_sched_run_seconds"],
    ),
    counter(Quantity::Cycles, 1.0, &["perf_cpu_cycles"], &["perf_cgroup_cycles"], &["perf_process_cycles"]),
    counter(
        Quantity::Instructions,
        1.0,
        &["perf_cpu_instructions"],
        &["perf_cgroup_instructions"],
        &["perf_process_instructions"],
    ),
    counter(
        Quantity::CacheMisses,
        1.0,
        &["perf_cpu_cache_misses"],
        &["perf_cgroup_cache_misses"],
        &["perf_process_cache_misses"],
    ),
    counter(
        Quantity::Switches,
        1.0,
        &["perf_cpu_context_switches", "perf_sched_switches"],
        &["perf_cgroup_context_switches", "perf_cgroup_sched_switches"],
        &["perf_process_context_switches", "perf_process_sched_switches"],
    ),
    counter(
        Quantity::Migrations,
        1.0,
        &["perf_cpu_cpu_migrations", "perf_sched_migrations"],
        &["perf_cgroup_cpu_migrations", "perf_cgroup_sched_migrations"],
        &["perf_process_cpu_migrations", "perf_process_sched_migrations"],
    ),
    counter(
        Quantity::Faults,
        1.0,
        &["perf_cpu_page_faults"],
        &["perf_cgroup_page_faults"],
        &["perf_process_page_faults"],
    ),
    counter(
        Quantity::Preemptions,
        1.0,
        &["perf_sched_preemptions"],
        &["perf_cgroup_sched_preemptions"],
        &["perf_process_sched_preemptions"],
    )
    .listed(List::Causes, Name::Label("by")),
    counter(
        Quantity::Forks,
        1.0,
        &["perf_tracepoint_forks", "perf_cgroup_forks"],
        &["perf_cgroup_forks"],
        &["perf_process_forks"],
    ),
    counter(Quantity::Calls, 1.0, &["perf_syscalls"], &["perf_cgroup_syscalls"], &["perf_process_syscalls"])
        .listed(List::Calls, Name::Label("syscall")),
    counter(
        Quantity::Errors,
        1.0,
        &["perf_syscall_errors"],
        &["perf_cgroup_syscall_errors"],
        &["perf_process_syscall_errors"],
    )
    .listed(List::Errors, Name::Label("errno")),
    Source {
        reading: Reading::Buckets(Quantity::Runqueue),
        families: [
            &["perf_sched_runqueue_latency_seconds"],
            &["perf_cgroup_sched_runqueue_latency_seconds"],
            &["perf_process_sched_runqueue_latency_seconds"],
        ],
        only: None,
        lines: None,
        subject: None,
    },
    Source {
        reading: Reading::Buckets(Quantity::Block),
        families: [&["perf_tracepoint_block_latency_seconds"], &[], &[]],
        only: None,
        lines: None,
        subject: None,
    },
    Source {
        reading: Reading::Sum(Quantity::Lost, 1.0),
        families: [&["perf_lost_records"], &[], &[]],
        only: Some(("reason", "ring_full")),
        lines: None,
        subject: None,
    },
    lines(
        List::States,
        Name::Fixed("running"),
        [
            &["perf_sched_run_seconds"],
            &["perf_cgroup_sched_run_seconds"],
            &["perf_process_sched_run_seconds"],
        ],
    ),
    lines(
        List::States,
        Name::Label("state"),
        [
            &["perf_sched_wait_seconds"],
            &["perf_cgroup_sched_wait_seconds"],
            &["perf_process_sched_wait_seconds"],
        ],
    ),
    lines(
        List::PreemptedBy,
        Name::Label("by_cgroup"),
        [&[], &["perf_cgroup_sched_preempted_by_cgroup"], &["perf_process_sched_preempted_by_cgroup"]],
    ),
    Source {
        subject: Some("by_cgroup"),
        ..lines(List::Preempts, Name::Label("cgroup"), [&[], &["perf_cgroup_sched_preempted_by_cgroup"], &[]])
    },
];
