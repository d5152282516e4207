//! The switch stream, opened: its groups and ring on each CPU, the thread that empties the rings, and what it can tell
//! at a collection.

mod foreseen;
mod open;
mod ring;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::open::WORDS;
use super::scale::Progress;
use crate::attribute::{Bundle, Intake, Losses, Shares, fields, record_size};
use crate::error::Errno;
use crate::health::{Interval, Refusal};
use crate::host::{CpuSet, Facts};
use crate::plan;
use crate::ring::{Reader, RingBudget, room};
use crate::sys::{Event, Kernel};
use crate::target::CgroupId;
pub use foreseen::foreseen;
use open::{DoesNotFit, Group, Opener, Spread};
pub(super) use ring::switch_rate;
pub use support::support;

/// How long a group is given to find its place on the PMU: a few rounds of the kernel's rotation (4 ms).
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(20);

type Ring<K> = <<K as Kernel>::Event as Event>::Ring;

/// What opening needs besides the plan.
pub(super) struct Context<'a, K> {
    pub kernel: &'a K,
    pub facts: &'a Facts,
    pub core_pmu_present: bool,
    pub budget: &'a mut crate::sys::Budget,
}

/// The open stream.
#[derive(Debug)]
pub(super) struct Stream<K: Kernel> {
    pub plan: plan::Stream,
    cpus: BTreeMap<u32, Cpu<K::Event>>,
    intake: Arc<Mutex<Intake<Ring<K>>>>,
    reader: Option<Reader>,
    rings: RingBudget,
    /// Bytes of all rings that may be used.
    memory: u64,
    /// Switches of each CPU in a second, as known at the start.
    rate: f64,
    /// How many groups the PMU made necessary so far.
    spread: Spread,
}

/// What is open on one CPU.
#[derive(Debug)]
struct Cpu<E> {
    groups: Vec<Open<E>>,
}

/// A group and what is known of it.
#[derive(Debug)]
struct Open<E> {
    group: Group<E>,
    progress: Progress,
    /// Pages of its ring.
    pages: usize,
    /// Whether a larger ring was refused.
    largest: bool,
    /// Records that its ring had lost when it was looked at last.
    lost: u64,
}

impl<E> Cpu<E> {
    fn descriptors(&self) -> usize {
        self.groups.iter().map(|open| open.group.descriptors()).sum()
    }
}

/// A counter that was refused somewhere.
#[derive(Debug)]
pub(super) struct Refused {
    pub cpu: u32,
    /// Its number in the stream; `None` = all of them.
    pub counter: Option<usize>,
    pub refusal: Refusal,
}

/// What a counter did on a CPU since it was read before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub cpu: u32,
    /// Its number in the stream.
    pub counter: usize,
    pub raw: u64,
    pub scaled: u64,
    pub interval: Interval,
    pub ever_ran: bool,
}

/// What there is to say about the stream as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// What tells owners apart, and how much is counted.
    pub granularity: plan::Granularity,
    /// On how many CPUs it is open.
    pub cpus: usize,
    /// Descriptors on all of them.
    pub descriptors: usize,
    /// Descriptors on the CPU that has the most.
    pub descriptors_per_cpu: usize,
    /// The groups on a CPU, each of which writes a record at a switch, as the entries of the configuration that each
    /// counts for; more than one where the PMU is too small for all.
    pub groups: Vec<Vec<Arc<str>>>,
    /// Bytes of all rings.
    pub ring_bytes: u64,
    /// What they may grow to where they run over.
    pub ring_bytes_limit: u64,
    /// How far each ring may grow.
    pub rings: RingBudget,
    /// Bytes of a record, of the largest if there are several groups.
    pub record_bytes: usize,
    /// What was read and lost.
    pub losses: Losses,
}

impl<K: Kernel> Stream<K> {
    /// Opens nothing yet. `rate` is how often each CPU switches in a second; `memory` is for the rings of all CPUs.
    pub(super) fn new(plan: plan::Stream, rate: f64, memory: u64) -> Self {
        let intake = Intake::new(plan.granularity, fields(&plan), plan.width());
        Self {
            plan,
            cpus: BTreeMap::new(),
            intake: Arc::new(Mutex::new(intake)),
            reader: None,
            rings: RingBudget { most: 1, bound_by_kernel: false },
            memory,
            rate,
            spread: Spread::Together,
        }
    }

