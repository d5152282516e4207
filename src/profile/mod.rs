//! Profiles: the number of samples, or the time, of each stack, with symbolized frames.
//!
//! ```text
//! Rings (Merger) ─► Analysis ─┬► SampleLog: each sample of the last hour, by time ─► any range ─┬► Counted ─► Symbolizer ─► Profile
//!   commands ─┘               ├► Recording: from … to … ────────────────────────────────────────┘
//!                             └► Handoff: sums, accounts ─► collections
//! ```
//!
//! A dedicated thread, `profile-reader`, analyzes records. It attributes each frame to a file while the process still runs. This requires
//! reading files of that process. Frames are symbolized when a profile is requested. The thread `profile-names` also looks up the names of
//! all logged frames, because their files may be gone when a profile of the past is requested.
//!
//! A read of such a file may block forever. Therefore `Analysis` is behind a `lock::IoLock`, which the collector and the HTTP thread never
//! take. These two threads access only `rings` and `handoff`, which are plain memory behind a `lock::Lock`. A collection drains the rings
//! and takes the results of the analysis so far. It leaves the rest to a later collection. Commands from the collector to the analysis are
//! queued between the records.
//!
//! Every output is made from a [`Profile`], which is independent of output formats. Its tables of stacks, locations, functions and files
//! refer to each other by index, as in pprof and OTLP. They have no reserved null entry. A [`Selection`] extracts the requested part of a
//! profile.

mod analysis;
mod build;
mod contexts;
mod downsample;
mod functions;
mod handoff;
mod heat;
mod log;
mod memory;
mod model;
pub(crate) mod numbered;
mod open;
mod publish;
#[cfg(test)]
pub(crate) mod replayed;
mod requests;
mod rings;
#[cfg(test)]
pub(crate) mod sample_profiles;
mod selection;
mod symbolizer_thread;
mod tally;
mod tasks;
#[cfg(test)]
mod tests;
mod waits;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::clock::{Clock, Timestamp};
use crate::config::profiled::Rate;
use crate::container::Directory;
use crate::files::Files;
use crate::health::{Refusal, Scope};
use crate::host::CpuSet;
use crate::metrics::{Family, NameError};
use crate::plan::Sampler;
use crate::ring::{
    Consumer, Context, CreatedRing, Losses, Reader, Records, Refused, RingBudget, RingId, RingSet,
    RingWriters, Usage, Writers,
};
use crate::sys::scheduling::Urgency;
use crate::sys::{self, Event, Kernel, Sampling};
use crate::targets::OpenTarget;
pub(crate) use build::LocationTables;
pub use handoff::NoProfile;
pub use heat::HeatMap;
pub(crate) use memory::MemoryShares;
pub use model::{Function, Kind, Line, Location, Mode, Profile, Sample, Task, TimeRange, Unit, ValueType};
pub(crate) use open::{SIDE, holders};
pub use publish::METRICS;
use publish::Publisher;
pub(crate) use publish::{FUNCTIONS, SAMPLES, Shortfalls};
use requests::Shared;
pub use requests::{ProfileRecorder, RecordingId};
use rings::Command;
pub use selection::{Cgroups, Selection};
use symbolizer_thread::SymbolizerThread;

/// Types of the symbolizer that profiles contain.
pub use crate::symbol::{FileHash, Origin, Segment as Mapping};

type Ring<K> = <<K as Kernel>::Event as Event>::Ring;

/// The longest interval between two reads of the rings: the mappings of a process must be read while it runs.
const EVERY: Duration = Duration::from_millis(200);

/// The samplers of all CPUs, and their results.
#[derive(Debug)]
pub(crate) struct Profiler<K: Kernel> {
    clock: Clock,
    samplers: Vec<Arc<Sampler>>,
    /// The targets that are sampled; `None` = everything that runs.
    open_targets: Option<Vec<OpenTarget>>,
    rings: RingSet<RingWriters<K::Event, open::SampleSource>>,
    shared: Arc<Shared<Ring<K>>>,
    memory: u64,
    publisher: Publisher,
    /// The time before which all records had been analyzed at the last collection. Nanoseconds on the clock of the records.
    analyzed: u64,
}

