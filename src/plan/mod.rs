//! Resolution of a configuration on this host: which events to open, grouped so that one PMU can schedule each group.
//!
//! A plan is a template for each CPU, cgroup or process. [`counter`](crate::counter) receives the actual targets at run time.

mod continuity;
mod core_types;
mod derived;
mod profile;
mod rotation;
mod stream;
mod tasks;
mod trace;
mod traced;

pub use derived::metric_groups;
pub use profile::{MemoryFields, PROFILES, Sampler, Value, Waits, sampler};
pub use rotation::{ERROR_TIME, GroupUser, RotatedGroup, Rotation};
pub use stream::{Granularity, NoStream, Set, SourceReason, Stream, StreamSupport, Unsupported};
pub use trace::{
    Amount, Fact, Feed, Output, Pairing, RingClass, Role, Source as TraceSource, Trace, ValueLocation,
};
pub use traced::Complain;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::config::{Counters, Location, Locations, PmuSharing, Profiled, Scheduler, Syscalls, Traced, Word};
use crate::deep;
use crate::event::{Capacity, Catalog, Event, Kind, Missing, Topdown, Unresolved, syntax};
use crate::health::{Cause, Refusal, Scope};
use crate::host::CpuSet;
use crate::metrics::{self, Detail, Level, Metadata, NameError, fit_name};
use crate::probe::install::{ConfiguredProbe, Placements};
use crate::targets::{Needs, Targets};

/// Maximum number of counters per group. The kernel allows more (a group read of up to 16 KiB), but rejects the whole group above its
/// limit.
pub const MAX_MEMBERS: usize = 62;

/// Events to open, and events that cannot be opened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Groups, ordered by scope: CPUs, then cgroups, then processes. So a full descriptor table affects the finest scope first.
    pub groups: Vec<Arc<Group>>,
    /// Traces, which decode records.
    pub traces: Vec<Arc<Trace>>,
    /// Samplers, which record samples with call stacks.
    pub samplers: Vec<Arc<Sampler>>,
    /// Switch stream that counts for the groups whose source it is.
    pub stream: Option<Stream>,
    /// Events that cannot be resolved on this host.
    pub refusals: Vec<Refused>,
}

impl Plan {
    /// Returns the number of descriptors for traces on this many CPUs: one per event, and one that owns the ring.
    pub fn traced_descriptors(&self, cpus: usize) -> usize {
        let of_class = |class: RingClass| {
            let mut events: Vec<&Event> = Vec::new();
            for source in self.traces.iter().filter(|trace| trace.class() == class).flat_map(|t| &t.sources) {
                if !events.iter().any(|event| event.counts_as(&source.event)) {
                    events.push(&source.event);
                }
            }
            if events.is_empty() { 0 } else { 1 + events.len() }
        };
        cpus * RingClass::ALL.map(of_class).iter().sum::<usize>()
    }

    /// Reports whether there are scheduler metrics.
    pub fn follows_threads(&self) -> bool {
        let mut sources = self.traces.iter().flat_map(|trace| &trace.sources);
        sources.any(|source| matches!(source.role, Role::Scheduler(_)))
    }

    /// Returns the number of ring kinds per CPU: switch stream, tracepoints, profiles.
    pub fn ring_kinds(&self) -> usize {
        let kinds = [self.stream.is_some(), !self.traces.is_empty(), !self.samplers.is_empty()];
        kinds.into_iter().filter(|&used| used).count()
    }

    /// Returns the ring memory of each kind, in bytes: an equal part of `all`.
    pub fn ring_memory(&self, all: u64) -> u64 {
        all / self.ring_kinds().max(1) as u64
    }

    /// Returns the number of descriptors for sampling on these CPUs: those of the samplers, and one per CPU that owns the ring.
    pub fn sampled_descriptors(&self, online: &CpuSet) -> usize {
        let sampled = |cpu: &u32| {
            let here: CpuSet = std::iter::once(*cpu).collect();
            self.samplers.iter().any(|sampler| sampler.descriptors(&here) > 0)
        };
        let holders = online.iter().filter(sampled).count();
        holders + self.samplers.iter().map(|sampler| sampler.descriptors(online)).sum::<usize>()
    }

