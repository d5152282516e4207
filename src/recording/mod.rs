//! Profiles of other programs and of earlier times, read from files: pprof, folded stacks, and recordings of perf ([`perf_data`]).
//!
//! Files are untrusted. They are read in linear time, and what they can take in memory is bounded: [`INFLATED`] bytes of a file, and
//! [`ENTRIES`] entries of each table that is made from it. Recordings of perf are read in pieces, and have larger tables.

mod about;
mod builder;
mod folded;
pub mod perf_data;
mod pprof;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::UNIX_EPOCH;

use flate2::read::MultiGzDecoder;
use thiserror::Error;

pub use about::{About, Lost};
pub use pprof::field;

use crate::clock::Timestamp;
use crate::files::Files;
use crate::host::ReadAt;
use crate::profile::Profile;
use perf_data::{Attribute, Options};

/// Maximum size of a file in bytes, after decompression.
pub const INFLATED: usize = 16 << 20;

/// Maximum number of names, functions, locations, mappings, tasks and stacks of a file.
pub const ENTRIES: usize = 1 << 18;

/// Maximum number of frames of all stacks together. Equal stacks count once.
const FRAMES: usize = 1 << 22;

/// Beginning of a file that is compressed with gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reason why a file is not read.
#[derive(Debug, Error)]
pub enum Invalid {
    /// Nothing is in it.
    #[error("the file has no samples")]
    Empty,
    /// The file or one of its tables exceeds a limit.
    #[error("the file has more than {most} {what}")]
    TooLarge {
        /// The limit.
        most: usize,
        /// What is limited: `bytes after decompression`.
        what: &'static str,
    },
    /// The file is compressed and damaged.
    #[error("the file cannot be decompressed: {0}")]
    Compressed(io::Error),
    /// The file is a recording of perf, where only pprof and folded stacks are accepted.
    #[error("the file is a recording of perf: convert it with perf-exporter script --format folded")]
    PerfData,
    /// The file is a recording of perf, and damaged or truncated.
    #[error("the recording is damaged: {what} at byte {offset}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// The place in the file.
        offset: u64,
    },
    /// The file has no counts.
    #[error("the file has no counts: it is not a recording of perf-exporter stat record or perf stat record")]
    NoCounts,
    /// The file has counts, where samples are expected.
    #[error("the file has counts and no samples: show them with perf-exporter stat report")]
    Counts,
    /// The file is a recording that perf wrote into a pipe.
    #[error("the recording was written into a pipe, which is not supported: record with -o FILE")]
    Piped,
    /// The recording has no memory accesses.
    #[error(
        "the recording has no memory accesses: record with perf-exporter mem record, or perf record -d -W"
    )]
    NoAccesses,
    /// A range of times is selected, and the file has only sums.
    #[error("the file has no times of samples: only recordings of perf have")]
    NoTimes,
    /// The file cannot be opened or read.
    #[error("the file cannot be read: {0}")]
    Unreadable(io::Error),
    /// The file is neither pprof nor text, or damaged.
    #[error("the file is not a pprof profile: {what} at byte {offset}")]
    Pprof {
        /// What is wrong.
        what: &'static str,
        /// The place, after decompression.
        offset: usize,
    },
    /// A line is not a folded stack.
    #[error("line {line} is not a folded stack: {what}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Reads a file: pprof, compressed or not, or folded stacks.
///
/// # Errors
/// If the file is neither, damaged, empty, or exceeds a limit.
pub fn read(bytes: &[u8]) -> Result<Profile, Invalid> {
    let inflated;
    let bytes = match is_compressed(bytes) {
        true => {
            inflated = inflate(bytes)?;
            &inflated
        }
        false => bytes,
    };
    at_most(INFLATED, bytes.len(), "bytes")?;
    if perf_data::is_perf_data(bytes) {
        return Err(Invalid::PerfData);
    }
    let profile = match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => folded::read(text)?,
        _ => pprof::read(bytes)?,
    };
    if profile.samples.is_empty() { Err(Invalid::Empty) } else { Ok(profile) }
}

/// A recording with its description.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recording {
    /// The machine and the events.
    pub about: About,
    /// One profile for each event, in the order of [`About::events`]. An event without samples has an empty profile.
    pub profiles: Vec<Profile>,
}

