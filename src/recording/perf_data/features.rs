//! The features of a perf.data file: the machine, the events with their names, build ids, and formats of tracepoints.
//!
//! Sources: `process_*` in `tools/perf/util/header.c`; `tools/perf/util/trace-event-read.c`.

use std::collections::HashMap;
use std::sync::Arc;

use super::cursor::{Cursor, until_nul};
use super::header::Header;
use crate::event::format::Format;
use crate::host::{CpuSet, ReadAt};
use crate::perf_data::constants::{
    ARCH, BUILD_ID, BUILD_ID_ROOM, BUILD_ID_SIZE, CMDLINE, CPUDESC, EVENT_DESC, HOSTNAME, NRCPUS,
    NUMA_TOPOLOGY, OSRELEASE, SAMPLE_TIME, STAT, TOTAL_MEM, TRACING_DATA, VERSION,
};
use crate::recording::Invalid;
use crate::recording::about::About;
use crate::stack::BuildId;

/// Size of the build id in a record, with its length and padding.
const BUILD_ID_FIELD: usize = 24;
/// Maximum number of words of the command line.
const WORDS: u32 = 4096;

/// Maximum number of NUMA nodes: that of the kernel.
const NODES: u32 = 1024;

/// Build ids of files by path, as of the end of the recording.
pub(super) type BuildIds = HashMap<Box<[u8]>, BuildId>;

/// Tracepoints of the recorded machine.
#[derive(Debug, Default)]
pub(super) struct Tracepoints {
    /// Formats by id, each with its system.
    pub(super) formats: HashMap<u64, (Arc<str>, Format)>,
    /// Constant texts of the kernel by address.
    pub(super) texts: HashMap<u64, Arc<str>>,
}

/// Reads the description of the machine, and the names of the events into the header.
pub(super) fn about(header: &mut Header, file: &dyn ReadAt) -> Result<About, Invalid> {
    let big = header.big;
    let text = |feature| -> Result<Option<Arc<str>>, Invalid> {
        let bytes = header.feature(file, feature)?;
        Ok(bytes.and_then(|bytes| Cursor::new(&bytes, big).text().map(shared)))
    };
    let mut about = About {
        hostname: text(HOSTNAME)?,
        release: text(OSRELEASE)?,
        version: text(VERSION)?,
        arch: text(ARCH)?,
        cpu: text(CPUDESC)?,
        has_counts: header.features.contains_key(&STAT),
        ..About::default()
    };
    let words = |feature| header.feature(file, feature).map(Option::unwrap_or_default);
    let cpus = words(NRCPUS)?;
    let mut cursor = Cursor::new(&cpus, big);
    // The number of available CPUs is first.
    about.cpus = cursor.u32().zip(cursor.u32()).map(|(available, online)| (online, available));
    about.memory = Cursor::new(&words(TOTAL_MEM)?, big).u64();
    about.nodes = nodes(&words(NUMA_TOPOLOGY)?, big);
    let times = words(SAMPLE_TIME)?;
    let mut cursor = Cursor::new(&times, big);
    about.times = cursor.u64().zip(cursor.u64());
    let command = words(CMDLINE)?;
    let mut cursor = Cursor::new(&command, big);
    let number = cursor.u32().unwrap_or(0).min(WORDS);
    about.command = (0..number).map_while(|_| cursor.text()).map(shared).collect();
    let described = words(EVENT_DESC)?;
    name_events(&described, header);
    about.events.clone_from(&header.attributes);
    Ok(about)
}

/// Returns the NUMA nodes and their CPUs, up to the first incomplete one.
pub(super) fn nodes(bytes: &[u8], big: bool) -> Vec<(u32, CpuSet)> {
    let mut cursor = Cursor::new(bytes, big);
    let number = cursor.u32().unwrap_or(0).min(NODES);
    let node = |cursor: &mut Cursor<'_>| {
        let node = cursor.u32()?;
        // Its memory: in total, and free.
        cursor.skip_words(2)?;
        let cpus = String::from_utf8_lossy(cursor.text()?).parse().ok()?;
        Some((node, cpus))
    };
    (0..number).map_while(|_| node(&mut cursor)).collect()
}

fn shared(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).into()
}

