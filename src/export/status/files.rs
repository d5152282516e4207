//! Files of other processes, and what hangs.

use std::time::Duration;

use serde::Serialize;

use super::seconds;

/// Files of other processes, which a child process opens.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct FilesStatus {
    /// The process number of the child; `None` if none runs.
    pub helper: Option<u32>,
    /// Children that were started after the first.
    pub restarts: u64,
    /// Operations that missed their deadline since the start.
    pub late: u64,
    /// Operations that hang. Files on the same mounts are left out until they end.
    pub stuck: Vec<StuckFile>,
}

/// An operation on a file that hangs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StuckFile {
    /// The mount point as the process sees it.
    pub mount: String,
    /// The type of the file system.
    pub filesystem: String,
    /// The process whose file it is.
    pub pid: Option<u32>,
    /// The file.
    pub path: String,
    /// How long ago the operation began.
    #[serde(rename = "since_seconds", serialize_with = "seconds")]
    pub since: Duration,
}
