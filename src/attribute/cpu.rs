//! One CPU of the stream: what its counters said last, and whose the difference to now is.

use super::format::{bundle_fields, clock_fields};
use super::hidden::{Hidden, Left, Measure};
use super::shares::Run;
use super::timeline::{Slice, Span, Timeline, Who};
use crate::health::Interval;
use crate::plan::{Granularity, MOST_MEMBERS};
use crate::register::ROOT;
use crate::ring::{Group, Malformed, Sample, Turn};
use crate::sys::Fields;

/// The events of one group on one CPU, as the stream reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// For each member of the group, the leader first, the counters of the stream that it is.
    pub counters: Vec<Vec<usize>>,
    /// The unit of each member; [`Measure::Other`] for members beyond the end.
    pub measures: Vec<Measure>,
    /// Whether its readings carry no times: it never has to wait for a PMU, and its clock tells them.
    pub untimed: bool,
}

/// Where the clock stands among the members of a group, behind the leader.
const CLOCK: usize = 1;

/// One CPU.
#[derive(Debug)]
pub(super) struct Cpu {
    /// The software events first, which are never off the PMU.
    pub(super) bundles: Vec<Running>,
    /// The owners that hardware events have not recorded yet. Empty if there are no hardware events.
    pub(super) timeline: Timeline,
    /// Time up to which all records of hardware events have been read: the end of the timeline before their last read.
    pub(super) complete_until: u64,
}

impl Cpu {
    /// Creates a CPU whose bundles have just been enabled for the first time. Bundles with more members than a group may have are skipped.
    pub(super) fn new(cpu: u32, bundles: &[Bundle], fields: Fields, granularity: Granularity) -> Self {
        let bundles = bundles.iter().enumerate();
        let bundles = bundles
            .filter_map(|(place, bundle)| Running::new(cpu, bundle, (fields, granularity), place == 0));
        Self { bundles: bundles.collect(), timeline: Timeline::default(), complete_until: 0 }
    }

    /// Returns whether it has hardware events.
    pub(super) fn rotates(&self) -> bool {
        self.bundles.len() > 1
    }

    /// Forgets the slices that every bundle has recorded.
    pub(super) fn forget_slices(&mut self) {
        let recorded = self.bundles.iter().skip(1).map(|bundle| bundle.recorded).min();
        self.timeline.forget(recorded.unwrap_or(u64::MAX));
    }
}

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
    pub(super) charged: Vec<Run>,
    values: Vec<u64>,
    /// What each member counted since the reading before the last.
    pub(super) differences: Vec<u64>,
    enabled: u64,
    running: u64,
    /// Records are missing before the next one.
    gap: bool,
    /// Whether the first bundle of its CPU, whose time is the CPU's time.
    pub(super) keeps_time: bool,
    /// Who is about to leave the CPU for good.
    pub(super) leaving: Leaving,
    /// Switches without a sample.
    pub(super) hidden: Hidden,
    measures: Vec<Measure>,
    /// The count of each member in the part that was split off the last step.
    pub(super) part: Vec<u64>,
    /// Time up to which its counts are charged, or wait to be.
    recorded: u64,
    /// Whether slices were passed over since its last record.
    passed_over: bool,
    /// The owner that left the CPU with the last record, if the record is of a switch.
    left: Option<Who>,
    /// Spans whose owners are not known yet.
    pub(super) waiting: Vec<Waiting>,
    /// What each member counted in these spans.
    pub(super) waiting_counts: Vec<u64>,
}

/// What was counted between two records of a bundle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Time in which the group could have counted, and in which it did.
    pub times: Interval,
    /// Switches that no record came with.
    pub unrecorded: u64,
    /// Records are missing.
    pub gap: bool,
}

/// What a bundle counted in a span in which it was not on the PMU all the time, or whose owner has no id.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub span: Span,
    /// Time in which the group could have counted, and in which it did.
    pub times: Interval,
    /// Slices before `span` were passed over, so that nobody knows how much of `running` is of them.
    pub passed_over: bool,
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

