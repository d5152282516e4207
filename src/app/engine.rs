//! The collection thread: follows the host, reads the counters, and publishes what they say.

mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::watch;

use super::Options;
use super::demand::Demand;
use super::governor::Governor;
use super::losses::LossWatch;
use super::memory::Memory;
use super::reload::{self, Answer, Reloads};
use super::spending::{HelperCost, Spending};
use crate::budget::{Part, Share};
use crate::clock::{Clock, Monotonic, Timestamp};
use crate::config::containers::Containers;
use crate::config::{Config, Loaded};
use crate::container::{Directory, Labeller};
use crate::counter::{Bounds, Collector};
use crate::event::Catalog;
use crate::export::http::RequestCpu;
use crate::export::push::{Board, Settings};
use crate::files::{self, Files};
use crate::host::{CpuSet, Environment, Facts, Roots};
use crate::lock;
use crate::metrics::{NameError, SelfMetrics, Snapshot};
use crate::plan::{Entries, Plan, Source, StreamSupport, plan, wishes};
use crate::probe::install::{Installer, Wish};
use crate::probe::tracefs::{self, Fate, Leftover};
use crate::profile::{Ask, Profiler};
use crate::status::{Configuration, FailedReload, Status};
use crate::sys::{Budget, Kernel, OpenDescriptors, usage};
use crate::target::{Changes, Watch};

/// How often it is looked whether probes are still in the files that their paths lead to.
const FILES_EVERY: Duration = Duration::from_secs(5);

/// The shortest suspension that is logged.
const SUSPENDED: Duration = Duration::from_secs(1);

/// How often all processes are read where records report which of them change. Records do not report that a sleeping process
/// is moved to another cgroup: this is known at most that late.
const RECONCILE: Duration = Duration::from_secs(10);

/// What one collection left behind, shared by everybody who asks.
#[derive(Debug)]
pub(super) struct Published {
    /// `None` before the first collection.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) status: Arc<Status>,
    /// The kinds of profiles that are taken, in the order of the configuration.
    pub(super) profiles: Vec<Arc<str>>,
    /// When the collection began: no count in it is older.
    pub(super) at: Monotonic,
    /// How old it may be to answer a scrape.
    pub(super) freshness: Duration,
}

/// What the collection thread can be asked for.
#[derive(Debug)]
pub(super) enum Request {
    /// A collection, unless one has begun since the moment that is demanded.
    Collect(Demand),
    /// The configuration again; the answer says what happened.
    Reload(Answer),
    /// A look at the CPUs: some went offline or came online.
    FollowCpus,
    /// The end.
    Stop,
}

/// What the collection thread has to do with pushing: it says by which settings, and tells what became of it.
#[derive(Debug)]
pub(super) struct Pushes {
    /// Where the thread that pushes has its settings from.
    pub(super) settings: watch::Sender<Option<Arc<Settings>>>,
    /// What became of pushes.
    pub(super) board: Arc<Board>,
}

/// What the collection thread has to do with containers: it says who is asked for their names, and names series.
#[derive(Debug)]
pub(super) struct Naming {
    /// Where the thread that asks has its settings from.
    pub(super) settings: watch::Sender<Arc<Containers>>,
    /// What is known.
    pub(super) directory: Arc<Directory>,
}

