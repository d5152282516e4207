//! The open switch stream: its groups and rings on each CPU, the thread that empties the rings, and its readings at a collection.

mod estimate;
mod open;
mod rate;
mod support;
mod takeover;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use super::open::OpenContext;
use super::reading::{Read, WORDS};
use super::scale::Delta;
use crate::attribute::{Bundle, Ingest, Shares, fields, record_size};
use crate::error::Errno;
use crate::health::{History, Interval, Judgement, Refusal};
use crate::host::CpuSet;
use crate::lock::unpoisoned;
use crate::plan;
use crate::ring::{
    Losses, Reader, Records, RingBudget, RingId, RingSet, ThreadSwitchReceiver, ThreadSwitchSender, Writers,
};
use crate::sys::scheduling::Urgency;
use crate::sys::{self, Event, Kernel};
pub use estimate::foreseen;
pub(super) use open::Refused;
use open::{Group, Opener, Spread, no_stream};
pub(super) use rate::switch_rate;
pub use support::support;

/// Time for a group to get on the PMU: a few rounds of the kernel's rotation (4 ms).
const SCHEDULING_TIME: std::time::Duration = std::time::Duration::from_millis(20);

type Ring<K> = <<K as Kernel>::Event as Event>::Ring;

/// The open stream.
#[derive(Debug)]
pub(super) struct Stream<K: Kernel> {
    pub plan: plan::Stream,
    /// The groups of each CPU. Each has the number of its ring.
    rings: RingSet<Group<K::Event>>,
    ingest: Arc<Mutex<Ingest<Ring<K>>>>,
    /// Maximum size of all rings, in bytes.
    memory: u64,
    /// Switches of each CPU per second, as known at the start.
    rate: f64,
    /// Distribution of events over groups that the PMU has required so far.
    spread: Spread,
    /// CPUs that went offline, so that the kernel dissolved their groups.
    dissolved: BTreeSet<u32>,
    /// CPUs that are listed as online but on which the kernel opens no events, because they are about to go offline.
    absent: BTreeSet<u32>,
}

/// Count of a counter on a CPU since the previous read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub cpu: u32,
    /// Its number in the stream.
    pub counter: usize,
    pub raw: u64,
    pub scaled: u64,
    pub interval: Interval,
    pub history: History,
}

/// State of the stream as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// The unit of attribution, which determines the number of switches that are recorded.
    pub granularity: plan::Granularity,
    /// Number of CPUs on which it is open.
    pub cpus: usize,
    /// Number of descriptors on all CPUs.
    pub descriptors: usize,
    /// Number of descriptors on the CPU with the most.
    pub descriptors_per_cpu: usize,
    /// The groups of hardware events on a CPU, each of which writes a record at a switch. Each group is a list of the configuration entries
    /// that it counts. More than one group where the PMU is too small for all events. Software events have a group of their own.
    pub groups: Vec<Vec<Arc<str>>>,
    /// Size of all rings, in bytes.
    pub ring_bytes: u64,
    /// Maximum size of all rings after growth due to lost records, in bytes.
    pub ring_bytes_limit: u64,
    /// Limits of the size of each ring.
    pub rings: RingBudget,
    /// Size of a record in bytes; of the largest record if there are several groups.
    pub record_bytes: usize,
    /// Counts of records read and lost.
    pub losses: Losses,
}

impl<K: Kernel> Stream<K> {
    /// Returns a stream without open events. `rate`: switches of each CPU per second. `memory`: bytes for the rings of all CPUs.
    pub(super) fn new(plan: plan::Stream, rate: f64, memory: u64) -> Self {
        let ingest = Ingest::new(plan.granularity, fields(&plan), plan.width(), plan.needs_pmu());
        Self {
            plan,
            rings: RingSet::new(Records::Switches.plural()),
            ingest: Arc::new(Mutex::new(ingest)),
            memory,
            rate,
            spread: Spread::Together,
            dissolved: BTreeSet::new(),
            absent: BTreeSet::new(),
        }
    }

    /// Limits the rings of all CPUs to `memory` bytes from now on. Open rings stay as they are.
    pub(super) fn set_ring_memory(&mut self, memory: u64) {
        self.memory = memory;
    }

