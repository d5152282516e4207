//! Profiles: how often, or for how long, which stack was seen, with names.
//!
//! ```text
//! Rings (Merger) ─► Analysis ─┬► Window: the last minute ──┬► Counted ─► Symbolizer ─► Profile
//!   commands ─┘               ├► Recording: from … to …  ──┘
//!                             └► Handoff: sums, accounts ─► collections
//! ```
//!
//! A thread of its own, `profile-reader`, analyzes records: it finds out whose each frame is while the process still runs,
//! which takes reading files of that process. Names are looked up only when a profile is asked for.
//!
//! Such files may never answer. So `Analysis` is behind an `lock::IoLock`, which the collector and the
//! HTTP thread never take. These two reach `rings` and `handoff` alone, which are plain memory behind a
//! `lock::Lock`: a collection empties the rings, takes what has been analyzed so far, and leaves the rest to
//! a later one. What the collector tells the analysis is queued between the records.
//!
//! [`Profile`] is what every output is made of, and knows none of them: tables of stacks, locations, functions and files
//! that refer to each other by place, as in pprof and OTLP, but with no entry that stands for nothing. A [`Selection`]
//! takes the part of it that somebody asked for.

mod analysis;
mod ask;
mod build;
mod contexts;
mod functions;
mod handoff;
mod memory;
mod model;
mod namer;
mod open;
mod publish;
#[cfg(test)]
pub(crate) mod replayed;
mod rings;
mod selection;
#[cfg(test)]
pub(crate) mod specimen;
mod tally;
mod tasks;
#[cfg(test)]
mod tests;
mod thin;
mod waits;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::clock::Clock;
use crate::config::profiled::Rate;
use crate::container::Directory;
use crate::counter::Whom;
use crate::files::Files;
use crate::health::{Refusal, Scope, Ticket};
use crate::host::CpuSet;
use crate::metrics::{Family, NameError};
use crate::plan::Sampler;
use crate::ring::{Reader, RingBudget, room};
use crate::sys::{Event, Kernel, Sampling};
use crate::tracepoint::Context;
pub use analysis::Losses;
use ask::Shared;
pub use ask::{Ask, Asked, NoProfile};
pub(crate) use memory::MemoryShares;
pub use model::{Function, Kind, Line, Location, Mode, Profile, Sample, Task, Unit, ValueType};
use namer::Namer;
use open::Opened;
pub(crate) use open::Spot;
pub use publish::METRICS;
pub(crate) use publish::{FUNCTIONS, SAMPLES, Shortfalls};
use publish::{Publisher, State};
use rings::Command;
pub use selection::{Cgroups, Selection};

/// What frames have names by, too.
pub use crate::symbol::{FileHash, Origin, Segment as Mapping};

type Ring<K> = <<K as Kernel>::Event as Event>::Ring;

/// How often rings are read in any case: what a process has mapped must be looked at while it runs.
const EVERY: Duration = Duration::from_millis(200);

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
    /// Up to when records had been analyzed at the last collection. Nanoseconds of the records' clock.
    analyzed: u64,
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
    /// Time since all recorded samples were analyzed.
    pub age: Duration,
}

impl<K: Kernel> Profiler<K> {
    /// Nothing is open yet. `directory` tells whose containers cgroups are.
    ///
    /// # Errors
    /// When one of its own metrics cannot be called what it is called: a bug.
    pub(crate) fn new(
        clock: Clock,
        files: impl Into<Files>,
        directory: Arc<Directory>,
    ) -> Result<Self, NameError> {
        Ok(Self {
            samplers: Vec::new(),
            cpus: BTreeMap::new(),
            shared: Arc::new(Shared::new(clock.clone(), files, directory)),
            clock,
            whom: None,
            reader: None,
            memory: 0,
            rings: RingBudget { most: 1, bound_by_kernel: false },
            refused: Vec::new(),
            publisher: Publisher::new()?,
            analyzed: 0,
        })
    }

    /// Samples these alone, and nobody else. To be said before anything is sampled.
    pub(crate) fn only(mut self, whom: Vec<Whom>) -> Self {
        self.whom = Some(whom);
        self
    }

    /// Limits how many names the threads of one cgroup may have in metrics.
    pub(crate) fn limit_names(&mut self, per_cgroup: usize) {
        self.publisher.limit_names(per_cgroup);
    }

