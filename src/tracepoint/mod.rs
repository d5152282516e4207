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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use crate::config::traced::TracedKind;
use crate::health::{Refusal, Scope};
use crate::host::{CpuSet, Nodes, Roots};
use crate::metrics::{Family, NameError};
use crate::plan::{Feed, RingClass, Role, Trace};
use crate::register::TargetIndex;
use crate::ring::{
    Consumer, Context, Losses, Made, Reader, Records, Refused, RingBudget, RingId, RingSet, RingWriters,
    Turns, Writers,
};
use crate::series::SeriesCount;
use crate::sys::scheduling::Urgency;
use crate::sys::{Event, Kernel};
use crate::targets::Whom;
use ingest::Ingest;
use naming::Names;
use open::{ByLane, Carried, Switches, Wanted, lane_of, records_of};
pub use publish::METRICS;
use publish::Metrics;
use router::DeskTaken;
use series_table::SeriesTable;
pub use tasks::{Remarkable, Untracked};

type Ring<K> = <<K as Kernel>::Event as Event>::Ring;

/// Number of collections for which an unused value of a label is kept, when there is no space for new values.
const KEPT_ROUNDS: u64 = 30;

/// Assumed number of records of switches, wake-ups and system calls of a busy CPU per second, and their length in bytes. Rings of this size
/// lose no records while the reader waits for a CPU for some time.
const THREADS: (f64, usize) = (20_000.0, 120);

