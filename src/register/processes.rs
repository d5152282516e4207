//! Processes by ID, as described by records and `/proc`, and the tasks to which counts are attributed.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::changes::ChangedProcesses;
use crate::ring::{self, Record};
use crate::targets::{CgroupId, Changed};

/// Parent process of all kernel threads.
pub const KTHREADD: u32 = 2;

/// Maximum number of known processes. Further processes without a name are not stored: their counts remain attributed to them, and their
/// names are looked up in `/proc`.
const MAX: usize = 1 << 17;

/// Maximum number of tasks in a round.
const MAX_TASKS: usize = 1 << 17;

/// Minimum number of known processes at which processes without an observed exit are dropped.
const TIDY_FROM: usize = 4096;

/// Maximum number of ancestors that are followed for the name of a process. Each was created in the same round as its child, and had no
/// name of its own before that.
const MAX_ANCESTORS: usize = 16;

/// Maximum number of names of a process per round; earlier names are dropped.
const MAX_NAMES: usize = 16;

/// The order in which records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By time: the creation of a process is read before everything else about it.
    Time,
    /// By ring: the records of each CPU by time, one CPU after another. The creation of a process may be read after its name, its tasks and
    /// its exit, and before the name of its parent. Names are inherited at the end of a round, when all rings have been read.
    Ring,
}

/// Process in one cgroup and under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Process ID.
    pub pid: u32,
    /// Name at the time; `None` if unknown.
    pub comm: Option<Arc<str>>,
    /// Whether it is a kernel thread; `None` if unknown.
    pub kernel: Option<bool>,
    /// Whether the ID still denotes this process under this name.
    pub current: bool,
    /// Cgroup, if records contain it.
    pub cgroup: Option<CgroupId>,
}

/// Creation of a process whose initial name, that of its parent, is not yet known.
#[derive(Debug, Clone, Copy)]
struct Origin {
    parent: u32,
    time: u64,
}

/// Names of a process in a round.
#[derive(Debug, Clone, Default)]
struct Recent {
    /// Names with the time of each.
    names: VecDeque<(u64, Arc<str>)>,
    /// Name before these.
    before: Option<Arc<str>>,
    /// Tasks from before its creation was read, or from before these names: the task number, and whether the name is that of the parent if
    /// the process was created in this round.
    tasks: Vec<(u32, bool)>,
}

/// State of the process that an ID currently denotes.
#[derive(Debug, Clone, Default)]
struct Known {
    comm: Option<Arc<str>>,
    kernel: Option<bool>,
    /// Whether a record reported its creation.
    forked: bool,
    /// Set until its initial name is known.
    origin: Option<Origin>,
    /// Data read in this round, for [`Order::Ring`].
    recent: Option<Box<Recent>>,
    /// Whether its name is from a record of its own; otherwise it is from `/proc` or from the parent.
    named: bool,
    /// Whether `/proc` listed it.
    seen: bool,
    /// Whether its main thread has exited; other threads may still run.
    ended: bool,
    /// Round of the record that reported its creation, or of its first name if that was read before. The last scan may be older.
    created: u64,
    /// Round of its tasks.
    round: u64,
    /// Cgroup of its last task.
    cgroup: Option<CgroupId>,
    /// Task numbers, one for each cgroup in which it ran; nearly always one.
    tasks: Vec<(CgroupId, u32)>,
}

impl Known {
    /// Reports whether a creation record that is read now belongs to this process, although other records of it were read before.
    fn waits_for_its_fork(&self) -> bool {
        !self.forked && (!self.seen || !self.ended)
    }

    /// Reports whether its name may still change to that of its parent.
    fn may_inherit(&self) -> bool {
        !self.named && (self.origin.is_some() || !self.forked)
    }

    /// Sets the values that were unknown when the task was added.
    fn complete(&self, task: &mut Task) {
        task.comm = task.comm.take().or_else(|| self.comm.clone());
        task.kernel = task.kernel.or(self.kernel);
    }
}

/// Processes by ID, and the tasks of a round: a table of counts has one row per task.
#[derive(Debug)]
pub struct Processes {
    order: Order,
    known: FxHashMap<u32, Known>,
    /// Processes of this round whose IDs now denote others: their creation, and the tasks that wait for the name of the parent.
    replaced: Vec<(Origin, Vec<(u32, bool)>)>,
    /// Indexed by task number.
    tasks: Vec<Task>,
    /// Current round. Task numbers are only valid in their round.
    round: u64,
    /// Number of known processes above which processes without an observed exit are dropped.
    tidy_at: usize,
    changed: ChangedProcesses,
}

impl Processes {
    /// Creates an empty register for records in this order.
    pub fn new(order: Order) -> Self {
        Self {
            order,
            known: FxHashMap::default(),
            replaced: Vec::new(),
            tasks: Vec::new(),
            round: 1,
            tidy_at: TIDY_FROM,
            changed: ChangedProcesses::default(),
        }
    }

