//! Who and where: the cgroups and processes of this machine, found, selected and followed. [`Watch`] looks, and its
//! [`Changes`] tell what came and what went since it looked before.

mod cgroup;
mod glob;
mod mount;
mod process;
mod processes;
mod watch;

pub use cgroup::{Cgroup, CgroupId, CgroupSelection, Cgroups, parent_of};
pub use glob::{Glob, GlobError};
pub use mount::{CgroupMount, CgroupsAbsent, Hierarchy};
pub use process::{Details, GroupBy, Process, ProcessKey, ProcessRule, ProcessSelection};
pub use watch::{Changes, Needs, Watch};

/// What changed between two looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff<T, K> {
    /// What is new.
    pub added: Vec<T>,
    /// What is there no more.
    pub removed: Vec<K>,
}

impl<T, K> Default for Diff<T, K> {
    fn default() -> Self {
        Self { added: Vec::new(), removed: Vec::new() }
    }
}
