//! Cgroups and processes of the host by the IDs in records.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{CgroupPaths, Task};
use crate::targets::{Cgroup, CgroupId, CgroupSelection, Process, ProcessKey, Watch};

/// Root of every cgroup hierarchy (`KERNFS_ROOT_INO`), whatever part of it is mounted here.
pub const ROOT: CgroupId = CgroupId(1);

/// Cgroups and processes as of the last scan of the host, and of the scan before, because the last counts of removed targets are published
/// afterwards. Also contains cgroups that records report as created since then.
#[derive(Debug, Default)]
pub struct TargetIndex {
    cgroups: FxHashMap<CgroupId, Arc<Cgroup>>,
    removed: FxHashMap<CgroupId, Arc<Cgroup>>,
    /// IDs of `cgroups` and `removed` by path.
    ids: FxHashMap<Arc<str>, CgroupId>,
    created: CgroupPaths,
    processes: FxHashMap<u32, Arc<Process>>,
    ended: FxHashMap<u32, Arc<Process>>,
    /// Whether the cgroup paths in records are valid in the file system here.
    whole: bool,
}

impl TargetIndex {
    /// Replaces the cgroups and processes by those of the last scan.
    pub fn follow(&mut self, targets: &Watch) {
        let cgroups = targets.cgroups().into_iter().map(|cgroup| (cgroup.id, cgroup)).collect();
        self.removed = std::mem::replace(&mut self.cgroups, cgroups);
        let all = self.removed.values().chain(self.cgroups.values());
        self.ids = all.map(|cgroup| (Arc::clone(&cgroup.path), cgroup.id)).collect();
        let processes = targets.processes().into_iter().map(|process| (process.key.pid, process)).collect();
        self.ended = std::mem::replace(&mut self.processes, processes);
        self.whole = self.cgroups.get(&ROOT).is_some_and(|root| &*root.path == "/");
        self.created.end_round();
    }

    /// Adds the cgroups that records report as created.
    pub fn add_created(&mut self, created: &CgroupPaths) {
        self.created.extend(created);
    }

    /// Returns the processes of the last scan.
    pub fn processes(&self) -> impl Iterator<Item = &Arc<Process>> {
        self.processes.values()
    }

    /// Returns the paths of all cgroups of the last scan.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<str>> {
        self.cgroups.values().map(|cgroup| &cgroup.path)
    }

    /// Reports whether a process existed at the last scan.
    pub fn has_process(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Returns the path of a cgroup, including recently removed ones.
    pub fn path_of(&self, id: CgroupId) -> Option<Arc<str>> {
        let created = || self.created.get(id).filter(|_| self.whole).cloned();
        self.seen(id).map(|cgroup| Arc::clone(&cgroup.path)).or_else(created)
    }

    fn seen(&self, id: CgroupId) -> Option<&Arc<Cgroup>> {
        self.cgroups.get(&id).or_else(|| self.removed.get(&id))
    }

    /// Reports whether the cgroup at a path is selected. Metadata of its container is known only if the last two scans found it.
    pub fn selects(&self, selection: &CgroupSelection, path: &str) -> bool {
        let id = self.ids.get(path).filter(|_| !selection.pods.is_empty());
        match id.and_then(|&id| self.seen(id)) {
            Some(cgroup) => selection.matches(cgroup),
            None => selection.matches(&Cgroup::at(path)),
        }
    }

    /// Returns the cgroup with this ID, including recently removed ones.
    pub fn cgroup(&self, id: CgroupId) -> Option<Cgroup> {
        match self.seen(id) {
            Some(cgroup) => Some(Cgroup::clone(cgroup)),
            None => Some(Cgroup { id, ..Cgroup::at(&self.path_of(id)?) }),
        }
    }

    /// Returns the cgroup of a task. If its records contain none, returns that of its process at the last scan.
    pub fn cgroup_of(&self, task: &Task) -> Option<CgroupId> {
        let seen = || {
            let path = self.process(task)?.cgroup.clone()?;
            self.cgroups.iter().find(|&(_, known)| known.path == path).map(|(&id, _)| id)
        };
        task.cgroup.or_else(seen)
    }

    /// Returns the process of a task; `None` if its name is unknown.
    pub fn process(&self, task: &Task) -> Option<Arc<Process>> {
        let seen =
            self.processes.get(&task.pid).or_else(|| self.ended.get(&task.pid)).filter(|_| task.current);
        match (seen, &task.comm) {
            (Some(seen), Some(comm)) if seen.comm != *comm => {
                Some(Arc::new(Process { comm: Arc::clone(comm), ..Process::clone(seen) }))
            }
            (Some(seen), _) => Some(Arc::clone(seen)),
            (None, Some(comm)) => Some(Arc::new(Process {
                key: ProcessKey { pid: task.pid, start_time: 0 },
                comm: Arc::clone(comm),
                exe: None,
                cgroup: task.cgroup.and_then(|id| self.path_of(id)),
                kernel_thread: task.kernel.unwrap_or(false),
            })),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_whose_records_name_no_cgroup_is_in_the_cgroup_where_its_process_was_seen() {
        let process = |pid, cgroup: Option<&str>| {
            let key = ProcessKey { pid, start_time: 5 };
            let process = Process {
                key,
                comm: "init".into(),
                exe: None,
                cgroup: cgroup.map(Arc::from),
                kernel_thread: false,
            };
            (pid, Arc::new(process))
        };
        let index = TargetIndex {
            cgroups: [(ROOT, "/"), (CgroupId(7), "/init")]
                .map(|(id, path)| (id, Arc::new(Cgroup { id, ..Cgroup::at(path) })))
                .into_iter()
                .collect(),
            processes: [process(1, Some("/init")), process(2, None), process(3, Some("/gone"))]
                .into_iter()
                .collect(),
            ..TargetIndex::default()
        };
        let task = |pid, cgroup| Task { pid, comm: None, kernel: None, current: true, cgroup };
        let of = |pid, cgroup: Option<u64>| index.cgroup_of(&task(pid, cgroup.map(CgroupId))).map(|id| id.0);
        assert_eq!([of(1, None), of(1, Some(9))], [Some(7), Some(9)]);
        assert_eq!([of(2, None), of(3, None), of(4, None)], [None; 3]);
    }
}
