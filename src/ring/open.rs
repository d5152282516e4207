//! Opening events that write into one ring. The ring belongs to an event that never fires: it reports besides what threads
//! do, and the others may come and go.
//!
//! Whoever runs on the CPU is looked at, or what runs in cgroups, or threads with all that they start. The first two need
//! the right to look at CPUs. Threads have events of their own, on every CPU, which the kernel opens for children as
//! well: so exactly they are looked at, however short a child lives, and whoever may trace them may do so.

use std::os::fd::AsFd;

use crate::error::Errno;
use crate::event::Event as Named;
use crate::health::{Attempt, Board, Cause, Judgement, Refusal, Scope, classify, no_descriptors};
use crate::host::{Facts, Roots};
use crate::probe::tracefs;
use crate::sys::{Attr, Budget, Event, Inherit, Kernel, Place, Start};
use crate::target::Whom;

use super::id::RingId;
use super::set::{Made, RingSet, Writers};

/// `PERF_COUNT_SW_DUMMY`: counts nothing, and tells of what its sideband asks for.
pub(crate) const DUMMY: u64 = 9;

/// What opening needs besides the events.
pub(crate) struct Context<'a, K> {
    pub(crate) kernel: &'a K,
    pub(crate) facts: &'a Facts,
    pub(crate) roots: &'a Roots,
    pub(crate) budget: &'a mut Budget,
    pub(crate) board: &'a mut Board,
}

/// What is to write into a ring.
pub(crate) struct Request<'a, T> {
    /// The event that has the ring, as it is opened. If the kernel does not know a field of the first one, the next is tried.
    pub(crate) holders: Vec<Attr>,
    /// How each event is opened, and what its records are for.
    pub(crate) events: Vec<(Attr, &'a Named, T)>,
}

/// A refused event.
#[derive(Debug)]
pub(crate) struct Refused<T> {
    /// What its records were to be for; `None` = all events of the ring.
    pub(crate) event: Option<T>,
    pub(crate) refusal: Refusal,
}

/// Events of a CPU that write into one ring.
#[derive(Debug)]
pub(crate) struct Tapped<E, T> {
    holder: E,
    /// What reports of further threads the same as the holder.
    tellers: Vec<E>,
    pub(crate) events: Vec<Tap<E, T>>,
    start: Start,
    /// What they look at is looked at in children as well, by events that nobody can reach.
    pub(crate) inherited: bool,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Tap<E, T> {
    pub(crate) event: E,
    /// The number that its records bear.
    pub(crate) id: u64,
    /// What its records are for.
    pub(crate) of: T,
}

impl<E: Event, T> Writers for Tapped<E, T> {
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

    /// Those that begin with an `execve` are left to it.
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

impl<E: Event, T> Tapped<E, T> {
    /// The events, to be closed.
    pub(crate) fn into_events(self) -> impl Iterator<Item = E> {
        std::iter::once(self.holder).chain(self.tellers).chain(self.events.into_iter().map(|tap| tap.event))
    }

    /// Lets none write any more.
    pub(crate) fn stop(&self) {
        for event in self.all() {
            if let Err(errno) = event.disable() {
                tracing::debug!(%errno, "an event goes on until it is closed");
            }
        }
    }

    /// How often the events that `counts` chooses were hit so far, whether their records found room or not: they count with a
    /// period of 1.
    pub(crate) fn hits(&self, counts: impl Fn(&T) -> bool) -> u64 {
        let count = |event: &E| {
            let mut words = [0; 4];
            // Number of members, two times, the count. Where it cannot be read, what the kernel tells of losses is left.
            event.read(&mut words).map_or(0, |length| if length == words.len() { words[3] } else { 0 })
        };
        self.events.iter().filter(|tap| counts(&tap.of)).map(|tap| count(&tap.event)).sum()
    }

    fn all(&self) -> impl Iterator<Item = &E> {
        std::iter::once(&self.holder).chain(self.others())
    }
}

/// What was opened for a ring, and what was refused.
type Events<E, T> = (Option<Tapped<E, T>>, Vec<Refused<T>>);

/// What was opened for a ring, the ring, and what was refused.
pub(crate) type Opened<E, T> = (Option<(Tapped<E, T>, Made<<E as Event>::Ring>)>, Vec<Refused<T>>);

impl<E: Event, T: Copy> RingSet<Tapped<E, T>> {
    /// Opens what is requested for `whom`, and makes a ring of `pages` pages or of the most that the kernel gives; nothing writes
    /// yet. `None` if nobody of `whom` is looked at on the CPU, or nothing could be opened. Threads that have ended meanwhile are
    /// left out without a word.
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
    let spots = Spot::all(whom, cpu);
    if spots.is_empty() || request.events.is_empty() {
        return (None, refused);
    }
    let tellers = Spot::tellers(&spots, cpu);
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
            // A thread that has ended, or a CPU that is about to go and is still in the list of CPUs.
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
                Ok((id, event)) => events.push(Tap { event, id, of }),
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
    let tapped = Tapped { holder, tellers: told.collect(), events, start, inherited };
    context.budget.take(tapped.descriptors());
    (Some(tapped), refused)
}

fn open_teller<K: Kernel>(kernel: &K, spot: &Spot<'_>, holders: &[Attr]) -> Result<K::Event, Errno> {
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

/// Somebody who is looked at on a CPU.
struct Spot<'w> {
    place: Place<'w>,
    scope: Scope,
    inherit: Inherit,
    start: Start,
    name: String,
}

impl<'w> Spot<'w> {
    /// Whoever runs there.
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

    /// Where each of `whom` is found on a CPU.
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

    /// Those that tell what happens besides: of threads each by itself, else the CPU as a whole.
    fn tellers(spots: &[Self], cpu: u32) -> Vec<Spot<'_>> {
        let threads = spots.iter().filter(|spot| spot.scope == Scope::Process);
        let threads: Vec<Spot<'_>> = threads.map(|spot| Spot { name: spot.name.clone(), ..*spot }).collect();
        if threads.is_empty() && !spots.is_empty() { vec![Spot::everybody(cpu)] } else { threads }
    }

    /// What the kernel's refusal of an event means.
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

/// Whether it is the filter that the kernel does not take, for without it the event opens; with its own words.
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
    let said = said.map(|said| format!("; it says: {}", said.trim_end())).unwrap_or_default();
    let reason = format!("the kernel does not take the filter {filter:?} ({errno}){said}");
    Some(Judgement { cause: Cause::Broken, reason, remedy: None })
}

#[cfg(test)]
mod tests;
