//! Waits for a CPU: which cgroups ran on it meanwhile, and the longest of them. Derived from [recent runs](super::RecentRuns).

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::runs::{Chunk, Run};
use super::timeline::Thread;
use crate::clock::Timestamp;
use crate::host::is_within;

/// Length of the steps in which the worst time is searched, in nanoseconds.
const STEP: u64 = 100_000_000;

/// What ran on a CPU while a thread waited for it. Times are in nanoseconds; several threads that wait at once count each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meanwhile {
    /// Number of waits.
    pub waits: u64,
    /// Their time.
    pub waited: u64,
    /// Part of it in which a thread of the same cgroup or of one below it ran.
    pub own: u64,
    /// Part of it in which a kernel thread ran.
    pub kernel: u64,
    /// Part of it in which the CPU was idle: the cgroup had exhausted its CPU quota, or the CPU was waking up.
    pub idle: u64,
    /// Parts of it in which other cgroups ran, the largest first. A cgroup without a known path is not among them.
    pub others: Vec<(Arc<str>, u64)>,
}

/// A long wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The thread.
    pub thread: Thread,
    /// The CPU on which the thread ran at last.
    pub cpu: u32,
    /// Time at which it ran.
    pub at: Timestamp,
    /// Length in nanoseconds.
    pub delay: u64,
}

/// The runs of a time, and the cgroup that they are examined for.
#[derive(Debug, Clone, Copy)]
pub struct Examined<'c> {
    /// Chunks in the order of time.
    pub chunks: &'c [Arc<Chunk>],
    /// The cgroup; `None`: all threads.
    pub cgroup: Option<&'c str>,
    /// Runs that end before are left out.
    pub since: Timestamp,
}

impl<'c> Examined<'c> {
    /// Returns the runs with their chunks.
    fn runs(self) -> impl Iterator<Item = (&'c Chunk, Run<'c>)> {
        self.chunks.iter().flat_map(move |chunk| {
            let since = chunk.kernel(self.since);
            chunk.runs().filter(move |run| run.until >= since).map(move |run| (&**chunk, run))
        })
    }

    fn is_own(self, chunk: &Chunk, thread: &Thread) -> bool {
        self.cgroup.is_none_or(|outer| chunk.path(thread.cgroup).is_some_and(|path| is_within(path, outer)))
    }

    /// Returns the delayed runs of the cgroup with their chunks.
    fn delayed(self) -> impl Iterator<Item = (&'c Chunk, Run<'c>)> {
        self.runs().filter(move |(chunk, run)| run.delay > 0 && self.is_own(chunk, run.thread))
    }

    /// Returns what ran while threads of the cgroup waited. A thread that was moved to another CPU is considered to have waited for that
    /// one all the time.
    pub fn meanwhile(self) -> Meanwhile {
        let mut found = Meanwhile::default();
        let mut waiting: FxHashMap<u32, Waiting> = FxHashMap::default();
        for (_, run) in self.delayed() {
            found.waits += 1;
            found.waited += run.delay;
            let changes = &mut waiting.entry(run.cpu).or_default().changes;
            changes.extend([(run.from.saturating_sub(run.delay), 1), (run.from, -1)]);
        }
        waiting.values_mut().for_each(|waiting| waiting.changes.sort_unstable());
        let mut others: FxHashMap<&Arc<str>, u64> = FxHashMap::default();
        for (chunk, run) in self.runs() {
            let Some(waiting) = waiting.get_mut(&run.cpu) else { continue };
            let idle = waiting.until(run.from);
            // Before its first run, nothing is known about a CPU.
            if std::mem::replace(&mut waiting.is_known, true) {
                found.idle += idle;
            }
            let waited = waiting.until(run.until);
            if run.thread.kernel {
                found.kernel += waited;
            } else if self.is_own(chunk, run.thread) {
                found.own += waited;
            } else if let Some(path) = chunk.path(run.thread.cgroup) {
                *others.entry(path).or_default() += waited;
            }
        }
        let others = others.into_iter().filter(|(_, waited)| *waited > 0);
        found.others = others.map(|(path, waited)| (Arc::clone(path), waited)).collect();
        found.others.sort_unstable_by(|one, other| (other.1, &one.0).cmp(&(one.1, &other.0)));
        found
    }

