//! Processes by id, as records and `/proc` describe them, and the tasks that counts are attributed to.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::news::News;
use crate::ring::{self, Record};
use crate::target::{CgroupId, Changed};

/// The process whose children are the kernel's threads.
pub const KTHREADD: u32 = 2;

/// Maximum number of known processes. Beyond it those without a name are not kept: their counts stay theirs, their names
/// are found in `/proc`.
const MOST: usize = 1 << 17;

/// Maximum number of tasks in a round.
const MOST_TASKS: usize = 1 << 17;

/// Minimum number of known processes above which processes are dropped whose end was not reported.
const TIDY_FROM: usize = 4096;

/// Maximum number of ancestors that are followed to find the name of a process. Each was created in the same round as the next one, and
/// took no name of its own before that.
const MOST_ANCESTORS: usize = 16;

/// Maximum number of names of a process in a round. The names before are dropped.
const MOST_NAMES: usize = 16;

/// The order in which records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By time: the creation of a process is read before everything else about it.
    Time,
    /// By ring: the records of each CPU by time, one CPU after another. The creation of a process may be read after its
    /// name, its tasks and its end, and before the name of its parent. Names are inherited at the end of a round, when all rings have
    /// been read.
    Ring,
}

/// A process, in one cgroup and under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub pid: u32,
    /// Its name at that time; `None` if it is not known.
    pub comm: Option<Arc<str>>,
    /// Whether it is a thread of the kernel; `None` if that is not known.
    pub kernel: Option<bool>,
    /// Whether the id still stands for this process under this name.
    pub current: bool,
    /// Its cgroup, if records carry it.
    pub cgroup: Option<CgroupId>,
}

/// The creation of a process whose name at the beginning, that of its parent, is not known yet.
#[derive(Debug, Clone, Copy)]
struct Origin {
    parent: u32,
    time: u64,
}

/// The names of a process in a round.
#[derive(Debug, Clone, Default)]
struct Recent {
    /// Those that it took, each with the time.
    names: VecDeque<(u64, Arc<str>)>,
    /// The one before these.
    before: Option<Arc<str>>,
    /// Its tasks from before its creation was read, or from before these names: the number, and whether the name is that of the parent
    /// if it was created in this round.
    tasks: Vec<(u32, bool)>,
}

/// What is known of the process that an id stands for now.
#[derive(Debug, Clone, Default)]
struct Known {
    comm: Option<Arc<str>>,
    kernel: Option<bool>,
    /// A record reported its creation.
    forked: bool,
    /// Set until its first name is known.
    origin: Option<Origin>,
    /// What was read of it in this round, [by ring](Order::Ring).
    recent: Option<Box<Recent>>,
    /// Its name is from a record of its own; else it is from `/proc`, or the parent's.
    named: bool,
    /// It was seen in `/proc`.
    seen: bool,
    /// Its main thread has ended; other threads may go on.
    ended: bool,
    /// The round of its creation, if a record reported it before all others.
    created: u64,
    /// The round of its tasks.
    round: u64,
    /// The cgroup of its last task.
    cgroup: Option<CgroupId>,
    /// The numbers of its tasks, one for each cgroup that it ran in; nearly always one.
    tasks: Vec<(CgroupId, u32)>,
}

impl Known {
    /// Whether a creation that is read now is that of this process, although other records of it were read before.
    fn waits_for_its_fork(&self) -> bool {
        !self.forked && (!self.seen || !self.ended)
    }

    /// Whether its name may still turn out to be another one, that of its parent.
    fn may_inherit(&self) -> bool {
        !self.named && (self.origin.is_some() || !self.forked)
    }

    /// Fills in what was not known when the task was added.
    fn complete(&self, task: &mut Task) {
        task.comm = task.comm.take().or_else(|| self.comm.clone());
        task.kernel = task.kernel.or(self.kernel);
    }
}

/// Processes by id, and the tasks of a round: a table of counts has a row for each.
#[derive(Debug)]
pub struct Processes {
    order: Order,
    known: FxHashMap<u32, Known>,
    /// Processes of this round whose ids now stand for others: their creation, and the tasks that wait for the name of the parent.
    replaced: Vec<(Origin, Vec<(u32, bool)>)>,
    /// By number.
    tasks: Vec<Task>,
    /// The current round. Tasks of another round have other numbers.
    round: u64,
    /// Number of known processes above which processes are dropped whose end was not reported.
    tidy_at: usize,
    news: News,
}

