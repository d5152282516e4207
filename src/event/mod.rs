//! Events: from the names that perf users type to what `perf_event_attr` needs. Opens nothing.
//!
//! ```text
//! text ──parse──► syntax::Group ──Catalog::resolve──► Event (one per PMU instance)
//! ```
//!
//! [`parse()`] knows only the grammar; [`Catalog`] knows what this host has: its PMUs (sysfs), its tracepoints
//! (tracefs) and perf's generic names. One name may stand for several events: `cycles` on a machine with two kinds
//! of cores, `uncore_imc/cas_count_read/` on one with six memory controllers.

mod catalog;
mod cursor;
mod excerpt;
pub mod filter;
pub mod format;
mod generic;
mod known;
mod modifiers;
mod number;
mod parse;
mod pattern;
mod pmu;
mod preset;
mod resolve;
mod stem;
pub mod syntax;
mod tracepoint;

pub use catalog::{Catalog, Listed, Missing, Unresolved};
pub use cursor::ParseError;
pub(crate) use cursor::{Cursor, Fault, Parsed, fault};
pub(crate) use number::digits;
pub use parse::parse;
pub(crate) use pattern::nearest;
pub use preset::Preset;

use std::ffi::CString;
use std::sync::Arc;

use crate::health::{Attempt, Scope};
use crate::host::CpuSet;
use crate::words::words;

/// The part of `perf_event_attr` that selects what is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Selector {
    /// `type`: `PERF_TYPE_HARDWARE` … or a PMU's number from sysfs.
    #[doc(alias = "perf_event_attr.type")]
    pub kind: u32,
    /// `config`, `config1`, `config2`, `config3`; of a breakpoint `bp_type`, `bp_addr`, `bp_len`, where the last two
    /// are other names for `config1` and `config2`, and `config` itself stays zero.
    pub config: [u64; 4],
}

/// What the letters behind the colon ask for, as the bits of `perf_event_attr`.
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
    /// How exact the address of a sample must be (`:p` … `:ppp`, `:P`). It says nothing about a count.
    pub precise: Precise,
    /// Always on the PMU or in error, never multiplexed (`:D`). Group leaders only.
    pub pinned: bool,
    /// Alone on the PMU (`:e`).
    pub exclusive: bool,
    /// The group may be broken up if it does not fit the PMU (`:W`).
    pub weak: bool,
    /// Only the leader samples and the others are read with it (`:S`).
    pub leader_sampling: bool,
}

impl Modifiers {
    /// The bits that mean something to a member of somebody else's group, which only counts.
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

/// `precise_ip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precise {
    /// As the event is.
    #[default]
    Any,
    /// 1 (`p`): constant skid, 2 (`pp`): no skid requested, 3 (`ppp`): no skid required.
    Level(u8),
    /// The highest level that the PMU offers (`P`).
    Max,
}

words! {
    /// Which family of names an event belongs to; decides in which groups it can stand and what a refusal means.
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
    /// Whether the event needs a counter of the core's PMU, which is what the budget and multiplexing are about.
    pub const fn on_core_pmu(self) -> bool {
        matches!(self, Self::Hardware | Self::Cache | Self::Raw)
    }

    /// Whether the event may be a member of any group, whatever PMU the group is on.
    pub const fn joins_any_group(self) -> bool {
        matches!(self, Self::Software | Self::Tracepoint | Self::Probe)
    }

    /// Whether the event waits for a counter of a PMU, of which there are only so many.
    pub const fn needs_pmu(self) -> bool {
        !self.joins_any_group()
    }
}

/// How a count becomes a quantity (`.scale` and `.unit` in sysfs; nanoseconds for the clocks).
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// What one count is worth, in `unit`.
    pub factor: f64,
    /// The base unit in Prometheus' words: `bytes`, `joules`, `seconds`, … or empty for a plain number.
    pub unit: Arc<str>,
}

impl Scale {
    /// What `count` comes to. A factor such as 1e-9 has no exact form in binary, and its inverse has: dividing by
    /// that keeps 3.004524283 s from becoming 3.0045242830000003 s.
    pub fn quantity(&self, count: u64) -> f64 {
        let inverse = (1.0 / self.factor).round();
        match inverse > 1.0 && (inverse * self.factor - 1.0).abs() < 1e-15 {
            true => count as f64 / inverse,
            false => count as f64 * self.factor,
        }
    }
}

/// One event on one PMU: ready to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// As perf prints it, modifiers included: `cycles:u`, `uncore_imc_0/cas_count_read/`.
    pub name: Arc<str>,
    /// The stem of its metric: lower snake case, `l1_dcache_load_misses`, `cycles_user`. The same for all instances.
    pub stem: Arc<str>,
    /// Its family.
    pub kind: Kind,
    /// What to count.
    pub selector: Selector,
    /// How.
    pub modifiers: Modifiers,
    /// The PMU's name where it tells instances apart: on hybrid machines and for PMUs beside the cores.
    pub pmu: Option<Arc<str>>,
    /// Where it can be opened: `None` = on every CPU.
    pub cpus: Option<CpuSet>,
    /// The unit of the count; `None` = a plain number.
    pub scale: Option<Scale>,
    /// One sentence for `# HELP` and `list`, without a full stop at its end.
    pub help: Arc<str>,
    /// Where the PMUs `kprobe` and `uprobe` put their probe.
    pub probe: Option<Arc<ProbePoint>>,
    /// Which hits count, in the kernel's filter language; tracepoints and probes only.
    pub filter: Option<Arc<str>>,
}

/// Where a dynamic probe is, for the PMUs `kprobe` and `uprobe`. Linux 4.17.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProbePoint {
    /// A function of the kernel, or the path of a file (`kprobe_func`, `uprobe_path`).
    pub place: CString,
    /// Bytes behind the beginning of the function, or of the file (`probe_offset`).
    pub offset: u64,
    /// The file that the path led to: in another one at the same path it is another probe.
    pub file: Option<FileId>,
}

/// A file, whatever paths lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Where it is stored (`st_dev`).
    pub device: u64,
    /// Its number there (`st_ino`).
    pub inode: u64,
}

impl Event {
    /// What is tried when it is opened for targets of `scope`, on a host that has a PMU.
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

    /// Whether both count the same thing, whatever they are called.
    pub fn counts_as(&self, other: &Self) -> bool {
        self.selector == other.selector
            && self.modifiers.of_member() == other.modifiers.of_member()
            && self.pmu == other.pmu
            && self.cpus == other.cpus
            && self.probe == other.probe
            && self.filter == other.filter
    }

    /// Whether the kernel counts for each hit how much there was, and not 1: the tracepoints about the time that a
    /// task waited or ran count nanoseconds (`__perf_count` in `include/trace/events/sched.h`).
    pub fn counts_amounts(&self) -> bool {
        self.kind == Kind::Tracepoint && self.name.starts_with("sched:sched_stat_")
    }

    /// Whether it can be opened on a CPU.
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
