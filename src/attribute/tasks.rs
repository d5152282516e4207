//! Processes as the records tell of them: their names, when they begin and end.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::news::News;
use super::shares::{Owner, Row, Shares, Task};
use crate::ring;
use crate::target::CgroupId;

/// The process whose children are the kernel's threads.
const KTHREADD: u32 = 2;

/// How many processes are known at most. Beyond them those without a name are not kept: their counts stay theirs,
/// their names are found in `/proc`.
const MOST: usize = 1 << 17;

/// What is known of the process that an id stands for now.
#[derive(Debug, Clone, Default)]
struct Known {
    comm: Option<Arc<str>>,
    kernel: Option<bool>,
    /// Its creation was told.
    forked: bool,
    /// It took its name in a record; else `/proc` told it, or it is the parent's.
    named: bool,
    /// It was seen in `/proc`.
    seen: bool,
    /// Its main thread has ended; other threads may go on.
    ended: bool,
    /// The shares that its rows are in: those before are gone.
    epoch: u64,
    /// Where it was when it got its last row.
    cgroup: Option<CgroupId>,
    /// Its rows there, one for each cgroup that it ran in; nearly always one.
    rows: Vec<(CgroupId, Row)>,
}

impl Known {
    /// Whether a creation that is told now is its own. Each CPU has a ring of its own, so what a process did on one may
    /// be read before its creation on another.
    fn waits_for_its_fork(&self) -> bool {
        !self.forked && (!self.seen || !self.ended)
    }
}

/// Every process that is known, by its id.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    known: FxHashMap<u32, Known>,
    /// Rows of processes from before they took a name, which wait for the name of the parent.
    nameless: FxHashMap<u32, Vec<Row>>,
    pub(super) news: News,
}

impl Tasks {
    /// The row of a process in a cgroup.
    #[inline]
    pub(super) fn row(
        &mut self,
        pid: u32,
        cgroup: Option<CgroupId>,
        epoch: u64,
        shares: &mut Shares,
    ) -> Option<Row> {
        let id = cgroup.unwrap_or(CgroupId(0));
        if let Some(known) = self.known.get(&pid)
            && known.epoch == epoch
            && let Some(&(_, row)) = known.rows.iter().find(|&&(within, _)| within == id)
        {
            return Some(row);
        }
        self.add_row(pid, id, cgroup, epoch, shares)
    }

    #[cold]
    fn add_row(
        &mut self,
        pid: u32,
        id: CgroupId,
        cgroup: Option<CgroupId>,
        epoch: u64,
        shares: &mut Shares,
    ) -> Option<Row> {
        let mut stranger = Known::default();
        let known = if self.has_room_for(pid) { self.known.entry(pid).or_default() } else { &mut stranger };
        if known.epoch != epoch {
            known.rows.clear();
            known.epoch = epoch;
        }
        let before = std::mem::replace(&mut known.cgroup, cgroup);
        let (comm, kernel) = (known.comm.clone(), known.kernel);
        if before.is_some() && before != cgroup {
            self.news.changed(pid);
        }
        let row = shares.add_row(Owner::Task(Task { pid, comm, kernel, current: true, cgroup }))?;
        known.rows.push((id, row));
        Some(row)
    }

    fn has_room_for(&self, pid: u32) -> bool {
        self.known.len() < MOST || self.known.contains_key(&pid)
    }

    /// A process, or one of its threads, was created.
    pub(super) fn fork(&mut self, task: ring::Task, shares: &mut Shares) {
        if task.pid == task.parent_pid {
            return;
        }
        self.news.changed(task.pid);
        let parent = self.known.get(&task.parent_pid).and_then(|parent| parent.comm.clone());
        let kernel = Some(task.parent_pid == KTHREADD);
        let has_room = self.has_room_for(task.pid);
        match self.known.get_mut(&task.pid) {
            Some(known) if known.waits_for_its_fork() => {
                known.forked = true;
                known.kernel = known.kernel.or(kernel);
                for row in self.nameless.remove(&task.pid).unwrap_or_default() {
                    if let Some(Owner::Task(before)) = shares.owner_mut(row) {
                        (before.comm, before.kernel) = (parent.clone(), kernel);
                    }
                }
                // What `/proc` tells may be what it was called later.
                if !known.named && parent.is_some() {
                    known.comm = parent;
                }
            }
            None if !has_room => {}
            _ => {
                self.conclude(task.pid, shares);
                self.known.insert(task.pid, Known { comm: parent, kernel, forked: true, ..Known::default() });
            }
        }
    }

    /// A process took a name. What it counted up to now stays with the name that it had.
    pub(super) fn comm(&mut self, comm: ring::Comm<'_>, epoch: u64, shares: &mut Shares) {
        if comm.pid != comm.tid {
            return;
        }
        self.news.changed(comm.pid);
        let name: Arc<str> = String::from_utf8_lossy(comm.name).into();
        if !self.has_room_for(comm.pid) {
            return;
        }
        self.conclude(comm.pid, shares);
        let known = self.known.entry(comm.pid).or_default();
        if known.comm.is_none() && known.epoch == epoch && !known.rows.is_empty() {
            self.nameless.entry(comm.pid).or_default().extend(known.rows.iter().map(|&(_, row)| row));
        }
        (known.comm, known.named) = (Some(name), true);
        known.rows.clear();
    }

    /// A thread ended.
    pub(super) fn exit(&mut self, task: ring::Task) {
        if task.pid != task.tid {
            return;
        }
        self.news.ends(task.pid);
        if let Some(known) = self.known.get_mut(&task.pid) {
            known.ended = true;
        }
    }

