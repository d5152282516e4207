//! Events that the traces need, each once on a CPU, and how they are opened.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::event::Event as Named;
use crate::plan::{Feed, RingClass, Role, Trace, TraceSource as Source};
use crate::ring::{DUMMY, Records, Request, RingId};
use crate::sched::{Layout, NOT_TO_SLEEP};
use crate::sys::{Attr, Fields, Rate, Sampling, Sideband, Start};

/// Returns the lane of a ring.
pub(super) fn lane_of(ring: RingId) -> RingClass {
    RingClass::ALL.get(ring.number as usize).copied().unwrap_or(RingClass::Direct)
}

/// Returns the kind of record of a lane, as used in metrics and messages.
pub(super) fn records_of(lane: RingClass) -> Records {
    match lane {
        RingClass::Direct | RingClass::Ordered => Records::Tracepoints,
        RingClass::Scheduler => Records::Scheduler,
        RingClass::Syscalls => Records::Syscalls,
    }
}

/// A value for each lane.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ByLane<T>([T; RingClass::ALL.len()]);

impl<T> ByLane<T> {
    pub(super) fn map<U>(self, each: impl FnMut(T) -> U) -> ByLane<U> {
        ByLane(self.0.map(each))
    }
}

impl<T> Index<RingClass> for ByLane<T> {
    type Output = T;

    fn index(&self, lane: RingClass) -> &T {
        &self.0[lane as usize]
    }
}

impl<T> IndexMut<RingClass> for ByLane<T> {
    fn index_mut(&mut self, lane: RingClass) -> &mut T {
        &mut self.0[lane as usize]
    }
}

/// Returns the lane whose records report the creation and exit of processes and threads, for all lanes that are read in order; `None` if
/// there are no such lanes.
pub(super) fn leading(traces: &[Arc<Trace>]) -> Option<RingClass> {
    let has = |lane: &RingClass| traces.iter().any(|trace| trace.lane() == *lane);
    [RingClass::Scheduler, RingClass::Ordered, RingClass::Syscalls].into_iter().find(has)
}

/// The index of an entry, and the index of an event among its sources.
pub(super) type Use = (usize, usize);

/// An event to open once on each CPU, for all entries that use its records.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) lane: RingClass,
    pub(super) event: Named,
    pub(super) number: Option<u16>,
    /// Fields of its records: those of all records of the lane, and its own.
    pub(super) fields: Fields,
    /// Use of its records to follow threads.
    pub(super) role: Role,
    pub(super) uses: Vec<Use>,
}

/// Common properties of the records of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) fields: Fields,
    pub(super) sideband: Sideband,
}

/// Sources of the outgoing and incoming threads of a CPU, besides `sched:sched_switch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Switches {
    /// The switch stream reports outgoing threads, and `sched:sched_switch` only threads that leave for another reason than to sleep.
    pub(super) of_stream: bool,
    /// `PERF_RECORD_SWITCH` reports incoming threads, because this kernel writes no samples while the idle task runs.
    pub(super) of_cpus: bool,
}

/// Returns the events that the traces need, each once, and the fields of the records of each lane.
pub(super) fn wanted(traces: &[Arc<Trace>], switches: Switches) -> (Vec<Arc<Wanted>>, ByLane<Carried>) {
    let mut found: Vec<Wanted> = Vec::new();
    let fields = Fields { identifier: true, raw: true, ..Fields::default() };
    let mut carried = ByLane::default().map(|()| Carried { fields, sideband: Sideband::default() });
    let leading = leading(traces);
    for (number, trace) in traces.iter().enumerate() {
        let lane = trace.lane();
        let leads = leading == Some(lane);
        let Carried { fields, sideband } = &mut carried[lane];
        fields.tid |= trace.needs_task();
        fields.time |= trace.is_ordered();
        // Calls in progress begin and end with threads, even if the leading lane loses records.
        sideband.task |= leads || lane == RingClass::Syscalls || trace.needs_cgroup();
        sideband.comm |= leads;
        sideband.cgroup |= trace.needs_cgroup();
        for (place, source) in trace.sources.iter().enumerate() {
            fields.period |= source.event.counts_amounts();
            sideband.switches |= switches.of_cpus && matches!(source.role, Role::Scheduler(_));
            let event = event_of(source, switches);
            let cgroup = match trace.feed {
                Feed::Records => trace.needs_cgroup(),
                Feed::Tasks(..) => source.role.tells_cgroup(),
            };
            let same = |found: &&mut Wanted| found.lane == lane && found.event.counts_as(&event);
            match found.iter_mut().find(same) {
                // The second event of a pair comes before the first: if both are the same event, a hit ends the operation that the previous
                // hit began.
                Some(known) => {
                    known.uses.insert(0, (number, place));
                    known.fields.cgroup |= cgroup;
                    if source.role != Role::Fields {
                        (known.number, known.role) = (source.number, source.role.clone());
                    }
                }
                None => found.push(Wanted {
                    lane,
                    event,
                    number: source.number,
                    fields: Fields { cgroup, ..Fields::default() },
                    role: source.role.clone(),
                    uses: vec![(number, place)],
                }),
            }
        }
    }
    for wanted in &mut found {
        let (cgroup, width) = (wanted.fields.cgroup, matches!(wanted.role, Role::Enter { .. }));
        wanted.fields = Fields { cgroup, width, ..carried[wanted.lane].fields };
    }
    (found.into_iter().map(Arc::new).collect(), carried)
}

/// Returns the event to open for a source.
fn event_of(source: &Source, switches: Switches) -> Named {
    let mut event = source.event.clone();
    if switches.of_stream && matches!(source.role, Role::Scheduler(Layout::Switch { .. })) {
        let filter = match &event.filter {
            Some(filter) => format!("({filter}) && ({NOT_TO_SLEEP})"),
            None => NOT_TO_SLEEP.to_owned(),
        };
        event.filter = Some(filter.into());
    }
    event
}

/// Returns the events to open for a lane on each CPU, by their index in `wanted`.
pub(super) fn request(lane: RingClass, wanted: &[Arc<Wanted>], carried: Carried) -> Request<'_, usize> {
    let ordered = lane.is_ordered();
    let sampling = |fields, sideband| Some(Sampling { rate: Rate::Period(1), fields, sideband, ordered });
    let holder = Attr::software(DUMMY, sampling(carried.fields, carried.sideband), Start::Later);
    let mine = wanted.iter().enumerate().filter(|(_, wanted)| wanted.lane == lane);
    let events = mine.map(|(place, wanted)| {
        let sampling = sampling(wanted.fields, Sideband::default());
        (Attr { sampling, ..Attr::counting(&wanted.event) }, &wanted.event, place)
    });
    Request { holders: vec![holder], events: events.collect() }
}
