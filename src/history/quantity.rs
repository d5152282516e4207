//! The recorded quantities and lists, and the metrics that they are read from.

use std::mem::discriminant;

use super::additional::{Additional, COUNTERS_MAX, LATENCIES_MAX, Latency};
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

    /// Returns the prefix of the names of its families.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Machine => "perf_",
            Self::Cgroup => "perf_cgroup_",
            Self::Program => "perf_process_",
        }
    }

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
    /// Page faults that read from a disk.
    MajorFaults,
    /// Context switches of runnable threads.
    InvoluntarySwitches,
    /// Preemptions without an incoming task: the cgroup has exhausted its CPU quota.
    Throttled,
    /// Time in uninterruptible sleep, in microseconds.
    Blocked,
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
    /// Events of one of the counters of the history, by its number.
    Counter(u8),
    /// Instructions (0) or events of a counter (its number + 1) on CPUs of a type, by its number.
    OnType(u8, u8),
    /// Time in which the running ratio of an entry of `counters` is known, by its number, in microseconds.
    Known(u8),
    /// The part of it in which the group of events that waits most was not on the PMU.
    Waiting(u8),
    /// The number of waits for a CPU of at most 2ⁿ seconds, and of more than half of that. `i8::MAX`: of any longer time.
    Runqueue(i8),
    /// The number of requests to block devices with such a latency.
    Block(i8),
    /// The number of values in one of the distributions of the history, by its number.
    Latency(u8, i8),
}

impl Quantity {
    /// Returns the number of its source, as a bit. Each quantity has one source.
    pub(super) fn bit(self) -> u64 {
        match self {
            Self::Counter(number) => return bit_of_counter(number.into()),
            Self::Latency(number, _) => return bit_of_latency(number.into()),
            Self::Known(_) | Self::Waiting(_) => return BIT_OF_RUNNING,
            Self::OnType(0, _) => return Self::Instructions.bit(),
            Self::OnType(number, _) => return bit_of_counter(usize::from(number) - 1),
            _ => {}
        }
        let reads = |source: &Source| match source.reading {
            Reading::Sum(quantity, _) => quantity == self,
            Reading::Buckets(quantity) => discriminant(&quantity(0)) == discriminant(&self),
            Reading::Lines => false,
        };
        SOURCES.iter().position(reads).map_or(0, |number| 1 << number)
    }

    /// Returns the first number of [`OnType`](Self::OnType), if these events are also recorded by type of CPU.
    pub(super) fn typed(self) -> Option<u8> {
        match self {
            Self::Instructions => Some(0),
            Self::Counter(number) => Some(number + 1),
            _ => None,
        }
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

/// A reading and its families: their names without the suffix of their kind and without the [prefix](Scope::prefix) of the scope. The first
/// one of a list that a snapshot contains is used. The series of a family with the same subject are added up: those of all CPUs, PMUs, calls
/// and causes.
pub(super) struct Source {
    pub(super) reading: Reading,
    /// Families of the machine.
    of_machine: &'static [&'static str],
    /// Families of cgroups and of programs.
    of_subjects: &'static [&'static str],
    /// The only series that are counted: those with this label. The others show that the quantity is measured.
    only: Option<(&'static str, &'static str)>,
    /// The list that gets the same increments by name.
    lines: Option<(List, Name)>,
    /// The label with the subject, a cgroup, if it is not that of the scope. Such a series creates no subject, because its other labels are
    /// those of another one.
    subject: Option<&'static str>,
}

impl Source {
    const fn new(
        reading: Reading,
        of_machine: &'static [&'static str],
        of_subjects: &'static [&'static str],
    ) -> Self {
        Self { reading, of_machine, of_subjects, only: None, lines: None, subject: None }
    }

    /// Returns a source that counts a quantity.
    const fn of(
        quantity: Quantity,
        of_machine: &'static [&'static str],
        of_subjects: &'static [&'static str],
    ) -> Self {
        Self::new(Reading::Sum(quantity, 1.0), of_machine, of_subjects)
    }

    /// Returns the same source, which is also read as a list.
    const fn listed(self, list: List, name: Name) -> Self {
        Self { lines: Some((list, name)), ..self }
    }

    /// Returns the family of a scope in a snapshot.
    fn family<'s>(&self, scope: Scope, snapshot: &'s Snapshot) -> Option<&'s Family> {
        let names = match scope {
            Scope::Machine => self.of_machine,
            Scope::Program if self.subject.is_some() => &[],
            Scope::Cgroup | Scope::Program => self.of_subjects,
        };
        names.iter().find_map(|name| snapshot.family(&format!("{}{name}", scope.prefix())))
    }
}

