//! The records of a perf.data file in the order of time.
//!
//! perf reads the rings in rounds. When a round is finished, all records up to the latest of the round before are complete
//! (`tools/perf/util/ordered-events.c`). Without rounds, records are sorted within [`LIMIT`] bytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perf_event_open_sys::bindings as abi;

use super::header::{Attribute, Header};
use super::sample;
use super::stream::{FINISHED_ROUND, Raw, Stream};
use crate::recording::Invalid;

/// Maximum size of the queued records in bytes.
const LIMIT: usize = 256 << 20;
/// The memory of a queued record without its bytes.
const QUEUED: usize = 64;

/// A record, its event and its time. Records that perf added have no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) raw: Raw,
    pub(super) event: Option<usize>,
    pub(super) time: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Queued {
    number: u64,
    record: Record,
}

impl Queued {
    fn key(&self) -> (u64, u64) {
        (self.record.time, self.number)
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Sorts the records.
pub(super) struct Sorted<'f> {
    pub(super) stream: Stream<'f>,
    queue: BinaryHeap<Reverse<Queued>>,
    bytes: usize,
    number: u64,
    /// The time up to which records are complete; the latest time of the last round; the latest time.
    complete: u64,
    round: u64,
    latest: u64,
    /// Whether the queue is being reduced because it reached the limit.
    full: bool,
    ended: bool,
    /// Samples with an unknown id.
    pub(super) unknown: u64,
}

impl<'f> Sorted<'f> {
    pub(super) fn new(stream: Stream<'f>) -> Self {
        Self {
            stream,
            queue: BinaryHeap::new(),
            bytes: 0,
            number: 0,
            complete: 0,
            round: 0,
            latest: 0,
            full: false,
            ended: false,
            unknown: 0,
        }
    }

    /// Returns the next record.
    pub(super) fn next(&mut self, header: &Header) -> Result<Option<Record>, Invalid> {
        loop {
            if let Some(record) = self.pop() {
                return Ok(Some(record));
            }
            if self.ended {
                return Ok(None);
            }
            let Some(raw) = self.stream.next()? else {
                self.ended = true;
                continue;
            };
            if raw.kind == FINISHED_ROUND {
                if !self.stream.is_compressed() {
                    (self.complete, self.round) = (self.round, self.latest);
                }
                continue;
            }
            let Some(record) = self.identified(raw, header) else { continue };
            // Records of what existed before the recording have no time.
            if matches!(record.time, 0 | u64::MAX) {
                return Ok(Some(record));
            }
            self.push(record);
        }
    }

    fn push(&mut self, record: Record) {
        self.latest = self.latest.max(record.time);
        self.bytes += QUEUED + record.raw.body.len();
        self.full |= self.bytes > LIMIT;
        self.number += 1;
        self.queue.push(Reverse(Queued { number: self.number, record }));
    }

    fn pop(&mut self) -> Option<Record> {
        let time = self.queue.peek()?.0.record.time;
        if !self.ended && !self.full && time > self.complete {
            return None;
        }
        let record = self.queue.pop()?.0.record;
        self.bytes -= QUEUED + record.raw.body.len();
        self.full &= self.bytes > LIMIT / 2;
        Some(record)
    }

    /// Determines the event and the time of a record; `None` for records of perf that are not used, and samples of unknown events.
    fn identified(&mut self, raw: Raw, header: &Header) -> Option<Record> {
        /// First kind of records that perf adds.
        const ADDED: u32 = 64;
        if raw.kind >= ADDED {
            return None;
        }
        let first = header.attributes.first()?;
        let is_sample = raw.kind == abi::PERF_RECORD_SAMPLE;
        let id = match is_sample {
            true => sample::id(&raw.body, first, header.big),
            false => sample::identity(&raw.body, first, header.big).id,
        };
        let found = id.and_then(|id| header.ids.get(&id).copied());
        let event = match found {
            Some(event) => event,
            None if header.attributes.len() == 1 || !is_sample => 0,
            None => {
                self.unknown += 1;
                return None;
            }
        };
        let attribute: &Attribute = header.attributes.get(event)?;
        let time = match is_sample {
            true => sample::time(&raw.body, attribute, header.big),
            false => sample::identity(&raw.body, attribute, header.big).time,
        };
        Some(Record { raw, event: Some(event), time: time.unwrap_or(0) })
    }
}
