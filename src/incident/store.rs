//! The directory of incidents: one archive each, written completely or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;

use super::archive::{Archive, member};
use super::{FORMAT, Incident, IncidentId};
use crate::clock::Timestamp;
use crate::error::FileError;
use crate::host;

/// Name of the last member of each archive.
const DESCRIPTION: &str = "incident.json";

/// Maximum size of a description in bytes.
const DESCRIPTION_SIZE: u64 = 1 << 20;

/// Extension of a complete archive, and of one that is being written.
const EXTENSION: &str = ".tar";
const PARTIAL: &str = ".partial";

/// Limits of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Maximum number of incidents.
    pub number: usize,
    /// Maximum size of all archives together, in bytes.
    pub bytes: u64,
}

/// A directory of incidents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    directory: PathBuf,
}

/// An incident in a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Its identifier.
    pub id: IncidentId,
    /// Size of the archive in bytes.
    pub bytes: u64,
    /// Its description.
    pub incident: Result<Incident, NoIncident>,
}

/// Why there is no incident.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoIncident {
    /// There is no such archive.
    #[error("no incident has this identifier; see the list of incidents")]
    Unknown,
    /// A newer program wrote it.
    #[error(
        "a newer version of perf-exporter wrote this incident (format {0}, this version reads {FORMAT}): use that version"
    )]
    Newer(u32),
    /// It cannot be read.
    #[error("the archive cannot be read: {0}")]
    Unreadable(String),
}

/// The outcome of writing an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Size of the archive in bytes.
    pub bytes: u64,
    /// Number of older incidents that were removed because of the limits.
    pub removed: usize,
}

