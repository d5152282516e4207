//! One CPU of the stream: what its counters said last, and whose the difference to now is.

use super::format::{bundle_fields, clock_fields};
use super::shares::{Reason, Row, Shares};
use crate::plan::MOST_MEMBERS;
use crate::ring::{Group, Malformed, Sample, Turn};
use crate::sys::Fields;

/// The events of one group on one CPU, as the stream reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// For each member of the group, the leader first, the counters of the stream that it is.
    pub counters: Vec<Vec<usize>>,
    /// Whether its readings carry no times: it never has to wait for a PMU, and its clock tells them.
    pub untimed: bool,
}

/// Where the clock stands among the members of a group, behind the leader.
const CLOCK: usize = 1;

/// What a bundle said last.
#[derive(Debug)]
pub(super) struct Running {
    /// What its records at switches carry.
    pub(super) fields: Fields,
    /// What those of its clock carry.
    pub(super) clock_fields: Fields,
    cpu: u32,
    untimed: bool,
    /// Members that are counters of the stream.
    charged: Vec<Run>,
    values: Vec<u64>,
    /// What each member counted since the reading before the last.
    differences: Vec<u64>,
    enabled: u64,
    running: u64,
    /// Records are missing before the next one.
    gap: bool,
    /// Whether the first bundle of its CPU, whose time is the CPU's time.
    keeps_time: bool,
    share: Share,
    /// Who is about to leave the CPU for good.
    pub(super) leaving: Leaving,
}

/// Members of a group next to each other that are counters of the stream next to each other.
#[derive(Debug, Clone, Copy)]
struct Run {
    member: usize,
    counter: usize,
    length: usize,
}

/// The members of a group that are counters of the stream, in runs as long as there are.
fn runs(members: &[Vec<usize>]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (member, counters) in members.iter().enumerate() {
        for &counter in counters {
            match runs.last_mut() {
                Some(run) if run.member + run.length == member && run.counter + run.length == counter => {
                    run.length += 1;
                }
                _ => runs.push(Run { member, counter, length: 1 }),
            }
        }
    }
    runs
}

/// How much of the time a bundle was on the PMU lately, to scale its counts by. Older time counts for less.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    enabled: u64,
    running: u64,
    /// The same, since the last turn.
    fresh: (u64, u64),
}

impl Share {
    /// Time goes by.
    fn pass(&mut self, enabled: u64, running: u64) {
        // Not even nonsense may overflow here: it would take the reader's thread down.
        self.fresh.0 = self.fresh.0.saturating_add(enabled);
        self.fresh.1 = self.fresh.1.saturating_add(running);
    }

    /// What to scale by, if anything: enabled and running time.
    fn ratio(&self) -> Option<(u64, u64)> {
        let enabled = self.enabled.saturating_add(self.fresh.0);
        let running = self.running.saturating_add(self.fresh.1);
        (running < enabled && running > 0).then_some((enabled, running))
    }

    /// Takes in what went by since the last turn.
    fn turn(&mut self) {
        let (enabled, running) = std::mem::take(&mut self.fresh);
        self.enabled = (self.enabled / 2).saturating_add(enabled);
        self.running = (self.running / 2).saturating_add(running);
    }
}

