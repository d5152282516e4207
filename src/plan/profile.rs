//! Resolution of `profiles` entries on this host: events to open, and the value of their samples.

use std::sync::Arc;
use std::time::Duration;

use super::traced::{set_filter, tracepoints};
use super::{Builder, Complain, Entries, PlanRefusal, PlanResult, Refused, wrong};
use crate::config::Profiled;
use crate::config::profiled::{Rate, SampledTargets, Source, Unwind};
use crate::error::Errno;
use crate::event::format::Field;
use crate::event::{Catalog, Event, Kind, syntax};
use crate::health::{Attempt, Cause, CpuScope, Refusal, Scope, classify};
use crate::host::{CpuSet, Facts, KernelVersion};
use crate::probe::Location;
use crate::probe::install::{ConfiguredProbe, Placed};

/// Section name of profiles.
pub const PROFILES: &str = "profiles";

/// First kernel version whose samples can contain the cgroup of the task.
const CGROUP_IN_SAMPLES: KernelVersion = KernelVersion(5, 7);

/// Sampler of one profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    /// Name of the entry.
    pub entry: Arc<str>,
    /// Sampled events: one, or one per kind of core, or one per instance of a USDT probe.
    pub events: Vec<Event>,
    /// Sampling rate. For waits, the approximate maximum of sampled switches per second and CPU; above it, one in N switches is sampled.
    pub rate: Rate,
    /// Value of samples.
    pub value: Value,
    /// Weight of one sample, in nanoseconds or hits. `None`: each sample contains its weight (`PERF_SAMPLE_PERIOD`); for waits, the number
    /// of waits that it represents.
    pub period: Option<u64>,
    /// Parameters for measuring waits; `None` for sampled events.
    pub waits: Option<Waits>,
    /// Unwind method for user stacks.
    pub unwind: Unwind,
    /// Whether source lines and inlined functions are looked up.
    pub lines: bool,
    /// Selected tasks and CPUs.
    pub targets: SampledTargets,
    /// Whether samples contain the cgroup of their task.
    pub tells_cgroup: bool,
    /// Whether all recordings distinguish CPUs, for OTLP. Off by default, because each CPU of a stack requires a separate table entry.
    /// Sample logs contain the CPU of each sample in any case.
    pub cpus: bool,
    /// Additional label of the sample metrics for the CPU or NUMA node.
    pub per: Option<CpuScope>,
    /// Maximum number of functions with their own metrics.
    pub functions: usize,
    /// Default time range of the pages, up to now.
    pub window: Duration,
    /// Fields for memory accesses in samples that are stored in a file; `None` for profiles.
    pub memory: Option<MemoryFields>,
}

/// Fields of samples that describe memory accesses: the address and the source of the data, and the weight.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryFields {
    /// Whether samples contain the physical address too. Requires privileges.
    pub physical: bool,
    /// Whether the weight has several parts (`PERF_SAMPLE_WEIGHT_STRUCT`). Linux 5.12.
    pub is_split: bool,
    /// Events that must be counted in one group with a sampled event, by the name of the sampled event.
    pub leaders: Vec<(Arc<str>, Event)>,
}

/// Value type of samples, as named by the pages, pprof and OTLP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// `cpu`, `off_cpu`, or the event as written: `page-faults`, `cycles:u`.
    pub name: Arc<str>,
    /// Whether the value is time; otherwise it is a number of hits.
    pub nanoseconds: bool,
}

/// Parameters for measuring waits.
///
/// `sched:sched_switch` fires in the outgoing task, so its sample has the stack at which the wait begins. It ends when the scheduler
/// reports that the thread is the incoming task of a CPU (`PERF_RECORD_SWITCH_CPU_WIDE`).
#[derive(Debug, Clone, PartialEq)]
pub struct Waits {
    /// Minimum duration of a recorded wait.
    pub threshold: Duration,
    /// ID at the start of the tracepoint's records (`common_type`).
    pub number: u16,
    /// State of the outgoing task; 0 if it was preempted (`prev_state`).
    pub state: Field,
}

impl Sampler {
    /// Returns the events that are opened on a CPU; none on CPUs that are not sampled.
    pub fn events_on(&self, cpu: u32) -> impl Iterator<Item = &Event> {
        let wanted = self.targets.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
        self.events.iter().filter(move |event| wanted && event.is_on(cpu))
    }

