//! Which events the traces need, each once on a CPU, and how they are opened.

use std::sync::Arc;

use crate::event::Event as Named;
use crate::plan::{Feed, Role, Trace, TraceSource as Source};
use crate::ring::{DUMMY, Request, RingId};
use crate::sched::{Layout, NOT_TO_SLEEP};
use crate::sys::{Attr, Fields, Rate, Sampling, Sideband, Start};

/// Which of the two rings of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Records are read as they come.
    Direct,
    /// Records are read in the order of their times, across CPUs.
    Ordered,
}

impl Lane {
    pub(super) const ALL: [Self; 2] = [Self::Direct, Self::Ordered];

    /// The ring of this lane on a CPU.
    pub(super) fn ring(self, cpu: u32) -> RingId {
        RingId { cpu, number: self as u32 }
    }

    /// The lane of a ring.
    pub(super) fn of(ring: RingId) -> Self {
        if ring.number == Self::Ordered as u32 { Self::Ordered } else { Self::Direct }
    }
}

/// An entry, and the place of an event among its sources.
pub(super) type Use = (usize, usize);

/// An event to open once on each CPU, whoever looks into its records.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) lane: Lane,
    pub(super) event: Named,
    pub(super) number: Option<u16>,
    /// What its records carry: what all of the lane do, and what is its own.
    pub(super) fields: Fields,
    /// What it tells of threads.
    pub(super) role: Role,
    pub(super) uses: Vec<Use>,
}

/// What the records of a lane have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) fields: Fields,
    pub(super) sideband: Sideband,
}

/// How it is told which thread leaves a CPU, and which one comes, besides `sched:sched_switch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Switches {
    /// The switch stream tells who leaves, and `sched:sched_switch` only of threads that do for another reason than to sleep.
    pub(super) of_stream: bool,
    /// CPUs tell who comes, for this kernel writes no records while the idle task runs.
    pub(super) of_cpus: bool,
}

/// Which events the traces need, each once, and what the records of each lane carry.
pub(super) fn wanted(traces: &[Arc<Trace>], switches: Switches) -> (Vec<Arc<Wanted>>, [Carried; 2]) {
    let mut found: Vec<Wanted> = Vec::new();
    let fields = Fields { identifier: true, raw: true, ..Fields::default() };
    let mut carried = [Carried { fields, sideband: Sideband::default() }; 2];
    for (number, trace) in traces.iter().enumerate() {
        let lane = if trace.is_ordered() { Lane::Ordered } else { Lane::Direct };
        let Carried { fields, sideband } = &mut carried[lane as usize];
        fields.tid |= trace.needs_task();
        fields.time |= trace.is_ordered();
        sideband.task |= trace.is_ordered() || trace.needs_cgroup();
        sideband.comm |= trace.is_ordered();
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
                // The second event of a pair goes before the first: if they are the same one, a hit ends what the hit
                // before it began.
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
        wanted.fields = Fields { cgroup, width, ..carried[wanted.lane as usize].fields };
    }
    (found.into_iter().map(Arc::new).collect(), carried)
}

/// What to open for a source.
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

/// What to open for a lane on each CPU; the events by their places among those wanted.
pub(super) fn request(lane: Lane, wanted: &[Arc<Wanted>], carried: Carried) -> Request<'_, usize> {
    let ordered = lane == Lane::Ordered;
    let sampling = |fields, sideband| Some(Sampling { rate: Rate::Period(1), fields, sideband, ordered });
    let holder = Attr::software(DUMMY, sampling(carried.fields, carried.sideband), Start::Later);
    let mine = wanted.iter().enumerate().filter(|(_, wanted)| wanted.lane == lane);
    let events = mine.map(|(place, wanted)| {
        let sampling = sampling(wanted.fields, Sideband::default());
        (Attr { sampling, ..Attr::counting(&wanted.event) }, &wanted.event, place)
    });
    Request { holders: vec![holder], events: events.collect() }
}
