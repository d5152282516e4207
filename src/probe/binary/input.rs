//! Access to files of any size. Data is read on demand, never as a whole. Sizes in the file are checked against the file length and a limit
//! before memory is allocated.

use std::fmt;
use std::path::PathBuf;

use super::{BinaryError, Result};
use crate::error::FileError;
use crate::host::ReadAt;

/// Number of bytes per read of a table. A multiple of the symbol sizes of both classes, and of the size of version numbers.
const CHUNK: usize = 96 << 10;

/// Maximum size of a table, in bytes: about ten times the largest browser with a full symbol table. A sparse file can have any size at no
/// cost, but takes time to read.
const TABLE_LIMIT: u64 = 4 << 30;

/// A file and its length.
pub(super) struct Input<'f> {
    pub(super) file: Box<dyn ReadAt + 'f>,
    pub(super) path: PathBuf,
    pub(super) len: u64,
}

/// A range of a file. It may extend beyond the end of the file until it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Offset in the file, in bytes.
    pub(super) offset: u64,
    /// Size in bytes.
    pub(super) size: u64,
}

impl Part {
    /// Returns the range of `size` bytes from `at`, if it is inside this range.
    pub(super) fn within(self, at: u64, size: u64) -> Option<Self> {
        let inside = at.checked_add(size).is_some_and(|end| end <= self.size);
        inside.then_some(Self { offset: self.offset.checked_add(at)?, size })
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("path", &self.path).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Input<'_> {
    /// Reads a whole part of at most `limit` bytes. `what` is its name in messages.
    pub(super) fn bytes(&self, part: Part, limit: u64, what: &str) -> Result<Vec<u8>> {
        self.check(part, limit, what)?;
        let size = usize::try_from(part.size).map_err(|_| self.damaged(format!("{what} is too large")))?;
        let mut bytes = vec![0; size];
        self.fill(part.offset, &mut bytes, what)?;
        Ok(bytes)
    }

    /// Passes a part to `each` in pieces, with the offset of each piece. All pieces except the last have [`CHUNK`] bytes.
    pub(super) fn chunks(
        &self,
        part: Part,
        what: &str,
        mut each: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.check(part, TABLE_LIMIT, what)?;
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < part.size {
            let size = usize::try_from(part.size - at).unwrap_or(CHUNK).min(CHUNK);
            let piece = &mut buffer[..size];
            self.fill(part.offset + at, piece, what)?;
            each(at, piece)?;
            at += size as u64;
        }
        Ok(())
    }

    fn fill(&self, at: u64, buffer: &mut [u8], what: &str) -> Result<()> {
        self.file.read_exact_at(buffer, at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(format!("it ends inside {what}")),
            _ => FileError::io(&self.path, &error).into(),
        })
    }

    /// Checks that a part is inside the file and within `limit`.
    fn check(&self, part: Part, limit: u64, what: &str) -> Result<()> {
        if part.offset.checked_add(part.size).is_none_or(|end| end > self.len) {
            return Err(self.damaged(format!(
                "{what} at {:#x} with {} bytes extends beyond the file size of {} bytes",
                part.offset, part.size, self.len
            )));
        }
        if part.size > limit {
            return Err(self.too_many(format!("bytes for {what}"), limit));
        }
        Ok(())
    }

    pub(super) fn too_many(&self, what: impl Into<String>, limit: u64) -> BinaryError {
        BinaryError::TooMany { path: self.path.clone(), what: what.into(), limit }
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> BinaryError {
        BinaryError::Damaged { path: self.path.clone(), what: what.into() }
    }
}
