//! The pprof format, compressed with gzip, for `go tool pprof`, Pyroscope, Parca and similar tools.
//!
//! Format: <https://github.com/google/pprof/blob/main/proto/profile.proto>. Open details are decided as follows:
//!
//! - **Values** are `samples/count` and that of the kind, which is the default. If each sample is one event (a count with period 1) both
//!   would be equal, and only the second is present.
//! - **The first mapping** is the main binary for pprof, shown as `File:`. It is the program with the largest value, but not a shared
//!   library, the kernel or another mapping in brackets. pprof's own heuristic is the same. All others follow in order of their paths.
//! - **Addresses** are those of the files' own headers, moved so that files do not overlap (`layout`).
//! - **A location without a function** keeps its address and mapping, so that pprof can symbolize it if the file is available. Until then
//!   its function is named after the location, `libc.so.6+0x2a1c0`. Otherwise all such locations of a file would look the same, and some
//!   backends would omit them. The flags of the mapping indicate which information is present.
//! - **Names** are shown as they are. pprof interprets a name that equals `system_name` as a C++ symbol and removes text in angle brackets,
//!   which damages JavaScript names. `system_name` is therefore omitted if it equals the name.
//! - **Labels** are those of perf_data_converter: `comm` (of the thread), `cgroup`, `pid` and `tid` (numbers, in the host's PID namespace),
//!   `mode`, and, if known, `namespace`, `pod`, `container` and `service`. They support `-tagfocus=comm=nginx`, `-tagfocus=pid=812` and
//!   `-tagroot=cgroup`.
//! - **Losses** are comments, shown by `-comments` and the web interface.
//!
//! Equal profiles result in equal bytes. The size of the profile bounds the size of the output: each stack, location and function is
//! written once, and strings are limited to 16 KiB.

use std::borrow::Cow;
use std::io;

use self::layout::{Layout, Mapped};
use super::gzip::gzip;
use super::numbered::Numbered;
use super::protobuf::wire::{Each, Message, Numbers, Packed, Sink, bounded};
use crate::clean::clean;
use crate::profile::{Function, Location, Profile, Sample as Seen, Unit};
use crate::recording::field;

mod layout;

/// `Content-Type`. Scrapers reject any other.
pub const CONTENT_TYPE: &str = "application/octet-stream";

/// Maximum length of a string in bytes. Names of C++ templates can have several thousand bytes.
const TEXT: usize = 16 << 10;

/// Encodes a profile as a gzip-compressed message.
///
/// # Errors
/// Fails only if memory is exhausted: the writer is a `Vec`.
pub fn encode(profile: &Profile) -> io::Result<Vec<u8>> {
    gzip(&message(profile))
}

/// Encodes the message `Profile`.
fn message(profile: &Profile) -> Vec<u8> {
    let mut out = Vec::new();
    let mut strings = Strings(Numbered::default());
    strings.place("");
    let (unit, value) = (profile.kind.value.unit, strings.place(&profile.kind.value.name));
    let value_type = Numbers([value, strings.place(unit.as_str())]);
    let both = !(unit == Unit::Count && profile.kind.period == Some(1));
    if both {
        out.message(field::SAMPLE_TYPE, &Numbers(["samples", "count"].map(|word| strings.place(word))));
    }
    out.message(field::SAMPLE_TYPE, &value_type);
    samples(profile, both, &mut strings, &mut out);
    let (numbers, layout) = mappings(profile, &mut strings, &mut out);
    let unknown = locations(profile, &numbers, &layout, &mut out);
    functions(profile, &unknown, &mut strings, &mut out);

    let nanoseconds = |milliseconds: u64| milliseconds.saturating_mul(1_000_000);
    let duration = u64::try_from(profile.duration.as_nanos()).unwrap_or(u64::MAX);
    out.optional(field::TIME_NANOS, bounded(nanoseconds(profile.start.0)));
    out.optional(field::DURATION_NANOS, bounded(duration));
    out.message(field::PERIOD_TYPE, &value_type);
    out.optional(field::PERIOD, bounded(profile.kind.period.unwrap_or(0)));
    for (reason, count) in profile.lost.iter().filter(|lost| lost.1 > 0) {
        out.unsigned(field::COMMENT, strings.place_owned(format!("lost samples: {count} ({reason})")));
    }
    out.optional(field::DEFAULT_SAMPLE_TYPE, value);
    strings.0.values.iter().for_each(|text| out.string(field::STRING_TABLE, text));
    out
}

