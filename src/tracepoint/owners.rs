//! Owners of hits: cgroups and processes as small numbers.

use rustc_hash::FxHashMap;

use crate::register::{CgroupPaths, Order, Processes, Task};
use crate::ring::Record;
use crate::targets::CgroupId;

/// Maximum number of cgroups in a round.
const MAX: usize = 1 << 17;

/// The cause of a record, as far as the record contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RecordIds {
    pub(super) cpu: u32,
    /// `u32::MAX` if the process has exited and been reaped.
    pub(super) pid: u32,
    /// 0 is the idle task.
    pub(super) tid: u32,
    pub(super) cgroup: u64,
}

/// The number of an owner within one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct OwnerId(pub(super) u32);

impl OwnerId {
    /// Owner of hits beyond the maximum number of owners.
    pub(super) const UNKNOWN: Self = Self(u32::MAX);
    /// Owner of hits while the CPU was idle.
    pub(super) const IDLE: Self = Self(u32::MAX - 1);
}

/// The owners of one round, and the names of processes.
#[derive(Debug)]
pub(super) struct Owners {
    cgroups: FxHashMap<u64, OwnerId>,
    cgroup_ids: Vec<CgroupId>,
    pub(super) processes: Processes,
    created: CgroupPaths,
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            cgroups: FxHashMap::default(),
            cgroup_ids: Vec::new(),
            processes: Processes::new(Order::Time),
            created: CgroupPaths::default(),
        }
    }
}

/// The owners of one round, by number.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) cgroups: Vec<CgroupId>,
    pub(super) tasks: Vec<Task>,
    /// Cgroups that were created.
    pub(super) created: CgroupPaths,
}

impl Owners {
    /// Returns the number of a cgroup.
    #[inline]
    pub(super) fn cgroup(&mut self, ids: RecordIds) -> OwnerId {
        if let Some(&id) = self.cgroups.get(&ids.cgroup) {
            return id;
        }
        if self.cgroup_ids.len() >= MAX {
            return OwnerId::UNKNOWN;
        }
        let id = OwnerId(self.cgroup_ids.len() as u32);
        self.cgroup_ids.push(CgroupId(ids.cgroup));
        self.cgroups.insert(ids.cgroup, id);
        id
    }

    /// Returns the number of a process with its current name.
    #[inline]
    pub(super) fn process(&mut self, ids: RecordIds) -> OwnerId {
        if ids.tid == 0 {
            return OwnerId::IDLE;
        }
        let cgroup = (ids.cgroup != 0).then_some(CgroupId(ids.cgroup));
        match self.processes.task(ids.pid, cgroup) {
            Some(task) => OwnerId(task),
            None if ids.pid == u32::MAX => OwnerId::UNKNOWN,
            None => self.processes.add_task(ids.pid, cgroup).map_or(OwnerId::UNKNOWN, OwnerId),
        }
    }

    /// Processes a record that is not a hit.
    pub(super) fn apply_record(&mut self, record: &Record<'_>) {
        match record {
            Record::Cgroup(cgroup) => self.created.apply_record(cgroup),
            record => self.processes.apply_record(record, 0),
        }
    }

    /// Ends a round: the next one numbers its owners anew. See [`Processes::end_round`].
    pub(super) fn end_round(&mut self, there: impl Fn(u32) -> bool) -> Round {
        self.cgroups.clear();
        Round {
            cgroups: std::mem::take(&mut self.cgroup_ids),
            tasks: self.processes.end_round(there),
            created: std::mem::take(&mut self.created),
        }
    }
}
