//! Thread switches that one module reads from its rings and passes on to another, so that each switch is recorded once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::reader::Waker;
use crate::lock::unpoisoned;

/// Maximum number of queued thread switches (5 MiB). If it is exceeded, all of them are discarded.
const MAX: usize = 1 << 17;

/// Number of queued thread switches at which the follower is woken up.
const MANY: usize = 1 << 10;

/// A record of the switch stream: the thread that was on a CPU until `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadSwitch {
    /// Time on `CLOCK_MONOTONIC`, in nanoseconds.
    pub(crate) time: u64,
    pub(crate) cgroup: u64,
    pub(crate) cpu: u32,
    /// `u32::MAX`, like the thread, if it was reaped.
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Whether the thread is switched out. Otherwise it continues to run: the record is from the clock of the stream.
    pub(crate) leaves: bool,
    /// Whether each switch since the previous thread switch has a record.
    pub(crate) complete: bool,
}

/// Queue of thread switches for the follower.
#[derive(Debug, Default)]
struct SwitchQueue {
    thread_switches: Vec<ThreadSwitch>,
    gap: bool,
    waker: Option<Waker>,
}

/// The sending end of the queue.
#[derive(Debug, Default)]
pub(crate) struct ThreadSwitchSender {
    queue: Mutex<SwitchQueue>,
    /// Whether the receiving end was dropped.
    closed: AtomicBool,
}

impl ThreadSwitchSender {
    /// Queues all `thread_switches`. Returns `false` if the receiving end was dropped.
    pub(crate) fn pass(&self, thread_switches: &mut Vec<ThreadSwitch>, gap: bool) -> bool {
        if self.closed.load(Ordering::Relaxed) {
            thread_switches.clear();
            return false;
        }
        let mut queue = unpoisoned(self.queue.lock());
        let before = queue.thread_switches.len();
        if before + thread_switches.len() > MAX {
            (queue.thread_switches, queue.gap) = (Vec::new(), true);
            thread_switches.clear();
        }
        queue.thread_switches.append(thread_switches);
        queue.gap |= gap;
        if before < MANY && queue.thread_switches.len() >= MANY {
            queue.waker.iter().for_each(Waker::wake);
        }
        true
    }
}

/// The receiving end of the queue. Dropping it stops the passing of thread switches.
pub(crate) struct ThreadSwitchReceiver {
    sender: Arc<ThreadSwitchSender>,
    /// Empties the rings that thread switches come from.
    refill: Box<dyn Fn() + Send + Sync>,
    /// All thread switches from before this time are in the queue.
    complete: AtomicU64,
}

impl ThreadSwitchReceiver {
    pub(crate) fn new(sender: Arc<ThreadSwitchSender>, refill: impl Fn() + Send + Sync + 'static) -> Self {
        Self { sender, refill: Box::new(refill), complete: AtomicU64::new(0) }
    }

    /// Sets the waker to wake up when many thread switches are queued.
    pub(crate) fn wake(&self, waker: Waker) {
        unpoisoned(self.sender.queue.lock()).waker = Some(waker);
    }

    /// Empties the rings that thread switches come from, which contain all thread switches from before `now`.
    pub(crate) fn refill(&self, now: u64) {
        (self.refill)();
        self.complete.fetch_max(now, Ordering::Relaxed);
    }

    /// Returns the time before which all thread switches can be taken.
    pub(crate) fn complete(&self) -> u64 {
        self.complete.load(Ordering::Relaxed)
    }

    /// Reports whether the sending end still exists.
    pub(crate) fn is_open(&self) -> bool {
        Arc::strong_count(&self.sender) > 1
    }

    /// Moves all queued thread switches to the end of `thread_switches`. Returns whether some were lost.
    pub(crate) fn take(&self, thread_switches: &mut Vec<ThreadSwitch>) -> bool {
        let mut queue = unpoisoned(self.sender.queue.lock());
        thread_switches.append(&mut queue.thread_switches);
        std::mem::take(&mut queue.gap)
    }
}

