//! Targets: the CPUs, cgroups and processes of this machine. [`Watch`] scans them, and returns the [`Changes`] since its last scan.
//!
//! Contents of `/proc` and names of cgroups are untrusted input: any user who can start a process controls a part of them. Every scan is
//! therefore bounded, and [`SkippedTargets`] counts what a scan skipped, by reason.

mod attribution;
mod cgroup;
mod container_rule;
mod glob;
mod identity;
mod open_target;
mod process;
mod selected;
#[cfg(test)]
mod testing;
mod watch;

pub use attribution::Attribution;
pub use cgroup::{
    Cgroup, CgroupAbsent, CgroupId, CgroupMount, CgroupSelection, Cgroups, ContainerPath, parent_of, pod_uid,
};
pub use container_rule::{ContainerRule, PodRule, PodSelection};
pub use glob::{Glob, GlobError};
pub use identity::{ContainerMetadata, DEEP, Identity, Pod, Workload};
pub use open_target::OpenTarget;
pub use process::{
    Changed, GroupBy, Need, Process, ProcessContext, ProcessKey, ProcessRule, ProcessSelection, Processes,
    unit_of,
};
pub use selected::Targets;
pub use watch::{Changes, Needs, Watch};

use crate::error::{Errno, FileError};

/// Changes between two scans. Apply them in the order removed, changed, added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff<T, K> {
    /// New targets.
    pub added: Vec<T>,
    /// Targets with the same identity but a new description: a process after `exec`, or a renamed cgroup (cgroup v1 only). Their open
    /// events stay valid, their labels do not.
    pub changed: Vec<T>,
    /// Targets that no longer exist.
    pub removed: Vec<K>,
}

impl<T, K> Diff<T, K> {
    /// Reports whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl<T, K> Default for Diff<T, K> {
    fn default() -> Self {
        Self { added: Vec::new(), changed: Vec::new(), removed: Vec::new() }
    }
}

/// Number of cgroups or processes that the last scan found and skipped, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SkippedTargets {
    /// Exceeded the maximum number.
    pub too_many: usize,
    /// Deeper than the depth limit (cgroups only).
    pub too_deep: usize,
    /// Permission denied.
    pub forbidden: usize,
    /// Reading failed for another reason, or the content is malformed.
    pub broken: usize,
    /// The printable form of the name is the same as that of another cgroup (cgroups only).
    pub ambiguous: usize,
}

/// Reason why a cgroup or process could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// It no longer exists, which is not an error.
    Absent,
    Forbidden,
    Broken,
}

impl Obstacle {
    fn of(error: &FileError) -> Self {
        match error.errno() {
            _ if error.is_absent() => Self::Absent,
            Some(Errno::EACCES | Errno::EPERM) => Self::Forbidden,
            _ => Self::Broken,
        }
    }
}

impl SkippedTargets {
    fn count(&mut self, obstacle: Obstacle) {
        match obstacle {
            Obstacle::Absent => {}
            Obstacle::Forbidden => self.forbidden += 1,
            Obstacle::Broken => self.broken += 1,
        }
    }
}
