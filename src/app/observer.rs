//! Observations for the search of suspects that the history does not contain: runs of threads, and stolen CPU time.

use std::sync::Arc;

use crate::anomaly::{Meanwhile, Witness};
use crate::clock::Timestamp;
use crate::host::{CpuTime, Roots};
use crate::sched::{Chunk, Examined, RecentRuns};

/// Reads what happened on the machine beside the figures of cgroups.
#[derive(Debug)]
pub(super) struct Observer {
    recent_runs: RecentRuns,
    roots: Roots,
    /// The CPU time of the machine at the last observation.
    last: Option<CpuTime>,
}

impl Observer {
    /// Returns an observer that has read nothing.
    pub(super) fn new(recent_runs: RecentRuns, roots: Roots) -> Self {
        Self { recent_runs, roots, last: None }
    }

    /// Returns what is known now, of the CPU time since the last call. The result keeps the runs in memory.
    pub(super) fn observe(&mut self) -> Observed {
        let time = CpuTime::read(&self.roots);
        let before = std::mem::replace(&mut self.last, time);
        let stolen = before.zip(time).and_then(|(before, time)| time.stolen_since(before));
        Observed { chunks: self.recent_runs.chunks(), stolen }
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
