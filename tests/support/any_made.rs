//! Invariants for hostile descriptions of code generated at run time. Called by fuzz targets and by a test that keeps the targets working.

use perf_exporter::stack::Frame;

use crate::machine::{Machine, PROCESS, asked};

/// Memory for names, in bytes; small, so that some inputs exceed it.
const MEMORY: usize = 1 << 20;
/// Maximum number of addresses that are symbolized.
const PLACES: usize = 64;

/// Checks the bytes as a perf map. The first byte selects the part of the file that exists at first. Returns the number of symbolized
/// addresses.
pub(crate) fn list_holds(bytes: &[u8]) -> usize {
    let words = bytes
        .get(1..)
        .unwrap_or_default()
        .split(u8::is_ascii_whitespace)
        .filter_map(|word| str::from_utf8(word).ok());
    let numbers = words.filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    told(bytes, "/tmp/perf-1.map", numbers.take(PLACES).collect())
}

/// Checks the bytes as a jitdump. A number may begin at each fourth byte.
pub(crate) fn dump_holds(bytes: &[u8]) -> usize {
    let places = bytes.get(1..).unwrap_or_default().windows(8).step_by(4).filter_map(<[u8]>::first_chunk);
    let numbers = places.flat_map(|&place| [u64::from_le_bytes(place), u64::from_be_bytes(place)]);
    told(bytes, "/app/jit-1.dump", numbers.filter(|&number| number != 0).take(PLACES).collect())
}

/// Symbolizes three times: with the first part of the file, with the second part appended, and with the rest appended after the process
/// exits.
fn told(bytes: &[u8], path: &str, places: Vec<u64>) -> usize {
    let Some((&part, bytes)) = bytes.split_first() else { return 0 };
    let (first, rest) = bytes.split_at(bytes.len() * usize::from(part) / 256);
    let (second, last) = rest.split_at(rest.len() / 2);
    let mut machine = Machine::new();
    let file = format!("proc/7/root{path}");
    machine.write("proc/7/root/tmp/.keep", "");
    machine.write(&file, first);
    if path.ends_with(".dump") {
        machine.module(path);
    }
    let places = places.into_iter().flat_map(|place| [place, place.saturating_add(1)]);
    let frames: Vec<Frame> = places.map(|address| Frame::Memory { process: PROCESS, address }).collect();
    let mut symbolizer = machine.symbolizer(MEMORY);
    symbolizer.notice(PROCESS, &machine.code);
    asked(&mut symbolizer, &machine, &frames, MEMORY);
    machine.append(&file, second);
    machine.later();
    asked(&mut symbolizer, &machine, &frames, MEMORY);
    machine.append(&file, last);
    symbolizer.end(PROCESS);
    let named = asked(&mut symbolizer, &machine, &frames, MEMORY);
    let accounts = symbolizer.accounts();
    assert!(
        accounts.malformed + accounts.dropped <= bytes.len() as u64,
        "{accounts:?} of {} bytes",
        bytes.len()
    );
    named
}