    /// Opens it on the CPUs that came, and closes it on those that went.
    pub(super) fn set_online(&mut self, online: &CpuSet, context: &mut Context<'_, K>) -> Vec<Refused> {
        let gone: Vec<u32> = self.cpus.keys().copied().filter(|&cpu| !online.contains(cpu)).collect();
        gone.into_iter().for_each(|cpu| self.close_cpu(cpu, context.budget));
        let mut refused = Vec::new();
        for cpu in online.iter().filter(|cpu| !self.cpus.contains_key(cpu)).collect::<Vec<_>>() {
            refused.extend(self.open_cpu(cpu, online.len(), context));
        }
        refused
    }

    fn open_cpu(&mut self, cpu: u32, cpus: usize, context: &mut Context<'_, K>) -> Vec<Refused> {
        let Ok((groups, refused)) = self.open_groups(cpu, context) else {
            return self.spread_out(Spread::ByNeed, cpu, cpus, context);
        };
        let mut refused: Vec<Refused> = refused
            .into_iter()
            .map(|open::Refused { counter, refusal }| Refused { cpu, counter, refusal })
            .collect();
        if groups.is_empty() {
            return refused;
        }
        let descriptors = groups.iter().map(Group::descriptors).sum();
        // Every CPU is taken to need as many rings as this one.
        let rings = cpus * groups.len();
        self.rings = RingBudget::new(context.facts, self.memory, rings, rustix::param::page_size());
        match self.start(cpu, groups) {
            Ok(starved) if starved && self.spread != Spread::Each => {
                self.close_cpu(cpu, context.budget);
                return self.spread_out(Spread::Each, cpu, cpus, context);
            }
            Ok(_) => {}
            Err(refusal) => {
                context.budget.give_back(descriptors);
                refused.push(Refused { cpu, counter: None, refusal });
            }
        }
        refused
    }

    /// Opens a CPU with more groups than before.
    fn spread_out(
        &mut self,
        spread: Spread,
        cpu: u32,
        cpus: usize,
        context: &mut Context<'_, K>,
    ) -> Vec<Refused> {
        tracing::warn!(
            cpu,
            "the hardware counters of the switch stream do not fit on the PMU together: entries take turns, and a part \
             of their counts has no owner; count fewer hardware events"
        );
        self.spread = spread;
        self.open_cpu(cpu, cpus, context)
    }

    fn open_groups(
        &self,
        cpu: u32,
        context: &mut Context<'_, K>,
    ) -> Result<open::Opened<K::Event>, DoesNotFit> {
        let mut opener = Opener {
            kernel: context.kernel,
            facts: context.facts,
            core_pmu_present: context.core_pmu_present,
            budget: context.budget,
            plan: &self.plan,
            cpu,
            spread: self.spread,
        };
        opener.open()
    }

    /// Gives the groups of a CPU their rings and lets them count. `true` if one of several sets finds no place on the
    /// PMU.
    fn start(&mut self, cpu: u32, groups: Vec<Group<K::Event>>) -> Result<bool, Refusal> {
        let (mut open, mut bundles) = (Vec::new(), Vec::new());
        for group in groups {
            let record = self.record_size(&group);
            let wanted = self.rings.pages(self.rate, record, rustix::param::page_size());
            let (ring, pages) = ring::make(&group, wanted).map_err(|errno| self.no_ring(cpu, errno))?;
            bundles.push((Bundle { counters: group.counters.clone(), untimed: group.untimed }, ring));
            let progress = Progress::new(group.counters.len());
            open.push(Open { group, progress, pages, largest: pages < wanted, lost: 0 });
        }
        self.intake().add_cpu(cpu, bundles);
        for (number, open) in open.iter().enumerate() {
            if let Err(errno) = open.group.leader.enable() {
                tracing::warn!(
                    cpu,
                    %errno,
                    "a group of the switch stream does not start: what it counts on this CPU is missing"
                );
            }
            self.listen(cpu, number, &open.group.leader);
        }
        let starved = |open: &Open<K::Event>| open.group.hardware_sets > 1 && is_starved(&open.group.leader);
        let starved = open.iter().any(starved);
        self.cpus.insert(cpu, Cpu { groups: open });
        Ok(starved)
    }

