//! The first events of pairs, until their second event arrives.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::owners::RecordIds;
use super::values::ValueId;
use crate::plan::Pairing;

/// A first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FirstEvent {
    /// Time in nanoseconds.
    pub(super) time: u64,
    pub(super) ids: RecordIds,
    /// The values of labels in its record.
    pub(super) labels: Box<[ValueId]>,
}

/// Reasons for unpaired events.
#[derive(Debug, Clone, Copy)]
enum Unpaired {
    /// A second event without a first: the first was before the event was opened, or was filtered out.
    NoBegin,
    /// A first event that was followed by another first event with the same key.
    NoEnd,
    /// A first event that was pending for longer than the timeout.
    Expired,
    /// A first event that was dropped because the table is full.
    Full,
    /// Discarded after lost records, because the second event may be among them.
    Lost,
    /// The time of the second event is before that of the first.
    Backwards,
}

/// Values of the label `reason`, in the order of [`Unpaired`].
const REASONS: [&str; 6] = ["no_begin", "no_end", "expired", "table_full", "lost", "time_reversed"];

/// The first events of one pair, by the bytes of their key.
#[derive(Debug)]
pub(super) struct Pending {
    limits: Pairing,
    begun: FxHashMap<Box<[u8]>, FirstEvent>,
    unpaired: [u64; REASONS.len()],
}

impl Pending {
    pub(super) fn new(limits: Pairing) -> Self {
        Self { limits, begun: FxHashMap::default(), unpaired: [0; REASONS.len()] }
    }

    /// Adds a first event.
    pub(super) fn begin(&mut self, key: &[u8], begun: FirstEvent) {
        if let Some(waiting) = self.begun.get_mut(key) {
            *waiting = begun;
            self.count(Unpaired::NoEnd, 1);
        } else if self.begun.len() >= self.limits.pending {
            self.count(Unpaired::Full, 1);
        } else {
            self.begun.insert(key.into(), begun);
        }
    }

    /// Matches a second event at `time`. Returns its first event, and the nanoseconds between them.
    pub(super) fn end(&mut self, key: &[u8], time: u64) -> Option<(FirstEvent, u64)> {
        let begun = self.begun.remove(key);
        let elapsed = begun.as_ref().map(|begun| time.checked_sub(begun.time));
        let why = match (begun, elapsed.flatten()) {
            (Some(begun), Some(elapsed)) if u128::from(elapsed) <= self.limits.timeout.as_nanos() => {
                return Some((begun, elapsed));
            }
            (Some(_), Some(_)) => Unpaired::Expired,
            (Some(_), None) => Unpaired::Backwards,
            (None, _) => Unpaired::NoBegin,
        };
        self.count(why, 1);
        None
    }

    /// Discards all pending events, because their second events may be among the lost records.
    pub(super) fn clear(&mut self) {
        self.count(Unpaired::Lost, self.begun.len() as u64);
        self.begun.clear();
    }

    /// Replaces values of a label whose numbers will be reused by `other`.
    pub(super) fn forget(&mut self, label: usize, gone: &[ValueId]) {
        if gone.is_empty() {
            return;
        }
        let gone: FxHashSet<ValueId> = gone.iter().copied().collect();
        let labels = self.begun.values_mut().filter_map(|begun| begun.labels.get_mut(label));
        labels.filter(|value| gone.contains(value)).for_each(|value| *value = ValueId::OTHER);
    }

    /// Discards events that are pending for longer than the timeout at `now`.
    pub(super) fn expire(&mut self, now: u64) {
        let timeout = self.limits.timeout;
        let before = self.begun.len();
        self.begun.retain(|_, begun| Duration::from_nanos(now.saturating_sub(begun.time)) <= timeout);
        self.count(Unpaired::Expired, (before - self.begun.len()) as u64);
        self.begun.shrink_to(1024);
    }

    fn count(&mut self, why: Unpaired, events: u64) {
        if let Some(count) = self.unpaired.get_mut(why as usize) {
            *count = count.saturating_add(events);
        }
    }

    /// Returns the number of unpaired events so far, by reason.
    pub(super) fn unpaired(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        REASONS.into_iter().zip(self.unpaired)
    }

    /// Returns the number of pending events.
    pub(super) fn waiting(&self) -> usize {
        self.begun.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(pending: usize) -> Pending {
        Pending::new(Pairing { timeout: Duration::from_nanos(100), pending })
    }

    fn at(time: u64) -> FirstEvent {
        FirstEvent { time, ids: RecordIds::default(), labels: Box::default() }
    }

    fn unpaired(pending: &Pending) -> Vec<(&'static str, u64)> {
        pending.unpaired().filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn a_second_event_finds_the_last_first_of_its_key() {
        let mut pending = pending(9);
        pending.begin(b"a", at(1));
        pending.begin(b"b", at(2));
        pending.begin(b"a", at(5));
        assert_eq!(pending.end(b"a", 12), Some((at(5), 7)));
        assert_eq!(pending.end(b"a", 13), None);
        assert_eq!(unpaired(&pending), [("no_begin", 1), ("no_end", 1)]);
        assert_eq!(pending.waiting(), 1);
    }

    #[test]
    fn who_waits_too_long_or_is_one_too_many_is_counted() {
        let mut pending = pending(2);
        ["a", "b", "c"].into_iter().for_each(|key| pending.begin(key.as_bytes(), at(10)));
        pending.expire(110);
        assert_eq!(pending.waiting(), 2);
        assert_eq!(pending.end(b"a", 111), None);
        pending.expire(111);
        assert_eq!(pending.waiting(), 0);
        assert_eq!(unpaired(&pending), [("expired", 2), ("table_full", 1)]);
    }

    #[test]
    fn time_that_runs_backwards_and_lost_records_give_no_latency() {
        let mut pending = pending(2);
        pending.begin(b"a", at(10));
        assert_eq!(pending.end(b"a", 9), None);
        pending.begin(b"b", at(10));
        pending.clear();
        assert_eq!(pending.end(b"b", 11), None);
        assert_eq!(unpaired(&pending), [("no_begin", 1), ("lost", 1), ("time_reversed", 1)]);
    }
}
