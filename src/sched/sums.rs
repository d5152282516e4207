//! Aggregation of scheduler facts by owner.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::event::PrevState;
use super::timeline::{SchedFact, SwitchIn, SwitchOut, Thread};
use crate::metrics::{Buckets, Histogram};
use crate::named_enum::named_enum;

/// Maximum number of owners between two collections.
const MAX: usize = 1 << 16;
/// Maximum number of pairs of a preempted owner and a preempting cgroup.
const MAX_PAIRS: usize = 1 << 14;

named_enum! {
    /// Kind of the preempting task.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Preemptor {
        /// Another thread of the same cgroup.
        Own = "own",
        /// A thread of another cgroup.
        Other = "other",
        /// Kernel thread.
        Kernel = "kernel",
        /// Idle task, although the preempted thread is runnable: its cgroup has exhausted its CPU quota, or the thread is being migrated.
        Throttled = "throttled",
        /// Unknown, because the cgroup of one of the threads is unknown.
        Unknown = "unknown",
    }
}

impl Preemptor {
    /// Determines the kind of the incoming task that preempted a thread.
    fn of(thread: &Thread, next: &Thread) -> Self {
        match next {
            next if next.tid == 0 => Self::Throttled,
            next if next.kernel => Self::Kernel,
            next if next.cgroup == 0 || thread.cgroup == 0 => Self::Unknown,
            next if next.cgroup == thread.cgroup => Self::Own,
            _ => Self::Other,
        }
    }
}

/// Longest run queue latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Longest {
    /// Latency in nanoseconds.
    pub delay: u64,
    /// Delayed thread.
    pub thread: Thread,
    /// Time when it ended, on the clock of the records.
    pub time: u64,
    /// CPU on which it ended.
    pub cpu: u32,
}

/// Facts of an owner's threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    /// Time on a CPU, in nanoseconds.
    pub ran: u64,
    /// Time off the CPU by state, in nanoseconds: preempted, sleeping, blocked.
    pub waited: [u64; 3],
    /// Histogram of run queue latencies in seconds; they are part of `waited`.
    pub delays: Histogram,
    /// Number of voluntary context switches.
    pub voluntary: u64,
    /// Number of preemptions by kind of the preempting task, in the order of [`Preemptor::ALL`].
    pub preempted: [u64; Preemptor::ALL.len()],
    /// Number of migrations to another CPU.
    pub migrations: u64,
    /// Longest run queue latency.
    pub longest: Option<Longest>,
}

impl Sum {
    fn new(buckets: &Buckets) -> Self {
        Self {
            ran: 0,
            waited: [0; 3],
            delays: Histogram::of(buckets),
            voluntary: 0,
            preempted: [0; Preemptor::ALL.len()],
            migrations: 0,
            longest: None,
        }
    }

    fn switch_in(&mut self, thread: &Thread, switch_in: &SwitchIn) {
        if let Some((prev_state, waited)) = switch_in.wait
            && let Some(sum) = self.waited.get_mut(prev_state as usize)
        {
            *sum = sum.saturating_add(waited);
        }
        if let Some(delay) = switch_in.delay {
            self.delays.observe(delay as f64 / 1e9);
            if self.longest.is_none_or(|longest| longest.delay < delay) {
                self.longest =
                    Some(Longest { delay, thread: *thread, time: switch_in.time, cpu: switch_in.cpu });
            }
        }
    }

    fn switch_out(&mut self, thread: &Thread, switch_out: &SwitchOut) {
        if switch_out.prev_state != PrevState::Preempted {
            self.voluntary += 1;
        } else if let Some(count) = self.preempted.get_mut(Preemptor::of(thread, &switch_out.next) as usize) {
            *count += 1;
        }
    }

    /// Adds the values of another sum.
    pub fn merge(&mut self, other: &Self) {
        let add = |ours: &mut u64, theirs: u64| *ours = ours.saturating_add(theirs);
        add(&mut self.ran, other.ran);
        self.waited.iter_mut().zip(other.waited).for_each(|(ours, theirs)| add(ours, theirs));
        self.delays.merge(&other.delays);
        add(&mut self.voluntary, other.voluntary);
        self.preempted.iter_mut().zip(other.preempted).for_each(|(ours, theirs)| add(ours, theirs));
        add(&mut self.migrations, other.migrations);
        let longest = [self.longest, other.longest].into_iter().flatten();
        self.longest = longest.max_by_key(|longest| longest.delay);
    }
}