    /// Closes the stream on CPUs that went offline. Returns their counts since the previous read.
    pub(super) fn close_outside(&mut self, online: &CpuSet, budget: &mut sys::Budget) -> Vec<Reading> {
        let gone: BTreeSet<u32> = self.rings.outside(online).into_iter().map(|ring| ring.cpu).collect();
        let mut readings = Vec::new();
        for cpu in gone.into_iter().chain(std::mem::take(&mut self.dissolved)) {
            self.close_cpu(cpu, budget, |reading| readings.push(reading));
        }
        readings
    }

    /// Opens the stream on CPUs that came online.
    pub(super) fn open_missing(&mut self, online: &CpuSet, means: &mut OpenContext<'_, K>) -> Vec<Refused> {
        self.absent.clear();
        let mut refused = Vec::new();
        for ring in self.rings.missing(online, 1) {
            refused.extend(self.open_cpu(ring.cpu, online.len(), None, means));
        }
        self.note_absent(refused)
    }

    /// Notes the CPUs on which nothing can be opened because they are about to go offline. Returns the other refusals.
    fn note_absent(&mut self, refused: Vec<Refused>) -> Vec<Refused> {
        // A CPU that is about to go offline is still listed as online.
        let is_absent =
            |refused: &Refused| refused.counter.is_none() && refused.refusal.errno == Some(Errno::ENODEV);
        let (absent, refused): (Vec<Refused>, _) = refused.into_iter().partition(is_absent);
        self.absent.extend(absent.into_iter().map(|absent| absent.cpu));
        refused
    }

    /// Opens the stream on one of `cpus` CPUs. Stops `before` there just before it starts.
    fn open_cpu(
        &mut self,
        cpu: u32,
        cpus: usize,
        before: Option<&Self>,
        means: &mut OpenContext<'_, K>,
    ) -> Vec<Refused> {
        // Rings are at least as large as with the maximum number of groups.
        let page_size = rustix::param::page_size();
        let least = RingBudget::new(means.facts, self.memory, cpus * (self.plan.sets.len() + 1), page_size);
        let wake_up = sys::wake_up(least.most * page_size);
        let mut opener = Opener { means, plan: &self.plan, cpu, spread: self.spread, wake_up };
        let Ok((groups, mut refused)) = opener.open() else {
            self.spread_out(Spread::ByNeed, cpu);
            return self.open_cpu(cpu, cpus, before, means);
        };
        if groups.is_empty() {
            return refused;
        }
        let descriptors = groups.iter().map(Writers::descriptors).sum();
        // Assumes that every CPU needs as many rings as this one.
        let rings = cpus * groups.len();
        self.rings.budget = RingBudget::new(means.facts, self.memory, rings, page_size);
        match self.start(cpu, groups, before, means) {
            Ok(starved) if starved && self.spread != Spread::Each => {
                // The counts since the start are discarded.
                self.close_cpu(cpu, means.budget, |_| {});
                self.spread_out(Spread::Each, cpu);
                return self.open_cpu(cpu, cpus, before, means);
            }
            Ok(_) => {}
            Err(refusal) => {
                means.budget.give_back(descriptors);
                refused.push(Refused { cpu, counter: None, refusal });
            }
        }
        refused
    }

    /// Distributes the events of each CPU over more groups than before, because those of this CPU do not fit.
    fn spread_out(&mut self, spread: Spread, cpu: u32) {
        tracing::warn!(
            cpu,
            "the hardware counters of the switch stream do not fit on the PMU together: their groups are multiplexed, and a \
             part of their counts is unattributed; count fewer hardware events"
        );
        self.spread = spread;
    }