impl Processes {
    /// Creates an empty register for records that are read in this order.
    pub fn new(order: Order) -> Self {
        Self {
            order,
            known: FxHashMap::default(),
            replaced: Vec::new(),
            tasks: Vec::new(),
            round: 1,
            tidy_at: TIDY_FROM,
            news: News::default(),
        }
    }

    /// Returns the number of the task of a process in a cgroup, under the name that it has now. `None` if there is none
    /// in this round yet.
    #[inline]
    pub fn task(&self, pid: u32, cgroup: Option<CgroupId>) -> Option<u32> {
        let id = cgroup.unwrap_or(CgroupId(0));
        let known = self.known.get(&pid).filter(|known| known.round == self.round)?;
        known.tasks.iter().find(|&&(within, _)| within == id).map(|&(_, task)| task)
    }

    /// Adds the task of a process in a cgroup, and returns its number: that of the task before plus one, from 0 in each
    /// round. `None` if there are 131 072 already.
    #[cold]
    pub fn add_task(&mut self, pid: u32, cgroup: Option<CgroupId>) -> Option<u32> {
        let mut untracked = Known::default();
        let known = if self.has_room_for(pid) { self.known.entry(pid).or_default() } else { &mut untracked };
        if known.round != self.round {
            known.tasks.clear();
            known.round = self.round;
        }
        let inherits = known.may_inherit();
        let is_incomplete = self.order == Order::Ring && (inherits || known.kernel.is_none());
        let before = std::mem::replace(&mut known.cgroup, cgroup);
        if before.is_some() && before != cgroup {
            self.news.changed(pid);
        }
        let number = u32::try_from(self.tasks.len()).ok().filter(|_| self.tasks.len() < MOST_TASKS)?;
        let (comm, kernel) = (known.comm.clone(), known.kernel);
        known.tasks.push((cgroup.unwrap_or(CgroupId(0)), number));
        if is_incomplete {
            known.recent.get_or_insert_default().tasks.push((number, inherits));
        }
        self.tasks.push(Task { pid, comm, kernel, current: true, cgroup });
        Some(number)
    }

    fn has_room_for(&self, pid: u32) -> bool {
        self.known.len() < MOST || self.known.contains_key(&pid)
    }

    /// Returns the name of a process.
    pub fn name(&self, pid: u32) -> Option<&Arc<str>> {
        self.known.get(&pid)?.comm.as_ref()
    }

    /// Returns the cgroup of a process, as far as its tasks tell.
    pub fn cgroup(&self, pid: u32) -> Option<CgroupId> {
        self.known.get(&pid)?.cgroup
    }

    /// Applies a record. Threads other than the main one make no difference. Only records that are read [by ring](Order::Ring) need the
    /// `time`, in nanoseconds of the clock that the creations of processes have.
    pub fn hear(&mut self, record: &Record<'_>, time: u64) {
        match record {
            Record::Fork(task) if task.pid != task.parent_pid => self.fork(task),
            Record::Comm(comm) if comm.pid == comm.tid => self.rename(comm, time),
            Record::Exit(task) if task.pid == task.tid => {
                self.news.ends(task.pid);
                if let Some(known) = self.known.get_mut(&task.pid) {
                    known.ended = true;
                }
            }
            _ => {}
        }
    }

    /// Applies the creation of a process.
    fn fork(&mut self, task: &ring::Task) {
        self.news.changed(task.pid);
        let (comm, origin) = match self.order {
            Order::Time => (self.name(task.parent_pid).cloned(), None),
            Order::Ring => (None, Some(Origin { parent: task.parent_pid, time: task.time })),
        };
        let kernel = Some(task.parent_pid == KTHREADD);
        let has_room = self.has_room_for(task.pid);
        match self.known.get_mut(&task.pid) {
            Some(known) if self.order == Order::Ring && known.waits_for_its_fork() => {
                (known.forked, known.origin) = (true, origin);
                known.kernel = known.kernel.or(kernel);
            }
            None if !has_room => {}
            _ => {
                self.conclude(task.pid);
                let known =
                    Known { comm, kernel, forked: true, origin, created: self.round, ..Known::default() };
                let replaced = self.known.insert(task.pid, known);
                self.replaced.extend(replaced.and_then(|old| Some((old.origin?, old.recent?.tasks))));
            }
        }
    }