    /// Returns the longest waits, the longest first, at most one of each thread.
    pub fn longest(self, most: usize) -> Vec<Wait> {
        let mut longest: FxHashMap<u32, Wait> = FxHashMap::default();
        for (chunk, run) in self.delayed() {
            if longest.get(&run.thread.tid).is_none_or(|known| known.delay < run.delay) {
                let at = chunk.wall(run.from);
                let wait = Wait { thread: *run.thread, cpu: run.cpu, at, delay: run.delay };
                longest.insert(run.thread.tid, wait);
            }
        }
        let mut longest: Vec<Wait> = longest.into_values().collect();
        longest.sort_unstable_by_key(|wait| (std::cmp::Reverse(wait.delay), wait.thread.tid));
        longest.truncate(most);
        longest
    }

    /// Returns the part of the time in which threads of the cgroup waited most, on the clock of the records in nanoseconds: at most `length`
    /// long and with at most `most` runs of any thread. `None` if there are no runs.
    pub fn worst(self, length: u64, most: usize) -> Option<(u64, u64)> {
        let first = self.runs().map(|(_, run)| run.from).min()?;
        let step = |time: u64| (time.saturating_sub(first) / STEP) as usize;
        // The number of runs and the waited time in each step. The time that memory holds is short.
        let mut steps: Vec<(usize, u64)> = Vec::new();
        for (chunk, run) in self.runs() {
            let place = step(run.until);
            if place >= steps.len() {
                steps.resize(place + 1, (0, 0));
            }
            steps[place].0 += 1;
            if self.is_own(chunk, run.thread) {
                steps[place].1 += run.delay;
            }
        }
        let (mut begin, mut runs, mut waited) = (0, 0, 0);
        let mut worst = (0, 0, 0);
        for end in 0..steps.len() {
            (runs, waited) = (runs + steps[end].0, waited + steps[end].1);
            while begin < end && (runs > most || (end + 1 - begin) as u64 * STEP > length) {
                (runs, waited) = (runs - steps[begin].0, waited - steps[begin].1);
                begin += 1;
            }
            // Of equal times, the last one.
            if waited >= worst.0 {
                worst = (waited, begin, end + 1);
            }
        }
        Some((first + worst.1 as u64 * STEP, first + worst.2 as u64 * STEP))
    }
}

/// The number of threads that wait for a CPU, as its changes.
#[derive(Debug, Default)]
struct Waiting {
    /// Times and changes of the number, in the order of time.
    changes: Vec<(u64, i64)>,
    next: usize,
    number: i64,
    reached: u64,
    is_known: bool,
}

