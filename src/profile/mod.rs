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

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::clock::Clock;
use crate::config::profiled::Rate;
use crate::container::Directory;
use crate::files::Files;
use crate::health::{Refusal, Scope};
use crate::host::CpuSet;
use crate::metrics::{Family, NameError};
use crate::plan::Sampler;
use crate::ring::{
    Consumer, Context, Losses, Made, Reader, Records, Refused, RingBudget, RingId, RingSet, Tapped, Usage,
    Writers,
};
use crate::sys::scheduling::Urgency;
use crate::sys::{self, Event, Kernel, Sampling};
use crate::target::Whom;
use ask::Shared;
pub use ask::{Ask, Asked};
pub use handoff::NoProfile;
pub(crate) use memory::MemoryShares;
pub use model::{Function, Kind, Line, Location, Mode, Profile, Sample, Task, Unit, ValueType};
use namer::Namer;
pub use publish::METRICS;
use publish::Publisher;
pub(crate) use publish::{FUNCTIONS, SAMPLES, Shortfalls};
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
    rings: RingSet<Tapped<K::Event, open::Tap>>,
    shared: Arc<Shared<Ring<K>>>,
    memory: u64,
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
    /// How many series have no labels of their own: their samples are in `other`.
    pub in_other: usize,
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
            rings: RingSet::new(Records::Samples.plural()),
            shared: Arc::new(Shared::new(clock.clone(), files, directory)),
            clock,
            whom: None,
            memory: 0,
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
        self.publisher.set_nodes(&context.facts.nodes);
        let stay = self.publisher.set(samplers, limit, self.clock.now());
        self.shared.keep_functions(&stay);
        self.shared.debug_info.store(debug_info, Ordering::Relaxed);
        if self.samplers != samplers || memory != self.memory || self.rings.has_refusals() {
            self.close_rings(context);
            self.samplers = samplers.to_vec();
            self.memory = memory;
            self.shared.set_samplers(samplers);
            if samplers.is_empty() {
                self.rings.stop_reader();
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

    /// Follows the CPUs. Those that were offline in between are closed first: the kernel has removed their events.
    pub(crate) fn follow_cpus(&mut self, restarted: &CpuSet, online: &CpuSet, context: &mut Context<'_, K>) {
        self.publisher.set_nodes(&context.facts.nodes);
        if !restarted.is_empty() {
            self.follow(&online.without(restarted), context);
        }
        self.follow(online, context);
    }

    /// Holds so many bytes of rings on all CPUs from now on. Rings that are open stay as they are.
    pub(crate) fn set_ring_memory(&mut self, memory: u64) {
        self.memory = memory;
    }

    /// Opens on the CPUs that came, and closes on those that went.
    fn follow(&mut self, online: &CpuSet, context: &mut Context<'_, K>) {
        for ring in self.rings.outside(online) {
            self.close_ring(ring, context);
        }
        self.rings.forgive(online, context.board);
        if !self.samplers.is_empty() {
            for ring in self.rings.missing(online, 1) {
                self.open(ring, online, context);
            }
        }
    }

    fn open(&mut self, ring: RingId, online: &CpuSet, context: &mut Context<'_, K>) {
        let everybody = [Whom::Cpus(online.clone())];
        let whom = self.whom.as_deref().unwrap_or(&everybody);
        let page_size = rustix::param::page_size();
        self.rings.budget = RingBudget::new(context.facts, self.memory, online.len(), page_size);
        let pages = match self.whom {
            // Somebody waits for it, and it does not go on for ever: nothing is to be lost while rings grow.
            Some(_) => self.rings.budget.most,
            None => {
                let rate: f64 = self.samplers.iter().map(bytes_per_second).sum();
                self.rings.budget.pages(rate, 1, page_size)
            }
        };
        let request = open::request(&self.samplers, ring.cpu);
        let (opened, refused) = self.rings.open(ring, whom, request, pages, context);
        for Refused { event, refusal } in refused {
            self.refuse(ring, event.map(|tap| tap.sampler), &refusal, context);
        }
        if let Some((tapped, made)) = opened {
            self.start(ring, tapped, made);
        }
    }

    /// Lets the events of a ring write, once everybody is ready to read.
    fn start(&mut self, ring: RingId, tapped: Tapped<K::Event, open::Tap>, made: Made<Ring<K>>) {
        if self.rings.is_idle() {
            let now = self.clock.kernel();
            self.shared.handoff.lock().start(now);
            self.analyzed = now;
        }
        let taps: Vec<_> = tapped.events.iter().map(|tap| (tap.id, tap.of)).collect();
        let memory = self.rings.add(ring, tapped, made);
        self.shared.add(ring.cpu, taps, memory);
        let (shared, namer) = (Arc::clone(&self.shared), || namer(&self.shared));
        self.rings.listen(ring, || {
            let namer = namer();
            let mut panicked = false;
            let drain = move |_: &[RingId]| {
                let drained = catch_unwind(AssertUnwindSafe(|| shared.drain(namer.as_ref())));
                if drained.is_err() && !std::mem::replace(&mut panicked, true) {
                    tracing::error!(
                        "the analysis of samples has panicked, which is a bug: some samples are missing"
                    );
                }
            };
            Reader::start("profile-reader", Some(EVERY), Urgency::Raised, drain)
        });
        self.rings.start(ring);
    }

    fn refuse(
        &mut self,
        ring: RingId,
        sampler: Option<usize>,
        refusal: &Refusal,
        context: &mut Context<'_, K>,
    ) {
        for (place, at) in self.samplers.iter().enumerate() {
            if sampler.is_none_or(|sampler| sampler == place) {
                let event = at.events.first().map_or(&refusal.event, |event| &event.name);
                let refusal = Refusal { event: Arc::clone(event), ..refusal.clone() };
                let scope = self.whom.as_ref().and_then(|whom| whom.first()).map_or(Scope::CPU, Whom::scope);
                self.rings.refuse(ring, context.board.add(&at.entry, scope, refusal));
            }
        }
    }

    fn close_ring(&mut self, ring: RingId, context: &mut Context<'_, K>) {
        let Some(tapped) = self.rings.remove(ring) else { return };
        tapped.stop();
        self.shared.remove(ring.cpu, tapped.events.iter().map(|tap| tap.id).collect());
        context.budget.give_back(tapped.descriptors());
    }

    /// Closes everything. What was seen stays to be asked for. Waits at most a second for a reader that is stuck.
    pub(crate) fn close(&mut self, context: &mut Context<'_, K>) {
        self.close_rings(context);
        self.rings.stop_reader();
    }

    fn close_rings(&mut self, context: &mut Context<'_, K>) {
        self.rings.ids().into_iter().for_each(|ring| self.close_ring(ring, context));
        self.rings.forgive(&CpuSet::default(), context.board);
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
            (fresh, switches, handoff.report.analyzed)
        };
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        self.publisher.enter(fresh, wall, monotonic);
        self.shared.end_collection(&self.samplers, wall, monotonic);
        let elapsed = analyzed.saturating_sub(std::mem::replace(&mut self.analyzed, analyzed));
        // Without news nothing is known about rates.
        if elapsed > 0 {
            self.thin(&switches, Duration::from_nanos(elapsed));
        }
        let lost = self.shared.handoff.lock().report.losses.ring_full;
        self.rings.grow(&mut Growing { shared: &self.shared, lost });
    }

    /// Lets each so manieth switch be sampled where there are more of them than are to be, so that a storm of switches
    /// costs no more than a breeze.
    fn thin(&mut self, switches: &FxHashMap<u32, u64>, elapsed: Duration) {
        let samplers = &self.samplers;
        // A period that is changed is not that of children, so that samples of theirs would be weighed wrongly.
        for (ring, tapped) in self.rings.writers_mut().filter(|(_, tapped)| !tapped.inherited) {
            let rate =
                switches.get(&ring.cpu).map_or(0.0, |&count| count as f64 / elapsed.as_secs_f64().max(1e-3));
            for tap in &mut tapped.events {
                let Some(sampler) = samplers.get(tap.of.sampler) else { continue };
                let (Some(_), Rate::Frequency(limit)) = (&sampler.waits, sampler.rate) else { continue };
                let wanted = (rate / limit.max(1) as f64).ceil().max(1.0) as u64;
                let period = wanted.next_power_of_two();
                if tap.of.weight == Some(period) || tap.event.set_period(period).is_err() {
                    continue;
                }
                tap.of.weight = Some(period);
                self.shared.command(Command::Weigh { id: tap.id, weight: period });
            }
        }
    }

    /// The families of all entries.
    pub(crate) fn publish(&self) -> Vec<Family> {
        if self.samplers.is_empty() {
            return Vec::new();
        }
        self.publisher.publish(&self.shared)
    }

    /// What was read and lost.
    pub(crate) fn losses(&self) -> Losses {
        self.shared.losses()
    }

    /// Samples that windows lost before they were too old, because memory was short.
    pub(crate) fn dropped_for_room(&self) -> u64 {
        self.shared.handoff.lock().report.dropped
    }

    /// Why stacks were cut and frames have no names, since the beginning.
    pub(crate) fn shortfalls(&self) -> Shortfalls {
        Shortfalls::of(&self.shared)
    }

    /// What there is to say about each entry.
    pub(crate) fn states(&self) -> Vec<SamplerState> {
        let open = |place: usize| {
            let here = |tapped: &Tapped<K::Event, open::Tap>| {
                tapped.events.iter().any(|tap| tap.of.sampler == place)
            };
            self.rings.writers().filter(|(_, tapped)| here(tapped)).count()
        };
        let age = self.shared.age();
        let samplers = self.samplers.iter().enumerate();
        let state = |(place, sampler): (usize, &Arc<Sampler>)| SamplerState {
            plan: Arc::clone(sampler),
            open: open(place),
            samples: self.publisher.samples(place),
            in_other: self.publisher.in_other(place),
            age,
        };
        samplers.map(state).collect()
    }
}