    /// Lets the reader wake up for a ring. Without a reader, collections alone empty the rings.
    fn listen(&mut self, cpu: u32, group: usize, leader: &K::Event) {
        let Some(descriptor) = leader.descriptor() else { return };
        if self.reader.is_none() {
            let intake = Arc::clone(&self.intake);
            let reader = Reader::start("switch-reader", None, move |ready| {
                for &token in ready {
                    let (cpu, group) = ring::of_token(token);
                    // Locked for each, so that a collection does not wait for all.
                    lock(&intake).drain(cpu, group);
                }
            });
            match reader {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => tracing::warn!(
                    %error,
                    "there is no thread to empty the rings: collections do, and rings may run over between two"
                ),
            }
        }
        if let Some(reader) = &self.reader
            && let Err(errno) = reader.listen(descriptor, ring::token(cpu, group))
        {
            tracing::warn!(
                cpu,
                %errno,
                "a ring of this CPU is emptied by collections alone, and may run over between two"
            );
        }
    }

    /// Closes a CPU: what it counted since its last record has no owner.
    fn close_cpu(&mut self, cpu: u32, budget: &mut crate::sys::Budget) {
        let Some(closing) = self.cpus.remove(&cpu) else { return };
        let mut words = Vec::new();
        for Open { group, .. } in &closing.groups {
            let mut buffer = [0; WORDS];
            let read = group.leader.disable().and_then(|()| group.leader.read(&mut buffer));
            words.push(buffer.get(..read.unwrap_or(0)).unwrap_or_default().to_vec());
        }
        self.intake().remove_cpu(cpu, &words);
        budget.give_back(closing.descriptors());
    }

    /// Stops and closes everything. Gives what each CPU counted since it was read before, and who is charged with it:
    /// all of it, and nothing else.
    pub(super) fn close(mut self, budget: &mut crate::sys::Budget) -> (Vec<Reading>, Shares) {
        for open in self.cpus.values().flat_map(|cpu| &cpu.groups) {
            if let Err(errno) = open.group.leader.disable() {
                tracing::debug!(%errno, "cannot stop a group of the switch stream");
            }
        }
        let mut readings = Vec::new();
        self.read(|reading| readings.push(reading));
        let cpus: Vec<u32> = self.cpus.keys().copied().collect();
        cpus.into_iter().for_each(|cpu| self.close_cpu(cpu, budget));
        let shares = self.intake().take(|_| false);
        (readings, shares)
    }

    /// Reads every counter of every CPU.
    pub(super) fn read(&mut self, mut tell: impl FnMut(Reading)) {
        for (&cpu, open) in &mut self.cpus {
            for Open { group, progress, .. } in &mut open.groups {
                read_group(cpu, group, progress, &mut tell);
            }
        }
    }

    /// Gives what was charged to whom since the last time; `there` tells whether a process exists.
    pub(super) fn take(&mut self, there: impl Fn(u32) -> bool) -> Shares {
        self.intake().take(there)
    }

    /// Makes the rings larger that ran over, as far as memory goes.
    pub(super) fn grow(&mut self) {
        let mut intake = lock(&self.intake);
        let lost: Vec<(u32, usize, u64)> = intake
            .rings()
            .map(|(cpu, group, _, lost)| (cpu, group, lost))
            .filter(|&(.., lost)| lost > 0)
            .collect();
        for (cpu, number, lost) in lost {
            let open = self.cpus.get_mut(&cpu).and_then(|cpu| cpu.groups.get_mut(number));
            let Some(open) = open else { continue };
            if lost == std::mem::replace(&mut open.lost, lost) || open.largest {
                continue;
            }
            // Records come in bursts, so twice is often not enough.
            let wanted = (open.pages * 4).min(self.rings.most);
            if wanted <= open.pages {
                open.largest = true;
                room::warn_of_the_largest("switches", cpu, open.pages, self.rings);
                continue;
            }
            let Open { group, pages, largest, lost, .. } = open;
            let replaced = intake.replace_ring(cpu, number, || {
                let (made, got) = ring::make(group, wanted)?;
                (*largest, *pages, *lost) = (got < wanted, got, 0);
                Ok::<_, Errno>(made)
            });
            match replaced {
                Ok(()) => tracing::info!(
                    cpu,
                    kilobytes = room::kilobytes(*pages),
                    "records of switches were lost for want of room in their ring, which is larger now"
                ),
                Err(errno) => {
                    *largest = true;
                    tracing::error!(
                        cpu,
                        %errno,
                        "records of switches were lost, and no other ring could be made: nothing that this CPU counts \
                         is attributed any more, until the program is started again"
                    );
                }
            }
        }
    }