    /// Holds no more memory than these shares. To be said before anything is sampled.
    pub(crate) fn within(self, shares: &MemoryShares) -> Self {
        self.shared.keep_within(shares);
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
            self.close_cpus(context);
            self.samplers = samplers.to_vec();
            self.memory = memory;
            self.shared.set_samplers(samplers);
            if samplers.is_empty() {
                self.reader = None;
            }
        }
        self.follow(online, context);
    }

    /// Limits the number of series of each entry until the next [`apply`](Self::apply).
    pub(crate) fn limit_series(&mut self, limit: usize) {
        self.publisher.limit_series(limit);
    }

    /// The number of series of each entry.
    pub(crate) fn tables(&self) -> impl Iterator<Item = usize> {
        self.publisher.tables()
    }

    /// About how many bytes its series take.
    pub(crate) fn series_bytes(&self) -> u64 {
        self.publisher.bytes() as u64
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
        if self.cpus.is_empty() && self.reader.is_none() {
            let now = self.clock.kernel();
            self.shared.handoff.lock().start(now);
            self.analyzed = now;
        }
        self.shared.add(cpu, opened.events.iter().map(|open| (open.id, open.tap)), ring);
        self.listen(cpu, &opened.holder);
        if let Err(errno) = opened.start() {
            tracing::warn!(cpu, %errno, "an event does not start: no stacks are sampled on this CPU");
        }
        self.cpus.insert(cpu, opened);
    }

    /// Lets the reader wake up for a ring.
    fn listen(&mut self, cpu: u32, holder: &K::Event) {
        if self.reader.is_none() {
            let shared = Arc::clone(&self.shared);
            let namer = self.namer();
            let mut panicked = false;
            let drain = move |_: &[u64]| {
                let drained = catch_unwind(AssertUnwindSafe(|| shared.drain(namer.as_ref())));
                if drained.is_err() && !std::mem::replace(&mut panicked, true) {
                    tracing::error!(
                        "the analysis of samples has panicked, which is a bug: some samples are missing"
                    );
                }
            };
            match Reader::start("profile-reader", Some(EVERY), drain) {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => tracing::warn!(
                    %error,
                    "cannot start the thread that analyzes samples: they are analyzed when a profile is asked for, and \
                     short-lived processes stay unknown"
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
        let failures = Arc::clone(&self.shared);
        let failed = move || {
            if failures.naming_failures.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::error!(
                    "looking up names has panicked, which is a bug: some functions in metrics have no name (counted in \
                     perf_profile_gaps_total with the reason naming_failed)"
                );
            }
        };
        let started = Namer::start(move |news| shared.look_up(news), failed);
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
        self.shared.remove(cpu, opened.events.iter().map(|open| open.id).collect());
        context.budget.give_back(opened.descriptors());
    }

    /// Closes everything. What was seen stays to be asked for. Waits at most a second for a reader that is stuck.
    pub(crate) fn close(&mut self, context: &mut Context<'_, K>) {
        self.close_cpus(context);
        self.reader = None;
    }

    fn close_cpus(&mut self, context: &mut Context<'_, K>) {
        let all: Vec<u32> = self.cpus.keys().copied().collect();
        all.into_iter().for_each(|cpu| self.close_cpu(cpu, context));
        for (_, ticket) in self.refused.drain(..) {
            context.board.remove(ticket);
        }
    }

    /// Empties the rings, and takes in what has been analyzed since the last time. Never waits for the analysis.
    pub(crate) fn collect(&mut self) {
        if self.samplers.is_empty() {
            return;
        }
        let now = self.clock.kernel();
        self.shared.rings.lock().pull(now);
        let (fresh, switches, analyzed) = {
            let mut handoff = self.shared.handoff.lock();
            let (fresh, switches) = handoff.take();
            (fresh, switches, handoff.report().analyzed)
        };
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        self.publisher.enter(fresh, wall, monotonic);
        self.shared.end_collection(&self.samplers, wall, monotonic);
        let elapsed = analyzed.saturating_sub(std::mem::replace(&mut self.analyzed, analyzed));
        // Without news nothing is known about rates.
        if elapsed > 0 {
            self.thin(&switches, Duration::from_nanos(elapsed));
        }
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
                self.shared.command(Command::Weigh { id: open.id, weight: period });
            }
        }
    }

    /// Makes the rings larger if records were lost, as far as memory goes.
    fn grow(&mut self) {
        let lost = self.shared.handoff.lock().report().losses.ring_full;
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
            self.shared.rings.lock().remove(cpu);
            match opened.make_ring(wanted) {
                Ok(ring) => {
                    self.shared.rings.lock().add(cpu, ring);
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
        let (losses, ring_bytes) = {
            let rings = self.shared.rings.lock();
            (rings.losses(), rings.bytes())
        };
        let report = self.shared.handoff.lock().report().clone();
        let state = State {
            losses: report.losses.plus(losses),
            accounts: report.accounts,
            ring_bytes,
            age: self.age(report.analyzed),
        };
        self.publisher.publish(&state, &self.shared)
    }

    /// What was read and lost.
    pub(crate) fn losses(&self) -> Losses {
        let before = self.shared.rings.lock().losses();
        self.shared.handoff.lock().report().losses.plus(before)
    }

    /// Samples that windows lost before they were too old, because memory was short.
    pub(crate) fn dropped_for_room(&self) -> u64 {
        self.shared.handoff.lock().report().dropped
    }

    /// Why stacks were cut and frames have no names, since the beginning.
    pub(crate) fn shortfalls(&self) -> Shortfalls {
        let accounts = self.shared.handoff.lock().report().accounts.clone();
        Shortfalls::of(&accounts, &self.shared)
    }

    /// What there is to say about each entry.
    pub(crate) fn states(&self) -> Vec<SamplerState> {
        let open = |place: usize| {
            let on = |opened: &&Opened<K::Event>| opened.events.iter().any(|open| open.tap.sampler == place);
            self.cpus.values().filter(on).count()
        };
        let analyzed = self.shared.handoff.lock().report().analyzed;
        let age = self.age(analyzed);
        let samplers = self.samplers.iter().enumerate();
        let state = |(place, sampler): (usize, &Arc<Sampler>)| SamplerState {
            plan: Arc::clone(sampler),
            open: open(place),
            samples: self.publisher.samples(place),
            folded: self.publisher.aggregated(place),
            age,
        };
        samplers.map(state).collect()
    }

    /// Time since this moment on the clock of the records.
    fn age(&self, analyzed: u64) -> Duration {
        Duration::from_nanos(self.clock.kernel().saturating_sub(analyzed))
    }
}

/// What a sampler writes on a CPU at most, if it is not more often than it should be.
fn bytes_per_second(sampler: &Arc<Sampler>) -> f64 {
    /// Where the event decides how often it is sampled.
    const SAMPLES: u64 = 1000;
    sampler.most_samples().unwrap_or(SAMPLES) as f64 * Sampling::of(sampler).most_bytes(None) as f64
}