    /// Returns the task number of a process in a cgroup, under its current name; `None` if there is none in this round yet.
    #[inline]
    pub fn task(&self, pid: u32, cgroup: Option<CgroupId>) -> Option<u32> {
        let id = cgroup.unwrap_or(CgroupId(0));
        let known = self.known.get(&pid).filter(|known| known.round == self.round)?;
        known.tasks.iter().find(|&&(within, _)| within == id).map(|&(_, task)| task)
    }

    /// Adds the task of a process in a cgroup, and returns its number. Numbers are consecutive, from 0 in each round. Returns `None` if
    /// there are already 131 072.
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
            self.changed.changed(pid);
        }
        let number = u32::try_from(self.tasks.len()).ok().filter(|_| self.tasks.len() < MAX_TASKS)?;
        let (comm, kernel) = (known.comm.clone(), known.kernel);
        known.tasks.push((cgroup.unwrap_or(CgroupId(0)), number));
        if is_incomplete {
            known.recent.get_or_insert_default().tasks.push((number, inherits));
        }
        self.tasks.push(Task { pid, comm, kernel, current: true, cgroup });
        Some(number)
    }

    fn has_room_for(&self, pid: u32) -> bool {
        self.known.len() < MAX || self.known.contains_key(&pid)
    }

    /// Returns the name of a process.
    pub fn name(&self, pid: u32) -> Option<&Arc<str>> {
        self.known.get(&pid)?.comm.as_ref()
    }

    /// Returns the cgroup of a process, from its tasks.
    pub fn cgroup(&self, pid: u32) -> Option<CgroupId> {
        self.known.get(&pid)?.cgroup
    }

    /// Applies a record. Only records of main threads have an effect. `time` is only needed for [`Order::Ring`], in nanoseconds of the
    /// clock of process creations.
    pub fn apply_record(&mut self, record: &Record<'_>, time: u64) {
        match record {
            Record::Fork(task) if task.pid != task.parent_pid => self.fork(task),
            Record::Comm(comm) if comm.pid == comm.tid => self.rename(comm, time),
            Record::Exit(task) if task.pid == task.tid => {
                self.changed.ends(task.pid);
                if let Some(known) = self.known.get_mut(&task.pid) {
                    known.ended = true;
                }
            }
            _ => {}
        }
    }

    /// Applies the creation of a process.
    fn fork(&mut self, task: &ring::Task) {
        self.changed.changed(task.pid);
        let (comm, origin) = match self.order {
            Order::Time => (self.name(task.parent_pid).cloned(), None),
            Order::Ring => (None, Some(Origin { parent: task.parent_pid, time: task.time })),
        };
        let kernel = Some(task.parent_pid == KTHREADD);
        let has_room = self.has_room_for(task.pid);
        match self.known.get_mut(&task.pid) {
            Some(known) if self.order == Order::Ring && known.waits_for_its_fork() => {
                (known.forked, known.origin, known.created) = (true, origin, self.round);
                known.kernel = known.kernel.or(kernel);
            }
            None if !has_room => {}
            _ => {
                self.conclude(task.pid);
                let known =
                    Known { comm, kernel, forked: true, origin, created: self.round, ..Known::default() };
                let replaced = self.known.insert(task.pid, known);
                let waiting = replaced.and_then(|old| Some((old.origin?, old.recent?.tasks)));
                self.replaced.extend(waiting.filter(|(_, tasks)| !tasks.is_empty()));
            }
        }
    }

    /// Applies a new name. Earlier counts stay with the earlier name.
    fn rename(&mut self, comm: &ring::Comm<'_>, time: u64) {
        self.changed.changed(comm.pid);
        if !self.has_room_for(comm.pid) {
            return;
        }
        self.conclude(comm.pid);
        let created = self.round;
        let known = self.known.entry(comm.pid).or_insert_with(|| Known { created, ..Known::default() });
        let name: Arc<str> = String::from_utf8_lossy(comm.name).into();
        let before = known.comm.replace(Arc::clone(&name));
        if self.order == Order::Ring {
            let recent = known.recent.get_or_insert_default();
            if recent.names.is_empty() {
                recent.before = before;
            }
            if recent.names.len() == MAX_NAMES {
                recent.before = recent.names.pop_front().map(|(_, name)| name);
            }
            recent.names.push_back((time, name));
        }
        known.named = true;
        known.tasks.clear();
    }

    /// Returns the name that a process had at a time in this round, if all records up to then have been read.
    fn name_at(&self, mut pid: u32, mut time: u64) -> Option<&Arc<str>> {
        for _ in 0..MAX_ANCESTORS {
            let known = self.known.get(&pid)?;
            let recent = known.recent.as_deref().filter(|recent| !recent.names.is_empty());
            let names = recent.into_iter().flat_map(|recent| recent.names.iter().rev());
            if let Some((_, name)) = { names }.find(|&&(since, _)| since <= time) {
                return Some(name);
            }
            let Some(origin) = known.origin else {
                return recent.map_or(&known.comm, |recent| &recent.before).as_ref();
            };
            // A later process with the same ID.
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

    /// Ends the tasks of the process and name that an ID denoted until now.
    fn conclude(&mut self, pid: u32) {
        let Some(known) = self.known.get(&pid).filter(|known| known.round == self.round) else { return };
        for &(_, number) in &known.tasks {
            if let Some(task) = self.tasks.get_mut(number as usize) {
                task.current = false;
                known.complete(task);
            }
        }
    }

    /// Adds a process as described by `/proc`. A name from a record is newer, and takes precedence.
    pub fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        if !self.has_room_for(pid) {
            return;
        }
        let known = self.known.entry(pid).or_default();
        known.comm.get_or_insert_with(|| Arc::clone(comm));
        known.kernel = Some(kernel);
        known.seen = true;
    }

    /// Handles missing records.
    pub fn miss(&mut self) {
        self.changed.miss();
    }

    /// Returns the processes that changed since the last call; `None` after missing records or at the first call.
    pub fn take_changed(&mut self) -> Option<Changed> {
        self.changed.take()
    }

    /// Ends a round, and returns its tasks by number, with the names known so far. `there` returns whether a process exists as of the last
    /// scan of `/proc`.
    ///
    /// Drops processes that do not exist and had no task in this round, if they have exited. Drops the others as well if there are too
    /// many, or if an exit may have been read before the creation. Keeps processes created in this round, because they may be newer than
    /// the last scan and may not have run yet.
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
            self.tidy_at = (2 * self.known.len()).clamp(TIDY_FROM, MAX / 2);
        }
        self.known.shrink_to(2 * self.known.len());
        self.round += 1;
        tasks
    }
}

