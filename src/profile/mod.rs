//! Profiles: how often, or for how long, which stack was seen, with names.
//!
//! ```text
//! rings ─► Merger ─► Analyzer: stacks ─► Window: the last minute ──┐
//!                       └► Tasks: names  └► Recording: from … to … ┴► Counted ─► Symbolizer ─► Profile
//! ```
//!
//! A thread of its own reads the rings and finds out whose each frame is while its process still runs. Names are looked
//! up only when somebody asks for a profile.
//!
//! [`Profile`] is what every output is made of, and knows none of them: tables of stacks, locations, functions and files
//! that refer to each other by place, as in pprof and OTLP, but with no entry that stands for nothing. A [`Selection`]
//! takes the part of it that somebody asked for.

mod ask;
mod build;
mod contexts;
mod fair;
mod functions;
mod intake;
mod memory;
mod model;
mod namer;
mod open;
mod publish;
#[cfg(test)]
pub(crate) mod replayed;
mod selection;
#[cfg(test)]
pub(crate) mod specimen;
mod tally;
mod tasks;
mod thin;
mod totals;
mod waits;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::clock::{Clock, Monotonic};
use crate::config::profiled::Rate;
use crate::container::Directory;
use crate::counter::Whom;
use crate::health::{Refusal, Scope, Ticket};
use crate::host::{CpuSet, Roots};
use crate::metrics::{Family, NameError};
use crate::plan::Sampler;
use crate::ring::{Reader, RingBudget, room};
use crate::sys::{Event, Kernel, Sampling};
use crate::tracepoint::Context;
use ask::Shared;
pub use ask::{Ask, Asked, NoProfile};
use intake::Intake;
pub use intake::Losses;
pub(crate) use memory::MemoryShares;
pub use model::{Function, Kind, Line, Location, Mode, Profile, Sample, Task, Unit, ValueType};
use namer::Namer;
use open::Opened;
pub(crate) use open::Spot;
pub use publish::METRICS;
use publish::Publisher;
pub(crate) use publish::{FUNCTIONS, SAMPLES, Shortfalls};
pub use selection::{Cgroups, Selection};

/// What frames have names by, too.
pub use crate::symbol::{FileHash, Origin, Segment as Mapping};

type Ring<K> = <<K as Kernel>::Event as Event>::Ring;

/// How often rings are read in any case: what a process has mapped must be looked at while it runs.
const EVERY: Duration = Duration::from_millis(200);

/// How long a collection waits until what was sampled before it has been looked at. What is left is in the next one.
const PATIENCE: Duration = Duration::from_secs(2);

/// The samplers of all CPUs, and what they saw.
#[derive(Debug)]
pub(crate) struct Profiler<K: Kernel> {
    clock: Clock,
    samplers: Vec<Arc<Sampler>>,
    /// Who is sampled; `None` = whoever runs.
    whom: Option<Vec<Whom>>,
    cpus: BTreeMap<u32, Opened<K::Event>>,
    shared: Arc<Shared<Ring<K>>>,
    reader: Option<Reader>,
    memory: u64,
    rings: RingBudget,
    /// What was refused, and on which CPU.
    refused: Vec<(u32, Ticket)>,
    publisher: Publisher,
    /// When it was taken in last what was seen.
    collected: Monotonic,
}

/// What there is to say about one entry.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerState {
    /// What was planned.
    pub plan: Arc<Sampler>,
    /// On how many CPUs it is open.
    pub open: usize,
    /// Samples so far.
    pub samples: u64,
    /// How often one was of a series that there was no room for.
    pub folded: u64,
}

impl<K: Kernel> Profiler<K> {
    /// Nothing is open yet. `directory` tells whose containers cgroups are.
    ///
    /// # Errors
    /// When one of its own metrics cannot be called what it is called: a bug.
    pub(crate) fn new(clock: Clock, roots: &Roots, directory: Arc<Directory>) -> Result<Self, NameError> {
        let collected = clock.monotonic();
        Ok(Self {
            samplers: Vec::new(),
            cpus: BTreeMap::new(),
            shared: Arc::new(Shared::new(clock.clone(), roots, directory, Intake::new(roots))),
            clock,
            whom: None,
            reader: None,
            memory: 0,
            rings: RingBudget { most: 1, bound_by_kernel: false },
            refused: Vec::new(),
            publisher: Publisher::new()?,
            collected,
        })
    }