/// The rings while they are replaced by larger ones.
struct Growing<'s, R> {
    shared: &'s Shared<R>,
    /// Records that were lost, of all rings together.
    lost: u64,
}

impl<R: sys::Ring> Consumer<R> for Growing<'_, R> {
    fn remove(&mut self, ring: RingId) {
        self.shared.rings.lock().remove(ring.cpu);
    }

    fn add(&mut self, ring: RingId, memory: R) {
        self.shared.rings.lock().add(ring.cpu, memory);
    }

    fn usage(&mut self, ring: RingId) -> Usage {
        Usage { lost: self.lost, ..self.shared.rings.lock().take_usage(ring.cpu) }
    }
}

/// Starts the thread that looks up names.
fn namer<R: sys::Ring + Send + fmt::Debug + 'static>(shared: &Arc<Shared<R>>) -> Option<Namer> {
    let (shared, failures) = (Arc::clone(shared), Arc::clone(shared));
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
        .inspect_err(|error| tracing::warn!(%error, "there is no thread to look up functions for metrics"))
        .ok()
}

/// What a sampler writes on a CPU at most, if it is not more often than it should be.
fn bytes_per_second(sampler: &Arc<Sampler>) -> f64 {
    /// Where the event decides how often it is sampled.
    const SAMPLES: u64 = 1000;
    sampler.most_samples().unwrap_or(SAMPLES) as f64 * Sampling::of(sampler).most_bytes(None) as f64
}
