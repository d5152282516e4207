//! Series of samples: totals that only grow, by label sets that come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;

/// How long a series without samples is kept under its name.
const KEPT: Duration = Duration::from_secs(60 * 60);

/// The total of a label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) start: Timestamp,
    last: Timestamp,
}

/// Totals by the values of `N` labels. The sum of all is what was counted, at all times.
#[derive(Debug)]
pub(super) struct Totals<const N: usize> {
    series: BTreeMap<[Arc<str>; N], Total>,
    /// What those have counted that have no name of their own.
    other: Total,
    pub(super) limit: usize,
    /// How often a series went into `other`.
    pub(super) folded: u64,
}

impl<const N: usize> Totals<N> {
    pub(super) fn new(limit: usize, now: Timestamp) -> Self {
        let other = Total { count: 0, start: now, last: now };
        Self { series: BTreeMap::new(), other, limit, folded: 0 }
    }

    /// Counts for a label set. Without room for a new one it counts for `other`.
    pub(super) fn add(&mut self, labels: [Arc<str>; N], count: u64, now: Timestamp) {
        let room = self.series.len() < self.limit;
        let total = match self.series.get_mut(&labels) {
            Some(total) => total,
            None if room => self.series.entry(labels).or_insert(Total { count: 0, start: now, last: now }),
            None => {
                self.folded += 1;
                &mut self.other
            }
        };
        total.count = total.count.saturating_add(count);
        total.last = now;
    }

    /// Folds into `other` what has not been seen for long.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let kept = u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX);
        let old = |total: &Total| now.0.saturating_sub(total.last.0) > kept;
        let (other, folded) = (&mut self.other, &mut self.folded);
        self.series.retain(|_, total| {
            if old(total) {
                other.count = other.count.saturating_add(total.count);
                *folded += 1;
            }
            !old(total)
        });
    }

    /// Each label set with its total, `other` last if it has counted anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = ([Arc<str>; N], Total)> {
        let other = (self.other.count > 0).then(|| (std::array::from_fn(|_| "other".into()), self.other));
        self.series.iter().map(|(labels, &total)| (labels.clone(), total)).chain(other)
    }

    pub(super) fn sum(&self) -> u64 {
        self.iter().map(|(_, total)| total.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(totals: &Totals<1>) -> Vec<(String, u64)> {
        totals.iter().map(|([label], total)| (label.to_string(), total.count)).collect()
    }

    const HOUR: u64 = 3_600_000;

    #[test]
    fn without_room_for_a_name_samples_are_others_and_none_is_missing() {
        let mut totals = Totals::new(2, Timestamp(0));
        for label in ["a", "b", "c", "a", "d"] {
            totals.add([label.into()], 10, Timestamp(1));
        }
        assert_eq!(found(&totals), [("a".into(), 20), ("b".into(), 10), ("other".into(), 20)]);
        assert_eq!((totals.sum(), totals.folded), (50, 2));
    }

    #[test]
    fn what_is_not_seen_for_an_hour_goes_into_the_others() {
        let mut totals = Totals::new(9, Timestamp(0));
        totals.add(["old".into()], 3, Timestamp(0));
        totals.add(["young".into()], 4, Timestamp(HOUR));
        totals.expire(Timestamp(HOUR + 1));
        assert_eq!(found(&totals), [("young".into(), 4), ("other".into(), 3)]);
        totals.add(["old".into()], 1, Timestamp(HOUR + 2));
        assert_eq!(totals.sum(), 8);
    }
}
