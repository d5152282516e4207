//! Who hit: cgroups and processes as small numbers, and what records tell of their names.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::attribute::{Born, Task};
use crate::ring::{self, Record};
use crate::target::CgroupId;

/// The process whose children are the kernel's threads.
pub(super) const KTHREADD: u32 = 2;

/// How many owners, and how many names of processes, are kept at most.
const MOST: usize = 1 << 17;

/// The least number of names above which names of processes that do not exist are dropped.
const TIDY_FROM: usize = 4096;

/// What a record tells of who caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Who {
    pub(super) cpu: u32,
    /// `u32::MAX` if it has none any more.
    pub(super) pid: u32,
    /// 0 is the idle task.
    pub(super) tid: u32,
    pub(super) cgroup: u64,
}

/// The number of an owner within one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct OwnerId(pub(super) u32);

impl OwnerId {
    /// One owner too many.
    pub(super) const UNKNOWN: Self = Self(u32::MAX);
    /// Nobody: the CPU was idle.
    pub(super) const IDLE: Self = Self(u32::MAX - 1);
}

/// What is known of a process.
#[derive(Debug, Clone)]
struct Known {
    comm: Arc<str>,
    kernel: Option<bool>,
}

/// The owners of one round, and the names of processes.
#[derive(Debug, Default)]
pub(super) struct Owners {
    cgroups: FxHashMap<u64, OwnerId>,
    cgroup_ids: Vec<CgroupId>,
    /// By id; a process has a number for each cgroup that it hit in, nearly always one.
    processes: FxHashMap<u32, Vec<(u64, OwnerId)>>,
    tasks: Vec<Task>,
    known: FxHashMap<u32, Known>,
    /// Processes in `known` whose main thread has ended.
    ended: FxHashSet<u32>,
    /// The number of names above which names of processes that do not exist are dropped.
    tidy_at: usize,
    born: Born,
}

/// The owners of one round, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) cgroups: Vec<CgroupId>,
    pub(super) tasks: Vec<Task>,
}

impl Owners {
    /// The number of a cgroup.
    #[inline]
    pub(super) fn cgroup(&mut self, who: Who) -> OwnerId {
        if let Some(&id) = self.cgroups.get(&who.cgroup) {
            return id;
        }
        if self.cgroup_ids.len() >= MOST {
            return OwnerId::UNKNOWN;
        }
        let id = OwnerId(self.cgroup_ids.len() as u32);
        self.cgroup_ids.push(CgroupId(who.cgroup));
        self.cgroups.insert(who.cgroup, id);
        id
    }

    /// The number of a process, under the name that it has now.
    #[inline]
    pub(super) fn process(&mut self, who: Who) -> OwnerId {
        if who.tid == 0 {
            return OwnerId::IDLE;
        }
        let known = self.processes.get(&who.pid);
        match known.and_then(|ids| ids.iter().find(|&&(cgroup, _)| cgroup == who.cgroup)) {
            Some(&(_, id)) => id,
            None => self.add_process(who),
        }
    }

    #[cold]
    fn add_process(&mut self, who: Who) -> OwnerId {
        if self.tasks.len() >= MOST || who.pid == u32::MAX {
            return OwnerId::UNKNOWN;
        }
        let known = self.known.get(&who.pid);
        let id = OwnerId(self.tasks.len() as u32);
        self.tasks.push(Task {
            pid: who.pid,
            comm: known.map(|known| Arc::clone(&known.comm)),
            kernel: known.and_then(|known| known.kernel),
            current: true,
            cgroup: (who.cgroup != 0).then_some(CgroupId(who.cgroup)),
        });
        self.processes.entry(who.pid).or_default().push((who.cgroup, id));
        id
    }

    /// What a process is called.
    pub(super) fn name(&self, pid: u32) -> Option<&Arc<str>> {
        self.known.get(&pid).map(|known| &known.comm)
    }

    /// What is told besides hits.
    pub(super) fn hear(&mut self, record: &Record<'_>) {
        match record {
            Record::Comm(comm) if comm.pid == comm.tid => {
                let kernel = self.known.get(&comm.pid).and_then(|known| known.kernel);
                self.know(comm.pid, Known { comm: String::from_utf8_lossy(comm.name).into(), kernel });
                self.rename(comm.pid);
            }
            Record::Fork(task) if task.pid != task.parent_pid => self.fork(*task),
            Record::Exit(task) if task.pid == task.tid && self.known.contains_key(&task.pid) => {
                self.ended.insert(task.pid);
            }
            Record::Cgroup(cgroup) => self.born.insert(CgroupId(cgroup.id), cgroup.path),
            _ => {}
        }
    }