    /// Creates the rings of the groups of a CPU, stops `before` on this CPU, and starts them. Returns `true` if one of several sets does not
    /// get on the PMU.
    fn start(
        &mut self,
        cpu: u32,
        groups: Vec<Group<K::Event>>,
        before: Option<&Self>,
        means: &mut OpenContext<'_, K>,
    ) -> Result<bool, Refusal> {
        let mut ready = Vec::new();
        for group in groups {
            let record = self.record_size(&group);
            let wanted = self.rings.budget.pages(self.rate, record, rustix::param::page_size());
            let made = self.rings.make(&group, wanted).map_err(|refused| self.no_ring(cpu, refused))?;
            ready.push((group, made));
        }
        let rings: Vec<RingId> = (0..ready.len() as u32).map(|number| RingId { cpu, number }).collect();
        let mut bundles = Vec::new();
        for (&ring, (group, made)) in rings.iter().zip(ready) {
            let measures = group.measures(self.plan.granularity);
            let (counters, switches) = (group.counters.clone(), group.switches_position());
            let bundle = Bundle { counters, measures, switches, untimed: group.untimed() };
            bundles.push((bundle, self.rings.add(ring, group, made)));
        }
        self.ingest().add_cpu(cpu, bundles);
        if before.is_some_and(|before| before.has_switch_records(cpu)) {
            // The kernel still writes no samples of some switches of this CPU, also of the first ones.
            self.enable_switch_records_of(means, |of| of == cpu);
        }
        before.iter().for_each(|before| before.stop_cpu(cpu));
        for ring in rings {
            self.rings.start(ring);
            let ingest = &self.ingest;
            self.rings.listen(ring, || {
                let ingest = Arc::clone(ingest);
                // Locked for each ring, so that a collection does not wait for all rings.
                let drain = move |ready: &[RingId]| match ready {
                    [] => drain_all(&ingest),
                    ready => ready.iter().for_each(|&ring| unpoisoned(ingest.lock()).drain(ring.cpu)),
                };
                Reader::start("switch-reader", None, Urgency::Rings, drain)
            });
        }
        let starved = |group: &Group<K::Event>| group.hardware_sets > 1 && is_starved(group.leader());
        Ok(self.of_cpu(cpu).any(starved))
    }

    /// Stops the groups of a CPU. Their counts stay readable.
    fn stop_cpu(&self, cpu: u32) {
        for group in self.of_cpu(cpu) {
            if let Err(errno) = group.leader().disable() {
                tracing::debug!(%errno, "cannot stop a group of the switch stream");
            }
        }
    }

    /// Returns the CPUs on which it is open.
    fn cpus(&self) -> BTreeSet<u32> {
        self.rings.ids().into_iter().map(|ring| ring.cpu).collect()
    }

    /// Returns the open groups of a CPU.
    fn of_cpu(&self, cpu: u32) -> impl Iterator<Item = &Group<K::Event>> {
        self.rings.writers().filter(move |(ring, _)| ring.cpu == cpu).map(|(_, group)| group)
    }

    /// Closes a CPU, which may be offline. Its counts since its last record are unattributed. Passes its counts since the previous read to
    /// `report`.
    fn close_cpu(&mut self, cpu: u32, budget: &mut sys::Budget, mut report: impl FnMut(Reading)) {
        let rings = self.rings.ids().into_iter().filter(|ring| ring.cpu == cpu);
        let mut closing: Vec<_> = rings.filter_map(|ring| self.rings.remove(ring)).collect();
        if closing.is_empty() {
            return;
        }
        let mut readings = Vec::new();
        for group in &closing {
            let mut words = [0; WORDS];
            let read = group.leader().disable().and_then(|()| group.read(&mut words));
            let words = words.get_mut(..read.map_or(0, |read| read.length)).unwrap_or_default();
            // Values that can no longer be read were read before, or are in a record.
            if let Some(values) = words.get_mut(group.first_value()..) {
                group.progress.raise(values);
            }
            readings.push(words.to_vec());
        }
        self.ingest().remove_cpu(cpu, &mut readings);
        for (group, reading) in closing.iter_mut().zip(readings) {
            let mut words = [0; WORDS];
            let length = reading.len().min(WORDS);
            words[..length].copy_from_slice(&reading[..length]);
            take_reading(cpu, group, (&mut words, length), &mut report);
        }
        budget.give_back(closing.iter().map(Writers::descriptors).sum());
    }

    /// Stops and closes everything. Returns the counts of each CPU since the previous read, and their attribution: the two totals are
    /// equal.
    pub(super) fn close(mut self, budget: &mut sys::Budget) -> (Vec<Reading>, Shares) {
        let cpus = self.cpus();
        cpus.iter().for_each(|&cpu| self.stop_cpu(cpu));
        let mut readings = Vec::new();
        cpus.into_iter().for_each(|cpu| self.close_cpu(cpu, budget, |reading| readings.push(reading)));
        self.stop_thread_switches();
        let shares = self.ingest().take(|_| false);
        (readings, shares)
    }

