//! Tracepoints and probes whose fields are looked into: labels, sums, histograms, and the time between two of them.
//!
//! Each event is opened once per CPU, whoever looks into its records, and writes a record for every hit that its
//! filter lets pass. What only counts hits needs no record, and is a [counter](crate::counter). Records of the scheduler, of system
//! calls, and of tracepoints and probes have separate rings: a ring that is full loses records of one kind only.
//!
//! ```text
//! rings ─► Desk ─► Aggregate: labels → Cell {hits, sum, histogram} ─ each collection ─► Book: series
//!   └► Merger ┘       └► Pending: the first event of a pair waits for the second
//! ```
//!
//! Most records are read as they come. Those of pairs, and those whose processes are told by name, are put into the
//! order of their times first: what begins on one CPU may end on another.

mod aggregate;
mod book;
mod desk;
mod intake;
mod naming;
mod open;
mod owners;
mod pending;
mod publish;
mod sheets;
mod tasks;
mod values;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use crate::config::traced::TracedKind;
use crate::health::{Refusal, Scope};
use crate::host::{CpuSet, Nodes, Roots};
use crate::metrics::{Family, NameError};
use crate::plan::{Feed, Lane, Role, Trace};
use crate::register::TargetIndex;
use crate::ring::{
    Consumer, Context, Losses, Made, Reader, Records, Refused, RingBudget, RingId, RingSet, Tapped, Turns,
    Writers,
};
use crate::series::SeriesCount;
use crate::sys::scheduling::Urgency;
use crate::sys::{Event, Kernel};
use crate::target::Whom;
use book::Book;
use desk::DeskTaken;
use intake::Intake;
use naming::Names;
use open::{ByLane, Carried, Switches, Wanted, lane_of, records_of};
pub use publish::METRICS;
use publish::Metrics;
pub use tasks::{Remarkable, Untold};

type Ring<K> = <<K as Kernel>::Event as Event>::Ring;

/// For how many collections a value that nobody meets keeps its place among the values of a label, where there is no
/// room for others.
const KEPT_ROUNDS: u64 = 30;

/// How many records of switches, wake-ups and system calls a busy CPU writes in a second, and how long they are, in bytes: a
/// reader that others keep from the CPU for a while finds all of them.
const THREADS: (f64, usize) = (20_000.0, 120);

/// Everything that is opened for its records.
#[derive(Debug)]
pub(crate) struct Tracer<K: Kernel> {
    clock: Clock,
    books: Vec<Book>,
    wanted: Vec<Arc<Wanted>>,
    /// Of each lane.
    carried: ByLane<Carried>,
    /// How switches are told.
    switches: Switches,
    /// What the switch stream tells of threads, where switches are told so.
    turns: Option<Arc<Turns>>,
    /// The events of each by their places among those wanted.
    rings: RingSet<Tapped<K::Event, usize>>,
    intake: Arc<Mutex<Intake<Ring<K>>>>,
    /// Events that write no more. They are closed after others were opened: to close the last one of a tracepoint takes long.
    stopped: Vec<K::Event>,
    memory: u64,
    /// What was refused is to be tried again.
    again: bool,
    /// How many names the processes of one cgroup may have, in each book.
    names: usize,
    remarkable: Remarkable,
    metrics: Metrics,
}

/// What there is to say about one entry.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceState {
    /// What was planned.
    pub plan: Arc<Trace>,
    /// For each source, on how many CPUs it is open.
    pub open: Vec<usize>,
    /// Hits in its series.
    pub hits: u64,
    /// The series of each output.
    pub series: Vec<SeriesCount>,
    /// Why events of a pair found no partner.
    pub unpaired: Vec<(&'static str, u64)>,
    /// First events of a pair that wait for their second.
    pub waiting: usize,
}

/// What there is to say about the rings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TracerState {
    /// Descriptors on all CPUs.
    pub descriptors: usize,
    /// Of each kind of records that entries need.
    pub rings: Vec<RingsState>,
    /// Bytes of the records that were read from rings and wait for older ones.
    pub waiting_bytes: u64,
    /// What could not be told of threads.
    pub untold: Untold,
}

impl TracerState {
    /// Bytes of all rings.
    pub fn ring_bytes(&self) -> u64 {
        self.rings.iter().map(|rings| rings.bytes).sum()
    }
}

/// What there is to say about the rings of one kind of records, of all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingsState {
    /// Kind of records.
    pub records: Records,
    /// Bytes of the rings.
    pub bytes: u64,
    /// What was read and lost.
    pub losses: Losses,
}

