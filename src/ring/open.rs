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
use crate::sys::{Attr, Budget, Event, Inherit, Kernel, Place, Start};
use crate::targets::Whom;

use super::id::RingId;
use super::set::{Made, RingSet, Writers};

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
    tellers: Vec<E>,
    pub(crate) events: Vec<RingWriter<E, T>>,
    start: Start,
    /// Whether children inherit the events. The inherited events cannot be accessed.
    pub(crate) inherited: bool,
}

/// An event that writes into a ring.
#[derive(Debug)]
pub(crate) struct RingWriter<E, T> {
    pub(crate) event: E,
    /// The identifier in its records.
    pub(crate) id: u64,
    /// The purpose of its records.
    pub(crate) of: T,
}

impl<E: Event, T> Writers for RingWriters<E, T> {
    type Event = E;

    fn holder(&self) -> &E {
        &self.holder
    }

    fn others(&self) -> impl Iterator<Item = &E> {
        self.tellers.iter().chain(self.events.iter().map(|tap| &tap.event))
    }

    fn descriptors(&self) -> usize {
        1 + self.tellers.len() + self.events.len()
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
        std::iter::once(self.holder).chain(self.tellers).chain(self.events.into_iter().map(|tap| tap.event))
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
            event.read(&mut words).map_or(0, |length| if length == words.len() { words[3] } else { 0 })
        };
        self.events.iter().filter(|tap| counts(&tap.of)).map(|tap| count(&tap.event)).sum()
    }

    fn all(&self) -> impl Iterator<Item = &E> {
        std::iter::once(&self.holder).chain(self.others())
    }
}

/// The events that were opened for a ring, and the failures.
type Events<E, T> = (Option<RingWriters<E, T>>, Vec<Refused<T>>);

/// The events that were opened for a ring, the ring, and the failures.
pub(crate) type Opened<E, T> = (Option<(RingWriters<E, T>, Made<<E as Event>::Ring>)>, Vec<Refused<T>>);

impl<E: Event, T: Copy> RingSet<RingWriters<E, T>> {
    /// Opens the requested events for `whom`, and creates a ring of `pages` pages, or of the maximum that the kernel allows. The events are
    /// not started. `None` if no target is on the CPU, or no event could be opened. Threads that have ended meanwhile are silently skipped.
    pub(crate) fn open<K: Kernel<Event = E>>(
        &self,
        ring: RingId,
        whom: &[Whom],
        request: Request<'_, T>,
        pages: usize,
        context: &mut Context<'_, K>,
    ) -> Opened<E, T> {
        let records = self.records;
        let (tapped, mut refused) = open(records, ring.cpu, whom, request, context);
        let Some(tapped) = tapped else { return (None, refused) };
        match self.make(&tapped, pages) {
            Ok(made) => (Some((tapped, made)), refused),
            Err((judgement, errno)) => {
                context.budget.give_back(tapped.descriptors());
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
    whom: &[Whom],
    request: Request<'_, T>,
    context: &mut Context<'_, K>,
) -> Events<K::Event, T> {
    let mut refused = Vec::new();
    let spots = PlacedTarget::all(whom, cpu);
    if spots.is_empty() || request.events.is_empty() {
        return (None, refused);
    }
    let tellers = PlacedTarget::tellers(&spots, cpu);
    if !context.budget.has_room_for(tellers.len() + spots.len() * request.events.len()) {
        let judgement = no_descriptors(context.budget.limit);
        let refusal = judgement.refusal(&records.into(), format!("cpu {cpu}"), None);
        refused.push(Refused { event: None, refusal });
        return (None, refused);
    }
    let mut told = Vec::new();
    for spot in &tellers {
        match open_teller(context.kernel, spot, &request.holders) {
            Ok(event) => told.push(event),
            // The thread has ended, or the CPU is about to go offline but is still listed as online.
            Err(Errno::ESRCH | Errno::ENODEV) => {}
            Err(errno) => {
                let user_only = request.holders.iter().any(|attr| attr.modifiers.exclude_kernel);
                let attempt = Attempt { user_only, ..Attempt::software(spot.scope) };
                let judgement = classify(errno, &attempt, context.facts);
                let refusal = judgement.refusal(&"dummy".into(), spot.name.as_str(), Some(errno));
                refused.push(Refused { event: None, refusal });
            }
        }
    }
    let mut told = told.into_iter();
    let Some(holder) = told.next() else { return (None, refused) };
    let mut events = Vec::new();
    for (attr, named, of) in request.events {
        for spot in &spots {
            let attr = Attr { inherit: spot.inherit, start: spot.start, ..attr.clone() };
            let opened = context.kernel.open(&attr, spot.place, None);
            match opened.and_then(|event| Ok((event.id()?, event))) {
                Ok((id, event)) => events.push(RingWriter { event, id, of }),
                Err(Errno::ESRCH) => {}
                Err(errno) => {
                    let refusal = spot.refusal(&attr, named, errno, context);
                    refused.push(Refused { event: Some(of), refusal });
                }
            }
        }
    }
    if events.is_empty() {
        return (None, refused);
    }
    let start = spots.first().map_or(Start::Later, |spot| spot.start);
    let inherited = spots.iter().any(|spot| spot.inherit != Inherit::Nothing);
    let tapped = RingWriters { holder, tellers: told.collect(), events, start, inherited };
    context.budget.take(tapped.descriptors());
    (Some(tapped), refused)
}

fn open_teller<K: Kernel>(kernel: &K, spot: &PlacedTarget<'_>, holders: &[Attr]) -> Result<K::Event, Errno> {
    let mut answer = Err(Errno::EINVAL);
    for attr in holders {
        let attr = Attr { inherit: spot.inherit, start: spot.start, ..attr.clone() };
        answer = kernel.open(&attr, spot.place, None);
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
    fn everybody(cpu: u32) -> Self {
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

    /// Returns the targets of `whom` on a CPU.
    fn all(whom: &'w [Whom], cpu: u32) -> Vec<Self> {
        let mut spots = Vec::new();
        for whom in whom {
            match whom {
                Whom::Cpus(cpus) => spots.extend(cpus.contains(cpu).then(|| Self::everybody(cpu))),
                Whom::Cgroup { dir, path, cpus } => {
                    let place = Place::Cgroup { dir: dir.as_fd(), cpu };
                    let name = format!("cgroup {path} on cpu {cpu}");
                    let spot = Self { place, scope: Scope::Cgroup, name, ..Self::everybody(cpu) };
                    spots.extend(cpus.contains(cpu).then_some(spot));
                }
                Whom::Threads(tids) => {
                    spots.extend(tids.iter().map(|&tid| Self::thread(tid, cpu, Start::Later)));
                }
                Whom::Command(pid) => spots.push(Self::thread(*pid, cpu, Start::OnExec)),
            }
        }
        spots
    }

    /// Returns the targets of dummy events: each thread, or the CPU as a whole if there are no threads.
    fn tellers(spots: &[Self], cpu: u32) -> Vec<PlacedTarget<'_>> {
        let threads = spots.iter().filter(|spot| spot.scope == Scope::Process);
        let threads: Vec<PlacedTarget<'_>> =
            threads.map(|spot| PlacedTarget { name: spot.name.clone(), ..*spot }).collect();
        if threads.is_empty() && !spots.is_empty() { vec![PlacedTarget::everybody(cpu)] } else { threads }
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
