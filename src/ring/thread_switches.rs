//! Thread switches that one module reads from its rings and passes on to another, so that each switch is recorded once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::reader::Waker;

/// Maximum number of queued turns (5 MiB). If it is exceeded, all of them are discarded.
const MOST: usize = 1 << 17;

/// Number of queued turns at which the follower is woken up.
const MANY: usize = 1 << 10;

/// A record of the switch stream: the thread that was on a CPU until `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Time on `CLOCK_MONOTONIC`, in nanoseconds.
    pub(crate) time: u64,
    pub(crate) cgroup: u64,
    pub(crate) cpu: u32,
    /// `u32::MAX`, like the thread, if it was reaped.
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Whether the thread is switched out. Otherwise it continues to run: the record is from the clock of the stream.
    pub(crate) leaves: bool,
    /// Whether each switch since the previous turn has a record.
    pub(crate) complete: bool,
}

/// Queue of turns for the follower.
#[derive(Debug, Default)]
struct Inbox {
    turns: Vec<Turn>,
    gap: bool,
    waker: Option<Waker>,
}

/// The sending end of the queue.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    inbox: Mutex<Inbox>,
    /// Whether the receiving end was dropped.
    closed: AtomicBool,
}

impl Passing {
    /// Queues all `turns`. Returns `false` if the receiving end was dropped.
    pub(crate) fn pass(&self, turns: &mut Vec<Turn>, gap: bool) -> bool {
        if self.closed.load(Ordering::Relaxed) {
            turns.clear();
            return false;
        }
        let mut inbox = lock(&self.inbox);
        let before = inbox.turns.len();
        if before + turns.len() > MOST {
            (inbox.turns, inbox.gap) = (Vec::new(), true);
            turns.clear();
        }
        inbox.turns.append(turns);
        inbox.gap |= gap;
        if before < MANY && inbox.turns.len() >= MANY {
            inbox.waker.iter().for_each(Waker::wake);
        }
        true
    }
}

/// The receiving end of the queue. Dropping it stops the passing of turns.
pub(crate) struct Turns {
    passing: Arc<Passing>,
    /// Empties the rings that turns come from.
    refill: Box<dyn Fn() + Send + Sync>,
    /// All turns from before this time are in the inbox.
    complete: AtomicU64,
}

impl Turns {
    pub(crate) fn new(passing: Arc<Passing>, refill: impl Fn() + Send + Sync + 'static) -> Self {
        Self { passing, refill: Box::new(refill), complete: AtomicU64::new(0) }
    }

    /// Sets the waker to wake up when many turns are queued.
    pub(crate) fn wake(&self, waker: Waker) {
        lock(&self.passing.inbox).waker = Some(waker);
    }

    /// Empties the rings that turns come from, which contain all turns from before `now`.
    pub(crate) fn refill(&self, now: u64) {
        (self.refill)();
        self.complete.fetch_max(now, Ordering::Relaxed);
    }

    /// Returns the time before which all turns can be taken.
    pub(crate) fn complete(&self) -> u64 {
        self.complete.load(Ordering::Relaxed)
    }

    /// Reports whether the sending end still exists.
    pub(crate) fn is_open(&self) -> bool {
        Arc::strong_count(&self.passing) > 1
    }

    /// Moves all queued turns to the end of `turns`. Returns whether some were lost.
    pub(crate) fn take(&self, turns: &mut Vec<Turn>) -> bool {
        let mut inbox = lock(&self.passing.inbox);
        turns.append(&mut inbox.turns);
        std::mem::take(&mut inbox.gap)
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.passing.closed.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").field("complete", &self.complete).field("open", &self.is_open()).finish()
    }
}

/// Locks the inbox. A lock that was poisoned by a panic still protects a valid list.
fn lock(inbox: &Mutex<Inbox>) -> MutexGuard<'_, Inbox> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::reader::tests::counting_waker;

    fn turns(count: usize) -> Vec<Turn> {
        let turn = |time| Turn { time, cgroup: 1, cpu: 0, pid: 7, tid: 7, leaves: true, complete: true };
        (0..count as u64).map(turn).collect()
    }

    #[test]
    fn what_is_passed_on_can_be_taken_once_in_the_order_of_the_ring() {
        let passing = Arc::new(Passing::default());
        let follower = Turns::new(Arc::clone(&passing), || {});
        assert!(passing.pass(&mut turns(2), false) && passing.pass(&mut turns(1), false));
        let mut taken = Vec::new();
        assert!(!follower.take(&mut taken));
        assert_eq!(taken.iter().map(|turn| turn.time).collect::<Vec<_>>(), [0, 1, 0]);
        taken.clear();
        assert!(!follower.take(&mut taken) && taken.is_empty());
    }

    #[test]
    fn more_than_may_wait_are_lost_and_that_is_told() {
        let passing = Arc::new(Passing::default());
        let follower = Turns::new(Arc::clone(&passing), || {});
        passing.pass(&mut turns(MOST), false);
        passing.pass(&mut turns(1), false);
        let mut taken = Vec::new();
        assert!(follower.take(&mut taken) && taken.is_empty());
        assert!(!follower.take(&mut taken), "once");
    }

    #[test]
    fn the_follower_is_woken_up_once_when_many_turns_wait() {
        let passing = Arc::new(Passing::default());
        let follower = Turns::new(Arc::clone(&passing), || {});
        let (waker, calls) = counting_waker();
        passing.pass(&mut turns(MANY), false);
        assert_eq!(calls(), 0, "there is no waker");
        follower.take(&mut Vec::new());
        follower.wake(waker);
        for (count, woken) in [(0, 0), (MANY - 1, 0), (1, 1), (1, 0), (MANY, 0)] {
            passing.pass(&mut turns(count), false);
            assert_eq!(calls(), woken, "{count} more");
        }
        follower.take(&mut Vec::new());
        for (count, woken) in [(MANY, 1), (MANY, 0)] {
            passing.pass(&mut turns(count), false);
            assert_eq!(calls(), woken, "{count} after the inbox was emptied");
        }
    }

    #[test]
    fn nothing_waits_for_nobody() {
        let passing = Arc::new(Passing::default());
        drop(Turns::new(Arc::clone(&passing), || {}));
        let mut rest = turns(3);
        assert!(!passing.pass(&mut rest, false) && rest.is_empty());
    }

    #[test]
    fn the_end_of_the_rings_is_known_and_what_they_told_can_still_be_taken() {
        let passing = Arc::new(Passing::default());
        let follower = Turns::new(Arc::clone(&passing), || {});
        passing.pass(&mut turns(3), false);
        assert!(follower.is_open());
        drop(passing);
        follower.refill(5);
        assert_eq!((follower.is_open(), follower.complete()), (false, 5));
        let mut taken = Vec::new();
        assert!(!follower.take(&mut taken));
        assert_eq!(taken.len(), 3);
    }
}
