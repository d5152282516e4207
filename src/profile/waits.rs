//! Threads that are off the CPU: where they began to wait, until they run again.

use rustc_hash::FxHashMap;

use super::model::Mode;
use super::tally::Key;
use crate::event::format::{Field, Value};
use crate::plan::Waits;

/// How many threads are known to wait.
const MOST: usize = 1 << 17;

/// The states that `sched:sched_switch` tells (`TASK_REPORT`); another bit says that the thread was preempted.
const STATES: u64 = 0xff;
/// `TASK_UNINTERRUPTIBLE`.
const UNINTERRUPTIBLE: u64 = 0x02;
/// `EXIT_DEAD` and `EXIT_ZOMBIE`: these never run again.
const DEAD: u64 = 0x30;

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

    /// A thread never runs again.
    pub(super) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }

    /// A thread runs again.
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
    let state = number(waits, &waits.state, raw)? & STATES;
    match state {
        0 => Some(Mode::Preempted),
        state if state & DEAD != 0 => None,
        state if state & UNINTERRUPTIBLE != 0 => Some(Mode::Uninterruptible),
        _ => Some(Mode::Sleeping),
    }
}

fn number(waits: &Waits, field: &Field, raw: &[u8]) -> Option<u64> {
    let of_switch = raw.first_chunk().is_some_and(|&number| u16::from_ne_bytes(number) == waits.number);
    match field.value(raw).filter(|_| of_switch)? {
        Value::Unsigned(number) => Some(number),
        Value::Signed(number) => Some(number as u64),
        Value::Bytes(_) => None,
    }
}
