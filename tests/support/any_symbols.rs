//! Invariants for the function names and source lines of a file of arbitrary bytes. Called by a fuzz target and by a test that keeps the
//! target working.

use std::sync::Arc;

use perf_exporter::stack::Frame;
use perf_exporter::symbol::{LineReason, Lines, Named};

use crate::machine::{Machine, asked};

/// Memory for names, in bytes.
const MEMORY: usize = 4 << 20;
/// Memory for debug information, in bytes.
const DEBUG_INFO: u64 = 1 << 20;
/// Maximum number of functions at one address, each except the last inlined into the next.
const LEVELS: usize = 64;
/// Maximum length in bytes of a source path and of a name made from debug information. Control characters are escaped, which makes a text
/// up to eight times as long.
const TEXT: usize = 8 * DEBUG_INFO as usize;
/// Maximum number of addresses that are symbolized. They are read at each fourth byte of the file's end, where symbols usually are.
const PLACES: usize = 1024;

/// Checks the bytes as an untrusted program. Returns the number of symbolized addresses.
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

/// Returns the number of frames that have a source line.
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
        assert_eq!(ask(&mut lines), refined, "a repeated query returns the same lines");
    }
    refined.iter().filter(|named| named.lines.iter().any(|line| line.line > 0)).count()
}
