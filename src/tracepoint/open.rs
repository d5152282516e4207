//! Opening the events of one CPU: those of a lane write into one ring, which an event that never fires holds.

use std::sync::Arc;

use super::desk::Use;
use super::intake::Lane;
use crate::error::Errno;
use crate::event::{Event as Named, Kind};
use crate::health::{Attempt, Board, Cause, Judgement, Refusal, Scope, classify};
use crate::host::{Facts, Roots};
use crate::plan::{Feed, Role, Trace, TraceSource as Source};
use crate::probe::tracefs;
use crate::ring::room;
use crate::sys::{Attr, Budget, Event, Fields, Kernel, Place, Rate, Sampling, Sideband, Start};

/// `PERF_COUNT_SW_DUMMY`: counts nothing, and tells of what its sideband asks for.
const DUMMY: u64 = 9;

/// What opening needs besides the events.
pub(crate) struct Context<'a, K> {
    pub(crate) kernel: &'a K,
    pub(crate) facts: &'a Facts,
    pub(crate) roots: &'a Roots,
    pub(crate) budget: &'a mut Budget,
    pub(crate) board: &'a mut Board,
}

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
    pub(super) uses: Arc<[Use]>,
}

/// What the records of a lane have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) fields: Fields,
    pub(super) sideband: Sideband,
}

/// An event, and who uses it.
struct Found<'t> {
    lane: Lane,
    source: &'t Source,
    cgroup: bool,
    uses: Vec<Use>,
}

/// Which events the traces need, each once, and what the records of each lane carry. `switches`: CPUs are to tell
/// themselves who comes, for some switches the kernel does not.
pub(super) fn wanted(traces: &[Arc<Trace>], switches: bool) -> (Vec<Wanted>, [Carried; 2]) {
    let mut found: Vec<Found<'_>> = Vec::new();
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
            sideband.switches |= switches && matches!(source.role, Role::Scheduler(_));
            let cgroup = match trace.feed {
                Feed::Records => trace.needs_cgroup(),
                Feed::Tasks(..) => source.role.tells_cgroup(),
            };
            let same =
                |found: &&mut Found<'_>| found.lane == lane && found.source.event.counts_as(&source.event);
            match found.iter_mut().find(same) {
                // The second event of a pair goes before the first: if they are the same one, a hit ends what the hit
                // before it began.
                Some(known) => {
                    known.uses.insert(0, (number, place));
                    known.cgroup |= cgroup;
                    if source.role != Role::Fields {
                        known.source = source;
                    }
                }
                None => found.push(Found { lane, source, cgroup, uses: vec![(number, place)] }),
            }
        }
    }
    let wanted = found.into_iter().map(|Found { lane, source, cgroup, uses }| Wanted {
        lane,
        event: source.event.clone(),
        number: source.number,
        fields: Fields {
            cgroup,
            width: matches!(source.role, Role::Enter { .. }),
            ..carried[lane as usize].fields
        },
        role: source.role.clone(),
        uses: uses.into(),
    });
    (wanted.collect(), carried)
}

/// A ring's events on one CPU.
#[derive(Debug)]
pub(super) struct Opened<E> {
    pub(super) holder: E,
    /// Each with the number that its records bear, and its place among those wanted.
    pub(super) events: Vec<(E, u64, usize)>,
    /// Pages of the ring.
    pub(super) pages: usize,
    /// Whether a larger ring was refused.
    pub(super) largest: bool,
    /// Records that its ring had lost when it was looked at last.
    pub(super) lost: u64,
}

impl<E: Event> Opened<E> {
    pub(super) fn descriptors(&self) -> usize {
        1 + self.events.len()
    }

    /// How often its events were hit so far, whether their records found room or not: they count with a period of 1.
    pub(super) fn hits(&self) -> u64 {
        let count = |event: &E| {
            let mut words = [0; 4];
            // Number of members, two times, the count. Where it cannot be read, what the kernel tells of losses is left.
            event.read(&mut words).map_or(0, |length| if length == words.len() { words[3] } else { 0 })
        };
        self.events.iter().map(|(event, ..)| count(event)).sum()
    }

    /// Makes a ring of `wanted` pages, or of the most that the kernel gives, and lets all events write into it.
    pub(super) fn make_ring(&mut self, wanted: usize) -> Result<E::Ring, Errno> {
        let (ring, pages) = room::make(&self.holder, wanted)?;
        for (event, ..) in &self.events {
            event.write_to(&self.holder)?;
        }
        (self.pages, self.largest, self.lost) = (pages, pages < wanted, 0);
        Ok(ring)
    }
}

