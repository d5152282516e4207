//! One CPU of the stream: the last values of its counters, and the owner of the difference to the current ones.

use super::format::{bundle_fields, clock_fields};
use super::shares::Provided;
use super::timeline::{OwnerKey, Slice, Span, Timeline};
use super::unsampled::{Measure, UnsampledSwitch, UnsampledSwitches};
use crate::health::Interval;
use crate::plan::{Granularity, MAX_MEMBERS};
use crate::register::ROOT;
use crate::ring::{Group, Malformed, Sample, ThreadSwitch};
use crate::sys::Fields;

/// The events of one group on one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// For each member of the group, the leader first: the numbers of the counters of the stream that it provides.
    pub counters: Vec<Vec<usize>>,
    /// The unit of each member; [`Measure::Other`] for members beyond the end.
    pub measures: Vec<Measure>,
    /// Position of the count of switches among the members. That of the clock is the next one.
    pub switches: usize,
    /// Whether its readings contain no times: it never waits for a PMU, and its clock measures the time.
    pub untimed: bool,
}

/// One CPU.
#[derive(Debug)]
pub(super) struct Cpu {
    /// The bundle of software events first, which is never off the PMU.
    pub(super) bundles: Vec<Running>,
    /// The owners that hardware events have not recorded yet. Empty if there are no hardware events.
    pub(super) timeline: Timeline,
    /// Time up to which all records of hardware events have been read: the end of the timeline before their last read.
    pub(super) complete_until: u64,
}

impl Cpu {
    /// Returns a CPU whose bundles were just enabled for the first time. Skips bundles with more members than a group may have.
    pub(super) fn new(cpu: u32, bundles: &[Bundle], fields: Fields, granularity: Granularity) -> Self {
        let bundles = bundles.iter().enumerate();
        let bundles = bundles
            .filter_map(|(place, bundle)| Running::new(cpu, bundle, (fields, granularity), place == 0));
        Self { bundles: bundles.collect(), timeline: Timeline::default(), complete_until: 0 }
    }

    /// Reports whether it has hardware events.
    pub(super) fn rotates(&self) -> bool {
        self.bundles.len() > 1
    }

    /// Removes the slices that every bundle has recorded.
    pub(super) fn forget_slices(&mut self) {
        let recorded = self.bundles.iter().skip(1).map(|bundle| bundle.recorded).min();
        self.timeline.forget(recorded.unwrap_or(u64::MAX));
    }
}

/// State of a bundle as of its last record.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Fields of its records at switches.
    pub(super) fields: Fields,
    /// Fields of the records of its clock.
    pub(super) clock_fields: Fields,
    cpu: u32,
    untimed: bool,
    /// Counters of the stream that it provides.
    pub(super) provided: Vec<Provided>,
    values: Vec<u64>,
    /// Count of each member between the last two readings.
    pub(super) differences: Vec<u64>,
    enabled: u64,
    running: u64,
    /// Whether records are missing before the next one.
    gap: bool,
    /// Whether the first bundle of its CPU, whose time is the CPU's time.
    pub(super) keeps_time: bool,
    /// Processes that are about to leave the CPU for the last time.
    pub(super) exited: ExitedProcesses,
    /// Switches without a sample.
    pub(super) hidden: UnsampledSwitches,
    measures: Vec<Measure>,
    /// Position of the count of switches among the members.
    switches: usize,
    /// The count of each member in the part that was split off the last step.
    pub(super) part: Vec<u64>,
    /// Time up to which its counts are attributed or waiting.
    recorded: u64,
    /// Whether slices were passed over since its last record.
    passed_over: bool,
    /// The outgoing owner of the last record, if that is a record of a switch.
    left: Option<OwnerKey>,
    /// Spans whose owners are not known yet.
    pub(super) waiting: Vec<UnsettledCounts>,
    /// Count of each member in these spans.
    pub(super) waiting_counts: Vec<u64>,
}

/// Counts between two records of a bundle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Enabled and running time of the group.
    pub times: Interval,
    /// Number of switches without a record.
    pub unrecorded: u64,
    /// Whether records are missing.
    pub gap: bool,
}

/// Counts of a bundle in a span in which it was not on the PMU all the time, or whose owner has no pid.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnsettledCounts {
    pub span: Span,
    /// Enabled and running time of the group.
    pub times: Interval,
    /// Whether slices before `span` were passed over: their part of `running` is unknown.
    pub passed_over: bool,
}

/// Returns the counters of the stream that the members of a group provide.
fn provided(members: &[Vec<usize>]) -> Vec<Provided> {
    let of = |(member, counters): (usize, &Vec<usize>)| {
        counters.iter().map(move |&counter| Provided { member, counter }).collect::<Vec<_>>()
    };
    members.iter().enumerate().flat_map(of).collect()
}

impl Running {
    /// Returns a bundle that was just enabled for the first time. `None` if it has more members than a group may have.
    fn new(
        cpu: u32,
        bundle: &Bundle,
        (fields, granularity): (Fields, Granularity),
        keeps_time: bool,
    ) -> Option<Self> {
        let members = bundle.counters.len();
        // In addition, there are the leader and the clock.
        if members > MAX_MEMBERS + 2 {
            return None;
        }
        let fields = bundle_fields(fields, bundle.untimed);
        let provided = provided(&bundle.counters);
        Some(Self {
            fields,
            clock_fields: clock_fields(fields),
            cpu,
            untimed: bundle.untimed,
            provided,
            values: vec![0; members],
            differences: vec![0; members],
            keeps_time,
            hidden: UnsampledSwitches::new(granularity),
            measures: bundle.measures.clone(),
            switches: bundle.switches,
            part: vec![0; members],
            ..Self::default()
        })
    }

