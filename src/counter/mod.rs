//! Counting: opens every planned group for each CPU, cgroup or process of its scope, or feeds the group from the [switch
//! stream](crate::attribute). Each collection reads the groups and adds the counts to series whose totals only grow.
//!
//! [`Collector::apply`] sets the plan and [`Collector::follow`] the targets. [`Collector::collect`] returns the families to publish and
//! never fails: each event that cannot be opened is on the [board](Collector::board), with the reason and a remedy.

mod attributed;
mod busy;
mod capacity;
mod core_times;
mod counting;
mod counts;
mod follow;
mod group;
mod measure;
mod naming;
mod open;
mod publish;
mod reading;
mod scale;
mod slots;
mod stream;
mod subject;
mod transition;

pub use attributed::Unattributed;
pub use busy::Busy;
pub use capacity::measured_capacity;
pub use measure::{Count, Measurement};
pub(crate) use scale::scale;
pub use stream::{StreamState, foreseen, support};

use std::sync::Arc;

use crate::attribute::Shares;
use crate::budget::{self, Part};
use crate::clock::{Clock, Monotonic};
use crate::config::Limits;
use crate::health::{Board, Scope, Ticket, Verdict};
use crate::host::{Facts, KernelVersion, Roots};
use crate::metrics::{Family, NameError};
use crate::plan::{Group, Plan, Refused, StreamSupport};
use crate::register::TargetIndex;
use crate::ring::{self, Losses};
use crate::sched::RecentRuns;
use crate::sys::{Budget, Inherit, Kernel, Place, Start};
use crate::targets::{Changed, Targets, Watch};
use crate::tracepoint::{LongestWaits, TraceState, Tracer, TracerState};
use attributed::{AttributedGroup, Collected};
use core_times::CoreTimes;
use counting::Counting;
use open::{OpenContext, OpenOptions, Opened};
use publish::Quality;
use stream::{Reading, Stream};
use subject::Subject;

/// State needed to open and close groups, besides the group itself.
struct Context<'a, K> {
    means: OpenContext<'a, K>,
    targets: &'a Watch,
    board: &'a mut Board,
    monotonic: Monotonic,
}

impl<K: Kernel> Context<'_, K> {
    /// Opens a group for continuous counting, with the inheritance that this kernel supports.
    fn open(&mut self, group: &Group, place: Place<'_>, target: &dyn Fn() -> String) -> Opened<K::Event> {
        let inherit = match group.targets {
            // Before 5.13, threads can be inherited only together with child processes. A child would then be counted twice: with its
            // parent, and as a process of its own. `catch_up` looks for new threads on those kernels.
            Targets::Processes(_) if self.means.facts.kernel >= KernelVersion(5, 13) => Inherit::Threads,
            _ => Inherit::Nothing,
        };
        self.means.open(group, place, OpenOptions { inherit, start: Start::Later }, target)
    }
}

/// Bounds of the number of series and of locked memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of series of each metric that have labels of their own.
    pub series: usize,
    /// Size of the rings of all CPUs, in bytes.
    pub ring_memory: u64,
}

impl Bounds {
    /// Returns the bounds of a configuration, within the shares of its memory.
    pub fn new(limits: &Limits, shares: &budget::Shares) -> Self {
        Self { series: limits.series, ring_memory: shares.get(Part::Rings) }
    }
}

/// All counters of the exporter, and their series.
#[derive(Debug)]
pub struct Collector<K: Kernel> {
    kernel: K,
    clock: Clock,
    roots: Roots,
    facts: Facts,
    core_pmu_present: bool,
    budget: Budget,
    board: Board,
    /// Tickets of events that could not be resolved on this host.
    unresolved: Vec<Ticket>,
    stream: Option<Stream<K>>,
    /// Tickets of events of the stream that could not be opened, by CPU.
    stream_refused: Vec<(u32, Ticket)>,
    /// Losses of earlier streams.
    past_losses: Losses,
    index: TargetIndex,
    groups: Vec<Counting<K>>,
    tracer: Tracer<K>,
    busy: Busy,
    quality: Quality,
    /// Maximum number of process names per cgroup, in each table of series.
    names: usize,
    /// Time of the last retry of rejected names.
    named: Monotonic,
}