/// A refused event.
pub(super) struct Refused {
    /// Its place among those wanted; `None` = all of the lane.
    pub(super) event: Option<usize>,
    pub(super) refusal: Refusal,
}

/// Opens the events of a lane on a CPU; nothing writes yet. `None` if none of them could be opened.
pub(super) fn open<K: Kernel>(
    cpu: u32,
    lane: Lane,
    wanted: &[Wanted],
    carried: Carried,
    context: &mut Context<'_, K>,
) -> (Option<Opened<K::Event>>, Vec<Refused>) {
    let mut refused = Vec::new();
    let mine: Vec<usize> = (0..wanted.len()).filter(|&place| wanted[place].lane == lane).collect();
    if mine.is_empty() {
        return (None, refused);
    }
    if !context.budget.has_room_for(1 + mine.len()) {
        refused.push(Refused { event: None, refusal: context.no_room("records", cpu) });
        return (None, refused);
    }
    let ordered = lane == Lane::Ordered;
    let sampling = |fields, sideband| Sampling { rate: Rate::Period(1), fields, sideband, ordered };
    let place = Place::Cpu(cpu);
    let holder = Attr::software(DUMMY, Some(sampling(carried.fields, carried.sideband)), Start::Later);
    let holder = match context.kernel.open(&holder, place, None) {
        Ok(holder) => holder,
        Err(errno) => {
            let refusal = context.refusal("dummy", Kind::Software, errno, cpu);
            refused.push(Refused { event: None, refusal });
            return (None, refused);
        }
    };
    let mut events = Vec::new();
    for at in mine {
        let event = &wanted[at].event;
        let sampling = sampling(wanted[at].fields, Sideband::default());
        let attr = Attr { sampling: Some(sampling), ..Attr::counting(event) };
        let opened = context.kernel.open(&attr, place, None).and_then(|event| Ok((event.id()?, event)));
        match opened {
            Ok((id, opened)) => events.push((opened, id, at)),
            Err(errno) => {
                let refusal = match filter_refused(event, errno, cpu, context) {
                    Some(refusal) => refusal,
                    None => context.refusal(&event.name, event.kind, errno, cpu),
                };
                refused.push(Refused { event: Some(at), refusal });
            }
        }
    }
    if events.is_empty() {
        return (None, refused);
    }
    context.budget.take(1 + events.len());
    (Some(Opened { holder, events, pages: 0, largest: false, lost: 0 }), refused)
}

/// Whether it is the filter that the kernel does not take, for without it the event opens; with its own words.
fn filter_refused<K: Kernel>(
    event: &Named,
    errno: Errno,
    cpu: u32,
    context: &Context<'_, K>,
) -> Option<Refusal> {
    let filter = event.filter.as_ref()?;
    let attr = Attr { filter: None, ..Attr::counting(event) };
    context.kernel.open(&attr, Place::Cpu(cpu), None).ok()?;
    let mut name = event.name.split(':');
    let said = name.next().zip(name.next());
    let said = said.and_then(|(system, event)| tracefs::complaint(context.roots, system, event, filter));
    let said = said.map(|said| format!("; it says: {}", said.trim_end())).unwrap_or_default();
    let reason = format!("the kernel does not take the filter {filter:?} ({errno}){said}");
    let judgement = Judgement { cause: Cause::Broken, reason, remedy: None };
    Some(judgement.refusal(&event.name, format!("cpu {cpu}"), Some(errno)))
}

impl<K> Context<'_, K> {
    /// What the kernel's refusal to open an event on a CPU means.
    pub(crate) fn refusal(&self, name: &str, kind: Kind, errno: Errno, cpu: u32) -> Refusal {
        let attempt = Attempt {
            scope: Scope::Cpu,
            on_core_pmu: kind.on_core_pmu(),
            core_pmu_present: true,
            probe: kind == Kind::Probe,
            tracepoint: matches!(kind, Kind::Tracepoint | Kind::Probe),
            filtered: false,
            user_only: false,
            opens_alone: false,
        };
        classify(errno, &attempt, self.facts).refusal(&name.into(), format!("cpu {cpu}"), Some(errno))
    }

    /// That there are no descriptors left for `what` on a CPU.
    pub(crate) fn no_room(&self, what: &str, cpu: u32) -> Refusal {
        let judgement = Judgement {
            cause: Cause::Exhausted,
            reason: format!("the budget of {} descriptors is used up", self.budget.limit),
            remedy: Some("raise LimitNOFILE (systemd) or ulimit -n, or limits.descriptors".into()),
        };
        judgement.refusal(&what.into(), format!("cpu {cpu}"), None)
    }
}
