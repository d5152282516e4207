//! Context switches without a sample, reconstructed from `PERF_RECORD_SWITCH`.
//!
//! Some kernels (seen on 6.18, in a guest) count the switch out of the idle task, or out of some threads, and write no sample for it.
//! The next sample then covers several owners. Each other switch writes two `PERF_RECORD_SWITCH`: one of the outgoing task, which
//! contains the incoming task, and one of the incoming task, which contains the outgoing task. They contain the time, but no counts, and
//! not the task that writes them: its thread (`PERF_SAMPLE_TID`) would add 0.15 µs to each switch. They yield the CPU time and the
//! number of switches of each owner. All other counts are attributed to the last owner if the other owners were idle: an idle CPU counts
//! only the work of interrupts.

use crate::plan::Granularity;

/// The unit of a counter, which decides how its count is split between owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Nanoseconds on the CPU.
    Time,
    /// Switches between threads.
    Switches,
    /// Switches between cgroups: the leader of a stream that distinguishes cgroups.
    CgroupSwitches,
    /// Any other count. It cannot be split.
    Other,
}

/// Minimum number of switches without a sample for which `PERF_RECORD_SWITCH` is enabled on a CPU.
const MANY: u64 = 10;

/// Additional condition: at least one switch without a sample per this number of samples.
const ONE_OF: u64 = 10_000;

/// Maximum number of switches without a sample that are kept until the next sample.
const MAX: usize = 256;

/// Process ID and thread ID of a task.
pub(super) type Thread = (u32, u32);

/// A task that no record contains.
const UNKNOWN: Thread = (u32::MAX, u32::MAX);

/// A switch without a sample, by its outgoing task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnsampledSwitch {
    pub pid: u32,
    /// 0: the idle task.
    pub tid: u32,
    /// Time of the switch on the clock of the records, in nanoseconds.
    pub time: u64,
    /// Time of the switch on the clock of the group, in nanoseconds.
    clock: u64,
    /// Number of switches since the previous entry of the list, including this one.
    switches: u64,
}

/// A record of a task that was switched out.
#[derive(Debug, Clone, Copy)]
struct Outgoing {
    /// `None` if its switch has no sample; otherwise the outgoing task, if samples contain threads.
    sampled: Option<Option<Thread>>,
    /// The outgoing task, if the records of the switch before contain it.
    known: Option<Thread>,
    next: Thread,
    /// Time on the clock of the records, in nanoseconds.
    time: u64,
}

/// Switches of a CPU since its last sample.
#[derive(Debug, Default)]
pub(super) struct UnsampledSwitches {
    granularity: Granularity,
    /// Clock of the group in the last sample at a switch, until the record of that switch is read.
    clock_at_switch: Option<u64>,
    /// Clock of the records minus clock of the group, in nanoseconds.
    ahead: Option<u64>,
    /// Outgoing task of that sample; `None` if samples contain no threads.
    sampled: Option<Thread>,
    /// The last record of a task switched out, until the next record.
    outgoing: Option<Outgoing>,
    /// The task on the CPU, if the last record of a task switched out contains it.
    current: Option<Thread>,
    /// Switches without a sample since the last sample.
    left: Vec<UnsampledSwitch>,
    /// Number of switches since the last sample or the last entry of `left`.
    switches: u64,
    samples: u64,
    hidden: u64,
}

impl UnsampledSwitches {
    pub(super) fn new(granularity: Granularity) -> Self {
        Self { granularity, ..Self::default() }
    }

    /// Reports whether enough switches had no sample to enable `PERF_RECORD_SWITCH`.
    pub(super) fn needs_records(&self) -> bool {
        self.hidden >= MANY && self.hidden >= self.samples / ONE_OF
    }

    /// Applies the record of a task that is switched out. A sample of the same switch precedes it in the ring, unless the switch is
    /// within a cgroup and samples distinguish only cgroups.
    pub(super) fn switch_out(&mut self, next: Thread, time: u64) {
        self.conclude_outgoing();
        let at_switch = self.clock_at_switch.take();
        if let Some(clock) = at_switch {
            self.ahead = Some(time.wrapping_sub(clock));
        }
        let sampled = at_switch.map(|_| self.sampled.take());
        self.outgoing = Some(Outgoing { sampled, known: self.current.take(), next, time });
    }