/// State of one group, for status pages and the log.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupState {
    /// The planned group.
    pub plan: Arc<Group>,
    /// For each counter of the group: the number of instances in each state at the last collection.
    pub states: Vec<Vec<(Verdict, usize)>>,
    /// Number of targets that are counted.
    pub targets: usize,
    /// Number of targets that are selected but not counted.
    pub left_out: usize,
    /// Minimum running ratio of its series in the last interval.
    pub lowest_ratio: f64,
    /// Number of series.
    pub series: usize,
    /// Number of targets without labels of their own: their counts are in `other`.
    pub in_other: usize,
    /// Counts that are in none of its series; `None` unless the switch stream counts the group for cgroups or processes.
    pub unattributed: Option<Unattributed>,
}

impl<K: Kernel> Collector<K> {
    /// Returns a collector that counts nothing yet. `core_pmu_present`: whether the host has a PMU for its cores.
    ///
    /// # Errors
    /// When the name of one of the collector's own metrics is invalid: a bug.
    pub fn new(
        kernel: K,
        clock: Clock,
        roots: &Roots,
        facts: Facts,
        core_pmu_present: bool,
        budget: Budget,
    ) -> Result<Self, NameError> {
        Ok(Self {
            kernel,
            tracer: Tracer::new(clock.clone())?,
            clock,
            facts,
            core_pmu_present,
            budget,
            board: Board::default(),
            unresolved: Vec::new(),
            stream: None,
            stream_refused: Vec::new(),
            past_losses: Losses::default(),
            index: TargetIndex::default(),
            groups: Vec::new(),
            busy: Busy::new(roots),
            roots: roots.clone(),
            quality: Quality::new()?,
            names: usize::MAX,
            named: Monotonic::default(),
        })
    }

    /// Keeps the last runs of threads there, as evidence.
    pub fn keeping(mut self, recent_runs: &RecentRuns) -> Self {
        self.tracer.set_recent_runs(recent_runs);
        self
    }

    /// Uses these facts from now on, and marks targets that could not be opened for retry.
    pub fn set_facts(&mut self, facts: Facts, core_pmu_present: bool) {
        (self.facts, self.core_pmu_present) = (facts, core_pmu_present);
        for counting in &mut self.groups {
            if let Counting::Dedicated(counter) = counting {
                counter.retry_refused();
            }
        }
        self.tracer.retry_refused();
    }

    /// Limits the number of process names per cgroup in the labels of one metric.
    pub fn limit_names(&mut self, per_cgroup: usize) {
        self.names = per_cgroup;
        self.groups.iter_mut().for_each(|counting| counting.base_mut().series.set_names(per_cgroup));
        self.tracer.limit_names(per_cgroup);
    }

    /// Returns the tracer, and the context that it needs to open events.
    fn tracing(&mut self) -> (&mut Tracer<K>, ring::Context<'_, K>) {
        let context = ring::Context {
            kernel: &self.kernel,
            facts: &self.facts,
            roots: &self.roots,
            budget: &mut self.budget,
            board: &mut self.board,
        };
        (&mut self.tracer, context)
    }

