//! The file format of speedscope, with one profile for each thread and event.
//!
//! Source: the JSON schema of the format, `https://www.speedscope.app/file-format-schema.json`.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use super::{title, tracks};
use crate::profile::numbered::Numbered;
use crate::profile::{Location, Profile, Unit};
use crate::recording::perf_data::{Timeline, Track};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: &'static str,
    shared: Shared,
    profiles: Vec<Sampled>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame {
    name: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<Arc<str>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// The frames of each sample, outermost first.
    samples: Vec<Arc<[u32]>>,
    weights: Vec<u64>,
}

/// Writes a timeline.
///
/// # Errors
/// If it cannot be written.
pub fn write(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let tables = &timeline.tables;
    let mut frames = Numbered::default();
    let of_locations: Vec<Vec<u32>> =
        tables.locations.iter().map(|location| numbers(tables, location, &mut frames)).collect();
    let outermost_first = |stack: &[u32]| -> Arc<[u32]> {
        let locations = stack.iter().rev().filter_map(|&place| of_locations.get(place as usize));
        locations.flatten().copied().collect()
    };
    let stacks: Vec<Arc<[u32]>> = tables.stacks.iter().map(|stack| outermost_first(stack)).collect();
    let profiles = tracks(timeline).into_iter().map(|(name, track)| sampled(name, &track, &stacks)).collect();
    let file = File {
        schema: SCHEMA,
        name: title(timeline),
        exporter: concat!("perf-exporter ", env!("CARGO_PKG_VERSION")),
        shared: Shared { frames: frames.values },
        profiles,
    };
    Ok(serde_json::to_writer(out, &file)?)
}

/// Returns the functions of a location, outermost first. The file is that of the source, or the module.
fn numbers(tables: &Profile, location: &Location, frames: &mut Numbered<Frame>) -> Vec<u32> {
    let module = tables.module(location);
    let lines = location.lines.iter().map(|line| tables.functions.get(line.function as usize));
    let files: Vec<Option<Arc<str>>> = lines.map(|function| function?.file.clone()).collect();
    let names = tables.names(location).into_iter().enumerate();
    let frame = |(place, name): (usize, &str)| Frame {
        name: name.into(),
        file: files.get(place).cloned().flatten().or_else(|| Some(module.into())),
    };
    let mut numbers: Vec<u32> = names.map(|named| frames.place(frame(named))).collect();
    numbers.reverse();
    numbers
}

fn sampled(name: String, track: &Track<'_>, stacks: &[Arc<[u32]>]) -> Sampled {
    let weights: Vec<u64> = track.samples.iter().map(|sample| sample.value).collect();
    let stack = |place: u32| stacks.get(place as usize).cloned().unwrap_or_default();
    Sampled {
        r#type: "sampled",
        name,
        unit: if track.kind.value.unit == Unit::Nanoseconds { "nanoseconds" } else { "none" },
        start_value: 0,
        end_value: weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight)),
        samples: track.samples.iter().map(|sample| stack(sample.stack)).collect(),
        weights,
    }
}
