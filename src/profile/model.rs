//! The tables of a profile.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::container::Identity;
use crate::named_enum::named_enum;
use crate::symbol::{Origin, Segment as Mapping};
use crate::targets::{ProcessContext, ProcessKey};

/// A range of wall-clock time, which includes its begin and excludes its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeRange {
    /// The begin.
    pub from: Timestamp,
    /// The end. The range is empty if it is not after the begin.
    pub to: Timestamp,
}

impl TimeRange {
    /// Returns the number of whole seconds of the clock that it touches.
    pub fn seconds(self) -> u64 {
        if self.to <= self.from { 0 } else { self.to.0.div_ceil(1000) - self.from.0 / 1000 }
    }
}

/// The samples of a period of time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    /// The type of its values.
    pub kind: Kind,
    /// When it begins.
    pub start: Timestamp,
    /// Its duration.
    pub duration: Duration,
    /// One entry for each stack, task, mode and CPU.
    pub samples: Vec<Sample>,
    /// For each stack its locations, innermost first: indexes into `locations`.
    pub stacks: Vec<Box<[u32]>>,
    /// One entry for each location.
    pub locations: Vec<Location>,
    /// One entry for each function.
    pub functions: Vec<Function>,
    /// One entry for each executable segment of a file.
    pub mappings: Vec<Mapping>,
    /// The tasks to which stacks are attributed, each once.
    pub tasks: Vec<Task>,
    /// Lost samples, by reason: `ring_full`, `throttled`, …
    pub lost: Vec<(&'static str, u64)>,
}

/// The type of the values of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// The name of the entry in the configuration: `cpu`.
    pub name: Arc<str>,
    /// The value of a sample: `cpu` in nanoseconds, `off_cpu` in nanoseconds, `page-faults` as a count.
    pub value: ValueType,
    /// The value that one sample represents, if it is fixed: 52631578 ns at 19 Hz, 1 for an event of period 1.
    pub period: Option<u64>,
}

impl Default for Kind {
    fn default() -> Self {
        Self {
            name: "cpu".into(),
            value: ValueType { name: "cpu".into(), unit: Unit::Nanoseconds },
            period: None,
        }
    }
}

/// A quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueType {
    /// The measured quantity: `cpu`, `off_cpu`, `page-faults`.
    pub name: Arc<str>,
    /// Its unit.
    pub unit: Unit,
}

named_enum! {
    /// The unit of values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Unit {
        /// A time.
        Nanoseconds = "nanoseconds",
        /// Any other quantity.
        Count = "count",
    }
}

/// A stack of a task, and its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// An index into [`Profile::stacks`].
    pub stack: u32,
    /// An index into [`Profile::tasks`].
    pub task: u32,
    /// The mode in which the task was interrupted, or the reason why it did not run.
    pub mode: Mode,
    /// The CPU on which the task was interrupted or which it left; `None` where samples are not attributed to CPUs
    /// ([`Selection::by_cpu`](super::Selection::by_cpu)).
    pub cpu: Option<u16>,
    /// The number of samples.
    pub count: u64,
    /// The sum, in the unit of [`Kind::value`].
    pub value: u64,
}

named_enum! {
    /// The state of a task when it was sampled.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Mode {
        /// Running its own code.
        User = "user",
        /// Running code of the kernel on its behalf.
        Kernel = "kernel",
        /// In interruptible sleep (state `S`).
        Sleeping = "sleeping",
        /// Waiting for a device or a lock, in uninterruptible sleep (state `D`).
        Uninterruptible = "uninterruptible",
        /// Runnable, but preempted by another task.
        Preempted = "preempted",
    }
}

/// The task to which a stack is attributed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Task {
    /// The process ID, on the host.
    pub pid: u32,
    /// The thread ID, on the host.
    pub tid: u32,
    /// The name of the thread, which the thread can set itself.
    pub comm: Arc<str>,
    /// The name of the process, which is that of its main thread.
    pub program: Arc<str>,
    /// The path of its cgroup; `None` if unknown.
    pub cgroup: Option<Arc<str>>,
    /// The path of the program that its process executes, as the process sees it; `None` for kernel threads, and if unknown.
    pub exe: Option<Arc<str>>,
    /// When its process started, in clock ticks since boot; 0 if unknown.
    pub start_time: u64,
    /// The context that its process publishes; `None` if it publishes none or the context was not requested.
    pub context: Option<Arc<ProcessContext>>,
    /// The container of its cgroup; `None` if no metadata source provides it.
    pub container: Option<Arc<Identity>>,
}

impl Task {
    /// Returns the key of its process.
    pub fn process(&self) -> ProcessKey {
        ProcessKey { pid: self.pid, start_time: self.start_time }
    }
}

/// A code location, with its functions: several if some were inlined.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// An index into [`Profile::mappings`].
    pub mapping: Option<u32>,
    /// The address: relative to the file according to its own headers, or the kernel or process address where there is no file.
    pub address: u64,
    /// Innermost first: all but the last were inlined into the next. Empty if the location has no symbol.
    pub lines: Vec<Line>,
    /// The kind of code.
    pub origin: Origin,
    /// The text to show instead of a function if there is no symbol: `libc.so.6+0x2a1c0`, `[unmapped] 0x7f…`.
    pub unknown: Option<Arc<str>>,
}

/// A line of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Line {
    /// An index into [`Profile::functions`].
    pub function: u32,
    /// From 1; 0 if unknown.
    pub line: u32,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Function {
    /// The demangled name.
    pub name: Arc<str>,
    /// The linkage name.
    pub linkage: Arc<str>,
    /// Its source file, if known.
    pub file: Option<Arc<str>>,
}

impl Profile {
    /// Returns the texts to show for a location, innermost first: function names, or a replacement if there are none. Never empty.
    pub fn names<'p>(&'p self, location: &'p Location) -> Vec<&'p str> {
        let names: Vec<&str> = location
            .lines
            .iter()
            .filter_map(|line| self.functions.get(line.function as usize))
            .map(|function| &*function.name)
            .collect();
        match (names.is_empty(), &location.unknown) {
            (false, _) => names,
            (true, Some(text)) => vec![text],
            (true, None) => vec!["[unknown]"],
        }
    }

    /// Returns the locations of a stack, innermost first.
    pub fn locations_of(&self, stack: u32) -> impl DoubleEndedIterator<Item = &Location> {
        let stack = self.stacks.get(stack as usize).map_or(&[][..], |stack| stack);
        stack.iter().filter_map(|&location| self.locations.get(location as usize))
    }

    /// Returns the module of a location: the path of its file, or a word in brackets if there is no file, as in perf.
    pub fn module(&self, location: &Location) -> &str {
        let mapping = location.mapping.and_then(|place| self.mappings.get(place as usize));
        match (mapping, location.origin) {
            (Some(mapping), _) => &mapping.path,
            (None, Origin::Kernel) => "[kernel.kallsyms]",
            (None, Origin::Jit) => "[jit]",
            (None, Origin::Native | Origin::Unknown) => "[unknown]",
        }
    }

    /// Returns the sum of all values, saturating at `u64::MAX`.
    pub fn total(&self) -> u64 {
        self.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.value))
    }

    /// Returns the number of samples.
    pub fn taken(&self) -> u64 {
        self.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.count))
    }
}
