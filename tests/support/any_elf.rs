//! Invariants for a file of arbitrary bytes that is parsed as a program. Called by a fuzz target and by tests that keep the target working.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use perf_exporter::probe::binary::{Addresses, Binary, BinaryError};

/// Returns a temporary file with these bytes. It is deleted when it is closed.
fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file can be created");
    file.write_all(bytes).expect("the temporary file can be written");
    file
}

/// Runs every query: none panics, and each result lies within the file. Returns the number of functions in the file, 0 if the file is
/// rejected.
pub(crate) fn holds(bytes: &[u8]) -> usize {
    asked(bytes).unwrap_or(0)
}

/// Checks that each number of the file, taken as an address, lies in one region and in the span reported for that region.
fn by_address(bytes: &[u8], addresses: &Addresses) {
    let numbers = bytes.rchunks_exact(8).filter_map(|chunk| chunk.first_chunk());
    let numbers = numbers.map(|&chunk| u64::from_le_bytes(chunk)).filter(|&number| number < u64::MAX);
    for address in numbers.take(64).chain([0, u64::MAX - 1]) {
        let region = addresses.region_of(address);
        let (from, to) = addresses.span_of(region);
        assert!((from..to).contains(&address));
        let Ok(read) = addresses.read(&bytes, region) else { continue };
        assert!(read.len() <= bytes.len() / 16);
        let Ok(place) = addresses.find(&bytes, &read, address) else { continue };
        assert!((place.span.0..place.span.1).contains(&address), "{address:#x} {place:x?}");
        let name = place.function.map(|function| addresses.name(&bytes, &function));
        assert!(name.and_then(Result::ok).flatten().is_none_or(|name| name.len() <= bytes.len()));
    }
}

fn asked(bytes: &[u8]) -> Result<usize, BinaryError> {
    let binary = Binary::read(file(bytes), Path::new("any"))?;
    // Printed names are escaped, which makes them up to eight times as long.
    let told = |name: &str, error: BinaryError| {
        assert!(error.to_string().len() < 10_000 + 8 * name.len(), "{error}");
    };
    for name in ["main", "a", "call@LIB_1", "@", "", "\0", "work.part"] {
        match binary.symbol(name) {
            Ok(symbol) => binary.check_offset(symbol.offset).expect("a function lies in executable code"),
            Err(error) => told(name, error),
        }
    }
    match binary.usdt() {
        Ok(markers) => {
            for marker in &markers {
                binary.check_offset(marker.offset).expect("a USDT probe lies in executable code");
            }
            assert!(markers.len() <= bytes.len() / 12);
        }
        Err(error) => told("", error),
    }
    match binary.addresses(&binary, 64) {
        Ok(Some(addresses)) => by_address(bytes, &addresses),
        Ok(None) => {}
        Err(error) => told("", error),
    }
    match binary.stubs(10_000) {
        Ok(stubs) => assert!(stubs.len() <= bytes.len() / 4),
        Err(error) => told("", error),
    }
    if let Err(error) = binary.mini_debug(1 << 16) {
        told("", error);
    }
    if let Ok(info) = binary.debug_info(1 << 16) {
        assert!(info.size() <= 1 << 16);
    }
    let numbers = bytes
        .rchunks_exact(8)
        .filter_map(|chunk| chunk.first_chunk())
        .map(|&chunk| u64::from_le_bytes(chunk));
    let offsets: Vec<u64> = numbers.take(64).chain([0, u64::MAX]).collect();
    match binary.objects(&binary, &offsets) {
        Ok(objects) => assert_eq!(objects.len(), offsets.len()),
        Err(error) => told("", error),
    }
    let functions = binary.functions(10_000)?;
    assert!(functions.is_sorted() && functions.len() <= bytes.len() / 16);
    for symbol in functions.iter().take(100) {
        binary.check_offset(symbol.offset).expect("a function lies in executable code");
        match binary.symbol(&symbol.name) {
            Ok(found) => assert_eq!(found.offset, symbol.offset, "{}", symbol.name),
            Err(error) => told(&symbol.name, error),
        }
    }
    Ok(functions.len())
}
