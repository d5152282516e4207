//! Who and where: cgroups and processes of this machine, found, selected and followed. A [`Diff`] tells what came
//! and what went since the last look.

mod cgroup;
mod glob;
mod process;

pub use cgroup::CgroupSelection;
pub use glob::{Glob, GlobError};
pub use process::{GroupBy, ProcessRule, ProcessSelection};

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