/// The version of a description, which any version of the program can read.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Store {
    /// Returns the store of a directory, which may not exist.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates the directory if it does not exist, readable for its owner only, and removes unfinished archives.
    ///
    /// # Errors
    /// If the directory cannot be created or read.
    pub fn prepare(&self) -> Result<(), FileError> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        created.map_err(|error| FileError::io(&self.directory, &error))?;
        for name in host::list(&self.directory)? {
            let id = name.strip_suffix(PARTIAL).and_then(|name| name.strip_suffix(EXTENSION));
            if id.and_then(IncidentId::parse).is_some() {
                let path = self.directory.join(&name);
                fs::remove_file(&path).map_err(|error| FileError::io(path, &error))?;
            }
        }
        Ok(())
    }

    /// Begins the archive of an incident, of at most `limit` bytes, whose members have this time. The directory must be
    /// [prepared](Self::prepare).
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(&self, id: &IncidentId, limit: u64, time: Timestamp) -> Result<Archive, FileError> {
        Archive::create(self.directory.join(format!("{id}{EXTENSION}{PARTIAL}")), limit, time)
    }

    /// Adds the description to an archive, and puts it in place of an earlier state of the incident. Removes the oldest other incidents above
    /// the limits. A crash leaves the earlier state.
    ///
    /// # Errors
    /// If it cannot be written. Nothing is left of it then.
    pub fn finish(
        &self,
        archive: Archive,
        incident: &Incident,
        bounds: Bounds,
    ) -> Result<Written, FileError> {
        let path = self.path(&incident.id);
        let failed = |error: io::Error| FileError::io(&path, &error);
        let json = serde_json::to_vec_pretty(incident).map_err(|error| failed(error.into()))?;
        let (file, bytes) = archive.finish(DESCRIPTION, &json).map_err(failed)?;
        let removed = self.make_room(&incident.id, bytes, bounds);
        file.replace(&path).map_err(failed)?;
        Ok(Written { bytes, removed })
    }

    /// Removes the oldest incidents so that one of this size fits. Returns how many.
    fn make_room(&self, id: &IncidentId, bytes: u64, bounds: Bounds) -> usize {
        let mut others: Vec<(IncidentId, u64)> =
            self.archives().into_iter().filter(|(other, _)| other != id).collect();
        let mut total: u64 = bytes + others.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let mut removed = 0;
        while others.len() + 1 > bounds.number || total > bounds.bytes {
            // Archives of newer programs are counted, but not removed.
            let Some(oldest) = others.iter().position(|(id, _)| !self.is_newer(id)) else { break };
            let (id, bytes) = others.remove(oldest);
            if let Err(error) = fs::remove_file(self.path(&id)) {
                tracing::warn!(%error, incident = %id, "cannot remove an old incident");
                continue;
            }
            total = total.saturating_sub(bytes);
            removed += 1;
        }
        removed
    }

    fn is_newer(&self, id: &IncidentId) -> bool {
        matches!(self.read(id), Err(NoIncident::Newer(_)))
    }

    /// Returns all archives with their sizes, the oldest first. Other files are left out.
    fn archives(&self) -> Vec<(IncidentId, u64)> {
        let names = host::list(&self.directory).unwrap_or_default();
        let archive = |name: &String| {
            let id = IncidentId::parse(name.strip_suffix(EXTENSION)?)?;
            let file = fs::symlink_metadata(self.directory.join(name)).ok()?;
            file.is_file().then_some((id, file.len()))
        };
        let mut archives: Vec<_> = names.iter().filter_map(archive).collect();
        archives.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        archives
    }

    /// Returns the last incidents, at most `most`, the latest first, and how many there are.
    pub fn list(&self, most: usize) -> (Vec<Listed>, usize) {
        let archives = self.archives();
        let number = archives.len();
        let listed = archives.into_iter().rev().take(most).map(|(id, bytes)| {
            let incident = self.read(&id);
            Listed { id, bytes, incident }
        });
        (listed.collect(), number)
    }

    /// Returns the description of an incident.
    ///
    /// # Errors
    /// If there is none, or its archive cannot be read.
    pub fn read(&self, id: &IncidentId) -> Result<Incident, NoIncident> {
        let unreadable = |error: &dyn std::error::Error| NoIncident::Unreadable(error.to_string());
        let json = self.member(id, DESCRIPTION, DESCRIPTION_SIZE)?;
        let json = json.ok_or_else(|| NoIncident::Unreadable(format!("it has no {DESCRIPTION}")))?;
        let Version { format } = serde_json::from_slice(&json).map_err(|error| unreadable(&error))?;
        if format > FORMAT {
            return Err(NoIncident::Newer(format));
        }
        serde_json::from_slice(&json).map_err(|error| unreadable(&error))
    }

    /// Returns a member of an archive, of at most `limit` bytes; `None` if the archive has no such member.
    ///
    /// # Errors
    /// If there is no such incident, or its archive cannot be read.
    pub fn member(&self, id: &IncidentId, name: &str, limit: u64) -> Result<Option<Vec<u8>>, NoIncident> {
        member(self.open(id)?, name, limit).map_err(|error| NoIncident::Unreadable(error.to_string()))
    }

    /// Returns a whole archive of at most `limit` bytes.
    ///
    /// # Errors
    /// If there is no such incident, or its archive cannot be read or is larger.
    pub fn archive(&self, id: &IncidentId, limit: u64) -> Result<Vec<u8>, NoIncident> {
        let mut bytes = Vec::new();
        let read = self.open(id)?.take(limit + 1).read_to_end(&mut bytes);
        match read {
            Err(error) => Err(NoIncident::Unreadable(error.to_string())),
            Ok(length) if length as u64 > limit => {
                Err(NoIncident::Unreadable(format!("it is larger than {limit} bytes")))
            }
            Ok(_) => Ok(bytes),
        }
    }

    fn open(&self, id: &IncidentId) -> Result<File, NoIncident> {
        // A link or a pipe in place of an archive is not followed, and does not block.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path(id));
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NoIncident::Unknown,
            _ => NoIncident::Unreadable(error.to_string()),
        })?;
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(file),
            _ => Err(NoIncident::Unreadable("it is not a regular file".to_owned())),
        }
    }

    fn path(&self, id: &IncidentId) -> PathBuf {
        self.directory.join(format!("{id}{EXTENSION}"))
    }
}
