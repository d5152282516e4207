//! Tracking of system calls from entry to exit.

use rustc_hash::FxHashMap;

use super::names::Call;
use crate::sched::Thread;

/// Maximum number of threads in calls.
const MAX: usize = 1 << 17;
/// Largest error number (`MAX_ERRNO`). Results from -`MAX_ERRNO` to -1 are errors; others are numbers or addresses.
const MAX_ERRNO: i64 = 4095;

/// Call in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingCall {
    /// Calling thread.
    pub thread: Thread,
    /// System call.
    pub call: Call,
    /// Start time in nanoseconds, on the clock of the records.
    pub time: u64,
    /// CPU on which it started.
    pub cpu: u32,
}

/// Completed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedCall {
    /// Calling thread.
    pub thread: Thread,
    /// System call.
    pub call: Call,
    /// End time in nanoseconds, on the clock of the records.
    pub time: u64,
    /// Duration in nanoseconds.
    pub took: u64,
    /// Return value.
    pub result: i64,
}

impl CompletedCall {
    /// Returns the error number, if the call failed.
    pub fn error(&self) -> Option<u16> {
        let number = self.result.checked_neg().filter(|number| (1..=MAX_ERRNO).contains(number))?;
        u16::try_from(number).ok()
    }
}

/// Counters of calls that could not be measured; monotonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Untracked {
    /// Exits without an observed entry: the call started before tracing.
    pub unbegun: u64,
    /// Entries that were followed by another entry or by the exit of another call.
    pub unended: u64,
    /// Exits with an earlier time than their entry.
    pub backwards: u64,
    /// Calls in progress when records were lost.
    pub dropped: u64,
    /// Entries that were dropped because the table was full.
    pub full: u64,
}

/// Call state of a thread.
#[derive(Debug, Clone, Copy)]
enum CallState {
    /// Tracked call.
    Tracked(PendingCall),
    /// Untracked call: its exit is ignored.
    Ignored,
}

/// Calls in progress.
#[derive(Debug, Default)]
pub struct Calls {
    states: FxHashMap<u32, CallState>,
    untracked: Untracked,
}

impl Calls {
    /// Handles the entry of a call.
    #[inline]
    pub fn begin(&mut self, begun: PendingCall) {
        if self.has_room(begun.thread.tid) {
            let before = self.states.insert(begun.thread.tid, CallState::Tracked(begun));
            self.untracked.unended += u64::from(matches!(before, Some(CallState::Tracked(_))));
        } else {
            self.untracked.full += 1;
        }
    }

    /// Marks a thread as being in an untracked call whose exit may be recorded: another call has the same number, or the call created the
    /// thread.
    #[inline]
    pub fn ignore(&mut self, tid: u32) {
        if self.has_room(tid) {
            let before = self.states.insert(tid, CallState::Ignored);
            self.untracked.unended += u64::from(matches!(before, Some(CallState::Tracked(_))));
        }
    }

    #[inline]
    fn has_room(&self, tid: u32) -> bool {
        self.states.len() < MAX || self.states.contains_key(&tid)
    }

    /// Handles the exit of a call, and returns the completed call if its entry is known.
    #[inline]
    pub fn end(&mut self, tid: u32, number: u32, time: u64, result: i64) -> Option<CompletedCall> {
        let begun = match self.states.remove(&tid) {
            Some(CallState::Tracked(begun)) => begun,
            Some(CallState::Ignored) => return None,
            None => {
                self.untracked.unbegun += 1;
                return None;
            }
        };
        // A signal handler returns to the interrupted call, under its number or under none.
        if begun.call.number != number {
            self.untracked.unended += 1;
            return None;
        }
        let Some(took) = time.checked_sub(begun.time) else {
            self.untracked.backwards += 1;
            return None;
        };
        let PendingCall { thread, call, .. } = begun;
        Some(CompletedCall { thread, call, time, took, result })
    }

    /// Handles the exit of a thread.
    pub fn forget(&mut self, tid: u32) {
        self.states.remove(&tid);
    }

    /// Discards all calls in progress after lost records.
    pub fn mark_gap(&mut self) {
        self.untracked.dropped += self.followed().count() as u64;
        self.states.clear();
    }

