//! Two kinds of locks. A [`Lock`] is never held across I/O. An [`IoLock`] may be held across I/O.
//!
//! | | [`Lock`] | [`IoLock`] |
//! |---|---|---|
//! | protects | state needed by collections, scrapes, health checks and shutdown | state needed only by threads that may block on files |
//! | held for | memory accesses | any time: a read of a file of another process may never return |
//! | taken by | every thread | every thread except those marked with [`never_blocks`] |
//!
//! Lock order: a thread holds at most one lock of each kind, and takes the `IoLock` first. Therefore two threads cannot deadlock. Debug
//! builds check this order and panic if it is violated. Release builds do not check it.
//!
//! A panic of another thread does not poison these locks.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LockResult, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The locks held by the current thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thread {
    lock: bool,
    io_lock: bool,
    /// The name of the thread, if it must not block.
    never_blocks: Option<&'static str>,
}

thread_local! {
    static THREAD: Cell<Thread> = const { Cell::new(Thread { lock: false, io_lock: false, never_blocks: None }) };
}

/// Marks the current thread as one that other threads wait for. It must not take an [`IoLock`] afterwards.
pub(crate) fn never_blocks(name: &'static str) {
    THREAD.set(Thread { never_blocks: Some(name), ..THREAD.get() });
}

/// Panics in debug builds if the current thread holds a [`Lock`]. Call this before `what`, which may block.
#[inline]
#[track_caller]
pub(crate) fn assert_may_block(what: &str) {
    if cfg!(debug_assertions) {
        assert!(!THREAD.get().lock, "{what} may block, but this thread holds a Lock, which is a bug");
    }
}

/// Panics in debug builds if the current thread may not wait for files of other processes: it holds a [`Lock`], or other threads wait for
/// it. Call this before `what`, which waits for such files.
#[inline]
#[track_caller]
pub(crate) fn assert_may_wait_for_files(what: &str) {
    assert_may_block(what);
    if cfg!(debug_assertions) {
        let marked = THREAD.get().never_blocks;
        assert!(
            marked.is_none(),
            "{what} waits for a file system, but the thread {marked:?} must not block, which is a bug"
        );
    }
}

/// A mutex for state needed by collections, scrapes, health checks and shutdown. It is never held across I/O, nor while another lock is
/// taken.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// Creates an unlocked value.
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks the value.
    #[track_caller]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if cfg!(debug_assertions) {
            let thread = THREAD.get();
            assert!(!thread.lock, "this thread holds a Lock and takes another one, which is a bug");
            THREAD.set(Thread { lock: true, ..thread });
        }
        Guard(unpoisoned(self.0.lock()))
    }
}

/// Access to the value of a [`Lock`]. Unlocks when dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a, T>(MutexGuard<'a, T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            THREAD.set(Thread { lock: false, ..THREAD.get() });
        }
    }
}

/// A mutex that may be held across I/O. It is fair: threads get the lock in the order of their requests. A mutex of the standard library
/// can starve a waiting thread if another thread unlocks and relocks it repeatedly.
pub(crate) struct IoLock<T> {
    value: Mutex<T>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// The threads that wait for an [`IoLock`].
#[derive(Debug, Default)]
struct Queue {
    held: bool,
    waiting: VecDeque<u64>,
    tickets: u64,
}

impl<T> IoLock<T> {
    /// Creates an unlocked value.
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), queue: Mutex::default(), changed: Condvar::new() }
    }

    /// Locks the value, without a timeout.
    #[track_caller]
    pub(crate) fn lock(&self) -> IoGuard<'_, T> {
        loop {
            // The timeout is longer than any process runs.
            if let Some(guard) = self.lock_within(Duration::MAX) {
                return guard;
            }
        }
    }

    /// Locks the value, and waits for at most `patience`. Returns `None` if another thread still holds it.
    #[track_caller]
    pub(crate) fn lock_within(&self, patience: Duration) -> Option<IoGuard<'_, T>> {
        assert_may_block("taking an IoLock");
        if cfg!(debug_assertions) {
            let thread = THREAD.get();
            assert!(
                thread.never_blocks.is_none(),
                "{thread:?} takes an IoLock but must not block, which is a bug"
            );
            assert!(!thread.io_lock, "this thread holds an IoLock and takes another one, which is a bug");
        }
        let mut queue = unpoisoned(self.queue.lock());
        let ticket = queue.tickets;
        queue.tickets += 1;
        queue.waiting.push_back(ticket);
        let is_early = |queue: &mut Queue| queue.held || queue.waiting.front() != Some(&ticket);
        let (mut queue, _) = self
            .changed
            .wait_timeout_while(queue, patience, is_early)
            .unwrap_or_else(PoisonError::into_inner);
        let early = is_early(&mut queue);
        queue.waiting.retain(|&other| other != ticket);
        if early {
            // The next thread may be the first in the queue now.
            self.changed.notify_all();
            return None;
        }
        queue.held = true;
        drop(queue);
        if cfg!(debug_assertions) {
            THREAD.set(Thread { io_lock: true, ..THREAD.get() });
        }
        Some(IoGuard { value: unpoisoned(self.value.lock()), lock: self })
    }
}

