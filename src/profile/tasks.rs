//! The tasks to which stacks are attributed: threads with their names and cgroups, as small numbers.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::Roots;
use crate::register::{CgroupPaths, ThreadNames};
use crate::ring::{Record, Sample};
use crate::targets::{CgroupId, CgroupMount, Need, Process, ProcessKey};

/// The number of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TaskId(pub(super) u32);

impl TaskId {
    /// The task for all threads beyond the limit.
    pub(super) const OTHER: Self = Self(0);
}

/// The most processes that are tracked, and the most tasks with a number.
const MAX: usize = 1 << 17;

/// The number of tasks above which few numbers are left.
const CROWDED: usize = MAX / 16 * 15;

/// The new numbers of tasks, by their old ones.
#[derive(Debug)]
pub(super) struct TaskRemap(Vec<Option<TaskId>>);

impl TaskRemap {
    /// Returns the new number of a task; `None` if it was dropped.
    pub(super) fn get(&self, old: TaskId) -> Option<TaskId> {
        self.0.get(old.0 as usize).copied().flatten()
    }
}

/// A thread with one name in one cgroup.
#[derive(Debug, Clone)]
pub(super) struct SampledThread {
    pub(super) tid: u32,
    /// The name of the thread.
    pub(super) comm: Arc<str>,
    /// Its process, as it was at the first sample; only the pid if the process had already exited.
    pub(super) process: Arc<Process>,
}

/// The identity of a task: pid, tid, cgroup ID and name.
type Key = (u32, u32, u64, Arc<str>);

/// All sampled threads.
#[derive(Debug)]
pub(super) struct Tasks {
    roots: Roots,
    mount: Option<CgroupMount>,
    names: ThreadNames,
    /// By pid, each with its cgroup ID.
    processes: FxHashMap<u32, (u64, Arc<Process>)>,
    /// The paths of cgroups that were sampled or created since the start.
    paths: CgroupPaths,
    /// By tid, the last number and the pid and cgroup ID for which it holds.
    recent: FxHashMap<u32, (u32, u64, TaskId)>,
    numbers: FxHashMap<Key, TaskId>,
    tasks: Vec<(Key, SampledThread)>,
    /// The number of distinct processes of `tasks`, approximately.
    held_processes: usize,
    /// Names and paths, each stored once: many short processes have few of them.
    texts: FxHashSet<Arc<str>>,
}

impl Tasks {
    pub(super) fn new(roots: &Roots) -> Self {
        let other = SampledThread {
            tid: 0,
            comm: "other".into(),
            process: Arc::new(ended(0, &"other".into(), None)),
        };
        Self {
            roots: roots.clone(),
            mount: CgroupMount::find(roots).ok(),
            names: ThreadNames::default(),
            processes: FxHashMap::default(),
            paths: CgroupPaths::default(),
            recent: FxHashMap::default(),
            numbers: FxHashMap::default(),
            tasks: vec![((0, 0, 0, "other".into()), other)],
            held_processes: 1,
            texts: FxHashSet::default(),
        }
    }

    /// Returns the number of the thread of a sample, with its current name.
    #[inline]
    pub(super) fn id(&mut self, sample: &Sample<'_>) -> TaskId {
        match self.recent.get(&sample.tid) {
            Some(&(pid, cgroup, id)) if (pid, cgroup) == (sample.pid, sample.cgroup) => id,
            _ => self.find(sample.pid, sample.tid, sample.cgroup),
        }
    }

    #[cold]
    fn find(&mut self, pid: u32, tid: u32, cgroup: u64) -> TaskId {
        // The thread ran before sampling began and has exited, or the record with its name was lost.
        let name = self.names.find(&self.roots, pid, tid);
        let comm = name.map_or_else(|| "[gone]".into(), |name| Arc::from(String::from_utf8_lossy(&name)));
        let comm = shared(&mut self.texts, comm);
        let key = (pid, tid, cgroup, Arc::clone(&comm));
        let id = match self.numbers.get(&key) {
            Some(&id) => id,
            None if self.tasks.len() < MAX => {
                let id = TaskId(self.tasks.len() as u32);
                let process = self.process(pid, cgroup, &comm);
                self.tasks.push((key.clone(), SampledThread { tid, comm, process }));
                self.numbers.insert(key, id);
                id
            }
            None => TaskId::OTHER,
        };
        if self.recent.len() < MAX {
            self.recent.insert(tid, (pid, cgroup, id));
        }
        id
    }

