//! Sums of the samples of a recording by stack, as profiles.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use perf_event_open_sys::bindings as abi;

use super::{Attribute, CpuMode, Options, Reader, Sampled};
use crate::clock::Timestamp;
use crate::files::Files;
use crate::host::ReadAt;
use crate::profile::numbered::Numbered;
use crate::profile::{Kind, LocationTables, Mode, Profile, Sample, Task, Unit, ValueType};
use crate::recording::{Invalid, Recording};
use crate::stack::Frame;

/// Maximum number of stacks, of frames of all stacks together, of locations and of tasks. Samples above a limit have an empty stack.
const STACKS: usize = 1 << 20;
const FRAMES: usize = 1 << 24;
const LOCATIONS: usize = 1 << 21;
const TASKS: usize = 1 << 18;
/// Number of locations that are looked up at a time.
const AT_A_TIME: usize = 4096;

/// The identity of a sample: stack, task, mode and CPU.
type Identity = (u32, u32, Mode, Option<u16>);

/// The sums of all events.
#[derive(Debug, Default)]
struct Aggregation {
    frames: Numbered<Frame>,
    stacks: Numbered<Box<[u32]>>,
    stack_frames: usize,
    tasks: Numbered<Task>,
    /// Count and value of each event.
    sums: Vec<HashMap<Identity, (u64, u64)>>,
    times: Option<(u64, u64)>,
    /// Samples without a stack because a table is full.
    full: u64,
}

impl Aggregation {
    fn add(&mut self, sample: &Sampled) {
        if let Some(time) = sample.time {
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
        }
        let stack = self.stack(sample);
        let task = self.task(sample);
        let mode = if sample.mode == CpuMode::Kernel { Mode::Kernel } else { Mode::User };
        let cpu = sample.cpu.and_then(|cpu| u16::try_from(cpu).ok());
        if self.sums.len() <= sample.event {
            self.sums.resize_with(sample.event + 1, HashMap::new);
        }
        if let Some(sums) = self.sums.get_mut(sample.event) {
            let sum = sums.entry((stack, task, mode, cpu)).or_default();
            *sum = (sum.0.saturating_add(1), sum.1.saturating_add(sample.period));
        }
    }

    fn stack(&mut self, sample: &Sampled) -> u32 {
        let is_full = self.stacks.values.len() >= STACKS
            || self.stack_frames >= FRAMES
            || self.frames.values.len() >= LOCATIONS;
        if is_full {
            self.full += 1;
            return self.stacks.place(Box::default());
        }
        let known = self.stacks.values.len();
        let stack = sample.chain.iter().map(|place| self.frames.place(place.frame)).collect();
        let stack = self.stacks.place(stack);
        if self.stacks.values.len() > known {
            self.stack_frames += sample.chain.len();
        }
        stack
    }

    fn task(&mut self, sample: &Sampled) -> u32 {
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
}

/// Reads a recording into one profile for each event.
pub(in crate::recording) fn profiles(
    file: &dyn ReadAt,
    options: &Options,
    files: &Files,
    written: Option<Timestamp>,
) -> Result<Recording, Invalid> {
    let mut reader = Reader::new(file, options, files)?;
    let mut all = Aggregation::default();
    while let Some(sample) = reader.next_sample()? {
        all.add(&sample);
    }
    // Locations of one file are looked up together.
    let mut order: Vec<u32> = (0..u32::try_from(all.frames.values.len()).unwrap_or(u32::MAX)).collect();
    order.sort_unstable_by_key(|&place| all.frames.values.get(place as usize));
    let sorted: Vec<Frame> =
        order.iter().filter_map(|&place| all.frames.values.get(place as usize)).copied().collect();
    let mut tables = LocationTables::default();
    let mut locations = vec![0; order.len()];
    for (places, frames) in order.chunks(AT_A_TIME).zip(sorted.chunks(AT_A_TIME)) {
        for (&place, named) in places.iter().zip(reader.resolve(frames)) {
            if let Some(location) = locations.get_mut(place as usize) {
                *location = tables.location(&named);
            }
        }
    }
    let mut about = reader.about();
    about.written = written;
    about.times = about.times.or(all.times);
    let duration = Duration::from_nanos(all.times.map_or(0, |(first, last)| last - first));
    let lost = [
        ("ring_full", about.lost.records),
        ("kernel", about.lost.samples),
        ("unknown_event", about.lost.unknown),
        ("table_full", all.full),
    ];
    let common = Profile {
        start: written
            .map_or(Timestamp(0), |written| Timestamp(written.0.saturating_sub(duration.as_millis() as u64))),
        duration,
        lost: lost.into_iter().filter(|&(_, count)| count > 0).collect(),
        ..Profile::default()
    };
    all.sums.resize_with(about.events.len(), HashMap::new);
    let profiles = about.events.iter().zip(std::mem::take(&mut all.sums));
    let profiles =
        profiles.map(|(event, sums)| profile(&all, event, sums, &locations, &tables, &common)).collect();
    Ok(Recording { about, profiles })
}

/// Builds the profile of an event, with copies of the location tables.
fn profile(
    all: &Aggregation,
    event: &Attribute,
    sums: HashMap<Identity, (u64, u64)>,
    locations: &[u32],
    tables: &LocationTables,
    common: &Profile,
) -> Profile {
    let (mut stacks, mut tasks) = (Numbered::<Box<[u32]>>::default(), Numbered::default());
    let mut used: Vec<_> = sums.into_iter().collect();
    used.sort_unstable_by_key(|&(identity, _)| identity);
    let mut merged: HashMap<Identity, (u64, u64)> = HashMap::new();
    for ((stack, task, mode, cpu), (count, value)) in used {
        let frames = all.stacks.values.get(stack as usize).map_or(&[][..], |stack| stack);
        // Different addresses can be one location.
        let stack = frames.iter().filter_map(|&frame| locations.get(frame as usize)).copied().collect();
        let sum = merged.entry((stacks.place(stack), tasks.place(task), mode, cpu)).or_default();
        *sum = (sum.0.saturating_add(count), sum.1.saturating_add(value));
    }
    let sample = |((stack, task, mode, cpu), (count, value)): (Identity, (u64, u64))| Sample {
        stack,
        task,
        mode,
        cpu,
        count,
        value,
    };
    let mut samples: Vec<Sample> = merged.into_iter().map(sample).collect();
    samples.sort_unstable_by_key(|sample| (sample.stack, sample.task, sample.mode, sample.cpu));
    let tasks = tasks.values.iter().filter_map(|&task: &u32| all.tasks.values.get(task as usize)).cloned();
    Profile {
        kind: kind(event),
        samples,
        stacks: stacks.values,
        tasks: tasks.collect(),
        ..tables.profile(common.clone())
    }
}

/// Returns the type of the values of an event: the sum of periods, as in perf.
fn kind(event: &Attribute) -> Kind {
    let is_clock = event.kind == abi::PERF_TYPE_SOFTWARE
        && [abi::PERF_COUNT_SW_CPU_CLOCK, abi::PERF_COUNT_SW_TASK_CLOCK]
            .map(u64::from)
            .contains(&event.config);
    let unit = if is_clock { Unit::Nanoseconds } else { Unit::Count };
    let name = Arc::clone(&event.name);
    let value = ValueType { name: Arc::clone(&name), unit };
    Kind { name, value, period: (!event.frequency).then_some(event.period) }
}