    /// Reads every counter of every CPU. A CPU that went offline is closed at the next [`close_outside`](Self::close_outside), even if it
    /// is still, or again, listed as online.
    pub(super) fn read(&mut self, mut report: impl FnMut(Reading)) {
        for (ring, group) in self.rings.writers_mut() {
            if !read_group(ring.cpu, group, &mut report) {
                self.dissolved.insert(ring.cpu);
            }
        }
    }

    /// Returns the attributed counts since the last call. `there` reports whether a process exists.
    pub(super) fn take(&mut self, there: impl Fn(u32) -> bool) -> Shares {
        self.ingest().take(there)
    }

    /// Enlarges the rings that lost records, within the memory limit.
    pub(super) fn grow(&mut self) {
        self.rings.grow(&mut *unpoisoned(self.ingest.lock()));
    }

    /// Enables `PERF_RECORD_SWITCH` on the CPUs where the kernel writes no samples for some switches.
    pub(super) fn enable_switch_records(&mut self, means: &mut OpenContext<'_, K>) {
        let cpus_with_unsampled_switches = self.ingest().cpus_with_unsampled_switches();
        self.enable_switch_records_of(means, |cpu| cpus_with_unsampled_switches.contains(&cpu));
    }

    fn enable_switch_records_of(&mut self, means: &mut OpenContext<'_, K>, needs: impl Fn(u32) -> bool) {
        let writes_them = |ring: RingId| ring.number == 0 && needs(ring.cpu);
        for (ring, group) in self.rings.writers_mut().filter(|(ring, _)| writes_them(*ring)) {
            group.enable_switch_records(ring.cpu, means);
        }
    }

    fn has_switch_records(&self, cpu: u32) -> bool {
        self.of_cpu(cpu).any(|group| group.switch_records().is_some())
    }

    /// Passes thread switches on from now on, and returns their source.
    pub(super) fn thread_switches(&self) -> ThreadSwitchReceiver {
        let sender = Arc::new(ThreadSwitchSender::default());
        self.ingest().send_thread_switches(Arc::clone(&sender));
        let ingest = Arc::downgrade(&self.ingest);
        ThreadSwitchReceiver::new(sender, move || {
            ingest.upgrade().iter().for_each(|ingest| drain_all(ingest));
        })
    }

    /// Stops passing thread switches on.
    pub(super) fn stop_thread_switches(&self) {
        self.ingest().stop_thread_switches();
    }

    /// Reports whether its records describe all thread switches on all of these CPUs.
    pub(super) fn reports_thread_switches(&self, online: &CpuSet) -> bool {
        self.plan.timed && self.is_everywhere(online) && self.groups_lead_without_pmu()
    }

    /// Reports whether the first group of each CPU consists of software events: it then has a record of each switch.
    fn groups_lead_without_pmu(&self) -> bool {
        self.rings.writers().filter(|(ring, _)| ring.number == 0).all(|(_, group)| group.untimed())
    }

    /// Reports whether it is open on all of these CPUs, except those that are about to go offline.
    pub(super) fn is_everywhere(&self, online: &CpuSet) -> bool {
        self.rings.missing(online, 1).iter().all(|ring| self.absent.contains(&ring.cpu))
    }