    /// Returns which targets must be discovered on the host.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        let traced = self.traces.iter().flat_map(|trace| &trace.outputs).map(|output| &output.targets);
        for targets in self.groups.iter().map(|group| &group.targets).chain(traced) {
            targets.add_needs(&mut needs);
        }
        for sampler in &self.samplers {
            // Samples contain the cgroup as an ID, which must be resolved.
            needs.cgroups |= sampler.tells_cgroup;
            if let Some(selection) = &sampler.targets.processes {
                needs.add_processes(selection);
            }
        }
        needs
    }
}

/// Refusal with the entry that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Section of the configuration that contains the entry: `counters`, `tracepoints`, `presets`, `probes`, `profiles`, `scheduler`,
    /// `syscalls`.
    pub section: &'static str,
    /// Entry of the configuration.
    pub entry: Arc<str>,
    /// Scope.
    pub scope: Scope,
    /// Event and reason.
    pub refusal: Refusal,
    /// Whether the configuration is wrong on this host: it names an event, a field or a location that the host does not have, or a metric
    /// that is already counted. Presets are part of the program, and are never wrong.
    pub mistake: bool,
    /// Position of a mistake in a text of the file, as several lines for terminals.
    pub picture: Option<String>,
    /// Position in the file; `None` for the built-in configuration and for presets.
    pub location: Option<Location>,
}

impl Refused {
    /// Returns the position in the file: `FILE:LINE:COLUMN`.
    pub fn position(&self) -> Option<Arc<str>> {
        self.location.as_ref().map(|location| location.position().into())
    }

    /// Reports whether the entry is wrong on every host.
    pub fn is_wrong_everywhere(&self) -> bool {
        self.mistake && !self.refusal.unknown
    }

    /// Returns the position in the file, the event, the reason and the remedy.
    pub fn problem(&self) -> String {
        let Self { section, entry, refusal, location, .. } = self;
        let place = match location {
            Some(location) => location.to_string(),
            None if **entry == **section => entry.to_string(),
            None => format!("{section}.{entry}"),
        };
        let remedy = refusal.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        format!("{place}: {}: {}{remedy}", refusal.event, refusal.reason)
    }
}

/// Reason why an entry is not counted, or not completely; [`Refused`] without the entry.
#[derive(Debug)]
struct PlanRefusal {
    refusal: Refusal,
    mistake: bool,
    picture: Option<String>,
    /// Word of the file that is wrong; `None` = the event.
    word: Option<Word>,
}

/// Planned part of an entry, or the reason why it cannot be counted.
type PlanResult<T> = Result<T, Box<PlanRefusal>>;

impl PlanRefusal {
    fn new(refusal: Refusal, mistake: bool) -> Self {
        Self { mistake: mistake || refusal.unknown, refusal, picture: None, word: None }
    }

    fn unresolved(event: &syntax::Event, unresolved: &Unresolved) -> Self {
        Self::new(refusal(event, unresolved), unresolved.cause.is_mistake())
    }

    /// Creates the refusal of a probe. The kernel rejects a definition with a wrong argument or offset.
    fn of_probe(refusal: Refusal) -> Box<Self> {
        let unknown = refusal.unknown || refusal.cause == Cause::Broken;
        Self::new(Refusal { unknown, ..refusal }, unknown).into()
    }

    /// Attributes the refusal to the host: the program names the event, not the file.
    fn of_host(self) -> Self {
        let refusal = Refusal { unknown: false, ..self.refusal };
        Self { refusal, mistake: false, word: None, ..self }
    }

    /// Creates the refusal of an event because of a field or a name in its entry.
    fn of_word(refusal: Refusal, word: &str) -> Box<Self> {
        let word = Some(Word { text: word.into(), offset: 0 });
        Self { word, ..Self::new(refusal, true) }.into()
    }

