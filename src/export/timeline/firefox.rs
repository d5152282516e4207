//! The format of Firefox Profiler ("processed profile"), with one track for each thread and event.
//!
//! A function has its module where the format allows it: where nothing was inlined and the address is below 4 GiB. Modules get symbol
//! tables with the functions of the recording, so that the viewer does not look for files.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use fxprof_processed_profile::debugid::{CodeId, DebugId};
use fxprof_processed_profile::{
    CategoryColor, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo, LibraryHandle, LibraryInfo,
    Profile as File, ReferenceTimestamp, SamplingInterval, StackHandle, Symbol, SymbolTable, ThreadHandle,
    Timestamp,
};
use rustc_hash::FxHashMap;

use super::{has_several_events, title, tracks};
use crate::error::printable;
use crate::profile::{Location, Profile, Unit};
use crate::recording::perf_data::{Timeline, Track};
use crate::symbol::{Origin, Segment};

/// The sampling interval of an event without a fixed period. The viewer only uses it for the scale of its graphs.
const INTERVAL: Duration = Duration::from_millis(1);

/// Writes a timeline.
///
/// # Errors
/// If it cannot be written.
pub fn write(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let first = timeline.samples.first().map_or(0, |sample| sample.time);
    let last = timeline.samples.last().map_or(0, |sample| sample.time);
    // The time of day is known for the end only: the time of the last change of the file.
    let end = timeline.about.written.map_or(Duration::ZERO, |written| Duration::from_millis(written.0));
    let start = end.saturating_sub(Duration::from_nanos(last.saturating_sub(first)));
    let interval = SamplingInterval::from_nanos(interval(timeline).as_nanos() as u64);
    let mut file =
        File::new(&title(timeline), ReferenceTimestamp::from_duration_since_unix_epoch(start), interval);
    file.set_symbolicated(true);
    if let Some(release) = &timeline.about.release {
        file.set_os_name(&printable(&format!("Linux {release}")));
    }
    let frames = frames(&mut file, &timeline.tables);
    let mut processes = FxHashMap::default();
    let has_one_event = !has_several_events(timeline);
    for (name, track) in tracks(timeline) {
        let begin = |time: u64| Timestamp::from_nanos_since_reference(time.saturating_sub(first));
        let started = begin(track.samples.first().map_or(first, |sample| sample.time));
        let task = track.task;
        let process = *processes
            .entry(task.pid)
            .or_insert_with(|| file.add_process(&printable(&task.program), task.pid, started));
        // The viewer shows the name of the process instead of that of its main thread, and so not the event.
        let is_main = task.pid == task.tid && has_one_event;
        let thread = file.add_thread(process, task.tid, started, is_main);
        file.set_thread_name(thread, &name);
        add(&mut file, thread, &track, (&timeline.tables, &frames), begin);
    }
    Ok(serde_json::to_writer(out, &file)?)
}

/// Returns the time between two samples of the first event with samples.
fn interval(timeline: &Timeline) -> Duration {
    let event = timeline.samples.first().map_or(0, |sample| sample.event as usize);
    let kind = timeline.kinds.get(event).filter(|kind| kind.value.unit == Unit::Nanoseconds);
    kind.and_then(|kind| kind.period).map_or(INTERVAL, Duration::from_nanos)
}

/// Adds the samples of a track.
fn add(
    file: &mut File,
    thread: ThreadHandle,
    track: &Track<'_>,
    (tables, frames): (&Profile, &[Vec<FrameInfo>]),
    time: impl Fn(u64) -> Timestamp,
) {
    let is_time = track.kind.value.unit == Unit::Nanoseconds;
    let mut stacks: FxHashMap<u32, Option<StackHandle>> = FxHashMap::default();
    for sample in &track.samples {
        let stack = *stacks.entry(sample.stack).or_insert_with(|| {
            let stack = tables.stacks.get(sample.stack as usize).map_or(&[][..], |stack| stack);
            let locations = stack.iter().rev().filter_map(|&place| frames.get(place as usize));
            file.intern_stack_frames(thread, locations.flatten().cloned())
        });
        let delta = if is_time { CpuDelta::from_nanos(sample.value) } else { CpuDelta::ZERO };
        file.add_sample(thread, time(sample.time), stack, delta, 1);
    }
}

/// Returns the frames of each location, outermost first.
fn frames(file: &mut File, tables: &Profile) -> Vec<Vec<FrameInfo>> {
    let libraries = libraries(file, tables);
    let user: CategoryPairHandle = file.add_category("User", CategoryColor::Yellow).into();
    let kernel: CategoryPairHandle = file.add_category("Kernel", CategoryColor::Orange).into();
    let mut frames = |location: &Location| -> Vec<FrameInfo> {
        let category_pair = if location.origin == Origin::Kernel { kernel } else { user };
        let info = |frame| FrameInfo { frame, category_pair, flags: FrameFlags::empty() };
        if let (Some(address), Some(&Some(library))) =
            (address(location), location.mapping.and_then(|place| libraries.get(place as usize)))
        {
            return vec![info(Frame::RelativeAddressFromInstructionPointer(library, address))];
        }
        let names = tables.names(location).into_iter().rev();
        names.map(|name| info(Frame::Label(file.intern_string(name)))).collect()
    };
    tables.locations.iter().map(&mut frames).collect()
}

/// Returns the address of a location that is shown with its module.
fn address(location: &Location) -> Option<u32> {
    let is_plain = location.lines.len() == 1 && location.origin == Origin::Native;
    u32::try_from(location.address).ok().filter(|_| is_plain)
}

/// Adds the modules, with symbols for the locations of the recording. Modules without such locations are left out.
fn libraries(file: &mut File, tables: &Profile) -> Vec<Option<LibraryHandle>> {
    let mut symbols: Vec<BTreeMap<u32, &str>> = vec![BTreeMap::new(); tables.mappings.len()];
    for location in &tables.locations {
        let of_module = location.mapping.and_then(|place| symbols.get_mut(place as usize));
        if let (Some(of_module), Some(address)) = (of_module, address(location)) {
            of_module.insert(address, tables.names(location).last().copied().unwrap_or_default());
        }
    }
    let modules = tables.mappings.iter().zip(symbols);
    modules.map(|(module, symbols)| (!symbols.is_empty()).then(|| library(file, module, symbols))).collect()
}

fn library(file: &mut File, module: &Segment, symbols: BTreeMap<u32, &str>) -> LibraryHandle {
    let path = printable(&module.path);
    let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
    let build_id = module.build_id.as_ref();
    let symbols = symbols.into_iter();
    let symbols = symbols.map(|(address, name)| Symbol { address, size: Some(1), name: name.to_owned() });
    file.add_lib(LibraryInfo {
        debug_name: name.clone(),
        name,
        debug_path: path.clone(),
        path,
        debug_id: build_id.map_or_else(DebugId::nil, |id| debug_id(&id.0)),
        code_id: build_id.map(|id| CodeId::from_binary(&id.0).to_string()),
        arch: None,
        symbol_table: Some(Arc::new(SymbolTable::new(symbols.collect()))),
    })
}

/// Returns the identifier that debuggers make of the first 16 bytes of a build id.
fn debug_id(build_id: &[u8]) -> DebugId {
    let mut guid = [0; 16];
    let length = build_id.len().min(guid.len());
    // In bounds: the length is that of the shorter one.
    guid[..length].copy_from_slice(&build_id[..length]);
    DebugId::from_guid_age(&guid, 0).unwrap_or_default()
}
