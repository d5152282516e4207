//! Opening of events that write into one ring. The ring belongs to a dummy event, which never fires and writes the sideband records. The
//! other events can be opened and closed independently.
//!
//! Targets are everything on the CPU, cgroups, or threads with everything that they start. The first two need the right to observe CPUs.
//! Threads have events of their own on every CPU, which their children inherit. These record exactly the threads and their children,
//! however short-lived, and need only the right to trace the threads.

use std::os::fd::AsFd;

use crate::error::Errno;
use crate::event::Event as Named;
use crate::health::{Attempt, Board, Cause, Judgement, Refusal, Scope, classify, no_descriptors};
use crate::host::{Facts, Roots};
use crate::probe::tracefs;
use crate::sys::{self, Attr, Budget, Event, Inherit, Kernel, Place, Start};
use crate::targets::OpenTarget;

use super::id::RingId;
use super::set::{CreatedRing, RingSet, Writers};

/// `PERF_COUNT_SW_DUMMY`: counts nothing, and writes the sideband records that it is opened with.
pub(crate) const DUMMY: u64 = 9;

/// Resources needed to open events.
pub(crate) struct Context<'a, K> {
    pub(crate) kernel: &'a K,
    pub(crate) facts: &'a Facts,
    pub(crate) roots: &'a Roots,
    pub(crate) budget: &'a mut Budget,
    pub(crate) board: &'a mut Board,
}

/// Events to open for a ring.
pub(crate) struct Request<'a, T> {
    /// Attributes of the event that owns the ring, in the order of preference. The next one is tried if the kernel does not support a field
    /// of the previous one.
    pub(crate) holders: Vec<Attr>,
    /// Attributes of each event, and the purpose of its records.
    pub(crate) events: Vec<(Attr, &'a Named, T)>,
}

/// An event that could not be opened.
#[derive(Debug)]
pub(crate) struct Refused<T> {
    /// Purpose of its records; `None` = all events of the ring.
    pub(crate) event: Option<T>,
    pub(crate) refusal: Refusal,
}

/// Events of a CPU that write into one ring.
#[derive(Debug)]
pub(crate) struct RingWriters<E, T> {
    holder: E,
    /// Dummy events of further threads, with the same sideband records as the holder.
    dummies: Vec<E>,
    pub(crate) events: Vec<RingWriter<E, T>>,
    start: Start,
    /// Whether children inherit the events. The inherited events cannot be accessed.
    pub(crate) inherited: bool,
}

/// An event that writes into a ring.
#[derive(Debug)]
pub(crate) struct RingWriter<E, T> {
    pub(crate) event: E,
    /// The leader of its group, which writes no records.
    leader: Option<E>,
    /// The identifier in its records.
    pub(crate) id: u64,
    /// The purpose of its records.
    pub(crate) of: T,
}

impl<E, T> RingWriter<E, T> {
    /// Returns the leader, if there is one, and the event.
    fn all(&self) -> impl Iterator<Item = &E> {
        self.leader.iter().chain([&self.event])
    }
}

impl<E: Event, T> Writers for RingWriters<E, T> {
    type Event = E;

    fn holder(&self) -> &E {
        &self.holder
    }

    fn others(&self) -> impl Iterator<Item = &E> {
        self.dummies.iter().chain(self.events.iter().flat_map(RingWriter::all))
    }

    fn descriptors(&self) -> usize {
        1 + self.dummies.len() + self.events.iter().flat_map(RingWriter::all).count()
    }

    /// Events that start with an `execve` are enabled by the kernel.
    fn start(&self) -> Result<(), Errno> {
        if self.start == Start::OnExec {
            return Ok(());
        }
        let mut started = Ok(());
        for event in self.all() {
            started = started.and(event.enable());
        }
        started
    }
}

impl<E: Event, T> RingWriters<E, T> {
    /// Returns the events, to be closed.
    pub(crate) fn into_events(self) -> impl Iterator<Item = E> {
        std::iter::once(self.holder)
            .chain(self.dummies)
            .chain(self.events.into_iter().flat_map(|writer| writer.leader.into_iter().chain([writer.event])))
    }