    fn of(self, section: &'static str, entry: &Arc<str>, scope: Scope, file: Option<&Locations>) -> Refused {
        let Self { refusal, mistake, picture, word } = self;
        let mistake = mistake && !(section == PRESETS && (refusal.unknown || word.is_some()));
        let event = Word { text: Arc::clone(&refusal.event), offset: 0 };
        let words: Vec<Word> = word.into_iter().chain([event]).collect();
        // The entry of sets is named after its events, and several sets of the file may have them.
        let (block, name) = if deep::is_entry(entry) { ("deep", "deep") } else { (section, &**entry) };
        let location = file.filter(|_| section != PRESETS).and_then(|file| file.find(block, name, &words));
        Refused { section, entry: Arc::clone(entry), scope, refusal, mistake, picture, location }
    }
}

/// Section of entries with events and fields of the program, not of the file.
const PRESETS: &str = "presets";

/// Section name of event groups.
const COUNTERS: &str = "counters";

/// Events that are opened together for each target and scheduled together.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Entry of the configuration.
    pub entry: Arc<str>,
    /// Targets.
    pub targets: Targets,
    /// Members, the leader first; at least one.
    pub counters: Vec<Counter>,
    /// CPUs on which the group can be opened; `None` = all.
    pub cpus: Option<CpuSet>,
    /// Value of the label `pmu`, on hosts with several PMUs for the same event.
    pub pmu: Option<Arc<str>>,
    /// Value of the label `event`, for entries with several events in one metric.
    pub event: Option<Arc<str>>,
    /// Whether members that do not fit may be removed from the group (`:W`).
    pub weak: bool,
    /// Source of the counts.
    pub source: Source,
}

/// Source of the counts of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Separate descriptors for every target.
    Dedicated,
    /// The switch stream.
    Stream,
    /// None: the file requires a stream that this machine does not support.
    Refused,
}

/// Member of a group, with its metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Counter {
    /// Event to open.
    pub event: Event,
    /// Metric: `perf_<scope>_<stem>[_<unit>]`.
    pub metric: Arc<Metadata>,
    /// Metric of counts outside all series: `perf_unattributed_<stem>[_<unit>]`.
    pub unattributed: Arc<Metadata>,
}

impl Counter {
    fn new(event: Event, scope: Scope, prefix: &str, level: Level) -> Result<Self, NameError> {
        let unit = event.scale.as_ref().map_or("", |scale| &*scale.unit);
        let named = |prefix: &str| {
            let name = fit_name(&format!("perf_{prefix}_{}", event.stem));
            match unit.is_empty() || name.ends_with(&format!("_{unit}")) {
                true => name,
                false => format!("{name}_{unit}"),
            }
        };
        let metric = Metadata::with_detail(
            &named(prefix),
            &format!("{}, {}.", event.help, scope.words().over),
            unit,
            metrics::Kind::Counter,
            Detail::from(level),
        )?;
        let unattributed = Metadata::new(
            &named("unattributed"),
            &format!(
                "{}, counted on the CPUs but in no series of the scope, by reason: idle, not selected, or not \
                 attributable.",
                event.help
            ),
            unit,
            metrics::Kind::Counter,
        )?;
        Ok(Self { event, metric, unattributed })
    }
}

impl Group {
    /// Returns the scope.
    pub fn scope(&self) -> Scope {
        self.targets.scope()
    }

    /// Reports whether the group has hardware events.
    pub fn needs_pmu(&self) -> bool {
        self.counters.iter().any(|counter| counter.event.kind.needs_pmu())
    }

    /// Returns the online CPUs on which the group is opened.
    pub fn cpus(&self, online: &CpuSet) -> CpuSet {
        match &self.cpus {
            Some(cpus) => cpus.intersection(online),
            None => online.clone(),
        }
    }

