//! The recorded quantities, and the metrics that they are read from.

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

/// What is read from a family.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reading {
    /// A counter, in units of `1 / factor`.
    Sum(Quantity, f64),
    /// A histogram, by bucket.
    Buckets(fn(i8) -> Quantity),
}

/// The families of a reading, by scope, without the suffix of their kind. The first one of a list that a snapshot contains is used. The
/// series of a family with the same subject are added up: those of all CPUs, PMUs, calls and causes.
pub(super) struct Source {
    pub(super) reading: Reading,
    pub(super) families: [&'static [&'static str]; Scope::COUNT],
    /// The only series that are read: those with this label.
    pub(super) only: Option<(&'static str, &'static str)>,
}

/// Microseconds of a second.
const MICROSECONDS: f64 = 1e6;

const fn counter(
    quantity: Quantity,
    factor: f64,
    machine: &'static [&'static str],
    cgroup: &'static [&'static str],
    program: &'static [&'static str],
) -> Source {
    Source { reading: Reading::Sum(quantity, factor), families: [machine, cgroup, program], only: None }
}

/// All sources. `task-clock` of a CPU includes idle time, therefore the CPU time of the machine is that of its threads.
pub(super) const SOURCES: [Source; 14] = [
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
    ),
    counter(
        Quantity::Forks,
        1.0,
        &["perf_tracepoint_forks", "perf_cgroup_forks"],
        &["perf_cgroup_forks"],
        &["perf_process_forks"],
    ),
    counter(Quantity::Calls, 1.0, &["perf_syscalls"], &["perf_cgroup_syscalls"], &["perf_process_syscalls"]),
    counter(
        Quantity::Errors,
        1.0,
        &["perf_syscall_errors"],
        &["perf_cgroup_syscall_errors"],
        &["perf_process_syscall_errors"],
    ),
    Source {
        reading: Reading::Buckets(Quantity::Runqueue),
        families: [
            &["perf_sched_runqueue_latency_seconds"],
            &["perf_cgroup_sched_runqueue_latency_seconds"],
            &["perf_process_sched_runqueue_latency_seconds"],
        ],
        only: None,
    },
    Source {
        reading: Reading::Buckets(Quantity::Block),
        families: [&["perf_tracepoint_block_latency_seconds"], &[], &[]],
        only: None,
    },
    Source {
        reading: Reading::Sum(Quantity::Lost, 1.0),
        families: [&["perf_lost_records"], &[], &[]],
        only: Some(("reason", "ring_full")),
    },
];