    /// Applies a new name. Counts from before stay with the name before.
    fn rename(&mut self, comm: &ring::Comm<'_>, time: u64) {
        self.news.changed(comm.pid);
        if !self.has_room_for(comm.pid) {
            return;
        }
        self.conclude(comm.pid);
        let known = self.known.entry(comm.pid).or_default();
        let name: Arc<str> = String::from_utf8_lossy(comm.name).into();
        let before = known.comm.replace(Arc::clone(&name));
        if self.order == Order::Ring {
            let recent = known.recent.get_or_insert_default();
            if recent.names.is_empty() {
                recent.before = before;
            }
            if recent.names.len() == MOST_NAMES {
                recent.before = recent.names.pop_front().map(|(_, name)| name);
            }
            recent.names.push_back((time, name));
        }
        known.named = true;
        known.tasks.clear();
    }

    /// Returns the name that a process had at a time of this round, if all records until then have been read.
    fn name_at(&self, mut pid: u32, mut time: u64) -> Option<&Arc<str>> {
        for _ in 0..MOST_ANCESTORS {
            let known = self.known.get(&pid)?;
            let recent = known.recent.as_deref().filter(|recent| !recent.names.is_empty());
            let names = recent.into_iter().flat_map(|recent| recent.names.iter().rev());
            if let Some((_, name)) = { names }.find(|&&(since, _)| since <= time) {
                return Some(name);
            }
            let Some(origin) = known.origin else {
                return recent.map_or(&known.comm, |recent| &recent.before).as_ref();
            };
            // It is a later process with the same id.
            if origin.time > time {
                return None;
            }
            (pid, time) = (origin.parent, origin.time);
        }
        None
    }

    /// Names processes that were created in this round, and their tasks, after their parents.
    fn inherit(&mut self) {
        let inherited = |origin: Origin| self.name_at(origin.parent, origin.time).cloned();
        let origins = self.known.iter().filter_map(|(&pid, known)| Some((pid, known.origin?)));
        let named: Vec<_> = origins.map(|(pid, origin)| (pid, inherited(origin))).collect();
        let replaced: Vec<_> = self.replaced.iter().map(|&(origin, _)| inherited(origin)).collect();
        for ((origin, tasks), name) in self.replaced.drain(..).zip(replaced) {
            inherit(&mut self.tasks, &tasks, name.as_ref(), origin.parent == KTHREADD);
        }
        for (pid, name) in named {
            let Some(known) = self.known.get_mut(&pid) else { continue };
            let tasks = known.recent.iter().flat_map(|recent| &recent.tasks);
            let parent = known.origin.map(|origin| origin.parent);
            inherit(&mut self.tasks, tasks, name.as_ref(), parent == Some(KTHREADD));
            if known.created != self.round || name.is_some() {
                known.origin = None;
            }
            if !known.named && name.is_some() {
                known.comm = name;
            }
        }
    }

    /// Ends the tasks of the process and name that an id stood for until now.
    fn conclude(&mut self, pid: u32) {
        let Some(known) = self.known.get(&pid).filter(|known| known.round == self.round) else { return };
        for &(_, number) in &known.tasks {
            if let Some(task) = self.tasks.get_mut(number as usize) {
                task.current = false;
                known.complete(task);
            }
        }
    }

    /// Adds a process as `/proc` describes it. A name from a record is newer, and stays.
    pub fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        if !self.has_room_for(pid) {
            return;
        }
        let known = self.known.entry(pid).or_default();
        known.comm.get_or_insert_with(|| Arc::clone(comm));
        known.kernel = Some(kernel);
        known.seen = true;
    }

    /// Notes that records are missing.
    pub fn miss(&mut self) {
        self.news.miss();
    }

    /// Returns the processes that changed since the last call; `None` if that is not known, because records are missing or
    /// this is the first call.
    pub fn take_changed(&mut self) -> Option<Changed> {
        self.news.take()
    }

    /// Ends a round, and returns its tasks by number, with the names that are known by now. `there` returns whether a
    /// process exists as of the last look at `/proc`.
    ///
    /// Forgets processes that do not exist and had no task in this round: those that ended, and where there are too many,
    /// or an end may have been read before the creation, the others as well. Keeps those that were created in this round: they may
    /// be newer than the last look, and not have run yet.
    pub fn end_round(&mut self, there: impl Fn(u32) -> bool) -> Vec<Task> {
        self.inherit();
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in tasks.iter_mut().filter(|task| task.current) {
            if let Some(known) = self.known.get(&task.pid) {
                known.complete(task);
            }
        }
        let tidies = self.order == Order::Ring || self.known.len() > self.tidy_at;
        let (round, order) = (self.round, self.order);
        self.known.retain(|&pid, known| {
            known.recent = None;
            let is_new = known.created == round && (order == Order::Ring || !known.ended);
            known.round == round || is_new || !(tidies || known.ended) || there(pid)
        });
        if tidies {
            self.tidy_at = (2 * self.known.len()).clamp(TIDY_FROM, MOST / 2);
        }
        self.known.shrink_to(2 * self.known.len());
        self.round += 1;
        tasks
    }
}

