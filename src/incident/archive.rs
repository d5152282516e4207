//! Archives in the tar format, so that any system can unpack them.

use std::io::{self, Read};

use tar::{Builder, EntryType, Header};

use crate::clock::Timestamp;

/// An archive in memory. Its size is bounded: a member that does not fit is left out.
#[derive(Debug)]
pub struct Archive {
    members: Vec<(String, Vec<u8>)>,
    bytes: usize,
    limit: usize,
    time: Timestamp,
}

/// Bytes that the header and the padding of a member need at most.
const OVERHEAD: usize = 1024;

impl Archive {
    /// Creates an empty archive of at most `limit` bytes, whose members have this time.
    pub fn new(limit: usize, time: Timestamp) -> Self {
        Self { members: Vec::new(), bytes: OVERHEAD, limit, time }
    }

    /// Adds a member.
    ///
    /// # Errors
    /// Returns the number of bytes of the member, if it does not fit.
    pub fn add(&mut self, name: &str, content: Vec<u8>) -> Result<(), usize> {
        let bytes = content.len() + OVERHEAD;
        if self.bytes + bytes > self.limit {
            return Err(content.len());
        }
        self.bytes += bytes;
        self.members.push((name.to_owned(), content));
        Ok(())
    }

    /// Returns the encoded archive, with this member in front of the others.
    ///
    /// # Errors
    /// If a name is too long for the format.
    pub(super) fn encode(self, name: &str, content: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut builder = Builder::new(Vec::with_capacity(self.bytes + content.len() + OVERHEAD));
        for (name, content) in std::iter::once((name.to_owned(), content)).chain(self.members) {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(0o600);
            header.set_mtime(self.time.0 / 1000);
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, &name, &*content)?;
        }
        builder.into_inner()
    }
}

/// Returns the member of this name, of at most `limit` bytes; `None` if there is none.
///
/// # Errors
/// If the archive is damaged, or the member is larger.
pub(super) fn member(archive: impl Read, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    for entry in tar::Archive::new(archive).entries()? {
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
