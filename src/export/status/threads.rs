//! What the status says of threads.

use serde::Serialize;

use super::rfc3339;
use crate::clock::Timestamp;

/// What is told of the scheduler and of system calls, and the threads that stand out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Threads {
    /// What is told at present, if that is less than the configuration asks for: it takes too much of the CPUs.
    pub reduced: Option<String>,
    /// The threads that waited longest for a CPU in the last minute, the longest first.
    pub delays: Vec<Delay>,
    /// The system calls that have been under way for longest, longer than the threshold.
    pub stuck: Vec<Stuck>,
}

/// A thread that waited for a CPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Delay {
    /// Its name.
    pub comm: String,
    /// Its process; 0 if that is not known.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// For how long.
    pub seconds: f64,
    /// When it came onto the CPU.
    #[serde(serialize_with = "rfc3339")]
    pub at: Timestamp,
    /// Which.
    pub cpu: u32,
}

/// A system call that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stuck {
    /// The name of the thread, if it is known.
    pub comm: String,
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The call.
    pub syscall: String,
    /// For how long it has been under way.
    pub seconds: f64,
}