    /// Returns the thread switch of a record of the first bundle; `None` if its records contain no time.
    #[inline]
    pub(super) fn thread_switch(
        &self,
        sample: &Sample<'_>,
        switches: u64,
        unrecorded: u64,
    ) -> Option<ThreadSwitch> {
        let Sample { time, cgroup, pid, tid, .. } = *sample;
        let (leaves, complete) = (switches > 0, unrecorded == 0);
        self.fields.time.then_some(ThreadSwitch { time, cgroup, cpu: self.cpu, pid, tid, leaves, complete })
    }

    /// Returns the thread switch of a switch without a sample; `None` as for [`thread_switch`](Self::thread_switch).
    pub(super) fn unsampled_thread_switch(
        &self,
        left: &UnsampledSwitch,
        owner: OwnerKey,
    ) -> Option<ThreadSwitch> {
        let cgroup = match owner {
            OwnerKey::Task { cgroup, .. } => cgroup.unwrap_or(0),
            _ => ROOT.0,
        };
        let UnsampledSwitch { time, pid, tid, .. } = *left;
        let cpu = self.cpu;
        self.fields.time.then_some(ThreadSwitch { time, cgroup, cpu, pid, tid, leaves: true, complete: true })
    }

    /// Notes that the next difference covers more than one slice.
    pub(super) fn mark_gap(&mut self) {
        self.gap = true;
        // Other processes may have exited meanwhile.
        self.exited = ExitedProcesses::default();
    }

    /// Stores a reading. Returns the enabled and running time since the previous one.
    #[inline]
    fn pass(&mut self, group: &Group<'_>) -> Interval {
        let members = self.values.iter_mut().zip(&mut self.differences);
        for ((last, difference), value) in members.zip(group.values()) {
            // Counts never fall. If one did, saturation would avoid a huge difference.
            *difference = value.saturating_sub(*last);
            *last = value;
        }
        if self.untimed {
            let time = self.differences.get(self.clock_position()).copied().unwrap_or(0);
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

    /// Stores the reading of a record that covers this number of `switches`. `differences` are then the counts of the members since the
    /// previous reading.
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
        let counted = self.differences.get(self.switches);
        let unrecorded = counted.map_or(0, |counted| counted.saturating_sub(switches));
        Ok(Step { times, unrecorded: if gap { 0 } else { unrecorded }, gap })
    }

    /// Notes that a sample was read, with this number of switches.
    #[inline]
    pub(super) fn conclude_sample(&mut self, sample: &Sample<'_>, switches: u64) {
        let thread = self.fields.tid.then_some((sample.pid, sample.tid));
        self.hidden.sampled(self.clock(), (switches > 0).then_some(thread));
    }

    /// Splits the part up to a switch without a sample off the front of a step, and returns its length in nanoseconds. Its counts move
    /// from `differences` to `part`.
    pub(super) fn split_off(&mut self, left: &UnsampledSwitch, step: &mut Step) -> u64 {
        let now = self.clock();
        let since = now.saturating_sub(self.differences.get(self.clock_position()).copied().unwrap_or(0));
        let length = left.length(since, now).min(step.times.enabled);
        self.move_to_part(|measure, _| left.part(measure, length));
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
        self.values.get(self.clock_position()).copied().unwrap_or(0)
    }

    /// Returns the position of the clock among the members, behind the count of switches.
    const fn clock_position(&self) -> usize {
        self.switches + 1
    }

    /// Keeps the last step until its owners are known.
    pub(super) fn wait(&mut self, to: u64, step: Step, own: OwnerKey, at_switch: bool) {
        let from = to.saturating_sub(step.times.enabled).max(self.recorded).min(to);
        let span = Span { from, to, left: self.left, own, at_switch };
        self.waiting.push(UnsettledCounts { span, times: step.times, passed_over: self.passed_over });
        self.waiting_counts.extend_from_slice(&self.differences);
    }

    /// Notes that the last step has been attributed or kept. `left` is the outgoing owner of its record.
    pub(super) fn conclude_step(&mut self, to: u64, left: Option<OwnerKey>) {
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

/// The processes that exited on a CPU, the last one first. A process that is reaped at once has lost its pid before it leaves the CPU for
/// the last time. The order of exits then identifies it. In between, its parent may have run, so a process stays in the list when other
/// tasks are recorded. A process that was switched out with its pid also stays, because it may run again. The last steps of one process may
/// therefore be attributed to another that exited at the same time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ExitedProcesses([Option<u32>; 4]);

impl ExitedProcesses {
    /// Adds the running process, which has exited.
    pub(super) fn push(&mut self, pid: u32) {
        let place = self.0.iter().position(|&known| known == Some(pid)).unwrap_or(self.0.len() - 1);
        self.0[..=place].rotate_right(1);
        self.0[0] = Some(pid);
    }

    /// Returns the process that leaves without a pid, if it is known.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let first = self.0[0].take();
        self.0.rotate_left(1);
        first
    }
}