impl<K: Kernel> Tracer<K> {
    /// About how many bytes its series take.
    pub(crate) fn bytes(&self) -> usize {
        self.books.iter().map(Book::bytes).sum()
    }

    /// The number of series of each metric.
    pub(crate) fn tables(&self) -> impl Iterator<Item = usize> {
        self.books.iter().flat_map(Book::tables)
    }

    /// Limits the number of series of each metric.
    pub(crate) fn limit_series(&mut self, limit: usize) {
        self.books.iter_mut().for_each(|book| book.set_limit(limit));
    }

    /// Nothing is open yet.
    ///
    /// # Errors
    /// When one of its own metrics cannot be called what it is called: a bug.
    pub(crate) fn new(clock: Clock) -> Result<Self, NameError> {
        Ok(Self {
            intake: Arc::new(Mutex::new(Intake::new(clock.clone()))),
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

    /// Looks into `traces` from now on. If they are not those that it looks into already, all are opened anew; entries
    /// that stay go on with what they have counted. `turns` are for those that follow threads. Call [`collect`](Self::collect) just
    /// before, so that those that go are published to the end.
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
                let mut book = kept.unwrap_or_else(|| Book::new(Arc::clone(trace), limit, now));
                book.set_names(names);
                self.books.push(book);
            }
            // What tells of threads has no probes.
            let of_threads =
                |book: &Book| matches!(book.trace.kind, TracedKind::Scheduler | TracedKind::Syscalls);
            removes_probes = !old.iter().all(of_threads);
            self.memory = memory;
            self.retrace();
        }
        self.open_and_close(online, None, context);
        if removes_probes {
            // The caller can remove those that nobody has open.
            self.stopped.clear();
        }
        context.kernel.close(std::mem::take(&mut self.stopped));
    }

    /// Limits how many names the processes of one cgroup may have in the labels of one entry.
    pub(crate) fn limit_names(&mut self, per_cgroup: usize) {
        self.names = per_cgroup;
        self.books.iter_mut().for_each(|book| book.set_names(per_cgroup));
    }

    /// Holds so many bytes of rings on all CPUs from now on. Rings that are open stay as they are.
    pub(crate) fn set_ring_memory(&mut self, memory: u64) {
        self.memory = memory;
    }

    /// Leads what is opened from now on to the entries; nothing is open.
    fn retrace(&mut self) {
        let traces: Vec<Arc<Trace>> = self.books.iter().map(|book| Arc::clone(&book.trace)).collect();
        (self.wanted, self.carried) = open::wanted(&traces, self.switches);
        let fields = self.carried.map(|carried| carried.fields);
        self.intake().retrace(fields, &traces, self.turns.clone());
    }

    /// Whether it follows threads, so that it could do with what the switch stream tells of them.
    pub(crate) fn follows_threads(&self) -> bool {
        self.wanted.iter().any(|wanted| matches!(wanted.role, Role::Scheduler(_)))
    }

