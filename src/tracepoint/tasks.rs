//! Activity of threads: scheduling decisions and system calls, aggregated by owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::owners::{OwnerId, Owners, RecordIds};
use crate::health::Scope;
use crate::metrics::Buckets;
use crate::plan::{Fact, Feed, Role, Trace};
use crate::register::KTHREADD;
use crate::ring::{Sample, Task, ThreadSwitch};
use crate::sched::{self, Chunk, Event, Longest, RunLog, SchedFact, Timeline};
use crate::syscall::{self, Abi, Call, Calls, PendingCall};

/// Maximum number of the longest delays, and of the oldest calls, that are listed individually.
const MAX_LISTED: usize = 16;
/// Time for which delays are listed individually, in nanoseconds.
const MINUTE: u64 = 60_000_000_000;

/// Returns the number of the owner of an activity of a thread on a CPU, in the sums of a scope.
#[inline]
fn owner_in(scope: Scope, cpu: u32, thread: &sched::Thread, owners: &mut Owners) -> OwnerId {
    let of = RecordIds { cpu, pid: thread.pid, tid: thread.tid, cgroup: thread.cgroup };
    match scope {
        Scope::Cpus(cpus) => OwnerId(cpus.number_of(cpu)),
        Scope::Cgroup if thread.cgroup == 0 => OwnerId::UNKNOWN,
        Scope::Cgroup => owners.cgroup(of),
        Scope::Process if thread.pid == 0 => OwnerId::UNKNOWN,
        Scope::Process => owners.process(of),
    }
}

/// Sums of one kind, once for each scope.
#[derive(Debug)]
struct ScopedSums<S> {
    sums: Vec<(Scope, S)>,
    /// The scopes of the outputs of its traces.
    outputs: Vec<Scope>,
}

impl<S> Default for ScopedSums<S> {
    fn default() -> Self {
        Self { sums: Vec::new(), outputs: Vec::new() }
    }
}

impl<S> ScopedSums<S> {
    /// Returns empty sums for these outputs. Sums for the whole host are derived from those of another scope, and kept separately only if
    /// there is no other.
    fn new(outputs: Vec<Scope>, sums: impl Fn() -> S) -> Self {
        let mut scopes = outputs.clone();
        if scopes.iter().any(|&scope| scope != Scope::HOST) {
            scopes.retain(|&scope| scope != Scope::HOST);
        }
        scopes.sort_unstable();
        scopes.dedup();
        Self { sums: scopes.into_iter().map(|scope| (scope, sums())).collect(), outputs }
    }

    fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Sets the outputs. Keeps the sums if the outputs are the same as before.
    fn follow(&mut self, outputs: Vec<Scope>, sums: impl Fn() -> S) {
        if self.outputs != outputs {
            *self = Self::new(outputs, sums);
        }
    }

    /// Takes the sums of each output: those of its scope, or the total over another scope.
    fn take<T: Clone + Default>(&mut self, take: impl Fn(&mut S) -> T, all: impl Fn(&T) -> T) -> Vec<T> {
        let taken: Vec<(Scope, T)> = self.sums.iter_mut().map(|(scope, sums)| (*scope, take(sums))).collect();
        let of = |scope: &Scope| match taken.iter().find(|(of, _)| of == scope) {
            Some((_, own)) => own.clone(),
            None => taken.first().map(|(_, first)| all(first)).unwrap_or_default(),
        };
        self.outputs.iter().map(of).collect()
    }
}

/// Counts of untracked activity, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Untracked {
    /// Of the scheduler.
    pub sched: sched::Untracked,
    /// Of system calls.
    pub calls: syscall::Untracked,
}

/// Delays and calls that are listed individually, the longest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LongestWaits {
    /// Delays that ended in the last minute.
    pub delays: Vec<Longest>,
    /// Calls that have not returned, and their duration so far in nanoseconds.
    pub stuck: Vec<(PendingCall, u64)>,
}

impl LongestWaits {
    /// Merges the items of a collection into the list.
    pub(super) fn follow(&mut self, news: Self, now: u64) {
        let late = |longest: &Longest| now.saturating_sub(longest.time) < MINUTE;
        self.delays.retain(late);
        self.delays.extend(news.delays);
        self.delays.sort_by_key(|longest| std::cmp::Reverse(longest.delay));
        // At most one delay per thread.
        let mut named = Vec::new();
        self.delays.retain(|longest| {
            let first = !named.contains(&longest.thread.tid);
            named.push(longest.thread.tid);
            first
        });
        self.delays.truncate(MAX_LISTED);
        self.stuck = news.stuck;
    }
}

