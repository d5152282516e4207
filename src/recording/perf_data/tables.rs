//! Stacks and tasks of samples, each once.

use std::sync::Arc;

use super::{Reader, Sampled};
use crate::profile::numbered::Numbered;
use crate::profile::{LocationTables, Task};
use crate::stack::Frame;

/// Maximum number of stacks, of frames of all stacks together, and of locations. Samples above a limit have their innermost function only.
const STACKS: usize = 1 << 20;
const FRAMES: usize = 1 << 24;
const LOCATIONS: usize = 1 << 21;
/// Maximum number of locations with those of innermost functions. Samples above it have no function.
const INNERMOST: usize = LOCATIONS + LOCATIONS / 2;
/// Maximum number of tasks. Samples above it have none.
const TASKS: usize = 1 << 18;
/// Number of locations that are looked up at a time.
const AT_A_TIME: usize = 4096;

/// The tables that samples refer to.
#[derive(Debug, Default)]
pub(super) struct Tables {
    frames: Numbered<Frame>,
    pub(super) stacks: Numbered<Box<[u32]>>,
    stack_frames: usize,
    pub(super) tasks: Numbered<Task>,
    /// Samples with a part of their stack, or without a task, because a table is full.
    pub(super) full: u64,
}

impl Tables {
    /// Adds the stack of a sample. Returns its number.
    pub(super) fn stack(&mut self, sample: &Sampled) -> u32 {
        let known = self.stacks.values.len();
        let most = match self.frames.values.len() {
            INNERMOST.. => 0,
            LOCATIONS.. => 1,
            _ if known >= STACKS || self.stack_frames >= FRAMES => 1,
            _ => usize::MAX,
        };
        self.full += u64::from(sample.chain.len() > most);
        let stack = sample.chain.iter().take(most).map(|place| self.frames.place(place.frame)).collect();
        let stack = self.stacks.place(stack);
        if self.stacks.values.len() > known {
            self.stack_frames += sample.chain.len().min(most);
        }
        stack
    }

    /// Returns the sentence that reports full tables.
    pub(super) fn note(&self) -> Option<String> {
        (self.full > 0).then(|| {
            format!(
                "{} samples have only their innermost function, because the recording has more than {STACKS} call chains, {FRAMES} \
                 functions in them, or {LOCATIONS} addresses: select a part of it with --time",
                self.full
            )
        })
    }

    /// Adds the task of a sample. Returns its number.
    pub(super) fn task(&mut self, sample: &Sampled) -> u32 {
        if self.tasks.values.len() >= TASKS {
            self.full += 1;
            return self.tasks.place(Task::default());
        }
        self.tasks.place(Task {
            pid: sample.pid,
            tid: sample.tid,
            comm: Arc::clone(&sample.comm),
            program: Arc::clone(&sample.program),
            cgroup: sample.cgroup.clone(),
            exe: sample.exe.clone(),
            ..Task::default()
        })
    }

    /// Looks up all frames. The stacks are then lists of locations, by their number: different frames can be one location.
    pub(super) fn resolve(&self, reader: &mut Reader<'_>) -> (LocationTables, Vec<Box<[u32]>>) {
        let all = &self.frames.values;
        // Locations of one file are looked up together.
        let mut order: Vec<u32> = (0..u32::try_from(all.len()).unwrap_or(u32::MAX)).collect();
        order.sort_unstable_by_key(|&place| all.get(place as usize));
        let sorted: Vec<Frame> = order.iter().filter_map(|&place| all.get(place as usize)).copied().collect();
        let mut tables = LocationTables::default();
        let mut locations = vec![0; order.len()];
        for (places, frames) in order.chunks(AT_A_TIME).zip(sorted.chunks(AT_A_TIME)) {
            for (&place, named) in places.iter().zip(reader.resolve(frames)) {
                if let Some(location) = locations.get_mut(place as usize) {
                    *location = tables.location(&named);
                }
            }
        }
        let located = |stack: &[u32]| -> Box<[u32]> {
            stack.iter().filter_map(|&frame| locations.get(frame as usize)).copied().collect()
        };
        let stacks = self.stacks.values.iter().map(|stack| located(stack)).collect();
        (tables, stacks)
    }
}