impl Waiting {
    /// Returns the time that threads waited since the previous call until this time. Times never decrease.
    fn until(&mut self, time: u64) -> u64 {
        let mut waited = 0;
        let mut advance = |to: u64, number: i64, reached: &mut u64| {
            waited += to.saturating_sub(*reached) * number.unsigned_abs();
            *reached = to.max(*reached);
        };
        while let Some(&(at, change)) = self.changes.get(self.next).filter(|(at, _)| *at <= time) {
            advance(at, self.number, &mut self.reached);
            self.number += change;
            self.next += 1;
        }
        advance(time, self.number, &mut self.reached);
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::runs::tests::{kept, run, thread};
    use crate::sched::{RecentRuns, SchedFact};

    const MS: u64 = 1_000_000;

    fn examined<'c>(chunks: &'c [Arc<Chunk>], cgroup: Option<&'c str>) -> Examined<'c> {
        Examined { chunks, cgroup, since: Timestamp(0) }
    }

    /// Two CPUs. On CPU 0, threads of /1 and /2 take turns; the one of /1 waits for 30 ms each time, of which that of /2 runs for 20 ms
    /// and the CPU is idle for the rest. On CPU 1, /3 runs alone.
    fn machine() -> RecentRuns {
        let (victim, other, alone) = (thread(1, 1), thread(2, 2), thread(3, 3));
        let mut runs: Vec<(Thread, SchedFact)> = Vec::new();
        for round in 1..=5 {
            let begin = round * 40 * MS;
            runs.push((other, run(0, (begin, begin + 20 * MS), 5 * MS)));
            runs.push((alone, run(1, (begin, begin + 40 * MS), 0)));
            runs.push((victim, run(0, (begin + 30 * MS, begin + 40 * MS), 30 * MS)));
        }
        kept(1 << 20, &runs)
    }

    #[test]
    fn a_wait_is_divided_by_what_ran_on_its_cpu() {
        let chunks = machine().chunks();
        let found = examined(&chunks, Some("/1")).meanwhile();
        assert_eq!((found.waits, found.waited), (5, 150 * MS));
        assert_eq!(found.others, [("/2".into(), 100 * MS)], "/3 ran on another CPU");
        assert_eq!((found.idle, found.own, found.kernel), (50 * MS, 0, 0));
    }

    #[test]
    fn threads_that_wait_at_once_count_each() {
        let (one, two, hog) = (thread(1, 1), thread(2, 1), thread(9, 2));
        let runs = [
            (hog, run(0, (10 * MS, 50 * MS), 0)),
            (one, run(0, (50 * MS, 60 * MS), 40 * MS)),
            (two, run(0, (60 * MS, 70 * MS), 50 * MS)),
        ];
        let chunks = kept(1 << 20, &runs).chunks();
        let found = examined(&chunks, Some("/1")).meanwhile();
        assert_eq!(found.others, [("/2".into(), 80 * MS)]);
        assert_eq!((found.own, found.idle), (10 * MS, 0), "the second thread also waited for the first one");
    }

    #[test]
    fn the_longest_wait_of_each_thread_is_listed() {
        let chunks = machine().chunks();
        let longest = examined(&chunks, None).longest(10);
        let listed: Vec<_> = longest.iter().map(|wait| (wait.thread.tid, wait.delay / MS)).collect();
        assert_eq!(listed, [(1, 30), (2, 5)]);
        assert_eq!(examined(&chunks, None).longest(1).len(), 1);
        // The begin of its first run: 70 ms after the boot, which is 930 ms before the moment of the chunk.
        assert_eq!(longest[0].at, Timestamp(4070));
    }

    #[test]
    fn the_worst_time_is_the_one_with_the_longest_waits() {
        let victim = thread(1, 1);
        let runs: Vec<_> = (0..100)
            .map(|step| {
                let delay = if (40..50).contains(&step) { 30 * MS } else { MS };
                (victim, run(0, (step * 100 * MS + 50 * MS, step * 100 * MS + 60 * MS), delay))
            })
            .collect();
        let chunks = kept(1 << 20, &runs).chunks();
        let (from, to) = examined(&chunks, Some("/1")).worst(1_000 * MS, 1000).unwrap();
        assert_eq!((from, to), (4_050 * MS, 5_050 * MS));
        let (from, to) = examined(&chunks, Some("/1")).worst(1_000 * MS, 3).unwrap();
        assert_eq!((from, to), (4_750 * MS, 5_050 * MS), "no more than three runs");
        assert_eq!(examined(&[], None).worst(1_000 * MS, 3), None);
    }

    #[test]
    fn runs_before_the_examined_time_are_left_out() {
        let chunks = machine().chunks();
        // 1000 ms on the clock of the records is 5000 ms: so two rounds end after 4161 ms.
        let since = Examined { since: Timestamp(4161), ..examined(&chunks, Some("/1")) };
        assert_eq!(since.meanwhile().waits, 2);
    }
}
