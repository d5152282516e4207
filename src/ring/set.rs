//! The rings of one kind of record on all CPUs, with the events that write into them, their sizes, and the thread that reads them.

use std::collections::BTreeMap;
use std::io;

use crate::error::Errno;
use crate::health::{Board, Judgement, Ticket};
use crate::host::CpuSet;
use crate::sys::{Drained, Event, WAKE_UP};

use super::reader::Waker;
use super::{Reader, RingBudget, RingId, memory};

/// Events of a CPU that write into one ring.
pub(crate) trait Writers {
    /// The type of the open events.
    type Event: Event;

    /// Returns the event that the ring belongs to.
    fn holder(&self) -> &Self::Event;

    /// Returns all other events that write into it.
    fn others(&self) -> impl Iterator<Item = &Self::Event>;

    /// Returns the number of descriptors.
    fn descriptors(&self) -> usize;

    /// Starts the events.
    ///
    /// # Errors
    /// The errno of the first event that does not start. The others are started.
    fn start(&self) -> Result<(), Errno>;
}

/// The memory of the ring of an event.
type Memory<W> = <<W as Writers>::Event as Event>::Ring;

/// The consumer of the records of a set of rings.
pub(crate) trait Consumer<R> {
    /// Reads the remaining records of a ring, and drops it. Its events continue.
    fn remove(&mut self, ring: RingId);

    /// Reads this ring from now on.
    fn add(&mut self, ring: RingId, memory: R);

    /// Returns the usage of a ring since the last call.
    fn usage(&mut self, ring: RingId) -> Usage;
}

/// Usage of a ring, to determine whether its size suffices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// Number of records lost in the ring, and in the rings that it replaced.
    pub(crate) lost: u64,
    /// Maximum number of bytes found in it since the last call.
    pub(crate) most: usize,
}

impl Usage {
    /// Accounts a read of the ring.
    pub(crate) fn read(&mut self, drained: Drained) {
        self.most = self.most.max(drained.bytes);
    }

    /// Returns the usage for [`Consumer::usage`], and resets the maximum.
    pub(crate) fn take(&mut self) -> Self {
        Self { most: std::mem::take(&mut self.most), ..*self }
    }
}

/// Size of a ring.
#[derive(Debug, Clone, Copy)]
struct Size {
    pages: usize,
    /// Whether the kernel allows no larger ring.
    largest: bool,
    /// Whether a warning of losses at the maximum of the budget was logged.
    warned: bool,
    /// Number of lost records at the last check.
    lost: u64,
}

impl Size {
    fn bytes(self) -> usize {
        self.pages * rustix::param::page_size()
    }

    /// Reports whether it may be full before the reader is woken up.
    fn is_small(self) -> bool {
        // If the kernel allowed less than was planned, the reader is woken up for a larger ring.
        self.bytes() < if self.largest { 2 * WAKE_UP } else { WAKE_UP }
    }
}

/// The events and the size of one ring.
#[derive(Debug)]
struct OpenRing<W> {
    writers: W,
    size: Size,
}

/// The rings of one kind of record.
#[derive(Debug)]
pub(crate) struct RingSet<W> {
    /// Name of the records in messages and refusals, in the plural.
    pub(super) records: &'static str,
    rings: BTreeMap<RingId, OpenRing<W>>,
    reader: Option<Reader>,
    pub(crate) budget: RingBudget,
    /// Tickets of refusals, by ring.
    refused: Vec<(RingId, Ticket)>,
}

/// A ring that was created, for writers that are not in the set yet.
#[derive(Debug)]
pub(crate) struct CreatedRing<R> {
    pub(crate) memory: R,
    size: Size,
}

impl<W: Writers> RingSet<W> {
    /// Returns an empty set. `records` is the name of the records, in the plural.
    pub(crate) fn new(records: &'static str) -> Self {
        let budget = RingBudget { most: 1, bound_by_kernel: false };
        Self { records, rings: BTreeMap::new(), reader: None, budget, refused: Vec::new() }
    }

