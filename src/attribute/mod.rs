//! The switch stream: attribution of counts to their owners, from the records that the kernel writes at context switches.
//!
//! On each CPU, one group of counters has a software leader with period 1. The kernel therefore writes a record with all counts whenever
//! the CPU switches from one cgroup ([`Granularity::Cgroup`]) or thread ([`Granularity::Process`]) to another. It does so while the
//! outgoing task is still current: counts since the previous record belong to the task in the record. A clock in the same group writes such
//! a record ten times a second, which bounds the delay for a task that is never switched out.
//!
//! Every count is attributed exactly once, to an owner or to a reason why there is none. The sum over [`Shares`] equals the CPUs' own
//! counters as of their last records.
//!
//! Software events are the first group of each CPU and need no PMU. Hardware events are in separate groups. The kernel multiplexes these
//! with other users of the PMU, and a group writes no record while it is off the PMU. The records of the software events contain the owners
//! in between. The difference is then attributed to one owner, or to the first and the last of several. To scale the counts, [`Shares`]
//! also contain the time of each owner on the CPU, and the part in which the events were on the PMU.
//!
//! Limitation: when a running task is moved to another cgroup, its counts since the last record are attributed to the new cgroup. This
//! affects at most a tenth of a second.

mod cpu;
mod format;
mod ingest;
mod shares;
mod timeline;
mod unsampled;

#[cfg(test)]
mod tests;

pub use cpu::Bundle;
pub use format::{SWITCHES, bundle_fields, clock_fields, fields, record_size, sideband};
pub use ingest::Ingest;
pub use shares::{Owner, Reason, Share, Shares};
pub use unsampled::Measure;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::health::Interval;
use crate::plan::Granularity;
use crate::register::{Order, Processes, ROOT};
use crate::ring::{Group, Losses, Malformed, Record, Sample, ThreadSwitch, is_sample, time_of};
use crate::sys::Fields;
use crate::targets::{CgroupId, Changed};
use cpu::{Cpu, ExitedProcesses, Running, Step, UnsettledCounts};
use shares::Row;
use timeline::{OwnerKey, Slice, Timeline};
use unsampled::UnsampledSwitch;

/// Maximum number of slices of a CPU that are kept while hardware events are off the PMU. Older slices are known to have several owners.
const MAX_SLICES: usize = 256;

/// Attributes counts to owners. Pure: its input is records, its output is sums.
#[derive(Debug)]
pub struct Attributor {
    cpus: BTreeMap<u32, Cpu>,
    sums: Sums,
}

/// The sums of all CPUs.
#[derive(Debug)]
struct Sums {
    granularity: Granularity,
    /// Fields of a record at a switch.
    fields: Fields,
    shares: Shares,
    cgroups: FxHashMap<u64, Row>,
    processes: Processes,
    losses: Losses,
    /// Thread switches that were not passed on yet.
    thread_switches: Vec<ThreadSwitch>,
    /// Whether thread switches are collected.
    follows: bool,
    /// Buffer for the slices of a span, for reuse.
    slices: Vec<Slice>,
}

impl Attributor {
    /// Returns an attributor of `width` counters, without counts. `fields` are those of records at switches; records of the clock have
    /// [more](clock_fields). `rotates`: whether hardware events are among the counters.
    pub fn new(granularity: Granularity, fields: Fields, width: usize, rotates: bool) -> Self {
        let sums = Sums {
            granularity,
            fields,
            shares: Shares::new(width, rotates),
            cgroups: FxHashMap::default(),
            processes: Processes::new(Order::Ring),
            losses: Losses::default(),
            thread_switches: Vec::new(),
            follows: false,
            slices: Vec::new(),
        };
        Self { cpus: BTreeMap::new(), sums }
    }

    /// Adds a CPU whose bundles are about to be enabled for the first time, each with its own ring. The first bundle has the software
    /// events, and its ring also has the sideband records. Bundles with more members than a group may have are skipped.
    pub fn add_cpu(&mut self, cpu: u32, bundles: &[Bundle]) {
        let (fields, granularity) = (self.sums.fields, self.sums.granularity);
        self.cpus.insert(cpu, Cpu::new(cpu, bundles, fields, granularity));
        self.sums.processes.miss();
    }