    /// Returns the consumer of the rings, locked.
    pub(super) fn ingest(&self) -> MutexGuard<'_, Ingest<Ring<K>>> {
        unpoisoned(self.ingest.lock())
    }

    /// Reports whether a counter is open on any CPU.
    pub(super) fn counts(&self, counter: usize) -> bool {
        self.groups().any(|group| group.counters.iter().any(|counters| counters.contains(&counter)))
    }

    fn groups(&self) -> impl Iterator<Item = &Group<K::Event>> {
        self.rings.writers().map(|(_, group)| group)
    }

    /// Returns the size of a record of a group, in bytes.
    fn record_size(&self, group: &Group<K::Event>) -> usize {
        record_size(&self.plan, group.counters.len() - Group::<K::Event>::OWN, group.untimed())
    }

    pub(super) fn state(&self) -> StreamState {
        let ingest = self.ingest();
        let cpus = self.cpus();
        let (most, rings) = (self.rings.budget.most, self.rings.ids().len());
        let groups = |&cpu: &u32| {
            let hardware = self.of_cpu(cpu).filter(|group| group.hardware_sets > 0);
            hardware.map(|group| self.entries_of(group)).collect::<Vec<_>>()
        };
        StreamState {
            granularity: self.plan.granularity,
            cpus: cpus.len(),
            descriptors: self.rings.descriptors(),
            descriptors_per_cpu: cpus
                .iter()
                .map(|&cpu| self.of_cpu(cpu).map(Writers::descriptors).sum())
                .max()
                .unwrap_or(0),
            groups: cpus.iter().map(groups).max_by_key(Vec::len).unwrap_or_default(),
            ring_bytes: ingest.bytes(),
            ring_bytes_limit: (rings * most * rustix::param::page_size()) as u64,
            rings: self.rings.budget,
            record_bytes: self.groups().map(|group| self.record_size(group)).max().unwrap_or(0),
            losses: ingest.losses(),
        }
    }

    /// Returns the configuration entries that a group counts.
    fn entries_of(&self, group: &Group<K::Event>) -> Vec<Arc<str>> {
        let counted: BTreeSet<usize> = group.counters.iter().flatten().copied().collect();
        let mut entries = BTreeSet::new();
        for (index, set) in self.plan.sets.iter().enumerate() {
            let first = self.plan.first_of(index);
            if counted.range(first..first + set.events.len()).next().is_some() {
                entries.extend(set.entries.iter().cloned());
            }
        }
        entries.into_iter().collect()
    }

    /// Returns the refusal of a CPU that has no ring.
    fn no_ring(&self, cpu: u32, (judgement, errno): (Judgement, Errno)) -> Refusal {
        let judgement = Judgement { reason: no_stream(&judgement.reason), ..judgement };
        judgement.refusal(&self.plan.granularity.leader().into(), format!("cpu {cpu}"), Some(errno))
    }
}

/// Empties all rings. Takes the lock for each CPU, so that a collection does not wait for all of them.
fn drain_all<R: sys::Ring>(ingest: &Mutex<Ingest<R>>) {
    let cpus = unpoisoned(ingest.lock()).cpus();
    cpus.into_iter().for_each(|cpu| unpoisoned(ingest.lock()).drain(cpu));
}

/// Reports whether a group that was just enabled does not get on the PMU.
fn is_starved<E: Event>(leader: &E) -> bool {
    let ran = || {
        let mut words = [0; WORDS];
        // If this cannot be determined, the group is considered to run.
        !matches!(leader.read(&mut words), Ok(length) if length >= 3) || words[2] > 0 || words[1] == 0
    };
    if ran() {
        return false;
    }
    std::thread::sleep(SCHEDULING_TIME);
    !ran()
}

/// Reads a group, and reports whether it is whole.
fn read_group<E: Event>(cpu: u32, group: &mut Group<E>, report: &mut impl FnMut(Reading)) -> bool {
    let mut words = [0; WORDS];
    match group.read(&mut words) {
        Ok(Read { length, whole }) => {
            take_reading(cpu, group, (&mut words, length), report);
            whole
        }
        Err(errno) => {
            tracing::debug!(cpu, %errno, "cannot read the switch stream");
            true
        }
    }
}

/// Passes the counts up to a reading to `report`.
fn take_reading<E: Event>(
    cpu: u32,
    group: &mut Group<E>,
    (words, length): (&mut [u64; WORDS], usize),
    report: &mut impl FnMut(Reading),
) {
    let length = if group.untimed() { add_times(words, length) } else { length };
    let words = words.get(..length).unwrap_or_default();
    group.progress.advance(words, |Delta { member, raw, scaled, interval, history }| {
        for &counter in group.counters.get(member).into_iter().flatten() {
            report(Reading { cpu, counter, raw, scaled, interval, history });
        }
    });
}

/// Inserts times into a reading without times, and returns its new length. The clock, behind the leader, counted while the group was
/// enabled, and the group was on the CPU all that time.
fn add_times(words: &mut [u64; WORDS], length: usize) -> usize {
    let Some(&clock) = words.get(2).filter(|_| (3..=WORDS - 2).contains(&length)) else { return 0 };
    words.copy_within(1..length, 3);
    (words[1], words[2]) = (clock, clock);
    length + 2
}
