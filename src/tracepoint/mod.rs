//! Tracepoints and probes whose fields are decoded: labels, sums, histograms, and the time between two events.
//!
//! Each event is opened once per CPU, even if several entries use its records, and writes a record for every hit that passes its filter.
//! Entries that only count hits need no records: they are [counters](crate::counter). Records of the scheduler, of system calls, and of
//! tracepoints and probes have separate rings: a full ring loses records of one kind only.
//!
//! ```text
//! rings ─► Router ─► Aggregate: labels → Cell {hits, sum, histogram} ─ each collection ─► SeriesTable: series
//!   └► Merger ┘       └► Pending: first events of pairs, until the second arrives
//! ```
//!
//! Most records are processed as they are read. Records of pairs, and records whose processes are labeled by name, are first sorted by
//! time: an operation may start on one CPU and end on another.

mod aggregate;
mod change;
mod ingest;
mod naming;
mod open;
mod owners;
mod pending;
mod publish;
mod router;
mod series_table;
mod tasks;
mod thread_tables;
mod values;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::clock::{Clock, Monotonic};
use crate::health::{Refusal, Scope};
use crate::host::{CpuSet, Nodes, Roots};
use crate::lock::unpoisoned;
use crate::metrics::{Family, NameError};
use crate::plan::{Feed, RingClass, Role, Trace};
use crate::register::TargetIndex;
use crate::ring::{
    Consumer, Context, CreatedRing, Losses, Reader, Records, Refused, RingBudget, RingId, RingSet,
    RingWriters, ThreadSwitchReceiver, Writers,
};
use crate::sched::RecentRuns;
use crate::series::SeriesCount;
use crate::sys::scheduling::Urgency;
use crate::sys::{Event, Kernel};
use crate::targets::{CgroupId, OpenTarget};
use ingest::Ingest;
use naming::Names;
use open::{ByClass, PlannedEvent, RecordProperties, Switches, class_of, records_of};
pub use publish::METRICS;
use publish::Metrics;
use router::RouterTotals;
use series_table::SeriesTable;
pub use tasks::{LongestWaits, Untracked};

type Ring<K> = <<K as Kernel>::Event as Event>::Ring;

/// How long an unused value of a label is kept, when there is no space for new values, and for how many collections at least.
const KEPT: Duration = Duration::from_secs(5 * 60);
const KEPT_ROUNDS: usize = 30;

/// Assumed number of records of switches, wake-ups and system calls of a busy CPU per second, and their length in bytes. Rings of this size
/// lose no records while the reader waits for a CPU for some time.
const THREADS: (f64, usize) = (20_000.0, 120);

/// All events that are opened for their records.
#[derive(Debug)]
pub(crate) struct Tracer<K: Kernel> {
    clock: Clock,
    series_tables: Vec<SeriesTable>,
    planned: Vec<Arc<PlannedEvent>>,
    /// Common fields of the records of each ring class.
    properties: ByClass<RecordProperties>,
    /// Sources of thread switches.
    switches: Switches,
    /// Thread switches of the switch stream, if it is the source.
    thread_switches: Option<Arc<ThreadSwitchReceiver>>,
    /// The events of each ring, by their index in `planned`.
    rings: RingSet<RingWriters<K::Event, usize>>,
    ingest: Arc<Mutex<Ingest<Ring<K>>>>,
    /// Events that are disabled. They are closed after others were opened, because closing the last event of a tracepoint takes long.
    stopped: Vec<K::Event>,
    memory: u64,
    /// Whether to retry events that could not be opened.
    again: bool,
    /// The ring classes whose events [`stop_for`](Self::stop_for) has stopped for the next [`apply`](Self::apply); `None` if nothing changes.
    stopped_classes: Option<ByClass<bool>>,
    /// Maximum number of process names per cgroup, in each series table.
    names: usize,
    longest_waits: LongestWaits,
    /// The last runs of threads, for evidence.
    recent_runs: RecentRuns,
    /// Times of the collections in the last five minutes.
    rounds: VecDeque<Monotonic>,
    metrics: Metrics,
}

