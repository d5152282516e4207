//! The rings of all CPUs, read in the order of what stands in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::{Failure, Heard, Session, Source};
use crate::error::Errno;
use crate::health::{Board, Refusal};
use crate::host::CpuSet;
use crate::ring::{
    Context, DUMMY, Losses, Malformed, Merger, Reader, Record, Request, RingId, RingSet, Tapped, Writers,
    is_sample, time_of,
};
use crate::sys::scheduling::Urgency;
use crate::sys::{Attr, Budget, Event, Fields, Kernel, Rate, Ring, Sampling, Sideband, Start, usage};
use crate::target::Whom;

/// Memory for the ring of a CPU, in bytes, and for those of all: what a second of a busy CPU takes.
const RING: usize = 4 << 20;
const RINGS: usize = 256 << 20;

/// Descriptors that are kept for files.
const FILES: usize = 16;

/// What the records of an event are.
#[derive(Debug, Clone, Copy)]
struct Tap {
    /// The place among the sources.
    source: usize,
    /// Whether the event counts the hits that it writes records of.
    counts_hits: bool,
}

/// What is open.
#[derive(Debug)]
pub(super) struct Rings<E: Event> {
    opened: RingSet<Tapped<E, Tap>>,
    rings: BTreeMap<u32, E::Ring>,
    /// By the number that records bear.
    sources: FxHashMap<u64, Tap>,
    fields: Fields,
    merger: Merger,
    losses: Losses,
    /// Hits that were read of those that are counted.
    read: u64,
    refusals: Vec<Refusal>,
}

impl<E: Event> Rings<E> {
    /// Opens everything that can be opened; nothing is written yet.
    ///
    /// # Errors
    /// When nothing can be.
    pub(super) fn open<K: Kernel<Event = E>>(
        session: &Session<'_, K>,
        whom: &[Whom],
        cpus: &CpuSet,
    ) -> Result<Self, Failure> {
        let host = session.host;
        let mut budget = Budget::new(usage::raise_descriptor_limit(), FILES, None);
        let mut board = Board::default();
        let mut context = Context {
            kernel: host.kernel,
            facts: host.facts(),
            roots: host.roots,
            budget: &mut budget,
            board: &mut board,
        };
        let mut found = Self {
            opened: RingSet::new("records"),
            rings: BTreeMap::new(),
            sources: FxHashMap::default(),
            fields: session.fields,
            merger: Merger::default(),
            losses: Losses::default(),
            read: 0,
            refusals: Vec::new(),
        };
        let pages = pages(cpus.len());
        for ring in cpus.iter().map(RingId::of_cpu) {
            let (opened, refused) = found.opened.open(ring, whom, request(session), pages, &mut context);
            found.refusals.extend(refused.into_iter().map(|refused| refused.refusal));
            let Some((tapped, made)) = opened else { continue };
            found.sources.extend(tapped.events.iter().map(|tap| (tap.id, tap.of)));
            let memory = found.opened.add(ring, tapped, made);
            found.rings.insert(ring.cpu, memory);
        }
        match found.rings.is_empty() {
            true => Err(Failure::Nothing(found.refusals)),
            false => Ok(found),
        }
    }

    /// Notifies `ready` when a ring has records to read.
    pub(super) fn listen(&mut self, ready: &Arc<Notify>) {
        for ring in self.opened.ids() {
            let ready = Arc::clone(ready);
            self.opened.listen(ring, || {
                Reader::start("ring-waker", None, Urgency::Raised, move |_| ready.notify_one())
            });
        }
    }

    /// Lets the events write.
    pub(super) fn start(&self) -> Result<(), Errno> {
        self.opened.writers().try_for_each(|(_, tapped)| tapped.start())
    }

    /// Lets none write any more.
    pub(super) fn stop(&self) {
        self.opened.writers().for_each(|(_, tapped)| tapped.stop());
    }

    /// Reads what was written on all CPUs before `until`, in order.
    pub(super) fn drain(&mut self, until: u64, each: &mut impl FnMut(Heard<'_>)) {
        let (fields, losses) = (&self.fields, &mut self.losses);
        let late = self.merger.late();
        for (&cpu, ring) in &mut self.rings {
            let merger = &mut self.merger;
            let drained = ring.drain(|record| match time_of(record, fields) {
                Some(time) => merger.push(RingId::of_cpu(cpu), time, record),
                None => losses.unreadable += 1,
            });
            if drained.torn {
                losses.unreadable += 1;
                each(Heard::Gap);
            }
        }
        losses.late += self.merger.late() - late;
        let (sources, read) = (&self.sources, &mut self.read);
        self.merger.flush(until, |RingId { cpu, .. }, record| {
            let time = time_of(record, fields).unwrap_or_default();
            match Record::parse(record, fields) {
                Ok(Record::Sample(sample)) => match sources.get(&sample.identifier) {
                    Some(&Tap { source, counts_hits }) => {
                        *read += u64::from(counts_hits);
                        each(Heard::Hit { source, cpu, sample });
                    }
                    None => losses.unreadable += 1,
                },
                Ok(Record::Lost { count, .. } | Record::LostSamples { count }) => {
                    losses.ring_full = losses.ring_full.saturating_add(count);
                    each(Heard::Gap);
                }
                Ok(record) => each(Heard::Besides { cpu, time, record }),
                Err(Malformed) => {
                    losses.unreadable += 1;
                    // It counts as read: it was not lost for want of room.
                    *read += u64::from(is_sample(record));
                }
            }
        });
    }

    /// What was lost and refused. The kernel tells of losses only in front of the next record that finds room, which may
    /// not have come; but events count each hit, so that what was not read is known.
    pub(super) fn finish(self) -> (Losses, Vec<Refusal>) {
        let hits = |tapped: &Tapped<E, Tap>| tapped.hits(|tap| tap.counts_hits);
        let hits: u64 = self.opened.writers().map(|(_, tapped)| hits(tapped)).sum();
        let ring_full = self.losses.ring_full.max(hits.saturating_sub(self.read));
        (Losses { ring_full, ..self.losses }, self.refusals)
    }
}

/// What is opened on each CPU.
fn request<'s, K>(session: &Session<'s, K>) -> Request<'s, Tap> {
    let sampling =
        |sideband| Sampling { rate: Rate::Period(1), fields: session.fields, sideband, ordered: true };
    let events = session.sources.iter().enumerate().map(|(place, Source { event, .. })| {
        // What the scheduler does while a CPU is idle, some kernels count and write no records of, which is no loss of ours.
        let counts_hits = !event.counts_amounts() && !event.name.starts_with("sched:");
        let tap = Tap { source: place, counts_hits };
        (Attr::sampling(event, sampling(Sideband::default())), event, tap)
    });
    let holder = Attr::software(DUMMY, Some(sampling(session.sideband)), Start::Later);
    Request { holders: vec![holder], events: events.collect() }
}

/// Pages of the ring of each of so many CPUs: a power of two.
fn pages(cpus: usize) -> usize {
    let bytes = RING.min(RINGS / cpus.max(1));
    let pages = (bytes / rustix::param::page_size()).max(1);
    1 << pages.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_share_what_there_is_in_powers_of_two() {
        let page = rustix::param::page_size();
        assert_eq!(pages(2) * page, RING);
        assert_eq!(pages(100) * page, 2 << 20);
        assert_eq!(pages(1 << 30), 1);
    }
}
