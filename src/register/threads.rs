//! Names of threads by ID.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::host::{self, Roots};
use crate::ring::Record;

/// Maximum number of threads with a name.
const MAX: usize = 1 << 17;

/// Maximum size of a `comm` file, in bytes.
const COMM_LIMIT: u64 = 4 << 10;

/// Names of threads, as bytes that untrusted programs choose. Records must be read in time order.
#[derive(Debug, Default)]
pub struct ThreadNames {
    known: FxHashMap<u32, Arc<[u8]>>,
}

impl ThreadNames {
    /// Returns the names of all existing threads that can be read.
    pub fn read(roots: &Roots) -> Self {
        Self { known: threads(roots).map(|(_, tid, name)| (tid, name)).collect() }
    }

    /// Returns the name of a thread.
    pub fn get(&self, tid: u32) -> Option<&[u8]> {
        self.known.get(&tid).map(|name| &**name)
    }

    /// Returns the name of a thread, from `/proc` unless a record reported it. Returns `None` if the thread has exited and no record with
    /// its name was read.
    pub fn find(&mut self, roots: &Roots, pid: u32, tid: u32) -> Option<Arc<[u8]>> {
        if let Some(name) = self.known.get(&tid) {
            return Some(Arc::clone(name));
        }
        let name = read_name(&roots.proc, pid, tid)?;
        self.put(tid, Arc::clone(&name));
        Some(name)
    }

    /// Applies a record. A new thread has the name of the thread that created it.
    pub fn apply_record(&mut self, record: &Record<'_>) {
        match record {
            Record::Comm(comm) => self.put(comm.tid, comm.name.into()),
            Record::Fork(task) => match self.known.get(&task.parent_tid).cloned() {
                Some(name) => self.put(task.tid, name),
                None => drop(self.known.remove(&task.tid)),
            },
            Record::Exit(task) => drop(self.known.remove(&task.tid)),
            _ => {}
        }
    }

    fn put(&mut self, tid: u32, name: Arc<[u8]>) {
        if self.known.len() < MAX || self.known.contains_key(&tid) {
            self.known.insert(tid, name);
        }
    }

    /// Drops all names, because records were lost.
    pub fn clear(&mut self) {
        self.known.clear();
    }

    /// Releases memory of exited threads.
    pub fn shrink(&mut self) {
        self.known.shrink_to_fit();
    }

    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        /// Bytes of a name, including reference counts and allocator overhead.
        const NAME: usize = 48;
        self.known.capacity() * (size_of::<(u32, Arc<[u8]>)>() + 1) + self.known.len() * NAME
    }
}

/// Returns process ID, thread ID and name of all existing threads that can be read: at most 131 072.
pub fn threads(roots: &Roots) -> impl Iterator<Item = (u32, u32, Arc<[u8]>)> {
    let of_process = |pid: u32| ids_in(&roots.proc.join(format!("{pid}/task"))).map(move |tid| (pid, tid));
    let all = ids_in(&roots.proc).flat_map(of_process);
    all.filter_map(|(pid, tid)| Some((pid, tid, read_name(&roots.proc, pid, tid)?))).take(MAX)
}

/// Returns the IDs that are names of entries in a directory of procfs.
fn ids_in(dir: &Path) -> impl Iterator<Item = u32> + use<> {
    host::list(dir).unwrap_or_default().into_iter().filter_map(|name| name.parse().ok())
}

fn read_name(proc: &Path, pid: u32, tid: u32) -> Option<Arc<[u8]>> {
    // The thread may have exited since.
    let name = host::read_at_most(&proc.join(format!("{pid}/task/{tid}/comm")), COMM_LIMIT).ok()?;
    Some(name.strip_suffix(b"\n").unwrap_or(&name).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{Comm, Task};

    #[test]
    fn a_thread_is_called_as_whoever_made_it_until_it_takes_a_name() {
        let mut names = ThreadNames::default();
        let name = |names: &ThreadNames, tid| names.get(tid).map(<[u8]>::to_vec).unwrap_or_default();
        names.apply_record(&Record::Comm(Comm { pid: 9, tid: 9, name: b"one", exec: true }));
        let child = Task { pid: 9, parent_pid: 9, tid: 10, parent_tid: 9, time: 0 };
        names.apply_record(&Record::Fork(child));
        assert_eq!(name(&names, 10), b"one");
        names.apply_record(&Record::Comm(Comm { pid: 9, tid: 10, name: b"two", exec: false }));
        assert_eq!((name(&names, 9), name(&names, 10)), (b"one".to_vec(), b"two".to_vec()));
        names.apply_record(&Record::Exit(child));
        assert_eq!(name(&names, 10), b"");
    }

    #[test]
    fn a_thread_whose_id_had_another_one_has_nothing_of_its_name() {
        let mut names = ThreadNames::default();
        names.apply_record(&Record::Comm(Comm { pid: 9, tid: 9, name: b"one", exec: true }));
        names.apply_record(&Record::Fork(Task { pid: 9, parent_pid: 5, tid: 9, parent_tid: 5, time: 0 }));
        assert_eq!(names.get(9), None, "the name of its parent is unknown");
    }

    #[test]
    fn those_that_are_there_are_read_from_proc() {
        let dir = tempfile::tempdir().unwrap();
        let task = dir.path().join("proc/7/task/8");
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("comm"), "odd\nname\n").unwrap();
        let roots = Roots::under(dir.path());
        let found: Vec<_> = threads(&roots).collect();
        assert_eq!(found, [(7, 8, b"odd\nname"[..].into())]);
        assert_eq!(ThreadNames::read(&roots).get(8), Some(&b"odd\nname"[..]));
        let mut names = ThreadNames::default();
        assert_eq!(names.find(&roots, 7, 8).as_deref(), Some(&b"odd\nname"[..]));
        assert_eq!(names.find(&roots, 7, 9), None);
        assert!(names.get(8).is_some() && names.bytes() > 0);
    }

    #[test]
    fn threads_without_end_take_a_bounded_place() {
        let mut names = ThreadNames::default();
        for tid in 0..200_000 {
            names.apply_record(&Record::Comm(Comm { pid: 1, tid, name: b"name", exec: false }));
        }
        assert_eq!(names.known.len(), MAX);
        names.clear();
        names.shrink();
        assert_eq!(names.bytes(), 0);
    }
}