    /// Starts the dummy events, which write the sideband records, before the others. Events that start with an `execve` are enabled by the
    /// kernel.
    pub(crate) fn start_sideband(&self) -> Result<(), Errno> {
        match self.start {
            Start::OnExec => Ok(()),
            Start::Later | Start::WithLeader => self.sideband().try_for_each(Event::enable),
        }
    }

    /// Returns the events that write the sideband records.
    fn sideband(&self) -> impl Iterator<Item = &E> {
        std::iter::once(&self.holder).chain(&self.dummies)
    }

    /// Returns the identifiers in the sideband records.
    pub(crate) fn sideband_ids(&self) -> Result<Vec<u64>, Errno> {
        self.sideband().map(Event::id).collect()
    }

    /// Stops all events.
    pub(crate) fn stop(&self) {
        for event in self.all() {
            if let Err(errno) = event.disable() {
                tracing::debug!(%errno, "cannot disable an event: it stays enabled until it is closed");
            }
        }
    }

    /// Returns the number of hits so far of the events selected by `counts`, including hits whose records were lost: the events count with
    /// a period of 1.
    pub(crate) fn hits(&self, counts: impl Fn(&T) -> bool) -> u64 {
        let count = |event: &E| {
            let mut words = [0; 4];
            // Number of members, two times, the count. If it cannot be read, only the kernel's reports of losses are available.
            event.read(&mut words).map_or(0, |_| words[3])
        };
        self.events.iter().filter(|writer| counts(&writer.of)).map(|writer| count(&writer.event)).sum()
    }

    fn all(&self) -> impl Iterator<Item = &E> {
        std::iter::once(&self.holder).chain(self.others())
    }
}

/// The events that were opened for a ring, and the failures.
type Events<E, T> = (Option<RingWriters<E, T>>, Vec<Refused<T>>);

/// The events that were opened for a ring, the ring, and the failures.
pub(crate) type Opened<E, T> =
    (Option<(RingWriters<E, T>, CreatedRing<<E as Event>::Ring>)>, Vec<Refused<T>>);

impl<E: Event, T: Copy> RingSet<RingWriters<E, T>> {
    /// Opens the requested events for `open_targets`, and creates a ring of `pages` pages, or of the maximum that the kernel allows. The
    /// events are not started. `None` if no target is on the CPU, or no event could be opened. Threads that have ended meanwhile are
    /// silently skipped.
    pub(crate) fn open<K: Kernel<Event = E>>(
        &self,
        ring: RingId,
        open_targets: &[OpenTarget],
        request: Request<'_, T>,
        pages: usize,
        context: &mut Context<'_, K>,
    ) -> Opened<E, T> {
        let records = self.records;
        let wake_up = sys::wake_up(pages * rustix::param::page_size());
        let holders = request.holders.into_iter().map(|attr| Attr { wake_up, ..attr }).collect();
        let request = Request { holders, ..request };
        let (writers, mut refused) = open(records, ring.cpu, open_targets, request, context);
        let Some(writers) = writers else { return (None, refused) };
        match self.make(&writers, pages) {
            Ok(made) => (Some((writers, made)), refused),
            Err((judgement, errno)) => {
                context.budget.give_back(writers.descriptors());
                let refusal = judgement.refusal(&records.into(), format!("cpu {}", ring.cpu), Some(errno));
                refused.push(Refused { event: None, refusal });
                (None, refused)
            }
        }
    }
}

