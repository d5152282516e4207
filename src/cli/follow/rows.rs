//! Sums by thread or by thread name, in bounded memory.

use rustc_hash::FxHashMap;

use crate::sched::{Comm, Thread};

/// Maximum number of running threads, and of ended threads or names, with individual sums.
const MAX: usize = 1 << 17;
const MAX_ENDED: usize = 1 << 14;

/// A value that can be summed.
pub(in crate::cli) trait Merge: Default {
    /// Adds another value.
    fn merge(&mut self, other: Self);
}

/// The sum of a thread, of all threads of a name, or of all other threads.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::cli) struct Row<S> {
    /// The thread, or one of the threads.
    pub(in crate::cli) thread: Thread,
    /// Number of threads.
    pub(in crate::cli) threads: u64,
    /// Whether all of the threads have ended.
    pub(in crate::cli) ended: bool,
    pub(in crate::cli) sum: S,
}

impl<S: Merge> Row<S> {
    fn merge(&mut self, other: Self) {
        if self.threads == 0 {
            (self.thread, self.ended) = (other.thread, true);
        }
        self.ended &= other.ended;
        self.threads += other.threads;
        self.sum.merge(other.sum);
    }
}

/// Sums by thread or by name.
#[derive(Debug)]
pub(in crate::cli) struct Rows<S> {
    by_thread: bool,
    live: FxHashMap<u32, Row<S>>,
    ended: FxHashMap<(Comm, u32), Row<S>>,
    others: Row<S>,
}

impl<S: Merge> Rows<S> {
    pub(in crate::cli) fn new(by_thread: bool) -> Self {
        Self { by_thread, live: FxHashMap::default(), ended: FxHashMap::default(), others: Row::default() }
    }

    /// Returns the sum of a thread.
    pub(in crate::cli) fn of(&mut self, thread: &Thread) -> &mut S {
        if self.live.len() >= MAX && !self.live.contains_key(&thread.tid) {
            self.others.threads = self.others.threads.max(1);
            return &mut self.others.sum;
        }
        let row = self.live.entry(thread.tid).or_insert_with(|| Row { threads: 1, ..Row::default() });
        row.thread = *thread;
        &mut row.sum
    }

    /// Marks a thread as ended. Its ID can be reused.
    pub(in crate::cli) fn end(&mut self, tid: u32) {
        let Some(row) = self.live.remove(&tid) else { return };
        let row = Row { ended: true, ..row };
        let key = self.key(&row);
        let full = self.ended.len() >= MAX_ENDED && !self.ended.contains_key(&key);
        let sum = if full { &mut self.others } else { self.ended.entry(key).or_default() };
        sum.merge(row);
    }

    fn key(&self, row: &Row<S>) -> (Comm, u32) {
        (row.thread.comm, if self.by_thread { row.thread.tid } else { 0 })
    }

    /// Returns all sums, unsorted, and the sum of the threads that exceeded the limits.
    pub(in crate::cli) fn finish(mut self) -> (Vec<Row<S>>, Option<Row<S>>) {
        let mut rows = std::mem::take(&mut self.ended);
        for row in std::mem::take(&mut self.live).into_values() {
            // Two threads that used the same ID one after the other are two threads.
            rows.entry(self.key(&row)).or_default().merge(row);
        }
        let others = Some(self.others).filter(|others| others.threads > 0);
        (rows.into_values().collect(), others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Merge for u64 {
        fn merge(&mut self, other: Self) {
            *self += other;
        }
    }

    fn thread(tid: u32, name: &str) -> Thread {
        Thread { tid, comm: Comm::new(name.as_bytes()), ..Thread::default() }
    }

    fn rows(by_thread: bool) -> Vec<(u32, u64, bool, u64)> {
        let mut rows = Rows::<u64>::new(by_thread);
        *rows.of(&thread(1, "a")) += 1;
        *rows.of(&thread(2, "a")) += 10;
        rows.end(1);
        *rows.of(&thread(1, "b")) += 100;
        rows.end(1);
        let (rows, others) = rows.finish();
        assert!(others.is_none());
        let mut rows: Vec<_> =
            rows.into_iter().map(|row| (row.thread.tid, row.threads, row.ended, row.sum)).collect();
        rows.sort_unstable_by_key(|row| row.3);
        rows
    }

    #[test]
    fn threads_of_a_name_are_added_up_although_some_have_ended() {
        assert_eq!(rows(false), [(1, 2, false, 11), (1, 1, true, 100)]);
        assert_eq!(rows(true), [(1, 1, true, 1), (2, 1, false, 10), (1, 1, true, 100)]);
    }

    #[test]
    fn those_for_whom_there_is_no_room_are_added_up_without_a_name() {
        let mut rows = Rows::<u64>::new(true);
        for tid in 0..=MAX_ENDED as u32 + 1 {
            *rows.of(&thread(tid, "a")) += 1;
            rows.end(tid);
        }
        let (rows, others) = rows.finish();
        assert_eq!(
            (rows.len(), others.map(|others| (others.threads, others.sum))),
            (MAX_ENDED, Some((2, 2)))
        );
    }
}