    /// Applies the record of a task that is switched in after `thread`, which may have no record of its own.
    pub(super) fn switch_in(&mut self, thread: Thread, time: u64) {
        self.current = None;
        match self.outgoing.take_if(|outgoing| outgoing.sampled.is_some() || outgoing.next != thread) {
            Some(Outgoing { sampled: None, next, time, .. }) => {
                self.current = Some(next);
                self.add(thread, time, 1);
            }
            Some(Outgoing { sampled: Some(left), next, .. })
                if left.map_or(next != thread, |left| left == thread) =>
            {
                self.current = Some(next);
            }
            // Two threads of one process, both without records, followed each other.
            Some(Outgoing { next, .. }) if next != thread && next.0 == thread.0 => self.add(thread, time, 2),
            _ => {
                self.conclude_outgoing();
                self.add(thread, time, 1);
            }
        }
    }

    /// Adds the last switch without a sample, if no record of its incoming task contains the outgoing task.
    fn conclude_outgoing(&mut self) {
        if let Some(Outgoing { sampled: None, known, time, .. }) = self.outgoing.take() {
            self.add(known.unwrap_or(UNKNOWN), time, 1);
        }
    }

    fn add(&mut self, (pid, tid): Thread, time: u64, switches: u64) {
        self.switches += switches;
        let Some(ahead) = self.ahead else { return };
        match self.granularity {
            Granularity::Process => {}
            // Switches within a cgroup have no sample. Everything up to a switch out of idle belongs to the root cgroup.
            Granularity::Cgroup if tid == 0 => self.switches += self.forget(),
            Granularity::Cgroup => return,
        }
        if self.left.len() < MAX {
            let switches = std::mem::take(&mut self.switches);
            self.left.push(UnsampledSwitch { pid, tid, time, clock: time.wrapping_sub(ahead), switches });
        }
    }

    /// Empties the list and returns the number of switches in it.
    fn forget(&mut self) -> u64 {
        self.left.drain(..).map(|left| left.switches).sum()
    }

    /// Notes that a sample was read, with the clock of the group in it, and empties the list. `outgoing`: the sample is that of a switch;
    /// its outgoing task, if samples contain threads.
    #[inline]
    pub(super) fn sampled(&mut self, clock: u64, outgoing: Option<Option<Thread>>) {
        self.samples += 1;
        if let Some(thread) = outgoing {
            (self.clock_at_switch, self.sampled) = (Some(clock), thread);
        }
        self.left.clear();
        self.switches = 0;
    }

    /// Takes the list if it explains all `unrecorded` switches; otherwise returns an empty list.
    pub(super) fn take(&mut self, unrecorded: u64) -> Vec<UnsampledSwitch> {
        self.hidden = self.hidden.saturating_add(unrecorded);
        if self.outgoing.is_some_and(|outgoing| outgoing.sampled.is_none()) {
            self.conclude_outgoing();
        }
        let mut left = std::mem::take(&mut self.left);
        let explained: u64 = match self.granularity {
            Granularity::Process => left.iter().map(|left| left.switches).sum(),
            Granularity::Cgroup => left.len() as u64,
        };
        if explained != unrecorded {
            left.clear();
        }
        left
    }

    /// Reuses the memory of a list.
    pub(super) fn reuse(&mut self, mut left: Vec<UnsampledSwitch>) {
        left.clear();
        self.left = left;
    }
}

impl UnsampledSwitch {
    /// Returns the nanoseconds from `since` to the switch, which was at `now` at the latest, on the clock of the group.
    pub(super) fn length(&self, since: u64, now: u64) -> u64 {
        self.clock.clamp(since, now) - since
    }

    /// Returns the count that belongs to the outgoing task, which had the CPU for `length` nanoseconds.
    pub(super) fn part(&self, measure: Measure, length: u64) -> u64 {
        match measure {
            Measure::Time => length,
            Measure::Switches => self.switches,
            Measure::CgroupSwitches => 1,
            Measure::Other => 0,
        }
    }
}