/// Activity of threads since the last collection.
#[derive(Debug, Default)]
pub(super) struct TaskTotals {
    /// For each output of the scheduler's traces.
    pub(super) sched: Vec<sched::SchedTotals<OwnerId>>,
    /// For each output of the traces of system calls.
    pub(super) calls: Vec<Vec<syscall::Row<OwnerId>>>,
    /// For each output of the traces of system calls: the stuck calls, and their duration so far in nanoseconds.
    pub(super) stuck: Vec<Vec<(OwnerId, Call, u64)>>,
    pub(super) longest_waits: LongestWaits,
    /// The runs, if they are kept.
    pub(super) runs: Vec<Chunk>,
}

/// The longest delays since the last collection, one per thread.
#[derive(Debug, Default)]
struct LongestDelays {
    delays: Vec<Longest>,
    /// Delays up to this length are not added, in nanoseconds.
    least: u64,
}

impl LongestDelays {
    #[inline]
    fn note(&mut self, thread: &sched::Thread, report: &SchedFact) {
        if let SchedFact::SwitchIn(switch_in) = report
            && let Some(delay) = switch_in.delay.filter(|&delay| delay > self.least)
        {
            self.add(Longest { delay, thread: *thread, time: switch_in.time, cpu: switch_in.cpu });
        }
    }

    #[cold]
    fn add(&mut self, longest: Longest) {
        match self.delays.iter_mut().find(|known| known.thread.tid == longest.thread.tid) {
            Some(known) if known.delay >= longest.delay => return,
            Some(known) => *known = longest,
            None => self.delays.push(longest),
        }
        self.delays.sort_unstable_by_key(|longest| std::cmp::Reverse(longest.delay));
        self.delays.truncate(MAX_LISTED);
        if self.delays.len() == MAX_LISTED {
            self.least = self.delays.last().map_or(0, |last| last.delay);
        }
    }

    fn take(&mut self) -> Vec<Longest> {
        self.least = 0;
        std::mem::take(&mut self.delays)
    }
}

/// State and sums of all threads.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub(super) timeline: Timeline,
    longest_delays: LongestDelays,
    pub(super) runs: RunLog,
    sched: ScopedSums<sched::Sums<OwnerId>>,
    pub(super) calls: Calls,
    syscalls: ScopedSums<syscall::Sums<OwnerId>>,
    /// Nanoseconds after which a call is stuck.
    stuck: u64,
}

impl Tasks {
    /// Provides the sums that these traces need from now on. Keeps the state of threads, and the sums of outputs that remain.
    pub(super) fn retrace(&mut self, traces: &[Arc<Trace>]) {
        let outputs = |of: fn(Fact) -> bool| {
            let feeds = |trace: &&Arc<Trace>| matches!(trace.feed, Feed::Tasks(fact, _) if of(fact));
            let outputs = traces.iter().find(feeds).map(|trace| &trace.outputs);
            outputs.into_iter().flatten().map(|output| output.targets.scope()).collect::<Vec<_>>()
        };
        let seconds = || Buckets::exponential("seconds");
        let is_call = |fact| matches!(fact, Fact::Calls | Fact::Errors | Fact::Durations | Fact::Stuck(_));
        self.sched.follow(outputs(|fact| fact == Fact::Delay), || sched::Sums::new(seconds()));
        self.syscalls.follow(outputs(is_call), || syscall::Sums::new(seconds()));
        let one_of = traces.iter().filter_map(|trace| match trace.feed {
            Feed::Tasks(_, one_of) => Some(one_of),
            Feed::Records => None,
        });
        self.timeline.sample(one_of.max().unwrap_or(1));
        let stuck = traces.iter().find_map(|trace| match trace.feed {
            Feed::Tasks(Fact::Stuck(after), _) => Some(after),
            _ => None,
        });
        self.stuck = stuck.unwrap_or(u64::MAX);
        if self.is_idle() {
            *self = Self::default();
        }
    }

    /// Reports whether no output needs the state of threads; it is not tracked then.
    fn is_idle(&self) -> bool {
        self.sched.is_empty() && self.syscalls.is_empty()
    }

