//! Entries of `profiles` on this host: what is opened for them, and what their samples are worth.

use std::sync::Arc;
use std::time::Duration;

use super::traced::{set_filter, tracepoints};
use super::{Builder, Complain, Entries, Fit, Refused, Unfit, wrong};
use crate::config::Profiled;
use crate::config::profiled::{Rate, Source, Unwind, Whose};
use crate::error::Errno;
use crate::event::format::Field;
use crate::event::{Catalog, Event, Kind, syntax};
use crate::health::{Attempt, Cause, CpuScope, Refusal, Scope, classify};
use crate::host::{CpuSet, Facts, KernelVersion};
use crate::probe::Location;
use crate::probe::install::{Placed, Wish};

/// The section of profiles.
pub const PROFILES: &str = "profiles";

/// Since when a sample can tell the cgroup of its task.
const CGROUP_IN_SAMPLES: KernelVersion = KernelVersion(5, 7);

/// What takes the samples of one profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    /// The name of the entry.
    pub entry: Arc<str>,
    /// What writes the samples: one event; on machines with several kinds of cores one for each, and of a marker one for
    /// each of its places.
    pub events: Vec<Event>,
    /// How often. Of waits it is about how many switches a second and CPU are sampled at most: of more, each so manieth.
    pub rate: Rate,
    /// What a sample is worth.
    pub value: Value,
    /// How much of the value one sample stands for: nanoseconds or hits. `None`: each sample tells itself
    /// (`PERF_SAMPLE_PERIOD`); of waits, for how many it stands.
    pub period: Option<u64>,
    /// What it takes to tell how long a wait was; `None` where an event is sampled.
    pub waits: Option<Waits>,
    /// How the callers within programs are found.
    pub unwind: Unwind,
    /// Whether lines and inlined functions are looked up.
    pub lines: bool,
    /// Whose samples are kept.
    pub whose: Whose,
    /// Whether samples can tell the cgroup of their task.
    pub tells_cgroup: bool,
    /// Whether profiles tell CPUs apart. Off unless somebody sets it: nothing but OTLP shows them, and every CPU that a
    /// stack was seen on takes a place of its own.
    pub cpus: bool,
    /// By which part of the machine metrics tell samples apart.
    pub per: Option<CpuScope>,
    /// How many functions have metrics of their own.
    pub functions: usize,
    /// How far the pages look back.
    pub window: Duration,
}

/// What samples are worth. Once as the pages, pprof and OTLP name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// `cpu`, `off_cpu`, or the event as it is written: `page-faults`, `cycles:u`.
    pub name: Arc<str>,
    /// Whether it is time. If not, it is a number of hits.
    pub nanoseconds: bool,
}

/// How a wait is told.
///
/// `sched:sched_switch` is passed by the thread that leaves the CPU: with the stack of its sample a wait begins. It ends
/// where the scheduler says that the thread goes onto a CPU again (`PERF_RECORD_SWITCH_CPU_WIDE`).
#[derive(Debug, Clone, PartialEq)]
pub struct Waits {
    /// The shortest that is kept.
    pub threshold: Duration,
    /// The number that records of the tracepoint begin with (`common_type`).
    pub number: u16,
    /// Why the thread leaves: its state, 0 if it would have gone on (`prev_state`).
    pub state: Field,
}

impl Sampler {
    /// The events that are opened on a CPU; none where it is not sampled.
    pub fn events_on(&self, cpu: u32) -> impl Iterator<Item = &Event> {
        let wanted = self.whose.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
        self.events.iter().filter(move |event| wanted && event.is_on(cpu))
    }

    /// Whether its samples go on where those of `older` ended: both are the same, but perhaps a probe is in another file,
    /// for it follows its path.
    pub fn continues(&self, older: &Self) -> bool {
        let same = |one: &Event, other: &Event| {
            let told = |event: &Event| (event.kind, Arc::clone(&event.name), event.modifiers);
            told(one) == told(other) && (&one.filter, &one.cpus) == (&other.filter, &other.cpus)
        };
        let all = |ones: &[Event], others: &[Event]| {
            ones.iter().all(|one| others.iter().any(|other| same(one, other)))
        };
        let alike = Self { events: older.events.clone(), ..self.clone() } == *older;
        alike && all(&self.events, &older.events) && all(&older.events, &self.events)
    }

