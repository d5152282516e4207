//! Threads that are off the CPU, from the switch that began the wait until they run again.

use rustc_hash::FxHashMap;

use super::model::Mode;
use super::tally::Key;
use crate::plan::Waits;
use crate::sched::PrevState;

/// The most waiting threads that are tracked.
const MAX: usize = 1 << 17;

/// The start of a wait: its key and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitStart {
    pub(super) key: Key,
    pub(super) time: u64,
    /// The number of waits that it represents.
    pub(super) weight: u64,
}

/// Waiting threads.
#[derive(Debug, Default)]
pub(super) struct Waiting(FxHashMap<u32, WaitStart>);

impl Waiting {
    /// Begins the wait of a thread that leaves the CPU.
    pub(super) fn begin(&mut self, tid: u32, begun: WaitStart) {
        if tid != 0 && (self.0.len() < MAX || self.0.contains_key(&tid)) {
            self.0.insert(tid, begun);
        }
    }

    /// Ends the wait of a thread that runs again or has exited.
    pub(super) fn end(&mut self, tid: u32) -> Option<WaitStart> {
        self.0.remove(&tid)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.0.values().map(|begun| begun.key)
    }

    /// Replaces the numbers of stacks and tasks.
    pub(super) fn renumber(&mut self, to: impl Fn(Key) -> Option<Key>) {
        self.0.retain(|_, begun| to(begun.key).map(|key| begun.key = key).is_some());
    }
}

/// Returns why a thread leaves the CPU; `None` if it has exited or the record does not contain its state.
pub(super) fn mode(waits: &Waits, raw: &[u8]) -> Option<Mode> {
    let of_switch = raw.first_chunk().is_some_and(|&number| u16::from_ne_bytes(number) == waits.number);
    match PrevState::of(waits.state.number(raw).filter(|_| of_switch)?) {
        PrevState::Preempted => Some(Mode::Preempted),
        PrevState::Sleeping => Some(Mode::Sleeping),
        PrevState::Blocked => Some(Mode::Uninterruptible),
        PrevState::Dead => None,
    }
}