/// Values aggregated since the previous [`Sums::take`].
#[derive(Debug, Clone, PartialEq)]
pub struct SchedTotals<O> {
    /// Sums by owner; `None` is the sum of all owners that were not stored because the table was full.
    pub sums: Vec<(Option<O>, Sum)>,
    /// Preemptions by another cgroup: preempted owner, preempting cgroup, number.
    pub pairs: Vec<(O, u64, u64)>,
    /// Preemptions by another cgroup that were not recorded as pairs because the table was full.
    pub unpaired: u64,
}

impl<O> Default for SchedTotals<O> {
    fn default() -> Self {
        Self { sums: Vec::new(), pairs: Vec::new(), unpaired: 0 }
    }
}

/// Aggregates facts by owner. The caller defines the owners.
#[derive(Debug)]
pub struct Sums<O> {
    buckets: Buckets,
    places: FxHashMap<Option<O>, usize>,
    /// Owner of the last fact with its index in `sums`: several facts of one thread follow each other.
    last: Option<(O, usize)>,
    sums: Vec<(Option<O>, Sum)>,
    pairs: FxHashMap<(O, u64), u64>,
    unpaired: u64,
}

impl<O: Copy + Eq + Hash> Sums<O> {
    /// Creates an empty aggregation with latency `buckets` in seconds.
    pub fn new(buckets: Buckets) -> Self {
        Self {
            buckets,
            places: FxHashMap::default(),
            last: None,
            sums: Vec::new(),
            pairs: FxHashMap::default(),
            unpaired: 0,
        }
    }

    /// Adds a fact of a thread. Facts of idle tasks are not attributed.
    #[inline]
    pub fn add(&mut self, owner: O, thread: &Thread, report: &SchedFact) {
        if thread.tid == 0 {
            return;
        }
        let sum = self.sum(owner);
        match report {
            SchedFact::SwitchIn(switch_in) => sum.switch_in(thread, switch_in),
            SchedFact::Ran(nanoseconds) => sum.ran = sum.ran.saturating_add(*nanoseconds),
            SchedFact::Migrated => sum.migrations += 1,
            SchedFact::SwitchOut(switch_out) => {
                sum.switch_out(thread, switch_out);
                if switch_out.prev_state == PrevState::Preempted
                    && Preemptor::of(thread, &switch_out.next) == Preemptor::Other
                {
                    self.pair(owner, switch_out.next.cgroup);
                }
            }
        }
    }

    /// Returns the aggregated values and resets them.
    pub fn take(&mut self) -> SchedTotals<O> {
        self.places.clear();
        self.last = None;
        let pairs = self.pairs.drain().map(|((whose, by), count)| (whose, by, count)).collect();
        SchedTotals {
            sums: std::mem::take(&mut self.sums),
            pairs,
            unpaired: std::mem::take(&mut self.unpaired),
        }
    }

    #[inline]
    fn sum(&mut self, owner: O) -> &mut Sum {
        let place = match self.last {
            Some((last, place)) if last == owner => place,
            _ => {
                let place = self.place(owner);
                self.last = Some((owner, place));
                place
            }
        };
        // In bounds: the indexes refer to entries pushed since all of these were cleared.
        &mut self.sums[place].1
    }

    /// Returns the index of the sum of an owner, and adds the sum if there is none.
    fn place(&mut self, owner: O) -> usize {
        let mut owner = Some(owner);
        if self.sums.len() >= MAX && !self.places.contains_key(&owner) {
            owner = None;
        }
        let (sums, buckets) = (&mut self.sums, &self.buckets);
        *self.places.entry(owner).or_insert_with(|| {
            sums.push((owner, Sum::new(buckets)));
            sums.len() - 1
        })
    }

