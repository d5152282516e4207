//! Events that the traces need, each once on a CPU, and how they are opened.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::event::Event as Named;
use crate::plan::{Feed, RingClass, Role, Trace, TraceSource as Source};
use crate::ring::{DUMMY, Records, Request, RingId};
use crate::sched::{Layout, WITHOUT_SLEEPS};
use crate::sys::{Attr, Fields, Rate, Sampling, Sideband, Start};

/// Returns the ring class of a ring.
pub(super) fn class_of(ring: RingId) -> RingClass {
    RingClass::ALL.get(ring.number as usize).copied().unwrap_or(RingClass::Direct)
}

/// Returns the kind of record of a ring class, as used in metrics and messages.
pub(super) fn records_of(class: RingClass) -> Records {
    match class {
        RingClass::Direct | RingClass::Ordered => Records::Tracepoints,
        RingClass::Scheduler => Records::Scheduler,
        RingClass::Syscalls => Records::Syscalls,
    }
}

/// A value for each ring class.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ByClass<T>([T; RingClass::ALL.len()]);

impl<T> ByClass<T> {
    pub(super) fn map<U>(self, each: impl FnMut(T) -> U) -> ByClass<U> {
        ByClass(self.0.map(each))
    }
}

impl<T> Index<RingClass> for ByClass<T> {
    type Output = T;

    fn index(&self, class: RingClass) -> &T {
        &self.0[class as usize]
    }
}

impl<T> IndexMut<RingClass> for ByClass<T> {
    fn index_mut(&mut self, class: RingClass) -> &mut T {
        &mut self.0[class as usize]
    }
}

/// Returns the ring class whose records report the creation and exit of processes and threads, for all ring classes that are read in order;
/// `None` if there are no such ring classes.
pub(super) fn leading(traces: &[Arc<Trace>]) -> Option<RingClass> {
    let has = |class: &RingClass| traces.iter().any(|trace| trace.class() == *class);
    [RingClass::Scheduler, RingClass::Ordered, RingClass::Syscalls].into_iter().find(has)
}

/// The index of an entry, and the index of an event among its sources.
pub(super) type Use = (usize, usize);

/// An event to open once on each CPU, for all entries that use its records.
#[derive(Debug, Clone)]
pub(super) struct PlannedEvent {
    pub(super) class: RingClass,
    pub(super) event: Named,
    pub(super) number: Option<u16>,
    /// Fields of its records: those of all records of the ring class, and its own.
    pub(super) fields: Fields,
    /// Use of its records to follow threads.
    pub(super) role: Role,
    pub(super) uses: Vec<Use>,
}

/// Common properties of the records of a ring class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordProperties {
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

/// Returns the events that the traces need, each once, and the fields of the records of each ring class.
pub(super) fn planned(
    traces: &[Arc<Trace>],
    switches: Switches,
) -> (Vec<Arc<PlannedEvent>>, ByClass<RecordProperties>) {
    let mut found: Vec<PlannedEvent> = Vec::new();
    let fields = Fields { identifier: true, raw: true, ..Fields::default() };
    let mut properties =
        ByClass::default().map(|()| RecordProperties { fields, sideband: Sideband::default() });
    let leading = leading(traces);
    for (number, trace) in traces.iter().enumerate() {
        let class = trace.class();
        let leads = leading == Some(class);
        let RecordProperties { fields, sideband } = &mut properties[class];
        fields.tid |= trace.needs_task();
        fields.time |= trace.is_ordered();
        // Calls in progress begin and end with threads, even if the leading ring class loses records.
        sideband.task |= leads || class == RingClass::Syscalls || trace.needs_cgroup();
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
            let same = |found: &&mut PlannedEvent| found.class == class && found.event.counts_as(&event);
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
                None => found.push(PlannedEvent {
                    class,
                    event,
                    number: source.number,
                    fields: Fields { cgroup, ..Fields::default() },
                    role: source.role.clone(),
                    uses: vec![(number, place)],
                }),
            }
        }
    }
    for planned in &mut found {
        let (cgroup, width) = (planned.fields.cgroup, matches!(planned.role, Role::Enter { .. }));
        planned.fields = Fields { cgroup, width, ..properties[planned.class].fields };
    }
    (found.into_iter().map(Arc::new).collect(), properties)
}

/// Returns the ring classes whose events have to be opened again after the traces changed: those with other traces, or with other common
/// properties. `all`: whether those of all ring classes have to.
pub(super) fn changed(
    old: &[Arc<Trace>],
    new: &[Arc<Trace>],
    switches: Switches,
    all: bool,
) -> ByClass<bool> {
    let of_class = |traces: &[Arc<Trace>], class| {
        traces.iter().filter(|trace| trace.class() == class).cloned().collect::<Vec<_>>()
    };
    let (before, after) = (planned(old, switches).1, planned(new, switches).1);
    let mut changed = ByClass::default().map(|()| all);
    for class in RingClass::ALL {
        changed[class] |= before[class] != after[class] || of_class(old, class) != of_class(new, class);
    }
    changed
}

/// Returns the event to open for a source.
fn event_of(source: &Source, switches: Switches) -> Named {
    let mut event = source.event.clone();
    if switches.of_stream && matches!(source.role, Role::Scheduler(Layout::Switch { .. })) {
        let filter = match &event.filter {
            Some(filter) => format!("({filter}) && ({WITHOUT_SLEEPS})"),
            None => WITHOUT_SLEEPS.to_owned(),
        };
        event.filter = Some(filter.into());
    }
    event
}

/// Returns the events to open for a ring class on each CPU, by their index in `planned`.
pub(super) fn request(
    class: RingClass,
    planned: &[Arc<PlannedEvent>],
    properties: RecordProperties,
) -> Request<'_, usize> {
    let ordered = class.is_ordered();
    let sampling = |fields, sideband| Some(Sampling { rate: Rate::Period(1), fields, sideband, ordered });
    let holder = Attr::software(DUMMY, sampling(properties.fields, properties.sideband), Start::Later);
    let mine = planned.iter().enumerate().filter(|(_, planned)| planned.class == class);
    let events = mine.map(|(place, planned)| {
        let sampling = sampling(planned.fields, Sideband::default());
        (Attr { sampling, ..Attr::counting(&planned.event) }, &planned.event, place)
    });
    Request { holders: vec![holder], events: events.collect() }
}
