//! Processes: what runs, what is selected, and how it is grouped into series.

use super::Glob;

/// Which processes to count, and how to group them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSelection {
    /// Rules to take a process by; one that matches is enough.
    pub include: Vec<ProcessRule>,
    /// Rules to leave one out by, stronger than `include`.
    pub exclude: Vec<ProcessRule>,
    /// What makes a series: processes that agree in all of these are counted together.
    pub by: Vec<GroupBy>,
}

/// One rule; everything that it gives must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessRule {
    /// The command name (`/proc/PID/comm`, at most 15 bytes).
    pub comm: Option<Glob>,
    /// The path of the executable.
    pub exe: Option<Glob>,
    /// The path of the cgroup.
    pub cgroup: Option<Glob>,
    /// The process id.
    pub pid: Option<u32>,
}

/// A property of processes that becomes a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupBy {
    /// `comm`.
    Comm,
    /// `pid`.
    Pid,
    /// `exe`.
    Exe,
    /// `cgroup`.
    Cgroup,
}