    /// The rings and what comes of them.
    pub(super) fn intake(&self) -> MutexGuard<'_, Intake<Ring<K>>> {
        lock(&self.intake)
    }

    /// The paths of cgroups that were created since the stream began, from the root of the hierarchy; also after it is
    /// closed.
    pub(super) fn born(&self) -> impl Fn(CgroupId) -> Option<Arc<str>> + use<K> {
        let intake = Arc::clone(&self.intake);
        move |id| lock(&intake).path_of(id).cloned()
    }

    /// Whether a counter is open on any CPU.
    pub(super) fn counts(&self, counter: usize) -> bool {
        self.groups().any(|group| group.counters.iter().any(|counters| counters.contains(&counter)))
    }

    fn groups(&self) -> impl Iterator<Item = &Group<K::Event>> {
        self.cpus.values().flat_map(|cpu| &cpu.groups).map(|open| &open.group)
    }

    /// Bytes of a record of a group.
    fn record_size(&self, group: &Group<K::Event>) -> usize {
        record_size(&self.plan, group.counters.len() - Group::<K::Event>::OWN, group.untimed)
    }

    pub(super) fn state(&self) -> StreamState {
        let intake = self.intake();
        StreamState {
            granularity: self.plan.granularity,
            cpus: self.cpus.len(),
            descriptors: self.groups().map(Group::descriptors).sum(),
            descriptors_per_cpu: self.cpus.values().map(Cpu::descriptors).max().unwrap_or(0),
            groups: self
                .cpus
                .values()
                .map(|cpu| cpu.groups.iter().map(|open| self.entries_of(&open.group)).collect::<Vec<_>>())
                .max_by_key(Vec::len)
                .unwrap_or_default(),
            ring_bytes: intake.rings().map(|(.., bytes, _)| bytes as u64).sum(),
            ring_bytes_limit: (intake.rings().count() * self.rings.most * rustix::param::page_size()) as u64,
            rings: self.rings,
            record_bytes: self.groups().map(|group| self.record_size(group)).max().unwrap_or(0),
            losses: intake.losses(),
        }
    }

    /// The entries of the configuration that a group counts for.
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

    fn no_ring(&self, cpu: u32, errno: Errno) -> Refusal {
        ring::refusal(self.plan.granularity.leader(), cpu, errno)
    }
}

/// A panic of somebody else with the lock leaves sums that are still sums.
fn lock<R>(intake: &Mutex<Intake<R>>) -> MutexGuard<'_, Intake<R>> {
    intake.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a group that was just enabled does not get on the PMU.
fn is_starved<E: Event>(leader: &E) -> bool {
    let ran = || {
        let mut words = [0; WORDS];
        // Where nothing can be told, nothing is changed.
        !matches!(leader.read(&mut words), Ok(length) if length >= 3) || words[2] > 0 || words[1] == 0
    };
    if ran() {
        return false;
    }
    std::thread::sleep(PATIENCE);
    !ran()
}

fn read_group<E: Event>(cpu: u32, group: &Group<E>, progress: &mut Progress, tell: &mut impl FnMut(Reading)) {
    let mut words = [0; WORDS];
    let length = match group.leader.read(&mut words) {
        Ok(length) if group.untimed => add_times(&mut words, length),
        Ok(length) => length,
        Err(errno) => return tracing::debug!(cpu, %errno, "cannot read the switch stream"),
    };
    let words = words.get(..length).unwrap_or_default();
    let mut deltas = Vec::with_capacity(group.counters.len());
    let Some(interval) = progress.advance(words, |delta| deltas.push(delta)) else { return };
    for delta in deltas {
        for &counter in group.counters.get(delta.member).into_iter().flatten() {
            let (raw, scaled, ever_ran) = (delta.raw, delta.scaled, progress.ever_ran);
            tell(Reading { cpu, counter, raw, scaled, interval, ever_ran });
        }
    }
}

/// Makes a reading without times one with times: its clock, behind the leader, has counted while it was enabled, and
/// it was on the CPU all the time.
fn add_times(words: &mut [u64; WORDS], length: usize) -> usize {
    let Some(&clock) = words.get(2).filter(|_| (3..=WORDS - 2).contains(&length)) else { return 0 };
    words.copy_within(1..length, 3);
    (words[1], words[2]) = (clock, clock);
    length + 2
}
