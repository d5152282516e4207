//! Context switches without a sample, reconstructed from `PERF_RECORD_SWITCH`.
//!
//! Some kernels (seen on 6.18, in a guest) count the switch out of the idle task, or out of some threads, and write no sample for it.
//! The next sample then covers several owners. `PERF_RECORD_SWITCH` contains the time, the outgoing task and the incoming task, but no
//! counts. It yields the CPU time and the number of switches of each owner. All other counts are attributed to the last owner if the
//! other owners were idle: an idle CPU counts only the work of interrupts.

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
type Thread = (u32, u32);

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

/// Switches of a CPU since its last sample.
#[derive(Debug)]
pub(super) struct UnsampledSwitches {
    granularity: Granularity,
    /// Clock of the group in the last sample at a switch, until the record of that switch is read.
    clock_at_switch: Option<u64>,
    /// Clock of the records minus clock of the group, in nanoseconds.
    ahead: Option<u64>,
    /// Outgoing and incoming task of the last record of a task switched out, until the next record.
    outgoing: Option<(Thread, Thread)>,
    /// Switches without a sample since the last sample.
    left: Vec<UnsampledSwitch>,
    /// Number of switches since the last sample or the last entry of `left`.
    switches: u64,
    samples: u64,
    hidden: u64,
}

impl UnsampledSwitches {
    pub(super) fn new(granularity: Granularity) -> Self {
        Self {
            granularity,
            clock_at_switch: None,
            ahead: None,
            outgoing: None,
            left: Vec::new(),
            switches: 0,
            samples: 0,
            hidden: 0,
        }
    }

    /// Reports whether enough switches had no sample to enable `PERF_RECORD_SWITCH`.
    pub(super) fn needs_records(&self) -> bool {
        self.hidden >= MANY && self.hidden >= self.samples / ONE_OF
    }

    /// Applies the record of a task that is switched out. A sample of the same switch precedes it in the ring.
    pub(super) fn switch_out(&mut self, thread: Thread, next: Thread, time: u64) {
        match self.clock_at_switch.take() {
            Some(clock) => self.ahead = Some(time.wrapping_sub(clock)),
            None => self.add(thread, time, 1),
        }
        self.outgoing = Some((thread, next));
    }

    /// Applies the record of a task that is switched in after `thread`, which may have no record of its own.
    pub(super) fn switch_in(&mut self, thread: Thread, time: u64) {
        match self.outgoing.take() {
            Some((left, _)) if left == thread => {}
            // Two threads of one process, both without records, followed each other.
            Some((_, next)) if next != thread && next.0 == thread.0 => {
                self.add(thread, time, 2);
            }
            _ => self.add(thread, time, 1),
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

    /// Notes that a sample was read, with the clock of the group in it, and empties the list.
    #[inline]
    pub(super) fn sampled(&mut self, clock: u64, at_switch: bool) {
        self.samples += 1;
        if at_switch {
            self.clock_at_switch = Some(clock);
        }
        self.left.clear();
        self.switches = 0;
    }

    /// Takes the list if it explains all `unrecorded` switches; otherwise returns an empty list.
    pub(super) fn take(&mut self, unrecorded: u64) -> Vec<UnsampledSwitch> {
        self.hidden = self.hidden.saturating_add(unrecorded);
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