impl<T> fmt::Debug for IoLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoLock").finish_non_exhaustive()
    }
}

/// Access to the value of an [`IoLock`]. Unlocks when dropped.
pub(crate) struct IoGuard<'a, T> {
    value: MutexGuard<'a, T>,
    lock: &'a IoLock<T>,
}

impl<T> Deref for IoGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for IoGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for IoGuard<'_, T> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            THREAD.set(Thread { io_lock: false, ..THREAD.get() });
        }
        unpoisoned(self.lock.queue.lock()).held = false;
        // The next thread additionally waits until `value` is dropped, which follows immediately.
        self.lock.changed.notify_all();
    }
}

/// Returns the guard of a standard lock, which a panic of another thread may have poisoned: the data is valid between any two statements.
pub(crate) fn unpoisoned<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    /// Runs `action` on a thread of its own, and returns the panic message.
    fn panic_of(action: impl FnOnce() + Send) -> String {
        thread::scope(|scope| {
            let panic = scope.spawn(action).join().unwrap_err();
            panic
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_else(|| (*panic.downcast::<&str>().unwrap()).into())
        })
    }

    #[test]
    fn a_thread_that_holds_a_lock_may_not_block_and_one_that_gave_it_back_may() {
        let (lock, io) = (Lock::new(1), IoLock::new(2));
        let said = panic_of(|| {
            let _guard = lock.lock();
            assert_may_block("reading a file");
        });
        assert!(said.starts_with("reading a file may block"), "{said}");
        let said = panic_of(|| {
            let _guard = lock.lock();
            let _io = io.lock();
        });
        assert!(said.starts_with("taking an IoLock may block"), "{said}");
        drop(lock.lock());
        assert_may_block("reading a file");
        let _io = io.lock();
        assert_may_block("reading a file");
        assert_eq!(*lock.lock(), 1, "a panic does not poison the lock, and it may be taken after an IoLock");
    }

    #[test]
    fn a_thread_holds_one_lock_of_each_kind() {
        let (one, other) = (Lock::new(1), Lock::new(2));
        let said = panic_of(|| drop((one.lock(), other.lock())));
        assert!(said.contains("takes another one"), "{said}");
        let (one, other) = (IoLock::new(1), IoLock::new(2));
        let said = panic_of(|| drop((one.lock(), other.lock())));
        assert!(said.contains("takes another one"), "{said}");
    }

    #[test]
    fn a_thread_that_others_wait_for_may_take_no_lock_that_is_held_across_files() {
        let (lock, io) = (Lock::new(1), IoLock::new(2));
        let said = panic_of(|| {
            never_blocks("collector");
            drop(lock.lock());
            drop(io.lock());
        });
        assert!(said.contains("collector"), "{said}");
        drop(io.lock());
    }

    #[test]
    fn a_thread_that_waited_long_enough_goes_away_and_the_next_one_gets_the_value() {
        let io = IoLock::new(1);
        thread::scope(|scope| {
            let guard = io.lock();
            let waited = scope.spawn(|| io.lock_within(Duration::from_millis(1)).is_none());
            let next = scope.spawn(|| *io.lock());
            assert!(waited.join().unwrap());
            drop(guard);
            assert_eq!(next.join().unwrap(), 1);
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = io.lock();
            panic!("while it is held");
        }));
        assert!(panicked.is_err() && *io.lock() == 1);
    }

    #[test]
    fn a_waiting_thread_gets_the_value_although_another_one_comes_back_at_once() {
        const SHORT_TIME: Duration = Duration::from_millis(1);
        let shared = Arc::new((IoLock::new(true), AtomicU32::new(0)));
        let busy = Arc::clone(&shared);
        let busy = thread::spawn(move || {
            let (fair, turns) = &*busy;
            // The lock is free only for the moment between unlock and the next request.
            while let goes_on = fair.lock()
                && *goes_on
            {
                turns.fetch_add(1, Ordering::SeqCst);
                thread::sleep(SHORT_TIME);
            }
        });
        let (fair, turns) = &*shared;
        let passed = || {
            thread::sleep(3 * SHORT_TIME);
            let before = turns.load(Ordering::SeqCst);
            let _goes_on = fair.lock();
            turns.load(Ordering::SeqCst) - before
        };
        // In at least one attempt, nothing but the other thread delays this thread.
        let least = (0..20).map(|_| passed()).min();
        *fair.lock() = false;
        busy.join().unwrap();
        assert_eq!(least, Some(0), "the other thread had a turn each time");
    }
}