impl Drop for ThreadSwitchReceiver {
    fn drop(&mut self) {
        self.sender.closed.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for ThreadSwitchReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadSwitchReceiver").field("complete", &self.complete).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::reader::tests::counting_waker;

    fn thread_switches(count: usize) -> Vec<ThreadSwitch> {
        let switch =
            |time| ThreadSwitch { time, cgroup: 1, cpu: 0, pid: 7, tid: 7, leaves: true, complete: true };
        (0..count as u64).map(switch).collect()
    }

    #[test]
    fn what_is_passed_on_can_be_taken_once_in_the_order_of_the_ring() {
        let sender = Arc::new(ThreadSwitchSender::default());
        let follower = ThreadSwitchReceiver::new(Arc::clone(&sender), || {});
        assert!(sender.pass(&mut thread_switches(2), false) && sender.pass(&mut thread_switches(1), false));
        let mut taken = Vec::new();
        assert!(!follower.take(&mut taken));
        assert_eq!(taken.iter().map(|switch| switch.time).collect::<Vec<_>>(), [0, 1, 0]);
        taken.clear();
        assert!(!follower.take(&mut taken) && taken.is_empty());
    }

    #[test]
    fn more_than_may_wait_are_lost_and_that_is_told() {
        let sender = Arc::new(ThreadSwitchSender::default());
        let follower = ThreadSwitchReceiver::new(Arc::clone(&sender), || {});
        sender.pass(&mut thread_switches(MAX), false);
        sender.pass(&mut thread_switches(1), false);
        let mut taken = Vec::new();
        assert!(follower.take(&mut taken) && taken.is_empty());
        assert!(!follower.take(&mut taken), "once");
    }

    #[test]
    fn a_gap_is_reported_once_whatever_is_passed_on_after_it() {
        let sender = Arc::new(ThreadSwitchSender::default());
        let follower = ThreadSwitchReceiver::new(Arc::clone(&sender), || {});
        for gaps in [[true, false], [false, true]] {
            gaps.iter().for_each(|&gap| assert!(sender.pass(&mut thread_switches(1), gap)));
            let mut taken = Vec::new();
            assert!(follower.take(&mut taken));
            assert_eq!(taken.len(), 2);
            assert!(!follower.take(&mut taken), "once");
        }
    }

    #[test]
    fn a_refill_empties_the_rings_and_the_time_up_to_which_all_is_known_never_falls() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let refill = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let follower = ThreadSwitchReceiver::new(Arc::default(), refill);
        assert_eq!(follower.complete(), 0);
        for (call, (now, complete)) in [(5, 5), (3, 5), (9, 9)].into_iter().enumerate() {
            follower.refill(now);
            assert_eq!((calls.load(Ordering::Relaxed), follower.complete()), (call as u64 + 1, complete));
        }
    }

    #[test]
    fn the_follower_is_woken_up_once_when_many_turns_wait() {
        let sender = Arc::new(ThreadSwitchSender::default());
        let follower = ThreadSwitchReceiver::new(Arc::clone(&sender), || {});
        let (waker, calls) = counting_waker();
        sender.pass(&mut thread_switches(MANY), false);
        assert_eq!(calls(), 0, "there is no waker");
        follower.take(&mut Vec::new());
        follower.wake(waker);
        for (count, woken) in [(0, 0), (MANY - 1, 0), (1, 1), (1, 0), (MANY, 0)] {
            sender.pass(&mut thread_switches(count), false);
            assert_eq!(calls(), woken, "{count} more");
        }
        follower.take(&mut Vec::new());
        for (count, woken) in [(MANY, 1), (MANY, 0)] {
            sender.pass(&mut thread_switches(count), false);
            assert_eq!(calls(), woken, "{count} after the inbox was emptied");
        }
    }

    #[test]
    fn nothing_waits_for_nobody() {
        let sender = Arc::new(ThreadSwitchSender::default());
        drop(ThreadSwitchReceiver::new(Arc::clone(&sender), || {}));
        let mut rest = thread_switches(3);
        assert!(!sender.pass(&mut rest, false) && rest.is_empty());
    }

    #[test]
    fn the_end_of_the_rings_is_known_and_what_they_told_can_still_be_taken() {
        let sender = Arc::new(ThreadSwitchSender::default());
        let follower = ThreadSwitchReceiver::new(Arc::clone(&sender), || {});
        sender.pass(&mut thread_switches(3), false);
        assert!(follower.is_open());
        drop(sender);
        follower.refill(5);
        assert_eq!((follower.is_open(), follower.complete()), (false, 5));
        let mut taken = Vec::new();
        assert!(!follower.take(&mut taken));
        assert_eq!(taken.len(), 3);
    }
}
