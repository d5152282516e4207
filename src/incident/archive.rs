//! Archives in the tar format, so that any system can unpack them. They are written member by member, so that only one is in memory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use tar::{Builder, EntryType, Header};

use super::store::{Bounds, Store, Written};
use super::{Incident, IncidentId};
use crate::clock::Timestamp;
use crate::durable::Unfinished;
use crate::error::FileError;

/// Name of the last member of each archive.
pub(super) const DESCRIPTION: &str = "incident.json";

/// Bytes that the header and the padding of a member need at most.
const OVERHEAD: u64 = 1024;

/// An archive that is being written, under another name. If it is dropped, nothing is left of it.
pub struct Archive<'s> {
    store: &'s Store,
    id: IncidentId,
    /// Its name while it is written.
    partial: PathBuf,
    builder: Builder<Unfinished>,
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
    pub(super) fn create(
        store: &'s Store,
        id: &IncidentId,
        partial: PathBuf,
        (limit, time): (u64, Timestamp),
    ) -> Result<Self, FileError> {
        let file = Unfinished::create(&partial).map_err(|error| FileError::io(&partial, &error))?;
        let builder = Builder::new(file);
        Ok(Self { store, id: id.clone(), partial, builder, bytes: 2 * OVERHEAD, limit, time })
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
        let json = serde_json::to_vec_pretty(incident).map_err(io::Error::from);
        let described = json.and_then(|json| self.append(DESCRIPTION, &json));
        described.map_err(|error| FileError::io(&self.partial, &error))?;
        let Self { store, id, partial, builder, .. } = self;
        let failed = |error| FileError::io(&partial, &error);
        let mut file = builder.into_inner().map_err(failed)?;
        let bytes = file.size().map_err(failed)?;
        let removed = store.make_room(&id, bytes, bounds);
        file.replace(&store.path(&id)).map_err(failed)?;
        Ok(Written { bytes, removed })
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
