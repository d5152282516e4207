//! The collection thread: detects changes of the host, reads the counters, and publishes snapshots.

mod deep;
mod limits;
mod status;
#[cfg(test)]
mod tests;

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::trace::SpanKind;
use rustix::thread::CapabilitySet;
use tokio::sync::watch;

use super::Options;
use super::cpu_usage::{CpuUsage, HelperCost};
use super::demand::Demand;
use super::governor::Governor;
use super::losses::LossWatch;
use super::memory::Memory;
use super::privileges::Privileges;
use super::reload::{self, Answer, Reloads};
use super::web::RulesReader;
use crate::anomaly::{self, AnomalyMetrics, SharedReport};
use crate::budget::{Part, Share};
use crate::clock::{Clock, Monotonic, Timestamp};
use crate::config::containers::Containers;
use crate::config::{self, Config, LoadError, Loaded};
use crate::container::{Directory, Labeller};
use crate::counter::{Bounds, Collector};
use crate::deep::{Registry, Wanted};
use crate::event::Catalog;
use crate::export::http::RequestCpu;
use crate::export::published;
use crate::export::push::{Board, Settings};
use crate::files::{self, Files};
use crate::host::{CpuSet, Environment, Facts, Roots};
use crate::lock;
use crate::metrics::{NameError, SelfMetrics, Snapshot};
use crate::plan::{Entries, Plan, Source, StreamSupport, configured_probes, plan};
use crate::probe::install::{ConfiguredProbe, Installer};
use crate::probe::tracefs::{self, Leftover, SweepResult};
use crate::profile::{ProfileRecorder, Profiler};
use crate::sched::RecentRuns;
use crate::span::Spans;
use crate::status::{Configuration, FailedReload, Status};
use crate::sys::{Budget, Kernel, OpenDescriptors, usage};
use crate::targets::{Changes, ContainerMetadata, Watch};

/// Interval between checks whether the paths of probes still lead to the probed files.
const FILES_EVERY: Duration = Duration::from_secs(5);

/// Shortest suspension that is logged.
const SUSPENDED: Duration = Duration::from_secs(1);

/// Interval between reads of all processes, if records report changes of processes. Records do not report when a sleeping process is moved
/// to another cgroup. Such a move is detected after at most this time.
const RECONCILE: Duration = Duration::from_secs(10);

/// The result of a collection, shared by all scrapes and pages.
#[derive(Debug)]
pub(super) struct Published {
    /// All metrics; `None` before the first collection.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    /// Which of them scrapes and pushes get.
    pub(super) metrics: Arc<config::Metrics>,
    /// The metrics that scrapes and pushes get, selected when the first of them asks.
    pub(super) selected: OnceLock<Arc<Snapshot>>,
    pub(super) status: Arc<Status>,
    /// The kinds of profiles, in the order of the configuration.
    pub(super) profiles: Vec<Arc<str>>,
    /// Maximum size of the debug information of a file, in bytes.
    pub(super) debug_info: u64,
    /// Begin of the collection. No count in it is older.
    pub(super) at: Monotonic,
    /// Maximum age of the result in a response to a scrape.
    pub(super) freshness: Duration,
    /// Settings of the history.
    pub(super) history: config::History,
    /// Where the evidence of incidents is kept.
    pub(super) incidents: Arc<config::Incidents>,
    /// Figures that are compared with their past.
    pub(super) anomalies: anomaly::Settings,
}

impl Published {
    /// Returns the metrics that scrapes and pushes get; `None` before the first collection.
    pub(super) fn selected(&self) -> Option<Arc<Snapshot>> {
        let all = self.snapshot.as_ref()?;
        Some(Arc::clone(self.selected.get_or_init(|| published(&self.metrics, all))))
    }
}

/// A request to the collection thread.
#[derive(Debug)]
pub(super) enum Request {
    /// A collection, unless one has begun since the demanded time.
    Collect(Demand),
    /// A reload of the configuration. The outcome is sent to the client.
    Reload(Answer),
    /// An update of the CPUs, because some went offline or came online.
    FollowCpus,
    /// A set of events to begin or to end. The outcome is sent to the client.
    Deep(Wanted, deep::Answer),
    /// The end of the thread.
    Stop,
}

/// Connection to the push thread: settings and results.
#[derive(Debug)]
pub(super) struct Pushes {
    /// Sends settings to the push thread.
    pub(super) settings: watch::Sender<Option<Arc<Settings>>>,
    /// Results of pushes.
    pub(super) board: Arc<Board>,
}

