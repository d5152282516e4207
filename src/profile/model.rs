//! The tables of a profile.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::container::Identity;
use crate::symbol::{Origin, Segment as Mapping};
use crate::target::{ProcessContext, ProcessKey};
use crate::words::words;

/// What was seen from one moment to another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    /// What its values are.
    pub kind: Kind,
    /// When it begins.
    pub start: Timestamp,
    /// How long it goes on.
    pub duration: Duration,
    /// Each stack, task, mode and CPU once.
    pub samples: Vec<Sample>,
    /// For each stack its locations, innermost first: places in `locations`.
    pub stacks: Vec<Box<[u32]>>,
    /// Each location once.
    pub locations: Vec<Location>,
    /// Each function once.
    pub functions: Vec<Function>,
    /// Each executable segment of a file once.
    pub mappings: Vec<Mapping>,
    /// Whose stacks they are, each once.
    pub tasks: Vec<Task>,
    /// Samples that were lost, with why: `ring_full`, `throttled`, …
    pub lost: Vec<(&'static str, u64)>,
}

/// What the values of a profile are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// What it is called in the configuration: `cpu`.
    pub name: Arc<str>,
    /// What a sample's value is: `cpu` in nanoseconds, `off_cpu` in nanoseconds, `page-faults` as a count.
    pub value: ValueType,
    /// One sample stands for so much, if that is fixed: 52631578 ns at 19 Hz, 1 for an event of period 1.
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
    /// Of what: `cpu`, `off_cpu`, `page-faults`.
    pub name: Arc<str>,
    /// In what.
    pub unit: Unit,
}

words! {
    /// In what values are.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Unit {
        /// Times.
        Nanoseconds = "nanoseconds",
        /// Anything else.
        Count = "count",
    }
}

/// A stack of a task, and how much of it there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// A place in [`Profile::stacks`].
    pub stack: u32,
    /// A place in [`Profile::tasks`].
    pub task: u32,
    /// Where it was interrupted, or why it did not run.
    pub mode: Mode,
    /// The CPU that it was interrupted on, or left; `None` where CPUs are not told apart ([`Sampler::cpus`]).
    ///
    /// [`Sampler::cpus`]: crate::plan::Sampler::cpus
    pub cpu: Option<u16>,
    /// How often it was seen.
    pub count: u64,
    /// How much of [`Kind::value`] that is.
    pub value: u64,
}

words! {
    /// What a task was doing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Mode {
        /// Its own code.
        User = "user",
        /// The kernel's, for it.
        Kernel = "kernel",
        /// It slept, and could be woken up by a signal.
        Sleeping = "sleeping",
        /// It waited for a device or a lock, and could not (state `D`).
        Uninterruptible = "uninterruptible",
        /// It would have run, and another one did.
        Preempted = "preempted",
    }
}

/// Whose a stack is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Task {
    /// The process, on the host.
    pub pid: u32,
    /// The thread, on the host.
    pub tid: u32,
    /// The name of the thread, which it chose itself.
    pub comm: Arc<str>,
    /// The path of its cgroup; `None` where it is not known.
    pub cgroup: Option<Arc<str>>,
    /// The path of the program that its process executes, as that sees it; `None` for threads of the kernel, and where it
    /// is not known.
    pub exe: Option<Arc<str>>,
    /// When its process started, in clock ticks since boot; 0 where it is not known.
    pub start_time: u64,
    /// What its process publishes about itself; `None` if that is nothing, or nobody asked.
    pub context: Option<Arc<ProcessContext>>,
    /// Which container its cgroup is of; `None` where nobody tells.
    pub container: Option<Arc<Identity>>,
}

impl Task {
    /// Its process.
    pub fn process(&self) -> ProcessKey {
        ProcessKey { pid: self.pid, start_time: self.start_time }
    }
}

/// A place in code, with the functions that are there: several if some were inlined.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// A place in [`Profile::mappings`].
    pub mapping: Option<u32>,
    /// The address: as the file's own headers count, or as the kernel or process does where there is no file.
    pub address: u64,
    /// Innermost first: all but the last were inlined into the next. Empty where nothing is known.
    pub lines: Vec<Line>,
    /// Whose code it is.
    pub origin: Origin,
    /// What to show in place of a function, where none is known: `libc.so.6+0x2a1c0`, `[unmapped] 0x7f…`.
    pub unknown: Option<Arc<str>>,
}

/// A line of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Line {
    /// A place in [`Profile::functions`].
    pub function: u32,
    /// From 1; 0 where it is not known.
    pub line: u32,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Function {
    /// As its programmers know it, demangled.
    pub name: Arc<str>,
    /// As the linker does.
    pub linkage: Arc<str>,
    /// Its source file, where that is known.
    pub file: Option<Arc<str>>,
}

impl Profile {
    /// What to show of a location, innermost first: names of functions, or what is known instead. Never empty.
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

    /// The locations of a stack, innermost first.
    pub fn locations_of(&self, stack: u32) -> impl DoubleEndedIterator<Item = &Location> {
        let stack = self.stacks.get(stack as usize).map_or(&[][..], |stack| stack);
        stack.iter().filter_map(|&location| self.locations.get(location as usize))
    }

    /// What a location is part of: the path of its file, or a word in brackets where there is none, as perf writes it.
    pub fn module(&self, location: &Location) -> &str {
        let mapping = location.mapping.and_then(|place| self.mappings.get(place as usize));
        match (mapping, location.origin) {
            (Some(mapping), _) => &mapping.path,
            (None, Origin::Kernel) => "[kernel.kallsyms]",
            (None, Origin::Jit) => "[jit]",
            (None, Origin::Native | Origin::Unknown) => "[unknown]",
        }
    }

    /// The sum of all values; the largest number there is, if it is more.
    pub fn total(&self) -> u64 {
        self.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.value))
    }

    /// How many samples were taken.
    pub fn taken(&self) -> u64 {
        self.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.count))
    }
}