/// `raw × enabled ∕ running`.
fn scale(raw: u64, (enabled, running): (u64, u64)) -> u64 {
    let scaled = u128::from(raw) * u128::from(enabled) / u128::from(running.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

impl Running {
    /// A bundle that has just been enabled for the first time. `None` if it has more members than a group may have.
    pub(super) fn new(cpu: u32, bundle: &Bundle, fields: Fields, keeps_time: bool) -> Option<Self> {
        let members = bundle.counters.len();
        // Besides there are the leader and the clock.
        if members > MOST_MEMBERS + 2 {
            return None;
        }
        let fields = bundle_fields(fields, bundle.untimed);
        let charged = runs(&bundle.counters);
        Some(Self {
            fields,
            clock_fields: clock_fields(fields),
            cpu,
            untimed: bundle.untimed,
            charged,
            values: vec![0; members],
            differences: vec![0; members],
            enabled: 0,
            running: 0,
            gap: false,
            keeps_time,
            share: Share::default(),
            leaving: Leaving::default(),
        })
    }

    /// The turn that a record ends; `None` if the records of this bundle have no times.
    pub(super) fn turn_of(&self, sample: &Sample<'_>, switches: u64, unrecorded: u64) -> Option<Turn> {
        let Sample { time, cgroup, pid, tid, .. } = *sample;
        let (leaves, complete) = (switches > 0, unrecorded == 0);
        self.fields.time.then_some(Turn { time, cgroup, cpu: self.cpu, pid, tid, leaves, complete })
    }

    /// What comes next is not the difference of one slice.
    pub(super) fn mark_gap(&mut self) {
        self.gap = true;
        // More may have ended than is known.
        self.leaving = Leaving::default();
    }

    /// Takes over a reading. Gives for how long the group was enabled and running since the one before.
    #[inline]
    fn pass(&mut self, group: &Group<'_>) -> (u64, u64) {
        let mut step = |((last, difference), value): ((&mut u64, &mut u64), u64)| {
            // Counts never fall. If one did, its difference would be nonsense rather than huge.
            *difference = value.saturating_sub(*last);
            *last = value;
        };
        let members = self.values.iter_mut().zip(&mut self.differences);
        match group.plain() {
            Some(values) => {
                members.zip(values.iter().map(|&value| u64::from_ne_bytes(value))).for_each(&mut step);
            }
            None => members.zip(group.values()).for_each(step),
        }
        if self.untimed {
            let time = self.differences.get(CLOCK).copied().unwrap_or(0);
            return (time, time);
        }
        let enabled = group.enabled.saturating_sub(self.enabled);
        let running = group.running.saturating_sub(self.running);
        (self.enabled, self.running) = (group.enabled, group.running);
        self.share.pass(enabled, running);
        (enabled, running)
    }

    /// Takes a reading that comes with a record of so many `switches`, and charges the difference to the reading before
    /// to `owner`, if it is known to be one owner's. Gives the number of switches that no record came with.
    ///
    /// # Errors
    /// If the reading is not of this bundle; nothing changes then.
    #[inline]
    pub(super) fn advance(
        &mut self,
        group: &Group<'_>,
        owner: Row,
        switches: u64,
        shares: &mut Shares,
    ) -> Result<u64, Malformed> {
        let members = self.values.len();
        if group.members() != members {
            return Err(Malformed);
        }
        let (enabled, running) = self.pass(group);
        // The leader is the first member, and counts switches.
        let unrecorded = self.differences.first().map_or(0, |counted| counted.saturating_sub(switches));
        let gap = std::mem::take(&mut self.gap);
        let owner = if gap {
            Row::of(Reason::Lost)
        } else if running < enabled {
            // Nothing was written while it was off the PMU: before, another owner may have run than after.
            Row::of(Reason::Rotated)
        } else if unrecorded > 0 {
            Row::of(Reason::Unrecorded)
        } else {
            owner
        };
        let ratio = self.share.ratio();
        let row = shares.row(owner);
        for &Run { member, counter, length } in &self.charged {
            let differences = self.differences.get(member..member + length).unwrap_or_default();
            let totals = row.get_mut(counter..counter + length).unwrap_or_default();
            for (total, &raw) in totals.iter_mut().zip(differences) {
                *total = total.saturating_add(ratio.map_or(raw, |ratio| scale(raw, ratio)));
            }
        }
        if self.keeps_time
            && let Some(time) = row.last_mut()
        {
            *time = time.saturating_add(enabled);
        }
        Ok(if gap { 0 } else { unrecorded })
    }

    /// Takes the last reading, which no record came with.
    pub(super) fn conclude(&mut self, group: &Group<'_>, shares: &mut Shares) {
        self.gap = false;
        // Not the difference of one slice, but of one that has no end: it is all the same whether it was rotated.
        let mut group = *group;
        group.running = self.running.saturating_add(group.enabled.saturating_sub(self.enabled));
        // A reading of another group is no reading, and is passed over.
        let _unrecorded = self.advance(&group, Row::of(Reason::Ended), u64::MAX, shares);
    }

    /// A batch of records has been read.
    pub(super) fn turn(&mut self) {
        self.share.turn();
    }
}

/// The processes that ended on a CPU, the last one first. One that is waited for at once has lost its id by the time
/// when it leaves for good, and then the order tells which it was. Between the two its parent may have run, so it
/// stays in the list whoever else is seen; one that left with its id stays as well, for it might have come back. So
/// the last steps of one may be charged to another that ended at the same time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Leaving([Option<u32>; 4]);

impl Leaving {
    /// The process that runs has ended.
    pub(super) fn push(&mut self, pid: u32) {
        let place = self.0.iter().position(|&known| known == Some(pid)).unwrap_or(self.0.len() - 1);
        self.0[..=place].rotate_right(1);
        self.0[0] = Some(pid);
    }

    /// Who leaves without an id, if that is known.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let first = self.0[0].take();
        self.0.rotate_left(1);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_only_by_a_ratio_that_is_known() {
        let share = |enabled, running| Share { enabled, running, ..Share::default() };
        for (enabled, running, scaled) in [(0, 0, 7), (10, 0, 7), (10, 10, 7), (10, 20, 7), (20, 10, 14)] {
            assert_eq!(
                share(enabled, running).ratio().map_or(7, |ratio| scale(7, ratio)),
                scaled,
                "{enabled} {running}"
            );
        }
        assert_eq!(scale(u64::MAX, share(u64::MAX, 1).ratio().unwrap()), u64::MAX);
    }

    #[test]
    fn the_ratio_follows_what_went_by_lately() {
        let mut share = Share::default();
        for (enabled, running, expected) in
            [(100, 50, 200), (0, 0, 200), (300, 300, 104), (u64::MAX, u64::MAX, 100)]
        {
            share.fresh = (enabled, running);
            share.turn();
            assert_eq!(share.ratio().map_or(100, |ratio| scale(100, ratio)), expected, "{share:?}");
        }
    }
}