    /// Creates the ring of `writers`, of `wanted` pages or of the maximum that the kernel allows.
    ///
    /// # Errors
    /// The reason why there is none, with the kernel's errno.
    pub(crate) fn make(
        &self,
        writers: &W,
        wanted: usize,
    ) -> Result<CreatedRing<Memory<W>>, (Judgement, Errno)> {
        make(writers, wanted).map_err(|errno| (memory::refused(errno), errno))
    }

    /// Stores `writers` and the size of their ring. Returns the memory of the ring.
    pub(crate) fn add(&mut self, ring: RingId, writers: W, made: CreatedRing<Memory<W>>) -> Memory<W> {
        self.rings.insert(ring, OpenRing { writers, size: made.size });
        made.memory
    }

    /// Wakes the reader up when a ring has [a part](crate::sys::wake_up) of its size in records. Starts the reader by `start` if there is none. Without a reader,
    /// only collections read the rings.
    pub(crate) fn listen(&mut self, ring: RingId, start: impl FnOnce() -> io::Result<Reader>) {
        let (records, cpu) = (self.records, ring.cpu);
        if self.reader.is_none() {
            match start() {
                Ok(reader) => {
                    let (scheduling, thread) = (reader.scheduling(), reader.name().to_owned());
                    if let Some(remedy) = scheduling.remedy() {
                        tracing::info!(thread, %scheduling, "no CPU time is reserved to read {records}; {remedy}");
                    }
                    self.reader = Some(reader);
                }
                Err(error) => tracing::warn!(
                    %error,
                    "cannot start the thread that reads {records}: only collections read them, and rings may overflow in between"
                ),
            }
        }
        let Some((reader, kept)) = self.reader.as_ref().zip(self.rings.get(&ring)) else { return };
        if kept.size.is_small() {
            reader.read_often();
        }
        let descriptor = kept.writers.holder().descriptor();
        if let Some(Err(errno)) = descriptor.map(|event| reader.listen(event, ring)) {
            tracing::warn!(
                cpu,
                %errno,
                "cannot watch a ring of {records}: only collections read it, and it may overflow in between"
            );
        }
    }

    /// Starts the events of a ring.
    pub(crate) fn start(&self, ring: RingId) {
        let (records, cpu) = (self.records, ring.cpu);
        let started = self.rings.get(&ring).map(|kept| kept.writers.start());
        if let Some(Err(errno)) = started {
            tracing::warn!(cpu, %errno, "cannot start an event: some {records} of this CPU are missing");
        }
    }

    /// Removes a ring, and returns its events.
    pub(crate) fn remove(&mut self, ring: RingId) -> Option<W> {
        self.rings.remove(&ring).map(|kept| kept.writers)
    }

    /// Returns a waker of the reader thread, if there is one.
    pub(crate) fn waker(&self) -> Option<Waker> {
        self.reader.as_ref().map(Reader::waker)
    }

    /// Ends the reader thread.
    pub(crate) fn stop_reader(&mut self) {
        self.reader = None;
    }

    /// Returns all rings.
    pub(crate) fn ids(&self) -> Vec<RingId> {
        self.rings.keys().copied().collect()
    }

    /// Returns the rings of CPUs that are not among these.
    pub(crate) fn outside(&self, online: &CpuSet) -> Vec<RingId> {
        self.rings.keys().copied().filter(|ring| !online.contains(ring.cpu)).collect()
    }

    /// Returns the rings that are not open, among the first `numbers` rings of each CPU. Omits rings that could not be opened before.
    pub(crate) fn missing(&self, online: &CpuSet, numbers: u32) -> Vec<RingId> {
        let all = online.iter().flat_map(|cpu| (0..numbers).map(move |number| RingId { cpu, number }));
        let tried = |ring: &RingId| self.refused.iter().any(|(refused, _)| refused == ring);
        all.filter(|ring| !self.rings.contains_key(ring) && !tried(ring)).collect()
    }

    /// Stores the ticket of a refusal on the board.
    pub(crate) fn refuse(&mut self, ring: RingId, ticket: Ticket) {
        self.refused.push((ring, ticket));
    }

