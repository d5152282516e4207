//! What must hold for the names of functions of a file of any bytes, and for its lines. Called by a fuzz target, and by a test that keeps it
//! from rotting.

use std::sync::Arc;

use perf_exporter::stack::Frame;
use perf_exporter::symbol::{LineReason, Lines, Named};

use crate::machine::{Machine, asked};

/// For names, in bytes.
const MEMORY: usize = 4 << 20;
/// For debug information, in bytes.
const DEBUG_INFO: u64 = 1 << 20;
/// The most functions that one place is in, each but the last inlined into the next.
const LEVELS: usize = 64;
/// The longest path of a source, and the longest name that is made of one there, in bytes. Characters that would play
/// tricks are escaped, which makes them up to eight times as long.
const TEXT: usize = 8 * DEBUG_INFO as usize;
/// The most places that are asked for, at any fourth byte of its end: where symbols usually are.
const PLACES: usize = 1024;

/// The bytes are a program that an enemy runs. Returns how many places in it have a name.
pub(crate) fn holds(bytes: &[u8]) -> usize {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", bytes);
    let module = machine.module("/bin/program");
    let numbers = bytes
        .rchunks_exact(4)
        .filter_map(|chunk| chunk.first_chunk())
        .map(|&chunk| u32::from_le_bytes(chunk));
    let offsets = [0, 0x1000, 0x1100, u64::MAX].into_iter().chain(numbers.map(u64::from)).take(PLACES);
    let frames: Vec<Frame> = offsets.map(|offset| Frame::File { module, offset }).collect();
    let named = asked(&mut machine.symbolizer(MEMORY), &machine, &frames, MEMORY);
    named + lines(&machine, &frames)
}

/// How many of the places have a line.
fn lines(machine: &Machine, frames: &[Frame]) -> usize {
    let named = machine.symbolizer(MEMORY).resolve(frames, &machine.code);
    let mut lines = Lines::new(&machine.roots(), DEBUG_INFO);
    let ask = |lines: &mut Lines| {
        let mut refined = named.clone();
        lines.refine(frames, &mut refined, &machine.code);
        refined
    };
    let refined = ask(&mut lines);
    let is_bounded = |refined: &Arc<Named>| {
        let texts =
            refined.lines.iter().flat_map(|line| [Some(&line.name), Some(&line.linkage), line.file.as_ref()]);
        refined.lines.len() <= LEVELS && texts.flatten().all(|text| text.len() <= TEXT)
    };
    assert!(refined.iter().all(is_bounded), "{refined:?}");
    let own = |named: &Arc<Named>| named.lines.last().map(|line| Arc::clone(&line.name));
    for (before, after) in named.iter().zip(&refined) {
        assert!(before.lines.is_empty() || own(before) == own(after), "{before:?} became {after:?}");
    }
    if lines.accounts().of(LineReason::Postponed) == 0 {
        assert_eq!(ask(&mut lines), refined, "asked again, it is the same");
    }
    refined.iter().filter(|named| named.lines.iter().any(|line| line.line > 0)).count()
}
