//! The sections `scheduler` and `syscalls` on this host: which events tell of tasks, and the metrics that come of it.

use std::sync::Arc;
use std::time::Duration;

use super::trace::{Amount, Fact, Feed, Output, Role, Source, Trace};
use super::traced::{number, tracepoints};
use super::{Builder, Fit, Unfit, wrong};
use crate::config::traced::TracedKind;
use crate::config::{Scheduler, Syscalls};
use crate::event::{Catalog, parse};
use crate::health::Scope;
use crate::metrics::{self, Buckets, Metadata, NameError};
use crate::probe::install::Placed;
use crate::sched::Layout;
use crate::syscall::{Abi, Call};
use crate::target::Targets;

impl Fact {
    /// Its labels.
    fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Delay | Self::LongestDelay | Self::Run | Self::Migrations => &[],
            Self::Wait => &["state"],
            Self::Switches => &["kind"],
            Self::Preemptions => &["by"],
            Self::PreemptedBy => &["by_cgroup"],
            Self::Calls | Self::Durations | Self::Stuck(_) => &["syscall"],
            Self::Errors => &["syscall", "errno"],
        }
    }

    /// What becomes of it.
    fn measure(self) -> Amount {
        const NANOSECOND: f64 = 1e-9;
        match self {
            Self::Delay | Self::Durations => Amount::Elapsed(Buckets::exponential("seconds")),
            Self::Run | Self::Wait => Amount::Sum(NANOSECOND),
            Self::LongestDelay => Amount::Most(NANOSECOND, LATE),
            Self::Stuck(_) => Amount::Most(NANOSECOND, Duration::ZERO),
            Self::Switches | Self::Preemptions | Self::PreemptedBy | Self::Migrations => Amount::Hits,
            Self::Calls | Self::Errors => Amount::Hits,
        }
    }

    /// How many values of a label are kept apart.
    fn values(self) -> usize {
        match self {
            Self::PreemptedBy => CULPRITS,
            _ => VALUES,
        }
    }
}

/// How far back the longest delay is looked for: what any usual scraper comes by in.
const LATE: Duration = Duration::from_secs(60);
/// How many cgroups are named that preempt others. At each collection those come first that did it most.
const CULPRITS: usize = 20;
/// More than there are system calls, or errors.
const VALUES: usize = 1024;

/// What tells of the scheduler: the first two must be there.
const SCHEDULER: [&str; 4] =
    ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_migrate_task"];
/// What tells of system calls.
const SYSCALLS: [&str; 2] = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"];

/// The name and the help of how many calls are stuck, beside for how long.
const STUCK: (&str, &str) =
    ("syscalls_stuck", "System calls that have not ended, and were entered longer ago than the threshold");

const REST: &str = "that stands in no series of the scope: what is not selected, and what could not be attributed, by \
                    reason.";

impl Fact {
    /// The name and the help of its metric.
    fn metric(self) -> (&'static str, &'static str) {
        match self {
            Self::Delay => (
                "sched_runqueue_latency_seconds",
                "How long threads were ready to run and waited for a CPU, from the wake-up or from being preempted on",
            ),
            Self::LongestDelay => (
                "sched_runqueue_latency_max_seconds",
                "The longest that a thread which came onto a CPU in the last minute had waited for it",
            ),
            Self::Run => ("sched_run_seconds", "How long threads ran"),
            Self::Wait => (
                "sched_wait_seconds",
                "How long threads were off the CPU, told when they come back, by how they had left: preempted, sleeping, or in \
                 uninterruptible sleep, which is most often for I/O",
            ),
            Self::Switches => (
                "sched_switches",
                "How often threads left a CPU: of themselves (voluntary), or although they would have gone on (involuntary)",
            ),
            Self::Preemptions => (
                "sched_preemptions",
                "How often threads left a CPU although they would have gone on, by who came: a thread of their own cgroup, of \
                 another one, of the kernel, or nobody, for their cgroup has used up its CPU quota (throttled)",
            ),
            Self::PreemptedBy => (
                "sched_preempted_by_cgroup",
                "How often threads were preempted by those of another cgroup, by which",
            ),
            Self::Migrations => ("sched_migrations", "How often threads were given to another CPU"),
            Self::Calls => ("syscalls", "System calls that have ended"),
            Self::Errors => ("syscall_errors", "System calls that gave an error, by its name"),
            Self::Durations => ("syscall_duration_seconds", "How long system calls took"),
            Self::Stuck(_) => {
                ("syscalls_stuck_longest_seconds", "How long the oldest of these has been under way")
            }
        }
    }

