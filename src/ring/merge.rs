//! Merging of the records of several rings by time: each CPU has its own ring, and an operation may start on one CPU and end on another.

use super::RingId;
use crate::sys::Fields;
use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;

/// Minimum capacity that the buffers keep, in bytes.
const MAX_RETAINED_CAPACITY: usize = 1 << 20;

/// Queue of records until older records of other rings have arrived.
#[derive(Debug, Default)]
pub struct Merger {
    bytes: Vec<u8>,
    waiting: Vec<Waiting>,
    /// Whether the records from index `gone` on are sorted by time.
    sorted: bool,
    /// Number of records at the front that were already passed on.
    gone: usize,
    /// Time up to which records were passed on.
    given: u64,
    late: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    time: u64,
    ring: RingId,
    at: usize,
    length: usize,
}

impl Merger {
    /// Adds a copy of a record of a ring, which has a time.
    #[inline]
    pub fn push(&mut self, ring: RingId, time: u64, record: &[u8]) {
        self.late += u64::from(time < self.given);
        self.sorted = false;
        self.waiting.push(Waiting { time, ring, at: self.bytes.len(), length: record.len() });
        self.bytes.extend_from_slice(record);
    }

    /// Passes on all records from before `until`, the oldest first. All rings must have been emptied after that time, so that no older
    /// record can follow.
    pub fn flush(&mut self, until: u64, each: impl FnMut(RingId, &[u8])) {
        self.flush_some(until, usize::MAX, each);
    }

    /// Passes on at most `most` records. Returns whether these were all.
    pub fn flush_some(&mut self, until: u64, most: usize, mut each: impl FnMut(RingId, &[u8])) -> bool {
        let Some(waiting) = self.waiting.get_mut(self.gone..) else { return true };
        if !std::mem::replace(&mut self.sorted, true) {
            // A stable merge sort: it merges the sorted runs, one for each ring.
            waiting.sort_by_key(|record| record.time);
        }
        let ready = waiting.partition_point(|record| record.time < until);
        let now = ready.min(most);
        for record in &waiting[..now] {
            if let Some(bytes) = self.bytes.get(record.at..record.at + record.length) {
                each(record.ring, bytes);
            }
        }
        let up_to = if now == ready { until } else { waiting[now].time };
        self.given = self.given.max(up_to);
        self.gone += now;
        if now == ready {
            self.compact();
        }
        now == ready
    }

    /// Removes the records that were passed on.
    fn compact(&mut self) {
        // Keeps the capacity that a burst needs, to avoid allocating it repeatedly while the burst continues.
        let kept = self.bytes.len().max(MAX_RETAINED_CAPACITY);
        let mut left = Vec::new();
        self.waiting.drain(..std::mem::take(&mut self.gone));
        for record in &mut self.waiting {
            let bytes = self.bytes.get(record.at..record.at + record.length).unwrap_or_default();
            record.at = left.len();
            left.extend_from_slice(bytes);
        }
        self.bytes.clear();
        self.bytes.shrink_to(kept);
        self.waiting.shrink_to(kept / size_of::<Waiting>());
        self.bytes.extend_from_slice(&left);
    }

    /// Returns the number of queued records.
    pub fn waiting(&self) -> usize {
        self.waiting.len() - self.gone
    }

    /// Reports whether records from before `until` are queued. Scans all queued records.
    pub fn is_ready(&self, until: u64) -> bool {
        self.waiting.iter().skip(self.gone).any(|record| record.time < until)
    }

    /// Returns the time up to which records were passed on.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Returns the size of the stored records, passed on or not, including their entries in the queue, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.waiting.len() * size_of::<Waiting>()
    }

    /// Returns the allocated memory, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.waiting.capacity() * size_of::<Waiting>()
    }

    /// Returns the number of records that arrived after newer ones had been passed on: writing them took longer than emptying all rings.
    pub fn late(&self) -> u64 {
        self.late
    }
}

/// Reports whether a record is a sample, and thus a hit.
#[inline]
pub fn is_sample(record: &[u8]) -> bool {
    record.first_chunk().is_some_and(|&kind| u32::from_ne_bytes(kind) == PERF_RECORD_SAMPLE)
}

