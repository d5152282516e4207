//! What the scheduler recorded about an incident.

use serde::{Deserialize, Serialize};

use super::Span;

/// The runs and waits of the last seconds before a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scheduling {
    /// The time that the runs cover. Memory bounds it.
    pub span: Span,
    /// The file with the part of the time in which the waits were longest: runs and waits in the Chrome trace event format, compressed.
    /// `None` if it does not fit.
    pub file: Option<String>,
    /// The time that the file covers.
    pub worst: Span,
    /// Number of waits for a CPU of threads of the cgroup.
    pub waits: u64,
    /// Their time, in seconds. Several threads that wait at once count each.
    pub waited_seconds: f64,
    /// What ran on the CPUs meanwhile, the largest share first.
    pub meanwhile: Vec<RanMeanwhile>,
    /// The longest waits, at most one of each thread.
    pub longest: Vec<LongWait>,
    /// System calls in progress that have not returned for long, of all processes.
    pub stuck: Vec<StuckCall>,
}

/// What ran on a CPU while threads waited for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RanMeanwhile {
    /// A cgroup, or one of [`RanMeanwhile::OWN`], [`RanMeanwhile::KERNEL`], [`RanMeanwhile::IDLE`].
    pub cgroup: String,
    /// Its share of the waited time, from 0 to 1.
    pub share: f64,
}

impl RanMeanwhile {
    /// Other threads of the same cgroup. Paths begin with a slash, so no cgroup has this name.
    pub const OWN: &str = "the same cgroup";
    /// Threads of the kernel.
    pub const KERNEL: &str = "the kernel";
    /// Nothing: the cgroup had exhausted its CPU quota, or the CPU was waking up.
    pub const IDLE: &str = "nothing: CPU quota, or a CPU that woke up";
}

/// A long wait for a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LongWait {
    /// Name of the thread.
    pub comm: String,
    /// Process ID; 0 if unknown.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// The CPU on which it ran at last.
    pub cpu: u32,
    /// When it ran, in Unix milliseconds.
    pub at_ms: u64,
    /// Length of the wait.
    pub seconds: f64,
}

/// A system call in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StuckCall {
    /// Name of the thread, if known.
    pub comm: String,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Name of the system call.
    pub call: String,
    /// Time since it was entered.
    pub seconds: f64,
}