/// State of one entry, for status pages.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceState {
    /// The planned entry.
    pub plan: Arc<Trace>,
    /// For each source: the number of CPUs on which it is open.
    pub open: Vec<usize>,
    /// Hits in its series.
    pub hits: u64,
    /// Number of series of each output.
    pub series: Vec<SeriesCount>,
    /// Number of unpaired events, by reason.
    pub unpaired: Vec<(&'static str, u64)>,
    /// Number of first events of a pair that are pending.
    pub waiting: usize,
}

/// State of the rings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TracerState {
    /// Number of descriptors on all CPUs.
    pub descriptors: usize,
    /// State of the rings of each kind of record that entries need.
    pub rings: Vec<RingsState>,
    /// Size of the records that were read from rings and are queued until older ones have arrived, in bytes.
    pub waiting_bytes: u64,
    /// Untracked activity of threads.
    pub untracked: Untracked,
}

impl TracerState {
    /// Returns the size of all rings, in bytes.
    pub fn ring_bytes(&self) -> u64 {
        self.rings.iter().map(|rings| rings.bytes).sum()
    }
}

/// State of the rings of one kind of record, on all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingsState {
    /// Kind of record.
    pub records: Records,
    /// Size of the rings, in bytes.
    pub bytes: u64,
    /// Counts of records read and lost.
    pub losses: Losses,
}