    /// Reports whether the samples continue those of `older`: both samplers are equal, except that a probe may be in another file, because
    /// it follows its path.
    pub fn continues(&self, older: &Self) -> bool {
        let same = |one: &Event, other: &Event| {
            let identity = |event: &Event| (event.kind, Arc::clone(&event.name), event.modifiers);
            identity(one) == identity(other) && (&one.filter, &one.cpus) == (&other.filter, &other.cpus)
        };
        let all = |ones: &[Event], others: &[Event]| {
            ones.iter().all(|one| others.iter().any(|other| same(one, other)))
        };
        let alike = Self { events: older.events.clone(), ..self.clone() } == *older;
        alike && all(&self.events, &older.events) && all(&older.events, &self.events)
    }

    /// Returns the event that must be counted in one group with a sampled event.
    pub fn leader(&self, event: &Event) -> Option<&Event> {
        let leaders = self.memory.iter().flat_map(|memory| &memory.leaders);
        leaders.into_iter().find(|(name, _)| *name == event.name).map(|(_, leader)| leader)
    }

    /// Returns the online CPUs on which one of the events is opened.
    pub fn cpus(&self, event: &Event, online: &CpuSet) -> CpuSet {
        let wanted =
            self.targets.cpus.as_ref().map_or_else(|| online.clone(), |cpus| cpus.intersection(online));
        event.cpus.as_ref().map_or_else(|| wanted.clone(), |cpus| cpus.intersection(&wanted))
    }

    /// Returns the number of descriptors on these CPUs, without those that own the rings.
    pub fn descriptors(&self, online: &CpuSet) -> usize {
        self.events.iter().map(|event| self.cpus(event, online).len()).sum()
    }

    /// Returns the maximum number of samples per second on a CPU; `None` if it depends on the rate of the event.
    pub fn most_samples(&self) -> Option<u64> {
        let time = self.value.nanoseconds && self.waits.is_none();
        match self.rate {
            Rate::Frequency(frequency) => Some(frequency),
            Rate::Period(period) if time && self.period.is_some() => {
                Some(1_000_000_000u64.div_ceil(period.max(1)))
            }
            Rate::Period(_) => None,
        }
    }
}

impl PlanRefusal {
    /// Creates a refusal of `event` on this host.
    fn here(event: &Arc<str>, cause: Cause, reason: String, remedy: impl Into<String>) -> Box<Self> {
        Self::new(Refusal { cause, remedy: Some(remedy.into()), ..wrong(event, reason) }, false).into()
    }
}

/// Events and parameters of an entry.
struct Found {
    events: Vec<Event>,
    rate: Rate,
    value: Value,
    period: Option<u64>,
    waits: Option<Waits>,
}

impl Builder<'_> {
    /// Plans one entry of `profiles`.
    pub(super) fn profile(&mut self, profiled: &Profiled, catalog: &Catalog, entries: &Entries<'_>) {
        match sampler(profiled, catalog, entries) {
            Ok(sampler) => self.plan.samplers.push(Arc::new(Sampler { cpus: self.profile_cpus, ..sampler })),
            Err(refused) => self.plan.refusals.push(*refused),
        }
    }
}

/// Plans one profile, for the service or for a command. Uses `placed` and `complain` of `entries`.
///
/// # Errors
/// The reason why this host cannot sample it.
pub fn sampler(
    profiled: &Profiled,
    catalog: &Catalog,
    entries: &Entries<'_>,
) -> Result<Sampler, Box<Refused>> {
    match found(profiled, catalog, entries) {
        Ok(Found { events, rate, value, period, waits }) => Ok(Sampler {
            entry: Arc::clone(&profiled.name),
            events,
            rate,
            value,
            period,
            waits,
            unwind: profiled.unwind,
            lines: profiled.lines,
            targets: profiled.targets.clone(),
            tells_cgroup: catalog.facts().kernel >= CGROUP_IN_SAMPLES,
            cpus: false,
            per: profiled.per,
            functions: profiled.functions,
            window: profiled.window,
            memory: None,
        }),
        Err(unfit) => Err(Box::new(unfit.of(PROFILES, &profiled.name, Scope::HOST, entries.locations))),
    }
}

/// Returns the events and parameters of an entry on this host.
fn found(profiled: &Profiled, catalog: &Catalog, entries: &Entries<'_>) -> PlanResult<Found> {
    let found = match &profiled.source {
        Source::Event { event, filter, rate, kernel, idle } => {
            let (name, mut events) = events(event, *kernel, catalog)?;
            if let Some(filter) = filter {
                events = filtered(event, filter, catalog, entries.complain)?;
            }
            of_event(name, events, *rate, (*kernel, *idle))?
        }
        Source::Probe { definition, rate } => {
            let placed = entries.placed.get(&(PROFILES, Arc::clone(&profiled.name)));
            of_probe(&definition.location, placed.cloned(), *rate)?
        }
        Source::OffCpu { threshold, limit } => of_waits(*threshold, *limit, catalog)?,
    };
    fits(profiled, &found, catalog)?;
    Ok(found)
}

