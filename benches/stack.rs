//! Number of samples per second that the sample reader can process: sorting by time, parsing, unwinding, and counting of the stack.
//! Processes and files are already known, and every stack was seen before.
//!
//! `cargo bench --bench stack` prints samples per second of one CPU. Stacks have twenty frames. Those by frame pointers are built from this
//! program's own code; those by DWARF were sampled by the kernel in a recursive function of this program. The goal is not checked as a
//! test: a missed goal is only printed.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use perf_event_open_sys::bindings::{PERF_CONTEXT_USER, PERF_COUNT_SW_TASK_CLOCK, PERF_RECORD_SAMPLE};
use perf_exporter::event::Modifiers;
use perf_exporter::host::Roots;
use perf_exporter::ring::{Merger, Record, RingId, time_of};
use perf_exporter::stack::{Analyzer, Limits, StackId, Unwind};
use perf_exporter::sys::live::Live;
use perf_exporter::sys::{Attr, Event, Fields, Kernel, Place, Rate, Ring, Sampling, Sideband, Start};
use rustix::time::{ClockId, clock_gettime};

const FRAMES: usize = 20;
/// Number of different stacks.
const STACKS: u64 = 500;
/// Number of samples in a round.
const SAMPLES: usize = 50_000;
const ROUNDS: usize = 15;
/// Goal, in samples per second of one CPU.
const GOAL: f64 = 300_000.0;

const FIELDS: Fields = Fields {
    identifier: true,
    ip: true,
    tid: true,
    time: true,
    callchain: true,
    cgroup: true,
    ..Fields::NONE
};

/// Offset of the time in a record: after header, identifier, address and thread.
const TIME: usize = 32;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns samples with call chains through the code of this program.
fn chains() -> Vec<Vec<u8>> {
    let pid = u64::from(std::process::id());
    let code = chains as *const () as u64 & !0xfff;
    let record = |stack: u64| {
        let frames: Vec<u64> =
            (0..FRAMES as u64).map(|frame| code + (stack * 31 + frame * 17) % 4096).collect();
        let mut body = vec![1, frames[0], pid << 32 | pid, 0, 1 + frames.len() as u64, PERF_CONTEXT_USER];
        body.extend(frames);
        body.push(1);
        let size = (8 + body.len() * 8) as u64;
        words(&[[u64::from(PERF_RECORD_SAMPLE) | 2 << 32 | size << 48].as_slice(), &body].concat())
    };
    (0..STACKS).map(record).collect()
}

#[inline(never)]
fn calls_itself(depth: usize, rounds: u64) -> u64 {
    if depth == 0 {
        return (0..rounds).fold(1, |sum, round| black_box((sum << 5) ^ (sum >> 3) ^ round));
    }
    black_box(calls_itself(black_box(depth - 1), rounds)).wrapping_add(depth as u64)
}

/// Returns samples with a copy of this thread's stack, as the kernel writes them.
fn copies(fields: Fields) -> Vec<Vec<u8>> {
    let sampling =
        Sampling { rate: Rate::Period(200_000), fields, sideband: Sideband::default(), ordered: true };
    let attr = Attr {
        modifiers: Modifiers { exclude_kernel: true, exclude_hv: true, ..Modifiers::default() },
        ..Attr::software(PERF_COUNT_SW_TASK_CLOCK.into(), Some(sampling), Start::Later)
    };
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let event = Live.open(&attr, Place::Thread(thread), None).unwrap();
    let mut ring = event.map(256).unwrap();
    event.enable().unwrap();
    let mut records = Vec::new();
    while records.len() < 200 {
        black_box(calls_itself(black_box(FRAMES - 8), 200_000));
        ring.drain(|record| records.push(record.to_vec()));
    }
    records
}

/// Returns the CPU time of this thread, which excludes other activity on the machine.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

struct Subject {
    name: &'static str,
    records: Vec<Vec<u8>>,
    fields: Fields,
    unwind: Unwind,
    analyzer: Analyzer,
    merger: Merger,
    counts: HashMap<StackId, u64>,
    now: u64,
    figures: Vec<f64>,
}

impl Subject {
    fn new(name: &'static str, records: Vec<Vec<u8>>, fields: Fields, unwind: Unwind) -> Self {
        let limits = Limits::default();
        let analyzer = Analyzer::new(&Roots::default(), limits);
        let (merger, counts) = (Merger::default(), HashMap::new());
        Self { name, records, fields, unwind, analyzer, merger, counts, now: 1 << 40, figures: Vec::new() }
    }

    fn turn(&mut self) {
        for record in &mut self.records {
            self.now += 1000;
            record[TIME..TIME + 8].copy_from_slice(&self.now.to_ne_bytes());
        }
        let Self { records, fields, unwind, analyzer, merger, counts, .. } = self;
        let start = cpu_time();
        for at in 0..SAMPLES {
            let record = &records[at % records.len()];
            merger.push(RingId::of_cpu((at % 2) as u32), time_of(record, fields).unwrap(), record);
            if at % 256 == 255 {
                merger.flush(u64::MAX, |_, record| {
                    let Ok(Record::Sample(sample)) = Record::parse(record, fields) else { return };
                    let taken = analyzer.stack(&sample, *unwind);
                    *counts.entry(taken.stack).or_default() += 1;
                });
            }
        }
        self.figures.push(SAMPLES as f64 / (cpu_time() - start).as_secs_f64());
    }

    /// Returns the average number of frames of a stack.
    fn depth(&self) -> f64 {
        let depth = |(&stack, &count): (&StackId, &u64)| {
            (self.analyzer.stacks().frames(stack).count() as u64 * count, count)
        };
        let (frames, samples) = self
            .counts
            .iter()
            .map(depth)
            .fold((0, 0), |(all, samples), (frames, count)| (all + frames, samples + count));
        frames as f64 / samples as f64
    }
}

fn main() {
    let copied = Fields { user_stack: 4096, ..FIELDS };
    let mut subjects = [
        Subject::new("by frame pointers", chains(), FIELDS, Unwind::FramePointers),
        Subject::new("by DWARF, from 4 KiB of the stack", copies(copied), copied, Unwind::Dwarf),
    ];
    for _ in 0..ROUNDS {
        subjects.iter_mut().for_each(Subject::turn);
    }
    for subject in &subjects {
        let mut figures = subject.figures.clone();
        figures.sort_by(f64::total_cmp);
        let figure = figures[figures.len() / 2];
        let met = if figure >= GOAL { "met" } else { "missed" };
        println!(
            "{:<36} {:>4.1} frames  {:>9.0} samples per second   at least {GOAL:.0}: {met}",
            subject.name,
            subject.depth(),
            figure
        );
    }
}
