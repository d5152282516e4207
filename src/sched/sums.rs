//! Aggregation of scheduler facts by owner.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::event::Left;
use super::timeline::{Came, Told, Went, Who};
use crate::metrics::{Buckets, Histogram};
use crate::words::words;

/// Maximum number of owners between two collections.
const MOST: usize = 1 << 16;
/// Maximum number of pairs of a preempted owner and a preempting cgroup.
const MOST_PAIRS: usize = 1 << 14;

words! {
    /// Kind of the preempting task.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum By {
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

impl By {
    /// Determines the kind of the incoming task that preempted a thread.
    fn of(who: &Who, next: &Who) -> Self {
        match next {
            next if next.tid == 0 => Self::Throttled,
            next if next.kernel => Self::Kernel,
            next if next.cgroup == 0 || who.cgroup == 0 => Self::Unknown,
            next if next.cgroup == who.cgroup => Self::Own,
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
    pub who: Who,
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
    /// Number of preemptions by kind of the preempting task, in the order of [`By::ALL`].
    pub preempted: [u64; By::ALL.len()],
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
            preempted: [0; By::ALL.len()],
            migrations: 0,
            longest: None,
        }
    }

    fn came(&mut self, who: &Who, came: &Came) {
        if let Some((left, waited)) = came.wait
            && let Some(sum) = self.waited.get_mut(left as usize)
        {
            *sum = sum.saturating_add(waited);
        }
        if let Some(delay) = came.delay {
            self.delays.observe(delay as f64 / 1e9);
            if self.longest.is_none_or(|longest| longest.delay < delay) {
                self.longest = Some(Longest { delay, who: *who, time: came.time, cpu: came.cpu });
            }
        }
    }

    fn went(&mut self, who: &Who, went: &Went) {
        if went.left != Left::Preempted {
            self.voluntary += 1;
        } else if let Some(count) = self.preempted.get_mut(By::of(who, &went.next) as usize) {
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
pub struct Taken<O> {
    /// Sums by owner; `None` is the sum of all owners that were not stored because the table was full.
    pub sums: Vec<(Option<O>, Sum)>,
    /// Preemptions by another cgroup: preempted owner, preempting cgroup, number.
    pub pairs: Vec<(O, u64, u64)>,
    /// Preemptions by another cgroup that were not recorded as pairs because the table was full.
    pub unpaired: u64,
}

impl<O> Default for Taken<O> {
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
    pub fn add(&mut self, owner: O, who: &Who, told: &Told) {
        if who.tid == 0 {
            return;
        }
        let sum = self.sum(owner);
        match told {
            Told::Came(came) => sum.came(who, came),
            Told::Ran(nanoseconds) => sum.ran = sum.ran.saturating_add(*nanoseconds),
            Told::Migrated => sum.migrations += 1,
            Told::Went(went) => {
                sum.went(who, went);
                if went.left == Left::Preempted && By::of(who, &went.next) == By::Other {
                    self.pair(owner, went.next.cgroup);
                }
            }
        }
    }

    /// Returns the aggregated values and resets them.
    pub fn take(&mut self) -> Taken<O> {
        self.places.clear();
        self.last = None;
        let pairs = self.pairs.drain().map(|((whose, by), count)| (whose, by, count)).collect();
        Taken { sums: std::mem::take(&mut self.sums), pairs, unpaired: std::mem::take(&mut self.unpaired) }
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
        if self.sums.len() >= MOST && !self.places.contains_key(&owner) {
            owner = None;
        }
        let (sums, buckets) = (&mut self.sums, &self.buckets);
        *self.places.entry(owner).or_insert_with(|| {
            sums.push((owner, Sum::new(buckets)));
            sums.len() - 1
        })
    }

    fn pair(&mut self, whose: O, by: u64) {
        if self.pairs.len() < MOST_PAIRS || self.pairs.contains_key(&(whose, by)) {
            *self.pairs.entry((whose, by)).or_default() += 1;
        } else {
            self.unpaired += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(tid: u32, cgroup: u64) -> Who {
        Who { tid, pid: tid, cgroup, ..Who::default() }
    }

    fn came(delay: u64, left: Left, waited: u64) -> Told {
        Told::Came(Came {
            time: 1000,
            cpu: 3,
            delay: Some(delay),
            wait: Some((left, waited)),
            migrated: None,
        })
    }

    fn went(left: Left, next: Who) -> Told {
        Told::Went(Went { time: 2000, cpu: 3, came: None, left, next })
    }

    fn sums() -> Sums<u64> {
        Sums::new(Buckets::exponential("seconds"))
    }

    #[test]
    fn waits_are_put_down_to_how_threads_had_left_and_the_longest_delay_is_remembered() {
        let mut sums = sums();
        let web = who(1, 10);
        sums.add(7, &web, &came(5, Left::Sleeping, 50));
        sums.add(7, &who(2, 10), &came(9, Left::Blocked, 70));
        for told in [came(7, Left::Preempted, 7), Told::Ran(11), Told::Migrated] {
            sums.add(7, &web, &told);
        }
        let taken = sums.take();
        let [(Some(7), sum)] = &taken.sums[..] else { panic!("{taken:?}") };
        assert_eq!((sum.waited, sum.ran, sum.migrations), ([7, 50, 70], 11, 1));
        let longest = sum.longest.map(|longest| (longest.delay, longest.who.tid));
        assert_eq!((sum.delays.count(), longest), (3, Some((9, 2))));
        assert_eq!(sums.take().sums, []);
    }

    #[test]
    fn who_is_preempted_is_told_by_whom() {
        let mut sums = sums();
        let web = who(1, 10);
        let kernel = Who { kernel: true, ..who(9, 1) };
        let others = [who(2, 10), who(3, 11), who(4, 11), kernel, Who::default(), who(5, 0)];
        others.into_iter().for_each(|next| sums.add(7, &web, &went(Left::Preempted, next)));
        sums.add(7, &web, &went(Left::Sleeping, who(3, 11)));
        let taken = sums.take();
        assert_eq!((taken.sums[0].1.preempted, taken.sums[0].1.voluntary), ([1, 2, 1, 1, 1], 1));
        assert_eq!(taken.pairs, [(7, 11, 2)]);
    }

    #[test]
    fn owners_add_up_to_what_one_owner_of_all_has() {
        let added = |owner: fn(u64) -> u64| {
            let mut sums = sums();
            for tid in 0..6 {
                let who = who(tid as u32 + 1, 10);
                sums.add(owner(tid), &who, &came(tid * 100, Left::Sleeping, 500));
                sums.add(owner(tid), &who, &Told::Ran(1 + tid));
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
        assert_eq!(together.1.longest.map(|longest| longest.who.tid), Some(6));
    }

    #[test]
    fn what_idle_tasks_do_is_nobodys() {
        let mut sums = sums();
        sums.add(7, &Who::default(), &Told::Ran(7));
        assert_eq!(sums.take().sums, []);
    }

    #[test]
    fn a_flood_of_owners_takes_no_more_room_and_loses_nothing() {
        let mut sums = sums();
        let many = MOST as u64 + 10;
        (1..=many).for_each(|owner| sums.add(owner, &who(1, 10), &Told::Ran(1)));
        let taken = sums.take();
        assert_eq!(taken.sums.len(), MOST + 1);
        assert_eq!(taken.sums.iter().map(|(_, sum)| sum.ran).sum::<u64>(), many);
    }
}