    /// Processes a sample of an event; `None` if it cannot be decoded.
    #[inline]
    pub(super) fn read(
        &mut self,
        source: &Role,
        cpu: u32,
        sample: &Sample<'_>,
        owners: &mut Owners,
    ) -> Option<()> {
        match source {
            Role::Fields => {}
            Role::Scheduler(layout) => {
                let event = layout.read(sample.raw)?;
                self.enter((cpu, sample.time), (sample.pid, sample.cgroup), event, owners);
            }
            Role::Enter { number, calls } => {
                self.begin(number.number(sample.raw)? as u32, cpu, calls.as_deref(), sample);
            }
            Role::Exit { number, result } => {
                let (number, result) = (number.number(sample.raw)?, result.number(sample.raw)?);
                self.end((sample.tid, number as u32), (cpu, sample.time), result as i64, owners);
            }
        }
        Some(())
    }

    #[inline]
    fn enter(&mut self, at: (u32, u64), of: (u32, u64), event: Event<'_>, owners: &mut Owners) {
        let (sums, longest_delays, runs) = (&mut self.sched.sums, &mut self.longest_delays, &mut self.runs);
        self.timeline.enter(at, of, event, &mut |thread, report| {
            longest_delays.note(thread, &report);
            runs.note(thread, &report);
            add(sums, at.0, thread, &report, owners);
        });
    }

    fn begin(&mut self, number: u32, cpu: u32, planned: Option<&[Call]>, sample: &Sample<'_>) {
        let call = Abi::here(!sample.narrow).map(|abi| Call { abi, number });
        let is_wanted = |call: &Call| planned.is_none_or(|planned| planned.binary_search(call).is_ok());
        // The kernel filters by number only. Where 32-bit programs run, one number can be two calls.
        let Some(call) = call.filter(is_wanted) else { return self.calls.ignore(sample.tid) };
        let Sample { pid, tid, cgroup, time, .. } = *sample;
        let known = self.timeline.thread(tid).map(|thread| thread.comm).unwrap_or_default();
        let thread = sched::Thread { tid, pid, cgroup, comm: known, kernel: false };
        self.calls.begin(PendingCall { thread, call, time, cpu });
    }

    fn end(&mut self, (tid, number): (u32, u32), (cpu, time): (u32, u64), result: i64, owners: &mut Owners) {
        let Some(ended) = self.calls.end(tid, number, time, result) else { return };
        for (scope, sums) in &mut self.syscalls.sums {
            sums.add(owner_in(*scope, cpu, &ended.thread, owners), &ended);
        }
    }

    /// Processes `PERF_RECORD_SWITCH`: a thread starts to run on a CPU. `next`: the record is that of the outgoing thread. A thread that
    /// was reaped before has no number any more.
    pub(super) fn incoming(
        &mut self,
        at: (u32, u64),
        (pid, tid): (u32, u32),
        next: bool,
        owners: &mut Owners,
    ) {
        if !self.sched.is_empty() && tid != u32::MAX {
            let event = if next { Event::Runs { tid } } else { Event::Incoming { tid } };
            self.enter(at, (pid, 0), event, owners);
        }
    }

    /// Adds a new thread. Its cgroup is assumed to be that of its parent.
    pub(super) fn fork(&mut self, task: &Task) {
        if self.is_idle() {
            return;
        }
        let parent = self.timeline.thread(task.parent_tid).copied().unwrap_or_default();
        let kernel = task.parent_pid == KTHREADD;
        let Task { pid, tid, .. } = *task;
        self.timeline.created(sched::Thread { tid, pid, cgroup: parent.cgroup, comm: parent.comm, kernel });
    }

    /// Processes a thread switch of the switch stream.
    #[inline]
    pub(super) fn thread_switch(&mut self, switch: &ThreadSwitch, owners: &mut Owners) {
        let &ThreadSwitch { time, cgroup, cpu, pid, tid, leaves, complete } = switch;
        if !complete {
            self.timeline.miss(cpu, tid);
        }
        let event = if leaves { Event::Outgoing { tid } } else { Event::Runs { tid } };
        self.enter((cpu, time), (pid, cgroup), event, owners);
    }

