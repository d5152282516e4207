//! Counting: every planned group is opened for every CPU, cgroup or process that it is for, or is fed by the
//! [switch stream](crate::attribute); it is read at each collection, and added to series whose totals only grow.
//!
//! A [`Collector`] is told what to count ([`Collector::apply`]) and who is there ([`Collector::follow`]);
//! [`Collector::collect`] gives the families to publish. It never fails: what cannot be counted stands on its
//! [board](Collector::board) with the reason and what would help.

mod attributed;
mod busy;
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

pub use attributed::Unattributed;
pub use measure::{Count, Measurement};
pub use stream::{StreamState, foreseen, support};

use std::sync::Arc;

use crate::attribute::Shares;
use crate::budget::{self, Part};
use crate::clock::{Clock, Monotonic, Timestamp};
use crate::config::Limits;
use crate::health::{Board, Scope, Ticket, Verdict};
use crate::host::{Facts, KernelVersion, Roots};
use crate::metrics::{Family, NameError};
use crate::plan::{Group, Plan, Source, StreamSupport};
use crate::register::TargetIndex;
use crate::ring::{self, Losses};
use crate::sys::{Budget, Inherit, Kernel, Place, Start};
use crate::target::{Changed, Targets, Watch};
use crate::tracepoint::{Remarkable, TraceState, Tracer, TracerState};
use attributed::{AttributedGroup, Collected};
use busy::Busy;
use counting::Counting;
use group::GroupCounter;
use open::{How, Means, Opened};
use publish::Quality;
use stream::{Reading, Stream};
use subject::Subject;

/// What opening and closing need besides the group itself.
struct Context<'a, K> {
    means: Means<'a, K>,
    targets: &'a Watch,
    board: &'a mut Board,
    now: Timestamp,
    monotonic: Monotonic,
}

impl<K: Kernel> Context<'_, K> {
    /// Opens a group of the service.
    fn open(&mut self, group: &Group, place: Place<'_>, target: &dyn Fn() -> String) -> Opened<K::Event> {
        let inherit = match group.targets {
            // Before 5.13 threads could only be followed together with child processes, and a child would be counted
            // twice: once with its parent and once found by itself. `catch_up` looks for threads there.
            Targets::Processes(_) if self.means.facts.kernel >= KernelVersion(5, 13) => Inherit::Threads,
            _ => Inherit::Nothing,
        };
        self.means.open(group, place, How { inherit, start: Start::Later }, target)
    }
}

/// The bounds of what is kept and locked in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// At most so many series of each metric have a name of their own.
    pub series: usize,
    /// Bytes of the rings of all CPUs.
    pub ring_memory: u64,
}

impl Bounds {
    /// Those of a configuration, within the shares of its memory.
    pub fn new(limits: &Limits, shares: &budget::Shares) -> Self {
        Self { series: limits.series, ring_memory: shares.get(Part::Rings) }
    }
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Collector<K: Kernel> {
    kernel: K,
    clock: Clock,
    roots: Roots,
    facts: Facts,
    core_pmu_present: bool,
    budget: Budget,
    board: Board,
    /// Refusals of events that could not even be named on this host.
    unresolved: Vec<Ticket>,
    stream: Option<Stream<K>>,
    /// What the stream was refused, by CPU.
    stream_refused: Vec<(u32, Ticket)>,
    /// Of streams before this one.
    past_losses: Losses,
    index: TargetIndex,
    groups: Vec<Counting<K>>,
    tracer: Tracer<K>,
    busy: Busy,
    quality: Quality,
    /// How many names the processes of one cgroup may have, in each table of series.
    names: usize,
    /// When names that had been refused were tried again.
    named: Monotonic,
}

/// What is known of one group, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupState {
    /// What was planned.
    pub plan: Arc<Group>,
    /// For each counter of the group, how many of its places were in which state at the last collection.
    pub states: Vec<Vec<(Verdict, usize)>>,
    /// How many targets are counted.
    pub targets: usize,
    /// How many targets are selected and not counted.
    pub left_out: usize,
    /// The smallest part of the time that one of its series was on the PMU in the last interval.
    pub lowest_ratio: f64,
    /// How many series it has.
    pub series: usize,
    /// How many targets have no series with labels of their own: their counts are in `other`.
    pub in_other: usize,
    /// What stands in none of its series; `None` where the switch stream does not count it for cgroups or processes.
    pub unattributed: Option<Unattributed>,
}

