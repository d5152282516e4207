//! The tables of a profile that is being read. Each is bounded.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::{ENTRIES, FRAMES, Invalid, at_most};
use crate::profile::numbered::Numbered;
use crate::profile::{Function, Line, Location, Mode, Origin, Profile, Sample, Task};

/// Adds a value to a table in which each value is once. Returns its number.
fn place<T: Clone + Eq + Hash>(
    table: &mut Numbered<T>,
    value: T,
    what: &'static str,
) -> Result<u32, Invalid> {
    let number = table.place(value);
    at_most(ENTRIES, table.values.len(), what).map(|()| number)
}

/// A profile that grows by one sample at a time.
#[derive(Debug, Default)]
pub(super) struct Builder {
    functions: Numbered<Function>,
    locations: Numbered<Location>,
    tasks: Numbered<Task>,
    stacks: Numbered<Box<[u32]>>,
    frames: usize,
    /// Count and value of each stack of a task in a mode.
    sums: HashMap<(u32, u32, Mode), (u64, u64)>,
}

impl Builder {
    /// Adds a function. Returns its number.
    pub(super) fn function(&mut self, name: &str, file: Option<&str>) -> Result<u32, Invalid> {
        let name: Arc<str> = name.into();
        let function = Function { linkage: Arc::clone(&name), name, file: file.map(Arc::from) };
        place(&mut self.functions, function, "functions")
    }

    /// Adds a location. Returns its number.
    pub(super) fn location(&mut self, location: Location) -> Result<u32, Invalid> {
        place(&mut self.locations, location, "locations")
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
        let known = self.stacks.values.len();
        let number = place(&mut self.stacks, stack.into(), "stacks")?;
        if self.stacks.values.len() > known {
            self.frames += stack.len();
            at_most(FRAMES, self.frames, "frames")?;
        }
        let task = place(&mut self.tasks, task, "tasks")?;
        let sums = self.sums.entry((task, number, mode)).or_default();
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
            stacks: self.stacks.values,
            locations: self.locations.values,
            functions: self.functions.values,
            tasks: self.tasks.values,
            ..profile
        }
    }
}