    /// The CPUs of those that are online on which one of its events is opened.
    pub fn cpus(&self, event: &Event, online: &CpuSet) -> CpuSet {
        let wanted =
            self.whose.cpus.as_ref().map_or_else(|| online.clone(), |cpus| cpus.intersection(online));
        event.cpus.as_ref().map_or_else(|| wanted.clone(), |cpus| cpus.intersection(&wanted))
    }

    /// Descriptors that it takes on these CPUs, besides those that hold the rings.
    pub fn descriptors(&self, online: &CpuSet) -> usize {
        self.events.iter().map(|event| self.cpus(event, online).len()).sum()
    }

    /// The most samples a second that a CPU writes; `None` where the rate of the event decides.
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

impl Unfit {
    /// Something about `event` on this host.
    fn here(event: &Arc<str>, cause: Cause, reason: String, remedy: impl Into<String>) -> Box<Self> {
        Self::new(Refusal { cause, remedy: Some(remedy.into()), ..wrong(event, reason) }, false).into()
    }
}

/// What is opened for an entry.
struct Found {
    events: Vec<Event>,
    rate: Rate,
    value: Value,
    period: Option<u64>,
    waits: Option<Waits>,
}

impl Builder {
    /// Plans one entry of `profiles`.
    pub(super) fn profile(&mut self, profiled: &Profiled, catalog: &Catalog, entries: &Entries<'_>) {
        match sampler(profiled, catalog, entries) {
            Ok(sampler) => self.plan.samplers.push(Arc::new(Sampler { cpus: self.profile_cpus, ..sampler })),
            Err(refused) => self.plan.refusals.push(*refused),
        }
    }
}

/// Plans one profile, whoever asks for it. Of `entries` it takes `placed` and `complain`.
///
/// # Errors
/// Why this host does not sample it.
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
            whose: profiled.whose.clone(),
            tells_cgroup: catalog.facts().kernel >= CGROUP_IN_SAMPLES,
            cpus: false,
            per: profiled.per,
            functions: profiled.functions,
            window: profiled.window,
        }),
        Err(unfit) => Err(Box::new(unfit.of(PROFILES, &profiled.name, Scope::HOST))),
    }
}

