//! Status of threads.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::plan::Feed;
use crate::sched::{Comm, Longest};
use crate::syscall::PendingCall;
use crate::tracepoint::{LongestWaits, TraceState};

/// Threads with the longest waits, from the scheduler and system call traces.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Threads {
    /// Current level of detail, if it is reduced because the exporter exceeds its CPU limit.
    pub reduced: Option<String>,
    /// Threads with the longest waits for a CPU in the last minute, the longest first.
    pub delays: Vec<Delay>,
    /// System calls in progress for longer than the threshold, the longest first.
    pub stuck: Vec<Stuck>,
}

/// A thread that waited for a CPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Delay {
    /// Name of the thread.
    pub comm: String,
    /// Process ID; 0 if unknown.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Duration of the wait in seconds.
    pub seconds: f64,
    /// Time at which the thread ran on the CPU.
    pub at: Timestamp,
    /// Number of the CPU.
    pub cpu: u32,
}

/// A system call in progress.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stuck {
    /// Name of the thread, if known.
    pub comm: String,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Name of the system call.
    pub syscall: String,
    /// Time in seconds since the system call was entered.
    pub seconds: f64,
}

impl Threads {
    /// Returns `None` if no trace covers threads. `now` is the same moment in wall-clock time and in the clock of the records.
    pub(crate) fn of(
        traces: &[TraceState],
        longest_waits: &LongestWaits,
        reduced: Option<&str>,
        now: (Timestamp, u64),
    ) -> Option<Self> {
        if !traces.iter().any(|state| state.plan.feed != Feed::Records) {
            return None;
        }
        let ago = |time: u64| Timestamp(now.0.0.saturating_sub(now.1.saturating_sub(time) / 1_000_000));
        let delay = |longest: &Longest| Delay {
            comm: text(&longest.thread.comm),
            pid: longest.thread.pid,
            tid: longest.thread.tid,
            seconds: longest.delay as f64 / 1e9,
            at: ago(longest.time),
            cpu: longest.cpu,
        };
        let stuck = |(begun, age): &(PendingCall, u64)| Stuck {
            comm: text(&begun.thread.comm),
            pid: begun.thread.pid,
            tid: begun.thread.tid,
            syscall: begun.call.to_string(),
            seconds: *age as f64 / 1e9,
        };
        Some(Self {
            reduced: reduced.map(str::to_owned),
            delays: longest_waits.delays.iter().map(delay).collect(),
            stuck: longest_waits.stuck.iter().map(stuck).collect(),
        })
    }
}

fn text(comm: &Comm) -> String {
    String::from_utf8_lossy(comm.bytes()).into_owned()
}
