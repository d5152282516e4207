//! Opening the events of one CPU: all of them write into one ring, which an event that never fires holds.

use super::Source;
use crate::counter::Whom;
use crate::error::Errno;
use crate::event::{Kind, Modifiers};
use crate::health::Refusal;
use crate::profile::Spot;
use crate::ring::room;
use crate::sys::{Attr, Event, Fields, Kernel, Rate, Sampling, Sideband, Start};
use crate::tracepoint::Context;

/// `PERF_COUNT_SW_DUMMY`: counts nothing, and tells of what its sideband asks for.
const DUMMY: u64 = 9;

/// A ring's events on one CPU.
#[derive(Debug)]
pub(super) struct Opened<E> {
    pub(super) holder: E,
    /// What tells of further threads the same as the holder.
    tellers: Vec<E>,
    events: Vec<OpenEvent<E>>,
    /// What it takes to let them write.
    start: Start,
}

/// One of them.
#[derive(Debug)]
pub(super) struct OpenEvent<E> {
    event: E,
    /// The number that its records bear.
    pub(super) id: u64,
    /// Its place among the sources.
    pub(super) source: usize,
    /// Whether it counts hits, and not how much there was.
    counts_hits: bool,
}

impl<E: Event> Opened<E> {
    pub(super) fn events(&self) -> &[OpenEvent<E>] {
        &self.events
    }

    /// Makes a ring of `wanted` pages, or of the most that the kernel gives, and lets all events write into it.
    pub(super) fn make_ring(&self, wanted: usize) -> Result<E::Ring, Errno> {
        let (ring, _) = room::make(&self.holder, wanted)?;
        let mut others = self.tellers.iter().chain(self.events.iter().map(|open| &open.event));
        others.try_for_each(|event| event.write_to(&self.holder))?;
        Ok(ring)
    }

    fn all(&self) -> impl Iterator<Item = &E> {
        let tellers = std::iter::once(&self.holder).chain(&self.tellers);
        tellers.chain(self.events.iter().map(|open| &open.event))
    }

    /// Lets all events write, but for those that begin with an `execve`.
    pub(super) fn start(&self) -> Result<(), Errno> {
        if self.start == Start::OnExec { Ok(()) } else { self.all().try_for_each(Event::enable) }
    }

    /// Lets none write any more.
    pub(super) fn stop(&self) {
        for event in self.all() {
            if let Err(errno) = event.disable() {
                tracing::debug!(%errno, "an event goes on until it is closed");
            }
        }
    }

    /// How many hits there were for those events that count them, whether their records found room or not.
    pub(super) fn hits(&self) -> u64 {
        let counted = self.events.iter().filter(|open| open.counts_hits);
        let count = |open: &OpenEvent<E>| {
            let mut words = [0; 4];
            // Number of members, two times, the count. Where it cannot be read, what the kernel tells of losses is left.
            open.event.read(&mut words).map_or(0, |length| if length == words.len() { words[3] } else { 0 })
        };
        counted.map(count).sum()
    }
}

/// Whether a source counts the hits that it writes records of. What the scheduler does while a CPU is idle, some kernels
/// count and write no records of, which is no loss of ours.
pub(super) fn counts_hits(source: &Source) -> bool {
    !source.event.counts_amounts() && !source.event.name.starts_with("sched:")
}

/// Opens the sources on a CPU; nothing writes yet. `None` if none of them is for it, or could be opened. Threads that
/// have ended meanwhile are left out without a word.
pub(super) fn open<K: Kernel>(
    cpu: u32,
    sources: &[Source],
    (fields, sideband): (Fields, Sideband),
    whom: &[Whom],
    context: &mut Context<'_, K>,
) -> (Option<Opened<K::Event>>, Vec<Refusal>) {
    let mut refused = Vec::new();
    let spots = Spot::all(whom, cpu);
    if spots.is_empty() {
        return (None, refused);
    }
    let tellers = Spot::tellers(&spots, cpu);
    let wanted = tellers.len() + spots.len() * sources.len();
    if !context.budget.has_room_for(wanted) {
        refused.push(context.no_room("records", cpu));
        return (None, refused);
    }
    let sampling = |sideband| Sampling { rate: Rate::Period(1), fields, sideband, ordered: true };
    let mut told = Vec::new();
    for spot in &tellers {
        let (inherit, modifiers) = (spot.inherit, Modifiers::default());
        let attr = Attr { inherit, modifiers, ..Attr::software(DUMMY, Some(sampling(sideband)), spot.start) };
        match context.kernel.open(&attr, spot.place, None) {
            Ok(event) => told.push(event),
            Err(Errno::ESRCH) => {}
            Err(errno) => refused.push(spot.refusal(("dummy", Kind::Software, false), errno, context)),
        }
    }
    let mut told = told.into_iter();
    let Some(holder) = told.next() else { return (None, refused) };
    let mut events = Vec::new();
    for (place, source) in sources.iter().enumerate() {
        for spot in &spots {
            let (inherit, start) = (spot.inherit, spot.start);
            let attr =
                Attr { inherit, start, ..Attr::sampling(&source.event, sampling(Sideband::default())) };
            let opened = context.kernel.open(&attr, spot.place, None);
            match opened.and_then(|event| Ok((event.id()?, event))) {
                Ok((id, event)) => {
                    events.push(OpenEvent { event, id, source: place, counts_hits: counts_hits(source) });
                }
                Err(Errno::ESRCH) => {}
                Err(errno) => {
                    let what = (&*source.event.name, source.event.kind, false);
                    refused.push(spot.refusal(what, errno, context));
                }
            }
        }
    }
    if events.is_empty() {
        return (None, refused);
    }
    context.budget.take(wanted);
    let start = spots.first().map_or(Start::Later, |spot| spot.start);
    (Some(Opened { holder, tellers: told.collect(), events, start }), refused)
}
