//! Counts by owner.

use std::time::Duration;

use crate::health::Interval;
use crate::named_enum::named_enum;
use crate::register::{CgroupPaths, Task};
use crate::targets::CgroupId;

/// Owner of counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The CPU was idle.
    Idle,
    /// A cgroup. ID 1 is the root of the hierarchy, which also contains the idle task and the kernel's threads.
    Cgroup(CgroupId),
    /// A process.
    Task(Task),
    /// The owner cannot be determined.
    Unattributed(Reason),
}

named_enum! {
    /// Reason why a count has no owner.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Reason {
        /// Records before this one were lost: the ring was full.
        Lost = "lost",
        /// The counters were off the PMU, and too many owners were on the CPU meanwhile to distinguish them.
        Rotated = "rotated",
        /// The kernel wrote no record of a switch in between: another task ran as well.
        Unrecorded = "unrecorded",
        /// The process had no pid any more, or the table of owners was full.
        Unknown = "unknown",
        /// It was counted after the last record, before the counters were closed.
        Ended = "ended",
    }
}

/// Maximum number of rows: any user can create processes, and change their names any number of times.
const MAX: usize = 1 << 17;

/// A row of the table. The first rows are those of idle time and of counts without an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row(u32);

impl Row {
    pub(super) const IDLE: Self = Self(0);

    pub(super) const fn of(reason: Reason) -> Self {
        Self(1 + reason as u32)
    }

    /// Returns the row of a task. A stream that distinguishes processes has no rows of cgroups.
    pub(super) const fn of_task(number: u32) -> Self {
        Self(1 + Reason::ALL.len() as u32 + number)
    }
}

/// Counts by owner. An owner may have several rows, to be added up.
#[derive(Debug, Clone)]
pub struct Shares {
    width: usize,
    /// Whether hardware events, which may be off the PMU, are among the counters.
    rotates: bool,
    owners: Vec<Owner>,
    /// For each row: `width` counts, then nanoseconds of CPU time. If hardware events are counted, then for each counter the nanoseconds in
    /// which it was enabled, then for each counter the nanoseconds in which it was running.
    counts: Vec<u64>,
    pub(super) created: CgroupPaths,
}

/// Counts of one owner, not scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share<'a> {
    /// The count of each counter of the stream.
    pub counts: &'a [u64],
    /// The CPU time of the owner.
    pub time: Duration,
    /// For each counter the nanoseconds in which it was enabled, then for each counter those in which it was running. Empty if no hardware
    /// events are counted.
    presence: &'a [u64],
}

#[cfg(test)]
impl<'a> Share<'a> {
    /// Returns a share with the enabled time of each counter, then the running time of each.
    pub(crate) fn of(counts: &'a [u64], presence: &'a [u64]) -> Self {
        Self { counts, time: Duration::ZERO, presence }
    }
}

impl Share<'_> {
    /// Returns the owner's time on the CPU, and the part of it in which a hardware event was on the PMU. Zero for software events, which
    /// need no PMU.
    pub fn presence(&self, counter: usize) -> Interval {
        let width = self.counts.len();
        let time = |field: usize| self.presence.get(field * width + counter).copied().unwrap_or(0);
        Interval { enabled: time(0), running: time(1) }
    }

    /// Reports whether all values are zero.
    pub fn is_empty(&self) -> bool {
        let zero = |numbers: &[u64]| numbers.iter().all(|&number| number == 0);
        self.time.is_zero() && zero(self.counts) && zero(self.presence)
    }
}

/// A counter of the stream, and the member of a group that provides it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Provided {
    pub member: usize,
    pub counter: usize,
}

impl Shares {
    /// Returns empty shares of `width` counters. `rotates`: whether some of the counters count hardware events.
    pub(super) fn new(width: usize, rotates: bool) -> Self {
        let (owners, counts, created) = (Vec::new(), Vec::new(), CgroupPaths::default());
        let mut shares = Self { width, rotates, owners, counts, created };
        shares.add_row(Owner::Idle);
        for reason in Reason::ALL {
            shares.add_row(Owner::Unattributed(reason));
        }
        shares
    }

    /// Takes everything, and leaves empty shares of the same counters.
    pub(super) fn take(&mut self) -> Self {
        let empty = Self::new(self.width, self.rotates);
        std::mem::replace(self, empty)
    }

