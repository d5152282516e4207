//! Events: translates perf's event names into the fields of `perf_event_attr`. Opens no events.
//!
//! ```text
//! text ──parse──► syntax::Group ──Catalog::resolve──► Event (one per PMU instance)
//! ```
//!
//! [`parse()`] implements the grammar. [`Catalog`] contains what this host supports: its PMUs (sysfs), its tracepoints (tracefs) and perf's
//! generic names. One name may resolve to several events: `cycles` on a machine with two types of cores, `uncore_imc/cas_count_read/` on a
//! machine with six memory controllers.

mod catalog;
mod counter_set;
mod cursor;
mod excerpt;
pub mod filter;
pub mod format;
mod generic;
mod known;
pub mod memory;
pub mod metric;
mod modifiers;
mod number;
mod parse;
mod pattern;
mod pmu;
mod preset;
mod refusals;
mod resolve;
mod stem;
pub mod syntax;
mod topdown;
mod tracepoint;
mod vendor;

pub use catalog::{Catalog, Listed, Missing, Unresolved};
pub use counter_set::{Basis, Capacity, CounterMask, CounterSet, FixedCounter, UnknownCounters};
pub(crate) use cursor::{Cursor, Fault, Parsed, fault, is_identifier, is_word};
pub use cursor::{ParseError, ParseErrors};
pub(crate) use number::digits;
pub use parse::parse;
pub(crate) use pattern::nearest;
pub use preset::Preset;
pub use resolve::Modes;
pub use topdown::Topdown;

use std::ffi::CString;
use std::sync::Arc;

use crate::health::{Attempt, Scope};
use crate::host::CpuSet;
use crate::named_enum::named_enum;

/// The part of `perf_event_attr` that selects the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Selector {
    /// `type`: `PERF_TYPE_HARDWARE` …, or a PMU's type number from sysfs.
    #[doc(alias = "perf_event_attr.type")]
    pub kind: u32,
    /// `config`, `config1`, `config2`, `config3`. For a breakpoint: `bp_type`, `bp_addr`, `bp_len`. The last two are other names for
    /// `config1` and `config2`, and `config` itself stays zero.
    pub config: [u64; 4],
}

/// Event modifiers (the letters after the colon), as bits of `perf_event_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Modifiers {
    /// Do not count in user space (`:k` without `u`).
    pub exclude_user: bool,
    /// Do not count in the kernel (`:u` without `k`).
    pub exclude_kernel: bool,
    /// Do not count in the hypervisor.
    pub exclude_hv: bool,
    /// Do not count while idle (`:I`).
    pub exclude_idle: bool,
    /// Count guests only (`:G`).
    pub exclude_host: bool,
    /// Do not count guests (`:H`).
    pub exclude_guest: bool,
    /// Precision of sample addresses (`:p` … `:ppp`, `:P`). Does not affect counts.
    pub precise: Precise,
    /// Always on the PMU or in error, never multiplexed (`:D`). Group leaders only.
    pub pinned: bool,
    /// Requires exclusive use of the PMU (`:e`).
    pub exclusive: bool,
    /// Allows splitting the group if it does not fit the PMU (`:W`).
    pub weak: bool,
    /// Only the leader samples; its samples read the other members (`:S`).
    pub leader_sampling: bool,
}

impl Modifiers {
    /// Keeps only the bits that apply to a counting member of another event's group.
    pub fn of_member(self) -> Self {
        Self {
            precise: Precise::Any,
            pinned: false,
            exclusive: false,
            weak: false,
            leader_sampling: false,
            ..self
        }
    }
}

/// Required precision of sample addresses: `precise_ip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precise {
    /// The default precision of the event.
    #[default]
    Any,
    /// 1 (`p`): constant skid, 2 (`pp`): no skid requested, 3 (`ppp`): no skid required.
    Level(u8),
    /// The highest level that the PMU supports (`P`).
    Max,
}

named_enum! {
    /// Family of an event. Determines which groups it can join and how an error of the kernel is interpreted.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Kind {
        /// `PERF_TYPE_HARDWARE`.
        Hardware = "hardware",
        /// `PERF_TYPE_HW_CACHE`.
        Cache = "hardware cache",
        /// `PERF_TYPE_RAW` (`rNNN`) or a core PMU with terms (`cpu/event=0x3c/`).
        Raw = "raw",
        /// `PERF_TYPE_SOFTWARE`.
        Software = "software",
        /// `PERF_TYPE_TRACEPOINT`.
        Tracepoint = "tracepoint",
        /// `PERF_TYPE_BREAKPOINT` (`mem:ADDRESS`).
        Breakpoint = "breakpoint",
        /// A dynamic probe: the PMUs `kprobe` and `uprobe`.
        Probe = "probe",
        /// Any other PMU of sysfs: uncore, `msr`, `power`, `cstate_core`, …
        Pmu = "pmu",
    }
}

impl Kind {
    /// Reports whether the event needs a counter of the core PMU. Only these counters are budgeted and multiplexed.
    pub const fn on_core_pmu(self) -> bool {
        matches!(self, Self::Hardware | Self::Cache | Self::Raw)
    }

    /// Reports whether the event may join any group, on any PMU.
    pub const fn joins_any_group(self) -> bool {
        matches!(self, Self::Software | Self::Tracepoint | Self::Probe)
    }

