//! Resolution of the sections `scheduler` and `syscalls` on this host: their events and metrics.

use std::sync::Arc;
use std::time::Duration;

use super::trace::{Amount, Fact, Feed, Output, Role, Source, Trace};
use super::traced::tracepoints;
use super::{Builder, PlanRefusal, PlanResult, wrong};
use crate::config::traced::TracedKind;
use crate::config::{Scheduler, Syscalls};
use crate::event::{Catalog, parse};
use crate::health::Scope;
use crate::metrics::{self, Buckets, Detail, FullOnly, Level, Metadata, NameError};
use crate::probe::install::Placed;
use crate::sched::Layout;
use crate::syscall::{Abi, Call};
use crate::targets::Targets;

impl Fact {
    /// Returns the label names.
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

    /// Returns the aggregation.
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

    /// Returns what is published of the metric of a scope at each level. Other scopes than the cgroup have few series, or are in the file
    /// because its author asks for them.
    fn detail(self, scope: Scope) -> Detail {
        let standard = Detail::from(Level::Standard);
        let without = |label, values| Detail { full_only: Some(FullOnly { label, values }), ..standard };
        match self {
            // A series for each pair of cgroups.
            Self::PreemptedBy => Detail::from(Level::Full),
            _ if scope != Scope::Cgroup => Detail::default(),
            Self::Delay => Detail { bounds: Some(&LATENCIES), ..standard },
            Self::LongestDelay => standard,
            // Most threads sleep most of the time.
            Self::Wait => without("state", &["sleeping"]),
            // Voluntary and involuntary switches add up to the counter context-switches.
            Self::Switches => without("kind", &["voluntary"]),
            Self::Preemptions => without("by", &["own", "kernel", "unknown"]),
            // The counters task-clock and cpu-migrations have the same values.
            Self::Run | Self::Migrations => Detail::from(Level::Full),
            Self::Calls | Self::Errors | Self::Durations | Self::Stuck(_) => Detail::default(),
        }
    }

    /// Returns the maximum number of distinct values of a label.
    fn values(self) -> usize {
        match self {
            Self::PreemptedBy => CULPRITS,
            _ => VALUES,
        }
    }
}

/// Bounds in seconds of the classic buckets of runqueue latencies of cgroups below level `full`: 1 ms, 8 ms, the threshold of the alert
/// PerfRunQueueLatencyHigh, and a quarter of a second.
const LATENCIES: [f64; 4] = [1.0 / 1024.0, 1.0 / 128.0, 1.0 / 32.0, 0.25];
/// Time range of the maximum latency. Scrape intervals are usually shorter.
const LATE: Duration = Duration::from_secs(60);
/// Maximum number of preempting cgroups with a label value. The cgroups with the most preemptions at a collection take precedence.
const CULPRITS: usize = 20;
/// Above the number of system calls and of errors.
const VALUES: usize = 1024;

/// Scheduler events; the first two are required.
const SCHEDULER: [&str; 4] =
    ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_migrate_task"];
/// System call events.
const SYSCALLS: [&str; 2] = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"];

/// Name and help text of the metric of the number of stuck calls, in addition to their duration.
const STUCK: (&str, &str) =
    ("syscalls_stuck", "Number of system calls in progress for longer than the threshold");

const REST: &str = "in no series of the scope, by reason: not selected, or not attributable.";

impl Fact {
    /// Returns the name and the help text of the metric.
    fn metric(self) -> (&'static str, &'static str) {
        match self {
            Self::Delay => (
                "sched_runqueue_latency_seconds",
                "Time from the wakeup or preemption of a thread until it runs on a CPU",
            ),
            Self::LongestDelay => (
                "sched_runqueue_latency_max_seconds",
                "Maximum runqueue latency of a thread over the last minute",
            ),
            Self::Run => ("sched_run_seconds", "Time that threads ran on a CPU"),
            Self::Wait => (
                "sched_wait_seconds",
                "Time that threads were off the CPU, added when they return to a CPU, by state: preempted, sleeping, or \
                 uninterruptible (usually waits for I/O)",
            ),
            Self::Switches => (
                "sched_switches",
                "Context switches of threads off a CPU: voluntary, or involuntary (the thread was still runnable)",
            ),
            Self::Preemptions => (
                "sched_preemptions",
                "Preemptions of threads, by the incoming task: a thread of the same cgroup, of another cgroup, of the kernel, or \
                 none because the cgroup exhausted its CPU quota (throttled)",
            ),
            Self::PreemptedBy => (
                "sched_preempted_by_cgroup",
                "Preemptions of threads by threads of another cgroup, by that cgroup",
            ),
            Self::Migrations => ("sched_migrations", "Migrations of threads to another CPU"),
            Self::Calls => ("syscalls", "Completed system calls"),
            Self::Errors => ("syscall_errors", "System calls that returned an error, by error name"),
            Self::Durations => ("syscall_duration_seconds", "Duration of system calls"),
            Self::Stuck(_) => (
                "syscalls_stuck_longest_seconds",
                "Duration of the longest system call in progress for longer than the threshold",
            ),
        }
    }

