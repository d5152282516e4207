//! The rings of all CPUs, read in the order of what stands in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::open::{self, Opened};
use super::{Failure, Heard, Losses, Session};
use crate::counter::Whom;
use crate::error::Errno;
use crate::health::{Board, Refusal};
use crate::host::CpuSet;
use crate::ring::{Malformed, Merger, Reader, Record, room, time_of};
use crate::sys::{Budget, Event, Fields, Kernel, Ring, usage};
use crate::tracepoint::Context;

/// Memory for the ring of a CPU, in bytes, and for those of all: what a second of a busy CPU takes.
const RING: usize = 4 << 20;
const RINGS: usize = 256 << 20;

/// Descriptors that are kept for files.
const FILES: usize = 16;

/// What is open.
#[derive(Debug)]
pub(super) struct Rings<E: Event> {
    opened: BTreeMap<u32, Opened<E>>,
    rings: BTreeMap<u32, E::Ring>,
    /// Where an event stands among the sources, and whether it counts hits, by the number that its records bear.
    sources: FxHashMap<u64, (usize, bool)>,
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
            facts: host.facts,
            roots: host.roots,
            budget: &mut budget,
            board: &mut board,
        };
        let mut found = Self {
            opened: BTreeMap::new(),
            rings: BTreeMap::new(),
            sources: FxHashMap::default(),
            fields: session.fields,
            merger: Merger::default(),
            losses: Losses::default(),
            read: 0,
            refusals: Vec::new(),
        };
        let pages = pages(cpus.len());
        for cpu in cpus.iter() {
            let what = (session.fields, session.sideband);
            let (opened, refused) = open::open(cpu, session.sources, what, whom, &mut context);
            found.refusals.extend(refused);
            let Some(opened) = opened else { continue };
            match opened.make_ring(pages) {
                Ok(ring) => found.rings.insert(cpu, ring),
                Err(errno) => {
                    let judgement = room::refused(errno);
                    let refusal = judgement.refusal(&"records".into(), format!("cpu {cpu}"), Some(errno));
                    found.refusals.push(refusal);
                    continue;
                }
            };
            for event in opened.events() {
                let counts_hits = session.sources.get(event.source).is_some_and(open::counts_hits);
                found.sources.insert(event.id, (event.source, counts_hits));
            }
            found.opened.insert(cpu, opened);
        }
        match found.rings.is_empty() {
            true => Err(Failure::Nothing(found.refusals)),
            false => Ok(found),
        }
    }

    /// Wakes `half_full` whenever a ring is, as long as what it gives lives.
    pub(super) fn listen(&self, half_full: Arc<Notify>) -> Result<Reader, Failure> {
        let reader = super::reader(half_full)?;
        for (&cpu, opened) in &self.opened {
            let Some(descriptor) = opened.holder.descriptor() else { continue };
            if let Err(errno) = reader.listen(descriptor, u64::from(cpu)) {
                tracing::warn!(cpu, %errno, "its ring is emptied ten times a second and not when it is half full");
            }
        }
        Ok(reader)
    }

    /// Lets the events write.
    pub(super) fn start(&self) -> Result<(), Errno> {
        self.opened.values().try_for_each(Opened::start)
    }

    /// Lets none write any more.
    pub(super) fn stop(&self) {
        self.opened.values().for_each(Opened::stop);
    }

    /// Reads what was written on all CPUs before `until`, in order.
    pub(super) fn drain(&mut self, until: u64, each: &mut impl FnMut(Heard<'_>)) {
        let (fields, losses) = (&self.fields, &mut self.losses);
        let late = self.merger.late();
        for (&cpu, ring) in &mut self.rings {
            let merger = &mut self.merger;
            let drained = ring.drain(|record| match time_of(record, fields) {
                Some(time) => merger.push(cpu, time, record),
                None => losses.unreadable += 1,
            });
            if drained.torn {
                losses.unreadable += 1;
                each(Heard::Gap);
            }
        }
        losses.late += self.merger.late() - late;
        let (sources, read) = (&self.sources, &mut self.read);
        self.merger.flush(until, |cpu, record| {
            let time = time_of(record, fields).unwrap_or_default();
            match Record::parse(record, fields) {
                Ok(Record::Sample(sample)) => match sources.get(&sample.identifier) {
                    Some(&(source, counts_hits)) => {
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
                    let kind = record.first_chunk().map(|&kind| u32::from_ne_bytes(kind));
                    *read += u64::from(kind == Some(PERF_RECORD_SAMPLE));
                }
            }
        });
    }

    /// What was lost and refused. The kernel tells of losses only in front of the next record that finds room, which may
    /// not have come; but events count each hit, so that what was not read is known.
    pub(super) fn finish(self) -> (Losses, Vec<Refusal>) {
        let hits: u64 = self.opened.values().map(Opened::hits).sum();
        let ring_full = self.losses.ring_full.max(hits.saturating_sub(self.read));
        (Losses { ring_full, ..self.losses }, self.refusals)
    }
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