    /// Attributes the counts of the bundles of a CPU since their last records to [`Reason::Ended`], then removes the CPU. `words` are read
    /// from the groups ([`Event::read`](crate::sys::Event::read)), after their counters were stopped. Raises values that are lower than
    /// those of the last record, because they could no longer be read: `words` then contain the total of the attributed counts.
    pub fn remove_cpu(&mut self, cpu: u32, words: &mut [Vec<u64>]) {
        self.settle(cpu);
        let bundles = self.cpus.remove(&cpu).into_iter().flat_map(|cpu| cpu.bundles);
        for (mut bundle, words) in bundles.zip(words) {
            bundle.raise(words);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            if let Ok(group) = Group::parse_read(&bytes, bundle.fields.read.unwrap_or_default())
                && let Ok(step) = bundle.advance(&group, u64::MAX)
            {
                self.sums.attribute(&bundle, OwnerKey::Unattributed(Reason::Ended), step.times);
            }
        }
    }

    /// Processes a batch of records of one bundle of a CPU, including their headers. `batch` receives a callback to call with each record.
    /// Read the software events of a CPU after its hardware events, and call [`settle`](Self::settle) afterwards.
    pub fn read(&mut self, cpu: u32, bundle: usize, batch: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let Some(cpu) = self.cpus.get_mut(&cpu) else { return };
        let rotates = cpu.rotates();
        let Some(bundle) = cpu.bundles.get_mut(bundle) else { return };
        let (sums, timeline) = (&mut self.sums, &mut cpu.timeline);
        batch(&mut |record| sums.read(bundle, rotates.then_some(&mut *timeline), record));
    }

    /// Attributes the counts of hardware events in spans in which they were off the PMU. Call it after all records of the CPU have been
    /// read, those of its software events last.
    pub fn settle(&mut self, cpu: u32) {
        let Some(cpu) = self.cpus.get_mut(&cpu).filter(|cpu| cpu.rotates()) else { return };
        for bundle in cpu.bundles.iter_mut().skip(1) {
            self.sums.settle(bundle, &cpu.timeline);
        }
        cpu.forget_slices();
        // Records that are written during the read may be read from the ring of the software events only.
        let complete_until = std::mem::replace(&mut cpu.complete_until, cpu.timeline.end());
        while let Some(slice) = cpu.timeline.pop_beyond(MAX_SLICES, complete_until) {
            for bundle in cpu.bundles.iter_mut().skip(1) {
                let missed = bundle.pass_over(&slice);
                self.sums.attribute_presence(bundle, slice.owner, Interval { enabled: missed, running: 0 });
            }
        }
    }

    /// Returns the CPUs on which `PERF_RECORD_SWITCH` should be enabled, with the fields [`SWITCHES`]: the kernel writes no samples for
    /// some switches there.
    pub fn cpus_with_unsampled_switches(&self) -> impl Iterator<Item = u32> {
        let hides = |cpu: &Cpu| cpu.bundles.first().is_some_and(|bundle| bundle.hidden.needs_records());
        self.cpus.iter().filter(move |(_, cpu)| hides(cpu)).map(|(&cpu, _)| cpu)
    }

    /// Notes that records of a bundle are missing between those read so far and the following ones.
    pub fn mark_gap(&mut self, cpu: u32, bundle: usize) {
        if let Some(bundle) = self.cpus.get_mut(&cpu).and_then(|cpu| cpu.bundles.get_mut(bundle)) {
            bundle.mark_gap();
        }
        self.sums.processes.miss();
    }

    /// Returns the processes that changed since the last call; `None` if that is unknown, because records were lost or do not describe
    /// processes.
    pub fn take_changed(&mut self) -> Option<Changed> {
        let news = self.sums.processes.take_changed();
        news.filter(|_| self.sums.granularity == Granularity::Process)
    }

    /// Adds a process as `/proc` describes it.
    pub fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        self.sums.processes.describe(pid, comm, kernel);
    }

    /// Returns the counts that were attributed since the last call. `there` reports whether a process exists. Processes that do not exist
    /// and did not run are removed.
    pub fn take(&mut self, there: impl Fn(u32) -> bool) -> Shares {
        let sums = &mut self.sums;
        let mut shares = sums.shares.take();
        shares.add_tasks(sums.processes.end_round(there));
        sums.cgroups.clear();
        shares
    }

    /// Returns the counts of records that were read and lost.
    pub fn losses(&self) -> Losses {
        self.sums.losses
    }
}

