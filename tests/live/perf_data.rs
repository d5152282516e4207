//! A reader for the part of perf's file format that `perf sched record` writes.
//!
//! Sources: `tools/perf/Documentation/perf.data-file-format.txt`; `perf_event_open(2)` for the order of the fields of a sample.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use perf_event_open_sys::bindings as abi;
use perf_exporter::event::format::{Field, Format, Value};
use perf_exporter::host::{Roots, read_text};
use perf_exporter::sched::{Event, Layout, PrevState};

/// A sample of a tracepoint.
#[derive(Debug)]
struct Sample {
    time: u64,
    cpu: u32,
    pid: u32,
    /// The tracepoint: an index into the list of layouts.
    layout: usize,
    raw: Vec<u8>,
}

/// The scheduler's records of a file, in order of time.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Number of lost records.
    pub(crate) lost: u64,
    layouts: Vec<Layout>,
    /// `prev_state` of `sched:sched_switch`.
    state: Field,
    samples: Vec<Sample>,
}

/// The events on which `perf sched latency` is based, by its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// A thread is runnable from `sched:sched_waking` on, when its wakeup begins.
    New,
    /// A thread is runnable from `sched:sched_wakeup` on, when it is put into a run queue. A thread that is preempted within the kernel
    /// (`R+`) counts as sleeping.
    Old,
}

/// Events that are read from a file. [`Rules`] select between the first ones.
const FOLLOWED: [&str; 5] =
    ["sched_waking", "sched_wakeup", "sched_switch", "sched_wakeup_new", "sched_migrate_task"];

impl Recorded {
    /// Reads a file that was written on this machine, regardless of other activity on it.
    pub(crate) fn read(path: &Path) -> Self {
        let mut bytes = Vec::new();
        File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(&bytes[..8], b"PERFILE2");
        let attributes = section(&bytes, 24);
        let (layouts, events) = events(&bytes, attributes, number(&bytes, 16) as usize);
        let (mut lost, mut samples) = (0, Vec::new());
        let mut rest = section(&bytes, 40);
        while !rest.is_empty() {
            let (kind, size) = (word(rest, 0), usize::from(u16::from_ne_bytes([rest[6], rest[7]])));
            let (record, after) = rest.split_at(size);
            rest = after;
            match kind {
                abi::PERF_RECORD_LOST => lost += number(record, 16),
                abi::PERF_RECORD_SAMPLE => {
                    let known = events.get(&number(record, 8));
                    samples.extend(known.map(|&(layout, fields)| sample(&record[8..], layout, fields)));
                }
                _ => {}
            }
        }
        // As perf does: samples with equal times stay in the order of the file.
        samples.sort_by_key(|sample| sample.time);
        let state = format("sched_switch").field("prev_state").cloned().unwrap();
        Self { lost, layouts, state, samples }
    }

    /// Calls `enter` for each event that counts under these rules, with CPU and time, process and cgroup, and the event itself.
    pub(crate) fn events(&self, rules: Rules, mut enter: impl FnMut((u32, u64), (u32, u64), Event<'_>)) {
        let other = if rules == Rules::New { 1 } else { 0 };
        for sample in self.samples.iter().filter(|sample| sample.layout != other) {
            let layout = &self.layouts[sample.layout];
            let mut event = layout.read(&sample.raw).expect("the record matches its format");
            if let (Event::Switch { prev_state, .. }, Layout::Switch { .. }, Rules::Old) =
                (&mut event, layout, rules)
                && *prev_state == PrevState::Preempted
                && !matches!(self.state.value(&sample.raw), Some(Value::Unsigned(0) | Value::Signed(0)))
            {
                *prev_state = PrevState::Sleeping;
            }
            enter((sample.cpu, sample.time), (sample.pid, 0), event);
        }
    }
}

/// Returns the format of a scheduler tracepoint on this machine.
fn format(name: &str) -> Format {
    let path = Roots::default().tracing.join("events/sched").join(name).join("format");
    Format::parse(&read_text(&path).unwrap()).unwrap()
}

/// Returns the known layouts, and for the id of each event its layout and the fields of its samples.
fn events(bytes: &[u8], attributes: &[u8], size: usize) -> (Vec<Layout>, BTreeMap<u64, (usize, u64)>) {
    let (mut layouts, mut numbers) = (Vec::new(), BTreeMap::new());
    for name in FOLLOWED {
        let format = format(name);
        numbers.insert(format.id(), layouts.len());
        layouts.push(Layout::of(&format).unwrap());
    }
    let mut events = BTreeMap::new();
    for attribute in attributes.chunks_exact(size) {
        let (kind, config, fields) = (word(attribute, 0), number(attribute, 8), number(attribute, 24));
        let Some(&layout) = numbers.get(&config).filter(|_| kind == abi::PERF_TYPE_TRACEPOINT) else {
            continue;
        };
        events.extend(identifiers(bytes, attribute).into_iter().map(|id| (id, (layout, fields))));
    }
    (layouts, events)
}

/// Returns the ids of an event. Their file section is given at the end of the event's attribute entry.
fn identifiers(bytes: &[u8], attribute: &[u8]) -> Vec<u64> {
    let place = attribute.len() - 16;
    let (at, length) = (number(attribute, place) as usize, number(attribute, place + 8) as usize);
    bytes[at..at + length].chunks_exact(8).map(|id| number(id, 0)).collect()
}

/// Parses a sample without its header.
fn sample(bytes: &[u8], layout: usize, fields: u64) -> Sample {
    let mut at = 0;
    let mut take = |bit: u32| {
        let there = fields & u64::from(bit) != 0;
        at += if there { 8 } else { 0 };
        there.then(|| at - 8)
    };
    take(abi::PERF_SAMPLE_IDENTIFIER);
    take(abi::PERF_SAMPLE_IP);
    let task = take(abi::PERF_SAMPLE_TID).expect("perf sched records threads");
    let time = take(abi::PERF_SAMPLE_TIME).expect("perf sched records times");
    take(abi::PERF_SAMPLE_ADDR);
    take(abi::PERF_SAMPLE_ID);
    take(abi::PERF_SAMPLE_STREAM_ID);
    let cpu = take(abi::PERF_SAMPLE_CPU).expect("perf sched records CPUs");
    take(abi::PERF_SAMPLE_PERIOD);
    let others = abi::PERF_SAMPLE_READ | abi::PERF_SAMPLE_CALLCHAIN;
    assert_eq!(fields & u64::from(others), 0, "{fields:#x}");
    let length = word(bytes, at) as usize;
    let raw = bytes[at + 4..at + 4 + length].to_vec();
    Sample { time: number(bytes, time), cpu: word(bytes, cpu), pid: word(bytes, task), layout, raw }
}

/// Returns the file section whose offset and size are stored at `at`.
fn section(bytes: &[u8], at: usize) -> &[u8] {
    let (place, length) = (number(bytes, at) as usize, number(bytes, at + 8) as usize);
    &bytes[place..place + length]
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}
