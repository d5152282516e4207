//! The samples of a recording in the order of time.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::aggregation::kind;
use super::tables::Tables;
use super::{Options, Reader};
use crate::clock::Timestamp;
use crate::files::Files;
use crate::host::ReadAt;
use crate::profile::{Kind, Profile, Task};
use crate::recording::{About, Invalid, at_most, open_file};

/// Maximum number of samples.
const SAMPLES: usize = 1 << 23;

/// Samples with their times.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// The machine and the events.
    pub about: About,
    /// The types of the values, in the order of [`About::events`].
    pub kinds: Vec<Kind>,
    /// The stacks, tasks and locations that the samples refer to. It has no samples itself.
    pub tables: Profile,
    /// The samples in the order of time.
    pub samples: Vec<TimedSample>,
}

/// A sample with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedSample {
    /// The time in nanoseconds on the clock of the records; 0 if it was not recorded.
    pub time: u64,
    /// The weight: how many events the sample represents.
    pub value: u64,
    /// An index into [`Timeline::kinds`].
    pub event: u32,
    /// An index into [`Profile::stacks`].
    pub stack: u32,
    /// An index into [`Profile::tasks`].
    pub task: u32,
    /// The CPU, if it was recorded.
    pub cpu: Option<u16>,
}

impl Timeline {
    /// Reads a recording of perf.
    ///
    /// # Errors
    /// If the file cannot be read, is no recording of perf, is damaged, has no samples, or exceeds a limit.
    pub fn open(path: &Path, options: &Options, files: &Files) -> Result<Self, Invalid> {
        let (file, written) = open_file(path)?;
        Self::read_at(&file, options, files, written)
    }

    /// Reads an open recording of perf. `written` is the time when it was written last.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn read_at(
        file: &dyn ReadAt,
        options: &Options,
        files: &Files,
        written: Option<Timestamp>,
    ) -> Result<Self, Invalid> {
        let mut reader = Reader::new(file, options, files)?;
        let (mut tables, mut samples) = (Tables::default(), Vec::new());
        while let Some(sample) = reader.next_sample()? {
            at_most(SAMPLES - 1, samples.len(), "samples: select fewer with --time")?;
            samples.push(TimedSample {
                time: sample.time.unwrap_or(0),
                value: sample.period,
                event: u32::try_from(sample.event).unwrap_or(u32::MAX),
                stack: tables.stack(&sample),
                task: tables.task(&sample),
                cpu: sample.cpu.and_then(|cpu| u16::try_from(cpu).ok()),
            });
        }
        if samples.is_empty() {
            return Err(Invalid::Empty);
        }
        let (locations, stacks) = tables.resolve(&mut reader);
        let mut about = About { written, ..reader.about() };
        about.notes.extend(tables.note());
        let kinds = about.events.iter().map(kind).collect();
        let tables = Profile { stacks, tasks: tables.tasks.values, ..locations.profile(Profile::default()) };
        Ok(Self { about, kinds, tables, samples })
    }

    /// Returns the events and threads that have samples, in the order of their first samples.
    pub fn tracks(&self) -> Vec<Track<'_>> {
        let mut places = FxHashMap::default();
        let mut tracks: Vec<Track<'_>> = Vec::new();
        for sample in &self.samples {
            let Some(task) = self.tables.tasks.get(sample.task as usize) else { continue };
            let Some(kind) = self.kinds.get(sample.event as usize) else { continue };
            let place = *places.entry((sample.event, task.pid, task.tid)).or_insert_with(|| {
                tracks.push(Track { kind, task, samples: Vec::new() });
                tracks.len() - 1
            });
            if let Some(track) = tracks.get_mut(place) {
                // A thread has the name that it had last.
                track.task = task;
                track.samples.push(sample);
            }
        }
        tracks
    }
}

/// The samples of an event in a thread.
#[derive(Debug, Clone)]
pub struct Track<'t> {
    /// The type of the values.
    pub kind: &'t Kind,
    /// The thread, with its last name.
    pub task: &'t Task,
    /// The samples in the order of time.
    pub samples: Vec<&'t TimedSample>,
}
