//! Series of samples: totals that only grow, by label sets that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Monotonic, Timestamp};
use crate::metrics::{NameLimiter, OwnName};

/// How long a series without samples is kept under its name.
const KEPT: Duration = Duration::from_secs(60 * 60);

/// The total of a label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) start: Timestamp,
    last: Timestamp,
}

/// A label set of its own.
#[derive(Debug)]
struct Series {
    total: Total,
    /// The name in its labels that a process chose.
    own: Option<OwnName>,
}

/// Totals by the values of `N` labels. The sum of all is what was counted, at all times.
#[derive(Debug)]
pub(super) struct Totals<const N: usize> {
    series: BTreeMap<[Arc<str>; N], Series>,
    /// What those have counted that have no name of their own.
    other: Total,
    /// The names in the first label, which processes choose, by the cgroup in the second.
    names: NameLimiter,
    limit: usize,
    /// How often a series went into `other`.
    pub(super) folded: u64,
}

impl<const N: usize> Totals<N> {
    pub(super) fn new(limit: usize, now: Timestamp) -> Self {
        let other = Total { count: 0, start: now, last: now };
        Self { series: BTreeMap::new(), other, names: NameLimiter::new(usize::MAX), limit, folded: 0 }
    }

    /// Changes how many names a cgroup may have.
    pub(super) fn set_names(&mut self, per_cgroup: usize) {
        self.names.set_limit(per_cgroup);
    }

    /// As [`add`](Self::add), for labels whose first is the name that a process in the cgroup `owner` chose, if it did. A
    /// cgroup with too many names counts for the name `other`.
    pub(super) fn add_named(
        &mut self,
        mut labels: [Arc<str>; N],
        owner: Option<&Arc<str>>,
        count: u64,
        now: Timestamp,
    ) {
        if let (Some(owner), Some(name), false) = (owner, labels.first(), self.series.contains_key(&labels))
            && self.series.len() < self.limit
        {
            let own = OwnName { owner: Arc::clone(owner), name: Arc::clone(name) };
            let admitted = self.names.admit(&own, Monotonic(Duration::from_millis(now.0)));
            if admitted {
                self.add(labels.clone(), count, now);
                if let Some(series) = self.series.get_mut(&labels) {
                    series.own = Some(own);
                }
                return;
            }
            self.folded += 1;
            if let Some(name) = labels.first_mut() {
                *name = "other".into();
            }
        }
        self.add(labels, count, now);
    }

    /// Counts for a label set. Without room for a new one it counts for `other`.
    pub(super) fn add(&mut self, labels: [Arc<str>; N], count: u64, now: Timestamp) {
        let room = self.series.len() < self.limit;
        let total = match self.series.get_mut(&labels) {
            Some(series) => &mut series.total,
            None if room => {
                let total = Total { count: 0, start: now, last: now };
                &mut self.series.entry(labels).or_insert(Series { total, own: None }).total
            }
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
        self.fold_where(|_, total| now.0.saturating_sub(total.last.0) > kept);
    }

    /// Each label set with its total, `other` last if it has counted anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = ([Arc<str>; N], Total)> {
        let other = (self.other.count > 0).then(|| (std::array::from_fn(|_| "other".into()), self.other));
        self.series.iter().map(|(labels, series)| (labels.clone(), series.total)).chain(other)
    }

    /// The number of label sets, without `other`.
    pub(super) fn len(&self) -> usize {
        self.series.len()
    }

    /// About how many bytes its series take.
    pub(super) fn bytes(&self) -> usize {
        /// Texts that only it has, and its place in the map.
        const TEXTS: usize = 160;
        self.len() * (size_of::<([Arc<str>; N], Series)>() + TEXTS)
    }

    /// Changes the number of label sets. The sets that were counted least recently go into `other`.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        let excess = self.len().saturating_sub(limit);
        if excess == 0 {
            return;
        }
        let mut oldest: Vec<(Timestamp, &[Arc<str>; N])> =
            self.series.iter().map(|(labels, series)| (series.total.last, labels)).collect();
        oldest.sort_unstable();
        let oldest: BTreeSet<[Arc<str>; N]> =
            oldest.into_iter().take(excess).map(|(_, labels)| labels.clone()).collect();
        self.fold_where(|labels, _| oldest.contains(labels));
    }

    /// Adds the label sets for which `folds` returns true to `other`.
    fn fold_where(&mut self, folds: impl Fn(&[Arc<str>; N], &Total) -> bool) {
        let (other, folded, names) = (&mut self.other, &mut self.folded, &mut self.names);
        self.series.retain(|labels, Series { total, own }| {
            let folds = folds(labels, total);
            if folds {
                other.count = other.count.saturating_add(total.count);
                *folded += 1;
                own.iter().for_each(|own| names.release(own));
            }
            !folds
        });
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
    fn a_smaller_limit_aggregates_the_label_sets_that_were_counted_least_recently() {
        let mut totals = Totals::new(9, Timestamp(0));
        for (label, at) in [("b", 5), ("c", 5), ("old", 1), ("young", 7)] {
            totals.add([label.into()], 10, Timestamp(at));
        }
        totals.set_limit(2);
        assert_eq!(found(&totals), [("c".into(), 10), ("young".into(), 10), ("other".into(), 20)]);
        assert_eq!((totals.sum(), totals.folded), (40, 2));
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

    #[test]
    fn a_process_that_renames_itself_all_the_time_leaves_the_names_of_other_cgroups_alone() {
        let mut totals: Totals<3> = Totals::new(1000, Timestamp(0));
        totals.set_names(50);
        let attacked: Arc<str> = "/pod".into();
        for number in 0..10_000u64 {
            for mode in ["user", "kernel"] {
                let labels = [number.to_string().into(), Arc::clone(&attacked), mode.into()];
                totals.add_named(labels, Some(&attacked), 1, Timestamp(number));
            }
            let service: Arc<str> = format!("/service{}", number % 100).into();
            let labels = ["nginx".into(), Arc::clone(&service), "user".into()];
            totals.add_named(labels, Some(&service), 1, Timestamp(number));
        }
        let all: Vec<([Arc<str>; 3], Total)> = totals.iter().collect();
        let of = |cgroup: &str| all.iter().filter(|([_, at, _], _)| &**at == cgroup).count();
        // It may replace ten names a minute; 10 s went by. `other` is a name in each mode.
        assert!((102..=108).contains(&of("/pod")), "{}", of("/pod"));
        assert!((0..100).all(|number| of(&format!("/service{number}")) == 1));
        assert_eq!(totals.sum(), 30_000);
        totals.expire(Timestamp(2 * HOUR));
        let labels = ["new".into(), Arc::clone(&attacked), "user".into()];
        totals.add_named(labels.clone(), Some(&attacked), 1, Timestamp(2 * HOUR));
        assert!(totals.series.contains_key(&labels), "names that have ended make room");
    }
}