/// Resolves an event, and returns its name and the events that it matches.
fn events(event: &syntax::Event, kernel: bool, catalog: &Catalog) -> PlanResult<(Arc<str>, Vec<Event>)> {
    let resolve = |event: &syntax::Event| -> PlanResult<_> {
        let resolved = catalog.resolve(event);
        let events = resolved.map_err(|unresolved| PlanRefusal::unresolved(event, &unresolved))?;
        Ok((event.to_string().into(), events))
    };
    let (name, events) = resolve(event)?;
    if kernel || events.iter().any(is_clock) {
        return Ok((name, events));
    }
    let narrowed = syntax::Event { modifiers: format!("{}u", event.modifiers).into(), ..event.clone() };
    resolve(&narrowed).map_err(|mut unfit| {
        // The modifier is not in the file, so the refusal must not contain it.
        unfit.refusal.event = name;
        unfit.refusal.remedy = Some("leave out `kernel: false`".into());
        unfit
    })
}

/// Returns a tracepoint with its filter.
fn filtered(
    event: &syntax::Event,
    filter: &Arc<str>,
    catalog: &Catalog,
    complain: &Complain<'_>,
) -> PlanResult<Vec<Event>> {
    let filtered = |placed: Result<Placed, _>| {
        let mut placed = placed?;
        set_filter(&mut placed, filter, complain)?;
        Ok(placed.event)
    };
    tracepoints(catalog, event, true).into_iter().map(filtered).collect()
}

/// Reports whether an event is a clock.
fn is_clock(event: &Event) -> bool {
    event.kind == Kind::Software && event.scale.is_some()
}

fn of_event(
    name: Arc<str>,
    mut events: Vec<Event>,
    rate: Rate,
    (kernel, idle): (bool, bool),
) -> PlanResult<Found> {
    let beside = |event: &&Event| event.kind == Kind::Pmu && event.cpus.is_some();
    if let Some(event) = events.iter().find(beside) {
        let pmu = event.pmu.as_deref().unwrap_or("its PMU");
        let reason = format!("{pmu} counts for a whole socket or die and does not support sampling");
        return Err(PlanRefusal::here(&name, Cause::Absent, reason, "count it instead"));
    }
    let kinds_of_cores = events.iter().all(|event| event.kind.on_core_pmu());
    if events.len() > 1 && !kinds_of_cores {
        let reason = format!("it matches {} events, but a profile samples one event", events.len());
        return Err(PlanRefusal::here(&name, Cause::Broken, reason, "write one of them"));
    }
    let clock = events.iter().all(is_clock);
    let amounts = events.iter().any(Event::counts_amounts);
    if clock {
        for event in &mut events {
            event.modifiers.exclude_idle = !idle;
            event.modifiers.exclude_kernel |= !kernel;
        }
    }
    let period = match rate {
        // The kernel converts the frequency to a fixed period (`perf_swevent_init_hrtimer`).
        Rate::Frequency(frequency) if clock => Some(1_000_000_000 / frequency.max(1)),
        Rate::Frequency(_) => None,
        // If a hit is an amount, its sample contains it. So each hit is sampled, whatever the period.
        Rate::Period(_) if amounts => None,
        Rate::Period(period) => Some(period),
    };
    let rate = match rate {
        Rate::Period(_) if amounts => Rate::Period(1),
        rate => rate,
    };
    let value = match clock {
        true => Value { name: "cpu".into(), nanoseconds: true },
        false if amounts => Value { name, nanoseconds: true },
        false => Value { name, nanoseconds: false },
    };
    Ok(Found { events, rate, value, period, waits: None })
}

/// Returns the probe that an entry requires.
pub(super) fn configured_probe(profiled: &Profiled) -> Option<ConfiguredProbe> {
    let Source::Probe { definition, .. } = &profiled.source else { return None };
    let (name, definition) = (Arc::clone(&profiled.name), definition.clone());
    Some(ConfiguredProbe { section: PROFILES, name, definition, timed: false, filtered: false })
}