/// The state of one entry of `profiles`.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerState {
    /// The planned sampler.
    pub plan: Arc<Sampler>,
    /// The number of CPUs on which the sampler is open.
    pub open: usize,
    /// Samples since the start.
    pub samples: u64,
    /// The number of series without labels of their own: their samples are aggregated into `other`.
    pub in_other: usize,
    /// Time since all recorded samples were analyzed.
    pub age: Duration,
    /// The sample log.
    pub log: LogState,
}

/// The state of the sample log of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogState {
    /// The time from which on the log has all samples; `None` if sampling has not begun.
    pub begin: Option<Timestamp>,
    /// The number of samples in the log.
    pub samples: u64,
    /// Its size in bytes, without stacks and tasks, which all entries share.
    pub bytes: u64,
}

impl<K: Kernel> Profiler<K> {
    /// Creates a profiler without open events. `directory` maps cgroups to containers.
    ///
    /// # Errors
    /// When the name of one of its own metrics is invalid: a bug.
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
            open_targets: None,
            memory: 0,
            publisher: Publisher::new()?,
            analyzed: 0,
        })
    }

    /// Restricts sampling to these targets. Call this before anything is sampled.
    pub(crate) fn only(mut self, open_targets: Vec<OpenTarget>) -> Self {
        self.open_targets = Some(open_targets);
        self
    }

    /// Limits the number of thread names that one cgroup may have in metrics.
    pub(crate) fn limit_names(&mut self, per_cgroup: usize) {
        self.publisher.limit_names(per_cgroup);
    }

    /// Limits memory to these shares. Call this before anything is sampled.
    pub(crate) fn within(self, shares: &MemoryShares) -> Self {
        self.shared.keep_within(shares);
        self
    }

    /// Keeps samples for this time from now on, memory permitting, and at least for the windows of the entries. Without this call, they
    /// are kept for the windows.
    pub(crate) fn keep(&self, history: Duration) {
        self.shared.command(Command::Keep(history));
    }

    /// Samples for these entries from now on. If the entries changed, all events are opened again; entries that stay keep their logs and
    /// totals.
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
        // Rings that are within their new share stay open, and can grow up to it.
        let exceeds = self.shared.rings.lock().bytes() > memory;
        self.memory = memory;
        self.set_ring_budget(online, context);
        if self.samplers != samplers || exceeds || self.rings.has_refusals() {
            self.close_rings(context);
            self.samplers = samplers.to_vec();
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

    /// Returns the number of series of each entry.
    pub(crate) fn tables(&self) -> impl Iterator<Item = usize> {
        self.publisher.tables()
    }

    /// Returns the approximate number of bytes of its series.
    pub(crate) fn series_bytes(&self) -> u64 {
        self.publisher.bytes() as u64
    }

    /// Returns the interface for requesting profiles. It stays valid when the entries change.
    pub(crate) fn recorder(&self) -> Arc<dyn ProfileRecorder> {
        Arc::clone(&self.shared) as Arc<dyn ProfileRecorder>
    }

    /// Opens and closes events as CPUs go online and offline. CPUs that were offline in between are closed first: the kernel has removed
    /// their events.
    pub(crate) fn follow_cpus(&mut self, restarted: &CpuSet, online: &CpuSet, context: &mut Context<'_, K>) {
        self.publisher.set_nodes(&context.facts.nodes);
        if !restarted.is_empty() {
            self.follow(&online.without(restarted), context);
        }
        self.follow(online, context);
    }

    /// Sets the memory of the rings of all CPUs together, in bytes. Rings that are already open keep their size.
    pub(crate) fn set_ring_memory(&mut self, memory: u64) {
        self.memory = memory;
    }

    /// Opens events on CPUs that went online and closes events on CPUs that went offline.
    fn follow(&mut self, online: &CpuSet, context: &mut Context<'_, K>) {
        for ring in self.rings.outside(online) {
            self.close_ring(ring, context);
        }
        self.rings.remove_refusals(online, context.board);
        if !self.samplers.is_empty() {
            for ring in self.rings.missing(online, 1) {
                self.open(ring, online, context);
            }
        }
    }

    fn set_ring_budget(&mut self, online: &CpuSet, context: &Context<'_, K>) {
        let page_size = rustix::param::page_size();
        self.rings.budget = RingBudget::new(context.facts, self.memory, online.len(), page_size);
    }

    fn open(&mut self, ring: RingId, online: &CpuSet, context: &mut Context<'_, K>) {
        self.set_ring_budget(online, context);
        let everybody = [OpenTarget::Cpus(online.clone())];
        let open_targets = self.open_targets.as_deref().unwrap_or(&everybody);
        let page_size = rustix::param::page_size();
        let pages = match self.open_targets {
            // A command runs for a limited time, so its rings have the maximum size from the start: no record is lost while rings grow.
            Some(_) => self.rings.budget.most,
            None => {
                let rate: f64 = self.samplers.iter().map(bytes_per_second).sum();
                self.rings.budget.pages(rate, 1, page_size)
            }
        };
        let request = open::request(&self.samplers, ring.cpu);
        let (opened, refused) = self.rings.open(ring, open_targets, request, pages, context);
        for Refused { event, refusal } in refused {
            self.refuse(ring, event.map(|writer| writer.sampler), &refusal, context);
        }
        if let Some((writers, made)) = opened {
            self.start(ring, writers, made);
        }
    }

    /// Enables the events of a ring after its reader is ready.
    fn start(
        &mut self,
        ring: RingId,
        writers: RingWriters<K::Event, open::SampleSource>,
        made: CreatedRing<Ring<K>>,
    ) {
        if self.rings.is_idle() {
            let now = self.clock.kernel();
            self.shared.handoff.lock().start(now);
            self.analyzed = now;
        }
        let sample_sources: Vec<_> = writers.events.iter().map(|writer| (writer.id, writer.of)).collect();
        let memory = self.rings.add(ring, writers, made);
        self.shared.add(ring.cpu, sample_sources, memory);
        let (shared, symbolizer) = (Arc::clone(&self.shared), || symbolizer(&self.shared));
        self.rings.listen(ring, || {
            let symbolizer = symbolizer();
            let mut panicked = false;
            let drain = move |_: &[RingId]| {
                let drained = catch_unwind(AssertUnwindSafe(|| shared.drain(symbolizer.as_ref())));
                if drained.is_err() && !std::mem::replace(&mut panicked, true) {
                    tracing::error!(
                        "the analysis of samples panicked, which is a bug: some samples are missing"
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
                let scope = self
                    .open_targets
                    .as_ref()
                    .and_then(|open_targets| open_targets.first())
                    .map_or(Scope::CPU, OpenTarget::scope);
                self.rings.refuse(ring, context.board.add(&at.entry, scope, refusal));
            }
        }
    }

    fn close_ring(&mut self, ring: RingId, context: &mut Context<'_, K>) {
        let Some(writers) = self.rings.remove(ring) else { return };
        writers.stop();
        self.shared.remove(ring.cpu, writers.events.iter().map(|writer| writer.id).collect());
        context.budget.give_back(writers.descriptors());
    }

    /// Closes all events. Results so far can still be requested. Waits at most a second for a blocked reader.
    pub(crate) fn close(&mut self, context: &mut Context<'_, K>) {
        self.close_rings(context);
        self.rings.stop_reader();
    }

    fn close_rings(&mut self, context: &mut Context<'_, K>) {
        self.rings.ids().into_iter().for_each(|ring| self.close_ring(ring, context));
        self.rings.remove_refusals(&CpuSet::default(), context.board);
    }

    /// Drains the rings and takes the results of the analysis since the last collection. Never waits for the analysis.
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
        // Without newly analyzed records the rates are unknown.
        if elapsed > 0 {
            self.downsample(&switches, Duration::from_nanos(elapsed));
        }
        let lost = self.shared.handoff.lock().report.losses.ring_full;
        self.rings.grow(&mut Growing { shared: &self.shared, lost });
    }

    /// Samples one in N context switches where their rate exceeds the limit, so that a high switch rate does not increase the overhead.
    fn downsample(&mut self, switches: &FxHashMap<u32, u64>, elapsed: Duration) {
        let samplers = &self.samplers;
        // A changed period does not apply to inherited events of children, so their samples would get a wrong weight.
        for (ring, writers) in self.rings.writers_mut().filter(|(_, writers)| !writers.inherited) {
            let rate =
                switches.get(&ring.cpu).map_or(0.0, |&count| count as f64 / elapsed.as_secs_f64().max(1e-3));
            for writer in &mut writers.events {
                let Some(sampler) = samplers.get(writer.of.sampler) else { continue };
                let (Some(_), Rate::Frequency(limit)) = (&sampler.waits, sampler.rate) else { continue };
                let wanted = (rate / limit.max(1) as f64).ceil().max(1.0) as u64;
                let period = wanted.next_power_of_two();
                if writer.of.weight == Some(period) || writer.event.set_period(period).is_err() {
                    continue;
                }
                writer.of.weight = Some(period);
                self.shared.command(Command::Weigh { id: writer.id, weight: period });
            }
        }
    }

    /// Returns the metric families of all entries.
    pub(crate) fn publish(&self) -> Vec<Family> {
        if self.samplers.is_empty() {
            return Vec::new();
        }
        self.publisher.publish(&self.shared)
    }

    /// Returns the numbers of records read and lost.
    pub(crate) fn losses(&self) -> Losses {
        self.shared.losses()
    }

    /// Returns the number of samples that were dropped from logs before they expired, because the memory share was full.
    pub(crate) fn dropped_when_full(&self) -> u64 {
        self.shared.handoff.lock().report.dropped
    }

    /// Returns why stacks were truncated and why frames have no symbol, with counts since the start.
    pub(crate) fn shortfalls(&self) -> Shortfalls {
        Shortfalls::of(&self.shared)
    }

    /// Returns the state of each entry.
    pub(crate) fn states(&self) -> Vec<SamplerState> {
        let open = |place: usize| {
            let here = |writers: &RingWriters<K::Event, open::SampleSource>| {
                writers.events.iter().any(|writer| writer.of.sampler == place)
            };
            self.rings.writers().filter(|(_, writers)| here(writers)).count()
        };
        let (age, logs) = (self.shared.age(), self.shared.log_states());
        let samplers = self.samplers.iter().enumerate();
        let state = |(place, sampler): (usize, &Arc<Sampler>)| SamplerState {
            plan: Arc::clone(sampler),
            open: open(place),
            samples: self.publisher.samples(place),
            in_other: self.publisher.in_other(place),
            age,
            log: logs.get(&sampler.entry).copied().unwrap_or_default(),
        };
        samplers.map(state).collect()
    }
}

/// Replaces rings by larger ones.
struct Growing<'s, R> {
    shared: &'s Shared<R>,
    /// Records lost in all rings together.
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

/// Starts the thread that symbolizes frames.
fn symbolizer<R: sys::Ring + Send + fmt::Debug + 'static>(
    shared: &Arc<Shared<R>>,
) -> Option<SymbolizerThread> {
    let (shared, failures) = (Arc::clone(shared), Arc::clone(shared));
    let failed = move || {
        if failures.naming_failures.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(
                "symbolization panicked, which is a bug: some functions in metrics have no name (counted in perf_profile_gaps_total with \
                 the reason naming_failed)"
            );
        }
    };
    let started = SymbolizerThread::start(move |work| shared.look_up(work), failed);
    started
        .inspect_err(
            |error| tracing::warn!(%error, "cannot start the thread that symbolizes functions for metrics"),
        )
        .ok()
}

/// Returns the most bytes a second that a sampler writes on a CPU, if it keeps to its configured rate.
fn bytes_per_second(sampler: &Arc<Sampler>) -> f64 {
    /// Samples a second to assume where the event determines the rate.
    const SAMPLES: u64 = 1000;
    sampler.most_samples().unwrap_or(SAMPLES) as f64 * Sampling::of(sampler).most_bytes(None) as f64
}