/// Connection to the container metadata thread: settings and metadata.
#[derive(Debug)]
pub(super) struct Naming {
    /// Sends settings to the container metadata thread.
    pub(super) settings: watch::Sender<Arc<Containers>>,
    /// Container metadata, used to label series.
    pub(super) directory: Arc<Directory>,
}

/// State of the collection thread.
#[derive(Debug)]
pub(super) struct Engine<K: Kernel> {
    roots: Roots,
    clock: Clock,
    config: Config,
    source: Configuration,
    facts: Facts,
    catalog: Catalog,
    /// Support of this machine for the switch stream, as assumed by the current plan.
    support: StreamSupport,
    watch: Watch,
    /// The plan in force.
    plan: Plan,
    /// The CPUs on which events are open.
    online: CpuSet,
    collector: Collector<K>,
    profiler: Profiler<K>,
    memory: Memory,
    /// Open descriptors at the last collection.
    open: OpenDescriptors,
    installer: Installer,
    files: Files,
    files_metrics: files::Metrics,
    anomalies: AnomalyMetrics,
    /// The last runs of threads, for the evidence of incidents.
    recent_runs: RecentRuns,
    helper: HelperCost,
    /// Time of the last check of the probed files.
    looked_at_files: Monotonic,
    /// Time of the last read of all processes.
    scanned_at: Monotonic,
    metrics: Arc<SelfMetrics>,
    environment: Environment,
    pushes: Pushes,
    naming: Naming,
    labeller: Labeller,
    started: Timestamp,
    /// End of the previous collection.
    ended: Monotonic,
    /// Total suspended time at the previous collection.
    suspended: Duration,
    cpu_share: CpuUsage,
    /// CPU time without HTTP requests, for `limits.cpu`.
    measuring: CpuUsage,
    requests: RequestCpu,
    governor: Governor,
    losses: LossWatch,
    reloads: Reloads,
    /// Sets of events that are counted for a limited time.
    deep: Registry,
    privileges: Privileges,
    /// Note on restrictions that the kernel does not enforce.
    unrestricted: Option<String>,
    /// Spans of collections.
    spans: Spans,
}