    /// The name and the help of what is in no series of it, for the facts that all time or all calls are part of.
    fn rest(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Run => Some(("sched_run_seconds", "Time on a CPU")),
            Self::Calls => Some(("syscalls", "System calls")),
            _ => None,
        }
    }

    /// Its metrics for one scope.
    fn output(self, targets: Targets) -> Result<Output, NameError> {
        let scope = targets.scope();
        let word = scope.prefix().map(|word| format!("{word}_")).unwrap_or_default();
        let kind = match self.measure() {
            Amount::Most(..) => metrics::Kind::Gauge,
            Amount::Elapsed(_) => metrics::Kind::Histogram,
            _ => metrics::Kind::Counter,
        };
        let unit = |name: &str| if name.ends_with("_seconds") { "seconds" } else { "" };
        let named = |(name, help): (&str, &str)| {
            Metadata::new(
                &format!("perf_{word}{name}"),
                &format!("{help}, {}.", scope.words().over),
                unit(name),
                kind,
            )
        };
        let unattributed = |(name, what): (&str, &str)| {
            let name = format!("perf_unattributed_{name}");
            Metadata::new(&name, &format!("{what} {REST}"), unit(&name), metrics::Kind::Counter)
        };
        let metric = Some(named(self.metric())?);
        let (hits, amount) = match (self, self.measure()) {
            (Self::Stuck(_), _) => (Some(named(STUCK)?), metric),
            (_, Amount::Hits) => (metric, None),
            _ => (None, metric),
        };
        Ok(Output { targets, hits, amount, unattributed: self.rest().map(unattributed).transpose()? })
    }
}

impl Builder {
    /// Plans what is told of the scheduler.
    pub(super) fn scheduler(&mut self, wanted: &Scheduler, catalog: &Catalog) {
        let keep = |field: &str| one_of(&[field], wanted.one_of);
        let mut sources = Vec::new();
        for (place, name) in SCHEDULER.into_iter().enumerate() {
            let filter =
                if place == 0 { one_of(&["prev_pid", "next_pid"], wanted.one_of) } else { keep("pid") };
            match event(catalog, name, filter).and_then(scheduler_source) {
                Ok(source) => sources.push(source),
                Err(unfit) => {
                    self.refuse_tasks(TracedKind::Scheduler, &wanted.per, *unfit);
                    // Without those nothing can be told; without the others, less.
                    if place < 2 {
                        return;
                    }
                }
            }
        }
        let mut facts =
            vec![Fact::Delay, Fact::LongestDelay, Fact::Run, Fact::Wait, Fact::Switches, Fact::Migrations];
        if wanted.preemption {
            facts.extend([Fact::Preemptions, Fact::PreemptedBy]);
        }
        self.tasks(TracedKind::Scheduler, (&wanted.per, wanted.one_of), &sources, &facts);
    }

    /// Plans what is told of system calls.
    pub(super) fn syscalls(&mut self, wanted: &Syscalls, catalog: &Catalog) {
        let refuse = |this: &mut Self, unfit| this.refuse_tasks(TracedKind::Syscalls, &wanted.per, unfit);
        let calls = match calls(wanted) {
            Ok(calls) => calls,
            Err(unfit) => return refuse(self, *unfit),
        };
        let filters = [calls.as_deref().map(numbers), one_of(&["common_pid"], wanted.one_of)];
        let filter = match filters.into_iter().flatten().collect::<Vec<_>>() {
            parts if parts.is_empty() => None,
            parts => Some(parts.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(" && ")),
        };
        let mut sources = Vec::new();
        for name in SYSCALLS {
            match event(catalog, name, filter.clone()).and_then(|placed| syscall_source(placed, &calls)) {
                Ok(source) => sources.push(source),
                // The beginning without the end says nothing, nor the end without the beginning.
                Err(unfit) => return refuse(self, *unfit),
            }
        }
        let stuck = u64::try_from(wanted.stuck.as_nanos()).unwrap_or(u64::MAX);
        let facts = [Fact::Calls, Fact::Errors, Fact::Durations, Fact::Stuck(stuck)];
        self.tasks(TracedKind::Syscalls, (&wanted.per, wanted.one_of), &sources, &facts);
    }

