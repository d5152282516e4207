//! Compression of complete buffers.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Compresses bytes at the fastest level.
///
/// # Errors
/// Fails only if memory is exhausted: the writer is a `Vec`.
pub(super) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    gzip.write_all(bytes)?;
    gzip.finish()
}