fn open<K: Kernel, T: Copy>(
    records: &str,
    cpu: u32,
    open_targets: &[OpenTarget],
    request: Request<'_, T>,
    context: &mut Context<'_, K>,
) -> Events<K::Event, T> {
    let mut refused = Vec::new();
    let placed_targets = PlacedTarget::all(open_targets, cpu);
    if placed_targets.is_empty() || request.events.is_empty() {
        return (None, refused);
    }
    let dummy_targets = PlacedTarget::for_dummies(&placed_targets, cpu);
    let leaders = request.events.iter().filter(|(attr, ..)| attr.leader.is_some()).count();
    let descriptors = request.events.len() + leaders;
    if !context.budget.has_room_for(dummy_targets.len() + placed_targets.len() * descriptors) {
        let judgement = no_descriptors(context.budget.limit);
        let refusal = judgement.refusal(&records.into(), format!("cpu {cpu}"), None);
        refused.push(Refused { event: None, refusal });
        return (None, refused);
    }
    let mut dummies = Vec::new();
    for placed in &dummy_targets {
        match open_dummy(context.kernel, placed, &request.holders) {
            Ok(event) => dummies.push(event),
            // The thread has ended, or the CPU is about to go offline but is still listed as online.
            Err(Errno::ESRCH | Errno::ENODEV) => {}
            Err(errno) => {
                let user_only = request.holders.iter().any(|attr| attr.modifiers.exclude_kernel);
                let attempt = Attempt { user_only, ..Attempt::software(placed.scope) };
                let judgement = classify(errno, &attempt, context.facts);
                let refusal = judgement.refusal(&"dummy".into(), placed.name.as_str(), Some(errno));
                refused.push(Refused { event: None, refusal });
            }
        }
    }
    let mut dummies = dummies.into_iter();
    let Some(holder) = dummies.next() else { return (None, refused) };
    let mut events = Vec::new();
    for (attr, named, of) in request.events {
        for placed in &placed_targets {
            let attr = Attr { inherit: placed.inherit, start: placed.start, ..attr.clone() };
            let opened = open_event(context.kernel, &attr, placed);
            match opened.and_then(|(leader, event)| Ok((event.id()?, leader, event))) {
                Ok((id, leader, event)) => events.push(RingWriter { event, leader, id, of }),
                Err(Errno::ESRCH) => {}
                Err(errno) => {
                    let refusal = placed.refusal(&attr, named, errno, context);
                    refused.push(Refused { event: Some(of), refusal });
                }
            }
        }
    }
    if events.is_empty() {
        return (None, refused);
    }
    let start = placed_targets.first().map_or(Start::Later, |placed| placed.start);
    let inherited = placed_targets.iter().any(|placed| placed.inherit != Inherit::Nothing);
    let writers = RingWriters { holder, dummies: dummies.collect(), events, start, inherited };
    context.budget.take(writers.descriptors());
    (Some(writers), refused)
}

/// Opens an event with the leader of its group, if it needs one.
fn open_event<K: Kernel>(
    kernel: &K,
    attr: &Attr,
    placed: &PlacedTarget<'_>,
) -> Result<(Option<K::Event>, K::Event), Errno> {
    let Some(leader) = &attr.leader else { return Ok((None, kernel.open(attr, placed.place, None)?)) };
    let leader = Attr { inherit: placed.inherit, start: placed.start, ordered: true, ..(**leader).clone() };
    let leader = kernel.open(&leader, placed.place, None)?;
    let attr = Attr { start: Start::WithLeader, ..attr.clone() };
    let event = kernel.open(&attr, placed.place, Some(&leader))?;
    Ok((Some(leader), event))
}

fn open_dummy<K: Kernel>(kernel: &K, placed: &PlacedTarget<'_>, holders: &[Attr]) -> Result<K::Event, Errno> {
    let mut answer = Err(Errno::EINVAL);
    for attr in holders {
        let attr = Attr { inherit: placed.inherit, start: placed.start, ..attr.clone() };
        answer = kernel.open(&attr, placed.place, None);
        if !matches!(answer, Err(Errno::EINVAL | Errno::E2BIG)) {
            break;
        }
    }
    answer
}

/// A target on a CPU.
struct PlacedTarget<'w> {
    place: Place<'w>,
    scope: Scope,
    inherit: Inherit,
    start: Start,
    name: String,
}

