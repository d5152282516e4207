//! What `profiles` come to: what is sampled, how callers are found, and whose samples are kept.

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
use crate::target::{CgroupSelection, ProcessSelection};

/// One entry of `profiles`.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiled {
    /// The entry's name in the file: the value of the label `profile`, and what the pages call it.
    pub name: Arc<str>,
    /// What is sampled.
    pub source: Source,
    /// How the callers within programs are found.
    pub unwind: Unwind,
    /// Whether lines and inlined functions are looked up.
    pub lines: bool,
    /// Whose samples are kept.
    pub whose: Whose,
    /// By which part of the machine metrics tell samples apart.
    pub per: Option<CpuScope>,
    /// How many functions have metrics of their own, the busiest first; 0 = none.
    pub functions: usize,
    /// How far the pages look back unless they are asked for another time.
    pub window: Duration,
}

/// What is sampled.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// An event: each sample stands for time, or for hits.
    Event {
        /// The event; no pattern, and without modifiers about groups and precision.
        event: Event,
        /// Which hits of a tracepoint, in the kernel's filter language, not yet held against its fields.
        filter: Option<Arc<str>>,
        /// How often.
        rate: Rate,
        /// Whether the kernel is sampled as well as programs.
        kernel: bool,
        /// Whether clocks sample idle CPUs as well.
        idle: bool,
    },
    /// A dynamic probe: each sample stands for hits.
    Probe {
        /// Where; without arguments.
        definition: Definition,
        /// How often.
        rate: Rate,
    },
    /// Waits: each sample stands for the time that a thread was off the CPU.
    OffCpu {
        /// The shortest that is kept.
        threshold: Duration,
        /// With about how many waits a second and CPU the stack is recorded.
        limit: u64,
    },
}

/// How often an event is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// About so many times a second on each CPU while it happens: the kernel adapts the period.
    Frequency(u64),
    /// Each time that so many hits are counted; of a clock nanoseconds.
    Period(u64),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frequency(frequency) => write!(f, "{frequency} times a second and CPU"),
            Self::Period(1) => f.write_str("each hit"),
            Self::Period(period) => write!(f, "one of {period} hits"),
        }
    }
}

/// How much of a stack a sample can copy, in bytes; a multiple of 8.
pub const STACKS: RangeInclusive<u64> = STACK_MIN..=STACK_MAX;

/// A duration as the file has it: a whole number with ms, s, m or h.
pub fn duration(text: &str) -> Option<Duration> {
    value::Period::parse(text).map(|value::Period(duration)| duration)
}

/// How the callers within programs are found. Those within the kernel the kernel tells itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unwind {
    /// By DWARF, and by frame pointers where there is none of it, or the copy of the stack ends.
    Auto {
        /// Bytes of the stack that each sample copies at most.
        stack: u32,
    },
    /// By frame pointers.
    FramePointers,
    /// By DWARF.
    Dwarf {
        /// Bytes of the stack that each sample copies at most.
        stack: u32,
    },
    /// They are not: a sample is where it was taken, and nothing else. For the command line alone.
    Nothing,
}

impl Unwind {
    /// The word in the file, and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto { .. } => "auto",
            Self::FramePointers => "fp",
            Self::Dwarf { .. } => "dwarf",
            Self::Nothing => "no",
        }
    }

    /// Bytes of the stack that each sample copies at most; a multiple of 8.
    pub const fn stack(self) -> u32 {
        match self {
            Self::Auto { stack } | Self::Dwarf { stack } => stack,
            Self::FramePointers | Self::Nothing => 0,
        }
    }
}

/// Whose samples are kept; where nothing is said, everybody's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Whose {
    /// The tasks of which cgroups. `depth`, `descendants` and `attribution` say nothing here.
    pub cgroups: Option<CgroupSelection>,
    /// Which processes. `by` and `attribution` say nothing here.
    pub processes: Option<ProcessSelection>,
    /// On which CPUs; on others nothing is opened.
    pub cpus: Option<CpuSet>,
}
