//! Attributes of files.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// Attributes of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// `st_dev`
    pub device: u64,
    /// `st_ino`
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// User ID of the owner.
    pub uid: u32,
    /// Permissions: the lowest 12 bits of `st_mode`.
    pub mode: u32,
    /// Time of the last modification: seconds and nanoseconds.
    pub modified: (i64, i64),
}

impl Stat {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            uid: metadata.uid(),
            mode: metadata.mode() & 0o7777,
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}
