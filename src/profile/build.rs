//! From numbers to names: what was counted becomes a [`Profile`].

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Selection;
use super::analysis::Counted;
use super::model::{Function, Kind, Line, Location, Mode, Profile, Sample, Task, Unit, ValueType};
use super::tasks::{TaskId, Tasks};
use crate::clock::Timestamp;
use crate::container::{self, Directory};
use crate::ring::Records;
use crate::stack::{Analyzer, Code, Frame, StackId};
use crate::symbol::{Named, Segment as Mapping};

/// What a profile needs of the rooms that go on counting, taken out so that nobody waits for names.
pub(super) struct Unnamed {
    /// The frames of each stack, innermost first, as places in `frames`.
    stacks: FxHashMap<StackId, Box<[u32]>>,
    /// Each frame once.
    pub(super) frames: Vec<Frame>,
    tasks: FxHashMap<TaskId, Task>,
    pub(super) code: Code,
    selection: Selection,
}

impl Unnamed {
    /// Takes the stacks of what is selected. Those of others need no names.
    pub(super) fn of(
        counted: &Counted,
        selection: &Selection,
        analyzer: &Analyzer,
        tasks: &Tasks,
        directory: &Directory,
    ) -> Self {
        let mut places = FxHashMap::default();
        let mut frames = Vec::new();
        let mut stacks = FxHashMap::default();
        let mut known = FxHashMap::default();
        for (key, _) in counted.tally.iter() {
            if let Some(task) = tasks.get(key.task) {
                known.entry(key.task).or_insert_with(|| Task {
                    pid: task.process.key.pid,
                    tid: task.tid,
                    comm: Arc::clone(&task.comm),
                    cgroup: task.process.cgroup.clone(),
                    exe: task.process.exe.clone(),
                    start_time: task.process.key.start_time,
                    context: None,
                    container: task.process.cgroup.as_deref().and_then(|path| container_of(path, directory)),
                });
            }
            if !known.get(&key.task).is_some_and(|task| selection.takes(task, key.mode)) {
                continue;
            }
            stacks.entry(key.stack).or_insert_with(|| {
                let place = |frame: Frame| {
                    *places.entry(frame).or_insert_with(|| {
                        frames.push(frame);
                        frames.len() as u32 - 1
                    })
                };
                analyzer.stacks().frames(key.stack).map(place).collect()
            });
        }
        let code = analyzer.code().clone();
        Self { stacks, frames, tasks: known, code, selection: selection.clone() }
    }
}

/// Who the cgroup at a path is of. If that is a container that nobody knows yet, it is asked for.
fn container_of(path: &str, directory: &Directory) -> Option<Arc<container::Identity>> {
    match directory.look_up([path]).pop()? {
        container::State::Known(identity) => Some(identity),
        _ => directory.identity(path),
    }
}

/// What tells samples apart: the places of stack and task, the mode, and the CPU.
type Identity = (u32, u32, Mode, Option<u16>);

/// Gives names to what was counted: one for each of its frames.
pub(super) fn build(
    counted: &Counted,
    unnamed: Unnamed,
    names: &[Arc<Named>],
    start: Timestamp,
    duration: Duration,
) -> Profile {
    let Unnamed { stacks, tasks, selection, .. } = unnamed;
    let mut tables = Tables::default();
    let locations: Vec<u32> = names.iter().map(|named| tables.location(named)).collect();

    let mut profile = Profile { kind: kind(counted), start, duration, ..Profile::default() };
    profile.lost =
        counted.losses.reasons(Records::Samples).into_iter().filter(|&(_, count)| count > 0).collect();
    if counted.tally.full > 0 {
        profile.lost.push(("full", counted.tally.full));
    }
    let mut stack_places: FxHashMap<Box<[u32]>, u32> = FxHashMap::default();
    let mut task_places = FxHashMap::default();
    let mut sums: FxHashMap<Identity, (u64, u64)> = FxHashMap::default();
    for (key, sum) in counted.tally.iter() {
        let Some(task) = tasks.get(&key.task) else { continue };
        // Frames of different numbers may have the same name and place: then so have their stacks.
        let stack = match selection.takes(task, key.mode) {
            true => stacks.get(&key.stack).map_or(&[][..], |stack| stack),
            false => &[],
        };
        let stack: Box<[u32]> =
            stack.iter().filter_map(|&frame| locations.get(frame as usize)).copied().collect();
        let stack = *stack_places.entry(stack).or_insert_with_key(|stack| {
            profile.stacks.push(stack.clone());
            profile.stacks.len() as u32 - 1
        });
        let task = *task_places.entry(key.task).or_insert_with(|| {
            profile.tasks.push(task.clone());
            profile.tasks.len() as u32 - 1
        });
        let (count, value) = sums.entry((stack, task, key.mode, key.cpu)).or_default();
        (*count, *value) = (count.saturating_add(sum.count), value.saturating_add(sum.value));
    }
    profile.samples = sums
        .into_iter()
        .map(|((stack, task, mode, cpu), (count, value))| Sample { stack, task, mode, cpu, count, value })
        .collect();
    profile.samples.sort_unstable_by_key(|sample| (sample.stack, sample.task, sample.mode, sample.cpu));
    (profile.locations, profile.functions, profile.mappings) =
        (tables.locations, tables.functions, tables.mappings);
    profile
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

/// Each thing once.
#[derive(Default)]
struct Tables {
    locations: Vec<Location>,
    functions: Vec<Function>,
    mappings: Vec<Mapping>,
    location_places: FxHashMap<LocationKey, u32>,
    function_places: FxHashMap<Function, u32>,
    mapping_places: FxHashMap<Mapping, u32>,
}

/// What tells locations apart.
type LocationKey = (Option<u32>, u64, Vec<Line>, Option<Arc<str>>);

impl Tables {
    fn location(&mut self, named: &Named) -> u32 {
        let lines: Vec<Line> = named
            .lines
            .iter()
            .map(|line| {
                let function = Function {
                    name: Arc::clone(&line.name),
                    linkage: Arc::clone(&line.linkage),
                    file: line.file.clone(),
                };
                Line {
                    function: place(&mut self.functions, &mut self.function_places, function),
                    line: line.line,
                }
            })
            .collect();
        let segment = named.segment.as_deref().cloned();
        let mapping = segment.map(|mapping| place(&mut self.mappings, &mut self.mapping_places, mapping));
        let key = (mapping, named.address, lines.clone(), named.unknown.clone());
        *self.location_places.entry(key).or_insert_with(|| {
            self.locations.push(Location {
                mapping,
                address: named.address,
                lines,
                origin: named.origin,
                unknown: named.unknown.clone(),
            });
            self.locations.len() as u32 - 1
        })
    }
}

/// The place of a thing in its table.
fn place<T: Clone + Eq + std::hash::Hash>(
    table: &mut Vec<T>,
    places: &mut FxHashMap<T, u32>,
    thing: T,
) -> u32 {
    *places.entry(thing).or_insert_with_key(|thing| {
        table.push(thing.clone());
        table.len() as u32 - 1
    })
}