/// All events that are opened for their records.
#[derive(Debug)]
pub(crate) struct Tracer<K: Kernel> {
    clock: Clock,
    books: Vec<SeriesTable>,
    wanted: Vec<Arc<Wanted>>,
    /// Common fields of the records of each lane.
    carried: ByLane<Carried>,
    /// Sources of thread switches.
    switches: Switches,
    /// Thread switches of the switch stream, if it is the source.
    turns: Option<Arc<Turns>>,
    /// The events of each ring, by their index in `wanted`.
    rings: RingSet<RingWriters<K::Event, usize>>,
    intake: Arc<Mutex<Ingest<Ring<K>>>>,
    /// Events that are disabled. They are closed after others were opened, because closing the last event of a tracepoint takes long.
    stopped: Vec<K::Event>,
    memory: u64,
    /// Whether to retry events that could not be opened.
    again: bool,
    /// Maximum number of process names per cgroup, in each book.
    names: usize,
    remarkable: Remarkable,
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
        self.books.iter().map(SeriesTable::bytes).sum()
    }

    /// Returns the number of series of each metric.
    pub(crate) fn tables(&self) -> impl Iterator<Item = usize> {
        self.books.iter().flat_map(SeriesTable::tables)
    }

    /// Limits the number of series of each metric.
    pub(crate) fn limit_series(&mut self, limit: usize) {
        self.books.iter_mut().for_each(|book| book.set_limit(limit));
    }

    /// Returns a tracer without open events.
    ///
    /// # Errors
    /// When the name of one of its own metrics is invalid: a bug.
    pub(crate) fn new(clock: Clock) -> Result<Self, NameError> {
        Ok(Self {
            intake: Arc::new(Mutex::new(Ingest::new(clock.clone()))),
            clock,
            stopped: Vec::new(),
            books: Vec::new(),
            wanted: Vec::new(),
            carried: open::wanted(&[], Switches::default()).1,
            switches: Switches::default(),
            turns: None,
            rings: RingSet::new(Records::Tracepoints.plural()),
            memory: 0,
            again: false,
            names: usize::MAX,
            remarkable: Remarkable::default(),
            metrics: Metrics::new()?,
        })
    }

    /// Decodes the records of `traces` from now on. If these are not the current traces, all events are opened again; entries that remain
    /// keep their counts. `turns` are the thread switches for entries that follow threads. Call [`collect`](Self::collect) just before, so
    /// that the last counts of entries that end are published.
    pub(crate) fn apply(
        &mut self,
        traces: &[Arc<Trace>],
        limit: usize,
        memory: u64,
        (online, turns): (&CpuSet, Option<Turns>),
        context: &mut Context<'_, K>,
    ) {
        self.limit_series(limit);
        let names = self.names;
        let same = self.books.iter().map(|book| &book.trace).eq(traces);
        let told_otherwise = turns.is_some() || self.lost_turns();
        let mut removes_probes = false;
        if !same || memory != self.memory || told_otherwise || std::mem::take(&mut self.again) {
            self.stop(context);
            self.set_turns(turns);
            let now = self.clock.now();
            let mut old = std::mem::take(&mut self.books);
            for trace in traces {
                let kept = old.iter().position(|book| book.trace == *trace).map(|at| old.swap_remove(at));
                let mut book = kept.unwrap_or_else(|| SeriesTable::new(Arc::clone(trace), limit, now));
                book.set_names(names);
                self.books.push(book);
            }
            // Entries of threads have no probes.
            let of_threads =
                |book: &SeriesTable| matches!(book.trace.kind, TracedKind::Scheduler | TracedKind::Syscalls);
            removes_probes = !old.iter().all(of_threads);
            self.memory = memory;
            self.retrace();
        }
        self.open_and_close(online, None, context);
        if removes_probes {
            // The caller can then remove probes that are no longer open.
            self.stopped.clear();
        }
        context.kernel.close(std::mem::take(&mut self.stopped));
    }

    /// Limits the number of process names per cgroup in the labels of one entry.
    pub(crate) fn limit_names(&mut self, per_cgroup: usize) {
        self.names = per_cgroup;
        self.books.iter_mut().for_each(|book| book.set_names(per_cgroup));
    }

    /// Limits the rings of all CPUs to `memory` bytes from now on. Open rings stay as they are.
    pub(crate) fn set_ring_memory(&mut self, memory: u64) {
        self.memory = memory;
    }

    /// Routes the records of events that are opened from now on to the entries. No event is open.
    fn retrace(&mut self) {
        let traces: Vec<Arc<Trace>> = self.books.iter().map(|book| Arc::clone(&book.trace)).collect();
        (self.wanted, self.carried) = open::wanted(&traces, self.switches);
        let fields = self.carried.map(|carried| carried.fields);
        self.intake().retrace(fields, &traces, self.turns.clone());
    }

    /// Reports whether it follows threads, and can therefore use the thread switches of the switch stream.
    pub(crate) fn follows_threads(&self) -> bool {
        self.wanted.iter().any(|wanted| matches!(wanted.role, Role::Scheduler(_)))
    }

    /// Reports whether it receives thread switches from the switch stream.
    pub(crate) fn has_turns(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.is_open())
    }

    /// Reports whether the switch stream that provided thread switches has stopped.
    fn lost_turns(&self) -> bool {
        self.turns.is_some() && !self.has_turns()
    }

    /// Follows these thread switches from now on, or continues with the current ones if their source is still open. No event is open.
    fn set_turns(&mut self, turns: Option<Turns>) {
        match turns {
            Some(turns) => self.turns = Some(Arc::new(turns)),
            None if self.lost_turns() => self.turns = None,
            None => {}
        }
        self.switches.of_stream = self.turns.is_some();
    }

    /// Enables `PERF_RECORD_SWITCH` if the kernel writes no records of some switches, and no switch stream reports turns.
    fn follow_switches(&mut self, context: &mut Context<'_, K>) {
        if self.switches.of_cpus || self.switches.of_stream || !self.intake().desk.misses_switches() {
            return;
        }
        tracing::info!(
            "enabled PERF_RECORD_SWITCH on all CPUs: the kernel writes no records of some context switches"
        );
        self.switches.of_cpus = true;
        self.stop(context);
        self.retrace();
    }

    /// Reports whether there are no entries.
    pub(crate) fn is_idle(&self) -> bool {
        self.books.is_empty()
    }

    /// Adds the existing processes, so that their names are known.
    pub(crate) fn describe(&self, index: &TargetIndex) {
        let mut intake = self.intake();
        for process in index.processes() {
            intake.desk.describe(process.key.pid, &process.comm, process.kernel_thread);
        }
    }

    /// Opens events on CPUs that came online, and closes those of CPUs that went offline. Follows `turns` from now on, if there are any.
    pub(crate) fn follow(&mut self, online: &CpuSet, turns: Option<Turns>, context: &mut Context<'_, K>) {
        self.open_and_close(online, turns, context);
        context.kernel.close(std::mem::take(&mut self.stopped));
    }

    fn open_and_close(&mut self, online: &CpuSet, turns: Option<Turns>, context: &mut Context<'_, K>) {
        if turns.is_some() || self.lost_turns() {
            self.stop(context);
            self.set_turns(turns);
            self.retrace();
        }
        self.follow_switches(context);
        for ring in self.rings.outside(online) {
            self.close_ring(ring, context);
        }
        self.rings.forgive(online, context.board);
        // If the descriptors do not suffice for both, the stopped events are closed first.
        if !context.budget.has_room_for(2 * self.stopped.len()) {
            self.stopped.clear();
        }
        for ring in self.rings.missing(online, RingClass::ALL.len() as u32) {
            if self.has(lane_of(ring)) {
                self.open(ring, online, context);
            }
        }
    }

    fn open(&mut self, ring: RingId, online: &CpuSet, context: &mut Context<'_, K>) {
        let page_size = rustix::param::page_size();
        let lanes = RingClass::ALL.iter().filter(|lane| self.has(**lane)).count();
        self.rings.budget = RingBudget::new(context.facts, self.memory, online.len() * lanes, page_size);
        let lane = lane_of(ring);
        let of_threads = matches!(lane, RingClass::Scheduler | RingClass::Syscalls);
        let (rate, length) = if of_threads { THREADS } else { (0.0, 1) };
        let pages = self.rings.budget.pages(rate, length, page_size);
        let request = open::request(lane, &self.wanted, self.carried[lane]);
        let (opened, refused) = self.rings.open(ring, &[Whom::Cpus(online.clone())], request, pages, context);
        for Refused { event, refusal } in refused {
            self.refuse(ring, event, &refusal, context);
        }
        if let Some((tapped, made)) = opened {
            self.start(ring, tapped, made);
        }
    }

    /// Reports whether there are events of a lane.
    fn has(&self, lane: RingClass) -> bool {
        self.wanted.iter().any(|wanted| wanted.lane == lane)
    }

    /// Starts the events of a ring, after their records can be routed and read.
    fn start(&mut self, ring: RingId, tapped: RingWriters<K::Event, usize>, made: Made<Ring<K>>) {
        let mut intake = lock(&self.intake);
        for tap in &tapped.events {
            if let Some(wanted) = self.wanted.get(tap.of) {
                intake.desk.tap(tap.id, wanted);
            }
        }
        let memory = self.rings.add(ring, tapped, made);
        intake.add(ring, memory);
        drop(intake);
        let (intake, turns, clock) = (&self.intake, &self.turns, &self.clock);
        self.rings.listen(ring, || {
            let (intake, turns, clock) = (Arc::clone(intake), turns.clone(), clock.clone());
            let drain = move |ready: &[RingId]| {
                // Read before the rings are drained: older records are already in the rings.
                let now = clock.kernel();
                turns.iter().for_each(|turns| turns.refill(now));
                lock(&intake).drain(ready, now);
            };
            Reader::start("trace-reader", None, Urgency::Rings, drain)
        });
        if let Some((turns, waker)) = self.turns.as_ref().zip(self.rings.waker()) {
            turns.wake(waker);
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
        for (place, wanted) in self.wanted.iter().enumerate() {
            if wanted.lane != lane_of(ring) || event.is_some_and(|event| event != place) {
                continue;
            }
            let mut told: Vec<&Arc<str>> = Vec::new();
            for &(book, _) in &wanted.uses {
                let Some(trace) = self.books.get(book).map(|book| &book.trace) else { continue };
                // All entries of threads are one configuration entry with several books.
                if trace.feed != Feed::Records && told.contains(&&trace.entry) {
                    continue;
                }
                told.push(&trace.entry);
                let scope = trace.outputs.first().map_or(Scope::HOST, |output| output.targets.scope());
                let refusal = Refusal { event: Arc::clone(&wanted.event.name), ..refusal.clone() };
                self.rings.refuse(ring, context.board.add(&trace.entry, scope, refusal));
            }
        }
    }

    fn close_ring(&mut self, ring: RingId, context: &mut Context<'_, K>) {
        let Some(tapped) = self.rings.remove(ring) else { return };
        tapped.stop();
        let now = self.clock.kernel();
        self.turns.iter().for_each(|turns| turns.refill(now));
        let hits = if self.counts_hits(lane_of(ring)) { tapped.hits(|_| true) } else { 0 };
        let mut intake = lock(&self.intake);
        intake.close(ring, hits);
        tapped.events.iter().for_each(|tap| intake.desk.untap(tap.id));
        drop(intake);
        context.budget.give_back(tapped.descriptors());
        self.stopped.extend(tapped.into_events());
    }

    /// Closes everything. The counts up to now can still be collected.
    pub(crate) fn close(&mut self, context: &mut Context<'_, K>) {
        self.stop(context);
        self.stopped.clear();
    }

    /// Stops all events and closes their rings.
    fn stop(&mut self, context: &mut Context<'_, K>) {
        self.rings.ids().into_iter().for_each(|ring| self.close_ring(ring, context));
        self.rings.forgive(&CpuSet::default(), context.board);
        self.rings.stop_reader();
    }

    /// Makes the next [`apply`](Self::apply) retry events that could not be opened.
    pub(crate) fn forgive(&mut self) {
        self.again = self.rings.has_refusals();
    }

    /// Adds the hits since the last call to the series.
    pub(crate) fn collect(&mut self, index: &mut TargetIndex, roots: &Roots, nodes: &Nodes) {
        if self.books.is_empty() {
            return;
        }
        let (monotonic, kernel) = (self.clock.monotonic(), self.clock.kernel());
        self.turns.iter().for_each(|turns| turns.refill(kernel));
        let DeskTaken { entries, round, remarkable } = {
            let mut intake = self.intake();
            intake.drain_all(kernel);
            for (ring, tapped) in self.rings.writers().filter(|(ring, _)| self.counts_hits(lane_of(*ring))) {
                intake.settle(ring, tapped.hits(|_| true));
            }
            intake.desk.take(kernel, KEPT_ROUNDS, |pid| index.has_process(pid))
        };
        index.add_created(&round.created);
        let names = Names { roots, nodes, index };
        self.remarkable.follow(remarkable, kernel);
        for (book, taken) in self.books.iter_mut().zip(entries) {
            book.enter(taken, &round, &names, monotonic);
        }
        self.rings.grow(&mut *lock(&self.intake));
    }

    /// Reports whether the counts of a lane's events equal the number of records to be written. Some events count amounts. On some kernels,
    /// scheduler events count hits of an idle CPU without writing records. For these lanes only the kernel can report the number of lost
    /// records.
    fn counts_hits(&self, lane: RingClass) -> bool {
        let of_scheduler =
            |name: &str| name.starts_with("sched:") && !name.starts_with("sched:sched_process");
        let mut mine = self.wanted.iter().filter(|wanted| wanted.lane == lane);
        !self.carried[lane].fields.period && !mine.any(|wanted| of_scheduler(&wanted.event.name))
    }

    /// Ends a collection, and returns the families of all entries.
    pub(crate) fn publish(&mut self) -> Vec<Family> {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        self.books.iter_mut().for_each(|book| book.end_collection(now, monotonic));
        let mut families: Vec<Family> = self.books.iter().flat_map(SeriesTable::publish).collect();
        if !self.books.is_empty() {
            families.extend(self.metrics.publish(&self.books, &self.state()));
        }
        families
    }

    /// Returns the state of each entry.
    pub(crate) fn states(&self) -> Vec<TraceState> {
        let state = |(number, book): (usize, &SeriesTable)| {
            let open = |place: usize| {
                let uses = |&at: &usize| {
                    self.wanted.get(at).is_some_and(|wanted| wanted.uses.contains(&(number, place)))
                };
                let open = self.rings.writers().flat_map(|(_, tapped)| &tapped.events);
                open.filter(|tap| uses(&tap.of)).count()
            };
            TraceState {
                plan: Arc::clone(&book.trace),
                open: (0..book.trace.sources.len()).map(open).collect(),
                hits: book.hits(),
                series: book.series().collect(),
                unpaired: book.unpaired.clone(),
                waiting: book.waiting,
            }
        };
        self.books.iter().enumerate().map(state).collect()
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
    pub(crate) fn remarkable(&self) -> &Remarkable {
        &self.remarkable
    }

    /// Returns the state of the rings.
    pub(crate) fn state(&self) -> TracerState {
        let intake = self.intake();
        TracerState {
            descriptors: self.rings.descriptors(),
            rings: self.states_of_rings(&intake),
            waiting_bytes: intake.waiting_bytes(),
            untracked: intake.desk.untracked(),
        }
    }

    fn states_of_rings(&self, intake: &Ingest<Ring<K>>) -> Vec<RingsState> {
        let of = |records| {
            let is_needed = self.books.iter().any(|book| records_of(book.trace.lane()) == records);
            let lanes = RingClass::ALL.into_iter().filter(move |&lane| records_of(lane) == records);
            let bytes = lanes.clone().map(|lane| intake.bytes(lane)).sum();
            let losses = lanes.map(|lane| intake.losses(lane)).fold(Losses::default(), Losses::plus);
            is_needed.then_some(RingsState { records, bytes, losses })
        };
        [Records::Tracepoints, Records::Scheduler, Records::Syscalls].into_iter().filter_map(of).collect()
    }

    fn intake(&self) -> MutexGuard<'_, Ingest<Ring<K>>> {
        lock(&self.intake)
    }
}

/// Locks the intake. A lock that was poisoned by a panic still protects valid sums.
fn lock<R>(intake: &Mutex<Ingest<R>>) -> MutexGuard<'_, Ingest<R>> {
    intake.lock().unwrap_or_else(PoisonError::into_inner)
}
