//! Checks of `profiles`: the sampled event, the unwind method and the selected tasks.

mod entries;
mod sampled;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

pub use entries::STACK;
pub(super) use entries::profiled;
pub use sampled::{LIMIT, THRESHOLD};
pub use sampled::{Unsuitable, one_event};

use super::file::{STACK_MAX, STACK_MIN};
use super::value;
use crate::event::syntax::Event;
use crate::health::CpuScope;
use crate::host::CpuSet;
use crate::probe::Definition;
use crate::targets::{CgroupSelection, ProcessSelection};

/// Entry of `profiles`.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiled {
    /// Name of the entry in the file: the value of the label `profile`, and the title on the pages.
    pub name: Arc<str>,
    /// Source of the samples.
    pub source: Source,
    /// Unwind method for user stacks.
    pub unwind: Unwind,
    /// Whether source lines and inlined functions are looked up.
    pub lines: bool,
    /// Selected tasks and CPUs.
    pub targets: SampledTargets,
    /// Additional label of the sample metrics for the CPU or NUMA node.
    pub per: Option<CpuScope>,
    /// Maximum number of functions with their own metrics, the busiest first; 0 = none.
    pub functions: usize,
    /// Default time range of the pages, up to now.
    pub window: Duration,
}

/// Source of samples.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Event; each sample represents time or hits.
    Event {
        /// Event without patterns and without modifiers for groups and precision.
        event: Event,
        /// Filter of tracepoint hits in the kernel's filter language, not yet checked against the fields.
        filter: Option<Arc<str>>,
        /// Sampling rate.
        rate: Rate,
        /// Whether the kernel is sampled in addition to user space.
        kernel: bool,
        /// Whether clock events sample idle CPUs.
        idle: bool,
    },
    /// Dynamic probe; each sample represents hits.
    Probe {
        /// Probe location; without arguments.
        definition: Definition,
        /// Sampling rate.
        rate: Rate,
    },
    /// Waits; each sample represents time that a thread was off the CPU.
    OffCpu {
        /// Minimum duration of a recorded wait.
        threshold: Duration,
        /// Approximate maximum number of recorded stacks per second and CPU.
        limit: u64,
    },
}

/// Sampling rate of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Approximate samples per second on each CPU while the event occurs; the kernel adapts the period.
    Frequency(u64),
    /// Hits per sample; nanoseconds for clock events.
    Period(u64),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frequency(frequency) => write!(f, "{frequency} samples per second and CPU"),
            Self::Period(1) => f.write_str("each hit"),
            Self::Period(period) => write!(f, "one in {period} hits"),
        }
    }
}

/// Bounds of the stack size that a sample copies, in bytes; a multiple of 8.
pub const STACKS: RangeInclusive<u64> = STACK_MIN..=STACK_MAX;

/// Parses a duration in the syntax of the file: a whole number with ms, s, m or h.
pub fn duration(text: &str) -> Option<Duration> {
    value::Period::parse(text).map(|value::Period(duration)| duration)
}

/// Unwind method for user stacks. The kernel unwinds its own stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unwind {
    /// DWARF; frame pointers where DWARF data is missing or the copied stack ends.
    Auto {
        /// Maximum size of the copied stack, in bytes.
        stack: u32,
    },
    /// Frame pointers.
    FramePointers,
    /// DWARF.
    Dwarf {
        /// Maximum size of the copied stack, in bytes.
        stack: u32,
    },
    /// No unwinding: a sample contains only its own address. Only available on the command line.
    Nothing,
}

impl Unwind {
    /// Returns the name in the file and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto { .. } => "auto",
            Self::FramePointers => "fp",
            Self::Dwarf { .. } => "dwarf",
            Self::Nothing => "no",
        }
    }

    /// Returns the maximum size of the copied stack, in bytes; a multiple of 8, or 0 for none.
    pub const fn stack(self) -> u32 {
        match self {
            Self::Auto { stack } | Self::Dwarf { stack } => stack,
            Self::FramePointers | Self::Nothing => 0,
        }
    }
}

/// Selected tasks and CPUs; omitted parts select all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SampledTargets {
    /// Selected cgroups. `depth`, `descendants` and `attribution` are ignored.
    pub cgroups: Option<CgroupSelection>,
    /// Selected processes. `by` and `attribution` are ignored.
    pub processes: Option<ProcessSelection>,
    /// Selected CPUs; events are not opened on other CPUs.
    pub cpus: Option<CpuSet>,
}