    /// Returns the number of descriptors of one target: a CPU, a cgroup on all CPUs of the group, or one thread of a process.
    pub fn descriptors_per_target(&self, online: &CpuSet) -> usize {
        match self.targets {
            _ if self.source != Source::Dedicated => 0,
            Targets::Cpus(_) | Targets::Processes(_) => self.counters.len(),
            Targets::Cgroups(_) => self.counters.len() * self.cpus(online).len(),
        }
    }
}

/// Requested entries of a configuration, with their results on this machine beyond name resolution.
#[derive(Clone, Copy)]
pub struct Entries<'a> {
    /// Event groups.
    pub counters: &'a [Counters],
    /// Tracepoints and probes.
    pub traced: &'a [Traced],
    /// Profiles.
    pub profiles: &'a [Profiled],
    /// Whether profiles contain the CPU of each sample.
    pub profile_cpus: bool,
    /// Scheduler metrics.
    pub scheduler: Option<&'a Scheduler>,
    /// System call metrics.
    pub syscalls: Option<&'a Syscalls>,
    /// Installation results of the probes.
    pub placed: &'a Placements,
    /// Source of kernel messages about filters.
    pub complain: &'a Complain<'a>,
    /// Positions in the file, for problems.
    pub locations: Option<&'a Locations>,
}

impl fmt::Debug for Entries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries")
            .field("counters", &self.counters)
            .field("traced", &self.traced)
            .field("profiles", &self.profiles)
            .field("scheduler", &self.scheduler)
            .field("syscalls", &self.syscalls)
            .finish()
    }
}

const NOTHING: &Placements = &Placements::new();

impl<'a> Entries<'a> {
    /// Creates entries with counters only.
    pub const fn counters(counters: &'a [Counters]) -> Self {
        let (scheduler, syscalls) = (None, None);
        Self {
            counters,
            traced: &[],
            profiles: &[],
            profile_cpus: false,
            scheduler,
            syscalls,
            placed: NOTHING,
            complain: &|_, _, _| None,
            locations: None,
        }
    }
}

/// Returns the probes that a configuration requires.
pub fn configured_probes(traced: &[Traced], profiles: &[Profiled]) -> Vec<ConfiguredProbe> {
    traced
        .iter()
        .filter_map(traced::configured_probe)
        .chain(profiles.iter().filter_map(profile::configured_probe))
        .collect()
}

/// Resolves a configuration on this host; `support` describes the available switch stream.
pub fn plan(wanted: &Entries<'_>, catalog: &Catalog, support: &StreamSupport) -> Plan {
    let (owners, file) = (Some(BTreeMap::new()), wanted.locations);
    let mut builder = Builder { owners, file, ..Builder::default() };
    for entry in wanted.counters {
        builder.begin(entry, catalog);
        for per in &entry.per {
            for group in &entry.groups {
                builder.resolve(catalog, &entry.name, per, group);
            }
        }
    }
    // After all events that are written: metrics share the counts of events that are counted anyway.
    for entry in wanted.counters.iter().filter(|entry| !entry.metrics.is_empty()) {
        builder.begin(entry, catalog);
        for per in &entry.per {
            builder.metrics(catalog, entry, per);
        }
    }
    for traced in wanted.traced {
        builder.trace(traced, catalog, wanted);
    }
    if let Some(scheduler) = wanted.scheduler {
        builder.scheduler(scheduler, catalog);
    }
    if let Some(syscalls) = wanted.syscalls {
        builder.syscalls(syscalls, catalog);
    }
    builder.profile_cpus = wanted.profile_cpus;
    for profiled in wanted.profiles {
        builder.profile(profiled, catalog, wanted);
    }
    let Builder { mut plan, mut groups, .. } = builder;
    groups.sort_by_key(Group::scope);
    let follows_threads = plan.follows_threads();
    plan.stream = Stream::plan(&mut groups, support, follows_threads, |group, unsupported| {
        let unfit = PlanRefusal::new(unsupported.refusal(group), false);
        plan.refusals.push(unfit.of(COUNTERS, &group.entry, group.scope(), wanted.locations));
    });
    groups.retain(|group| group.source != Source::Refused);
    plan.groups = groups.into_iter().map(Arc::new).collect();
    plan
}

