//! Whom a person at a shell named.

use std::fs::File;

use crate::health::Scope;
use crate::host::CpuSet;

/// Whom a measurement counts.
#[derive(Debug)]
pub enum Whom {
    /// Everything on these CPUs.
    Cpus(CpuSet),
    /// A cgroup on these CPUs.
    Cgroup {
        /// Its directory, open.
        dir: File,
        /// Its path, for refusals.
        path: String,
        /// Where.
        cpus: CpuSet,
    },
    /// These threads, and all threads and processes that they start from now on.
    Threads(Vec<u32>),
    /// A process that waits at its `execve`, and everything that it starts: counted from the `execve` on.
    Command(u32),
}

impl Whom {
    /// What refusals of their events are about.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Cpus(_) => Scope::CPU,
            Self::Cgroup { .. } => Scope::Cgroup,
            Self::Threads(_) | Self::Command(_) => Scope::Process,
        }
    }
}
