//! Compression of what is whole in memory.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The bytes, compressed, quickly rather than well.
///
/// # Errors
/// None that memory does not have: the writer is a `Vec`.
pub(super) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    gzip.write_all(bytes)?;
    gzip.finish()
}