    /// Reports whether the event needs one of the limited counters of a PMU.
    pub const fn needs_pmu(self) -> bool {
        !self.joins_any_group()
    }
}

/// Conversion of a count into a quantity (`.scale` and `.unit` in sysfs; nanoseconds for the clocks).
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// Value of one count, in `unit`.
    pub factor: f64,
    /// Prometheus base unit: `bytes`, `joules`, `seconds`, … or empty for a plain number.
    pub unit: Arc<str>,
}

impl Scale {
    /// Returns the quantity for `count`. A factor such as 1e-9 is inexact in binary, but its inverse is exact. Division by the inverse
    /// prevents 3.004524283 s from becoming 3.0045242830000003 s.
    pub fn quantity(&self, count: u64) -> f64 {
        let inverse = (1.0 / self.factor).round();
        match inverse > 1.0 && (inverse * self.factor - 1.0).abs() < 1e-15 {
            true => count as f64 / inverse,
            false => count as f64 * self.factor,
        }
    }
}

/// One event on one PMU, with everything that opening it requires.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name as perf prints it, including modifiers: `cycles:u`, `uncore_imc_0/cas_count_read/`.
    pub name: Arc<str>,
    /// Stem of the metric name, in lower snake case: `l1_dcache_load_misses`, `cycles_user`. The same for all PMU instances.
    pub stem: Arc<str>,
    /// Family of the event.
    pub kind: Kind,
    /// Encoding of the event.
    pub selector: Selector,
    /// Modifiers of the event.
    pub modifiers: Modifiers,
    /// PMU name, if it distinguishes instances: on hybrid machines, and for PMUs outside the cores.
    pub pmu: Option<Arc<str>>,
    /// CPUs on which the event can be opened. `None` = every CPU.
    pub cpus: Option<CpuSet>,
    /// Unit of the count; `None` = a plain number.
    pub scale: Option<Scale>,
    /// Description for `# HELP` and `list`: one sentence without a full stop.
    pub help: Arc<str>,
    /// Probe location, for the PMUs `kprobe` and `uprobe`.
    pub probe: Option<Arc<ProbePoint>>,
    /// Filter in the kernel's filter language. Tracepoints and probes only.
    pub filter: Option<Arc<str>>,
    /// Place in a group of Intel's top-down metrics.
    pub topdown: Option<Topdown>,
}

/// Location of a dynamic probe, for the PMUs `kprobe` and `uprobe`. Linux 4.17.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProbePoint {
    /// A kernel function or the path of a file (`kprobe_func`, `uprobe_path`).
    pub place: CString,
    /// Offset from the start of the function or file, in bytes (`probe_offset`).
    pub offset: u64,
    /// Identity of the file at the path. A different file at the same path makes a different probe.
    pub file: Option<FileId>,
}

/// Identity of a file, independent of its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device number (`st_dev`).
    pub device: u64,
    /// Inode number (`st_ino`).
    pub inode: u64,
}

impl Event {
    /// Returns an event without names, on every CPU.
    pub(crate) fn unnamed(kind: Kind, selector: Selector, help: String) -> Self {
        Self {
            name: Arc::default(),
            stem: Arc::default(),
            kind,
            selector,
            modifiers: Modifiers::default(),
            pmu: None,
            cpus: None,
            scale: None,
            help: help.into(),
            probe: None,
            filter: None,
            topdown: None,
        }
    }

    /// Returns the attempt that opening this event for targets of `scope` makes, on a host with a PMU.
    pub fn attempt(&self, scope: Scope) -> Attempt {
        Attempt {
            on_core_pmu: self.kind.on_core_pmu(),
            probe: self.kind == Kind::Probe,
            tracepoint: matches!(self.kind, Kind::Tracepoint | Kind::Probe),
            filtered: self.filter.is_some(),
            user_only: self.modifiers.exclude_kernel,
            ..Attempt::software(scope)
        }
    }

    /// Reports whether both events count the same thing, regardless of their names.
    pub fn counts_as(&self, other: &Self) -> bool {
        self.selector == other.selector
            && self.modifiers.of_member() == other.modifiers.of_member()
            && self.pmu == other.pmu
            && self.cpus == other.cpus
            && self.probe == other.probe
            && self.filter == other.filter
    }

    /// Reports whether the kernel adds an amount per hit instead of 1. The tracepoints for the wait and run times of tasks count
    /// nanoseconds (`__perf_count` in `include/trace/events/sched.h`).
    pub fn counts_amounts(&self) -> bool {
        self.kind == Kind::Tracepoint && self.name.starts_with("sched:sched_stat_")
    }

    /// Reports whether the event can be opened on a CPU.
    pub fn is_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_become_seconds_without_noise() {
        let scale = |factor| Scale { factor, unit: "seconds".into() };
        assert_eq!(scale(1e-9).quantity(3_004_524_283), 3.004524283);
        assert_eq!(scale(1024.0).quantity(3), 3072.0);
        assert_eq!(scale(2.0f64.powi(-32)).quantity(1 << 33), 2.0);
        assert_eq!(scale(6.103515625e-5 * 1048576.0).quantity(1), 64.0);
    }
}