    pub(crate) fn has_refusals(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Removes the refusals of CPUs that are not among these from the board.
    pub(crate) fn remove_refusals(&mut self, online: &CpuSet, board: &mut Board) {
        for (_, ticket) in self.refused.extract_if(.., |(ring, _)| !online.contains(ring.cpu)) {
            board.remove(ticket);
        }
    }

    /// Reports whether there are no open rings, and no reader.
    pub(crate) fn is_idle(&self) -> bool {
        self.rings.is_empty() && self.reader.is_none()
    }

    /// Returns the events of all rings, in the order of CPUs.
    pub(crate) fn writers(&self) -> impl Iterator<Item = (RingId, &W)> {
        self.rings.iter().map(|(&ring, kept)| (ring, &kept.writers))
    }

    pub(crate) fn writers_mut(&mut self) -> impl Iterator<Item = (RingId, &mut W)> {
        self.rings.iter_mut().map(|(&ring, kept)| (ring, &mut kept.writers))
    }

    /// Returns the number of descriptors of all events.
    pub(crate) fn descriptors(&self) -> usize {
        self.rings.values().map(|kept| kept.writers.descriptors()).sum()
    }

    /// Enlarges the rings that lost records or were more than half full since the last call, within the memory limit.
    pub(crate) fn grow(&mut self, consumer: &mut impl Consumer<Memory<W>>) {
        let (records, budget) = (self.records, self.budget);
        for (&ring, OpenRing { writers, size }) in &mut self.rings {
            let (cpu, Usage { lost, most }) = (ring.cpu, consumer.usage(ring));
            let lost_more = lost != std::mem::replace(&mut size.lost, lost);
            // The kernel reports losses of a full ring in front of the next record: replacing the ring would discard this report.
            let filled = most > size.bytes() / 2 && most <= size.bytes() / 16 * 15;
            if size.largest || !lost_more && !filled {
                continue;
            }
            // Records come in bursts, so doubling is often not enough.
            let wanted = (size.pages * 4).min(budget.most);
            if wanted <= size.pages {
                if lost_more && !std::mem::replace(&mut size.warned, true) {
                    memory::warn_of_the_largest(records, cpu, size.pages, budget);
                }
                continue;
            }
            // An event has one ring at a time.
            consumer.remove(ring);
            match make(writers, wanted) {
                Ok(made) => {
                    *size = Size { lost, ..made.size };
                    consumer.add(ring, made.memory);
                    let kilobytes = memory::kilobytes(size.pages);
                    tracing::info!(
                        cpu,
                        kilobytes,
                        lost_more,
                        "enlarged a ring of {records} because it was nearly full"
                    );
                }
                Err(errno) => {
                    size.largest = true;
                    tracing::error!(
                        cpu,
                        %errno,
                        "a ring of {records} was nearly full and could not be replaced: records of this CPU are not read until \
                         the program is restarted"
                    );
                }
            }
        }
    }
}

fn make<W: Writers>(writers: &W, wanted: usize) -> Result<CreatedRing<Memory<W>>, Errno> {
    let (memory, pages) = memory::make(writers.holder(), wanted)?;
    writers.others().try_for_each(|event| event.write_to(writers.holder()))?;
    Ok(CreatedRing { memory, size: Size { pages, largest: pages < wanted, warned: false, lost: 0 } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_small_if_its_reader_would_be_woken_up_all_the_time_or_too_late() {
        let pages = WAKE_UP / rustix::param::page_size();
        let is_small = |pages, largest| Size { pages, largest, warned: false, lost: 0 }.is_small();
        assert_eq!([1, pages - 1, pages].map(|pages| is_small(pages, false)), [true, true, false]);
        assert_eq!([pages, 2 * pages - 1, 2 * pages].map(|pages| is_small(pages, true)), [true, true, false]);
    }

    #[test]
    fn usage_has_the_most_bytes_since_the_last_call_and_all_lost_records() {
        let mut usage = Usage { lost: 3, most: 0 };
        for bytes in [8, 64, 16] {
            usage.read(Drained { bytes, torn: false });
        }
        assert_eq!([usage.take(), usage.take()], [64, 0].map(|most| Usage { lost: 3, most }));
    }
}