impl<K: Kernel> Engine<K> {
    /// Reads the facts of the host and prepares to apply `config`. Opens no events.
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
        let recent_runs = RecentRuns::within(&memory.share(Part::Evidence));
        let profiler = Profiler::new(clock.clone(), &options.files, Arc::clone(&naming.directory))?;
        Ok(Self {
            watch: Watch::new(roots.clone())
                .with_metadata(Arc::clone(&naming.directory) as Arc<dyn ContainerMetadata>),
            labeller: Labeller::new(Arc::clone(&naming.directory), clock.now())?,
            plan: Plan::default(),
            online: CpuSet::default(),
            source: Configuration { file: options.config.clone(), loaded: clock.now(), failed_reload: None },
            started: clock.now(),
            ended: clock.monotonic(),
            suspended: clock.suspended(),
            cpu_share: CpuUsage::since(clock.monotonic()),
            measuring: CpuUsage::since(clock.monotonic()),
            requests: RequestCpu::default(),
            governor: Governor::new(),
            losses: LossWatch::since(clock.monotonic()),
            reloads: Reloads::default(),
            deep: Registry::default(),
            privileges: Privileges::Without(CapabilitySet::empty()),
            unrestricted: None,
            spans: Spans::default(),
            profiler: profiler.within(&memory.of_profiles()),
            memory,
            open: OpenDescriptors::default(),
            looked_at_files: clock.monotonic(),
            scanned_at: clock.monotonic(),
            roots,
            config,
            support: StreamSupport::foreseen(&facts),
            facts,
            catalog,
            collector: collector.keeping(&recent_runs),
            recent_runs,
            installer: Installer::aside(
                &options.files,
                Arc::clone(&naming.directory) as Arc<dyn ContainerMetadata>,
                std::process::id(),
            ),
            files: options.files.clone(),
            files_metrics,
            anomalies: AnomalyMetrics::new(clock.now())?,
            helper: HelperCost::default(),
            metrics,
            clock,
            environment: options.environment.clone(),
            pushes,
            naming,
        })
    }

    /// Excludes the CPU time of requests from the time that `limits.cpu` bounds.
    pub(super) fn serving(self, requests: &RequestCpu) -> Self {
        Self { requests: requests.clone(), ..self }
    }

    /// Notes the capabilities that the process has given up.
    pub(super) fn restricted(self, privileges: Privileges, unrestricted: Option<String>) -> Self {
        Self { privileges, unrestricted, ..self }
    }

    /// Creates a span for each collection.
    pub(super) fn tracing(self, spans: &Spans) -> Self {
        Self { spans: spans.clone(), ..self }
    }

    /// Reloads the rules of access together with the configuration.
    pub(super) fn governing(self, rules: RulesReader) -> Self {
        Self { reloads: self.reloads.with_rules(rules), ..self }
    }

    /// Returns the handle to query profiles.
    pub(super) fn profiles(&self) -> Arc<dyn ProfileRecorder> {
        self.profiler.recorder()
    }

    /// Returns the report of anomalies, which another thread writes.
    pub(super) fn anomalies(&self) -> SharedReport {
        self.anomalies.report()
    }

    /// Returns the last runs of threads.
    pub(super) fn recent_runs(&self) -> RecentRuns {
        self.recent_runs.clone()
    }

    /// Returns the memory share of a part.
    pub(super) fn memory_of(&self, part: Part) -> Share {
        self.memory.share(part)
    }

    /// Returns the state to publish before the first collection.
    pub(super) fn unpublished(&self) -> Published {
        let usage = status::used(Duration::ZERO, self.collector.budget(), None);
        self.published(None, self.clock.monotonic(), Duration::ZERO, usage)
    }

    /// Collects at least once per interval, and handles requests until [`Request::Stop`].
    pub(super) fn run(mut self, requests: &Receiver<Request>, publisher: &watch::Sender<Arc<Published>>) {
        lock::never_blocks("collector");
        let pushes = self.resolve_pushes();
        // Sent before the first collection, so that all following log lines are pushed, if configured.
        self.pushes.settings.send_replace(pushes);
        self.apply_file();
        let mut last = self.collect(publisher);
        loop {
            if self.expire_deep() {
                last = self.collect(publisher);
            }
            let now = self.clock.monotonic();
            let cpus = self.watch.online().len();
            let fits = |config: &Config| config.require_memory(cpus).map_err(LoadError::from);
            if let Some((loaded, answers)) = self.reloads.ended(self.source.file.as_deref(), now, fits) {
                let outcome = self.reload(loaded);
                last = self.collect(publisher);
                for answer in answers {
                    // The client may have disconnected.
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
                Ok(Request::Deep(wanted, answer)) => {
                    let outcome = self.handle_deep(wanted);
                    last = self.collect(publisher);
                    // The client may have disconnected.
                    drop(answer.send(outcome));
                }
                Ok(Request::FollowCpus) => {
                    let changes = self.watch.refresh_cpus();
                    self.follow_cpus(&changes.restarted);
                }
                Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Returns the time until the next collection must begin.
    fn due(&self) -> Duration {
        let now = self.clock.monotonic();
        let due = self.config.interval().saturating_sub(now.since(self.ended));
        self.deep.due().map_or(due, |end| due.min(end.since(now)))
    }

    /// Prepares tracefs for probes: mounts it, if configured, and removes probes left behind by exporters that have ended.
    fn prepare_tracefs(&mut self) {
        if self.config.mount_tracefs {
            match tracefs::mount(&self.roots) {
                Ok(true) => tracing::info!(dir = %self.roots.tracing.display(), "tracefs mounted"),
                Ok(false) => {}
                Err(errno) => tracing::warn!(%errno, "cannot mount tracefs; requires CAP_SYS_ADMIN"),
            }
        }
        if self.configured_probes().is_empty() {
            return;
        }
        match self.installer.sweep() {
            Ok(leftovers) => leftovers.iter().for_each(log_leftover),
            Err(error) => tracing::warn!("cannot search for leftover probes: {error}"),
        }
    }

    /// Returns the probes that the configuration defines.
    fn configured_probes(&self) -> Vec<ConfiguredProbe> {
        configured_probes(&self.config.traced, &self.config.profiles)
    }

    /// Reads the facts and the PMUs of the host again.
    fn look_at_host(&mut self) {
        self.facts.read_again(&self.roots);
        let before = std::mem::replace(&mut self.catalog, Catalog::load(&self.roots, &self.facts));
        self.catalog.keep_cpus(&before);
        self.collector.set_facts(self.facts.clone(), self.catalog.has_core_pmu());
    }

    /// Plans the configuration for the current state of the host.
    fn plan(&mut self) -> Plan {
        // Only probes that are not open can be removed.
        let placed = self.installer.place(&self.configured_probes());
        let complain =
            |system: &str, event: &str, filter: &str| tracefs::complaint(&self.roots, system, event, filter);
        let (scheduler, syscalls) = self.governor.detail().reduced(&self.config);
        let counters = self.counters();
        let entries = Entries {
            counters: &counters,
            traced: &self.config.traced,
            profiles: &self.config.profiles,
            profile_cpus: self.config.profile_cpus,
            scheduler: scheduler.as_ref(),
            syscalls: syscalls.as_ref(),
            placed: &placed,
            complain: &complain,
            locations: self.config.locations.as_deref(),
        };
        plan(&entries, &self.catalog, &self.support)
    }

    /// Applies the configuration.
    fn apply(&mut self) {
        self.prepare_tracefs();
        for problem in self.catalog.problems() {
            tracing::warn!("invalid PMU description: {problem}");
        }
        self.collector.set_facts(self.facts.clone(), self.catalog.has_core_pmu());
        self.support = self.collector.stream_support();
        let plan = self.plan();
        let mut needs = plan.needs();
        self.deep.add_needs(&mut needs);
        self.watch.need(needs);
        // Groups that stay open must also receive the changes of this refresh.
        let changes = self.watch.refresh();
        self.collector.follow(&changes, &self.watch);
        self.profiler.follow_cpus(&changes.restarted, self.watch.online(), &mut self.collector.opening());
        for problem in self.watch.problems() {
            tracing::warn!("{problem}");
        }
        self.collector.limit_names(self.config.limits.names_per_cgroup);
        self.profiler.limit_names(self.config.limits.names_per_cgroup);
        let shares = self.memory.divide(&self.config, self.watch.online().len(), plan.ring_kinds());
        // The other half is for the file that is being written.
        self.recent_runs.set_limit((shares.get(Part::Evidence) / 2) as usize);
        self.collector.apply(&plan, Bounds::new(&self.config.limits, &shares), &self.watch);
        let limits = &self.config.limits;
        self.profiler.keep(self.config.history.kept);
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
            "configuration applied"
        );
        reload::warn_of_mistakes(&plan);
        self.plan = plan;
    }

    /// Resolves the push settings. Profiles need CPU numbers for some of them, which is part of the plan.
    fn resolve_pushes(&mut self) -> Option<Arc<Settings>> {
        let (settings, problems) = Settings::resolve(&self.config.push, &self.environment);
        problems.iter().for_each(|problem| tracing::warn!("{problem}"));
        self.config.profile_cpus = settings.as_ref().is_some_and(Settings::samples_by_cpu);
        settings.map(Arc::new)
    }

    /// Applies a configuration that was read again. Keeps the old configuration if the new one has errors.
    fn reload(&mut self, loaded: Loaded) -> Result<String, String> {
        let now = self.clock.now();
        match loaded {
            Ok((config, warnings)) => {
                let lacks = self.privileges.lack(&config, &self.facts);
                let later = reload::later(&self.config, &config, lacks);
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                self.look_at_host();
                self.config = config;
                let pushes = self.resolve_pushes();
                self.naming.settings.send_replace(Arc::new(self.config.containers.clone()));
                self.governor.restart();
                self.metrics.detail_reduced(self.governor.detail().steps());
                (self.source.loaded, self.source.failed_reload) = (now, None);
                self.metrics.config_loaded(now);
                self.apply_file();
                // After the samplers are replaced, because their old recordings are discarded.
                self.pushes.settings.send_replace(pushes);
                let outcome = format!("configuration reloaded{later}");
                tracing::info!(name: "perf_exporter.config.reloaded", "{outcome}");
                Ok(outcome)
            }
            Err(error) => {
                tracing::error!(
                    name: "perf_exporter.config.refused",
                    "configuration reload failed; the previous configuration stays in force: {error}"
                );
                self.source.failed_reload = Some(FailedReload { at: now, problems: error.lines() });
                reload::refused(&error)
            }
        }
    }

    /// Updates the state of the host, reads all counters once, and publishes the result. Returns the begin of the collection. A scrape that
    /// arrives during the collection and needs newer data waits for the next collection.
    fn collect(&mut self, publisher: &watch::Sender<Arc<Published>>) -> Monotonic {
        let begin = self.clock.monotonic();
        let _span = self.spans.begin("collect", SpanKind::Internal);
        self.note_suspension();
        let mut changes = self.look(begin);
        self.follow_cpus(&std::mem::take(&mut changes.restarted));
        self.collector.follow(&changes, &self.watch);
        self.follow_files();
        self.review_deep();
        self.profiler.collect();
        let mut families = self.collector.collect();
        families.extend(self.profiler.publish());
        let took = self.clock.monotonic().since(begin);
        self.metrics.collected(took);
        let report = self.files.report();
        let cpu = usage::cpu_time() + self.helper.cpu(report.helper);
        let usage = status::used(cpu, self.collector.budget(), report.helper);
        self.files_metrics.note(&report);
        self.metrics.config_current(self.configuration().failed_reload.is_none());
        self.measure();
        families.extend(self.metrics.families(usage));
        families.extend(self.anomalies.families());
        let families = self.labeller.name(families);
        let snapshot = Arc::new(Snapshot::new(self.clock.now(), families));
        for conflict in snapshot.conflicts() {
            tracing::error!(
                family = conflict.family.name(),
                points = conflict.points,
                "duplicate series dropped, which is a bug in perf-exporter"
            );
        }
        self.limit_memory(&snapshot);
        self.ended = self.clock.monotonic();
        self.cpu_share.note(usage.cpu, self.ended);
        let measuring = usage.cpu.saturating_sub(self.requests.total());
        if let Some(part) = self.measuring.note(measuring, self.ended) {
            self.govern(part);
        }
        let published = self.published(Some(snapshot), begin, took, usage);
        for loss in self.losses.note(&published.status.losses, self.ended) {
            tracing::warn!(
                name: "perf_exporter.records.lost",
                lost = loss.count,
                "high record loss in the last minute: {}: {}",
                loss.what,
                loss.reason
            );
        }
        publisher.send_replace(Arc::new(published));
        begin
    }

    /// Opens and closes events after a change of the online CPUs. `restarted` CPUs were offline since the last update. Events on other CPUs
    /// stay open.
    fn follow_cpus(&mut self, restarted: &CpuSet) {
        if *self.watch.online() == self.online && restarted.is_empty() {
            return;
        }
        let begin = self.clock.monotonic();
        let before = std::mem::replace(&mut self.online, self.watch.online().clone());
        // The NUMA node of a CPU must be known before events are opened. Other facts are updated later, because a new CPU is not counted
        // until its events are open.
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
        tracing::info!(
            name: "perf_exporter.cpus.changed",
            online = %self.online,
            %restarted,
            ?took,
            "online CPUs changed"
        );
        if knows_nodes {
            self.look_at_host();
        }
        // An uncore PMU moves to another CPU of its socket when its CPU goes offline.
        if self.plan() != self.plan {
            self.apply();
        }
    }

    /// Logs a suspension of the machine, because nothing was counted during it.
    fn note_suspension(&mut self) {
        let suspended = self.clock.suspended();
        let time = suspended.saturating_sub(std::mem::replace(&mut self.suspended, suspended));
        if time >= SUSPENDED {
            tracing::warn!(
                name: "perf_exporter.machine.suspended",
                ?time,
                "the machine was suspended; nothing was counted during the suspension"
            );
        }
    }

    /// Updates the processes: all of them from time to time, and otherwise only those with changes reported in records.
    fn look(&mut self, now: Monotonic) -> Changes {
        match self.collector.take_changed().filter(|_| now.since(self.scanned_at) < RECONCILE) {
            Some(changed) => self.watch.refresh_changed(&changed),
            None => {
                self.scanned_at = now;
                self.watch.refresh()
            }
        }
    }

    /// Moves probes to other files if their paths now lead to them.
    fn follow_files(&mut self) {
        let now = self.clock.monotonic();
        let due = now.since(self.looked_at_files) >= FILES_EVERY;
        if due {
            self.looked_at_files = now;
        }
        let outdated = self.installer.outdated(due);
        if !outdated.is_empty() {
            tracing::info!(probes = %outdated.join(", "), "probed files were replaced; attaching the probes to the new files");
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
        let Config { collection, history, .. } = self.config;
        let metrics = Arc::clone(&self.config.metrics);
        let (freshness, selected) = (collection.freshness, OnceLock::new());
        Published {
            snapshot,
            metrics,
            selected,
            status,
            profiles,
            debug_info: self.config.limits.debug_info,
            at,
            freshness,
            history,
            incidents: Arc::clone(&self.config.incidents),
            anomalies: self.config.anomalies.clone(),
        }
    }
}

fn log_leftover(Leftover { system, event, fate }: &Leftover) {
    match fate {
        SweepResult::Removed => tracing::info!("leftover probe removed: {system}:{event}"),
        SweepResult::Refused(refusal) => {
            tracing::warn!("cannot remove leftover probe {system}:{event}: {refusal}");
        }
        SweepResult::Kept | SweepResult::Unknown => {}
    }
}
