//! What is told of threads.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::plan::Feed;
use crate::sched::{Comm, Longest};
use crate::syscall::Begun;
use crate::tracepoint::{Remarkable, TraceState};

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

impl Threads {
    /// `None` where no trace tells of threads. `now` is the same moment on the wall clock and on that of the records.
    pub(crate) fn of(
        traces: &[TraceState],
        remarkable: &Remarkable,
        reduced: Option<&str>,
        now: (Timestamp, u64),
    ) -> Option<Self> {
        if !traces.iter().any(|state| state.plan.feed != Feed::Records) {
            return None;
        }
        let ago = |time: u64| Timestamp(now.0.0.saturating_sub(now.1.saturating_sub(time) / 1_000_000));
        let delay = |longest: &Longest| Delay {
            comm: text(&longest.who.comm),
            pid: longest.who.pid,
            tid: longest.who.tid,
            seconds: longest.delay as f64 / 1e9,
            at: ago(longest.time),
            cpu: longest.cpu,
        };
        let stuck = |(begun, age): &(Begun, u64)| Stuck {
            comm: text(&begun.who.comm),
            pid: begun.who.pid,
            tid: begun.who.tid,
            syscall: begun.call.to_string(),
            seconds: *age as f64 / 1e9,
        };
        Some(Self {
            reduced: reduced.map(str::to_owned),
            delays: remarkable.delays.iter().map(delay).collect(),
            stuck: remarkable.stuck.iter().map(stuck).collect(),
        })
    }
}

fn text(comm: &Comm) -> String {
    String::from_utf8_lossy(comm.bytes()).into_owned()
}
