//! The stack of this test itself, as sampled by the running kernel.

use std::collections::BTreeSet;
use std::fs::File;
use std::hint::black_box;

use perf_event_open_sys::bindings::PERF_COUNT_SW_TASK_CLOCK;

use super::{Analyzer, Frame, Limits, Truncation, Unwind};
use crate::event::Modifiers;
use crate::host::Roots;
use crate::probe::binary::Binary;
use crate::ring::Record;
use crate::sys::live::{Live, LiveEvent};
use crate::sys::{Attr, Event, Fields, Kernel, Place, Rate, Ring, Sampling, Sideband, Start};

/// Parts of the names of the called functions.
const CALLED: [&str; 3] = ["innermost_of_three", "middle_of_three", "outermost_of_three"];

#[inline(never)]
fn outermost_of_three(rounds: u64) -> u64 {
    let room = black_box([rounds; 8]);
    middle_of_three(room[3]).wrapping_add(room[5])
}

#[inline(never)]
fn middle_of_three(rounds: u64) -> u64 {
    black_box(innermost_of_three(black_box(rounds))).wrapping_mul(3)
}

#[inline(never)]
fn innermost_of_three(rounds: u64) -> u64 {
    let (mut sum, mut round) = (1, 0);
    while round < rounds {
        sum = (sum << 5) ^ (sum >> 3) ^ round;
        round += 1;
    }
    sum
}

const FIELDS: Fields = Fields { ip: true, tid: true, callchain: true, user_stack: 16 << 10, ..Fields::NONE };

/// Returns an event on this thread that samples every half millisecond of user time.
fn event(fields: Fields) -> Option<LiveEvent> {
    let sampling =
        Sampling { rate: Rate::Period(500_000), fields, sideband: Sideband::default(), ordered: false };
    let attr = Attr {
        modifiers: Modifiers { exclude_kernel: true, exclude_hv: true, ..Modifiers::default() },
        ..Attr::software(PERF_COUNT_SW_TASK_CLOCK.into(), Some(sampling), Start::Later)
    };
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    match Live.open(&attr, Place::Thread(tid), None) {
        Ok(event) => Some(event),
        Err(errno) => {
            eprintln!("skipped: this kernel does not allow a process to sample itself ({errno})");
            None
        }
    }
}

/// Returns samples of the functions above, as records.
fn samples(fields: Fields) -> Option<Vec<Vec<u8>>> {
    let event = event(fields)?;
    let mut ring = event.map(128).or_else(|_| event.map(32)).expect("every user may map a ring of 128 KiB");
    event.enable().unwrap();
    let mut records = Vec::new();
    for _ in 0..400 {
        black_box(outermost_of_three(black_box(100_000)));
        ring.drain(|record| records.push(record.to_vec()));
        if records.len() >= 8 {
            break;
        }
    }
    event.disable().unwrap();
    Some(records)
}

/// Returns the functions in a stack from the innermost on, the whole stack, and why it was truncated.
type Found = (Vec<usize>, Vec<Frame>, Option<Truncation>);

fn stacks(unwind: Unwind, fields: Fields) -> Option<(Analyzer, Vec<Found>)> {
    let records = samples(fields)?;
    let own = File::open("/proc/self/exe").unwrap();
    let functions = Binary::read(own, "/proc/self/exe".as_ref()).unwrap().functions(1 << 20).unwrap();
    let called = CALLED.map(|name| {
        let function = functions.iter().find(|function| function.name.contains(name)).unwrap();
        function.offset..function.offset + function.size
    });
    let limits = Limits::default();
    let mut analyzer = Analyzer::new(&Roots::default(), limits);
    let mut found = Vec::new();
    for record in &records {
        let Ok(Record::Sample(sample)) = Record::parse(record, &fields) else { continue };
        let taken = analyzer.stack(&sample, unwind);
        assert!(!taken.kernel);
        let frames: Vec<_> = analyzer.stacks().frames(taken.stack).collect();
        let known = frames.iter().filter_map(|frame| match *frame {
            Frame::File { offset, module } => {
                let own = analyzer.code().modules[module.0 as usize].path.contains("perf_exporter");
                called.iter().position(|range| own && range.contains(&offset))
            }
            _ => None,
        });
        found.push((known.collect(), frames, taken.cut));
    }
    Some((analyzer, found))
}

#[test]
fn the_callers_of_this_test_are_found_by_call_frame_information() {
    for unwind in [Unwind::Dwarf, Unwind::Auto] {
        let Some((analyzer, stacks)) = stacks(unwind, FIELDS) else { return };
        let whole = stacks.iter().filter(|(known, ..)| *known == [0, 1, 2]).count();
        assert!(whole * 2 > stacks.len(), "{whole} of {}: {stacks:#?}\n{:#?}", stacks.len(), analyzer.code());
        // The stack of a thread has an outer end, and 16 KiB contain all of it.
        let ends: BTreeSet<_> =
            stacks.iter().filter(|(known, ..)| *known == [0, 1, 2]).map(|(.., cut)| *cut).collect();
        assert_eq!(ends, BTreeSet::from([None]), "{stacks:#?}");
        let depth = stacks.iter().map(|(_, frames, _)| frames.len()).max();
        assert!(depth > Some(8), "{stacks:#?}");
        assert!(analyzer.unwind_bytes() > 10_000);
    }
}

#[test]
fn a_short_copy_of_the_stack_is_cut_or_goes_on_by_frame_pointers() {
    let Some((_, stacks)) = stacks(Unwind::Dwarf, Fields { user_stack: 128, ..FIELDS }) else { return };
    assert!(stacks.iter().any(|(.., cut)| *cut == Some(Truncation::Copy)), "{stacks:#?}");
}

#[test]
fn the_instruction_of_a_sample_is_in_the_function_that_runs() {
    let Some((_, stacks)) = stacks(Unwind::FramePointers, Fields { user_stack: 0, ..FIELDS }) else { return };
    let inside = stacks.iter().filter(|(known, ..)| known.first() == Some(&0)).count();
    assert!(inside > 0, "{stacks:#?}");
}