impl<'w> PlacedTarget<'w> {
    /// Returns everything on a CPU as the target.
    fn whole_cpu(cpu: u32) -> Self {
        let (inherit, start) = (Inherit::Nothing, Start::Later);
        Self { place: Place::Cpu(cpu), scope: Scope::CPU, inherit, start, name: format!("cpu {cpu}") }
    }

    fn thread(tid: u32, cpu: u32, start: Start) -> Self {
        let name = match start {
            Start::OnExec => format!("the command on cpu {cpu}"),
            Start::Later | Start::WithLeader => format!("thread {tid} on cpu {cpu}"),
        };
        let place = Place::ThreadOn { tid, cpu };
        Self { place, scope: Scope::Process, inherit: Inherit::Children, start, name }
    }

    /// Returns the targets of `open_targets` on a CPU.
    fn all(open_targets: &'w [OpenTarget], cpu: u32) -> Vec<Self> {
        let mut placed_targets = Vec::new();
        for target in open_targets {
            match target {
                OpenTarget::Cpus(cpus) => {
                    placed_targets.extend(cpus.contains(cpu).then(|| Self::whole_cpu(cpu)));
                }
                OpenTarget::Cgroup { dir, path, cpus } => {
                    let place = Place::Cgroup { dir: dir.as_fd(), cpu };
                    let name = format!("cgroup {path} on cpu {cpu}");
                    let placed = Self { place, scope: Scope::Cgroup, name, ..Self::whole_cpu(cpu) };
                    placed_targets.extend(cpus.contains(cpu).then_some(placed));
                }
                OpenTarget::Threads(tids) => {
                    placed_targets.extend(tids.iter().map(|&tid| Self::thread(tid, cpu, Start::Later)));
                }
                OpenTarget::Command(pid) => placed_targets.push(Self::thread(*pid, cpu, Start::OnExec)),
            }
        }
        placed_targets
    }

    /// Returns the targets of dummy events: each thread, or the CPU as a whole if there are no threads.
    fn for_dummies(placed_targets: &[Self], cpu: u32) -> Vec<PlacedTarget<'_>> {
        let threads = placed_targets.iter().filter(|placed| placed.scope == Scope::Process);
        let threads: Vec<PlacedTarget<'_>> =
            threads.map(|placed| PlacedTarget { name: placed.name.clone(), ..*placed }).collect();
        if threads.is_empty() { vec![PlacedTarget::whole_cpu(cpu)] } else { threads }
    }

    /// Returns the refusal of an event for an errno of the kernel.
    fn refusal<K: Kernel>(
        &self,
        attr: &Attr,
        named: &Named,
        errno: Errno,
        context: &Context<'_, K>,
    ) -> Refusal {
        let judgement = filter_refused(attr, named, self.place, errno, context).unwrap_or_else(|| {
            let attempt = Attempt { filtered: false, ..named.attempt(self.scope) };
            classify(errno, &attempt, context.facts)
        });
        judgement.refusal(&named.name, self.name.as_str(), Some(errno))
    }
}

/// Returns a judgement with the kernel's message if the kernel rejects the filter, that is, if the event opens without it.
fn filter_refused<K: Kernel>(
    attr: &Attr,
    named: &Named,
    place: Place<'_>,
    errno: Errno,
    context: &Context<'_, K>,
) -> Option<Judgement> {
    let filter = attr.filter.as_ref()?;
    context.kernel.open(&Attr { filter: None, ..attr.clone() }, place, None).ok()?;
    let mut name = named.name.split(':');
    let said = name.next().zip(name.next());
    let said = said.and_then(|(system, event)| tracefs::complaint(context.roots, system, event, filter));
    let said = said.map(|said| format!("; message: {}", said.trim_end())).unwrap_or_default();
    let reason = format!("the kernel rejects the filter {filter:?} ({errno}){said}");
    Some(Judgement { cause: Cause::Broken, reason, remedy: None })
}

#[cfg(test)]
mod tests;