/// What is opened for an entry on this host.
fn found(profiled: &Profiled, catalog: &Catalog, entries: &Entries<'_>) -> Fit<Found> {
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

/// The events that a name stands for, and what they are called together.
fn events(event: &syntax::Event, kernel: bool, catalog: &Catalog) -> Fit<(Arc<str>, Vec<Event>)> {
    let resolve = |event: &syntax::Event| -> Fit<_> {
        let resolved = catalog.resolve(event);
        let events = resolved.map_err(|unresolved| Unfit::unresolved(event, &unresolved))?;
        Ok((event.to_string().into(), events))
    };
    let (name, events) = resolve(event)?;
    if kernel || events.iter().any(is_clock) {
        return Ok((name, events));
    }
    let narrowed = syntax::Event { modifiers: format!("{}u", event.modifiers).into(), ..event.clone() };
    resolve(&narrowed).map_err(|mut unfit| {
        // The letter is ours.
        unfit.refusal.event = name;
        unfit.refusal.remedy = Some("leave out `kernel: false`".into());
        unfit
    })
}

/// A tracepoint with its filter.
fn filtered(
    event: &syntax::Event,
    filter: &Arc<str>,
    catalog: &Catalog,
    complain: &Complain<'_>,
) -> Fit<Vec<Event>> {
    let filtered = |placed: Result<Placed, _>| {
        let mut placed = placed?;
        set_filter(&mut placed, filter, complain)?;
        Ok(placed.event)
    };
    tracepoints(catalog, event, true).into_iter().map(filtered).collect()
}

/// Whether an event is time.
fn is_clock(event: &Event) -> bool {
    event.kind == Kind::Software && event.scale.is_some()
}

fn of_event(name: Arc<str>, mut events: Vec<Event>, rate: Rate, (kernel, idle): (bool, bool)) -> Fit<Found> {
    let beside = |event: &&Event| event.kind == Kind::Pmu && event.cpus.is_some();
    if let Some(event) = events.iter().find(beside) {
        let pmu = event.pmu.as_deref().unwrap_or("its PMU");
        let reason = format!("{pmu} counts for a whole socket or die, and takes no samples");
        return Err(Unfit::here(&name, Cause::Absent, reason, "count it instead"));
    }
    let kinds_of_cores = events.iter().all(|event| event.kind.on_core_pmu());
    if events.len() > 1 && !kinds_of_cores {
        let reason = format!("it stands for {} events, and a profile is of one", events.len());
        return Err(Unfit::here(&name, Cause::Broken, reason, "write one of them"));
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
        // The kernel makes a period of it once and for all (`perf_swevent_init_hrtimer`).
        Rate::Frequency(frequency) if clock => Some(1_000_000_000 / frequency.max(1)),
        Rate::Frequency(_) => None,
        // Where a hit is an amount, its sample tells it; so each hit is a sample, whatever the period.
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

/// The probe that an entry wants.
pub(super) fn wish(profiled: &Profiled) -> Option<Wish> {
    let Source::Probe { definition, .. } = &profiled.source else { return None };
    let (name, definition) = (Arc::clone(&profiled.name), definition.clone());
    Some(Wish { section: PROFILES, name, definition, timed: false, filtered: false })
}

fn of_probe(location: &Location, placed: Option<Result<Vec<Placed>, Refusal>>, rate: Rate) -> Fit<Found> {
    // As bpftrace writes it: a place alone does not tell the entry of a function from its return.
    let name: Arc<str> = format!("{}:{location}", location.kind()).into();
    let placed = placed.unwrap_or_else(|| Err(wrong(&name, "nobody put it in place".to_owned())));
    let placed = placed.map_err(|refusal| Unfit::new(refusal, false))?;
    // Only calls that are traced by ftrace are told apart by a filter. The kernel refuses to sample those with what it would
    // have to read of a program's memory (`perf_trace_event_perm`).
    let by_function_tracer = |placed: &Placed| placed.event.filter.is_some();
    if placed.iter().any(by_function_tracer) {
        let reason = "this kernel has no kprobes, and takes no stacks where it traces functions".to_owned();
        let remedy = "count the calls under `probes`, or take a kernel with CONFIG_KPROBES";
        return Err(Unfit::here(&name, Cause::Absent, reason, remedy));
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

fn of_waits(threshold: Duration, limit: u64, catalog: &Catalog) -> Fit<Found> {
    let name = syntax::Name::Tracepoint { system: "sched".into(), event: "sched_switch".into() };
    let event = syntax::Event { name, modifiers: "".into(), alias: None };
    // A tracepoint of ours is no mistake of the file.
    let placed: Result<Vec<Placed>, _> = tracepoints(catalog, &event, true).into_iter().collect();
    let placed = placed.map_err(|unfit| Unfit::new(unfit.refusal, false))?;
    let name: Arc<str> = event.to_string().into();
    let lacks = |what: &str| {
        let reason = format!("this kernel's {name} tells no {what}");
        Unfit::here(&name, Cause::Absent, reason, "sample context-switches instead: where threads wait")
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

/// Whether this host can do it, as far as that shows before it is tried.
fn fits(profiled: &Profiled, found: &Found, catalog: &Catalog) -> Fit<()> {
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
            "kernel.perf_event_max_sample_rate is {most}, and {frequency} samples a second are wanted"
        );
        let remedy = format!("write {word}: {most} or less, or set the sysctl to {frequency}");
        return Err(Unfit::here(&event.name, Cause::Forbidden, reason, remedy));
    }
    if let Some(cpus) = &profiled.whose.cpus
        && !facts.online.is_empty()
        && cpus.intersection(&facts.online).is_empty()
    {
        let reason = format!("none of the CPUs {cpus} is online: here there are {}", facts.online);
        return Err(Unfit::here(&event.name, Cause::Absent, reason, "leave out `cpus`"));
    }
    Ok(())
}

/// Nothing is taken in the place of an event that a machine does not have: its samples would mean something else.
fn no_pmu(event: &Event, facts: &Facts) -> Box<Unfit> {
    let refusal = classify(Errno::ENOENT, &Attempt::without_pmu(Scope::HOST), facts).refusal(
        &event.name,
        "this host",
        None,
    );
    let instead = "write event: cpu-clock, which samples time and needs none".to_owned();
    let remedy = match refusal.remedy {
        Some(remedy) => format!("{instead}; or {remedy}"),
        None => instead,
    };
    Unfit::new(Refusal { remedy: Some(remedy), ..refusal }, false).into()
}