    fn fork(&mut self, task: ring::Task) {
        self.ended.remove(&task.pid);
        let kernel = Some(task.parent_pid == KTHREADD);
        match self.known.get(&task.parent_pid) {
            Some(parent) => {
                let comm = Arc::clone(&parent.comm);
                self.know(task.pid, Known { comm, kernel });
            }
            None => drop(self.known.remove(&task.pid)),
        }
        self.rename(task.pid);
    }

    fn know(&mut self, pid: u32, what: Known) {
        if self.known.len() < MOST || self.known.contains_key(&pid) {
            self.known.insert(pid, what);
        }
    }

    /// What hits were counted under a name stays there; later ones are counted under the next.
    fn rename(&mut self, pid: u32) {
        for (_, id) in self.processes.remove(&pid).unwrap_or_default() {
            if let Some(task) = self.tasks.get_mut(id.0 as usize) {
                task.current = false;
            }
        }
    }

    /// Enters a process as `/proc` describes it, unless records have told its name.
    pub(super) fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        if !self.known.contains_key(&pid) {
            self.know(pid, Known { comm: Arc::clone(comm), kernel: Some(kernel) });
        }
    }

    /// Ends a round: the next one numbers its owners anew. Drops the names of processes that have ended, unless `there`
    /// holds: other threads of a process may go on without the main one.
    pub(super) fn end_round(&mut self, there: impl Fn(u32) -> bool) -> Round {
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in tasks.iter_mut().filter(|task| task.current && task.comm.is_none()) {
            if let Some(known) = self.known.get(&task.pid) {
                (task.comm, task.kernel) = (Some(Arc::clone(&known.comm)), known.kernel);
            }
        }
        let known = &mut self.known;
        self.ended.retain(|&pid| {
            let stays = there(pid);
            if !stays {
                known.remove(&pid);
            }
            stays
        });
        // Exit records can be lost. A process that hit in this round may be newer than the last look at `/proc`.
        if known.len() > self.tidy_at.max(TIDY_FROM) {
            let hit: FxHashSet<u32> = tasks.iter().map(|task| task.pid).collect();
            known.retain(|&pid, _| there(pid) || hit.contains(&pid));
            self.tidy_at = (2 * known.len()).clamp(TIDY_FROM, MOST / 2);
        }
        known.shrink_to(2 * known.len());
        self.cgroups.clear();
        self.processes.clear();
        self.born.collected();
        Round { cgroups: std::mem::take(&mut self.cgroup_ids), tasks }
    }

    /// The path of a cgroup that was created while this ran.
    pub(super) fn path_of(&self, id: CgroupId) -> Option<Arc<str>> {
        self.born.path(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(pid: u32, parent_pid: u32) -> ring::Task {
        ring::Task { pid, tid: pid, parent_pid, parent_tid: parent_pid, time: 0 }
    }

    /// A shell with the number 1, and a million of its children, of which one lives.
    #[test]
    fn names_of_processes_that_have_ended_are_dropped() {
        let mut owners = Owners::default();
        owners.describe(1, &"sh".into(), false);
        for number in 0..200_000 {
            let pid = 10 + number % 30_000;
            owners.hear(&Record::Fork(task(pid, 1)));
            if pid != 17 {
                owners.hear(&Record::Exit(task(pid, 1)));
            }
            if number % 1000 == 0 {
                owners.end_round(|pid| pid == 1 || pid == 17);
                assert!(owners.known.len() <= 1003, "{}", owners.known.len());
            }
        }
        owners.end_round(|pid| pid == 1);
        assert_eq!(owners.name(17).map(|name| &**name), Some("sh"));
        assert_eq!((owners.known.len(), owners.ended.len()), (2, 0));
        assert!(owners.known.capacity() < 100);
    }

    #[test]
    fn a_process_goes_on_without_its_main_thread_until_it_is_gone() {
        let mut owners = Owners::default();
        owners.describe(7, &"server".into(), false);
        owners.hear(&Record::Exit(task(7, 1)));
        owners.end_round(|pid| pid == 7);
        assert!(owners.name(7).is_some());
        owners.end_round(|_| false);
        assert_eq!(owners.name(7), None);
    }

    #[test]
    fn names_are_dropped_also_where_records_of_exits_are_lost() {
        let mut owners = Owners::default();
        owners.describe(1, &"sh".into(), false);
        for pid in 10..100_000 {
            owners.hear(&Record::Fork(task(pid, 1)));
            if pid % 1000 == 0 {
                owners.end_round(|pid| pid == 1);
                assert!(owners.known.len() <= TIDY_FROM + 1001, "{}", owners.known.len());
            }
        }
    }
}
