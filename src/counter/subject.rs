//! Targets of counting.

use std::sync::Arc;

use crate::host::Cpu;
use crate::targets::{Cgroup, CgroupId, Process, ProcessKey};

/// Identity of a target during its lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Cpu(u32),
    Cgroup(CgroupId),
    Process(ProcessKey),
}

/// A target as it was found.
#[derive(Debug, Clone)]
pub(super) enum Subject {
    Cpu(Cpu),
    Cgroup(Arc<Cgroup>),
    Process(Arc<Process>),
}

impl Subject {
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Cpu(cpu) => Key::Cpu(cpu.number),
            Self::Cgroup(cgroup) => Key::Cgroup(cgroup.id),
            Self::Process(process) => Key::Process(process.key),
        }
    }
}
