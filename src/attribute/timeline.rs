//! The consecutive owners of a CPU, from the records of its software events, which need no PMU.

use std::collections::VecDeque;

use super::shares::Reason;

/// An owner, before its row in the table is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerKey {
    Idle,
    /// The ID of a cgroup.
    Cgroup(u64),
    Task {
        pid: u32,
        cgroup: Option<u64>,
    },
    Unattributed(Reason),
}

/// A time in which one owner was on the CPU, in nanoseconds of the records' clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub begin: u64,
    pub end: u64,
    pub owner: OwnerKey,
}

impl Slice {
    pub(super) fn length(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

/// The time between two records of a group of hardware events.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// Time of the first record.
    pub from: u64,
    /// Time of the second record.
    pub to: u64,
    /// The outgoing owner of the first record, if that is a record of a switch.
    pub left: Option<OwnerKey>,
    /// The owner in the second record.
    pub own: OwnerKey,
    /// Whether the second record is of a switch.
    pub at_switch: bool,
}

/// Maximum difference of the times of the records that two groups write at one switch, in nanoseconds. The kernel writes one after the
/// other, in any order. Emulated guests take tens of microseconds for each.
const SAME_SWITCH: u64 = 100_000;

/// The slices of a CPU that are still needed, the oldest first. Adjacent slices have different owners.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    slices: VecDeque<Slice>,
    /// End of the last slice, kept or not.
    end: u64,
}

impl Timeline {
    /// Adds a slice of `length` nanoseconds that ended at `end`.
    pub(super) fn push(&mut self, end: u64, length: u64, owner: OwnerKey) {
        self.end = end.max(self.end);
        match self.slices.back_mut() {
            Some(last) if last.owner == owner => last.end = self.end,
            _ => self.slices.push_back(Slice { begin: end.saturating_sub(length), end: self.end, owner }),
        }
    }

    /// Collects the slices of a span into `into`, at least one.
    pub(super) fn between(&self, span: &Span, into: &mut Vec<Slice>) {
        let &Span { from, to, own, .. } = span;
        into.clear();
        let near = |one: u64, other: u64| one.abs_diff(other) < SAME_SWITCH;
        let may_be = |owner: OwnerKey, named: OwnerKey| {
            owner == named || named == OwnerKey::Unattributed(Reason::Unknown)
        };
        let mut first = self.slices.partition_point(|slice| slice.end <= from);
        if let (Some(left), Some(slice)) = (span.left, self.slices.get(first))
            && near(slice.end, from)
            && may_be(slice.owner, left)
        {
            first += 1;
        }
        let mut behind = self.slices.partition_point(|slice| slice.end < to);
        let current = self.slices.get(behind);
        let ended_before =
            behind.checked_sub(1).and_then(|before| self.slices.get(before)).is_some_and(|slice| {
                let is_nearer =
                    current.is_none_or(|current| slice.end.abs_diff(to) <= current.end.abs_diff(to));
                span.at_switch
                    && near(slice.end, to)
                    && may_be(slice.owner, own)
                    && (slice.owner == own || is_nearer)
            });
        if !ended_before && current.is_some() {
            behind += 1;
        }
        for &slice in self.slices.range(first.min(behind)..behind) {
            into.push(Slice { begin: slice.begin.clamp(from, to), end: slice.end.min(to), ..slice });
        }
        match into.last_mut() {
            Some(last) if ended_before => last.end = to,
            Some(last) if last.end == to => {}
            last => {
                let begin = last.map_or(from, |last| last.end);
                into.push(Slice { begin, end: to, owner: own });
            }
        }
    }

    /// Removes the slices that ended at `until` or before.
    pub(super) fn forget(&mut self, until: u64) {
        let gone = self.slices.partition_point(|slice| slice.end <= until);
        self.slices.drain(..gone);
    }

    /// Takes the oldest slice if there are more than `most` slices and it ended at `until` or before.
    pub(super) fn pop_beyond(&mut self, most: usize, until: u64) -> Option<Slice> {
        let is_old = self.slices.len() > most && self.slices.front().is_some_and(|slice| slice.end <= until);
        if is_old { self.slices.pop_front() } else { None }
    }

    /// Returns the end of the last slice.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}