fn of_probe(
    location: &Location,
    placed: Option<Result<Vec<Placed>, Refusal>>,
    rate: Rate,
) -> PlanResult<Found> {
    // The form of bpftrace: the location alone does not distinguish the entry of a function from its return.
    let name: Arc<str> = format!("{}:{location}", location.kind()).into();
    let placed = placed.unwrap_or_else(|| Err(wrong(&name, "the probe was not installed".to_owned())));
    let placed = placed.map_err(PlanRefusal::of_probe)?;
    // Here, only events of the ftrace function tracer have a filter, which selects the function. The kernel rejects sampling such
    // events with data from user memory (`perf_trace_event_perm`).
    let by_function_tracer = |placed: &Placed| placed.event.filter.is_some();
    if placed.iter().any(by_function_tracer) {
        let reason = "this kernel has no kprobes, and its function tracer does not record stacks".to_owned();
        let remedy = "count the calls under `probes`, or use a kernel with CONFIG_KPROBES";
        return Err(PlanRefusal::here(&name, Cause::Absent, reason, remedy));
    }
    let period = match rate {
        Rate::Frequency(_) => None,
        Rate::Period(period) => Some(period),
    };
    Ok(Found {
        events: placed.into_iter().map(|placed| placed.event).collect(),
        rate,
        value: Value { name, nanoseconds: false },
        period,
        waits: None,
    })
}

fn of_waits(threshold: Duration, limit: u64, catalog: &Catalog) -> PlanResult<Found> {
    let name = syntax::Name::Tracepoint { system: "sched".into(), event: "sched_switch".into() };
    let event = syntax::Event { name, modifiers: "".into(), alias: None };
    // An error with the built-in tracepoint is not a mistake in the file.
    let placed: Result<Vec<Placed>, _> = tracepoints(catalog, &event, true).into_iter().collect();
    let placed = placed.map_err(|unfit| Box::new(unfit.of_host()))?;
    let name: Arc<str> = event.to_string().into();
    let lacks = |what: &str| {
        let reason = format!("the tracepoint {name} of this kernel has no {what}");
        PlanRefusal::here(
            &name,
            Cause::Absent,
            reason,
            "sample context-switches instead, which shows where threads wait",
        )
    };
    let format = placed.first().and_then(|placed| placed.format.clone()).ok_or_else(|| lacks("fields"))?;
    let field = |name: &str| {
        let field = format.field(name).filter(|field| field.is_number());
        field.cloned().ok_or_else(|| lacks(name))
    };
    let waits = Waits {
        threshold,
        number: u16::try_from(format.id()).map_err(|_| lacks("number"))?,
        state: field("prev_state")?,
    };
    Ok(Found {
        events: placed.into_iter().map(|placed| placed.event).collect(),
        rate: Rate::Frequency(limit),
        value: Value { name: "off_cpu".into(), nanoseconds: true },
        period: None,
        waits: Some(waits),
    })
}

/// Checks whether this host supports the profile, as far as that is known without opening events.
fn fits(profiled: &Profiled, found: &Found, catalog: &Catalog) -> PlanResult<()> {
    let facts = catalog.facts();
    let Some(event) = found.events.first() else { return Ok(()) };
    if event.kind.on_core_pmu() && !catalog.has_core_pmu() {
        return Err(no_pmu(event, facts));
    }
    if let (Rate::Frequency(frequency), Some(most)) = (found.rate, facts.max_sample_rate)
        && frequency > most
    {
        let word = if found.waits.is_some() { "limit" } else { "frequency" };
        let reason = format!(
            "kernel.perf_event_max_sample_rate is {most}, but {frequency} samples per second are requested"
        );
        let remedy = format!("write {word}: {most} or less, or set the sysctl to {frequency}");
        return Err(PlanRefusal::here(&event.name, Cause::Forbidden, reason, remedy));
    }
    if let Some(cpus) = &profiled.targets.cpus
        && !facts.online.is_empty()
        && cpus.intersection(&facts.online).is_empty()
    {
        let reason = format!("none of the CPUs {cpus} is online; the online CPUs are {}", facts.online);
        return Err(PlanRefusal::here(&event.name, Cause::Absent, reason, "leave out `cpus`"));
    }
    Ok(())
}

/// Returns the refusal on machines without a PMU. The event is not replaced, because samples of another event have a different meaning.
fn no_pmu(event: &Event, facts: &Facts) -> Box<PlanRefusal> {
    let refusal = classify(Errno::ENOENT, &Attempt::without_pmu(Scope::HOST), facts).refusal(
        &event.name,
        "this host",
        None,
    );
    let instead = "write event: cpu-clock, which samples time and needs no PMU".to_owned();
    let remedy = match refusal.remedy {
        Some(remedy) => format!("{instead}; or {remedy}"),
        None => instead,
    };
    PlanRefusal::new(Refusal { remedy: Some(remedy), ..refusal }, false).into()
}
