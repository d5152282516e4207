//! The Chrome trace event format for Perfetto and `chrome://tracing`: each sample is an instant on the track of its thread.
//!
//! The event has the name of the innermost function, and refers to its stack (`sf`), which `chrome://tracing` shows. Source of the format:
//! "Trace Event Format", Google, the JSON object form.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::export::trace_json::{TraceJson, quoted};
use crate::profile::{Location, Profile};
use crate::recording::perf_data::Timeline;
use crate::sched::{Comm, Thread};

/// Bytes of text that are written at once.
const ENOUGH: usize = 1 << 16;

/// Writes a timeline.
///
/// # Errors
/// If it cannot be written.
pub fn write(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let tables = &timeline.tables;
    let frames = Frames::of(tables);
    let mut json = TraceJson::with_stack_frames(out, &frames.text);
    let mut last = 0;
    for sample in &timeline.samples {
        let Some(task) = tables.tasks.get(sample.task as usize) else { continue };
        let thread = Thread {
            tid: task.tid,
            pid: task.pid,
            comm: Comm::new(task.comm.as_bytes()),
            ..Thread::default()
        };
        let kind = timeline.kinds.get(sample.event as usize);
        let cpu = sample.cpu.map_or_else(String::new, |cpu| format!(",\"cpu\":{cpu}"));
        let args = format!("\"period\":{}{cpu}", sample.value);
        let innermost = tables.locations_of(sample.stack).next().map(|location| tables.names(location));
        let name = innermost.and_then(|names| names.first().copied()).unwrap_or("[no stack]");
        let stack = frames.stacks.get(sample.stack as usize).copied().flatten();
        json.sample(&thread, (kind.map_or("", |kind| &kind.name), name), sample.time, stack, &args);
        if json.buffered() >= ENOUGH {
            json.flush()?;
        }
        last = sample.time;
    }
    json.end(last)
}

/// The stack frames: a tree from the outermost functions inwards.
#[derive(Default)]
struct Frames {
    /// The number of the innermost frame of each stack; `None` of an empty stack.
    stacks: Vec<Option<u32>>,
    /// The content of the dictionary of frames.
    text: String,
}

impl Frames {
    fn of(tables: &Profile) -> Self {
        let mut frames = Self::default();
        // By parent and location: the innermost frame of the location.
        let mut known: FxHashMap<(Option<u32>, u32), u32> = FxHashMap::default();
        let mut number = 0;
        for stack in &tables.stacks {
            let mut parent = None;
            for &place in stack.iter().rev() {
                let Some(location) = tables.locations.get(place as usize) else { continue };
                parent = Some(
                    *known
                        .entry((parent, place))
                        .or_insert_with(|| frames.add(tables, location, parent, &mut number)),
                );
            }
            frames.stacks.push(parent);
        }
        frames
    }

    /// Adds the functions of a location, outermost first. Returns the number of the innermost one.
    fn add(&mut self, tables: &Profile, location: &Location, parent: Option<u32>, number: &mut u32) -> u32 {
        let module = quoted(tables.module(location));
        let mut parent = parent;
        for name in tables.names(location).into_iter().rev() {
            *number += 1;
            let comma = if self.text.is_empty() { "" } else { ",\n" };
            let above = parent.map_or_else(String::new, |parent| format!(",\"parent\":\"{parent}\""));
            self.text +=
                &format!("{comma}\"{number}\":{{\"category\":{module},\"name\":{}{above}}}", quoted(name));
            parent = Some(*number);
        }
        *number
    }
}