    /// Returns the context for other modules that open events with records.
    pub(crate) fn opening(&mut self) -> ring::Context<'_, K> {
        self.tracing().1
    }

    /// Returns which granularities of the switch stream this machine supports.
    pub fn stream_support(&self) -> StreamSupport {
        support(&self.kernel, &self.facts)
    }

    /// Counts the groups of `plan` from now on. Groups that are also in the previous plan continue undisturbed. Of the others, each event
    /// that was counted before for the same targets continues its totals, and its descriptors where the kernel allows it. The totals of
    /// all other events end or begin.
    pub fn apply(&mut self, plan: &Plan, bounds: Bounds, targets: &Watch) {
        let unresolved = std::mem::take(&mut self.unresolved);
        unresolved.into_iter().for_each(|ticket| self.board.remove(ticket));
        let board = &mut self.board;
        let refuse = |refused: &Refused| {
            board.add_at(&refused.entry, refused.scope, refused.refusal.clone(), refused.position())
        };
        self.unresolved = plan.refusals.iter().map(refuse).collect();

        let ring_memory = plan.ring_memory(bounds.ring_memory);
        let refused = self.replace_stream(plan, ring_memory, targets);
        self.replace_groups(plan, bounds.series, targets);
        self.renumber();
        self.note_refused(refused, targets.online());
        if let (None, Some(stream)) = (&self.stream, &plan.stream) {
            let rate = stream::switch_rate(&self.roots, targets.online().len());
            self.stream = Some(Stream::new(stream.clone(), rate, ring_memory));
        }
        self.describe_to_stream(targets);
        self.follow_stream(targets.online());
        let thread_switches = self.thread_switches(plan.follows_threads(), targets.online());
        let (tracer, mut context) = self.tracing();
        tracer.stop_for(&plan.traces, ring_memory, thread_switches.is_some(), &mut context);
        self.tracer.collect(&mut self.index, &self.roots, &self.facts.nodes);
        let (tracer, mut context) = self.tracing();
        tracer.apply(
            &plan.traces,
            bounds.series,
            ring_memory,
            (targets.online(), thread_switches),
            &mut context,
        );
        self.describe_to_tracer(targets);
        self.follow_tracer(targets.online());
        self.board.log_changes();
    }

    /// Returns the processes that changed since the last call; `None` if that is unknown. Empties the rings first, because their records
    /// report some of the changes.
    pub fn take_changed(&mut self) -> Option<Changed> {
        let stream = self.stream.as_ref()?;
        let news = stream.ingest().take_changed();
        news.filter(|_| stream.is_everywhere(&self.facts.online))
    }

    /// Closes the stream, after attributing its last counts.
    fn close_stream(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        self.end_stream(stream, Vec::new());
    }

    /// Closes a stream that is no longer in use. `readings` are counts of CPUs on which it is already closed.
    fn end_stream(&mut self, stream: Stream<K>, mut readings: Vec<Reading>) {
        self.past_losses = stream.state().losses.plus(self.past_losses);
        let (last, shares) = stream.close(&mut self.budget);
        readings.extend(last);
        self.attribute(&shares, &readings);
        for (_, ticket) in self.stream_refused.drain(..) {
            self.board.remove(ticket);
        }
    }

    /// Reads every counter, and returns the families of all series.
    pub fn collect(&mut self) -> Vec<Family> {
        self.busy.refresh();
        let times = self.core_times();
        for counting in &mut self.groups {
            if let Counting::Dedicated(counter) = counting {
                counter.collect(&self.busy, &times);
            }
        }
        self.collect_stream();
        if let (Some(stream), mut means) = self.streaming() {
            stream.grow();
            stream.enable_switch_records(&mut means);
        }
        self.tracer.collect(&mut self.index, &self.roots, &self.facts.nodes);
        self.publish()
    }

    /// Returns the times of the threads with descriptors of their own on each type of core.
    fn core_times(&self) -> CoreTimes {
        let mut times = CoreTimes::new(&self.facts.online);
        for counting in &self.groups {
            if let Counting::Dedicated(counter) = counting {
                counter.add_times(&mut times);
            }
        }
        times
    }

    /// Adds the counts of the stream since the last call to its groups.
    fn collect_stream(&mut self) {
        let Some(mut stream) = self.stream.take() else { return };
        // Taken before the CPUs are read: the attributed total never exceeds the count of the CPUs.
        let shares = stream.take(|pid| self.index.has_process(pid));
        let mut readings = Vec::new();
        stream.read(|reading| readings.push(reading));
        self.attribute(&shares, &readings);
        self.stream = Some(stream);
    }

    fn publish(&mut self) -> Vec<Family> {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        for counting in &mut self.groups {
            counting.base_mut().series.end_collection(now, monotonic);
        }
        let state = self.stream_state();
        let traced = self.tracer.places();
        let mut families = self.quality.publish(&self.groups, &traced, state.as_ref(), &self.board);
        families.extend(self.tracer.publish());
        families
    }

    /// Ends the switch stream, and returns the families a last time. The counts of the CPUs then equal exactly the counts attributed to
    /// cgroups and processes plus the unattributed counts.
    pub fn finish(&mut self) -> Vec<Family> {
        self.close_stream();
        self.tracer.collect(&mut self.index, &self.roots, &self.facts.nodes);
        self.publish()
    }

    /// Adds the counts of the stream to its groups.
    fn attribute(&mut self, shares: &Shares, readings: &[Reading]) {
        self.index.add_created(shares.created());
        let collected = Collected {
            shares,
            readings,
            index: &self.index,
            busy: &self.busy,
            monotonic: self.clock.monotonic(),
        };
        for group in self.groups.iter_mut().filter_map(Counting::attributed_mut) {
            group.collect(&collected);
        }
    }

    /// Returns the state of the switch stream, if there is one.
    pub fn stream_state(&self) -> Option<StreamState> {
        let mut state = self.stream.as_ref().map(Stream::state)?;
        state.losses = state.losses.plus(self.past_losses);
        Some(state)
    }

    /// Returns the state of each entry whose records are decoded.
    pub fn trace_states(&self) -> Vec<TraceState> {
        self.tracer.states()
    }

    /// Returns the threads with unusual behavior.
    pub fn longest_waits(&self) -> &LongestWaits {
        self.tracer.longest_waits()
    }

    /// Returns the state of the rings of tracepoints and probes, if there are any.
    pub fn tracer_state(&self) -> Option<TracerState> {
        (!self.tracer.is_idle()).then(|| self.tracer.state())
    }

    /// Returns the board of events that could not be opened.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Returns the descriptors in use and their limit.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the approximate size of its series, in bytes.
    pub fn bytes(&self) -> u64 {
        let groups: usize = self.groups.iter().map(|counting| counting.base().series.bytes()).sum();
        (groups + self.tracer.bytes()) as u64
    }

    /// Returns the number of series in each table that [`limit_series`](Self::limit_series) limits.
    pub fn tables(&self) -> impl Iterator<Item = usize> {
        let groups = self.groups.iter().filter(|counting| counting.follows_tasks());
        groups.map(|counting| counting.base().series.published()).chain(self.tracer.tables())
    }

    /// Limits the number of series of each metric about cgroups and processes, until the next [`apply`](Self::apply).
    pub fn limit_series(&mut self, limit: usize) {
        let groups = self.groups.iter_mut().filter(|counting| counting.follows_tasks());
        groups.for_each(|counting| counting.base_mut().series.set_limit(limit));
        self.tracer.limit_series(limit);
    }

    /// Returns the state of each group.
    pub fn states(&self) -> Vec<GroupState> {
        let state = |counting: &Counting<K>| {
            let of = |wanted: usize| {
                let states = counting.base().states.iter().filter(move |&(&(index, _), _)| index == wanted);
                states.map(|(&(_, verdict), &places)| (verdict, places)).collect()
            };
            let series = &counting.base().series;
            GroupState {
                plan: Arc::clone(&counting.base().plan),
                states: (0..counting.base().plan.counters.len()).map(of).collect(),
                targets: counting.counted(),
                left_out: counting.left_out(),
                lowest_ratio: series
                    .iter()
                    .filter_map(|series| series.total.interval.ratio())
                    .fold(1.0, f64::min),
                series: series.iter().count(),
                in_other: series.unnamed(),
                unattributed: counting.attributed().and_then(AttributedGroup::unattributed_parts),
            }
        };
        self.groups.iter().map(state).collect()
    }

    fn context<'a>(&'a mut self, targets: &'a Watch) -> Context<'a, K> {
        let means = OpenContext {
            kernel: &self.kernel,
            facts: &self.facts,
            core_pmu_present: self.core_pmu_present,
            budget: &mut self.budget,
        };
        let monotonic = self.clock.monotonic();
        Context { means, targets, board: &mut self.board, monotonic }
    }

    /// Returns the stream, if there is one, and the means to open its events.
    fn streaming(&mut self) -> (Option<&mut Stream<K>>, OpenContext<'_, K>) {
        let means = OpenContext {
            kernel: &self.kernel,
            facts: &self.facts,
            core_pmu_present: self.core_pmu_present,
            budget: &mut self.budget,
        };
        (self.stream.as_mut(), means)
    }
}

/// Returns all cgroups or processes that can be targets of a group now. Empty for groups of CPUs.
fn subjects_of(group: &Group, targets: &Watch) -> Vec<Subject> {
    match group.scope() {
        Scope::Cpus(_) => Vec::new(),
        Scope::Cgroup => targets.cgroups().into_iter().map(Subject::Cgroup).collect(),
        Scope::Process => targets.processes().into_iter().map(Subject::Process).collect(),
    }
}