/// Plans one group of resolved events for a measurement without metrics, which may count an event more than once. `entry` is the name of
/// the measurement in refusals.
pub fn groups(entry: &Arc<str>, per: &Targets, events: Vec<Event>) -> Plan {
    let mut builder = Builder::default();
    builder.add(entry, per, events);
    let Builder { mut plan, groups, .. } = builder;
    plan.groups = groups.into_iter().map(Arc::new).collect();
    plan
}

/// Metric, with the PMU or event label that distinguishes its series.
type SeriesName = (Arc<str>, Option<Arc<str>>);

#[derive(Default)]
struct Builder<'f> {
    plan: Plan,
    /// Positions in the file.
    file: Option<&'f Locations>,
    /// Whether profiles contain the CPU of each sample.
    profile_cpus: bool,
    groups: Vec<Group>,
    /// Level of the entry that is planned.
    level: Level,
    /// How the groups of the entry that is planned share the PMU, and the catalog with its counters.
    sharing: Option<(PmuSharing, &'f Catalog)>,
    /// Counters of the PMUs that were looked up; `None` = the PMU of the cores.
    capacities: BTreeMap<Option<Arc<str>>, Capacity>,
    /// Entries that own each metric; `None` if metrics may be counted more than once.
    owners: Option<BTreeMap<SeriesName, Arc<str>>>,
}

/// Scheduling context: events can share a group only if the same PMU schedules them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Context {
    /// Software event, which can join any group.
    Any,
    /// Core PMU of a host with one kind of cores.
    Core,
    /// PMU with a name.
    Named(Arc<str>),
}

impl Context {
    fn of(event: &Event) -> Self {
        match &event.pmu {
            _ if event.kind.joins_any_group() => Self::Any,
            Some(pmu) => Self::Named(Arc::clone(pmu)),
            None => Self::Core,
        }
    }
}

impl<'f> Builder<'f> {
    /// Sets what applies to all groups of an entry.
    fn begin(&mut self, entry: &Counters, catalog: &'f Catalog) {
        (self.level, self.sharing) = (entry.level, Some((entry.sharing, catalog)));
    }

    /// Plans one group of one entry for one scope, with the events that exist on this host.
    fn resolve(&mut self, catalog: &Catalog, entry: &Arc<str>, per: &Targets, group: &syntax::Group) {
        let mut resolved: Vec<Event> = Vec::new();
        for event in &group.events {
            match catalog.resolve(event) {
                Ok(instances) => {
                    for refusal in core_types::refusals(catalog, event, &instances) {
                        self.refuse(entry, per.scope(), PlanRefusal::new(refusal, false));
                    }
                    resolved.extend(instances);
                }
                Err(unresolved) => {
                    self.refuse(entry, per.scope(), PlanRefusal::unresolved(event, &unresolved));
                }
            }
        }
        self.add(entry, per, resolved);
    }

    /// Plans events that were written as one group, for one scope.
    fn add(&mut self, entry: &Arc<str>, per: &Targets, mut resolved: Vec<Event>) {
        resolved.extend(self.sharing.and_then(|(_, catalog)| catalog.missing_slots(&resolved)));
        let contexts: BTreeSet<Context> = resolved.iter().map(Context::of).collect();
        // Software events join the hardware events of the same group, if there is one such PMU and it counts on every CPU. Otherwise
        // they form a separate group, so that each is opened once per CPU.
        let together = contexts.len() == 2
            && contexts.contains(&Context::Any)
            && resolved.iter().all(|event| event.cpus.is_none())
            && resolved.len() <= MAX_MEMBERS;
        if together {
            let context = contexts.into_iter().next_back().unwrap_or(Context::Any);
            self.add_contexts(entry, per, context, resolved);
            return;
        }
        for context in contexts {
            let members = resolved.iter().filter(|event| Context::of(event) == context).cloned().collect();
            self.add_contexts(entry, per, context, members);
        }
    }