/// A family of a snapshot, and how it is read.
#[derive(Clone, Copy)]
pub(super) struct Found<'s> {
    pub(super) scope: Scope,
    pub(super) source: &'static Source,
    /// The number of the source, as a bit.
    pub(super) bit: u64,
    pub(super) family: &'s Family,
    entry: &'s str,
    latency: Option<&'s Latency>,
}

impl<'s> Found<'s> {
    fn new(scope: Scope, source: &'static Source, bit: u64, family: &'s Family) -> Self {
        Self { scope, source, bit, family, entry: "", latency: None }
    }

    /// Reports whether a series is read.
    pub(super) fn reads(&self, labels: &Labels) -> bool {
        self.latency.is_none_or(|latency| latency.records(labels))
    }

    /// Reports whether a series is counted.
    pub(super) fn counts(&self, labels: &Labels) -> bool {
        self.source.only.is_none_or(|(label, value)| labels.get(label) == Some(value))
    }

    /// Returns the subject of a series; `None` if it has none.
    pub(super) fn subject<'l>(&self, labels: &'l Labels) -> Option<&'l str> {
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

/// Returns the bit of a counter. The bits before it are those of the sources and of the entries.
const fn bit_of_counter(number: usize) -> u64 {
    1 << (SOURCES.len() + 1 + number)
}

/// Returns the bit of a distribution.
const fn bit_of_latency(number: usize) -> u64 {
    bit_of_counter(COUNTERS_MAX + number)
}

/// The bit of running ratios.
pub(super) const BIT_OF_RUNNING: u64 = bit_of_latency(LATENCIES_MAX);

/// The bits of all sources that are always recorded.
pub(super) const BITS_OF_SOURCES: u64 = bit_of_counter(0) - 1;

/// Returns all families of a snapshot that are read, with their sources.
pub(super) fn found<'s>(
    snapshot: &'s Snapshot,
    additional: &'s Additional,
) -> impl Iterator<Item = Found<'s>> {
    let of_source = move |(number, source): (usize, &'static Source)| {
        Scope::ALL.into_iter().filter_map(move |scope| {
            Some(Found::new(scope, source, 1 << number, source.family(scope, snapshot)?))
        })
    };
    let entries = snapshot.families().iter().filter_map(|family| {
        let (scope, entry) = entry(family.metadata())?;
        Some(Found { entry, ..Found::new(scope, &ENTRIES, 1 << SOURCES.len(), family) })
    });
    let counters = additional.counters.iter().zip(&COUNTERS).enumerate();
    let counters = counters.filter_map(|(number, (name, source))| {
        Some(Found::new(Scope::Cgroup, source, bit_of_counter(number), snapshot.family(name)?))
    });
    let latencies = additional.latencies.iter().zip(&LATENCIES).enumerate();
    let latencies = latencies.filter_map(|(number, (latency, source))| {
        let family = snapshot.family(&latency.family)?;
        let found = Found::new(Scope::Cgroup, source, bit_of_latency(number), family);
        Some(Found { latency: Some(latency), ..found })
    });
    SOURCES.iter().enumerate().flat_map(of_source).chain(entries).chain(counters).chain(latencies)
}