/// Everything that the collection thread owns.
#[derive(Debug)]
pub(super) struct Engine<K: Kernel> {
    roots: Roots,
    clock: Clock,
    config: Config,
    source: Configuration,
    facts: Facts,
    catalog: Catalog,
    /// What the machine has of the switch stream: what the plan in force was made for.
    support: StreamSupport,
    watch: Watch,
    /// What is counted now.
    plan: Plan,
    /// The CPUs that are followed.
    online: CpuSet,
    collector: Collector<K>,
    profiler: Profiler<K>,
    memory: Memory,
    /// Open descriptors at the last collection.
    open: OpenDescriptors,
    installer: Installer,
    files: Files,
    files_metrics: files::Metrics,
    helper: HelperCost,
    /// When the files of probes were looked at last.
    looked_at_files: Monotonic,
    /// When all processes were read last.
    looked: Monotonic,
    metrics: Arc<SelfMetrics>,
    environment: Environment,
    pushes: Pushes,
    naming: Naming,
    labeller: Labeller,
    started: Timestamp,
    /// When the collection before ended.
    ended: Monotonic,
    /// For how long the machine had been suspended then.
    suspended: Duration,
    spending: Spending,
    /// The same without what requests take, for `limits.cpu`.
    measuring: Spending,
    requests: RequestCpu,
    governor: Governor,
    losses: LossWatch,
    reloads: Reloads,
}

impl<K: Kernel> Engine<K> {
    /// Reads the host and prepares to count what `config` says; opens nothing yet.
    pub(super) fn new(
        kernel: K,
        options: &Options,
        config: Config,
        metrics: Arc<SelfMetrics>,
        files_metrics: files::Metrics,
        pushes: Pushes,
        naming: Naming,
    ) -> Result<Self, NameError> {
        let (roots, clock) = (options.roots.clone(), options.clock.clone());
        let facts = Facts::read(&roots);
        let catalog = Catalog::load(&roots, &facts);
        let budget = Budget::new(
            usage::raise_descriptor_limit(),
            config.limits.connections,
            config.limits.descriptors,
        );
        let collector =
            Collector::new(kernel, clock.clone(), &roots, facts.clone(), catalog.has_core_pmu(), budget)?;
        metrics.config_loaded(clock.now());
        let memory = Memory::new(&config, facts.online.len());
        let profiler = Profiler::new(clock.clone(), &options.files, Arc::clone(&naming.directory))?;
        Ok(Self {
            watch: Watch::new(roots.clone()),
            labeller: Labeller::new(Arc::clone(&naming.directory), clock.now())?,
            plan: Plan::default(),
            online: CpuSet::default(),
            source: Configuration { file: options.config.clone(), loaded: clock.now(), failed_reload: None },
            started: clock.now(),
            ended: clock.monotonic(),
            suspended: clock.suspended(),
            spending: Spending::since(clock.monotonic()),
            measuring: Spending::since(clock.monotonic()),
            requests: RequestCpu::default(),
            governor: Governor::new(),
            losses: LossWatch::since(clock.monotonic()),
            reloads: Reloads::default(),
            profiler: profiler.within(&memory.of_profiles()),
            memory,
            open: OpenDescriptors::default(),
            looked_at_files: clock.monotonic(),
            looked: clock.monotonic(),
            roots,
            clock,
            config,
            support: StreamSupport::foreseen(&facts),
            facts,
            catalog,
            collector,
            installer: Installer::aside(&options.files, std::process::id()),
            files: options.files.clone(),
            files_metrics,
            helper: HelperCost::default(),
            metrics,
            environment: options.environment.clone(),
            pushes,
            naming,
        })
    }

    /// Counts the CPU time of requests apart from what `limits.cpu` bounds.
    pub(super) fn serving(self, requests: &RequestCpu) -> Self {
        Self { requests: requests.clone(), ..self }
    }

    /// What profiles are asked for through.
    pub(super) fn profiles(&self) -> Arc<dyn Ask> {
        self.profiler.asked()
    }

    /// The memory for what waits to be sent.
    pub(super) fn memory_of_queues(&self) -> Share {
        self.memory.of_queues()
    }

    /// What there is to say before the first collection.
    pub(super) fn unpublished(&self) -> Published {
        let usage = status::used(Duration::ZERO, self.collector.budget(), None);
        self.published(None, self.clock.monotonic(), Duration::ZERO, usage)
    }

