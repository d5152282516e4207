//! Observations for the search of suspects that the history does not contain: runs of threads, and stolen CPU time.

use std::sync::Arc;

use crate::anomaly::{INTERVAL, Meanwhile, Witness};
use crate::clock::Timestamp;
use crate::host::{CpuTime, Roots};
use crate::sched::{Chunk, Examined, RecentRuns};

/// Reads what happened on the machine beside the figures of cgroups.
#[derive(Debug)]
pub(super) struct Observer {
    recent_runs: RecentRuns,
    roots: Roots,
    /// The interval of the last read, and the CPU time then.
    last: (u64, Option<CpuTime>),
    stolen: Option<f64>,
}

impl Observer {
    /// Returns an observer that has read nothing.
    pub(super) fn new(recent_runs: RecentRuns, roots: Roots) -> Self {
        Self { recent_runs, roots, last: (0, None), stolen: None }
    }

    /// Reads the CPU time, once in each interval, and returns what is known now. It keeps the runs in memory until it is dropped.
    pub(super) fn observe(&mut self, now: Timestamp) -> Observed {
        let interval = now.0 / INTERVAL;
        if self.last.0 != interval {
            let time = CpuTime::read(&self.roots);
            let (_, before) = std::mem::replace(&mut self.last, (interval, time));
            self.stolen = before.zip(time).and_then(|(before, time)| time.stolen_since(before));
        }
        Observed { chunks: self.recent_runs.chunks(), stolen: self.stolen }
    }
}

/// What is known at one moment. Its readers take no lock: the history is locked while it is read.
#[derive(Debug)]
pub(super) struct Observed {
    chunks: Vec<Arc<Chunk>>,
    stolen: Option<f64>,
}

impl Witness for Observed {
    fn meanwhile(&self, cgroup: &str, since: Timestamp) -> Option<Meanwhile> {
        let found = Examined { chunks: &self.chunks, cgroup: Some(cgroup), since }.meanwhile();
        let share = |time: u64| time as f64 / found.waited as f64;
        (found.waited > 0).then(|| Meanwhile {
            waits: found.waits,
            shares: found.others.into_iter().map(|(path, time)| (path, share(time))).collect(),
        })
    }

    fn stolen(&self) -> Option<f64> {
        self.stolen
    }
}