/// Estimates how long a group was on the PMU in each slice of a span, given its time on the PMU in the whole span. There are at least two
/// slices. The group recorded no switch in between: it left the PMU in the first slice and returned in the last one. Time that exceeds the
/// length of these two is attributed to the slices between them.
fn split(running: u64, slices: &[Slice]) -> Vec<u64> {
    let last = slices.len() - 1;
    let is_outer = |place: usize| place == 0 || place == last;
    let length = |outer: bool| -> u64 {
        let of = slices.iter().enumerate().filter(|&(place, _)| is_outer(place) == outer);
        of.map(|(_, slice)| slice.length()).fold(0, u64::saturating_add)
    };
    let (outer, inner) = (length(true), length(false));
    let of_outer = running.min(outer);
    let parts = slices.iter().enumerate().map(|(place, slice)| {
        let (time, all) = if is_outer(place) { (of_outer, outer) } else { (running - of_outer, inner) };
        let part = u128::from(time) * u128::from(slice.length()) / u128::from(all.max(1));
        u64::try_from(part).unwrap_or(u64::MAX).min(slice.length())
    });
    parts.collect()
}

impl Sums {
    /// Processes a record of a bundle. `timeline`: the slices of its CPU, if it has hardware events.
    #[inline]
    fn read(&mut self, bundle: &mut Running, timeline: Option<&mut Timeline>, record: &[u8]) {
        match Sample::parse_record(record, &bundle.fields) {
            Ok(sample) => self.sample(bundle, timeline, &sample, 1),
            Err(Malformed) if is_sample(record) => self.clock(bundle, timeline, record),
            // The layout of other records does not depend on the fields, except for the thread at the end of `PERF_RECORD_SWITCH`.
            Err(Malformed) => match Record::parse(record, &SWITCHES) {
                Ok(Record::Switch { out, other, .. }) => match time_of(record, &SWITCHES) {
                    Some(time) if out => bundle.hidden.switch_out(other, time),
                    Some(time) => bundle.hidden.switch_in(other, time),
                    None => self.unreadable(bundle),
                },
                Ok(parsed) => self.sideband(bundle, &parsed, time_of(record, &bundle.clock_fields)),
                Err(Malformed) => self.unreadable(bundle),
            },
        }
    }

    /// Processes a sample that is not of a switch.
    #[cold]
    fn clock(&mut self, bundle: &mut Running, timeline: Option<&mut Timeline>, record: &[u8]) {
        match Sample::parse_record(record, &bundle.clock_fields) {
            Ok(sample) => self.sample(bundle, timeline, &sample, 0),
            Err(Malformed) => self.unreadable(bundle),
        }
    }

    /// Attributes the counts up to a record that covers this number of `switches`.
    #[inline(always)]
    fn sample(
        &mut self,
        bundle: &mut Running,
        mut timeline: Option<&mut Timeline>,
        sample: &Sample<'_>,
        switches: u64,
    ) {
        self.losses.records += 1;
        let own = self.owner_key(&mut bundle.exited, sample);
        let Ok(mut step) = bundle.advance(&sample.group, switches) else { return self.unreadable(bundle) };
        if bundle.keeps_time {
            if step.unrecorded > 0 {
                self.split(bundle, timeline.as_deref_mut(), &mut step);
            }
            bundle.conclude_sample(sample, switches);
        }
        let owner = match step {
            Step { gap: true, .. } => OwnerKey::Unattributed(Reason::Lost),
            Step { unrecorded: 1.., .. } => OwnerKey::Unattributed(Reason::Unrecorded),
            _ => own,
        };
        if bundle.keeps_time {
            self.losses.unrecorded = self.losses.unrecorded.saturating_add(step.unrecorded);
            self.attribute(bundle, owner, step.times);
            if let Some(timeline) = timeline {
                timeline.push(sample.time, step.times.enabled, owner);
            }
            if self.follows {
                self.thread_switches.extend(bundle.thread_switch(sample, switches, step.unrecorded));
            }
            return;
        }
        // The records of the software events may contain the owners.
        let is_open = match owner {
            OwnerKey::Unattributed(Reason::Unknown) => true,
            OwnerKey::Unattributed(Reason::Unrecorded) => bundle.fields.time,
            _ => false,
        };
        if !step.gap && (step.times.running < step.times.enabled || is_open) {
            bundle.wait(sample.time, step, own, switches > 0);
        } else {
            self.attribute(bundle, owner, step.times);
            if !step.gap {
                self.attribute_presence(bundle, owner, step.times);
            }
        }
        bundle.conclude_step(sample.time, (switches > 0).then_some(own));
    }