    /// Plans events of one context, in chunks of at most [`MAX_MEMBERS`].
    fn add_contexts(&mut self, entry: &Arc<str>, per: &Targets, context: Context, events: Vec<Event>) {
        let beside_cores = |event: &Event| event.kind == Kind::Pmu && event.cpus.is_some();
        let sockets = per.scope().beside_cores();
        let targets = match sockets {
            Some(cpus) if events.iter().any(beside_cores) => Targets::Cpus(cpus),
            _ => per.clone(),
        };
        let scope = targets.scope();
        let mut counters = Vec::new();
        for event in events {
            if sockets.is_none() && beside_cores(&event) {
                self.refuse(entry, scope, PlanRefusal::new(wrong_scope(&event, scope), false));
                continue;
            }
            match self.claim(entry, scope, scope.as_str(), event, None) {
                Ok(counter) => counters.push(counter),
                Err(refusal) => self.refuse(entry, scope, PlanRefusal::new(refusal, true)),
            }
        }
        // The kernel requires `slots` as the leader of its categories, which stay with it if the others become several groups.
        let place = |counter: &Counter| counter.event.topdown;
        counters.sort_by_key(|counter| place(counter).map_or(2, |place| place as u8));
        if counters.first().is_some_and(|first| place(first) != Some(Topdown::Slots)) {
            for counter in counters.extract_if(.., |counter| place(counter) == Some(Topdown::Category)) {
                self.refuse(entry, scope, PlanRefusal::new(without_slots(&counter.event), true));
            }
        }
        let pmu = match context {
            Context::Named(pmu) => Some(pmu),
            Context::Any | Context::Core => None,
        };
        for mut counters in self.chunks(&counters, pmu.as_ref()) {
            let cpus = counters.first().and_then(|counter| counter.event.cpus.clone());
            let weak = counters.iter().any(|counter| counter.event.modifiers.weak);
            let needs_pmu = counters.iter().any(|counter| counter.event.kind.needs_pmu());
            // The kernel pins a group by its leader.
            if let Some(leader) = counters.first_mut()
                && needs_pmu
            {
                leader.event.modifiers.pinned |= self.sharing.is_some_and(|(sharing, _)| sharing.is_always);
            }
            let (entry, pmu) = (Arc::clone(entry), pmu.clone());
            let (targets, source) = (targets.clone(), Source::Dedicated);
            self.groups.push(Group { entry, targets, counters, cpus, pmu, event: None, weak, source });
        }
    }

    /// Distributes the counters of one context over groups.
    fn chunks(&mut self, counters: &[Counter], pmu: Option<&Arc<str>>) -> Vec<Vec<Counter>> {
        let parts = match self.sharing {
            Some((sharing, catalog)) if sharing.may_split && rotation::may_need_groups(counters) => {
                let pmu = pmu.map(|pmu| &**pmu);
                let watchdog = catalog.facts().nmi_watchdog && catalog.is_core(pmu);
                let capacity = || catalog.capacity(pmu);
                let capacity = self.capacities.entry(pmu.map(Arc::from)).or_insert_with(capacity);
                rotation::fitting(counters, capacity, watchdog)
            }
            _ => vec![counters.to_vec()],
        };
        parts.iter().flat_map(|part| part.chunks(MAX_MEMBERS)).map(<[Counter]>::to_vec).collect()
    }

    /// Names the metric of an event, starting with `prefix`, and reserves the name. Two events must not add to one series.
    fn claim(
        &mut self,
        entry: &Arc<str>,
        scope: Scope,
        prefix: &str,
        event: Event,
        label: Option<&Arc<str>>,
    ) -> Result<Counter, Refusal> {
        let (name, pmu) = (Arc::clone(&event.name), event.pmu.clone());
        let counter = Counter::new(event, scope, prefix, self.level)
            .map_err(|error| taken_name(entry, Arc::clone(&name), error.to_string()))?;
        self.reserve_series(&counter.metric, label.cloned().or(pmu), entry, name)?;
        Ok(counter)
    }