    /// Samples these alone, and nobody else. To be said before anything is sampled.
    pub(crate) fn only(mut self, whom: Vec<Whom>) -> Self {
        self.whom = Some(whom);
        self
    }

    /// Holds no more memory than these shares. To be said before anything is sampled.
    pub(crate) fn within(self, shares: &MemoryShares) -> Self {
        self.intake().keep_within(shares);
        self.shared.set_memory(&shares.symbols);
        self
    }

    /// Samples for these entries from now on. If they are not those that it samples for already, all are opened anew;
    /// entries that stay keep their windows and totals.
    pub(crate) fn apply(
        &mut self,
        samplers: &[Arc<Sampler>],
        limit: usize,
        (memory, debug_info): (u64, u64),
        online: &CpuSet,
        context: &mut Context<'_, K>,
    ) {
        let stay = self.publisher.set(samplers, limit, self.clock.now());
        self.shared.keep_functions(&stay);
        self.shared.debug_info.store(debug_info, Ordering::Relaxed);
        if self.samplers != samplers || memory != self.memory || !self.refused.is_empty() {
            self.close(context);
            self.samplers = samplers.to_vec();
            self.memory = memory;
            self.intake().set_samplers(samplers);
        }
        self.follow(online, context);
    }

    /// What profiles are asked for through, whatever is sampled.
    pub(crate) fn asked(&self) -> Arc<dyn Ask> {
        Arc::clone(&self.shared) as Arc<dyn Ask>
    }

    /// Opens on the CPUs that came, and closes on those that went.
    fn follow(&mut self, online: &CpuSet, context: &mut Context<'_, K>) {
        let gone: Vec<u32> = self.cpus.keys().copied().filter(|&cpu| !online.contains(cpu)).collect();
        gone.into_iter().for_each(|cpu| self.close_cpu(cpu, context));
        for (_, ticket) in self.refused.extract_if(.., |(cpu, _)| !online.contains(*cpu)) {
            context.board.remove(ticket);
        }
        if self.samplers.is_empty() {
            return;
        }
        for cpu in online.iter() {
            let tried = self.refused.iter().any(|&(refused, _)| refused == cpu);
            if !self.cpus.contains_key(&cpu) && !tried {
                self.open(cpu, online, context);
            }
        }
    }

    fn open(&mut self, cpu: u32, online: &CpuSet, context: &mut Context<'_, K>) {
        let everybody;
        let whom = match &self.whom {
            Some(whom) => whom,
            None => {
                everybody = [Whom::Cpus(online.clone())];
                &everybody[..]
            }
        };
        let (opened, refused) = open::open(cpu, &self.samplers, whom, context);
        for open::Refused { sampler, refusal } in refused {
            self.refuse(cpu, sampler, &refusal, context);
        }
        let Some(mut opened) = opened else { return };
        self.rings = RingBudget::new(context.facts, self.memory, online.len(), rustix::param::page_size());
        let pages = match self.whom {
            // Somebody waits for it, and it does not go on for ever: nothing is to be lost while rings grow.
            Some(_) => self.rings.most,
            None => {
                let rate: f64 = self.samplers.iter().map(bytes_per_second).sum();
                self.rings.pages(rate, 1, rustix::param::page_size())
            }
        };
        match opened.make_ring(pages) {
            Ok(ring) => self.start(cpu, opened, ring),
            Err(errno) => {
                context.budget.give_back(opened.descriptors());
                let refusal =
                    room::refused(errno).refusal(&"samples".into(), format!("cpu {cpu}"), Some(errno));
                self.refuse(cpu, None, &refusal, context);
            }
        }
    }