    /// Returns the name and the help text of the metric of unattributed amounts, for facts that cover all time or all calls.
    fn rest(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Run => Some(("sched_run_seconds", "Time on a CPU")),
            Self::Calls => Some(("syscalls", "System calls")),
            _ => None,
        }
    }

    /// Returns the metrics for one scope.
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
            Metadata::with_detail(
                &format!("perf_{word}{name}"),
                &format!("{help}, {}.", scope.words().over),
                unit(name),
                kind,
                self.detail(scope),
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

impl Builder<'_> {
    /// Plans the scheduler metrics.
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
                    // The first two events are required; without the others, some facts are incomplete.
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

    /// Plans the system call metrics.
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
                // The entry and the exit are only useful together.
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
                    Err(refusal) => self.refuse_tasks(kind, per, PlanRefusal::new(refusal, true)),
                }
            }
            if outputs.is_empty() {
                continue;
            }
            self.plan.traces.push(Arc::new(Trace {
                kind,
                feed: Feed::Tasks(fact, one_of),
                entry: Arc::clone(&entry),
                follows: None,
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

    fn refuse_tasks(&mut self, kind: TracedKind, per: &[Targets], unfit: PlanRefusal) {
        let scope = per.first().map_or(Scope::HOST, Targets::scope);
        self.plan.refusals.push(unfit.of(kind.section(), &kind.section().into(), scope, self.file));
    }
}

/// Returns a filter for one in N tasks, N a power of two, by the last bits of their IDs.
fn one_of(fields: &[&str], one_of: u32) -> Option<String> {
    let bits = one_of.checked_sub(1).filter(|&bits| bits > 0)?;
    Some(fields.iter().map(|field| format!("!({field} & {bits})")).collect::<Vec<_>>().join(" || "))
}

/// Returns the selected calls, sorted; `None` for all.
fn calls(wanted: &Syscalls) -> PlanResult<Option<Arc<[Call]>>> {
    if wanted.takes_all() {
        return Ok(None);
    }
    let abis = [Abi::here(true), Abi::here(false)];
    let of = |abi| Call::matching(abi, |name| wanted.matches(name));
    let mut calls: Vec<Call> = abis.into_iter().flatten().flat_map(of).collect();
    calls.sort_unstable();
    if calls.is_empty() {
        let reason = "no system call matches".to_owned();
        return Err(PlanRefusal::new(wrong(&"raw_syscalls:sys_enter".into(), reason), true).into());
    }
    Ok(Some(calls.into()))
}

/// Returns a filter for the numbers of these calls.
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

/// Creates a refusal due to a limitation of this host, which is not a mistake in the configuration.
fn unfit(event: &Arc<str>, reason: String) -> Box<PlanRefusal> {
    PlanRefusal::new(wrong(event, reason), false).into()
}

/// Returns a tracepoint with its format and filter.
fn event(catalog: &Catalog, name: &str, filter: Option<String>) -> PlanResult<Placed> {
    let groups = parse(name).map_err(|error| unfit(&name.into(), error.to_string()))?;
    let event = groups.first().and_then(|group| group.events.first());
    let found = event.into_iter().flat_map(|event| tracepoints(catalog, event, true)).next();
    let found = found.unwrap_or_else(|| Err(unfit(&name.into(), "it is not an event".to_owned())));
    let mut placed = found.map_err(|unfit| Box::new(unfit.of_host()))?;
    placed.event.filter = filter.map(Into::into);
    Ok(placed)
}

fn scheduler_source(placed: Placed) -> PlanResult<Source> {
    let layout = placed.format.as_deref().map(Layout::of);
    match layout {
        Some(Ok(layout)) => Ok(Source::new(placed, Role::Scheduler(layout))),
        Some(Err(reason)) => Err(unfit(&placed.event.name, reason)),
        None => Err(unfit(&placed.event.name, "its format is unknown".to_owned())),
    }
}

fn syscall_source(placed: Placed, calls: &Option<Arc<[Call]>>) -> PlanResult<Source> {
    let field = |name: &str| {
        let format = placed.format.as_deref();
        let field = format.and_then(|format| format.field(name)).filter(|field| field.is_number());
        let missing = || unfit(&placed.event.name, format!("it has no numeric field {name}"));
        field.cloned().ok_or_else(missing)
    };
    let number = field("id")?;
    let role = match &*placed.event.name {
        "raw_syscalls:sys_exit" => Role::Exit { number, result: field("ret")? },
        _ => Role::Enter { number, calls: calls.clone() },
    };
    Ok(Source::new(placed, role))
}