    /// Attributes the parts of a step to the outgoing tasks of switches without a sample, if the records explain all of these.
    #[cold]
    fn split(&mut self, bundle: &mut Running, mut timeline: Option<&mut Timeline>, step: &mut Step) {
        let left = bundle.hidden.take(step.unrecorded);
        for left in &left {
            let owner = self.outgoing_owner(left);
            let length = bundle.split_off(left, step);
            let row = self.row(owner);
            self.shares.attribute(row, &bundle.provided, &bundle.part, length);
            if let Some(timeline) = &mut timeline {
                timeline.push(left.time, length, owner);
            }
            if self.follows {
                self.thread_switches.extend(bundle.unsampled_thread_switch(left, owner));
            }
        }
        if left.iter().any(|left| left.tid != 0) {
            bundle.split_off_rest();
            self.shares.attribute(Row::of(Reason::Unrecorded), &bundle.provided, &bundle.part, 0);
        }
        bundle.hidden.reuse(left);
    }

    /// Returns the owner of the time before a switch without a sample.
    fn outgoing_owner(&self, left: &UnsampledSwitch) -> OwnerKey {
        match (self.granularity, left.tid) {
            (Granularity::Cgroup, _) => OwnerKey::Cgroup(ROOT.0),
            (Granularity::Process, 0) => OwnerKey::Idle,
            (Granularity::Process, _) if left.pid == u32::MAX => OwnerKey::Unattributed(Reason::Unknown),
            (Granularity::Process, _) => {
                // Unknown if records contain no cgroup.
                let cgroup = self.processes.cgroup(left.pid).map(|cgroup| cgroup.0);
                OwnerKey::Task { pid: left.pid, cgroup }
            }
        }
    }

    /// Attributes the last step of a bundle, including the CPU time in it if the bundle keeps the CPU's time.
    #[inline]
    fn attribute(&mut self, bundle: &Running, owner: OwnerKey, times: Interval) {
        let row = self.row(owner);
        let time = if bundle.keeps_time { times.enabled } else { 0 };
        self.shares.attribute(row, &bundle.provided, &bundle.differences, time);
    }

    /// Adds the time of an owner in which a bundle was on the PMU, and in which it was not.
    fn attribute_presence(&mut self, bundle: &Running, owner: OwnerKey, presence: Interval) {
        if presence != Interval::default() {
            let row = self.row(owner);
            self.shares.attribute_presence(row, &bundle.provided, presence);
        }
    }

    /// Attributes the waiting spans of a bundle.
    fn settle(&mut self, bundle: &mut Running, timeline: &Timeline) {
        let (waiting, counts) =
            (std::mem::take(&mut bundle.waiting), std::mem::take(&mut bundle.waiting_counts));
        let mut slices = std::mem::take(&mut self.slices);
        for (waiting, counts) in waiting.iter().zip(counts.chunks_exact(bundle.differences.len().max(1))) {
            timeline.between(&waiting.span, &mut slices);
            self.settle_span(bundle, waiting, counts, &slices);
        }
        self.slices = slices;
    }