    /// Collects until it is told to stop, at least once in every interval.
    pub(super) fn run(mut self, requests: &Receiver<Request>, publisher: &watch::Sender<Arc<Published>>) {
        lock::never_blocks("collector");
        let pushes = self.resolve_pushes();
        // Told first, so that what is logged from here on is pushed where that is wanted.
        self.pushes.settings.send_replace(pushes);
        self.apply();
        let mut last = self.collect(publisher);
        loop {
            let now = self.clock.monotonic();
            if let Some((loaded, answers)) = self.reloads.ended(self.source.file.as_deref(), now) {
                let outcome = self.reload(loaded);
                last = self.collect(publisher);
                for answer in answers {
                    // The client may have gone away, which changes nothing.
                    drop(answer.send(outcome.clone()));
                }
            }
            let due = self.due();
            match requests.recv_timeout(self.reloads.patience(due)) {
                Ok(Request::Collect(demand)) if demand.take().is_none_or(|since| last >= since) => {}
                Err(RecvTimeoutError::Timeout) if !self.due().is_zero() => {}
                Ok(Request::Collect(_)) | Err(RecvTimeoutError::Timeout) => last = self.collect(publisher),
                Ok(Request::Reload(answer)) => {
                    let file = self.source.file.as_deref();
                    self.reloads.ask(file, answer, self.clock.monotonic());
                }
                Ok(Request::FollowCpus) => {
                    let changes = self.watch.refresh_cpus();
                    self.follow_cpus(&changes.restarted);
                }
                Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The time until the next collection must begin.
    fn due(&self) -> Duration {
        self.config.collection.interval.saturating_sub(self.clock.monotonic().since(self.ended))
    }

    /// Makes the host ready for probes: tracefs is mounted if that is wanted, and what exporters that are gone left
    /// behind is removed.
    fn prepare_tracefs(&mut self) {
        if self.config.mount_tracefs {
            match tracefs::mount(&self.roots) {
                Ok(true) => tracing::info!(dir = %self.roots.tracing.display(), "tracefs was mounted"),
                Ok(false) => {}
                Err(errno) => tracing::warn!(%errno, "tracefs cannot be mounted: that needs CAP_SYS_ADMIN"),
            }
        }
        if self.wishes().is_empty() {
            return;
        }
        match self.installer.sweep() {
            Ok(leftovers) => leftovers.iter().for_each(tell_of_leftover),
            Err(error) => tracing::warn!("probes that others left behind cannot be looked for: {error}"),
        }
    }

    /// The probes that the configuration wants.
    fn wishes(&self) -> Vec<Wish> {
        wishes(&self.config.traced, &self.config.profiles)
    }

    /// Reads the facts and PMUs of the host again.
    fn look_at_host(&mut self) {
        self.facts.read_again(&self.roots);
        let before = std::mem::replace(&mut self.catalog, Catalog::load(&self.roots, &self.facts));
        self.catalog.keep_cpus(&before);
        self.collector.look_again(self.facts.clone(), self.catalog.has_core_pmu());
    }

    /// Plans what the configuration wants on this host as it is now.
    fn plan(&mut self) -> Plan {
        // Probes can be removed only when nobody has them open.
        let placed = self.installer.place(&self.wishes());
        let complain =
            |system: &str, event: &str, filter: &str| tracefs::complaint(&self.roots, system, event, filter);
        let detail = self.governor.detail();
        let scheduler = detail.scheduler(self.config.scheduler.as_ref());
        let syscalls = detail.syscalls(self.config.syscalls.as_ref());
        let entries = Entries {
            counters: &self.config.counters,
            traced: &self.config.traced,
            profiles: &self.config.profiles,
            profile_cpus: self.config.profile_cpus,
            scheduler: scheduler.as_ref(),
            syscalls: syscalls.as_ref(),
            placed: &placed,
            complain: &complain,
        };
        plan(&entries, &self.catalog, &self.support)
    }

    /// Puts the configuration in force.
    fn apply(&mut self) {
        self.prepare_tracefs();
        for problem in self.catalog.problems() {
            tracing::warn!("a PMU is described badly: {problem}");
        }
        self.collector.look_again(self.facts.clone(), self.catalog.has_core_pmu());
        self.support = self.collector.stream_support();
        let plan = self.plan();
        self.watch.need(plan.needs());
        // Groups that stay must hear of this look too.
        let changes = self.watch.refresh();
        self.collector.follow(&changes, &self.watch);
        self.profiler.follow_cpus(&changes.restarted, self.watch.online(), &mut self.collector.opening());
        for problem in self.watch.problems() {
            tracing::warn!("{problem}");
        }
        self.collector.limit_names(self.config.limits.names_per_cgroup);
        self.profiler.limit_names(self.config.limits.names_per_cgroup);
        let shares = self.memory.divide(&self.config, self.watch.online().len(), plan.ring_kinds());
        self.collector.apply(&plan, Bounds::new(&self.config.limits, &shares), &self.watch);
        let limits = &self.config.limits;
        self.profiler.apply(
            &plan.samplers,
            limits.series,
            (plan.ring_memory(shares.get(Part::Rings)), limits.debug_info),
            self.watch.online(),
            &mut self.collector.opening(),
        );
        self.limit_series(self.memory.series_limit(&self.config));
        self.installer.tidy();
        self.online = self.watch.online().clone();
        let budget = self.collector.budget();
        let by_stream = plan.groups.iter().filter(|group| group.source == Source::Stream).count();
        tracing::info!(
            groups = plan.groups.len(),
            by_stream,
            traces = plan.traces.len(),
            profiles = plan.samplers.len(),
            descriptors = budget.used,
            of = budget.limit,
            refused = self.collector.board().lines().len(),
            "counting"
        );
        self.plan = plan;
    }

    /// Finds out what is pushed by what; what profiles must tell for it is part of what is planned.
    fn resolve_pushes(&mut self) -> Option<Arc<Settings>> {
        let (settings, problems) = Settings::resolve(&self.config.push, &self.environment);
        problems.iter().for_each(|problem| tracing::warn!("{problem}"));
        self.config.profile_cpus = settings.as_ref().is_some_and(Settings::samples_by_cpu);
        settings.map(Arc::new)
    }

    /// Puts a configuration in force that was read again, and keeps the old one if the new one has problems.
    fn reload(&mut self, loaded: Loaded) -> Result<String, String> {
        let now = self.clock.now();
        let loaded = loaded.and_then(|loaded| {
            loaded.0.require_memory(self.watch.online().len())?;
            Ok(loaded)
        });
        match loaded {
            Ok((config, warnings)) => {
                let later = later(&self.config, &config);
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                self.look_at_host();
                self.config = config;
                let pushes = self.resolve_pushes();
                self.naming.settings.send_replace(Arc::new(self.config.containers.clone()));
                self.governor.restart();
                self.metrics.detail_reduced(self.governor.detail().steps());
                (self.source.loaded, self.source.failed_reload) = (now, None);
                self.metrics.config_loaded(now);
                self.apply();
                // After samplers were replaced: what was recorded of the old ones is gone.
                self.pushes.settings.send_replace(pushes);
                let outcome = format!("the configuration was reloaded{later}");
                tracing::info!("{outcome}");
                Ok(outcome)
            }
            Err(error) => {
                tracing::error!("the configuration in force stays: {error}");
                self.source.failed_reload = Some(FailedReload { at: now, problems: error.lines() });
                self.metrics.config_refused();
                reload::refused(&error)
            }
        }
    }

    /// Follows the host, reads everything once, and publishes it. Gives the moment when it began: a scrape that comes
    /// while this goes on, and wants nothing older than itself, has to wait for the next one.
    fn collect(&mut self, publisher: &watch::Sender<Arc<Published>>) -> Monotonic {
        let begin = self.clock.monotonic();
        self.note_suspension();
        let mut changes = self.look(begin);
        self.follow_cpus(&std::mem::take(&mut changes.restarted));
        self.collector.follow(&changes, &self.watch);
        self.follow_files();
        self.profiler.collect();
        let mut families = self.collector.collect();
        families.extend(self.profiler.publish());
        let took = self.clock.monotonic().since(begin);
        self.metrics.collected(took);
        let report = self.files.report();
        let cpu = usage::cpu_time() + self.helper.cpu(report.helper);
        let usage = status::used(cpu, self.collector.budget(), report.helper);
        self.files_metrics.note(&report);
        self.measure();
        families.extend(self.metrics.families(usage));
        let families = self.labeller.name(families);
        let snapshot = Arc::new(Snapshot::new(self.clock.now(), families));
        for conflict in snapshot.conflicts() {
            tracing::error!(
                family = conflict.family.name(),
                points = conflict.points,
                "series left out: a bug"
            );
        }
        self.limit_memory(&snapshot);
        self.ended = self.clock.monotonic();
        self.spending.note(usage.cpu, self.ended);
        let measuring = usage.cpu.saturating_sub(self.requests.total());
        if let Some(part) = self.measuring.note(measuring, self.ended) {
            self.govern(part);
        }
        let published = self.published(Some(snapshot), begin, took, usage);
        for loss in self.losses.note(&published.status.losses, self.ended) {
            tracing::warn!(lost = loss.count, "much was lost lately: {}: {}", loss.what, loss.reason);
        }
        publisher.send_replace(Arc::new(published));
        begin
    }

    /// Follows the CPUs as of the last look at them; `restarted` were offline since the look before. What is open on the others stays
    /// open.
    fn follow_cpus(&mut self, restarted: &CpuSet) {
        if *self.watch.online() == self.online && restarted.is_empty() {
            return;
        }
        let begin = self.clock.monotonic();
        let before = std::mem::replace(&mut self.online, self.watch.online().clone());
        // The NUMA node of a CPU must be known before it is counted. All else has time: a CPU that came counts nothing until then.
        let knows_nodes = self.online.iter().all(|cpu| before.contains(cpu) || self.facts.nodes.has(cpu));
        if !knows_nodes {
            self.look_at_host();
        }
        let rings =
            self.memory.divide(&self.config, self.online.len(), self.plan.ring_kinds()).get(Part::Rings);
        let rings = self.plan.ring_memory(rings);
        self.collector.set_ring_memory(rings);
        self.profiler.set_ring_memory(rings);
        self.collector.follow_cpus(restarted, &self.watch);
        self.profiler.follow_cpus(restarted, &self.online, &mut self.collector.opening());
        let took = self.clock.monotonic().since(begin);
        tracing::info!(online = %self.online, %restarted, ?took, "CPUs went offline or came online");
        if knows_nodes {
            self.look_at_host();
        }
        // A PMU beside the cores moves to another CPU of its socket when its own goes offline.
        if self.plan() != self.plan {
            self.apply();
        }
    }

    /// Logs that the machine was suspended: nothing was counted meanwhile.
    fn note_suspension(&mut self) {
        let suspended = self.clock.suspended();
        let time = suspended.saturating_sub(std::mem::replace(&mut self.suspended, suspended));
        if time >= SUSPENDED {
            tracing::warn!(?time, "the machine was suspended, and nothing was counted");
        }
    }

    /// Looks at the host: at all processes now and then, and at those that records tell of in between.
    fn look(&mut self, now: Monotonic) -> Changes {
        match self.collector.take_news().filter(|_| now.since(self.looked) < RECONCILE) {
            Some(changed) => self.watch.refresh_changed(&changed),
            None => {
                self.looked = now;
                self.watch.refresh()
            }
        }
    }

    /// Takes note of what the parts of the program hold in memory, and of its descriptors.
    fn measure(&mut self) {
        let tracer = self.collector.tracer_state();
        let (rings, waiting) = tracer.map_or((0, 0), |tracer| (tracer.ring_bytes(), tracer.waiting_bytes));
        let rings = rings + self.collector.stream_state().map_or(0, |stream| stream.ring_bytes);
        self.memory.measure(rings, waiting, self.collector.bytes() + self.profiler.series_bytes());
        self.open = OpenDescriptors::count(self.collector.budget().used);
        self.metrics.memory_held(&self.memory.states());
        self.metrics.descriptors_open(&self.open.kinds());
    }

    /// Keeps the series, and the snapshot made of them, within their share of `limits.memory` from the next collection on.
    fn limit_memory(&mut self, snapshot: &Snapshot) {
        let tables = self.collector.tables().chain(self.profiler.tables()).collect();
        let bytes = self.collector.bytes() + self.profiler.series_bytes();
        if let Some(limit) = self.memory.publishes(&self.config, snapshot, tables, bytes) {
            self.limit_series(limit);
        }
    }

    /// Limits the number of series of each metric about cgroups, processes and threads.
    fn limit_series(&mut self, limit: usize) {
        self.collector.limit_series(limit);
        self.profiler.limit_series(limit);
    }

    /// Tells less of threads when that takes too much of the CPUs, and more when there is room.
    fn govern(&mut self, part: f64) {
        let of_all = part / self.watch.online().len().max(1) as f64;
        let Some(detail) = self.governor.note(of_all, &self.config, self.ended) else { return };
        let limit = self.config.limits.cpu.unwrap_or(1.0);
        tracing::warn!(
            percent_of_all_cpus = %format_args!("{:.2}", of_all * 100.0),
            limit = %format_args!("{:.2}", limit * 100.0),
            "of the scheduler and of system calls is told from now on: {}",
            detail.as_str()
        );
        self.metrics.detail_reduced(detail.steps());
        self.apply();
    }

    /// Moves probes to the files that their paths lead to by now.
    fn follow_files(&mut self) {
        let now = self.clock.monotonic();
        let due = now.since(self.looked_at_files) >= FILES_EVERY;
        if due {
            self.looked_at_files = now;
        }
        let outdated = self.installer.outdated(due);
        if !outdated.is_empty() {
            tracing::info!(probes = %outdated.join(", "), "their paths lead to other files: they are placed anew");
            self.apply();
        }
    }

    fn published(
        &self,
        snapshot: Option<Arc<Snapshot>>,
        at: Monotonic,
        took: Duration,
        usage: crate::metrics::Usage,
    ) -> Published {
        let status = Arc::new(self.status(snapshot.as_deref(), took, usage));
        let profiles = status.profiles.iter().map(|profile| Arc::clone(&profile.entry)).collect();
        Published { snapshot, status, profiles, at, freshness: self.config.collection.freshness }
    }
}

fn tell_of_leftover(Leftover { system, event, fate }: &Leftover) {
    match fate {
        Fate::Removed => tracing::info!("removed the probe {system}:{event} of an exporter that is gone"),
        Fate::Refused(refusal) => {
            tracing::warn!("the probe {system}:{event} of an exporter that is gone stays: {refusal}");
        }
        Fate::Kept | Fate::Unknown => {}
    }
}

/// What of a new configuration holds only after a restart: the socket and the budget stay as they are.
fn later(old: &Config, new: &Config) -> String {
    let changed = [
        ("listen", old.listen != new.listen),
        ("limits.connections", old.limits.connections != new.limits.connections),
        ("limits.descriptors", old.limits.descriptors != new.limits.descriptors),
    ];
    let changed: Vec<&str> =
        changed.into_iter().filter_map(|(name, changed)| changed.then_some(name)).collect();
    if changed.is_empty() {
        return String::new();
    }
    format!("; the new {} will hold after a restart", changed.join(", "))
}
