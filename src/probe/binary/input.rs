//! A file that may be gigabytes large, read where it is needed and never whole. What it says about sizes is checked
//! against its length and a limit before anything is allocated.

use std::fmt;
use std::path::PathBuf;

use super::{BinaryError, Result};
use crate::error::FileError;
use crate::host::ReadAt;

/// How much is read at a time where a table is gone through, in bytes. Symbols of both classes and numbers of
/// versions fit in without a rest.
const CHUNK: usize = 96 << 10;

/// The largest table that is gone through, in bytes: some ten times what browsers have with all their symbols. A file
/// with holes can claim any size, and holes take time to read.
const TABLE_LIMIT: u64 = 4 << 30;

/// A file and its length.
pub(super) struct Input<'f> {
    pub(super) file: Box<dyn ReadAt + 'f>,
    pub(super) path: PathBuf,
    pub(super) len: u64,
}

/// A part of a file; it may reach behind the end until it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Where it begins in the file, in bytes.
    pub(super) offset: u64,
    /// How long it is, in bytes.
    pub(super) size: u64,
}

impl Part {
    /// `size` bytes from `at` on, if they are inside of it.
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
    /// The whole of a part that holds at most `limit` bytes; `what` is its name in messages.
    pub(super) fn bytes(&self, part: Part, limit: u64, what: &str) -> Result<Vec<u8>> {
        self.check(part, limit, what)?;
        let size = usize::try_from(part.size).map_err(|_| self.damaged(format!("{what} is too large")))?;
        let mut bytes = vec![0; size];
        self.fill(part.offset, &mut bytes, what)?;
        Ok(bytes)
    }

    /// Lends a part piece by piece, with the place of each in it. All but the last are [`CHUNK`] bytes long.
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
            std::io::ErrorKind::UnexpectedEof => self.damaged(format!("it ends within {what}")),
            _ => FileError::io(&self.path, &error).into(),
        })
    }

    /// Whether a part is inside of the file and within `limit`.
    fn check(&self, part: Part, limit: u64, what: &str) -> Result<()> {
        if part.offset.checked_add(part.size).is_none_or(|end| end > self.len) {
            return Err(self.damaged(format!(
                "{what} is said to be at {:#x}, {} bytes long, and the file has {} bytes",
                part.offset, part.size, self.len
            )));
        }
        if part.size > limit {
            return Err(self.too_many(format!("bytes in {what}"), limit));
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