    /// Attributes a span that consists of these slices, at least one.
    fn settle_span(&mut self, bundle: &Running, waiting: &UnsettledCounts, counts: &[u64], slices: &[Slice]) {
        let unseen = |slice: &Slice| Interval { enabled: slice.length(), running: 0 };
        match slices {
            // The software events also contain the owner of a record without a pid.
            [slice] if !waiting.passed_over => {
                let row = self.row(slice.owner);
                self.shares.attribute(row, &bundle.provided, counts, 0);
                self.attribute_presence(bundle, slice.owner, waiting.times);
            }
            [_, .., _] if !waiting.passed_over => {
                let seen = split(waiting.times.running, slices);
                let rows: Vec<(Row, u64)> = slices
                    .iter()
                    .zip(&seen)
                    .map(|(slice, &running)| (self.row(slice.owner), running))
                    .collect();
                self.shares.attribute_shared(&rows, &bundle.provided, counts);
                for (slice, running) in slices.iter().zip(seen) {
                    self.attribute_presence(bundle, slice.owner, Interval { running, ..unseen(slice) });
                }
            }
            _ => {
                let row = self.row(OwnerKey::Unattributed(Reason::Rotated));
                self.shares.attribute(row, &bundle.provided, counts, 0);
                slices.iter().for_each(|slice| self.attribute_presence(bundle, slice.owner, unseen(slice)));
            }
        }
    }

    /// Returns the owner in a record.
    #[inline]
    fn owner_key(&self, exited: &mut ExitedProcesses, sample: &Sample<'_>) -> OwnerKey {
        let cgroup = self.fields.cgroup.then_some(sample.cgroup);
        match (self.granularity, sample.pid, sample.tid) {
            (Granularity::Cgroup, ..) => OwnerKey::Cgroup(sample.cgroup),
            (Granularity::Process, _, 0) => OwnerKey::Idle,
            // The process has already released its pid, and is about to leave the CPU for the last time.
            (Granularity::Process, u32::MAX, _) => match exited.pop() {
                Some(pid) => OwnerKey::Task { pid, cgroup },
                None => OwnerKey::Unattributed(Reason::Unknown),
            },
            (Granularity::Process, pid, _) => OwnerKey::Task { pid, cgroup },
        }
    }

    /// Returns the row of an owner; that of [`Reason::Unknown`] if the table is full.
    #[inline]
    fn row(&mut self, owner: OwnerKey) -> Row {
        match owner {
            OwnerKey::Idle => Row::IDLE,
            OwnerKey::Unattributed(reason) => Row::of(reason),
            OwnerKey::Cgroup(id) => match self.cgroups.get(&id) {
                Some(&row) => row,
                None => self.add_cgroup(id),
            },
            OwnerKey::Task { pid, cgroup } => {
                let cgroup = cgroup.map(CgroupId);
                match self.processes.task(pid, cgroup) {
                    Some(task) => Row::of_task(task),
                    None => self.add_task(pid, cgroup).unwrap_or(Row::of(Reason::Unknown)),
                }
            }
        }
    }

    #[cold]
    fn add_cgroup(&mut self, id: u64) -> Row {
        let Some(row) = self.shares.add_row(Owner::Cgroup(CgroupId(id))) else {
            return Row::of(Reason::Unknown);
        };
        self.cgroups.insert(id, row);
        row
    }

    #[cold]
    fn add_task(&mut self, pid: u32, cgroup: Option<CgroupId>) -> Option<Row> {
        if !self.shares.has_room() {
            return None;
        }
        self.processes.add_task(pid, cgroup).map(|task| self.shares.add_task_row(task))
    }

    /// Processes a record that is not a sample.
    fn sideband(&mut self, bundle: &mut Running, record: &Record<'_>, time: Option<u64>) {
        match record {
            Record::Lost { count, .. } | Record::LostSamples { count } => {
                self.losses.ring_full = self.losses.ring_full.saturating_add(*count);
                bundle.mark_gap();
                self.processes.miss();
            }
            Record::Cgroup(cgroup) => self.shares.created.apply_record(cgroup),
            Record::Throttle { .. } => self.losses.throttled += 1,
            record if self.granularity == Granularity::Process => {
                // For this bundle only, because the rings of a CPU are read one after the other. In another ring, the exit does not precede
                // the record that it explains.
                if let Record::Exit(task) = record
                    && task.pid == task.tid
                {
                    bundle.exited.push(task.pid);
                }
                self.processes.apply_record(record, time.unwrap_or(0));
            }
            // Other records do not describe owners.
            _ => {}
        }
    }

    /// Counts an unreadable record, and marks a gap.
    fn unreadable(&mut self, bundle: &mut Running) {
        self.losses.unreadable += 1;
        bundle.mark_gap();
        self.processes.miss();
    }
}
