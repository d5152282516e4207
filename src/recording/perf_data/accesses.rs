//! The memory accesses of a recording: samples with the address and the source of their data.

use std::path::Path;
use std::time::Duration;

use perf_event_open_sys::bindings as abi;

use super::access::{DataName, DataPlace, SampledAccess};
use super::aggregation::kind;
use super::data_source::DataSource;
use super::tables::Tables;
use super::{CpuMode, Options, Reader};
use crate::files::Files;
use crate::host::ReadAt;
use crate::profile::numbered::Numbered;
use crate::profile::{Mode, Profile, Sample};
use crate::recording::{About, Invalid, at_most, open_file};

/// Maximum number of accesses.
const ACCESSES: usize = 1 << 22;

/// A memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The place of the data: an index into [`Accesses::places`] and [`Accesses::names`].
    pub data: u32,
    /// The address of the instruction.
    pub code: u64,
    /// See [`SampledAccess::weight`].
    pub weight: u64,
    /// See [`SampledAccess::latency`].
    pub latency: u16,
    /// The source of the data.
    pub source: DataSource,
    /// The physical address; 0 if it was not recorded.
    pub physical: u64,
    /// Whether mappings of the code and of the data are known.
    pub is_mapped: bool,
}

/// The accesses of one event.
#[derive(Debug, Clone, Default)]
pub struct EventAccesses {
    /// One sample for each access, with the innermost function only. Its value is the weight, or 1 for an access without one.
    pub profile: Profile,
    /// The access of each sample.
    pub accesses: Vec<Access>,
    /// Whether samples contain the latency of the instruction.
    pub has_latency: bool,
}

/// The memory accesses of a recording.
#[derive(Debug, Clone, Default)]
pub struct Accesses {
    /// The machine and the events.
    pub about: About,
    /// The accesses of each event of [`About::events`].
    pub events: Vec<EventAccesses>,
    /// The places of data.
    pub places: Vec<DataPlace>,
    /// Their names.
    pub names: Vec<DataName>,
}

impl Accesses {
    /// Reads a recording of perf.
    ///
    /// # Errors
    /// If the file cannot be read, is no recording of perf, is damaged, has no memory accesses, or exceeds a limit.
    pub fn open(path: &Path, options: &Options, files: &Files) -> Result<Self, Invalid> {
        let (file, _) = open_file(path)?;
        Self::read_at(&file, options, files)
    }

    /// Reads an open recording of perf.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn read_at(file: &dyn ReadAt, options: &Options, files: &Files) -> Result<Self, Invalid> {
        let mut reader = Reader::new(file, options, files)?;
        let events = reader.about().events;
        if !events.iter().any(|event| event.has(abi::PERF_SAMPLE_DATA_SRC)) {
            return Err(Invalid::NoAccesses);
        }
        let (mut tables, mut places) = (Tables::default(), Numbered::default());
        let mut read = vec![EventAccesses::default(); events.len()];
        let (mut count, mut times) = (0, None::<(u64, u64)>);
        while let Some(mut sample) = reader.next_sample()? {
            let (Some(access), Some(event)) = (sample.access, read.get_mut(sample.event)) else { continue };
            at_most(ACCESSES - 1, count, "memory accesses: select fewer with --time")?;
            count += 1;
            if let Some(time) = sample.time {
                times = Some(times.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
            }
            sample.chain.truncate(1);
            let SampledAccess { data, weight, latency, source, physical, is_mapped } = access;
            event.accesses.push(Access {
                data: places.place(data),
                code: sample.chain.first().map_or(0, |place| place.address),
                weight,
                latency,
                source,
                physical,
                is_mapped,
            });
            event.profile.samples.push(Sample {
                stack: tables.stack(&sample),
                task: tables.task(&sample),
                mode: if sample.mode == CpuMode::Kernel { Mode::Kernel } else { Mode::User },
                cpu: sample.cpu.and_then(|cpu| u16::try_from(cpu).ok()),
                count: 1,
                value: weight.max(1),
            });
        }
        if count == 0 {
            return Err(Invalid::Empty);
        }
        let (locations, stacks) = tables.resolve(&mut reader);
        let places = places.values;
        let names = reader.resolve_data(&places);
        for (event, attribute) in read.iter_mut().zip(&events) {
            let samples = std::mem::take(&mut event.profile.samples);
            let duration = Duration::from_nanos(times.map_or(0, |(first, last)| last - first));
            let common = Profile { kind: kind(attribute), samples, duration, ..Profile::default() };
            event.profile = Profile {
                stacks: stacks.clone(),
                tasks: tables.tasks.values.clone(),
                ..locations.profile(common)
            };
            event.has_latency = attribute.has(abi::PERF_SAMPLE_WEIGHT_STRUCT);
        }
        let mut about = reader.about();
        about.notes.extend(tables.note());
        about.times = about.times.or(times);
        Ok(Self { about, events: read, places, names })
    }
}
