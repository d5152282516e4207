//! The meaning of events in formulas. Without I/O.

use crate::event::syntax::{Name, Term};
use crate::event::{Event, Kind};

/// The meaning of an event in a formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// `task-clock` or `cpu-clock`, in milliseconds.
    Clock,
    Cycles,
    Instructions,
    CacheReferences,
    CacheMisses,
    Branches,
    BranchMisses,
    StalledFrontend,
    StalledBackend,
    Loads(Cache),
    LoadMisses(Cache),
    ContextSwitches,
    Migrations,
    PageFaults,
    Topdown(Topdown),
    Transaction(Transaction),
    /// A count of occurrences, for which a rate is useful.
    Occurrences,
    /// Any other event: a quantity, or the count of an uncore PMU.
    Other,
}

/// The caches for which perf shows the ratio of misses to loads. The values are those of `enum perf_hw_cache_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cache {
    L1Data = 0,
    L1Instruction = 1,
    LastLevel = 2,
    DataTlb = 3,
    InstructionTlb = 4,
}

impl Cache {
    /// All caches in order of their values, with the name of the metric of their misses, and the unit that perf prints for it.
    pub(super) const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::L1Data, "l1d_miss_rate", "of all L1-dcache accesses"),
        (Self::L1Instruction, "l1i_miss_rate", "of all L1-icache accesses"),
        (Self::LastLevel, "llc_miss_rate", "of all LL-cache accesses"),
        (Self::DataTlb, "dtlb_miss_rate", "of all dTLB cache accesses"),
        (Self::InstructionTlb, "itlb_miss_rate", "of all iTLB cache accesses"),
    ];
}

impl Role {
    /// Returns the role of an event, which was requested as `written`. A formula combines events of matching roles only if they have the
    /// same `View`.
    pub(super) fn of(event: &Event, written: &Name) -> Self {
        // The upper half identifies the core PMU on hybrid machines (`PERF_PMU_TYPE_SHIFT`).
        let config = event.selector.config[0] & u64::from(u32::MAX);
        match event.kind {
            _ if event.kind == Kind::Software && config <= 1 => Self::Clock,
            // Some PMUs report a scale of 1.
            Kind::Raw if named(written).is_some() => named(written).unwrap_or(Self::Other),
            _ if event.scale.is_some() => Self::Other,
            Kind::Hardware => Self::of_hardware(config),
            Kind::Cache => Self::of_cache(config),
            Kind::Pmu => Self::Other,
            // The values are those of `enum perf_sw_ids`.
            Kind::Software if config == 2 => Self::PageFaults,
            Kind::Software if config == 3 => Self::ContextSwitches,
            Kind::Software if config == 4 => Self::Migrations,
            Kind::Raw | Kind::Software | Kind::Tracepoint | Kind::Probe | Kind::Breakpoint => {
                Self::Occurrences
            }
        }
    }

    /// The values are those of `enum perf_hw_id` in `include/uapi/linux/perf_event.h`.
    const fn of_hardware(config: u64) -> Self {
        match config {
            0 => Self::Cycles,
            1 => Self::Instructions,
            2 => Self::CacheReferences,
            3 => Self::CacheMisses,
            4 => Self::Branches,
            5 => Self::BranchMisses,
            7 => Self::StalledFrontend,
            8 => Self::StalledBackend,
            _ => Self::Occurrences,
        }
    }

    /// The value is `cache | operation << 8 | result << 16`; operation 0 is a load, result 1 is a miss.
    fn of_cache(config: u64) -> Self {
        let Some(&(cache, ..)) = Cache::ALL.get((config & 0xff) as usize) else { return Self::Occurrences };
        match config >> 8 {
            0 => Self::Loads(cache),
            0x100 => Self::LoadMisses(cache),
            _ => Self::Occurrences,
        }
    }
}

/// Categories of issue slots. The kernel scales each to a part of all slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topdown {
    Retiring,
    BadSpeculation,
    FrontendBound,
    BackendBound,
    HeavyOperations,
    BranchMispredicts,
    FetchLatency,
    MemoryBound,
}

/// Events of transactional memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transaction {
    /// Cycles in transactions.
    Cycles,
    /// Cycles in transactions that were committed.
    CommittedCycles,
    Start,
    ElisionStart,
}

/// Returns the role of an event that the core PMU names.
fn named(written: &Name) -> Option<Role> {
    let event = match written {
        Name::Symbol(name) => name,
        Name::Pmu { terms, .. } => match &terms[..] {
            [Term { name, value: None }] => name,
            _ => return None,
        },
        _ => return None,
    };
    Some(match &**event {
        "topdown-retiring" => Role::Topdown(Topdown::Retiring),
        "topdown-bad-spec" => Role::Topdown(Topdown::BadSpeculation),
        "topdown-fe-bound" => Role::Topdown(Topdown::FrontendBound),
        "topdown-be-bound" => Role::Topdown(Topdown::BackendBound),
        "topdown-heavy-ops" => Role::Topdown(Topdown::HeavyOperations),
        "topdown-br-mispredict" => Role::Topdown(Topdown::BranchMispredicts),
        "topdown-fetch-lat" => Role::Topdown(Topdown::FetchLatency),
        "topdown-mem-bound" => Role::Topdown(Topdown::MemoryBound),
        "slots" => Role::Other,
        "cycles-t" => Role::Transaction(Transaction::Cycles),
        "cycles-ct" => Role::Transaction(Transaction::CommittedCycles),
        "tx-start" => Role::Transaction(Transaction::Start),
        "el-start" => Role::Transaction(Transaction::ElisionStart),
        _ => return None,
    })
}