    /// Adds a row; `None` if the table is full.
    pub(super) fn add_row(&mut self, owner: Owner) -> Option<Row> {
        let row = u32::try_from(self.owners.len()).ok().filter(|_| self.has_room())?;
        self.owners.push(owner);
        self.grow();
        Some(Row(row))
    }

    /// Adds the row of a new task. Numbers of tasks are consecutive.
    pub(super) fn add_task_row(&mut self, number: u32) -> Row {
        self.grow();
        Row::of_task(number)
    }

    /// Sets the owners of the rows of tasks, which are in the order of their numbers.
    pub(super) fn add_tasks(&mut self, tasks: Vec<Task>) {
        self.owners.extend(tasks.into_iter().map(Owner::Task));
    }

    pub(super) fn has_room(&self) -> bool {
        self.counts.len() < MAX * self.stride()
    }

    /// Returns the number of values in a row.
    fn stride(&self) -> usize {
        self.width + 1 + if self.rotates { 2 * self.width } else { 0 }
    }

    fn grow(&mut self) {
        self.counts.resize(self.counts.len() + self.stride(), 0);
    }

    fn row(&mut self, row: Row) -> &mut [u64] {
        let stride = self.stride();
        let start = row.0 as usize * stride;
        self.counts.get_mut(start..start + stride).unwrap_or_default()
    }

    /// Adds the counts of the members of a group, and nanoseconds of CPU time, to a row.
    #[inline]
    pub(super) fn attribute(&mut self, row: Row, provided: &[Provided], counted: &[u64], time: u64) {
        let width = self.width;
        let row = self.row(row);
        if let Some(total) = row.get_mut(width) {
            *total = total.saturating_add(time);
        }
        for &Provided { member, counter } in provided {
            if let (Some(total), Some(&raw)) = (row.get_mut(counter), counted.get(member)) {
                *total = total.saturating_add(raw);
            }
        }
    }

    /// Adds the time in which the counters of a group were on the PMU to a row.
    pub(super) fn attribute_presence(&mut self, row: Row, provided: &[Provided], presence: Interval) {
        let width = self.width;
        let row = self.row(row);
        for &Provided { counter, .. } in provided {
            for (field, time) in [presence.enabled, presence.running].into_iter().enumerate() {
                if let Some(total) = row.get_mut((field + 1) * width + 1 + counter) {
                    *total = total.saturating_add(time);
                }
            }
        }
    }

    /// Distributes counts over consecutive rows. Each row comes with the nanoseconds in which the counters were on the PMU for it. A row
    /// gets the share that corresponds to its rate so far. If a rate is unknown, all rows are assumed to have the same rate.
    pub(super) fn attribute_shared(&mut self, rows: &[(Row, u64)], provided: &[Provided], counted: &[u64]) {
        let (width, mut expected) = (self.width, Vec::with_capacity(rows.len()));
        for &Provided { member, counter } in provided {
            expected.clear();
            for &(row, seen) in rows {
                let row = self.row(row);
                let [count, running] =
                    [counter, 2 * width + 1 + counter].map(|place| row.get(place).copied().unwrap_or(0));
                expected.push((running > 0).then(|| count as f64 / running as f64 * seen as f64));
            }
            let known: f64 = expected.iter().flatten().sum();
            let is_known = known > 0.0 && expected.iter().all(Option::is_some);
            let all = if is_known { known } else { rows.iter().map(|&(_, seen)| seen as f64).sum() };
            let mut rest = counted.get(member).copied().unwrap_or(0);
            let raw = rest as f64;
            for (place, (&(row, seen), expected)) in rows.iter().zip(&expected).enumerate() {
                let part = if is_known { expected.unwrap_or(0.0) } else { seen as f64 };
                let is_last = place + 1 == rows.len();
                // NaN becomes 0.
                let count = if is_last { rest } else { ((raw * (part / all)) as u64).min(rest) };
                rest -= count;
                if let Some(total) = self.row(row).get_mut(counter) {
                    *total = total.saturating_add(count);
                }
            }
        }
    }

    /// Returns the cgroups that were created.
    pub fn created(&self) -> &CgroupPaths {
        &self.created
    }

    /// Returns every owner with its counts.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, Share<'_>)> {
        let rows = self.counts.chunks_exact(self.stride());
        self.owners.iter().zip(rows).filter_map(|(owner, row)| {
            let (counts, rest) = row.split_at_checked(self.width)?;
            let (&time, presence) = rest.split_first()?;
            Some((owner, Share { counts, time: Duration::from_nanos(time), presence }))
        })
    }
}