fn samples<'p>(profile: &'p Profile, both: bool, strings: &mut Strings<'p>, out: &mut Vec<u8>) {
    let keys = ["comm", "cgroup", "pid", "tid", "mode"].map(|key| strings.place(key));
    let [comm, cgroup, pid, tid, mode] = keys;
    // Message `Label`: a key, and a string or a number.
    let text = |key, place| Numbers([key, place, 0]);
    // Samples that differ only in their CPU are merged here.
    let same =
        |one: &Seen, other: &Seen| (one.stack, one.task, one.mode) == (other.stack, other.task, other.mode);
    for alike in profile.samples.chunk_by(same) {
        let Some(sample) = alike.first() else { continue };
        let sum = |of: fn(&Seen) -> u64| alike.iter().map(of).fold(0, u64::saturating_add);
        let mut labels = Vec::with_capacity(5);
        if let Some(task) = profile.tasks.get(sample.task as usize) {
            labels.push(text(comm, strings.place(&task.comm)));
            labels.extend(task.cgroup.iter().map(|path| text(cgroup, strings.place(path))));
            for (key, name) in task.container.iter().flat_map(|container| container.names()) {
                labels.push(text(strings.place(key), strings.place(name)));
            }
            labels.extend([(pid, task.pid), (tid, task.tid)].map(|(key, id)| Numbers([key, 0, id.into()])));
        }
        labels.push(text(mode, strings.place(sample.mode.as_str())));
        let stack = profile.stacks.get(sample.stack as usize).map_or(&[][..], |stack| stack);
        let values = [bounded(sum(|sample| sample.count)), bounded(sum(|sample| sample.value))];
        // In bounds: there are two.
        let values = if both { &values[..] } else { &values[1..] };
        let known = profile.locations.len();
        out.message(field::SAMPLE, &Sample { stack, known, values, labels: &labels });
    }
}

/// Writes the mappings. Returns their numbers and their layout.
fn mappings<'p>(profile: &'p Profile, strings: &mut Strings<'p>, out: &mut Vec<u8>) -> (Vec<u64>, Layout) {
    let mut known = vec![Known::default(); profile.mappings.len()];
    for location in &profile.locations {
        let entry = location.mapping.and_then(|place| known.get_mut(place as usize));
        let Some(entry) = entry else { continue };
        let mut functions = location.lines.iter().filter_map(|line| function(profile, line.function));
        entry.files |= functions.any(|function| function.file.is_some());
        entry.lines |= location.lines.iter().any(|line| line.line > 0);
        entry.inlined |= location.lines.len() > 1;
    }
    let mut order: Vec<usize> = (0..profile.mappings.len()).collect();
    let main = main_binary(profile);
    order.sort_by_key(|&place| {
        // In bounds: indexes of this table.
        let mapping = &profile.mappings[place];
        (Some(place) != main, &mapping.path, mapping.start, &mapping.build_id, place)
    });
    let layout = Layout::new(&profile.mappings, &order);
    let mut numbers = vec![0; profile.mappings.len()];
    for (number, &place) in (1..).zip(&order) {
        // In bounds: all three tables have the same length.
        let (mapping, known) = (&profile.mappings[place], known[place]);
        numbers[place] = number;
        let build_id = mapping.build_id.as_ref().map(|id| strings.place_owned(id.to_string()));
        let Mapped { start, limit, offset } = layout.mapped(place, mapping);
        let (file, build_id) = (strings.place(&mapping.path), build_id.unwrap_or(0));
        let [named, files, lines, inlined] =
            [mapping.named, known.files, known.lines, known.inlined].map(u64::from);
        let fields = [number, start, limit, offset, file, build_id, named, files, lines, inlined];
        out.message(field::MAPPING, &Numbers(fields));
    }
    (numbers, layout)
}

/// Available information about the code of a mapping, in addition to function names.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    files: bool,
    lines: bool,
    inlined: bool,
}