/// Completes tasks of a process, and sets the name of the parent where it applies.
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

    /// Returns a register in which process 5 is a shell.
    fn with_a_shell(order: Order) -> Processes {
        let mut processes = Processes::new(order);
        processes.describe(5, &"shell".into(), false);
        processes
    }

    fn told(pid: u32, parent_pid: u32) -> ring::Task {
        ring::Task { pid, parent_pid, tid: pid, parent_tid: parent_pid, time: 0 }
    }

    fn forks(processes: &mut Processes, pid: u32, parent_pid: u32) {
        processes.apply_record(&Record::Fork(told(pid, parent_pid)), 0);
    }

    fn ends(processes: &mut Processes, pid: u32) {
        processes.apply_record(&Record::Exit(told(pid, 5)), 0);
    }

    fn takes_name(processes: &mut Processes, pid: u32, name: &str) {
        processes
            .apply_record(&Record::Comm(ring::Comm { pid, tid: pid, name: name.as_bytes(), exec: true }), 0);
    }

    /// Returns the task of a process that runs.
    fn runs(processes: &mut Processes, pid: u32) -> usize {
        let task = processes.task(pid, None).or_else(|| processes.add_task(pid, None));
        task.unwrap() as usize
    }

    /// Returns the names of these tasks at the end of the round.
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
    fn a_process_whose_name_is_read_before_its_creation_has_it_in_the_next_round() {
        for is_created_first in [true, false] {
            let mut processes = with_a_shell(Ring);
            if is_created_first {
                forks(&mut processes, 7, 5);
            }
            takes_name(&mut processes, 7, "tool");
            if !is_created_first {
                forks(&mut processes, 7, 5);
            }
            // The last scan is older than the process.
            processes.end_round(|pid| pid == 5);
            let task = runs(&mut processes, 7);
            assert_eq!(comms(&mut processes, [task]), ["tool"]);
        }
    }

    #[test]
    fn a_process_whose_creation_is_read_in_the_next_round_has_the_name_that_was_read_before() {
        let mut processes = with_a_shell(Ring);
        takes_name(&mut processes, 7, "tool");
        processes.end_round(|pid| pid == 5);
        forks(&mut processes, 7, 5);
        let task = runs(&mut processes, 7);
        assert_eq!(comms(&mut processes, [task]), ["tool"]);
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
            assert_eq!(processes.known.len(), MAX);
            processes.end_round(|_| false);
            assert!(
                processes.known.values().all(|known| known.round == 1 || known.created == 1),
                "processes that ran or are new stay until the next round"
            );
            processes.end_round(|_| false);
            // Without time order, an exit may already have been read.
            let left = if order == Ring { 0 } else { MAX / 2 };
            assert!(processes.known.len() <= left, "{}", processes.known.len());
        }
    }

    #[test]
    fn tasks_without_end_take_a_bounded_place() {
        let mut processes = Processes::new(Time);
        let added = (0..200_000).filter_map(|cgroup| processes.add_task(7, Some(CgroupId(cgroup)))).count();
        assert_eq!((added, processes.end_round(|_| true).len()), (MAX_TASKS, MAX_TASKS));
        assert_eq!(processes.add_task(7, None), Some(0), "there is room again");
    }

    /// A shell with the ID 1, and many children, of which one stays alive.
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