    /// Reserves the metrics of an output for an entry.
    fn reserve(&mut self, output: Output, entry: &Arc<str>) -> Result<Output, Refusal> {
        for metric in output.hits.iter().chain(&output.amount) {
            self.reserve_series(metric, None, entry, Arc::clone(entry))?;
        }
        Ok(output)
    }

    fn reserve_series(
        &mut self,
        metric: &Metadata,
        apart: Option<Arc<str>>,
        entry: &Arc<str>,
        event: Arc<str>,
    ) -> Result<(), Refusal> {
        let Some(owners) = &mut self.owners else { return Ok(()) };
        match owners.entry((metric.name().into(), apart)) {
            Entry::Vacant(free) => {
                free.insert(Arc::clone(entry));
                Ok(())
            }
            Entry::Occupied(taken) => {
                let reason = format!("{} is already counted by entry {}", metric.sample_name(), taken.get());
                Err(taken_name(entry, event, reason))
            }
        }
    }

    fn refuse(&mut self, entry: &Arc<str>, scope: Scope, unfit: PlanRefusal) {
        self.plan.refusals.push(unfit.of(COUNTERS, entry, scope, self.file));
    }
}

fn taken_name(entry: &str, event: Arc<str>, reason: String) -> Refusal {
    let remedy = Some("give it another name: {event: …, name: …}".into());
    Refusal { target: format!("entry {entry}"), remedy, ..wrong(&event, reason) }
}

/// Creates a refusal of an event or entry on this host.
fn wrong(event: &Arc<str>, reason: String) -> Refusal {
    let target = "this host".to_owned();
    let (errno, remedy, unknown) = (None, None, false);
    Refusal { event: Arc::clone(event), target, cause: Cause::Broken, errno, reason, remedy, unknown }
}

/// Converts an unresolved event to a refusal. The refusal contains the event as in the file, without the alias.
pub fn refusal(event: &syntax::Event, unresolved: &Unresolved) -> Refusal {
    let written = syntax::Event { alias: None, ..event.clone() };
    let cause = match unresolved.cause {
        Missing::UnknownName | Missing::UnknownTracepoint | Missing::AbsentOnHost => Cause::Absent,
        Missing::Forbidden => Cause::Forbidden,
        Missing::BadTerm | Missing::Refused | Missing::Broken => Cause::Broken,
    };
    let remedy = match &unresolved.suggestion {
        Some(name) => format!("did you mean {name}?"),
        None => unresolved.remedy.clone(),
    };
    let (remedy, unknown) = (Some(remedy), unresolved.cause.is_unknown());
    let wrong = wrong(&written.to_string().into(), unresolved.reason.clone());
    Refusal { cause, remedy, unknown, ..wrong }
}

/// Creates the refusal of a category of slots in a group without `slots`.
fn without_slots(event: &Event) -> Refusal {
    let reason = "the kernel counts it only in a group with the event slots".to_owned();
    let remedy = Some("add slots to its group: '{slots,…}'".into());
    Refusal { remedy, ..wrong(&event.name, reason) }
}

/// Creates the refusal of an uncore PMU event for a scope to which it cannot be attributed.
fn wrong_scope(event: &Event, scope: Scope) -> Refusal {
    let pmu = event.pmu.as_deref().unwrap_or("its PMU");
    let target = scope.words().target;
    let reason = format!("{pmu} counts for a whole socket or die and cannot attribute events to a {target}");
    let (target, remedy) = (format!("each {target}"), Some("count it with per: [cpu]".into()));
    Refusal { target, cause: Cause::Absent, remedy, ..wrong(&event.name, reason) }
}