    /// Processes the exit of a thread on the CPU where it runs.
    pub(super) fn exit(&mut self, cpu: u32, task: &Task, owners: &mut Owners) {
        let &Task { pid, tid, time, .. } = task;
        self.enter((cpu, time), (pid, 0), Event::Runs { tid }, owners);
        self.timeline.forget(task.tid);
    }

    /// Adds a process as `/proc` describes it, by its main thread.
    pub(super) fn describe(&mut self, pid: u32, comm: &str, kernel: bool) {
        if self.is_idle() {
            return;
        }
        let comm = sched::Comm::new(comm.as_bytes());
        self.timeline.describe(sched::Thread { tid: pid, pid, cgroup: 0, comm, kernel });
    }

    /// Returns the counts of untracked activity.
    pub(super) fn untracked(&self) -> Untracked {
        Untracked { sched: self.timeline.untracked(), calls: self.calls.untracked() }
    }

    /// Takes the sums up to `now`, a time of the clock of the records. From now on, runs may use this number of bytes.
    pub(super) fn take(&mut self, now: u64, run_bytes: usize, owners: &mut Owners) -> TaskTotals {
        let sums = &mut self.sched.sums;
        self.timeline.pass(now, |cpu, thread, report| add(sums, cpu, thread, &report, owners));
        let mut longest_waits = self.longest_waits(now);
        for (begun, _) in
            longest_waits.stuck.iter_mut().filter(|(begun, _)| begun.thread.comm.bytes().is_empty())
        {
            let process = owners.processes.name(begun.thread.pid);
            begun.thread.comm = process.map(|name| sched::Comm::new(name.as_bytes())).unwrap_or_default();
        }
        TaskTotals {
            sched: self.sched.take(sched::Sums::take, sched_of_all),
            calls: self.syscalls.take(syscall::Sums::take, calls_of_all),
            stuck: self.stuck(now, owners),
            longest_waits,
            runs: self.runs.take(run_bytes),
        }
    }

    fn longest_waits(&mut self, now: u64) -> LongestWaits {
        let delays = self.longest_delays.take();
        let mut stuck: Vec<(PendingCall, u64)> =
            self.calls.stuck(now, self.stuck).map(|(begun, age)| (*begun, age)).collect();
        stuck.sort_by_key(|&(_, age)| std::cmp::Reverse(age));
        stuck.truncate(MAX_LISTED);
        LongestWaits { delays, stuck }
    }

    fn stuck(&self, now: u64, owners: &mut Owners) -> Vec<Vec<(OwnerId, Call, u64)>> {
        let of = |&scope: &Scope| {
            let stuck = self.calls.stuck(now, self.stuck);
            stuck
                .map(|(begun, age)| (owner_in(scope, begun.cpu, &begun.thread, owners), begun.call, age))
                .collect()
        };
        self.syscalls.outputs.iter().map(of).collect()
    }
}

#[inline]
fn add(
    sums: &mut [(Scope, sched::Sums<OwnerId>)],
    cpu: u32,
    thread: &sched::Thread,
    report: &SchedFact,
    owners: &mut Owners,
) {
    if thread.tid == 0 {
        return;
    }
    for (scope, sums) in sums {
        sums.add(owner_in(*scope, cpu, thread, owners), thread, report);
    }
}

fn sched_of_all(taken: &sched::SchedTotals<OwnerId>) -> sched::SchedTotals<OwnerId> {
    let whole = taken.sums.iter().map(|(_, sum)| sum.clone()).reduce(|mut one, other| {
        one.merge(&other);
        one
    });
    let mut pairs = FxHashMap::default();
    for &(_, by, count) in &taken.pairs {
        *pairs.entry(by).or_insert(0) += count;
    }
    sched::SchedTotals {
        sums: whole.map(|sum| (Some(OwnerId(0)), sum)).into_iter().collect(),
        pairs: pairs.into_iter().map(|(by, count)| (OwnerId(0), by, count)).collect(),
        unpaired: taken.unpaired,
    }
}

fn calls_of_all(rows: &Vec<syscall::Row<OwnerId>>) -> Vec<syscall::Row<OwnerId>> {
    let mut all: BTreeMap<Call, syscall::Sum> = BTreeMap::new();
    for (_, call, sum) in rows {
        all.entry(*call).and_modify(|total| total.merge(sum)).or_insert_with(|| sum.clone());
    }
    all.into_iter().map(|(call, sum)| (Some(OwnerId(0)), call, sum)).collect()
}
