//! The tables of a profile that is being read. Each is bounded.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use super::{ENTRIES, FRAMES, Invalid};
use crate::profile::{Function, Line, Location, Mode, Origin, Profile, Sample, Task};

/// A table in which each value is once.
#[derive(Debug)]
struct Distinct<T> {
    numbers: HashMap<T, u32>,
    what: &'static str,
}

impl<T: Eq + Hash> Distinct<T> {
    fn new(what: &'static str) -> Self {
        Self { numbers: HashMap::new(), what }
    }

    fn place(&mut self, value: T) -> Result<u32, Invalid> {
        let next = self.numbers.len();
        match self.numbers.entry(value) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(_) if next >= ENTRIES => Err(Invalid::TooLarge { most: ENTRIES, what: self.what }),
            // No truncation: below ENTRIES.
            Entry::Vacant(slot) => Ok(*slot.insert(next as u32)),
        }
    }

    /// Returns the values in the order of their numbers.
    fn values(self) -> Vec<T> {
        let mut all: Vec<(T, u32)> = self.numbers.into_iter().collect();
        all.sort_unstable_by_key(|&(_, number)| number);
        all.into_iter().map(|(value, _)| value).collect()
    }
}

/// A profile that grows by one sample at a time.
#[derive(Debug)]
pub(super) struct Builder {
    functions: Distinct<Function>,
    locations: Distinct<Location>,
    tasks: Distinct<Task>,
    stacks: Distinct<Box<[u32]>>,
    frames: usize,
    /// Count and value of each stack of a task in a mode.
    sums: HashMap<(u32, u32, Mode), (u64, u64)>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            functions: Distinct::new("functions"),
            locations: Distinct::new("locations"),
            tasks: Distinct::new("tasks"),
            stacks: Distinct::new("stacks"),
            frames: 0,
            sums: HashMap::new(),
        }
    }

    /// Adds a function. Returns its number.
    pub(super) fn function(&mut self, name: &str, file: Option<&str>) -> Result<u32, Invalid> {
        let name: Arc<str> = name.into();
        self.functions.place(Function { linkage: Arc::clone(&name), name, file: file.map(Arc::from) })
    }

    /// Adds a location. Returns its number.
    pub(super) fn location(&mut self, location: Location) -> Result<u32, Invalid> {
        self.locations.place(location)
    }

    /// Adds a location in no file, with functions of which all but the last were inlined. Returns its number.
    pub(super) fn place(&mut self, functions: &[u32], origin: Origin) -> Result<u32, Invalid> {
        let lines = functions.iter().map(|&function| Line { function, line: 0 }).collect();
        self.location(Location { mapping: None, address: 0, lines, origin, unknown: None })
    }

    /// Adds a sample. The stack begins with its innermost location.
    pub(super) fn sample(
        &mut self,
        stack: &[u32],
        task: Task,
        mode: Mode,
        (count, value): (u64, u64),
    ) -> Result<(), Invalid> {
        let known = self.stacks.numbers.len();
        let number = self.stacks.place(stack.into())?;
        if self.stacks.numbers.len() > known {
            self.frames += stack.len();
            if self.frames > FRAMES {
                return Err(Invalid::TooLarge { most: FRAMES, what: "frames" });
            }
        }
        let sums = self.sums.entry((self.tasks.place(task)?, number, mode)).or_default();
        sums.0 = sums.0.saturating_add(count);
        sums.1 = sums.1.saturating_add(value);
        Ok(())
    }

    /// Moves the tables to a profile. Samples of a task are adjacent.
    pub(super) fn finish(self, profile: Profile) -> Profile {
        let sample =
            |((task, stack, mode), (count, value))| Sample { stack, task, mode, cpu: None, count, value };
        let mut samples: Vec<Sample> = self.sums.into_iter().map(sample).collect();
        samples.sort_unstable_by_key(|sample| (sample.task, sample.stack, sample.mode));
        Profile {
            samples,
            stacks: self.stacks.values(),
            locations: self.locations.values(),
            functions: self.functions.values(),
            tasks: self.tasks.values(),
            ..profile
        }
    }
}
