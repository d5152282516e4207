//! What was counted, by who counted it.

use std::time::Duration;

use crate::register::{CgroupPaths, Task};
use crate::target::CgroupId;

/// Who did what a record tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Nobody: the CPU had nothing to do.
    Idle,
    /// A cgroup. Its number 1 is the root of the hierarchy, where the idle task and the kernel's threads are as well.
    Cgroup(CgroupId),
    /// A process.
    Task(Task),
    /// It cannot be said who.
    Nobody(Reason),
}

/// Why a count has no owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Records were lost before this one: the ring was full.
    Lost,
    /// The counters were not on the PMU for a part of it.
    Rotated,
    /// The kernel wrote no record of a switch in between: somebody else ran as well.
    Unrecorded,
    /// The process had no id any more, or there were too many owners to tell this one from others.
    Unknown,
    /// It was counted after the last record, when the counters were closed.
    Ended,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Lost, Self::Rotated, Self::Unrecorded, Self::Unknown, Self::Ended];

    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Rotated => "rotated",
            Self::Unrecorded => "unrecorded",
            Self::Unknown => "unknown",
            Self::Ended => "ended",
        }
    }
}

/// How many rows there are at most: anybody may create processes, and give them one name after the other.
const MOST: usize = 1 << 17;

/// A row of the table. Those of idle time and of counts without an owner are always there, in front.
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

/// Counts by owner. An owner may stand in several rows: add them up.
#[derive(Debug, Clone)]
pub struct Shares {
    width: usize,
    owners: Vec<Owner>,
    /// For each row `width` counts, then nanoseconds of CPU time.
    counts: Vec<u64>,
    pub(super) created: CgroupPaths,
}

impl Shares {
    /// Nothing yet, of `width` counters.
    pub(super) fn new(width: usize) -> Self {
        let mut shares =
            Self { width, owners: Vec::new(), counts: Vec::new(), created: CgroupPaths::default() };
        shares.add_row(Owner::Idle);
        for reason in Reason::ALL {
            shares.add_row(Owner::Nobody(reason));
        }
        shares
    }

    /// A new row; `None` if there are too many.
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
        self.counts.len() < MOST * (self.width + 1)
    }

    fn grow(&mut self) {
        self.counts.resize(self.counts.len() + self.width + 1, 0);
    }

    /// The counts of a row, and behind them its CPU time.
    pub(super) fn row(&mut self, row: Row) -> &mut [u64] {
        let start = row.0 as usize * (self.width + 1);
        self.counts.get_mut(start..start + self.width + 1).unwrap_or_default()
    }

    /// Returns the cgroups that were created.
    pub fn created(&self) -> &CgroupPaths {
        &self.created
    }

    /// Every owner with what it counted, a number for each counter of the stream, and the CPU time in which it did.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, &[u64], Duration)> {
        let rows = self.counts.chunks_exact(self.width + 1);
        self.owners.iter().zip(rows).filter_map(|(owner, row)| {
            let (&time, counts) = row.split_last()?;
            Some((owner, counts, Duration::from_nanos(time)))
        })
    }
}
