//! Contents of the sections for features (`HEADER_*` of `tools/perf/util/header.h`).

use super::constants::{BUILD_ID_ROOM, BUILD_ID_SIZE};
use super::format::{EventSection, RecordBytes, Section, padded};
use crate::stack::BuildId;

/// Alignment of texts in sections (`NAME_ALIGN`).
const ALIGN: usize = 64;

/// The content of a feature's section.
pub(super) type Feature = (u32, Vec<u8>);

/// Returns the sections of features, which are in the order of their numbers, for a place `at` bytes from the start of the file: their
/// table, then their contents.
pub(super) fn layout(features: &[Feature], at: u64) -> Vec<u8> {
    let table = features.len() * 16;
    let mut bytes =
        Vec::with_capacity(table + features.iter().map(|(_, content)| content.len()).sum::<usize>());
    let mut offset = at + table as u64;
    for (_, content) in features {
        let size = content.len() as u64;
        Section { offset, size }.write(&mut bytes);
        offset += size;
    }
    features.iter().for_each(|(_, content)| bytes.extend(content));
    bytes
}

/// Adds a text with its length.
fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    let room = (text.len() + 1).next_multiple_of(ALIGN);
    out.extend((room as u32).to_ne_bytes());
    out.extend(padded(text, room));
}

/// Returns the content of a text.
pub(super) fn text(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    push_text(&mut out, text.as_bytes());
    out
}

/// Returns the content of a list of texts.
pub(super) fn texts<T: AsRef<[u8]>>(texts: &[T]) -> Vec<u8> {
    let mut out = (texts.len() as u32).to_ne_bytes().to_vec();
    texts.iter().for_each(|text| push_text(&mut out, text.as_ref()));
    out
}

/// Returns the content of numbers of 32 bits.
pub(super) fn words(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// Returns the content of numbers of 64 bits.
pub(super) fn longs(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Returns the description of events.
pub(super) fn event_desc(events: &[EventSection]) -> Vec<u8> {
    let longest = events.iter().map(|event| event.attr.len()).max().unwrap_or_default();
    let mut out = words([events.len() as u32, longest as u32]);
    for event in events {
        out.extend(padded(&event.attr, longest));
        out.extend((event.ids.len() as u32).to_ne_bytes());
        push_text(&mut out, event.name.as_bytes());
        out.extend(longs(event.ids.iter().copied()));
    }
    out
}

/// Returns the NUMA nodes: number, memory and free memory in KiB, list of CPUs.
pub(super) fn nodes(nodes: &[(u32, [u64; 2], String)]) -> Vec<u8> {
    let mut out = words([nodes.len() as u32]);
    for (number, memory, cpus) in nodes {
        out.extend(number.to_ne_bytes());
        out.extend(longs(*memory));
        push_text(&mut out, cpus.as_bytes());
    }
    out
}

/// Returns the names of PMUs with their types.
pub(super) fn pmu_mappings(pmus: &[(u32, String)]) -> Vec<u8> {
    let mut out = words([pmus.len() as u32]);
    for (kind, name) in pmus {
        out.extend(kind.to_ne_bytes());
        push_text(&mut out, name.as_bytes());
    }
    out
}

/// Returns the entry of a file in the section of build ids. `misc` is `PERF_RECORD_MISC_KERNEL` or `_USER`.
pub(super) fn build_id(misc: u32, path: &[u8], id: &BuildId) -> Vec<u8> {
    let id = &id.0[..id.0.len().min(BUILD_ID_ROOM)];
    let mut room: Vec<u8> = padded(id, BUILD_ID_ROOM).collect();
    room.extend([id.len() as u8, 0, 0, 0]);
    // The kind is 0, and the process -1: all of the machine.
    RecordBytes::new(0, misc | u32::from(BUILD_ID_SIZE)).u32(u32::MAX).bytes(&room).text(path, ALIGN).end(0)
}

/// A tracepoint with a stored format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tracepoint {
    pub(super) system: String,
    /// The content of the file `format`.
    pub(super) format: Vec<u8>,
}

/// Returns the formats of tracepoints, in version 0.6 of the format of `trace-cmd` (`tools/perf/util/trace-event-info.c`). `page` and
/// `event` are the contents of the files `header_page` and `header_event` of tracefs. `tracepoints` of one system are adjacent.
pub(super) fn tracing_data(page: &[u8], event: &[u8], tracepoints: &[Tracepoint]) -> Vec<u8> {
    let mut out = b"\x17\x08\x44tracing0.6\0".to_vec();
    out.push(u8::from(cfg!(target_endian = "big")));
    out.push(size_of::<usize>() as u8);
    out.extend((rustix::param::page_size() as u32).to_ne_bytes());
    for (name, content) in [(&b"header_page\0"[..], page), (b"header_event\0", event)] {
        out.extend(name);
        push_file(&mut out, content);
    }
    // Formats of the function tracer: none.
    out.extend(words([0]));
    let systems: Vec<&[Tracepoint]> = tracepoints.chunk_by(|one, next| one.system == next.system).collect();
    out.extend(words([systems.len() as u32]));
    for formats in systems {
        out.extend(formats.first().map_or("", |first| &first.system).bytes());
        out.push(0);
        out.extend(words([formats.len() as u32]));
        formats.iter().for_each(|tracepoint| push_file(&mut out, &tracepoint.format));
    }
    // The sizes of kallsyms, of the formats of trace_printk, and of the saved command lines, which readers do not need.
    out.extend(words([0, 0]));
    out.extend(longs([0]));
    out
}

fn push_file(out: &mut Vec<u8>, content: &[u8]) {
    out.extend((content.len() as u64).to_ne_bytes());
    out.extend(content);
}
