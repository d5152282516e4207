//! Totals of the series of a group of counters.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use super::naming::{group_labels, naming_of, other_labels, selects};
use super::scale::scale;
use super::subject::{Key, Subject};
use crate::attribute::Share;
use crate::clock::{Monotonic, Timestamp};
use crate::health::{Interval, Verdict};
use crate::host::CpuSet;
use crate::metrics::Labels;
use crate::plan::{Group, Source};
use crate::series::{SeriesId, Table, Total};
use crate::targets::parent_of;

/// Nanoseconds of recent CPU time below which a series cannot take over the labels of another. Among targets that wake up only now and
/// then, the most recent one would otherwise always win, and labels would alternate.
const MIN_ACTIVITY: u64 = 1_000_000;

/// The series of one group. The info of each series is its labels in families about all groups, rendered at first use.
pub(super) type SeriesTable = Table<Counts, OnceLock<Arc<Labels>>>;

/// The counters of a group.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    pub(super) counters: Box<[Count]>,
    /// Counts of hardware events of the switch stream that are not scaled yet, for each counter. Empty without such events.
    unscaled: Box<[Unscaled]>,
    /// Enabled and running time in this collection.
    pub(super) interval: Interval,
}

/// One counter of a group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) total: u64,
    /// Whether it has ever counted. Otherwise the total is unknown, not zero.
    pub(super) counted: bool,
    /// Whether it is implausible in this collection.
    pub(super) doubted: bool,
    /// For an aggregated series: whether it is plausible in at least one of the series.
    believed: bool,
}

/// A count and the time in which it was counted, before scaling.
#[derive(Debug, Clone, Copy, Default)]
struct Unscaled {
    count: u64,
    interval: Interval,
}

impl Unscaled {
    fn add(&mut self, count: u64, interval: Interval) {
        self.count = self.count.saturating_add(count);
        self.interval += interval;
    }

    /// Returns the scaled count, and resets it. Returns 0 and keeps the count while it ran for less than a hundredth of the enabled time. A
    /// few microseconds on the PMU are no basis for an estimate over seconds.
    fn settle(&mut self) -> u64 {
        if self.interval.running < self.interval.enabled / 100 {
            return 0;
        }
        let Self { count, interval } = std::mem::take(self);
        scale(count, interval)
    }
}

/// The part that all kinds of groups share: the plan, the series, and the index of cgroups by path.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) plan: Arc<Group>,
    pub(super) series: SeriesTable,
    /// Number of instances of each counter in each state at the last collection.
    pub(super) states: BTreeMap<(usize, Verdict), usize>,
    pub(super) online: CpuSet,
    /// Labels of the aggregated series.
    other: Arc<Labels>,
    cgroups_by_path: HashMap<Arc<str>, Key>,
}

impl Base {
    pub(super) fn new(plan: Arc<Group>, limit: usize, now: Timestamp) -> Self {
        Self {
            series: Table::new(Counts::new(&plan), limit, MIN_ACTIVITY, now),
            states: BTreeMap::new(),
            online: CpuSet::default(),
            other: other_labels(&plan),
            cgroups_by_path: HashMap::new(),
            plan,
        }
    }

    /// Updates the online CPUs. Returns the CPUs that went offline, and those that came online.
    pub(super) fn set_online(&mut self, online: &CpuSet) -> (Vec<u32>, Vec<u32>) {
        let here = self.plan.cpus(online);
        let before = std::mem::replace(&mut self.online, here);
        let only = |of: &CpuSet, other: &CpuSet| of.iter().filter(|&cpu| !other.contains(cpu)).collect();
        (only(&before, &self.online), only(&self.online, &before))
    }

    pub(super) fn selects(&self, subject: &Subject) -> bool {
        selects(&self.plan, subject)
    }

    /// Adds the target to its series, and returns the series.
    pub(super) fn enter(&mut self, subject: &Subject, monotonic: Monotonic) -> SeriesId {
        self.series.enter(naming_of(&self.plan, &self.other, subject), monotonic)
    }

    /// Adds the target to the series with labels of its own, if that exists by now and is not the series with this `id`.
    pub(super) fn enter_again(
        &mut self,
        id: SeriesId,
        subject: &Subject,
        monotonic: Monotonic,
    ) -> Option<SeriesId> {
        self.series.enter_again(id, || naming_of(&self.plan, &self.other, subject), monotonic)
    }

    pub(super) fn know_path(&mut self, subject: &Subject) {
        if let Subject::Cgroup(cgroup) = subject {
            self.cgroups_by_path.insert(Arc::clone(&cgroup.path), subject.key());
        }
    }

    pub(super) fn forget_path(&mut self, subject: &Subject) {
        if let Subject::Cgroup(cgroup) = subject
            && self.cgroups_by_path.get(&cgroup.path) == Some(&subject.key())
        {
            self.cgroups_by_path.remove(&cgroup.path);
        }
    }