/// Completes tasks of a process, and names those that have the name of the parent.
fn inherit<'a>(
    tasks: &mut [Task],
    incomplete: impl IntoIterator<Item = &'a (u32, bool)>,
    name: Option<&Arc<str>>,
    kernel: bool,
) {
    for &(number, inherits) in incomplete {
        if let Some(task) = tasks.get_mut(number as usize) {
            task.kernel = Some(kernel);
            if inherits && name.is_some() {
                task.comm = name.cloned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Order::{Ring, Time};

    /// Processes among which 5 is a shell.
    fn with_a_shell(order: Order) -> Processes {
        let mut processes = Processes::new(order);
        processes.describe(5, &"shell".into(), false);
        processes
    }

    fn told(pid: u32, parent_pid: u32) -> ring::Task {
        ring::Task { pid, parent_pid, tid: pid, parent_tid: parent_pid, time: 0 }
    }

    fn forks(processes: &mut Processes, pid: u32, parent_pid: u32) {
        processes.hear(&Record::Fork(told(pid, parent_pid)), 0);
    }

    fn ends(processes: &mut Processes, pid: u32) {
        processes.hear(&Record::Exit(told(pid, 5)), 0);
    }

    fn takes_name(processes: &mut Processes, pid: u32, name: &str) {
        processes.hear(&Record::Comm(ring::Comm { pid, tid: pid, name: name.as_bytes(), exec: true }), 0);
    }

    /// The task of a process that runs.
    fn runs(processes: &mut Processes, pid: u32) -> usize {
        let task = processes.task(pid, None).or_else(|| processes.add_task(pid, None));
        task.unwrap() as usize
    }

    /// What these tasks are called at the end of the round.
    fn comms<const N: usize>(processes: &mut Processes, numbers: [usize; N]) -> [String; N] {
        let tasks = processes.end_round(|_| true);
        numbers.map(|number| tasks[number].comm.as_deref().unwrap_or("nobody").to_owned())
    }

    #[test]
    fn a_process_whose_creation_is_read_late_keeps_its_name_and_had_its_parents_before() {
        let mut processes = with_a_shell(Ring);
        let before = runs(&mut processes, 7);
        takes_name(&mut processes, 7, "tool");
        let after = runs(&mut processes, 7);
        forks(&mut processes, 7, 5);
        assert_eq!(runs(&mut processes, 7), after, "it is the same process");
        assert_eq!(comms(&mut processes, [before, after]), ["shell", "tool"]);
    }

    #[test]
    fn a_process_that_is_over_when_its_creation_is_read_had_two_names() {
        let mut processes = with_a_shell(Ring);
        let before = runs(&mut processes, 7);
        takes_name(&mut processes, 7, "tool");
        let after = runs(&mut processes, 7);
        ends(&mut processes, 7);
        forks(&mut processes, 7, 5);
        assert_eq!(comms(&mut processes, [before, after]), ["shell", "tool"]);
    }

    #[test]
    fn a_process_that_is_created_in_one_round_and_first_runs_in_the_next_has_the_name_of_its_parent() {
        for order in [Ring, Time] {
            let mut processes = with_a_shell(order);
            forks(&mut processes, 7, 5);
            processes.end_round(|pid| pid == 5);
            let before = runs(&mut processes, 7);
            takes_name(&mut processes, 7, "tool");
            let after = runs(&mut processes, 7);
            assert_eq!(comms(&mut processes, [before, after]), ["shell", "tool"]);
        }
    }

    #[test]
    fn in_the_order_of_time_a_creation_begins_another_process() {
        let mut processes = with_a_shell(Time);
        let before = runs(&mut processes, 7);
        takes_name(&mut processes, 7, "tool");
        let after = runs(&mut processes, 7);
        forks(&mut processes, 7, 5);
        let other = runs(&mut processes, 7);
        assert_eq!(comms(&mut processes, [before, after, other]), ["nobody", "tool", "shell"]);
    }

    #[test]
    fn an_id_that_is_used_again_stands_for_another_process() {
        for order in [Ring, Time] {
            let mut processes = with_a_shell(order);
            forks(&mut processes, 7, 5);
            takes_name(&mut processes, 7, "first");
            processes.describe(8, &"older".into(), false);
            for pid in [7, 8] {
                let old = runs(&mut processes, pid);
                ends(&mut processes, pid);
                forks(&mut processes, pid, 5);
                let new = runs(&mut processes, pid);
                let [old, new] = comms(&mut processes, [old, new]);
                assert_ne!(old, "shell");
                assert_eq!(new, "shell", "{pid}");
            }
        }
    }

    #[test]
    fn processes_without_end_take_a_bounded_place() {
        let name: Arc<str> = "name".into();
        for order in [Ring, Time] {
            let mut processes = Processes::new(order);
            for pid in 3..200_000 {
                match pid % 4 {
                    0 => takes_name(&mut processes, pid, "name"),
                    1 => processes.describe(pid, &name, false),
                    2 => forks(&mut processes, pid, 1),
                    _ => drop(processes.add_task(pid, None)),
                }
            }
            assert_eq!(processes.known.len(), MOST);
            processes.end_round(|_| false);
            assert!(
                processes.known.values().all(|known| known.round == 1 || known.created == 1),
                "those who ran or are new stay until the next time"
            );
            processes.end_round(|_| false);
            // Without order an end may have been read already.
            let left = if order == Ring { 0 } else { MOST / 2 };
            assert!(processes.known.len() <= left, "{}", processes.known.len());
        }
    }

    #[test]
    fn tasks_without_end_take_a_bounded_place() {
        let mut processes = Processes::new(Time);
        let added = (0..200_000).filter_map(|cgroup| processes.add_task(7, Some(CgroupId(cgroup)))).count();
        assert_eq!((added, processes.end_round(|_| true).len()), (MOST_TASKS, MOST_TASKS));
        assert_eq!(processes.add_task(7, None), Some(0), "there is room again");
    }

    /// A shell with the number 1, and a million of its children, of which one lives.
    #[test]
    fn names_of_processes_that_have_ended_are_dropped() {
        let mut processes = Processes::new(Time);
        processes.describe(1, &"sh".into(), false);
        for number in 0..200_000 {
            let pid = 10 + number % 30_000;
            forks(&mut processes, pid, 1);
            if pid != 17 {
                ends(&mut processes, pid);
            }
            if number % 1000 == 0 {
                processes.end_round(|pid| pid == 1 || pid == 17);
                assert!(processes.known.len() <= 1003, "{}", processes.known.len());
            }
        }
        processes.end_round(|pid| pid == 1);
        assert_eq!(processes.name(17).map(|name| &**name), Some("sh"));
        assert_eq!(processes.known.len(), 2);
        assert!(processes.known.values().all(|known| !known.ended) && processes.known.capacity() < 100);
    }

    #[test]
    fn a_process_goes_on_without_its_main_thread_until_it_is_gone() {
        let mut processes = Processes::new(Time);
        processes.describe(7, &"server".into(), false);
        ends(&mut processes, 7);
        processes.end_round(|pid| pid == 7);
        assert!(processes.name(7).is_some());
        processes.end_round(|_| false);
        assert_eq!(processes.name(7), None);
    }

    #[test]
    fn names_are_dropped_also_where_records_of_exits_are_lost() {
        let mut processes = Processes::new(Time);
        processes.describe(1, &"sh".into(), false);
        for pid in 10..100_000 {
            forks(&mut processes, pid, 1);
            if pid % 1000 == 0 {
                processes.end_round(|pid| pid == 1);
                assert!(processes.known.len() <= TIDY_FROM + 1001, "{}", processes.known.len());
            }
        }
    }

    #[test]
    fn a_process_that_is_newer_than_the_last_look_keeps_its_name_where_records_are_in_order() {
        let mut processes = with_a_shell(Time);
        forks(&mut processes, 7, 5);
        processes.end_round(|pid| pid == 5);
        assert_eq!(processes.name(7).map(|name| &**name), Some("shell"));
    }
}
