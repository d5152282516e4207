//! A file that its writer appends to, read up to where it was when it was looked at last.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use crate::error::FileError;
use crate::files::Opened;

/// How much is read at a time, in bytes.
const CHUNK: usize = 256 << 10;
/// How much is read in one round at most, in bytes. What is beyond has its turn in the next.
const ROUND: u64 = 64 << 20;
/// By how many bytes it is told whether the file was only appended to, or written anew.
const TAIL: usize = 64;

/// What takes pieces of a file, from its front to its back.
pub(super) trait Reader {
    /// Takes as much as it can of a piece, and says how much of it is not to be shown again.
    fn take(&mut self, bytes: &[u8]) -> usize;
    /// What comes next stands at the beginning of the file.
    fn restart(&mut self);
}

/// A file and how far it was read. It stays open, so that the rest can be read when its writer has ended.
#[derive(Debug)]
pub(super) struct Followed {
    opened: Arc<Opened>,
    read: u64,
    /// The last bytes that were read.
    tail: Vec<u8>,
}

impl Followed {
    pub(super) fn new(opened: Arc<Opened>) -> Self {
        Self { opened, read: 0, tail: Vec::new() }
    }

    /// Whether it is the file that somebody else has opened.
    pub(super) fn is(&self, other: &Opened) -> bool {
        Arc::as_ptr(&self.opened) == std::ptr::from_ref(other)
            || self.opened.id().is_some_and(|id| other.id() == Some(id))
    }

    /// Shows what has come since, and says whether there was anything.
    ///
    /// # Errors
    /// The kernel's refusal to read.
    pub(super) fn poll(&mut self, reader: &mut impl Reader) -> Result<bool, FileError> {
        let broken = |error: std::io::Error| FileError::io(&self.opened.shown, &error);
        let length = self.opened.file.metadata().map_err(broken)?.size();
        let mut changed = false;
        if length < self.read || !self.is_continued().map_err(broken)? {
            reader.restart();
            (self.read, changed) = (0, true);
            self.tail.clear();
        }
        let end = length.min(self.read.saturating_add(ROUND));
        let (mut at, mut held, mut buffer) = (self.read, 0, vec![0; CHUNK]);
        while at + (held as u64) < end {
            let read = read_some(&self.opened.file, &mut buffer[held..], at + held as u64).map_err(broken)?;
            if read == 0 {
                break;
            }
            let filled = held + read;
            let taken = reader.take(&buffer[..filled]).min(filled);
            let tail = &buffer[..taken];
            if taken > 0 {
                self.tail.clear();
                self.tail.extend_from_slice(&tail[taken.saturating_sub(TAIL)..]);
                changed = true;
            } else if filled == buffer.len() {
                // It waits for the end of something that is longer than all it may see.
                break;
            }
            buffer.copy_within(taken..filled, 0);
            (at, held) = (at + taken as u64, filled - taken);
        }
        self.read = at;
        Ok(changed)
    }

    /// Whether the bytes that were read last are still there.
    fn is_continued(&self) -> std::io::Result<bool> {
        let mut there = vec![0; self.tail.len()];
        let at = self.read.saturating_sub(there.len() as u64);
        match self.opened.file.read_exact_at(&mut there, at) {
            Ok(()) => Ok(there == self.tail),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn read_some(file: &File, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
    loop {
        match file.read_at(buffer, at) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}