/// Reads the names of events, and ids that the attributes do not have. Stops at the first incomplete event.
fn name_events(bytes: &[u8], header: &mut Header) {
    let mut cursor = Cursor::new(bytes, header.big);
    let (Some(number), Some(size)) = (cursor.u32(), cursor.u32()) else { return };
    for place in 0..number as usize {
        let Some(attribute) = header.attributes.get_mut(place) else { return };
        let Some(_) = cursor.take(size as usize) else { return };
        let Some(ids) = cursor.u32() else { return };
        let Some(name) = cursor.text() else { return };
        if !name.is_empty() {
            attribute.name = shared(name);
        }
        for _ in 0..ids {
            let Some(id) = cursor.u64() else { return };
            header.ids.insert(id, place);
        }
    }
}

/// Reads the build ids of files in which perf found samples. Stops at the first incomplete entry.
pub(super) fn build_ids(header: &Header, file: &dyn ReadAt) -> Result<BuildIds, Invalid> {
    let bytes = header.feature(file, BUILD_ID)?.unwrap_or_default();
    let (mut cursor, mut ids) = (Cursor::new(&bytes, header.big), BuildIds::new());
    while let Some((path, id)) = build_id(&mut cursor, header.big) {
        ids.insert(path, id);
    }
    Ok(ids)
}

fn build_id(cursor: &mut Cursor<'_>, big: bool) -> Option<(Box<[u8]>, BuildId)> {
    let (_, misc, size) = (cursor.u32()?, cursor.u16()?, cursor.u16()?);
    let mut entry = Cursor::new(cursor.take(usize::from(size).checked_sub(8)?)?, big);
    entry.u32()?;
    let field = entry.take(BUILD_ID_FIELD)?;
    let size = match field.get(BUILD_ID_ROOM) {
        Some(&size) if misc & BUILD_ID_SIZE != 0 => usize::from(size).min(BUILD_ID_ROOM),
        _ => BUILD_ID_ROOM,
    };
    Some((until_nul(entry.rest()).into(), BuildId(field[..size].into())))
}

/// Reads the formats of tracepoints. Those that cannot be parsed are left out.
pub(super) fn tracepoints(header: &Header, file: &dyn ReadAt) -> Result<Tracepoints, Invalid> {
    let bytes = header.feature(file, TRACING_DATA)?.unwrap_or_default();
    let mut tracepoints = Tracepoints::default();
    // The rest is unreadable after the first incomplete part.
    tracing_data(&bytes, &mut tracepoints).unwrap_or_default();
    Ok(tracepoints)
}

/// Reads the output of perf's `trace-event-info.c`: the pages of the ring, the formats of ftrace, those of each system, symbols and texts of
/// the kernel.
fn tracing_data(bytes: &[u8], Tracepoints { formats, texts }: &mut Tracepoints) -> Option<()> {
    let mut cursor = Cursor::new(bytes, false);
    if cursor.take(10)? != b"\x17\x08\x44tracing" {
        return None;
    }
    line(&mut cursor)?;
    let big = *cursor.take(1)?.first()? != 0;
    let mut cursor = Cursor::new(cursor.rest(), big);
    // The size of a `long`, and the size of a page.
    cursor.take(1 + 4)?;
    for _ in ["header_page", "header_event"] {
        line(&mut cursor)?;
        sized(&mut cursor)?;
    }
    for _ in 0..cursor.u32()? {
        sized(&mut cursor)?;
    }
    for _ in 0..cursor.u32()? {
        let system = shared(line(&mut cursor)?);
        for _ in 0..cursor.u32()? {
            let text = sized(&mut cursor)?;
            if let Ok(format) = Format::parse(&String::from_utf8_lossy(text)) {
                formats.insert(format.id(), (Arc::clone(&system), format));
            }
        }
    }
    let symbols = cursor.u32()?;
    cursor.take(symbols as usize)?;
    let size = cursor.u32()?;
    let lines = String::from_utf8_lossy(cursor.take(size as usize)?);
    // `0xffffffff8281a3e9 : "rcu_preempt-GPS"`
    for line in lines.lines() {
        let (address, text) = line.split_once(" : ")?;
        let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
        let text = text.trim().trim_matches('"');
        texts.insert(address, text.strip_suffix("\\n").unwrap_or(text).into());
    }
    Some(())
}

/// Returns the bytes up to the next NUL, which is skipped.
fn line<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let text = until_nul(cursor.rest());
    cursor.take(text.len())?;
    cursor.take(1).map(|_| text)
}

/// Returns a text with its size in a word before it.
fn sized<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let size = cursor.u64()?;
    cursor.take(usize::try_from(size).ok()?)
}