impl Running {
    /// A bundle that has just been enabled for the first time. `None` if it has more members than a group may have.
    fn new(
        cpu: u32,
        bundle: &Bundle,
        (fields, granularity): (Fields, Granularity),
        keeps_time: bool,
    ) -> Option<Self> {
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
            leaving: Leaving::default(),
            hidden: Hidden::new(granularity),
            measures: bundle.measures.clone(),
            part: vec![0; members],
            recorded: 0,
            passed_over: false,
            left: None,
            waiting: Vec::new(),
            waiting_counts: Vec::new(),
        })
    }

    /// The turn that a record ends; `None` if the records of this bundle do not tell of turns.
    pub(super) fn turn_of(&self, sample: &Sample<'_>, switches: u64, unrecorded: u64) -> Option<Turn> {
        let Sample { time, cgroup, pid, tid, .. } = *sample;
        let (leaves, complete) = (switches > 0, unrecorded == 0);
        self.tells_turns().then_some(Turn { time, cgroup, cpu: self.cpu, pid, tid, leaves, complete })
    }

    /// The turn that a switch without a sample ends; `None` as for [`turn_of`](Self::turn_of).
    pub(super) fn turn_of_left(&self, left: &Left, who: Who) -> Option<Turn> {
        let cgroup = match who {
            Who::Task { cgroup, .. } => cgroup.unwrap_or(0),
            _ => ROOT.0,
        };
        let Left { time, pid, tid, .. } = *left;
        let cpu = self.cpu;
        self.tells_turns().then_some(Turn { time, cgroup, cpu, pid, tid, leaves: true, complete: true })
    }

    fn tells_turns(&self) -> bool {
        self.fields.time && self.keeps_time
    }

    /// What comes next is not the difference of one slice.
    pub(super) fn mark_gap(&mut self) {
        self.gap = true;
        // More may have ended than is known.
        self.leaving = Leaving::default();
    }

    /// Takes over a reading. Gives for how long the group was enabled and running since the one before.
    #[inline]
    fn pass(&mut self, group: &Group<'_>) -> Interval {
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
            return Interval { enabled: time, running: time };
        }
        let enabled = group.enabled.saturating_sub(self.enabled);
        let running = group.running.saturating_sub(self.running);
        (self.enabled, self.running) = (group.enabled, group.running);
        Interval { enabled, running }
    }

    /// Raises the words of a reading of this bundle to those of its last record.
    pub(super) fn raise(&self, words: &mut [u64]) {
        let times = if self.untimed { vec![] } else { vec![self.enabled, self.running] };
        let last = times.iter().chain(&self.values);
        words.iter_mut().skip(1).zip(last).for_each(|(word, &last)| *word = last.max(*word));
    }

    /// Takes a reading that comes with a record of so many `switches`. What each member counted since the one before is in
    /// `differences` then.
    ///
    /// # Errors
    /// If the reading is not of this bundle; nothing changes then.
    #[inline]
    pub(super) fn advance(&mut self, group: &Group<'_>, switches: u64) -> Result<Step, Malformed> {
        if group.members() != self.values.len() {
            return Err(Malformed);
        }
        let times = self.pass(group);
        let gap = std::mem::take(&mut self.gap);
        // The leader is the first member, and counts switches.
        let unrecorded = self.differences.first().map_or(0, |counted| counted.saturating_sub(switches));
        Ok(Step { times, unrecorded: if gap { 0 } else { unrecorded }, gap })
    }

    /// Notes that a sample was read, of so many switches.
    #[inline]
    pub(super) fn conclude_sample(&mut self, switches: u64) {
        self.hidden.sampled(self.clock(), switches > 0);
    }

    /// Splits the part up to a switch without a sample off the front of a step, and returns its length in nanoseconds. Its counts move
    /// from `differences` to `part`.
    pub(super) fn split_off(&mut self, left: &Left, step: &mut Step) -> u64 {
        let now = self.clock();
        let since = now.saturating_sub(self.differences.get(CLOCK).copied().unwrap_or(0));
        let length = left.length(since, now).min(step.times.enabled);
        self.move_to_part(|measure, counted| left.part(measure, length, counted));
        let rest = step.times.enabled - length;
        // The list explains all switches of the step.
        *step = Step { times: Interval { enabled: rest, running: rest }, unrecorded: 0, gap: false };
        length
    }

    /// Splits off the counts that cannot be split between several threads.
    pub(super) fn split_off_rest(&mut self) {
        self.move_to_part(|measure, counted| if measure == Measure::Other { counted } else { 0 });
    }

    fn move_to_part(&mut self, part_of: impl Fn(Measure, u64) -> u64) {
        let measures = self.measures.iter().copied().chain(std::iter::repeat(Measure::Other));
        for ((part, counted), measure) in self.part.iter_mut().zip(&mut self.differences).zip(measures) {
            *part = part_of(measure, *counted).min(*counted);
            *counted -= *part;
        }
    }

    /// Clock of the group in the last reading, in nanoseconds.
    fn clock(&self) -> u64 {
        self.values.get(CLOCK).copied().unwrap_or(0)
    }

    /// Keeps the last step until its owners are known.
    pub(super) fn wait(&mut self, to: u64, step: Step, own: Who, at_switch: bool) {
        let from = to.saturating_sub(step.times.enabled).max(self.recorded).min(to);
        let span = Span { from, to, left: self.left, own, at_switch };
        self.waiting.push(Waiting { span, times: step.times, passed_over: self.passed_over });
        self.waiting_counts.extend_from_slice(&self.differences);
    }

    /// Notes that the last step has been charged or kept. `left` is the owner that left the CPU with its record.
    pub(super) fn conclude_step(&mut self, to: u64, left: Option<Who>) {
        (self.recorded, self.passed_over, self.left) = (to, false, left);
    }

    /// Passes over a slice that ended while this bundle was off the PMU, and returns the length that it has not recorded.
    pub(super) fn pass_over(&mut self, slice: &Slice) -> u64 {
        let missed = slice.end.saturating_sub(slice.begin.max(self.recorded));
        self.recorded = self.recorded.max(slice.end);
        self.passed_over |= missed > 0;
        missed
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