/// Reads a file: a recording of perf, pprof or folded stacks. Symbols of recordings of perf are from files that `files` opens.
///
/// # Errors
/// If the file cannot be read, has another format, is damaged, has no samples, or exceeds a limit.
pub fn open(path: &Path, options: &Options, files: &Files) -> Result<Recording, Invalid> {
    let (file, written) = open_file(path)?;
    let recording = read_at(&file, options, files, written)?;
    let has_samples = recording.profiles.iter().any(|profile| !profile.samples.is_empty());
    match has_samples {
        true => Ok(recording),
        false if recording.about.has_counts => Err(Invalid::Counts),
        false => Err(Invalid::Empty),
    }
}

/// Opens a file. Returns it with the time when it was written last.
pub(crate) fn open_file(path: &Path) -> Result<(File, Option<Timestamp>), Invalid> {
    let file = File::open(path).map_err(Invalid::Unreadable)?;
    let written = file.metadata().and_then(|metadata| metadata.modified()).map_err(Invalid::Unreadable)?;
    let written = written.duration_since(UNIX_EPOCH).ok();
    let written = written.map(|since| Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)));
    Ok((file, written))
}

/// Reads an open file, which may have no samples. `written` is the time when it was written last.
///
/// # Errors
/// See [`open`].
pub fn read_at(
    file: &dyn ReadAt,
    options: &Options,
    files: &Files,
    written: Option<Timestamp>,
) -> Result<Recording, Invalid> {
    /// Number of bytes by which formats are distinguished.
    const FIRST: usize = 8;
    let length = file.length().map_err(Invalid::Unreadable)?;
    let mut first = vec![0; FIRST.min(usize::try_from(length).unwrap_or(FIRST))];
    file.read_exact_at(&mut first, 0).map_err(Invalid::Unreadable)?;
    if perf_data::is_perf_data(&first) {
        return perf_data::profiles(file, options, files, written);
    }
    if options.times.is_some() {
        return Err(Invalid::NoTimes);
    }
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    at_most(INFLATED, size, "bytes")?;
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0).map_err(Invalid::Unreadable)?;
    let profile = read(&bytes)?;
    let event = Attribute::named(&profile.kind.name);
    let about = About { written, events: vec![event], ..About::default() };
    Ok(Recording { about, profiles: vec![profile] })
}

/// Reports whether a file is compressed.
pub fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(&GZIP)
}

fn inflate(bytes: &[u8]) -> Result<Vec<u8>, Invalid> {
    let mut inflated = Vec::new();
    let limit = INFLATED as u64 + 1;
    MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut inflated).map_err(Invalid::Compressed)?;
    at_most(INFLATED, inflated.len(), "bytes after decompression").map(|()| inflated)
}

/// Checks a size.
fn at_most(most: usize, size: usize, what: &'static str) -> Result<(), Invalid> {
    if size > most { Err(Invalid::TooLarge { most, what }) } else { Ok(()) }
}

/// Moves the functions of a recording to the modules that functions of the same names have in another profile, so that both can be compared
/// by function and module. Folded stacks have no modules, and files move. A function that the other profile has in the same module, or not
/// at all, stays.
pub fn align(recording: &mut Profile, with: &Profile) {
    let mut places = HashMap::new();
    for location in &with.locations {
        let module = with.module(location);
        for name in with.names(location) {
            places.entry((name, Some(module))).or_insert((location.origin, location.mapping));
            places.entry((name, None)).or_insert((location.origin, location.mapping));
        }
    }
    let first = u32::try_from(recording.mappings.len()).unwrap_or(u32::MAX);
    let mut moved = Vec::new();
    for (place, location) in recording.locations.iter().enumerate() {
        let module = recording.module(location);
        // A location has one place. That of its outermost function is the one that all of its functions have.
        let Some(&name) = recording.names(location).last() else { continue };
        let found = places.get(&(name, Some(module))).or_else(|| places.get(&(name, None)));
        moved.extend(found.map(|&(origin, mapping)| (place, origin, mapping)));
    }
    recording.mappings.extend(with.mappings.iter().cloned());
    for (place, origin, mapping) in moved {
        // In bounds: an index of this table.
        let location = &mut recording.locations[place];
        location.origin = origin;
        location.mapping = mapping.and_then(|mapping| mapping.checked_add(first));
    }
}