/// Returns the index of the program with the largest value, counting each stack once. The outermost frame of every stack of a process is in
/// its program.
fn main_binary(profile: &Profile) -> Option<usize> {
    let mut values = vec![0_u64; profile.mappings.len()];
    let mut seen = Vec::new();
    for sample in &profile.samples {
        seen.clear();
        for place in profile.locations_of(sample.stack).filter_map(|location| location.mapping) {
            if !seen.contains(&place) {
                seen.push(place);
                if let Some(value) = values.get_mut(place as usize) {
                    *value = value.saturating_add(sample.value);
                }
            }
        }
    }
    let programs = profile.mappings.iter().zip(values).enumerate().filter(|(_, (mapping, _))| {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        !mapping.path.starts_with('[') && !name.ends_with(".so") && !name.contains(".so.")
    });
    let best = programs.max_by(|(_, (a, of_a)), (_, (b, of_b))| of_a.cmp(of_b).then(b.path.cmp(&a.path)));
    best.map(|(place, _)| place)
}

/// Writes the locations. Returns the names of the functions that replace unknown ones, in the order of their numbers after the real ones.
fn locations<'p>(profile: &'p Profile, mappings: &[u64], layout: &Layout, out: &mut Vec<u8>) -> Vec<&'p str> {
    let mut unknown = Numbered::default();
    for (number, location) in (1..).zip(&profile.locations) {
        let mut lines: Vec<_> = (location.lines.iter())
            .filter(|line| function(profile, line.function).is_some())
            .map(|line| Numbers([u64::from(line.function) + 1, line.line.into()]))
            .collect();
        if lines.is_empty() {
            let number = unknown.place(place_of(profile, location));
            lines.push(Numbers([profile.functions.len() as u64 + 1 + u64::from(number), 0]));
        }
        let mapping = location.mapping.and_then(|place| mappings.get(place as usize)).copied().unwrap_or(0);
        let address =
            location.mapping.map_or(location.address, |place| layout.address(place, location.address));
        out.message(field::LOCATION, &(Numbers([number, mapping, address]), Each(4, &lines)));
    }
    unknown.values
}

/// Returns the name of a location without a known function.
fn place_of<'p>(profile: &'p Profile, location: &'p Location) -> &'p str {
    profile.names(location).first().copied().unwrap_or("[unknown]")
}

fn functions<'p>(profile: &'p Profile, unknown: &[&'p str], strings: &mut Strings<'p>, out: &mut Vec<u8>) {
    for (number, function) in (1..).zip(&profile.functions) {
        let name = strings.place(&function.name);
        let plain = function.linkage == function.name && !function.name.starts_with("_Z");
        let system_name = if plain { 0 } else { strings.place(&function.linkage) };
        let file = function.file.as_ref().map_or(0, |file| strings.place(file));
        out.message(field::FUNCTION, &Numbers([number, name, system_name, file]));
    }
    for (number, name) in (profile.functions.len() as u64 + 1..).zip(unknown) {
        out.message(field::FUNCTION, &Numbers([number, strings.place(name)]));
    }
}

fn function(profile: &Profile, place: u32) -> Option<&Function> {
    profile.functions.get(place as usize)
}

/// Table of unique strings; the first is empty.
struct Strings<'p>(Numbered<Cow<'p, str>>);

impl<'p> Strings<'p> {
    fn place(&mut self, text: &'p str) -> u64 {
        self.0.place(clean(text, TEXT)).into()
    }

    fn place_owned(&mut self, text: String) -> u64 {
        self.0.place(Cow::Owned(text)).into()
    }
}

/// Message `Sample`.
struct Sample<'a> {
    stack: &'a [u32],
    /// Number of locations.
    known: usize,
    values: &'a [u64],
    labels: &'a [Numbers<3>],
}

impl Message for Sample<'_> {
    const LONG: bool = true;

    fn write(&self, to: &mut impl Sink) {
        let mut places = self.stack.iter().filter(|&&place| (place as usize) < self.known).peekable();
        if places.peek().is_some() {
            to.message(1, &Packed(places.map(|&place| u64::from(place) + 1)));
        }
        to.message(2, &Packed(self.values.iter().copied()));
        Each(3, self.labels).write(to);
    }
}

#[cfg(test)]
mod tests;
