//! Archives in the tar format, so that any system can unpack them. They are written member by member, so that only one is in memory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use tar::{Builder, EntryType, Header};

use crate::clock::Timestamp;
use crate::durable::Unfinished;
use crate::error::FileError;

/// Bytes that the header and the padding of a member need at most.
const OVERHEAD: u64 = 1024;

/// An archive that is being written, under another name. If it is dropped, nothing is left of it.
pub struct Archive {
    /// Its name while it is written.
    partial: PathBuf,
    builder: Builder<Unfinished>,
    bytes: u64,
    limit: u64,
    time: Timestamp,
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partial, bytes, limit, .. } = self;
        f.debug_struct("Archive")
            .field("partial", partial)
            .field("bytes", bytes)
            .field("limit", limit)
            .finish_non_exhaustive()
    }
}

impl Archive {
    pub(super) fn create(partial: PathBuf, limit: u64, time: Timestamp) -> Result<Self, FileError> {
        let file = Unfinished::create(&partial).map_err(|error| FileError::io(&partial, &error))?;
        Ok(Self { partial, builder: Builder::new(file), bytes: 2 * OVERHEAD, limit, time })
    }

    /// Adds a member. Returns `false` if it does not fit.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, name: &str, content: &[u8]) -> Result<bool, FileError> {
        let bytes = content.len() as u64 + OVERHEAD;
        if self.bytes + bytes > self.limit {
            return Ok(false);
        }
        self.bytes += bytes;
        self.append(name, content).map_err(|error| FileError::io(&self.partial, &error))?;
        Ok(true)
    }

    fn append(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_mtime(self.time.0 / 1000);
        header.set_size(content.len() as u64);
        self.builder.append_data(&mut header, name, content)
    }

    /// Adds a last member, whatever its size. Returns the file and its size.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn finish(mut self, name: &str, content: &[u8]) -> io::Result<(Unfinished, u64)> {
        self.append(name, content)?;
        let mut file = self.builder.into_inner()?;
        let bytes = file.size()?;
        Ok((file, bytes))
    }
}

/// Returns the member of this name, of at most `limit` bytes; `None` if there is none. Other members are skipped.
///
/// # Errors
/// If the archive is damaged, or the member is larger.
pub(super) fn member(archive: File, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    for entry in tar::Archive::new(archive).entries_with_seek()? {
        let entry = entry?;
        if *entry.path_bytes() != *name.as_bytes() {
            continue;
        }
        if entry.size() > limit {
            return Err(io::Error::other(format!("{name} is larger than {limit} bytes")));
        }
        let mut content = Vec::new();
        entry.take(limit).read_to_end(&mut content)?;
        return Ok(Some(content));
    }
    Ok(None)
}