    /// Lets the events of a ring write, once everybody is ready to read.
    fn start(&mut self, cpu: u32, opened: Opened<K::Event>, ring: Ring<K>) {
        {
            let mut intake = self.intake();
            opened.events.iter().for_each(|open| intake.tap(open.id, open.tap));
            intake.add(cpu, ring);
        }
        self.listen(cpu, &opened.holder);
        if let Err(errno) = opened.start() {
            tracing::warn!(cpu, %errno, "an event does not start: no stacks are sampled on this CPU");
        }
        self.cpus.insert(cpu, opened);
    }

    /// Lets the reader wake up for a ring. Without a reader, collections alone empty the rings.
    fn listen(&mut self, cpu: u32, holder: &K::Event) {
        if self.reader.is_none() {
            let shared = Arc::clone(&self.shared);
            let namer = self.namer();
            match Reader::start("profile-reader", Some(EVERY), move |_| shared.drain(namer.as_ref())) {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => tracing::warn!(
                    %error,
                    "there is no thread to read samples: collections do, rings may run over, and short-lived processes \
                     stay unknown"
                ),
            }
        }
        if let Some(reader) = &self.reader
            && let Some(descriptor) = holder.descriptor()
            && let Err(errno) = reader.listen(descriptor, cpu.into())
        {
            tracing::warn!(cpu, %errno, "a ring of samples is read five times a second alone, and may run over");
        }
    }

    fn namer(&self) -> Option<Namer> {
        let shared = Arc::clone(&self.shared);
        let started = Namer::start(move |news| shared.look_up(news));
        started
            .inspect_err(
                |error| tracing::warn!(%error, "there is no thread to look up functions for metrics"),
            )
            .ok()
    }

    fn refuse(&mut self, cpu: u32, sampler: Option<usize>, refusal: &Refusal, context: &mut Context<'_, K>) {
        for (place, at) in self.samplers.iter().enumerate() {
            if sampler.is_none_or(|sampler| sampler == place) {
                let event = at
                    .events
                    .first()
                    .map_or_else(|| Arc::clone(&refusal.event), |event| Arc::clone(&event.name));
                let refusal = Refusal { event, ..refusal.clone() };
                let scope = self.whom.as_ref().and_then(|whom| whom.first()).map_or(Scope::Cpu, Whom::scope);
                self.refused.push((cpu, context.board.add(&at.entry, scope, refusal)));
            }
        }
    }

    fn close_cpu(&mut self, cpu: u32, context: &mut Context<'_, K>) {
        let Some(opened) = self.cpus.remove(&cpu) else { return };
        for open in &opened.events {
            if let Err(errno) = open.event.disable() {
                tracing::debug!(cpu, %errno, "cannot stop an event");
            }
        }
        let ids = opened.events.iter().map(|open| open.id);
        self.intake().remove(cpu, ids, self.clock.kernel());
        context.budget.give_back(opened.descriptors());
    }

    /// Closes everything. What was seen stays to be asked for.
    pub(crate) fn close(&mut self, context: &mut Context<'_, K>) {
        let all: Vec<u32> = self.cpus.keys().copied().collect();
        all.into_iter().for_each(|cpu| self.close_cpu(cpu, context));
        for (_, ticket) in self.refused.drain(..) {
            context.board.remove(ticket);
        }
        self.reader = None;
    }

    /// Takes in what was seen since the last time.
    pub(crate) fn collect(&mut self) {
        if self.samplers.is_empty() {
            return;
        }
        let mut intake = self.shared.caught_up(Some(PATIENCE));
        let (taken, switches, now) = (intake.take(), intake.take_switches(), self.clock.now());
        for (place, fresh) in taken.into_iter().enumerate() {
            self.publisher.enter(place, fresh, &intake, now);
        }
        drop(intake);
        let monotonic = self.clock.monotonic();
        let elapsed = monotonic.since(std::mem::replace(&mut self.collected, monotonic));
        self.thin(&switches, elapsed);
        self.grow();
    }

