//! Who is who: records carry numbers, and names are looked up here.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Task;
use crate::target::{Cgroup, CgroupId, Process, ProcessKey, Watch};

/// The root of every cgroup hierarchy (`KERNFS_ROOT_INO`), whatever part of it is mounted here.
pub const ROOT: CgroupId = CgroupId(1);

/// Cgroups and processes as of the last look at the host, and the look before: what they counted last is told after
/// they are gone.
#[derive(Debug, Default)]
pub struct Census {
    cgroups: FxHashMap<CgroupId, Arc<str>>,
    removed: FxHashMap<CgroupId, Arc<str>>,
    processes: FxHashMap<u32, Arc<Process>>,
    ended: FxHashMap<u32, Arc<Process>>,
    /// Whether the paths that the kernel tells are those that are seen here.
    whole: bool,
}

impl Census {
    /// Takes over what the last look found.
    pub fn follow(&mut self, targets: &Watch) {
        let cgroups =
            targets.cgroups().into_iter().map(|cgroup| (cgroup.id, Arc::clone(&cgroup.path))).collect();
        self.removed = std::mem::replace(&mut self.cgroups, cgroups);
        let processes = targets.processes().into_iter().map(|process| (process.key.pid, process)).collect();
        self.ended = std::mem::replace(&mut self.processes, processes);
        self.whole = self.cgroups.get(&ROOT).is_some_and(|path| &**path == "/");
    }

    /// Every process that was there at the last look.
    pub fn processes(&self) -> impl Iterator<Item = &Arc<Process>> {
        self.processes.values()
    }

    /// The paths of all cgroups that were there at the last look.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<str>> {
        self.cgroups.values()
    }

    /// Whether a process was there at the last look.
    pub fn has_process(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// The path of a cgroup. `born` knows those that nobody saw.
    pub fn path_of(&self, id: CgroupId, born: impl FnOnce(CgroupId) -> Option<Arc<str>>) -> Option<Arc<str>> {
        let seen = self.cgroups.get(&id).or_else(|| self.removed.get(&id)).cloned();
        seen.or_else(|| born(id).filter(|_| self.whole))
    }

    /// The cgroup with this number, even if it is gone already.
    pub fn cgroup(&self, id: CgroupId, born: impl FnOnce(CgroupId) -> Option<Arc<str>>) -> Option<Cgroup> {
        let path = self.path_of(id, born)?;
        let depth = path.split('/').filter(|name| !name.is_empty()).count();
        Some(Cgroup { id, path, depth })
    }

    /// The process that a record tells of. `None` if nobody knows its name.
    pub fn process(
        &self,
        task: &Task,
        born: impl FnOnce(CgroupId) -> Option<Arc<str>>,
    ) -> Option<Arc<Process>> {
        let seen =
            self.processes.get(&task.pid).or_else(|| self.ended.get(&task.pid)).filter(|_| task.current);
        let cgroup = || task.cgroup.and_then(|id| self.path_of(id, born));
        match (seen, &task.comm) {
            (Some(seen), Some(comm)) if seen.comm != *comm => {
                Some(Arc::new(Process { comm: Arc::clone(comm), ..Process::clone(seen) }))
            }
            (Some(seen), _) => Some(Arc::clone(seen)),
            (None, Some(comm)) => Some(Arc::new(Process {
                key: ProcessKey { pid: task.pid, start_time: 0 },
                comm: Arc::clone(comm),
                exe: None,
                cgroup: cgroup(),
                kernel_thread: task.kernel.unwrap_or(false),
            })),
            (None, None) => None,
        }
    }
}