    /// Returns a process in a cgroup.
    fn process(&mut self, pid: u32, cgroup: u64, comm: &Arc<str>) -> Arc<Process> {
        if let Some((there, known)) = self.processes.get(&pid)
            && *there == cgroup
        {
            return Arc::clone(known);
        }
        let all = Need { exe: true, cgroup: true };
        let found = Process::read(&self.roots.proc.join(pid.to_string()), self.mount.as_ref(), all);
        if let Some(path) = found.as_ref().and_then(|found| found.cgroup.as_ref()) {
            self.paths.insert(CgroupId(cgroup), path);
        }
        let found = found.unwrap_or_else(|| {
            // The record with the name of the main thread may still be known.
            let name = self.names.find(&self.roots, pid, pid);
            let name = name.map(|name| Arc::from(String::from_utf8_lossy(&name)));
            ended(pid, name.as_ref().unwrap_or(comm), self.paths.get(CgroupId(cgroup)).cloned())
        });
        let mut share = |text| shared(&mut self.texts, text);
        let process = Arc::new(Process {
            comm: share(found.comm),
            exe: found.exe.map(&mut share),
            cgroup: found.cgroup.map(&mut share),
            ..found
        });
        self.held_processes += 1;
        if self.processes.len() < MAX || self.processes.contains_key(&pid) {
            self.processes.insert(pid, (cgroup, Arc::clone(&process)));
        }
        process
    }

    /// Updates the state from a record other than a sample.
    pub(super) fn apply_record(&mut self, record: &Record<'_>) {
        match record {
            Record::Comm(comm) => {
                self.recent.remove(&comm.tid);
                // The name of the main thread is that of the process.
                if comm.exec || comm.tid == comm.pid {
                    self.processes.remove(&comm.pid);
                }
            }
            // The name of the parent must be known even after the child has exited.
            Record::Fork(task) => {
                self.names.find(&self.roots, task.parent_pid, task.parent_tid);
                self.recent.remove(&task.tid);
            }
            Record::Exit(task) => {
                self.recent.remove(&task.tid);
                if task.tid == task.pid {
                    self.processes.remove(&task.pid);
                }
            }
            Record::Cgroup(cgroup) => self.paths.apply_record(cgroup),
            _ => {}
        }
        self.names.apply_record(record);
    }

    /// Discards state that may be wrong because records were lost.
    pub(super) fn records_lost(&mut self) {
        self.names.clear();
        self.processes.clear();
        self.recent.clear();
    }

