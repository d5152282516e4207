//! Who and where: the CPUs, cgroups and processes of this machine, found, selected and followed. [`Watch`] looks, and
//! its [`Changes`] tell what came and what went since it looked before.
//!
//! Whatever stands in `/proc` or in a cgroup's name may have been written by anybody who can start a process. So
//! every look is bounded, and what it could not take in is counted by reason in [`LeftOut`].

mod attribution;
mod cgroup;
mod glob;
mod process;
mod targets;
#[cfg(test)]
mod testing;
mod watch;
mod whom;

pub use attribution::Attribution;
pub use cgroup::{
    Cgroup, CgroupAbsent, CgroupId, CgroupMount, CgroupSelection, Cgroups, ContainerPath, parent_of, pod_uid,
};
pub use glob::{Glob, GlobError};
pub use process::{
    Changed, GroupBy, Need, Process, ProcessContext, ProcessKey, ProcessRule, ProcessSelection, Processes,
    unit_of,
};
pub use targets::Targets;
pub use watch::{Changes, Needs, Watch};
pub use whom::Whom;

use crate::error::{Errno, FileError};

/// What changed between two looks. To be applied in the order removed, changed, added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff<T, K> {
    /// What is new.
    pub added: Vec<T>,
    /// What is the same thing as before but is described differently: a process after `exec`, a cgroup that was
    /// renamed (which only cgroup v1 can do). What was opened for it stays good; its labels do not.
    pub changed: Vec<T>,
    /// What is there no more.
    pub removed: Vec<K>,
}

impl<T, K> Diff<T, K> {
    /// Whether everything is as it was.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl<T, K> Default for Diff<T, K> {
    fn default() -> Self {
        Self { added: Vec::new(), changed: Vec::new(), removed: Vec::new() }
    }
}

/// How many cgroups or processes the last look met and could not take in, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// They were over the limit on their number.
    pub too_many: usize,
    /// They lay deeper than the limit (cgroups only).
    pub too_deep: usize,
    /// The kernel did not let us look.
    pub forbidden: usize,
    /// Looking failed in another way, or what was found is not in its format.
    pub broken: usize,
    /// Their names, made printable, could not be told from another's (cgroups only).
    pub ambiguous: usize,
}

/// Why one cgroup or process could not be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// It is gone, which is no fault.
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

impl LeftOut {
    fn count(&mut self, obstacle: Obstacle) {
        match obstacle {
            Obstacle::Absent => {}
            Obstacle::Forbidden => self.forbidden += 1,
            Obstacle::Broken => self.broken += 1,
        }
    }
}
