//! Who the threads are that records name by numbers.

use rustc_hash::FxHashMap;

use crate::host::{self, Roots};
use crate::ring::Record;
use crate::sched::{Comm, Who};

/// How many threads are known at most. Others have no name.
const MOST: usize = 1 << 17;

/// What a `comm` may hold at most, in bytes.
const NAME: u64 = 4 << 10;

/// Threads by their numbers.
#[derive(Debug, Default)]
pub(in crate::cli) struct Names {
    known: FxHashMap<u32, Who>,
}

impl Names {
    /// Every thread that there is now, as far as it can be seen.
    pub(in crate::cli) fn read(roots: &Roots) -> Self {
        let mut names = Self::default();
        let pids = host::list(&roots.proc).unwrap_or_default();
        for pid in pids.iter().filter_map(|name| name.parse::<u32>().ok()) {
            let tasks = host::list(&roots.proc.join(pid.to_string()).join("task")).unwrap_or_default();
            for tid in tasks.iter().filter_map(|name| name.parse::<u32>().ok()) {
                if names.known.len() >= MOST {
                    return names;
                }
                names.look_up(roots, pid, tid);
            }
        }
        names
    }

    fn look_up(&mut self, roots: &Roots, pid: u32, tid: u32) {
        let path = roots.proc.join(format!("{pid}/task/{tid}/comm"));
        // It may have ended since.
        let Ok(name) = host::read_at_most(&path, NAME) else { return };
        let comm = Comm::new(name.strip_suffix(b"\n").unwrap_or(&name));
        self.known.insert(tid, Who { tid, pid, comm, ..Who::default() });
    }

    /// Takes in what the kernel tells of threads.
    pub(in crate::cli) fn hear(&mut self, record: &Record<'_>) {
        match record {
            Record::Comm(comm) => {
                self.put(Who { tid: comm.tid, pid: comm.pid, comm: Comm::new(comm.name), ..Who::default() });
            }
            Record::Fork(task) => {
                let comm = self.known.get(&task.parent_tid).map(|parent| parent.comm).unwrap_or_default();
                self.put(Who { tid: task.tid, pid: task.pid, comm, ..Who::default() });
            }
            Record::Exit(task) => drop(self.known.remove(&task.tid)),
            _ => {}
        }
    }

    fn put(&mut self, who: Who) {
        if self.known.len() < MOST || self.known.contains_key(&who.tid) {
            self.known.insert(who.tid, who);
        }
    }

    /// A thread, with its name if that is known.
    pub(in crate::cli) fn who(&self, pid: u32, tid: u32) -> Who {
        match self.known.get(&tid) {
            Some(who) => Who { pid, ..*who },
            None => Who { tid, pid, ..Who::default() },
        }
    }

    /// All that are known.
    pub(in crate::cli) fn iter(&self) -> impl Iterator<Item = &Who> {
        self.known.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{self, Task};

    #[test]
    fn a_thread_is_called_as_whoever_made_it_until_it_takes_a_name() {
        let mut names = Names::default();
        let name = |names: &Names, tid| names.who(9, tid).comm.bytes().to_vec();
        names.hear(&Record::Comm(ring::Comm { pid: 9, tid: 9, name: b"one", exec: true }));
        let child = Task { pid: 9, parent_pid: 9, tid: 10, parent_tid: 9, time: 0 };
        names.hear(&Record::Fork(child));
        assert_eq!(name(&names, 10), b"one");
        names.hear(&Record::Comm(ring::Comm { pid: 9, tid: 10, name: b"two", exec: false }));
        assert_eq!((name(&names, 9), name(&names, 10)), (b"one".to_vec(), b"two".to_vec()));
        names.hear(&Record::Exit(child));
        assert_eq!(name(&names, 10), b"");
    }

    #[test]
    fn those_that_are_there_are_read_from_proc() {
        let dir = tempfile::tempdir().unwrap();
        let task = dir.path().join("proc/7/task/8");
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("comm"), "odd\nname\n").unwrap();
        let names = Names::read(&Roots::under(dir.path()));
        assert_eq!(names.iter().count(), 1);
        let who = names.who(7, 8);
        assert_eq!((who.pid, who.comm.bytes()), (7, &b"odd\nname"[..]));
    }
}