    fn pair(&mut self, whose: O, by: u64) {
        if self.pairs.len() < MAX_PAIRS || self.pairs.contains_key(&(whose, by)) {
            *self.pairs.entry((whose, by)).or_default() += 1;
        } else {
            self.unpaired += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, cgroup: u64) -> Thread {
        Thread { tid, pid: tid, cgroup, ..Thread::default() }
    }

    fn switch_in(delay: u64, prev_state: PrevState, waited: u64) -> SchedFact {
        SchedFact::SwitchIn(SwitchIn {
            time: 1000,
            cpu: 3,
            delay: Some(delay),
            wait: Some((prev_state, waited)),
            migrated: None,
        })
    }

    fn switch_out(prev_state: PrevState, next: Thread) -> SchedFact {
        SchedFact::SwitchOut(SwitchOut { time: 2000, cpu: 3, switch_in: None, prev_state, next })
    }

    fn sums() -> Sums<u64> {
        Sums::new(Buckets::exponential("seconds"))
    }

    #[test]
    fn waits_are_put_down_to_how_threads_had_left_and_the_longest_delay_is_remembered() {
        let mut sums = sums();
        let web = thread(1, 10);
        sums.add(7, &web, &switch_in(5, PrevState::Sleeping, 50));
        sums.add(7, &thread(2, 10), &switch_in(9, PrevState::Blocked, 70));
        for report in [switch_in(7, PrevState::Preempted, 7), SchedFact::Ran(11), SchedFact::Migrated] {
            sums.add(7, &web, &report);
        }
        let taken = sums.take();
        let [(Some(7), sum)] = &taken.sums[..] else { panic!("{taken:?}") };
        assert_eq!((sum.waited, sum.ran, sum.migrations), ([7, 50, 70], 11, 1));
        let longest = sum.longest.map(|longest| (longest.delay, longest.thread.tid));
        assert_eq!((sum.delays.count(), longest), (3, Some((9, 2))));
        assert_eq!(sums.take().sums, []);
    }

    #[test]
    fn who_is_preempted_is_told_by_whom() {
        let mut sums = sums();
        let web = thread(1, 10);
        let kernel = Thread { kernel: true, ..thread(9, 1) };
        let others = [thread(2, 10), thread(3, 11), thread(4, 11), kernel, Thread::default(), thread(5, 0)];
        others.into_iter().for_each(|next| sums.add(7, &web, &switch_out(PrevState::Preempted, next)));
        sums.add(7, &web, &switch_out(PrevState::Sleeping, thread(3, 11)));
        let taken = sums.take();
        assert_eq!((taken.sums[0].1.preempted, taken.sums[0].1.voluntary), ([1, 2, 1, 1, 1], 1));
        assert_eq!(taken.pairs, [(7, 11, 2)]);
    }

    #[test]
    fn owners_add_up_to_what_one_owner_of_all_has() {
        let added = |owner: fn(u64) -> u64| {
            let mut sums = sums();
            for tid in 0..6 {
                let thread = thread(tid as u32 + 1, 10);
                sums.add(owner(tid), &thread, &switch_in(tid * 100, PrevState::Sleeping, 500));
                sums.add(owner(tid), &thread, &SchedFact::Ran(1 + tid));
            }
            let taken = sums.take().sums.into_iter().map(|(_, sum)| sum);
            let whole = |mut one: Sum, other: Sum| {
                one.merge(&other);
                one
            };
            (taken.len(), taken.reduce(whole).unwrap())
        };
        let (apart, together) = (added(|tid| tid % 3), added(|_| 0));
        assert_eq!((apart.0, together.0), (3, 1));
        assert_eq!(apart.1, together.1);
        assert_eq!(together.1.longest.map(|longest| longest.thread.tid), Some(6));
    }

    #[test]
    fn what_idle_tasks_do_is_nobodys() {
        let mut sums = sums();
        sums.add(7, &Thread::default(), &SchedFact::Ran(7));
        assert_eq!(sums.take().sums, []);
    }

    #[test]
    fn a_flood_of_owners_takes_no_more_room_and_loses_nothing() {
        let mut sums = sums();
        let many = MAX as u64 + 10;
        (1..=many).for_each(|owner| sums.add(owner, &thread(1, 10), &SchedFact::Ran(1)));
        let taken = sums.take();
        assert_eq!(taken.sums.len(), MAX + 1);
        assert_eq!(taken.sums.iter().map(|(_, sum)| sum.ran).sum::<u64>(), many);
    }
}