impl<K: Kernel> Tracer<K> {
    /// Returns the approximate size of all series, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.series_tables.iter().map(SeriesTable::bytes).sum()
    }

    /// Returns the number of series of each metric.
    pub(crate) fn tables(&self) -> impl Iterator<Item = usize> {
        self.series_tables.iter().flat_map(SeriesTable::tables)
    }

    /// Limits the number of series of each metric.
    pub(crate) fn limit_series(&mut self, limit: usize) {
        self.series_tables.iter_mut().for_each(|series_table| series_table.set_limit(limit));
    }

    /// Returns a tracer without open events.
    ///
    /// # Errors
    /// When the name of one of its own metrics is invalid: a bug.
    pub(crate) fn new(clock: Clock) -> Result<Self, NameError> {
        Ok(Self {
            ingest: Arc::new(Mutex::new(Ingest::new(clock.clone()))),
            clock,
            stopped: Vec::new(),
            series_tables: Vec::new(),
            planned: Vec::new(),
            properties: open::planned(&[], Switches::default()).1,
            switches: Switches::default(),
            thread_switches: None,
            rings: RingSet::new(Records::Tracepoints.plural()),
            memory: 0,
            again: false,
            stopped_classes: None,
            names: usize::MAX,
            longest_waits: LongestWaits::default(),
            recent_runs: RecentRuns::default(),
            rounds: VecDeque::new(),
            metrics: Metrics::new()?,
        })
    }

    /// Limits the number of process names per cgroup in the labels of one entry.
    pub(crate) fn limit_names(&mut self, per_cgroup: usize) {
        self.names = per_cgroup;
        self.series_tables.iter_mut().for_each(|series_table| series_table.set_names(per_cgroup));
    }

    /// Writes the runs of threads there from now on.
    pub(crate) fn set_recent_runs(&mut self, recent_runs: &RecentRuns) {
        self.recent_runs = recent_runs.clone();
    }

    /// Limits the rings of all CPUs to `memory` bytes from now on. Open rings stay as they are.
    pub(crate) fn set_ring_memory(&mut self, memory: u64) {
        self.memory = memory;
    }

    /// Reports whether it follows threads, and can therefore use the thread switches of the switch stream.
    pub(crate) fn follows_threads(&self) -> bool {
        self.planned.iter().any(|planned| matches!(planned.role, Role::Scheduler(_)))
    }

    /// Reports whether it receives thread switches from the switch stream.
    pub(crate) fn has_thread_switches(&self) -> bool {
        self.thread_switches.as_ref().is_some_and(|thread_switches| thread_switches.is_open())
    }

    /// Reports whether the switch stream that provided thread switches has stopped.
    fn lost_thread_switches(&self) -> bool {
        self.thread_switches.is_some() && !self.has_thread_switches()
    }

    /// Follows these thread switches from now on, or continues with the current ones if their source is still open. No event is open.
    fn set_thread_switches(&mut self, thread_switches: Option<ThreadSwitchReceiver>) {
        match thread_switches {
            Some(thread_switches) => self.thread_switches = Some(Arc::new(thread_switches)),
            None if self.lost_thread_switches() => self.thread_switches = None,
            None => {}
        }
        self.switches.of_stream = self.thread_switches.is_some();
    }

    /// Enables `PERF_RECORD_SWITCH` if the kernel writes no records of some switches, and no switch stream reports thread switches.
    fn follow_switches(&mut self, context: &mut Context<'_, K>) {
        if self.switches.of_cpus || self.switches.of_stream || !self.ingest().router.misses_switches() {
            return;
        }
        tracing::info!(
            "enabled PERF_RECORD_SWITCH on all CPUs: the kernel writes no records of some context switches"
        );
        self.switches.of_cpus = true;
        self.stop(context);
        self.retrace(ByClass::default().map(|()| true));
    }

    /// Reports whether there are no entries.
    pub(crate) fn is_idle(&self) -> bool {
        self.series_tables.is_empty()
    }

    /// Adds the existing processes, so that their names are known.
    pub(crate) fn describe(&self, index: &TargetIndex) {
        let mut ingest = self.ingest();
        for process in index.processes() {
            ingest.router.describe(process.key.pid, &process.comm, process.kernel_thread);
        }
    }

    /// Opens events on CPUs that came online, and closes those of CPUs that went offline. Follows `thread_switches` from now on, if there
    /// are any.
    pub(crate) fn follow(
        &mut self,
        online: &CpuSet,
        thread_switches: Option<ThreadSwitchReceiver>,
        context: &mut Context<'_, K>,
    ) {
        self.open_and_close(online, thread_switches, context);
        context.kernel.close(std::mem::take(&mut self.stopped));
    }

    fn open_and_close(
        &mut self,
        online: &CpuSet,
        thread_switches: Option<ThreadSwitchReceiver>,
        context: &mut Context<'_, K>,
    ) {
        if thread_switches.is_some() || self.lost_thread_switches() {
            self.stop(context);
            self.set_thread_switches(thread_switches);
            self.retrace(ByClass::default().map(|()| true));
        }
        self.follow_switches(context);
        for ring in self.rings.outside(online) {
            self.close_ring(ring, context);
        }
        self.rings.remove_refusals(online, context.board);
        // If the descriptors do not suffice for both, the stopped events are closed first.
        if !context.budget.has_room_for(2 * self.stopped.len()) {
            self.stopped.clear();
        }
        for ring in self.rings.missing(online, RingClass::ALL.len() as u32) {
            if self.has(class_of(ring)) {
                self.open(ring, online, context);
            }
        }
    }

    fn set_ring_budget(&mut self, online: &CpuSet, context: &Context<'_, K>) {
        let classes = RingClass::ALL.iter().filter(|class| self.has(**class)).count();
        let page_size = rustix::param::page_size();
        self.rings.budget = RingBudget::new(context.facts, self.memory, online.len() * classes, page_size);
    }

    fn open(&mut self, ring: RingId, online: &CpuSet, context: &mut Context<'_, K>) {
        let page_size = rustix::param::page_size();
        self.set_ring_budget(online, context);
        let class = class_of(ring);
        let of_threads = matches!(class, RingClass::Scheduler | RingClass::Syscalls);
        let (rate, length) = if of_threads { THREADS } else { (0.0, 1) };
        let pages = self.rings.budget.pages(rate, length, page_size);
        let request = open::request(class, &self.planned, self.properties[class]);
        let (opened, refused) =
            self.rings.open(ring, &[OpenTarget::Cpus(online.clone())], request, pages, context);
        for Refused { event, refusal } in refused {
            self.refuse(ring, event, &refusal, context);
        }
        if let Some((writers, made)) = opened {
            self.start(ring, writers, made);
        }
    }

    /// Reports whether there are events of a ring class.
    fn has(&self, class: RingClass) -> bool {
        self.planned.iter().any(|planned| planned.class == class)
    }

    /// Starts the events of a ring, after their records can be routed and read.
    fn start(&mut self, ring: RingId, writers: RingWriters<K::Event, usize>, made: CreatedRing<Ring<K>>) {
        let mut ingest = unpoisoned(self.ingest.lock());
        for writer in &writers.events {
            if let Some(planned) = self.planned.get(writer.of) {
                ingest.router.routes.insert(writer.id, Arc::clone(planned));
            }
        }
        let memory = self.rings.add(ring, writers, made);
        ingest.add(ring, memory);
        drop(ingest);
        let (ingest, thread_switches, clock) = (&self.ingest, &self.thread_switches, &self.clock);
        self.rings.listen(ring, || {
            let (ingest, thread_switches, clock) =
                (Arc::clone(ingest), thread_switches.clone(), clock.clone());
            let drain = move |ready: &[RingId]| {
                // Read before the rings are drained: older records are already in the rings.
                let now = clock.kernel();
                thread_switches.iter().for_each(|thread_switches| thread_switches.refill(now));
                unpoisoned(ingest.lock()).drain(ready, now);
            };
            Reader::start("trace-reader", None, Urgency::Rings, drain)
        });
        if let Some((thread_switches, waker)) = self.thread_switches.as_ref().zip(self.rings.waker()) {
            thread_switches.wake(waker);
        }
        self.rings.start(ring);
    }

    fn refuse(
        &mut self,
        ring: RingId,
        event: Option<usize>,
        refusal: &Refusal,
        context: &mut Context<'_, K>,
    ) {
        for (place, planned) in self.planned.iter().enumerate() {
            if planned.class != class_of(ring) || event.is_some_and(|event| event != place) {
                continue;
            }
            let mut refused_entries: Vec<&Arc<str>> = Vec::new();
            for &(series_table, _) in &planned.uses {
                let Some(trace) =
                    self.series_tables.get(series_table).map(|series_table| &series_table.trace)
                else {
                    continue;
                };
                // All entries of threads are one configuration entry with several series tables.
                if trace.feed != Feed::Records && refused_entries.contains(&&trace.entry) {
                    continue;
                }
                refused_entries.push(&trace.entry);
                let scope = trace.outputs.first().map_or(Scope::HOST, |output| output.targets.scope());
                let refusal = Refusal { event: Arc::clone(&planned.event.name), ..refusal.clone() };
                self.rings.refuse(ring, context.board.add(&trace.entry, scope, refusal));
            }
        }
    }

    fn close_ring(&mut self, ring: RingId, context: &mut Context<'_, K>) {
        let Some(writers) = self.rings.remove(ring) else { return };
        writers.stop();
        let now = self.clock.kernel();
        self.thread_switches.iter().for_each(|thread_switches| thread_switches.refill(now));
        let hits = if self.counts_hits(class_of(ring)) { writers.hits(|_| true) } else { 0 };
        let mut ingest = unpoisoned(self.ingest.lock());
        ingest.close(ring, hits);
        for writer in &writers.events {
            ingest.router.routes.remove(&writer.id);
        }
        drop(ingest);
        context.budget.give_back(writers.descriptors());
        self.stopped.extend(writers.into_events());
    }

    /// Stops all events and closes their rings.
    fn stop(&mut self, context: &mut Context<'_, K>) {
        self.rings.ids().into_iter().for_each(|ring| self.close_ring(ring, context));
        self.rings.remove_refusals(&CpuSet::default(), context.board);
        self.rings.stop_reader();
    }

    /// Makes the next [`apply`](Self::apply) retry events that could not be opened.
    pub(crate) fn retry_refused(&mut self) {
        self.again = self.rings.has_refusals();
    }

    /// Adds the hits since the last call to the series.
    pub(crate) fn collect(&mut self, index: &mut TargetIndex, roots: &Roots, nodes: &Nodes) {
        if self.series_tables.is_empty() {
            return;
        }
        let (monotonic, kernel) = (self.clock.monotonic(), self.clock.kernel());
        self.thread_switches.iter().for_each(|thread_switches| thread_switches.refill(kernel));
        self.rounds.push_back(monotonic);
        while self.rounds.front().is_some_and(|&round| monotonic.since(round) >= KEPT) {
            self.rounds.pop_front();
        }
        let RouterTotals { entries, round, longest_waits, runs } = {
            let mut ingest = self.ingest();
            ingest.drain_all(kernel);
            for (ring, writers) in self.rings.writers().filter(|(ring, _)| self.counts_hits(class_of(*ring)))
            {
                ingest.settle(ring, writers.hits(|_| true));
            }
            let kept = self.rounds.len().max(KEPT_ROUNDS) as u64;
            let run_bytes = self.recent_runs.limit();
            ingest.router.take(kernel, kept, run_bytes, |pid| index.has_process(pid))
        };
        index.add_created(&round.created);
        let moment = (kernel, self.clock.now());
        self.recent_runs.keep(runs, moment, |id| index.path_of(CgroupId(id)));
        let names = Names { roots, nodes, index };
        self.longest_waits.follow(longest_waits, kernel);
        for (series_table, taken) in self.series_tables.iter_mut().zip(entries) {
            series_table.enter(taken, &round, &names, monotonic);
        }
        self.rings.grow(&mut *unpoisoned(self.ingest.lock()));
    }

    /// Reports whether the counts of a ring class's events equal the number of records to be written. Some events count amounts. On some
    /// kernels, scheduler events count hits of an idle CPU without writing records. For these ring classes only the kernel can report the
    /// number of lost records.
    fn counts_hits(&self, class: RingClass) -> bool {
        let of_scheduler =
            |name: &str| name.starts_with("sched:") && !name.starts_with("sched:sched_process");
        let mut mine = self.planned.iter().filter(|planned| planned.class == class);
        !self.properties[class].fields.period && !mine.any(|planned| of_scheduler(&planned.event.name))
    }

    /// Ends a collection, and returns the families of all entries.
    pub(crate) fn publish(&mut self) -> Vec<Family> {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        self.series_tables.iter_mut().for_each(|series_table| series_table.end_collection(now, monotonic));
        let mut families: Vec<Family> = self.series_tables.iter().flat_map(SeriesTable::publish).collect();
        if !self.series_tables.is_empty() {
            families.extend(self.metrics.publish(&self.series_tables, &self.state()));
        }
        families
    }

    /// Returns the state of each entry.
    pub(crate) fn states(&self) -> Vec<TraceState> {
        let state = |(number, series_table): (usize, &SeriesTable)| {
            let open = |place: usize| {
                let uses = |&at: &usize| {
                    self.planned.get(at).is_some_and(|planned| planned.uses.contains(&(number, place)))
                };
                let open = self.rings.writers().flat_map(|(_, writers)| &writers.events);
                open.filter(|writer| uses(&writer.of)).count()
            };
            TraceState {
                plan: Arc::clone(&series_table.trace),
                open: (0..series_table.trace.sources.len()).map(open).collect(),
                hits: series_table.hits(),
                series: series_table.series().collect(),
                unpaired: series_table.unpaired.clone(),
                waiting: series_table.waiting,
            }
        };
        self.series_tables.iter().enumerate().map(state).collect()
    }

    /// Returns the number of instances of each event that are open, by scope.
    pub(crate) fn places(&self) -> Vec<(Arc<str>, Scope, usize)> {
        let of = |state: TraceState| {
            let scope = state.plan.outputs.first().map_or(Scope::HOST, |output| output.targets.scope());
            let sources = state.plan.sources.iter().zip(state.open);
            sources.map(|(source, open)| (Arc::clone(&source.event.name), scope, open)).collect::<Vec<_>>()
        };
        self.states().into_iter().flat_map(of).collect()
    }

    /// Returns the threads with unusual behavior.
    pub(crate) fn longest_waits(&self) -> &LongestWaits {
        &self.longest_waits
    }

    /// Returns the state of the rings.
    pub(crate) fn state(&self) -> TracerState {
        let ingest = self.ingest();
        TracerState {
            descriptors: self.rings.descriptors(),
            rings: self.states_of_rings(&ingest),
            waiting_bytes: ingest.waiting_bytes(),
            untracked: ingest.router.tasks.untracked(),
        }
    }

    fn states_of_rings(&self, ingest: &Ingest<Ring<K>>) -> Vec<RingsState> {
        let of = |records| {
            let is_needed = self
                .series_tables
                .iter()
                .any(|series_table| records_of(series_table.trace.class()) == records);
            let classes = RingClass::ALL.into_iter().filter(move |&class| records_of(class) == records);
            let bytes = classes.clone().map(|class| ingest.bytes(class)).sum();
            let losses = classes.map(|class| ingest.losses(class)).fold(Losses::default(), Losses::plus);
            is_needed.then_some(RingsState { records, bytes, losses })
        };
        [Records::Tracepoints, Records::Scheduler, Records::Syscalls].into_iter().filter_map(of).collect()
    }

    fn ingest(&self) -> MutexGuard<'_, Ingest<Ring<K>>> {
        unpoisoned(self.ingest.lock())
    }
}
