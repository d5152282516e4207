//! Archives in the tar format, so that any system can unpack them. They are written member by member, so that only one is in memory.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tar::{Builder, EntryType, Header};

use super::store::{Bounds, Store, Written};
use super::{Incident, IncidentId};
use crate::clock::Timestamp;
use crate::error::FileError;

/// Name of the last member of each archive.
pub(super) const DESCRIPTION: &str = "incident.json";

/// Bytes that the header and the padding of a member need at most.
const OVERHEAD: u64 = 1024;

/// An archive that is being written, under another name. If it is dropped, nothing is left of it.
pub struct Archive<'s> {
    store: &'s Store,
    id: IncidentId,
    /// The file with a name of its own.
    partial: PathBuf,
    builder: Builder<File>,
    /// Whether the file has its final name.
    is_finished: bool,
    bytes: u64,
    limit: u64,
    time: Timestamp,
}

impl fmt::Debug for Archive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, bytes, limit, .. } = self;
        f.debug_struct("Archive")
            .field("id", id)
            .field("bytes", bytes)
            .field("limit", limit)
            .finish_non_exhaustive()
    }
}

impl<'s> Archive<'s> {
    /// Creates the file, which only its owner can read.
    pub(super) fn create(
        store: &'s Store,
        id: &IncidentId,
        partial: PathBuf,
        (limit, time): (u64, Timestamp),
    ) -> Result<Self, FileError> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&partial);
        let file = file.map_err(|error| FileError::io(&partial, &error))?;
        let builder = Builder::new(file);
        let id = id.clone();
        Ok(Self { store, id, partial, builder, is_finished: false, bytes: 2 * OVERHEAD, limit, time })
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

    /// Adds the description, and puts the archive in place of an earlier state of the incident. Removes the oldest other incidents above the
    /// limits. A crash leaves the earlier state.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self, incident: &Incident, bounds: Bounds) -> Result<Written, FileError> {
        let written = self.complete(incident).map_err(|error| FileError::io(&self.partial, &error))?;
        let removed = self.store.make_room(&self.id, written, bounds);
        self.store.replace(&self.partial, &self.id)?;
        self.is_finished = true;
        Ok(Written { bytes: written, removed })
    }

    /// Writes the end, and waits until all of it is on the disk. Returns the size.
    fn complete(&mut self, incident: &Incident) -> io::Result<u64> {
        let json = serde_json::to_vec_pretty(incident)?;
        self.append(DESCRIPTION, &json)?;
        self.builder.finish()?;
        let file = self.builder.get_mut();
        file.sync_all()?;
        file.stream_position()
    }
}

impl Drop for Archive<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // The error to report is that of the write.
            fs::remove_file(&self.partial).ok();
        }
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

/// Renames a file, and waits until its new name is on the disk, if the file system supports that.
pub(super) fn rename(from: &Path, to: &Path, directory: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    File::open(directory).and_then(|directory| directory.sync_all()).ok();
    Ok(())
}
