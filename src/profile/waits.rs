//! Threads that are off the CPU: where they began to wait, until they run again.

use rustc_hash::FxHashMap;

use super::model::Mode;
use super::tally::Key;
use crate::plan::Waits;
use crate::sched::Left;

/// How many threads are known to wait.
const MOST: usize = 1 << 17;

/// Where and when a wait began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) key: Key,
    pub(super) time: u64,
    /// For how many waits it stands.
    pub(super) weight: u64,
}

/// Threads that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting(FxHashMap<u32, Begun>);

impl Waiting {
    /// A thread leaves the CPU.
    pub(super) fn begin(&mut self, tid: u32, begun: Begun) {
        if tid != 0 && (self.0.len() < MOST || self.0.contains_key(&tid)) {
            self.0.insert(tid, begun);
        }
    }

    /// A thread runs again, or has ended.
    pub(super) fn end(&mut self, tid: u32) -> Option<Begun> {
        self.0.remove(&tid)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.0.values().map(|begun| begun.key)
    }

    /// Calls stacks and tasks by other numbers.
    pub(super) fn renumber(&mut self, to: impl Fn(Key) -> Option<Key>) {
        self.0.retain(|_, begun| to(begun.key).map(|key| begun.key = key).is_some());
    }
}

/// Why a thread leaves the CPU; `None` if it never runs again, or the record does not say.
pub(super) fn mode(waits: &Waits, raw: &[u8]) -> Option<Mode> {
    let of_switch = raw.first_chunk().is_some_and(|&number| u16::from_ne_bytes(number) == waits.number);
    match Left::of(waits.state.number(raw).filter(|_| of_switch)?) {
        Left::Preempted => Some(Mode::Preempted),
        Left::Sleeping => Some(Mode::Sleeping),
        Left::Blocked => Some(Mode::Uninterruptible),
        Left::Dead => None,
    }
}