    /// Whether the switch stream tells it of threads.
    pub(crate) fn has_turns(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.is_open())
    }

    /// Whether the switch stream tells it nothing more.
    fn lost_turns(&self) -> bool {
        self.turns.is_some() && !self.has_turns()
    }

    /// Follows these turns from now on; else those that it follows already, if there will be more. Nothing is open.
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

    /// Whether anything is looked into.
    pub(crate) fn is_idle(&self) -> bool {
        self.books.is_empty()
    }

    /// Enters the processes that are there, so that none of them is a stranger.
    pub(crate) fn describe(&self, index: &TargetIndex) {
        let mut intake = self.intake();
        for process in index.processes() {
            intake.desk.describe(process.key.pid, &process.comm, process.kernel_thread);
        }
    }

    /// Opens on the CPUs that came, and closes on those that went. `turns` are followed from now on, if there are any.
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
        // Where there is no room for both, they are closed before.
        if !context.budget.has_room_for(2 * self.stopped.len()) {
            self.stopped.clear();
        }
        for ring in self.rings.missing(online, Lane::ALL.len() as u32) {
            if self.has(lane_of(ring)) {
                self.open(ring, online, context);
            }
        }
    }

    fn open(&mut self, ring: RingId, online: &CpuSet, context: &mut Context<'_, K>) {
        let page_size = rustix::param::page_size();
        let lanes = Lane::ALL.iter().filter(|lane| self.has(**lane)).count();
        self.rings.budget = RingBudget::new(context.facts, self.memory, online.len() * lanes, page_size);
        let lane = lane_of(ring);
        let of_threads = matches!(lane, Lane::Scheduler | Lane::Syscalls);
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

    /// Whether there are events of a lane.
    fn has(&self, lane: Lane) -> bool {
        self.wanted.iter().any(|wanted| wanted.lane == lane)
    }

    /// Lets the events of a ring write, once everybody is ready to read.
    fn start(&mut self, ring: RingId, tapped: Tapped<K::Event, usize>, made: Made<Ring<K>>) {
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
                // Taken before: what is older is in the rings.
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
                // What is told of threads is one entry with several books.
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

    /// Closes everything. What it has counted stays to be collected.
    pub(crate) fn close(&mut self, context: &mut Context<'_, K>) {
        self.stop(context);
        self.stopped.clear();
    }

    /// Lets nothing write any more.
    fn stop(&mut self, context: &mut Context<'_, K>) {
        self.rings.ids().into_iter().for_each(|ring| self.close_ring(ring, context));
        self.rings.forgive(&CpuSet::default(), context.board);
        self.rings.stop_reader();
    }

    /// Lets the next [`apply`](Self::apply) try again what was refused.
    pub(crate) fn forgive(&mut self) {
        self.again = self.rings.has_refusals();
    }

    /// Takes in what was hit since the last time.
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

    /// Whether what the events of a lane count says how many records they should have written. Some count amounts, and some
    /// kernels count what the scheduler does while a CPU is idle, and write no record of it: there only the kernel can tell
    /// how many were lost.
    fn counts_hits(&self, lane: Lane) -> bool {
        let of_scheduler =
            |name: &str| name.starts_with("sched:") && !name.starts_with("sched:sched_process");
        let mut mine = self.wanted.iter().filter(|wanted| wanted.lane == lane);
        !self.carried[lane].fields.period && !mine.any(|wanted| of_scheduler(&wanted.event.name))
    }

    /// Ends a collection, and gives the families of all entries.
    pub(crate) fn publish(&mut self) -> Vec<Family> {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        self.books.iter_mut().for_each(|book| book.end_collection(now, monotonic));
        let mut families: Vec<Family> = self.books.iter().flat_map(Book::publish).collect();
        if !self.books.is_empty() {
            families.extend(self.metrics.publish(&self.books, &self.state()));
        }
        families
    }

    /// What there is to say about each entry.
    pub(crate) fn states(&self) -> Vec<TraceState> {
        let state = |(number, book): (usize, &Book)| {
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

    /// In how many places each event is counted, by scope.
    pub(crate) fn places(&self) -> Vec<(Arc<str>, Scope, usize)> {
        let of = |state: TraceState| {
            let scope = state.plan.outputs.first().map_or(Scope::HOST, |output| output.targets.scope());
            let sources = state.plan.sources.iter().zip(state.open);
            sources.map(|(source, open)| (Arc::clone(&source.event.name), scope, open)).collect::<Vec<_>>()
        };
        self.states().into_iter().flat_map(of).collect()
    }

    /// What threads did that is told one by one.
    pub(crate) fn remarkable(&self) -> &Remarkable {
        &self.remarkable
    }

    /// What there is to say about the rings.
    pub(crate) fn state(&self) -> TracerState {
        let intake = self.intake();
        TracerState {
            descriptors: self.rings.descriptors(),
            rings: self.states_of_rings(&intake),
            waiting_bytes: intake.waiting_bytes(),
            untold: intake.desk.untold(),
        }
    }

    fn states_of_rings(&self, intake: &Intake<Ring<K>>) -> Vec<RingsState> {
        let of = |records| {
            let is_needed = self.books.iter().any(|book| records_of(book.trace.lane()) == records);
            let lanes = Lane::ALL.into_iter().filter(move |&lane| records_of(lane) == records);
            let bytes = lanes.clone().map(|lane| intake.bytes(lane)).sum();
            let losses = lanes.map(|lane| intake.losses(lane)).fold(Losses::default(), Losses::plus);
            is_needed.then_some(RingsState { records, bytes, losses })
        };
        [Records::Tracepoints, Records::Scheduler, Records::Syscalls].into_iter().filter_map(of).collect()
    }

    fn intake(&self) -> MutexGuard<'_, Intake<Ring<K>>> {
        lock(&self.intake)
    }
}

/// A panic of somebody else with the lock leaves sums that are still sums.
fn lock<R>(intake: &Mutex<Intake<R>>) -> MutexGuard<'_, Intake<R>> {
    intake.lock().unwrap_or_else(PoisonError::into_inner)
}
