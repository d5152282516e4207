//! Aggregation of system calls by call and owner.

use std::collections::BTreeMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::calls::CompletedCall;
use super::names::Call;
use crate::metrics::{Buckets, Histogram};

/// Maximum number of pairs of an owner and a call between two collections.
const MAX: usize = 1 << 16;

/// Sum of one call of one owner.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    /// Histogram of durations in seconds.
    pub durations: Histogram,
    /// Number of failures, by error.
    pub errors: BTreeMap<u16, u64>,
}

impl Sum {
    fn add(&mut self, ended: &CompletedCall) {
        self.durations.observe(ended.took as f64 / 1e9);
        if let Some(error) = ended.error() {
            *self.errors.entry(error).or_default() += 1;
        }
    }

    /// Adds the values of another sum.
    pub fn merge(&mut self, other: &Self) {
        self.durations.merge(&other.durations);
        for (&error, &count) in &other.errors {
            let sum = self.errors.entry(error).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

/// Sum of one call of one owner; `None` is the sum of all owners that were not stored because the table was full.
pub type Row<O> = (Option<O>, Call, Sum);

/// Aggregates calls by owner. The caller defines the owners.
#[derive(Debug)]
pub struct Sums<O> {
    buckets: Buckets,
    places: FxHashMap<(Option<O>, Call), usize>,
    sums: Vec<Row<O>>,
}

impl<O: Copy + Eq + Hash> Sums<O> {
    /// Creates an empty aggregation with duration `buckets` in seconds.
    pub fn new(buckets: Buckets) -> Self {
        Self { buckets, places: FxHashMap::default(), sums: Vec::new() }
    }

    /// Adds a call.
    #[inline]
    pub fn add(&mut self, owner: O, ended: &CompletedCall) {
        let (mut owner, call) = (Some(owner), ended.call);
        // There are only a few hundred calls, so the number of rows without an owner is bounded.
        if self.sums.len() >= MAX && !self.places.contains_key(&(owner, call)) {
            owner = None;
        }
        let (sums, buckets) = (&mut self.sums, &self.buckets);
        let place = *self.places.entry((owner, call)).or_insert_with(|| {
            let sum = Sum { durations: Histogram::of(buckets), errors: BTreeMap::new() };
            sums.push((owner, call, sum));
            sums.len() - 1
        });
        // In bounds: the indexes refer to entries pushed since both were cleared.
        sums[place].2.add(ended);
    }

    /// Returns the values aggregated since the previous call, and resets them.
    pub fn take(&mut self) -> Vec<Row<O>> {
        self.places.clear();
        std::mem::take(&mut self.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Thread;
    use crate::syscall::Abi;

    fn ended(number: u32, took: u64, result: i64) -> CompletedCall {
        CompletedCall {
            thread: Thread::default(),
            call: Call { abi: Abi::X86_64, number },
            time: 0,
            took,
            result,
        }
    }

    #[test]
    fn calls_are_told_apart_by_owner_and_name_and_their_errors_by_number() {
        let mut sums = Sums::new(Buckets::exponential("seconds"));
        for (owner, number, took, result) in
            [(1, 0, 10, 5), (1, 0, 30, -11), (1, 0, 20, -11), (1, 1, 7, 7), (2, 0, 1, 0)]
        {
            sums.add(owner, &ended(number, took, result));
        }
        let taken = sums.take();
        let told = |(owner, call, sum): &Row<u64>| (*owner, call.to_string(), sum.durations.count());
        let expected = [(Some(1), "read", 3), (Some(1), "write", 1), (Some(2), "read", 1)];
        let expected = expected.map(|(owner, call, count)| (owner, call.to_owned(), count));
        assert_eq!(taken.iter().map(told).collect::<Vec<_>>(), expected);
        assert_eq!(taken[0].2.errors, BTreeMap::from([(11, 2)]));
        assert_eq!(sums.take(), []);
    }

    #[test]
    fn a_flood_of_owners_takes_no_more_room_and_loses_nothing() {
        let mut sums = Sums::new(Buckets::exponential("seconds"));
        let many = MAX as u64 + 10;
        (1..=many).for_each(|owner| sums.add(owner, &ended(0, 1, 0)));
        let taken = sums.take();
        assert_eq!(taken.len(), MAX + 1);
        assert_eq!(taken.iter().map(|(.., sum)| sum.durations.count()).sum::<u64>(), many);
    }
}