/// Prefixes of the families that entries of the configuration create.
const PREFIXES: [(&str, Scope); 4] = [
    ("perf_tracepoint_", Scope::Machine),
    ("perf_probe_", Scope::Machine),
    (Scope::Cgroup.prefix(), Scope::Cgroup),
    (Scope::Program.prefix(), Scope::Program),
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

/// The families of counters, whose names are not fixed.
static COUNTERS: [Source; COUNTERS_MAX] = {
    const fn counter(number: u8) -> Source {
        Source::of(Quantity::Counter(number), &[], &[])
    }
    [counter(0), counter(1), counter(2), counter(3), counter(4), counter(5), counter(6), counter(7)]
};

/// The distributions, whose names are not fixed.
static LATENCIES: [Source; LATENCIES_MAX] = {
    fn bucket<const N: u8>(exponent: i8) -> Quantity {
        Quantity::Latency(N, exponent)
    }
    const fn latency(bucket: fn(i8) -> Quantity) -> Source {
        Source::new(Reading::Buckets(bucket), &[], &[])
    }
    [
        latency(bucket::<0>),
        latency(bucket::<1>),
        latency(bucket::<2>),
        latency(bucket::<3>),
        latency(bucket::<4>),
        latency(bucket::<5>),
        latency(bucket::<6>),
        latency(bucket::<7>),
    ]
};

/// The families of entries, which are found by their prefix.
static ENTRIES: Source = Source::new(Reading::Lines, &[], &[]).listed(List::Events, Name::Entry);

/// Microseconds of a second.
const MICROSECONDS: f64 = 1e6;

/// All sources. `task-clock` of a CPU includes idle time, therefore the CPU time of the machine is that of its threads.
static SOURCES: [Source; 22] = [
    Source::new(
        Reading::Sum(Quantity::Cpu, MICROSECONDS),
        &["sched_run_seconds", "cgroup_task_clock_seconds", "process_task_clock_seconds"],
        &["task_clock_seconds", "sched_run_seconds"],
    ),
    Source::of(Quantity::Cycles, &["cpu_cycles"], &["cycles"]),
    Source::of(Quantity::Instructions, &["cpu_instructions"], &["instructions"]),
    Source::of(Quantity::CacheMisses, &["cpu_cache_misses"], &["cache_misses"]),
    Source::of(
        Quantity::Switches,
        &["cpu_context_switches", "sched_switches"],
        &["context_switches", "sched_switches"],
    ),
    Source::of(
        Quantity::Migrations,
        &["cpu_cpu_migrations", "sched_migrations"],
        &["cpu_migrations", "sched_migrations"],
    ),
    Source::of(Quantity::Faults, &["cpu_page_faults"], &["page_faults"]),
    Source::of(Quantity::MajorFaults, &["cpu_major_faults"], &["major_faults"]),
    Source {
        only: Some(("kind", "involuntary")),
        ..Source::of(Quantity::InvoluntarySwitches, &["sched_switches"], &["sched_switches"])
    },
    Source {
        only: Some(("by", "throttled")),
        ..Source::of(Quantity::Throttled, &["sched_preemptions"], &["sched_preemptions"])
    },
    Source {
        only: Some(("state", "uninterruptible")),
        ..Source::new(
            Reading::Sum(Quantity::Blocked, MICROSECONDS),
            &["sched_wait_seconds"],
            &["sched_wait_seconds"],
        )
    },
    Source::of(Quantity::Preemptions, &["sched_preemptions"], &["sched_preemptions"])
        .listed(List::Causes, Name::Label("by")),
    Source::of(Quantity::Forks, &["tracepoint_forks", "cgroup_forks"], &["forks"]),
    Source::of(Quantity::Calls, &["syscalls"], &["syscalls"]).listed(List::Calls, Name::Label("syscall")),
    Source::of(Quantity::Errors, &["syscall_errors"], &["syscall_errors"])
        .listed(List::Errors, Name::Label("errno")),
    Source::new(
        Reading::Buckets(Quantity::Runqueue),
        &["sched_runqueue_latency_seconds"],
        &["sched_runqueue_latency_seconds"],
    ),
    Source::new(Reading::Buckets(Quantity::Block), &["tracepoint_block_latency_seconds"], &[]),
    Source { only: Some(("reason", "ring_full")), ..Source::of(Quantity::Lost, &["lost_records"], &[]) },
    Source::new(Reading::Lines, &["sched_run_seconds"], &["sched_run_seconds"])
        .listed(List::States, Name::Fixed("running")),
    Source::new(Reading::Lines, &["sched_wait_seconds"], &["sched_wait_seconds"])
        .listed(List::States, Name::Label("state")),
    Source::new(Reading::Lines, &[], &["sched_preempted_by_cgroup"])
        .listed(List::PreemptedBy, Name::Label("by_cgroup")),
    Source {
        subject: Some("by_cgroup"),
        ..Source::new(Reading::Lines, &[], &["sched_preempted_by_cgroup"])
            .listed(List::Preempts, Name::Label("cgroup"))
    },
];