    /// Returns the known cgroups above a path, the nearest first.
    pub(super) fn above(&self, path: &str) -> impl Iterator<Item = Key> {
        let above = std::iter::successors(parent_of(path), |path| parent_of(path));
        above.filter_map(|path| self.cgroups_by_path.get(path).copied())
    }

    pub(super) fn begin_collection(&mut self) {
        self.states.clear();
        self.series.begin_collection();
    }

    /// Sets the activity of each series, by which series are ranked, to its enabled time.
    pub(super) fn note_activity(&mut self) {
        self.series.iter_mut().for_each(|series| series.active = series.total.interval.enabled);
    }
}

/// Returns the labels of a series in families about all groups.
pub(super) fn quality_labels(own: &Labels, known: &OnceLock<Arc<Labels>>, plan: &Group) -> Arc<Labels> {
    let render = || {
        let group = group_labels(plan);
        Labels::new(own.pairs().chain(group.iter().map(|(name, value)| (&**name, &**value))))
    };
    Arc::clone(known.get_or_init(render))
}

impl Counts {
    pub(super) fn new(plan: &Group) -> Self {
        let counters = plan.counters.len();
        let is_scaled = plan.source == Source::Stream && plan.needs_pmu();
        Self {
            counters: vec![Count::default(); counters].into(),
            unscaled: vec![Unscaled::default(); if is_scaled { counters } else { 0 }].into(),
            interval: Interval::default(),
        }
    }

    /// Adds counts of the stream. `numbers`: for each counter of the group, its number in the stream.
    pub(super) fn attribute(&mut self, numbers: &[usize], share: &Share<'_>) {
        let of = |numbers: &[u64], number: usize| numbers.get(number).copied().unwrap_or(0);
        if self.unscaled.is_empty() {
            for (count, &number) in self.counters.iter_mut().zip(numbers) {
                count.total = count.total.saturating_add(of(share.counts, number));
            }
        }
        for (unscaled, &number) in self.unscaled.iter_mut().zip(numbers) {
            unscaled.add(of(share.counts, number), share.presence(number));
        }
    }

    /// Scales the counts of this collection. Scales a whole series at once. A process may end before a counter ever ran for it; other
    /// processes with the same labels are then the basis of the estimate.
    pub(super) fn scale(&mut self) {
        for (count, unscaled) in self.counters.iter_mut().zip(&mut self.unscaled) {
            count.total = count.total.saturating_add(unscaled.settle());
        }
    }

    /// Returns the total of a counter; `None` if it is unknown or implausible.
    ///
    /// One implausible target makes the total of a labeled series unavailable, but not that of an aggregated series. A user can investigate
    /// the target of a label, but not the thousand targets of `other`.
    pub(super) fn known(&self, counter: usize) -> Option<u64> {
        let count = self.counters.get(counter)?;
        (count.counted && (!count.doubted || count.believed)).then_some(count.total)
    }

    /// Returns the total of each counter.
    pub(super) fn totals_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.counters.iter_mut().map(|count| &mut count.total)
    }
}

impl Total for Counts {
    fn absorb(&mut self, from: &mut Self) {
        for (count, more) in self.counters.iter_mut().zip(&mut from.counters) {
            count.total = count.total.saturating_add(std::mem::take(&mut more.total));
            count.believed |= more.counted & !more.doubted;
            count.doubted |= more.doubted;
            count.counted |= std::mem::take(&mut more.counted);
        }
        for (unscaled, more) in self.unscaled.iter_mut().zip(&mut from.unscaled) {
            let Unscaled { count, interval } = std::mem::take(more);
            unscaled.add(count, interval);
        }
        self.interval += std::mem::take(&mut from.interval);
    }

    fn begin_collection(&mut self) {
        self.interval = Interval::default();
        self.counters.iter_mut().for_each(|count| (count.doubted, count.believed) = (false, false));
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.counters) + size_of_val(&*self.unscaled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unscaled(count: u64, enabled: u64, running: u64) -> Unscaled {
        Unscaled { count, interval: Interval { enabled, running } }
    }

    #[test]
    fn a_count_is_scaled_by_the_time_in_which_it_was_counted_and_is_exact_if_that_is_all_of_it() {
        for (charged, total) in [((7, 0, 0), 7), ((7, 10, 10), 7), ((7, 20, 10), 14), ((7, 20, 20), 7)] {
            let mut unscaled = unscaled(charged.0, charged.1, charged.2);
            assert_eq!(
                (unscaled.settle(), unscaled.count, unscaled.interval),
                (total, 0, Interval::default())
            );
        }
    }

    #[test]
    fn a_count_of_less_than_a_hundredth_of_the_time_waits_and_nothing_of_it_is_lost() {
        let mut unscaled = unscaled(3, 100_000, 999);
        assert_eq!(unscaled.settle(), 0);
        unscaled.add(2, Interval { enabled: 0, running: 1 });
        assert_eq!(unscaled.settle(), 500);
        assert_eq!(unscaled.settle(), 0);
    }
}
