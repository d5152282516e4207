//! What was counted, by who counted it.

use std::sync::Arc;
use std::time::Duration;

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

/// A process, in one cgroup and under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub pid: u32,
    /// Its name at that time; `None` if no record told it.
    pub comm: Option<Arc<str>>,
    /// Whether the kernel started it for itself; `None` if no record told.
    pub kernel: Option<bool>,
    /// Whether it is still what the id stands for, under this name.
    pub current: bool,
    /// Its cgroup, if records carry it.
    pub cgroup: Option<CgroupId>,
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
}

/// Counts by owner. An owner may stand in several rows: add them up.
#[derive(Debug, Clone)]
pub struct Shares {
    width: usize,
    owners: Vec<Owner>,
    /// For each row `width` counts, then nanoseconds of CPU time.
    counts: Vec<u64>,
}

impl Shares {
    /// Nothing yet, of `width` counters.
    pub(super) fn new(width: usize) -> Self {
        let mut shares = Self { width, owners: Vec::new(), counts: Vec::new() };
        shares.add_row(Owner::Idle);
        for reason in Reason::ALL {
            shares.add_row(Owner::Nobody(reason));
        }
        shares
    }

    /// A new row; `None` if there are too many.
    pub(super) fn add_row(&mut self, owner: Owner) -> Option<Row> {
        let row = u32::try_from(self.owners.len()).ok().filter(|_| self.owners.len() < MOST)?;
        self.owners.push(owner);
        self.counts.resize(self.counts.len() + self.width + 1, 0);
        Some(Row(row))
    }

    /// The counts of a row, and behind them its CPU time.
    pub(super) fn row(&mut self, row: Row) -> &mut [u64] {
        let start = row.0 as usize * (self.width + 1);
        self.counts.get_mut(start..start + self.width + 1).unwrap_or_default()
    }

    pub(super) fn owner_mut(&mut self, row: Row) -> Option<&mut Owner> {
        self.owners.get_mut(row.0 as usize)
    }

    pub(super) fn owners_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        self.owners.iter_mut()
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
