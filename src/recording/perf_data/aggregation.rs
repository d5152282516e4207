//! Sums of the samples of a recording by stack, as profiles.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use perf_event_open_sys::bindings as abi;

use super::tables::Tables;
use super::{Attribute, CpuMode, Options, Reader, Sampled};
use crate::clock::Timestamp;
use crate::files::Files;
use crate::host::ReadAt;
use crate::profile::numbered::Numbered;
use crate::profile::{Kind, LocationTables, Mode, Profile, Sample, Unit, ValueType};
use crate::recording::{Invalid, Recording};

/// The identity of a sample: stack, task, mode and CPU.
type Identity = (u32, u32, Mode, Option<u16>);

/// Count and value of each identity.
type Sums = HashMap<Identity, (u64, u64)>;

/// The sums of all events.
#[derive(Debug, Default)]
struct Aggregation {
    tables: Tables,
    /// By event.
    sums: Vec<Sums>,
    times: Option<(u64, u64)>,
}

impl Aggregation {
    fn add(&mut self, sample: &Sampled) {
        if let Some(time) = sample.time {
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
        }
        let (stack, task) = (self.tables.stack(sample), self.tables.task(sample));
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
    let located = all.tables.resolve(&mut reader);
    let mut about = reader.about();
    about.notes.extend(all.tables.note());
    about.written = written;
    about.times = about.times.or(all.times);
    let duration = Duration::from_nanos(all.times.map_or(0, |(first, last)| last - first));
    let lost = [
        ("ring_full", about.lost.records),
        ("kernel", about.lost.samples),
        ("unknown_event", about.lost.unknown),
        ("table_full", all.tables.full),
    ];
    let common = Profile {
        start: written
            .map_or(Timestamp(0), |written| Timestamp(written.0.saturating_sub(duration.as_millis() as u64))),
        duration,
        lost: lost.into_iter().filter(|&(_, count)| count > 0).collect(),
        ..Profile::default()
    };
    all.sums.resize_with(about.events.len(), HashMap::new);
    let profiles = about.events.iter().zip(all.sums);
    let profiles =
        profiles.map(|(event, sums)| profile(&all.tables, event, sums, &located, &common)).collect();
    Ok(Recording { about, profiles })
}

/// Builds the profile of an event, with copies of the location tables.
fn profile(
    all: &Tables,
    event: &Attribute,
    sums: Sums,
    (tables, located): &(LocationTables, Vec<Box<[u32]>>),
    common: &Profile,
) -> Profile {
    let (mut stacks, mut tasks) = (Numbered::<Box<[u32]>>::default(), Numbered::default());
    let mut used: Vec<_> = sums.into_iter().collect();
    used.sort_unstable_by_key(|&(identity, _)| identity);
    let mut merged = Sums::new();
    for ((stack, task, mode, cpu), (count, value)) in used {
        let stack = located.get(stack as usize).cloned().unwrap_or_default();
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
pub(super) fn kind(event: &Attribute) -> Kind {
    let is_clock = event.kind == abi::PERF_TYPE_SOFTWARE
        && [abi::PERF_COUNT_SW_CPU_CLOCK, abi::PERF_COUNT_SW_TASK_CLOCK]
            .map(u64::from)
            .contains(&event.config);
    let unit = if is_clock { Unit::Nanoseconds } else { Unit::Count };
    let name = Arc::clone(&event.name);
    let value = ValueType { name: Arc::clone(&name), unit };
    Kind { name, value, period: (!event.frequency).then_some(event.period) }
}
