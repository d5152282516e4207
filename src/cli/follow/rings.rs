//! The rings of all CPUs, merged in order of time.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::{Failure, Session, Source, StreamItem};
use crate::cli::observe::rings::{self, OpenRings};
use crate::error::Errno;
use crate::health::Refusal;
use crate::host::CpuSet;
use crate::ring::{
    DUMMY, Losses, Malformed, Merger, Reader, Record, Request, RingId, RingSet, RingWriters, is_sample,
    time_of,
};
use crate::sys::scheduling::Urgency;
use crate::sys::{Attr, Event, Fields, Kernel, Rate, Ring, Sampling, Sideband, Start};
use crate::targets::OpenTarget;

/// Maximum bytes of a ring per CPU, sufficient for about one second of a busy CPU.
const RING: usize = 4 << 20;

/// The same for records with copies of stacks.
const STACK_RING: usize = 16 << 20;

/// How records of an event are interpreted.
#[derive(Debug, Clone, Copy)]
struct RecordSource {
    /// Index of the source.
    source: usize,
    /// The fields of its records.
    fields: Fields,
    /// Whether the counter of the event counts exactly the hits that it writes records of.
    counts_hits: bool,
}

/// The open events and rings.
#[derive(Debug)]
pub(super) struct Rings<E: Event> {
    opened: RingSet<RingWriters<E, RecordSource>>,
    rings: BTreeMap<u32, E::Ring>,
    /// Event by the identifier in its records.
    sources: FxHashMap<u64, RecordSource>,
    fields: Fields,
    merger: Merger,
    losses: Losses,
    /// Number of records read of events whose hits are counted.
    read: u64,
    refusals: Vec<Refusal>,
}

impl<E: Event> Rings<E> {
    /// Opens all events that can be opened. They are disabled.
    ///
    /// # Errors
    /// If no event can be opened.
    pub(super) fn open<K: Kernel<Event = E>>(
        session: &Session<'_, K>,
        open_targets: &[OpenTarget],
        cpus: &CpuSet,
    ) -> Result<Self, Failure> {
        let open = |_cpu| request(session);
        let copies = session.sources.iter().any(|source| fields(session, source).user_stack > 0);
        let most = if copies { STACK_RING } else { RING };
        let OpenRings { opened, rings, refusals } =
            OpenRings::open(session.host, "records", open_targets, cpus, most, open);
        let sources = opened.writers().flat_map(|(_, writers)| &writers.events);
        let sources = sources.map(|writer| (writer.id, writer.of)).collect();
        let (fields, merger, losses) = (session.fields, Merger::default(), Losses::default());
        let found = Self { opened, rings, sources, fields, merger, losses, read: 0, refusals };
        if found.rings.is_empty() { Err(Failure::Nothing(found.refusals)) } else { Ok(found) }
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

    /// Enables the events.
    pub(super) fn start(&self) -> Result<(), Errno> {
        rings::start(&self.opened)
    }

    /// Disables the events.
    pub(super) fn stop(&self) {
        self.opened.writers().for_each(|(_, writers)| writers.stop());
    }

    /// Passes the records of all CPUs before `until` to `each`, in order of time.
    pub(super) fn drain(&mut self, until: u64, each: &mut impl FnMut(StreamItem<'_>)) {
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
                each(StreamItem::Gap);
            }
        }
        losses.late += self.merger.late() - late;
        let (sources, read) = (&self.sources, &mut self.read);
        self.merger.flush(until, |RingId { cpu, .. }, record| {
            let time = time_of(record, fields).unwrap_or_default();
            let source = identifier(record).and_then(|id| sources.get(&id));
            match Record::parse(record, source.map_or(fields, |source| &source.fields)) {
                Ok(Record::Sample(sample)) => match source {
                    Some(&RecordSource { source, counts_hits, .. }) => {
                        *read += u64::from(counts_hits);
                        each(StreamItem::Hit { source, cpu, sample });
                    }
                    None => losses.unreadable += 1,
                },
                Ok(Record::Lost { count, .. } | Record::LostSamples { count }) => {
                    losses.ring_full = losses.ring_full.saturating_add(count);
                    each(StreamItem::Gap);
                }
                Ok(record) => each(StreamItem::Besides { cpu, time, record }),
                Err(Malformed) => {
                    losses.unreadable += 1;
                    // The record was read, therefore it must not count as lost because the ring was full.
                    *read += u64::from(is_sample(record));
                }
            }
        });
    }

    /// Returns losses and refusals. The kernel reports losses only before the next record that fits into the ring, and that record may
    /// never come. Each event also counts its hits, therefore the number of lost records is known.
    pub(super) fn finish(self) -> (Losses, Vec<Refusal>) {
        let hits = |writers: &RingWriters<E, RecordSource>| writers.hits(|writer| writer.counts_hits);
        let hits: u64 = self.opened.writers().map(|(_, writers)| hits(writers)).sum();
        let ring_full = self.losses.ring_full.max(hits.saturating_sub(self.read));
        (Losses { ring_full, ..self.losses }, self.refusals)
    }
}

/// Returns the events to open on each CPU.
fn request<'s, K>(session: &Session<'s, K>) -> Request<'s, RecordSource> {
    let sampling = |fields, sideband| Sampling { rate: Rate::Period(1), fields, sideband, ordered: true };
    let events = session.sources.iter().enumerate().map(|(place, source)| {
        let (event, fields) = (&source.event, fields(session, source));
        // On some kernels, scheduler events on an idle CPU are counted but write no records. That is not a loss.
        let counts_hits = !event.counts_amounts() && !event.name.starts_with("sched:");
        let writer = RecordSource { source: place, fields, counts_hits };
        (Attr::sampling(event, sampling(fields, Sideband::default())), event, writer)
    });
    let holder = Attr::software(DUMMY, Some(sampling(session.fields, session.sideband)), Start::Later);
    Request { holders: vec![holder], events: events.collect() }
}

/// Returns the fields of the records of a source.
fn fields<K>(session: &Session<'_, K>, source: &Source) -> Fields {
    source.fields.unwrap_or(session.fields)
}

/// Returns the identifier of the event that wrote a sample. It is the first field of the sample.
fn identifier(record: &[u8]) -> Option<u64> {
    let id = record.get(size_of::<u64>()..)?.first_chunk().filter(|_| is_sample(record))?;
    Some(u64::from_ne_bytes(*id))
}