    /// Discards the paths of cgroups that were neither created nor sampled since the previous call.
    pub(super) fn age(&mut self) {
        self.paths.begin_generation();
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&SampledThread> {
        self.tasks.get(id.0 as usize).map(|(_, seen)| seen)
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Reports whether few numbers are left.
    pub(super) fn is_crowded(&self) -> bool {
        self.tasks.len() > CROWDED
    }

    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        /// A string with its reference counts, its place in the table and the overhead of the allocator.
        const TEXT: usize = 128;
        /// A process without its strings, with its reference counts and the overhead of the allocator.
        const PROCESS: usize = size_of::<Process>() + 32;
        self.names.bytes()
            + self.processes.capacity() * (size_of::<(u32, (u64, Arc<Process>))>() + 1)
            + self.held_processes * PROCESS
            + self.paths.bytes()
            + self.recent.capacity() * (size_of::<(u32, (u32, u64, TaskId))>() + 1)
            + self.numbers.capacity() * (size_of::<(Key, TaskId)>() + 1)
            + self.tasks.capacity() * size_of::<(Key, SampledThread)>()
            + self.texts.len() * TEXT
    }

    /// Discards all tasks whose number is not marked in `used`. Returns the new numbers.
    pub(super) fn retain(&mut self, used: &[bool]) -> TaskRemap {
        let old = std::mem::take(&mut self.tasks);
        self.numbers = FxHashMap::default();
        self.recent = FxHashMap::default();
        let mut renumbered = TaskRemap(vec![None; old.len()]);
        for (place, (key, seen)) in old.into_iter().enumerate() {
            let id = TaskId(place as u32);
            if id != TaskId::OTHER && !used.get(place).copied().unwrap_or(false) {
                continue;
            }
            let new = TaskId(self.tasks.len() as u32);
            if id != TaskId::OTHER {
                self.numbers.insert(key.clone(), new);
            }
            self.tasks.push((key, seen));
            renumbered.0[place] = Some(new);
        }
        let processes: FxHashSet<*const Process> =
            self.tasks.iter().map(|(_, seen)| Arc::as_ptr(&seen.process)).collect();
        self.held_processes = processes.len();
        // Processes that still run are read again; threads and processes that exited have left unused memory.
        let kept: FxHashSet<u32> = self.tasks.iter().map(|(_, seen)| seen.process.key.pid).collect();
        self.processes.retain(|pid, _| kept.contains(pid));
        self.processes.shrink_to_fit();
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.texts.shrink_to_fit();
        self.names.shrink();
        renumbered
    }
}

/// Returns an equal text from the table, to which the text is added if there is none.
fn shared(texts: &mut FxHashSet<Arc<str>>, text: Arc<str>) -> Arc<str> {
    match texts.get(&text) {
        Some(known) => Arc::clone(known),
        None => {
            texts.insert(Arc::clone(&text));
            text
        }
    }
}

/// Returns a process that has exited and cannot be read.
fn ended(pid: u32, comm: &Arc<str>, cgroup: Option<Arc<str>>) -> Process {
    let key = ProcessKey { pid, start_time: 0 };
    Process { key, comm: Arc::clone(comm), exe: None, cgroup, kernel_thread: false }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ring;
    use crate::ring::testing::{cgroup, comm, exit, fork};
    use crate::sys::Fields;

    fn apply_record(tasks: &mut Tasks, record: &[u8]) {
        tasks.apply_record(&Record::parse(record, &Fields::default()).unwrap());
    }

    fn id(tasks: &mut Tasks, pid: u32, tid: u32, cgroup: u64) -> TaskId {
        tasks.id(&Sample { pid, tid, cgroup, ..Sample::default() })
    }

    fn name(tasks: &mut Tasks, pid: u32, tid: u32) -> String {
        let id = id(tasks, pid, tid, 7);
        tasks.get(id).unwrap().comm.to_string()
    }

    #[test]
    fn a_thread_has_the_name_that_it_had_when_it_was_seen() {
        let dir = tempfile::tempdir().unwrap();
        let mut tasks = Tasks::new(&Roots::under(dir.path()));
        apply_record(&mut tasks, &comm(10, 10, b"shell", true));
        let shell = id(&mut tasks, 10, 10, 7);
        let born = ring::Task { pid: 11, parent_pid: 10, tid: 11, parent_tid: 10, time: 5 };
        apply_record(&mut tasks, &fork(born));
        assert_eq!(name(&mut tasks, 11, 11), "shell");
        apply_record(&mut tasks, &comm(11, 11, b"ls", true));
        assert_eq!(name(&mut tasks, 11, 11), "ls");
        assert_eq!(id(&mut tasks, 10, 10, 7), shell);
        assert_ne!(id(&mut tasks, 10, 10, 8), shell, "a thread in another cgroup is another task");
        apply_record(&mut tasks, &exit(born));
        assert_eq!(name(&mut tasks, 11, 11), "[gone]");
    }

    #[test]
    fn a_thread_that_ran_before_is_what_proc_says() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let thread = roots.proc.join("10/task/12");
        fs::create_dir_all(&thread).unwrap();
        fs::create_dir_all(roots.proc.join("self")).unwrap();
        fs::create_dir_all(dir.path().join("cg")).unwrap();
        fs::write(thread.join("comm"), "worker/1\n").unwrap();
        fs::write(
            roots.proc.join("10/stat"),
            "10 (server) S 1 2 3 4 -1 0 6 7 8 9 10 11 12 13 20 0 1 0 5 99\n",
        )
        .unwrap();
        fs::write(roots.proc.join("10/cgroup"), "0::/web.service\n").unwrap();
        fs::write(roots.proc.join("self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n").unwrap();
        fs::write(roots.proc.join("cgroups"), "perf_event\t0\t1\t1\n").unwrap();
        let mut tasks = Tasks::new(&roots);
        let id = id(&mut tasks, 10, 12, 7);
        let seen = tasks.get(id).unwrap();
        assert_eq!((&*seen.comm, &*seen.process.comm), ("worker/1", "server"));
        assert_eq!(seen.process.cgroup.as_deref(), Some("/web.service"));
    }

    #[test]
    fn a_process_has_the_name_of_its_main_thread() {
        let dir = tempfile::tempdir().unwrap();
        let mut tasks = Tasks::new(&Roots::under(dir.path()));
        apply_record(&mut tasks, &comm(10, 10, b"server", true));
        apply_record(&mut tasks, &comm(10, 12, b"worker/1", false));
        let program = |tasks: &mut Tasks, tid| {
            let id = id(tasks, 10, tid, 7);
            tasks.get(id).unwrap().process.comm.to_string()
        };
        assert_eq!((program(&mut tasks, 12), name(&mut tasks, 10, 12)), ("server".into(), "worker/1".into()));
        apply_record(&mut tasks, &comm(10, 10, b"renamed", false));
        apply_record(&mut tasks, &comm(10, 13, b"worker/2", false));
        assert_eq!((program(&mut tasks, 10), program(&mut tasks, 13)), ("renamed".into(), "renamed".into()));
    }

    #[test]
    fn a_child_that_ended_soon_has_the_name_of_a_parent_that_ran_before() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let parent = roots.proc.join("10/task/10");
        fs::create_dir_all(&parent).unwrap();
        fs::write(parent.join("comm"), "server\n").unwrap();
        let mut tasks = Tasks::new(&roots);
        apply_record(
            &mut tasks,
            &fork(ring::Task { pid: 11, parent_pid: 10, tid: 11, parent_tid: 10, time: 5 }),
        );
        assert_eq!(name(&mut tasks, 11, 11), "server");
    }

    #[test]
    fn who_has_ended_was_in_the_cgroup_whose_creation_was_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut tasks = Tasks::new(&Roots::under(dir.path()));
        apply_record(&mut tasks, &cgroup(7, b"/job"));
        let id = id(&mut tasks, 5, 5, 7);
        assert_eq!(tasks.get(id).unwrap().process.cgroup.as_deref(), Some("/job"));
    }

    #[test]
    fn tasks_that_are_used_stay_under_other_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let mut tasks = Tasks::new(&Roots::under(dir.path()));
        apply_record(&mut tasks, &comm(2, 2, b"two", false));
        apply_record(&mut tasks, &comm(3, 3, b"three", false));
        let (_, three) = (id(&mut tasks, 2, 2, 0), id(&mut tasks, 3, 3, 0));
        let mut used = vec![false; tasks.len()];
        used[three.0 as usize] = true;
        let renumbered = tasks.retain(&used);
        let three = renumbered.get(three).unwrap();
        assert_eq!(tasks.len(), 2);
        assert_eq!(&*tasks.get(three).unwrap().comm, "three");
        assert_eq!(id(&mut tasks, 3, 3, 0), three);
        assert_eq!(name(&mut tasks, 2, 2), "two", "names are kept");
    }
}
