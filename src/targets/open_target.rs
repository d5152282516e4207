//! Targets of a command-line measurement.

use std::fs::File;

use crate::health::Scope;
use crate::host::CpuSet;

/// The targets of a measurement.
#[derive(Debug)]
pub enum OpenTarget {
    /// Everything on these CPUs.
    Cpus(CpuSet),
    /// A cgroup on these CPUs.
    Cgroup {
        /// Its open directory.
        dir: File,
        /// Its path, for error messages.
        path: String,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// These threads, and all threads and processes that they start from now on.
    Threads(Vec<u32>),
    /// A process that is stopped before its `execve`, and everything that it starts: counted from the `execve` on.
    Command(u32),
}

impl OpenTarget {
    /// Returns the scope of its events, for error messages.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Cpus(_) => Scope::CPU,
            Self::Cgroup { .. } => Scope::Cgroup,
            Self::Threads(_) | Self::Command(_) => Scope::Process,
        }
    }
}
