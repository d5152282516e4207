//! Records that are compressed with zstd, as `perf record -z` writes them: the records of a piece are a frame, which may be in several
//! records of type `PERF_RECORD_COMPRESSED`.
//!
//! Source: `tools/perf/util/header.c`, `tools/perf/util/session.c` (`perf_session__process_compressed_event`).

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::sections::{Feature, words};

/// `PERF_RECORD_COMPRESSED`
const COMPRESSED: u32 = 81;
/// `HEADER_COMPRESSED`
const FEATURE: u32 = 27;
/// `PERF_COMP_ZSTD`
const ZSTD: u32 = 1;

/// Bytes of records in a frame. Readers reserve memory for them.
const PIECE: usize = 128 << 10;
/// Bytes of a frame in a record: its size has 16 bits, and includes the header of 8 bytes.
const ROOM: usize = (1 << 16) - 8 - 8;

/// Returns the compressed form of records.
pub(super) fn compressed(records: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(records.len() / 4);
    for piece in records.chunks(PIECE) {
        let frame = compress_to_vec(piece, CompressionLevel::Fastest);
        for part in frame.chunks(ROOM) {
            stored.extend_from_slice(&COMPRESSED.to_ne_bytes());
            stored.extend_from_slice(&0u16.to_ne_bytes());
            // A part with its header has less than 64 KiB.
            stored.extend_from_slice(&(part.len() as u16 + 8).to_ne_bytes());
            stored.extend_from_slice(part);
        }
    }
    stored
}

/// Returns the section that announces compressed records. `sizes` are the bytes before and after compression.
pub(super) fn feature((before, after): (u64, u64)) -> Feature {
    let ratio = u32::try_from(before.checked_div(after).unwrap_or(1)).unwrap_or(u32::MAX);
    let (version, level) = (1, 1);
    (FEATURE, words([version, ZSTD, level, ratio, PIECE as u32]))
}