    /// Lets each so manieth switch be sampled where there are more of them than are to be, so that a storm of switches
    /// costs no more than a breeze.
    fn thin(&mut self, switches: &FxHashMap<u32, u64>, elapsed: Duration) {
        let samplers = &self.samplers;
        // A period that is changed is not that of children, so that samples of theirs would be weighed wrongly.
        for (cpu, opened) in self.cpus.iter_mut().filter(|(_, opened)| !opened.inherited) {
            let rate = switches.get(cpu).map_or(0.0, |&count| count as f64 / elapsed.as_secs_f64().max(1e-3));
            for open in &mut opened.events {
                let Some(sampler) = samplers.get(open.tap.sampler) else { continue };
                let (Some(_), Rate::Frequency(limit)) = (&sampler.waits, sampler.rate) else { continue };
                let wanted = (rate / limit.max(1) as f64).ceil().max(1.0) as u64;
                let period = wanted.next_power_of_two();
                if open.tap.weight == Some(period) || open.event.set_period(period).is_err() {
                    continue;
                }
                open.tap.weight = Some(period);
                self.shared.intake().weigh(open.id, period);
            }
        }
    }

    /// Makes the rings larger if records were lost, as far as memory goes.
    fn grow(&mut self) {
        let mut intake = self.shared.intake();
        let lost = intake.losses.ring_full;
        for (&cpu, opened) in &mut self.cpus {
            if lost == std::mem::replace(&mut opened.lost, lost) || opened.largest {
                continue;
            }
            let wanted = (opened.pages * 4).min(self.rings.most);
            if wanted <= opened.pages {
                opened.largest = true;
                room::warn_of_the_largest("samples", cpu, opened.pages, self.rings);
                continue;
            }
            // An event has one ring at a time.
            intake.take_out(cpu);
            match opened.make_ring(wanted) {
                Ok(ring) => {
                    intake.add(cpu, ring);
                    let kilobytes = room::kilobytes(opened.pages);
                    tracing::info!(
                        cpu,
                        kilobytes,
                        "samples were lost for want of room in their ring, which is larger now"
                    );
                }
                Err(errno) => {
                    tracing::error!(cpu, %errno, "there is no other ring: samples of this CPU are missing");
                }
            }
        }
    }

    /// The families of all entries.
    pub(crate) fn publish(&self) -> Vec<Family> {
        if self.samplers.is_empty() {
            return Vec::new();
        }
        let intake = self.intake();
        self.publisher.publish(&intake, &self.shared)
    }

    /// What was read and lost.
    pub(crate) fn losses(&self) -> Losses {
        self.intake().losses
    }

    /// Samples that windows lost before they were too old, because memory was short.
    pub(crate) fn dropped_for_room(&self) -> u64 {
        self.intake().dropped_for_room()
    }

    /// Why stacks were cut and frames have no names, since the beginning.
    pub(crate) fn shortfalls(&self) -> Shortfalls {
        Shortfalls::of(&self.intake(), &self.shared)
    }

    /// What there is to say about each entry.
    pub(crate) fn states(&self) -> Vec<SamplerState> {
        let open = |place: usize| {
            let on = |opened: &&Opened<K::Event>| opened.events.iter().any(|open| open.tap.sampler == place);
            self.cpus.values().filter(on).count()
        };
        let samplers = self.samplers.iter().enumerate();
        let state = |(place, sampler): (usize, &Arc<Sampler>)| SamplerState {
            plan: Arc::clone(sampler),
            open: open(place),
            samples: self.publisher.samples(place),
            folded: self.publisher.folded(place),
        };
        samplers.map(state).collect()
    }

    fn intake(&self) -> MutexGuard<'_, Intake<Ring<K>>> {
        self.shared.intake()
    }
}

/// What a sampler writes on a CPU at most, if it is not more often than it should be.
fn bytes_per_second(sampler: &Arc<Sampler>) -> f64 {
    /// Where the event decides how often it is sampled.
    const SAMPLES: u64 = 1000;
    sampler.most_samples().unwrap_or(SAMPLES) as f64 * Sampling::of(sampler).most_bytes(None) as f64
}

/// What a panic of another thread left behind is still in order: nothing is half done when it could happen.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