    fn tasks(
        &mut self,
        kind: TracedKind,
        (per, one_of): (&[Targets], u32),
        sources: &[Source],
        facts: &[Fact],
    ) {
        let entry: Arc<str> = kind.section().into();
        for &fact in facts {
            let mut outputs = Vec::new();
            for targets in per {
                let output = fact.output(targets.clone()).map_err(|error| wrong(&entry, error.to_string()));
                match output.and_then(|output| self.reserve(output, &entry)) {
                    Ok(output) => outputs.push(output),
                    Err(refusal) => self.refuse_tasks(kind, per, Unfit::new(refusal, true)),
                }
            }
            if outputs.is_empty() {
                continue;
            }
            self.plan.traces.push(Arc::new(Trace {
                kind,
                feed: Feed::Tasks(fact, one_of),
                entry: Arc::clone(&entry),
                sources: sources.to_vec(),
                pair: None,
                outputs,
                labels: fact.labels().iter().map(|&label| label.into()).collect(),
                event_label: false,
                measure: fact.measure(),
                values: fact.values(),
            }));
        }
    }

    fn refuse_tasks(&mut self, kind: TracedKind, per: &[Targets], unfit: Unfit) {
        let scope = per.first().map_or(Scope::HOST, Targets::scope);
        self.plan.refusals.push(unfit.of(kind.section(), &kind.section().into(), scope));
    }
}

/// A filter for one of so many tasks, a power of two, by the last bits of their numbers.
fn one_of(fields: &[&str], one_of: u32) -> Option<String> {
    let bits = one_of.checked_sub(1).filter(|&bits| bits > 0)?;
    Some(fields.iter().map(|field| format!("!({field} & {bits})")).collect::<Vec<_>>().join(" || "))
}

/// The calls that are wanted, sorted; `None` for all of them.
fn calls(wanted: &Syscalls) -> Fit<Option<Arc<[Call]>>> {
    if wanted.takes_all() {
        return Ok(None);
    }
    let abis = [Abi::here(true), Abi::here(false)];
    let of = |abi| Call::matching(abi, |name| wanted.matches(name));
    let mut calls: Vec<Call> = abis.into_iter().flatten().flat_map(of).collect();
    calls.sort_unstable();
    if calls.is_empty() {
        let reason = "no system call has such a name".to_owned();
        return Err(Unfit::new(wrong(&"raw_syscalls:sys_enter".into(), reason), true).into());
    }
    Ok(Some(calls.into()))
}

/// A filter for the numbers of these calls.
fn numbers(calls: &[Call]) -> String {
    let mut numbers: Vec<u32> = calls.iter().map(|call| call.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let terms = ranges.iter().map(|&(first, last)| match first == last {
        true => format!("id == {first}"),
        false => format!("(id >= {first} && id <= {last})"),
    });
    terms.collect::<Vec<_>>().join(" || ")
}

/// What this host cannot, which is no mistake of the configuration.
fn unfit(event: &Arc<str>, reason: String) -> Box<Unfit> {
    Unfit::new(wrong(event, reason), false).into()
}

/// A tracepoint with its format and filter.
fn event(catalog: &Catalog, name: &str, filter: Option<String>) -> Fit<Placed> {
    let groups = parse(name).map_err(|error| unfit(&name.into(), error.to_string()))?;
    let event = groups.first().and_then(|group| group.events.first());
    let found = event.into_iter().flat_map(|event| tracepoints(catalog, event, true)).next();
    let mut placed = found.unwrap_or_else(|| Err(unfit(&name.into(), "it has no name".to_owned())))?;
    placed.event.filter = filter.map(Into::into);
    Ok(placed)
}

fn scheduler_source(placed: Placed) -> Fit<Source> {
    let layout = placed.format.as_deref().map(Layout::of);
    match layout {
        Some(Ok(layout)) => Ok(source(placed, Role::Scheduler(layout))),
        Some(Err(reason)) => Err(unfit(&placed.event.name, reason)),
        None => Err(unfit(&placed.event.name, "its format is not known".to_owned())),
    }
}

fn syscall_source(placed: Placed, calls: &Option<Arc<[Call]>>) -> Fit<Source> {
    let field = |name: &str| {
        let format = placed.format.as_deref();
        let field = format.and_then(|format| format.field(name)).filter(|field| field.is_number());
        let missing = || unfit(&placed.event.name, format!("it has no number {name}"));
        field.cloned().ok_or_else(missing)
    };
    let number = field("id")?;
    let role = match &*placed.event.name {
        "raw_syscalls:sys_exit" => Role::Exit { number, result: field("ret")? },
        _ => Role::Enter { number, calls: calls.clone() },
    };
    Ok(source(placed, role))
}

fn source(placed: Placed, role: Role) -> Source {
    Source {
        number: number(&placed),
        event: placed.event,
        role,
        key: Vec::new(),
        labels: Vec::new(),
        value: None,
    }
}