/// Returns the time of a record of an event with [`ordered`](crate::sys::Sampling::ordered) records and these fields. In a sample it
/// follows the identifier, the instruction pointer and the thread; in other records it is at the end (`sample_id_all`).
pub fn time_of(record: &[u8], fields: &Fields) -> Option<u64> {
    const HEADER: usize = 8;
    let word = size_of::<u64>();
    let at = if is_sample(record) {
        HEADER + word * (usize::from(fields.identifier) + usize::from(fields.ip) + usize::from(fields.tid))
    } else {
        let behind = word * (usize::from(fields.time) + fields.words_after_time());
        record.len().checked_sub(behind).filter(|&at| at >= HEADER)?
    };
    fields.time.then(|| record.get(at..)?.first_chunk().map(|&time| u64::from_ne_bytes(time)))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::testing::{bytes, record};
    use proptest::prelude::*;

    fn flushed(merger: &mut Merger, until: u64) -> Vec<(u32, Vec<u8>)> {
        let mut found = Vec::new();
        merger.flush(until, |ring, record| found.push((ring.cpu, record.to_vec())));
        found
    }

    #[test]
    fn records_of_two_rings_come_in_the_order_of_their_times() {
        let mut merger = Merger::default();
        for (cpu, time) in [(0, 1), (0, 5), (1, 2), (1, 7)] {
            merger.push(RingId::of_cpu(cpu), time, &[time as u8; 8]);
        }
        let found = flushed(&mut merger, 6);
        assert_eq!(found, [(0, vec![1; 8]), (1, vec![2; 8]), (0, vec![5; 8])]);
        merger.push(RingId::of_cpu(0), 6, &[6; 8]);
        assert_eq!(flushed(&mut merger, u64::MAX), [(0, vec![6; 8]), (1, vec![7; 8])]);
        assert_eq!(merger.late(), 0);
    }

    #[test]
    fn what_comes_after_younger_ones_were_given_away_is_counted() {
        let mut merger = Merger::default();
        merger.push(RingId::of_cpu(0), 9, &[9]);
        flushed(&mut merger, 10);
        merger.push(RingId::of_cpu(1), 8, &[8]);
        assert_eq!((flushed(&mut merger, 20).len(), merger.late()), (1, 1));
    }

    #[test]
    fn the_time_stands_where_the_kernel_puts_it() {
        let fields = Fields { identifier: true, tid: true, time: true, raw: true, ..Fields::default() };
        assert_eq!(time_of(&record(PERF_RECORD_SAMPLE, 0, &bytes(&[7, 8, 99, 0])), &fields), Some(99));
        // A comm record: pid and tid, a name, then tid, time and identifier.
        assert_eq!(time_of(&record(3, 0, &bytes(&[1, 2, 8, 99, 7])), &fields), Some(99));
        assert_eq!(time_of(&record(3, 0, &[]), &fields), None);
        assert_eq!(time_of(&[], &fields), None);
        assert_eq!(time_of(&record(3, 0, &bytes(&[1, 2])), &Fields::default()), None);
        let with_cpu = Fields { cpu: true, ..fields };
        assert_eq!(time_of(&record(3, 0, &bytes(&[1, 2, 8, 99, 1, 7])), &with_cpu), Some(99));
        // Just the time and the identifier, and less than these.
        assert_eq!(time_of(&record(3, 0, &bytes(&[99, 7])), &fields), Some(99));
        assert_eq!(time_of(&record(3, 0, &bytes(&[99])), &fields), None, "the header is no time");
        let untimed = Fields { time: false, ..fields };
        for kind in [3, PERF_RECORD_SAMPLE] {
            assert_eq!(time_of(&record(kind, 0, &bytes(&[7, 8, 99, 0])), &untimed), None);
        }
    }

    #[test]
    fn the_time_of_a_sample_follows_the_fields_that_come_before_it() {
        for n in 0..8 {
            let (identifier, ip, tid) = (n & 1 > 0, n & 2 > 0, n & 4 > 0);
            let fields = Fields { identifier, ip, tid, time: true, raw: true, ..Fields::default() };
            let before = [identifier, ip, tid].into_iter().filter(|&field| field).count();
            let body = [&[1, 2, 3][..before], &[99, 5, 6, 7]].concat();
            let sample = record(PERF_RECORD_SAMPLE, 0, &bytes(&body));
            assert!(is_sample(&sample));
            assert_eq!(time_of(&sample, &fields), Some(99), "{fields:?}");
        }
        let comm = record(3, 0, &bytes(&[1]));
        assert_eq!([is_sample(&comm), is_sample(&[9]), is_sample(&[])], [false; 3]);
    }

    #[test]
    fn records_before_a_time_are_ready_and_the_rest_waits() {
        let mut merger = Merger::default();
        assert_eq!((merger.is_ready(u64::MAX), merger.waiting(), merger.given()), (false, 0, 0));
        for time in [5, 3, 4] {
            merger.push(RingId::of_cpu(0), time, &[0; 8]);
        }
        assert_eq!([3, 4, 9].map(|until| merger.is_ready(until)), [false, true, true]);
        // Two of the three that are ready: the oldest of the others may be followed by records with the same time.
        assert!(!merger.flush_some(9, 2, |_, _| {}));
        assert_eq!((merger.waiting(), merger.given()), (1, 5));
        assert_eq!([5, 6].map(|until| merger.is_ready(until)), [false, true], "3 and 4 were passed on");
        assert!(merger.flush_some(9, 2, |_, _| {}));
        assert_eq!((merger.waiting(), merger.given(), merger.is_ready(u64::MAX)), (0, 9, false));
        merger.flush(7, |_, _| {});
        assert_eq!(merger.given(), 9, "it never falls");
    }

    #[test]
    fn records_count_as_memory_until_all_that_were_ready_were_given_away() {
        const EACH: usize = size_of::<Waiting>();
        let mut merger = Merger::default();
        assert_eq!((merger.bytes(), merger.memory()), (0, 0));
        for (time, length) in [(1, 8), (2, 3), (7, 5)] {
            merger.push(RingId::of_cpu(0), time, &vec![0; length]);
        }
        assert_eq!(merger.bytes(), 16 + 3 * EACH);
        merger.flush_some(5, 1, |_, _| {});
        assert_eq!(merger.bytes(), 16 + 3 * EACH, "one was passed on, and another one is ready");
        merger.flush_some(5, 1, |_, _| {});
        assert_eq!(merger.bytes(), 5 + EACH);
        for time in 10..1000 {
            merger.push(RingId::of_cpu(0), time, &[0; 8]);
        }
        // A buffer that grows is at most doubled.
        assert!((merger.bytes()..3 * merger.bytes()).contains(&merger.memory()), "{}", merger.memory());
    }

    #[test]
    fn buffers_shrink_after_a_burst() {
        let mut merger = Merger::default();
        for time in 0..200_000 {
            merger.push(RingId::of_cpu(0), time, &[]);
        }
        assert!(merger.memory() > 200_000 * size_of::<Waiting>());
        merger.flush(u64::MAX, |_, _| {});
        let memory = merger.memory();
        assert!(
            (MAX_RETAINED_CAPACITY / 2..=2 * MAX_RETAINED_CAPACITY).contains(&memory),
            "{memory} bytes, where {MAX_RETAINED_CAPACITY} may stay for each buffer"
        );
        let record = [0; 1024];
        for time in 0..8 * 1024 {
            merger.push(RingId::of_cpu(0), time, &record);
        }
        assert!(merger.bytes.capacity() >= 8 << 20);
        // The first flush keeps what the burst needed.
        for kept in [8 << 20, MAX_RETAINED_CAPACITY] {
            merger.flush(u64::MAX, |_, _| {});
            assert!((kept..2 * kept + 1).contains(&merger.bytes.capacity()), "{}", merger.bytes.capacity());
        }
    }

    proptest! {
        #[test]
        fn every_record_comes_once_and_none_before_an_older_one_however_many_are_taken_at_a_time(
            rings in proptest::collection::vec(proptest::collection::vec(0u64..100, 0..20), 1..4),
            until in 0u64..120,
            most in 1usize..50,
        ) {
            let mut merger = Merger::default();
            for (cpu, times) in rings.iter().enumerate() {
                let mut times = times.clone();
                times.sort_unstable();
                times.iter().for_each(|&time| merger.push(RingId::of_cpu(cpu as u32), time, &time.to_ne_bytes()));
            }
            let mut found = Vec::new();
            while !merger.flush_some(until, most, |ring, record| found.push((ring.cpu, record.to_vec()))) {
                // Another ring continues meanwhile.
                merger.push(RingId::of_cpu(9), until, &until.to_ne_bytes());
            }
            let more = merger.waiting() - rings.iter().flatten().filter(|&&time| time >= until).count();
            prop_assert_eq!(merger.late(), 0);
            prop_assert!(found.iter().all(|(_, bytes)| u64::from_ne_bytes(*bytes.first_chunk().unwrap()) < until));
            found.extend(flushed(&mut merger, u64::MAX));
            let times: Vec<u64> =
                found.iter().map(|(_, bytes)| u64::from_ne_bytes(*bytes.first_chunk().unwrap())).collect();
            prop_assert!(times.is_sorted());
            prop_assert_eq!(times.len() - more, rings.iter().map(Vec::len).sum::<usize>());
        }
    }
}