impl<K: Kernel> Collector<K> {
    /// Nothing is counted yet. `core_pmu_present` says whether the host has a PMU for its cores.
    ///
    /// # Errors
    /// When one of the collector's own metrics cannot be called what it is called: a bug.
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

    /// Judges by these facts from now on, and tries again what was refused by those before.
    pub fn look_again(&mut self, facts: Facts, core_pmu_present: bool) {
        (self.facts, self.core_pmu_present) = (facts, core_pmu_present);
        for counting in &mut self.groups {
            if let Counting::Dedicated(counter) = counting {
                counter.forgive();
            }
        }
        self.tracer.forgive();
    }

    /// Limits how many names the processes of one cgroup may have in the labels of one metric.
    pub fn limit_names(&mut self, per_cgroup: usize) {
        self.names = per_cgroup;
        self.groups.iter_mut().for_each(|counting| counting.base_mut().series.set_names(per_cgroup));
        self.tracer.limit_names(per_cgroup);
    }

    /// What looks into records, and what it needs for that.
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

    /// What others need that open events for their records.
    pub(crate) fn opening(&mut self) -> ring::Context<'_, K> {
        self.tracing().1
    }

    /// What this machine has of the switch stream.
    pub fn stream_support(&self) -> StreamSupport {
        support(&self.kernel, &self.facts)
    }

    /// Counts what `plan` says from now on. Groups that it shares with the plan before go on undisturbed; the others
    /// are closed, and their series end.
    pub fn apply(&mut self, plan: &Plan, bounds: Bounds, targets: &Watch) {
        let restart = self.stream.as_ref().map(|stream| &stream.plan) != plan.stream.as_ref();
        if restart {
            self.close_stream();
        }
        let groups = std::mem::take(&mut self.groups);
        let unresolved = std::mem::take(&mut self.unresolved);
        unresolved.into_iter().for_each(|ticket| self.board.remove(ticket));
        let refused = plan.refusals.iter().cloned();
        self.unresolved =
            refused.map(|refused| self.board.add(&refused.entry, refused.scope, refused.refusal)).collect();

        let (mut kept, closed): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|counting| plan.groups.iter().any(|group| **group == *counting.base().plan));
        self.close(targets, closed);
        for group in &plan.groups {
            let old = kept.iter().position(|counting| *counting.base().plan == **group);
            let counting = match old {
                Some(at) => {
                    let mut counting = kept.swap_remove(at);
                    counting.base_mut().series.set_limit(bounds.series);
                    counting
                }
                None => self.begin(group, plan, bounds.series, targets),
            };
            self.groups.push(counting);
        }
        let ring_memory = plan.ring_memory(bounds.ring_memory);
        if restart && let Some(stream) = &plan.stream {
            let rate = stream::switch_rate(&self.roots, targets.online().len());
            self.stream = Some(Stream::new(stream.clone(), rate, ring_memory));
        }
        self.describe_to_stream(targets);
        self.follow_stream(targets.online());
        self.tracer.collect(&mut self.index, &self.roots, &self.facts.nodes);
        let turns = self.turns(plan.follows_threads(), targets.online());
        let (tracer, mut context) = self.tracing();
        tracer.apply(&plan.traces, bounds.series, ring_memory, (targets.online(), turns), &mut context);
        self.describe_to_tracer(targets);
        self.follow_tracer(targets.online());
        self.board.log_news();
    }

    /// Begins to count a group that was not counted before.
    fn begin(&mut self, group: &Arc<Group>, plan: &Plan, limit: usize, targets: &Watch) -> Counting<K> {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        let numbers = plan.stream.as_ref().and_then(|stream| stream.counters_of(group));
        if let (Source::Stream, Some(numbers)) = (group.source, numbers) {
            let mut attributed = AttributedGroup::new(Arc::clone(group), numbers, limit, now);
            attributed.base.series.set_names(self.names);
            attributed.set_online(targets.online(), &self.facts.nodes, monotonic);
            let subjects = subjects_of(group, targets).into_iter();
            subjects.for_each(|subject| attributed.add(subject, monotonic));
            return Counting::Attributed(attributed);
        }
        let names = self.names;
        let context = &mut self.context(targets);
        let mut counter = GroupCounter::new(Arc::clone(group), limit, context);
        counter.base.series.set_names(names);
        counter.set_online(targets.online(), context);
        subjects_of(group, targets).into_iter().for_each(|subject| counter.add(subject, context));
        Counting::Dedicated(counter)
    }

    fn close(&mut self, targets: &Watch, closed: Vec<Counting<K>>) {
        let context = &mut self.context(targets);
        for counting in closed {
            if let Counting::Dedicated(counter) = counting {
                counter.close(context);
            }
        }
    }

    /// The processes that changed since the last call; `None` if that is not known. Those that records tell of are in rings, which
    /// are emptied for it.
    pub fn take_news(&mut self) -> Option<Changed> {
        let stream = self.stream.as_ref()?;
        let news = stream.intake().take_news();
        news.filter(|_| stream.is_everywhere(&self.facts.online))
    }

    /// Closes the stream, after its last counts have been charged.
    fn close_stream(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        self.past_losses = stream.state().losses.plus(self.past_losses);
        let (readings, shares) = stream.close(&mut self.budget);
        self.charge(&shares, &readings);
        for (_, ticket) in self.stream_refused.drain(..) {
            self.board.remove(ticket);
        }
    }

    /// Reads every counter, and gives the families of all series.
    pub fn collect(&mut self) -> Vec<Family> {
        self.busy.refresh();
        for counting in &mut self.groups {
            if let Counting::Dedicated(counter) = counting {
                counter.collect(&self.busy);
            }
        }
        if let Some(mut stream) = self.stream.take() {
            // Taken before the CPUs are read: at no time more is attributed than they have counted.
            let shares = stream.take(|pid| self.index.has_process(pid));
            let mut readings = Vec::new();
            stream.read(|reading| readings.push(reading));
            self.charge(&shares, &readings);
            stream.grow();
            let mut means = Means {
                kernel: &self.kernel,
                facts: &self.facts,
                core_pmu_present: self.core_pmu_present,
                budget: &mut self.budget,
            };
            stream.enable_switch_records(&mut means);
            self.stream = Some(stream);
        }
        self.tracer.collect(&mut self.index, &self.roots, &self.facts.nodes);
        self.publish()
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

    /// Ends the switch stream, and gives the families a last time: what the CPUs counted is then what cgroups and
    /// processes were charged with, and what could not be attributed, to the last count.
    pub fn finish(&mut self) -> Vec<Family> {
        self.close_stream();
        self.tracer.collect(&mut self.index, &self.roots, &self.facts.nodes);
        self.publish()
    }

    /// Gives the groups of the stream what it counted.
    fn charge(&mut self, shares: &Shares, readings: &[Reading]) {
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

    /// What there is to say about the switch stream, if there is one.
    pub fn stream_state(&self) -> Option<StreamState> {
        let mut state = self.stream.as_ref().map(Stream::state)?;
        state.losses = state.losses.plus(self.past_losses);
        Some(state)
    }

    /// What there is to say about each entry whose records are looked into.
    pub fn trace_states(&self) -> Vec<TraceState> {
        self.tracer.states()
    }

    /// The threads that stand out.
    pub fn remarkable(&self) -> &Remarkable {
        self.tracer.remarkable()
    }

    /// What there is to say about the rings of tracepoints and probes, if there are any.
    pub fn tracer_state(&self) -> Option<TracerState> {
        (!self.tracer.is_idle()).then(|| self.tracer.state())
    }

    /// Closes what looks into records, so that probes can be removed that nobody wants any more.
    pub fn close_tracer(&mut self) {
        let (tracer, mut context) = self.tracing();
        tracer.close(&mut context);
    }

    /// What is refused.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Descriptors in use and allowed.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// About how many bytes its series take.
    pub fn bytes(&self) -> u64 {
        let groups: usize = self.groups.iter().map(|counting| counting.base().series.bytes()).sum();
        (groups + self.tracer.bytes()) as u64
    }

    /// The number of series in each table that [`limit_series`](Self::limit_series) limits.
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

    /// What is known of each group.
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
        let means = Means {
            kernel: &self.kernel,
            facts: &self.facts,
            core_pmu_present: self.core_pmu_present,
            budget: &mut self.budget,
        };
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        Context { means, targets, board: &mut self.board, now, monotonic }
    }
}

/// Everybody who may be a target of a group now, CPUs excepted.
fn subjects_of(group: &Group, targets: &Watch) -> Vec<Subject> {
    match group.scope() {
        Scope::Cpus(_) => Vec::new(),
        Scope::Cgroup => targets.cgroups().into_iter().map(Subject::Cgroup).collect(),
        Scope::Process => targets.processes().into_iter().map(Subject::Process).collect(),
    }
}