    /// Returns the calls that have been running longer than `threshold` nanoseconds, with their age.
    pub fn stuck(&self, now: u64, threshold: u64) -> impl Iterator<Item = (&PendingCall, u64)> {
        let aged = self.followed().map(move |begun| (begun, now.saturating_sub(begun.time)));
        aged.filter(move |&(_, age)| age > threshold)
    }

    fn followed(&self) -> impl Iterator<Item = &PendingCall> {
        self.states.values().filter_map(|states| match states {
            CallState::Tracked(begun) => Some(begun),
            CallState::Ignored => None,
        })
    }

    /// Returns the counters of calls that could not be measured.
    pub fn untracked(&self) -> Untracked {
        self.untracked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall::Abi;

    fn begun(tid: u32, number: u32, time: u64) -> PendingCall {
        let thread = Thread { tid, pid: tid, ..Thread::default() };
        PendingCall { thread, call: Call { abi: Abi::X86_64, number }, time, cpu: 0 }
    }

    #[test]
    fn a_call_takes_from_its_beginning_to_its_end() {
        let mut calls = Calls::default();
        calls.begin(begun(1, 35, 100));
        calls.begin(begun(2, 202, 110));
        let ended = calls.end(1, 35, 160, 0).unwrap();
        assert_eq!((ended.took, ended.error(), ended.call.to_string()), (60, None, "nanosleep".to_owned()));
        assert_eq!(calls.end(2, 202, 120, -110).unwrap().error(), Some(110));
        assert_eq!((calls.states.len(), calls.untracked()), (0, Untracked::default()));
    }

    #[test]
    fn an_address_is_no_error() {
        let error = |result| {
            let mut calls = Calls::default();
            calls.begin(begun(1, 9, 0));
            calls.end(1, 9, 1, result).unwrap().error()
        };
        let cases =
            [(0, None), (-1, Some(1)), (-4095, Some(4095)), (-4096, None), (i64::MIN, None), (1 << 47, None)];
        cases.into_iter().for_each(|(result, expected)| assert_eq!(error(result), expected, "{result}"));
    }

    #[test]
    fn what_has_no_beginning_no_end_or_the_wrong_times_is_counted() {
        let mut calls = Calls::default();
        assert_eq!(calls.end(1, 56, 10, 0), None);
        calls.begin(begun(1, 0, 20));
        calls.begin(begun(1, 1, 30));
        assert_eq!(calls.end(1, 0, 40, 0), None);
        calls.begin(begun(1, 1, 50));
        assert_eq!(calls.end(1, 1, 49, 0), None);
        calls.begin(begun(1, 1, 60));
        calls.mark_gap();
        assert_eq!(calls.end(1, 1, 70, 0), None);
        let expected = Untracked { unbegun: 2, unended: 2, backwards: 1, dropped: 1, full: 0 };
        assert_eq!(calls.untracked(), expected);
    }

    #[test]
    fn the_end_of_a_call_that_is_not_followed_tells_nothing() {
        let mut calls = Calls::default();
        calls.ignore(1);
        assert_eq!(calls.end(1, 3, 10, 0), None);
        calls.ignore(1);
        assert_eq!(calls.stuck(10_000, 0).count(), 0);
        calls.begin(begun(1, 0, 20));
        assert!(calls.end(1, 0, 30, 0).is_some(), "the exit of the untracked call was not recorded");
        assert_eq!((calls.states.len(), calls.untracked()), (0, Untracked::default()));
        calls.begin(begun(1, 0, 40));
        calls.ignore(1);
        calls.mark_gap();
        assert_eq!(calls.untracked(), Untracked { unended: 1, ..Untracked::default() });
    }

    #[test]
    fn who_is_stuck_is_told_with_the_call_and_for_how_long() {
        let mut calls = Calls::default();
        calls.begin(begun(1, 35, 1_000));
        calls.begin(begun(2, 35, 9_000));
        let stuck: Vec<(u32, u64)> =
            calls.stuck(10_000, 5_000).map(|(begun, age)| (begun.thread.tid, age)).collect();
        assert_eq!(stuck, [(1, 9_000)]);
        calls.forget(1);
        assert_eq!(calls.stuck(10_000, 5_000).count(), 0);
    }
}