    /// Ends the rows of what an id stood for until now.
    fn conclude(&self, pid: u32, shares: &mut Shares) {
        let Some(known) = self.known.get(&pid) else { return };
        for &(_, row) in &known.rows {
            // Rows of shares that were taken away are other people's by now.
            if let Some(Owner::Task(task)) = shares.owner_mut(row)
                && task.pid == pid
                && task.current
            {
                task.current = false;
                task.comm = task.comm.take().or_else(|| known.comm.clone());
                task.kernel = task.kernel.or(known.kernel);
            }
        }
    }

    /// Enters a process as `/proc` describes it, unless records have told more already.
    pub(super) fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        if !self.has_room_for(pid) {
            return;
        }
        let known = self.known.entry(pid).or_default();
        known.comm.get_or_insert_with(|| Arc::clone(comm));
        known.kernel = Some(kernel);
        known.seen = true;
    }

    /// Gives names to the owners that had none when they were entered, as far as they are known by now.
    pub(super) fn name(&self, shares: &mut Shares) {
        for owner in shares.owners_mut() {
            if let Owner::Task(task) = owner
                && task.current
                && let Some(known) = self.known.get(&task.pid)
            {
                task.comm = task.comm.take().or_else(|| known.comm.clone());
                task.kernel = task.kernel.or(known.kernel);
            }
        }
    }

    /// Forgets who is not there any more, and did not run since the shares of `epoch` began.
    pub(super) fn expire(&mut self, epoch: u64, there: impl Fn(u32) -> bool) {
        self.known.retain(|&pid, known| known.epoch == epoch || there(pid));
        // Their rows go with the shares.
        self.nameless.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u64 = 1;

    /// Tasks among which 5 is a shell, and what they are charged with.
    fn with_a_shell() -> (Tasks, Shares) {
        let mut tasks = Tasks::default();
        tasks.describe(5, &"shell".into(), false);
        (tasks, Shares::new(0))
    }

    fn told(pid: u32, parent_pid: u32) -> ring::Task {
        ring::Task { pid, parent_pid, tid: pid, parent_tid: parent_pid, time: 0 }
    }

    fn takes_name(tasks: &mut Tasks, pid: u32, name: &str, shares: &mut Shares) {
        tasks.comm(ring::Comm { pid, tid: pid, name: name.as_bytes(), exec: true }, EPOCH, shares);
    }

    fn comm(row: Row, shares: &mut Shares) -> String {
        match shares.owner_mut(row) {
            Some(Owner::Task(task)) => task.comm.as_deref().unwrap_or("nobody").to_owned(),
            owner => panic!("{owner:?}"),
        }
    }

    #[test]
    fn a_process_whose_creation_is_read_late_keeps_its_name_and_had_its_parents_before() {
        let (mut tasks, mut shares) = with_a_shell();
        let before = tasks.row(7, None, EPOCH, &mut shares).unwrap();
        takes_name(&mut tasks, 7, "tool", &mut shares);
        let after = tasks.row(7, None, EPOCH, &mut shares).unwrap();
        tasks.fork(told(7, 5), &mut shares);
        assert_eq!(tasks.row(7, None, EPOCH, &mut shares), Some(after), "it is the same process");
        tasks.name(&mut shares);
        assert_eq!([before, after].map(|row| comm(row, &mut shares)), ["shell", "tool"]);
    }

    #[test]
    fn a_process_that_is_over_when_its_creation_is_read_had_two_names() {
        let (mut tasks, mut shares) = with_a_shell();
        let before = tasks.row(7, None, EPOCH, &mut shares).unwrap();
        takes_name(&mut tasks, 7, "tool", &mut shares);
        let after = tasks.row(7, None, EPOCH, &mut shares).unwrap();
        tasks.exit(told(7, 5));
        tasks.fork(told(7, 5), &mut shares);
        tasks.name(&mut shares);
        assert_eq!([before, after].map(|row| comm(row, &mut shares)), ["shell", "tool"]);
    }

    #[test]
    fn an_id_that_is_used_again_stands_for_another_process() {
        let (mut tasks, mut shares) = with_a_shell();
        tasks.fork(told(7, 5), &mut shares);
        takes_name(&mut tasks, 7, "first", &mut shares);
        tasks.describe(8, &"older".into(), false);
        for pid in [7, 8] {
            let old = tasks.row(pid, None, EPOCH, &mut shares).unwrap();
            tasks.exit(told(pid, 5));
            tasks.fork(told(pid, 5), &mut shares);
            let new = tasks.row(pid, None, EPOCH, &mut shares).unwrap();
            assert_ne!(comm(old, &mut shares), "shell");
            assert_eq!(comm(new, &mut shares), "shell", "{pid}");
        }
    }

    #[test]
    fn processes_without_end_take_a_bounded_place() {
        let (mut tasks, mut shares) = (Tasks::default(), Shares::new(1));
        let name: Arc<str> = "name".into();
        for pid in 3..200_000 {
            match pid % 4 {
                0 => takes_name(&mut tasks, pid, "name", &mut shares),
                1 => tasks.describe(pid, &name, false),
                2 => {
                    let task = ring::Task { pid, parent_pid: 1, tid: pid, parent_tid: 1, time: 0 };
                    tasks.fork(task, &mut shares);
                }
                _ => drop(tasks.row(pid, None, 1, &mut shares)),
            }
        }
        assert_eq!(tasks.known.len(), MOST);
        tasks.expire(1, |_| false);
        assert!(tasks.known.values().all(|known| known.epoch == 1), "those who ran stay until the next time");
        tasks.expire(2, |_| false);
        assert_eq!(tasks.known.len(), 0);
    }
}
