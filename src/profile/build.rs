//! Builds a [`Profile`] from counted stacks and their symbols.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Selection;
use super::analysis::Counted;
use super::model::{Function, Kind, Line, Location, Mode, Profile, Sample, Task, Unit, ValueType};
use super::numbered::Numbered;
use super::tally::Sum;
use super::tasks::{SampledThread, TaskId, Tasks};
use crate::clock::Timestamp;
use crate::container::{self, Directory};
use crate::ring::Records;
use crate::stack::{Analyzer, Code, Frame, StackId};
use crate::symbol::{Named, Segment as Mapping};

/// The data that a profile needs from the analysis, copied so that the lock is not held during symbolization.
pub(super) struct UnsymbolizedProfile {
    /// The frames of each stack, innermost first, as indexes into `frames`.
    stacks: FxHashMap<StackId, Box<[u32]>>,
    /// One entry for each frame.
    pub(super) frames: Vec<Frame>,
    tasks: FxHashMap<TaskId, Task>,
    pub(super) code: Code,
    selection: Selection,
}

impl UnsymbolizedProfile {
    /// Copies the selected stacks. All others need no symbolization.
    pub(super) fn of(
        counted: &Counted,
        selection: &Selection,
        analyzer: &Analyzer,
        tasks: &Tasks,
        directory: &Directory,
    ) -> Self {
        let mut frames = Numbered::default();
        let mut stacks = FxHashMap::default();
        let mut known = FxHashMap::default();
        for (key, _) in counted.tally.iter() {
            if let Some(task) = tasks.get(key.task) {
                known.entry(key.task).or_insert_with(|| described(task, directory));
            }
            if !known.get(&key.task).is_some_and(|task| selection.takes(task, key.mode)) {
                continue;
            }
            stacks.entry(key.stack).or_insert_with(|| {
                analyzer.stacks().frames(key.stack).map(|frame| frames.place(frame)).collect()
            });
        }
        let code = analyzer.code().clone();
        Self { stacks, frames: frames.values, tasks: known, code, selection: selection.clone() }
    }
}

/// Returns a task with its container, and without the context of its process.
pub(super) fn described(task: &SampledThread, directory: &Directory) -> Task {
    Task {
        pid: task.process.key.pid,
        tid: task.tid,
        comm: Arc::clone(&task.comm),
        program: Arc::clone(&task.process.comm),
        cgroup: task.process.cgroup.clone(),
        exe: task.process.exe.clone(),
        start_time: task.process.key.start_time,
        context: None,
        container: task.process.cgroup.as_deref().and_then(|path| container_of(path, directory)),
    }
}

/// Returns the identity of the container of a cgroup. An unknown container is looked up.
fn container_of(path: &str, directory: &Directory) -> Option<Arc<container::Identity>> {
    match directory.look_up([path]).pop()? {
        container::State::Known(identity) => Some(identity),
        _ => directory.identity(path),
    }
}

/// The identity of a sample: the indexes of stack and task, the mode, and the CPU.
type Identity = (u32, u32, Mode, Option<u16>);

/// Builds a profile from counted stacks. `names` has one symbol for each of their frames.
pub(super) fn build(
    counted: &Counted,
    unnamed: UnsymbolizedProfile,
    names: &[Arc<Named>],
    start: Timestamp,
    duration: Duration,
) -> Profile {
    let UnsymbolizedProfile { stacks, mut tasks, selection, .. } = unnamed;
    let mut builder = LocationTables::default();
    let locations: Vec<u32> = names.iter().map(|named| builder.location(named)).collect();
    let (mut used_stacks, mut used_tasks) = (Numbered::default(), Numbered::default());
    let mut sums: FxHashMap<Identity, Sum> = FxHashMap::default();
    for (key, sum) in counted.tally.iter() {
        let Some(task) = tasks.get(&key.task) else { continue };
        // Frames with different numbers may have the same symbol and address; then their stacks are equal, too.
        let stack = match selection.takes(task, key.mode) {
            true => stacks.get(&key.stack).map_or(&[][..], |stack| stack),
            false => &[],
        };
        let stack: Box<[u32]> =
            stack.iter().filter_map(|&frame| locations.get(frame as usize)).copied().collect();
        let (stack, task) = (used_stacks.place(stack), used_tasks.place(key.task));
        sums.entry((stack, task, key.mode, key.cpu)).or_default().add(sum);
    }
    let sample = |((stack, task, mode, cpu), sum): (Identity, Sum)| {
        let Sum { count, value } = sum;
        Sample { stack, task, mode, cpu, count, value }
    };
    let mut samples: Vec<Sample> = sums.into_iter().map(sample).collect();
    samples.sort_unstable_by_key(|sample| (sample.stack, sample.task, sample.mode, sample.cpu));
    let losses =
        counted.losses.reasons(Records::Samples).into_iter().chain([("table_full", counted.tally.full)]);
    Profile {
        kind: kind(counted),
        start,
        duration,
        samples,
        stacks: used_stacks.values,
        locations: builder.locations.values,
        functions: builder.functions.values,
        mappings: builder.mappings.values,
        tasks: used_tasks.values.iter().filter_map(|id| tasks.remove(id)).collect(),
        lost: losses.filter(|&(_, count)| count > 0).collect(),
    }
}

fn kind(counted: &Counted) -> Kind {
    let sampler = &counted.sampler;
    let unit = if sampler.value.nanoseconds { Unit::Nanoseconds } else { Unit::Count };
    Kind {
        name: Arc::clone(&sampler.entry),
        value: ValueType { name: Arc::clone(&sampler.value.name), unit },
        period: sampler.period,
    }
}

/// The tables of a profile for symbolized frames.
#[derive(Debug, Default)]
pub(crate) struct LocationTables {
    locations: Numbered<Location>,
    functions: Numbered<Function>,
    mappings: Numbered<Mapping>,
}

impl LocationTables {
    /// Returns a profile with copies of these tables.
    pub(crate) fn profile(&self, profile: Profile) -> Profile {
        Profile {
            locations: self.locations.values.clone(),
            functions: self.functions.values.clone(),
            mappings: self.mappings.values.clone(),
            ..profile
        }
    }

    /// Adds a symbolized frame. Returns the number of its location.
    pub(crate) fn location(&mut self, named: &Named) -> u32 {
        let lines: Vec<Line> = named
            .lines
            .iter()
            .map(|line| {
                let function = Function {
                    name: Arc::clone(&line.name),
                    linkage: Arc::clone(&line.linkage),
                    file: line.file.clone(),
                };
                Line { function: self.functions.place(function), line: line.line }
            })
            .collect();
        let segment = named.segment.as_deref().cloned();
        let mapping = segment.map(|mapping| self.mappings.place(mapping));
        let (address, origin, unknown) = (named.address, named.origin, named.unknown.clone());
        let location = Location { mapping, address, lines, origin, unknown };
        self.locations.place(location)
    }
}
