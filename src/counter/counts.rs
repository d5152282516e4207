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
    /// Time from which it counts, if it was added to the group after the series began; otherwise earlier than the start of the series.
    pub(super) begin: Timestamp,
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
    /// Returns the part of a group whose series are in `series`.
    pub(super) fn new(plan: Arc<Group>, series: SeriesTable) -> Self {
        Self {
            series,
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

/// Returns an empty table for the series of a group. At most `limit` series have labels of their own.
pub(super) fn empty_table(plan: &Group, limit: usize, now: Timestamp) -> SeriesTable {
    Table::new(Counts::new(plan), limit, MIN_ACTIVITY, now)
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

    /// Returns the counts of the group `plan`, which continues these counts. `places`: for each counter of `plan`, its place in these counts;
    /// the others begin `now`.
    pub(super) fn continued(&self, plan: &Group, places: &[Option<usize>], now: Timestamp) -> Self {
        let mut counts = Self::new(plan);
        for (count, &place) in counts.counters.iter_mut().zip(places) {
            let old = place.and_then(|place| self.counters.get(place).copied());
            *count = old.unwrap_or(Count { begin: now, ..Count::default() });
        }
        for (unscaled, &place) in counts.unscaled.iter_mut().zip(places) {
            *unscaled = place.and_then(|place| self.unscaled.get(place).copied()).unwrap_or_default();
        }
        counts
    }

    /// Continues counts of another group as well. `places`: for each counter, its place in `from`, if it is there. `start` and `from_start`
    /// are the start times of the series of both.
    pub(super) fn add_counters(
        &mut self,
        start: Timestamp,
        (from, from_start): (&Self, Timestamp),
        places: &[Option<usize>],
    ) {
        for (count, place) in self.counters.iter_mut().zip(places) {
            match place.and_then(|place| from.counters.get(place)) {
                Some(old) => *count = Count { begin: old.begin.max(from_start), ..*old },
                None => count.begin = count.begin.max(start),
            }
        }
        for (unscaled, place) in self.unscaled.iter_mut().zip(places) {
            if let Some(old) = place.and_then(|place| from.unscaled.get(place)) {
                *unscaled = *old;
            }
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

    /// Returns the time from which a counter of a series counts. `start`: the time from which the series counts.
    pub(super) fn start(&self, counter: usize, start: Timestamp) -> Timestamp {
        self.counters.get(counter).map_or(start, |count| count.begin.max(start))
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
            count.counted |= more.counted;
            count.begin = count.begin.max(more.begin);
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
    use std::time::Duration;

    use super::*;
    use crate::event::{Catalog, Kind};
    use crate::host::{Facts, Roots};
    use crate::targets::{
        Cgroup, CgroupId, CgroupSelection, Glob, GroupBy, Process, ProcessKey, ProcessSelection, Targets,
    };

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

    fn counts(counters: &[Count]) -> Counts {
        Counts { counters: counters.into(), unscaled: [].into(), interval: Interval::default() }
    }

    #[test]
    fn a_total_is_known_once_it_was_counted_unless_all_of_its_targets_are_implausible() {
        for (counted, doubted, believed, known) in [
            (false, false, false, None),
            (true, false, false, Some(7)),
            (true, true, false, None),
            (true, true, true, Some(7)),
            (false, true, true, None),
        ] {
            let counts = counts(&[Count { total: 7, counted, doubted, believed, ..Count::default() }]);
            assert_eq!((counts.known(0), counts.known(1)), (known, None), "{counts:?}");
        }
    }

    #[test]
    fn an_aggregated_total_is_known_if_one_of_its_series_is_plausible() {
        let count = |total, counted, doubted| Count { total, counted, doubted, ..Count::default() };
        for (series, known) in [
            (&[(1, true, true), (2, true, false)][..], Some(3)),
            (&[(2, true, false), (1, true, true)], Some(3)),
            (&[(1, true, true), (2, true, true)], None),
            (&[(1, true, true), (0, false, false)], None),
            (&[(0, false, false), (2, true, false)], Some(2)),
        ] {
            let mut all = counts(&[Count::default()]);
            for &(total, counted, doubted) in series {
                let mut one = counts(&[count(total, counted, doubted)]);
                one.interval = Interval { enabled: 9, running: 4 };
                all.absorb(&mut one);
                assert_eq!((one.counters[0].total, one.counters[0].counted), (0, counted), "zero is known");
                assert_eq!(one.interval, Interval::default());
            }
            assert_eq!(all.known(0), known, "{series:?}");
            let collected = series.len() as u64;
            assert_eq!(all.interval, Interval { enabled: 9 * collected, running: 4 * collected });
            all.begin_collection();
            assert_eq!(all.known(0), Some(series.iter().map(|&(total, ..)| total).sum()), "in the next one");
            assert_eq!(all.interval, Interval::default());
            all.absorb(&mut counts(&[count(1, true, true)]));
            assert_eq!(all.known(0), None, "its plausible series were those of an earlier collection");
        }
    }

    #[test]
    fn counts_that_are_not_scaled_yet_are_aggregated_with_their_time() {
        let waiting = |count, enabled, running| Counts {
            unscaled: [unscaled(count, enabled, running)].into(),
            ..counts(&[Count { total: 100, ..Count::default() }])
        };
        let (mut all, mut one) = (waiting(1, 100, 0), waiting(4, 100, 50));
        all.absorb(&mut one);
        all.scale();
        one.scale();
        assert_eq!([all, one].map(|counts| counts.counters[0].total), [220, 0]);
    }

    #[test]
    fn the_memory_of_counts_is_that_of_both_lists() {
        let both = Counts { unscaled: [Unscaled::default(); 3].into(), ..counts(&[Count::default(); 2]) };
        assert_eq!(both.bytes(), 2 * size_of::<Count>() + 3 * size_of::<Unscaled>());
    }

    fn base() -> Base {
        let selection =
            CgroupSelection { include: vec![Glob::new("/*").unwrap()], ..CgroupSelection::default() };
        base_of(Targets::Cgroups(selection))
    }

    fn base_of(targets: Targets) -> Base {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::load(&Roots::under(dir.path()), &Facts::default());
        let events = catalog.resolve(&crate::config::profiled::one_event("page-faults").unwrap()).unwrap();
        let plan = crate::plan::groups(&"test".into(), &targets, events);
        let group = Arc::clone(&plan.groups[0]);
        let series = empty_table(&group, 10, Timestamp(0));
        Base::new(group, series)
    }

    #[test]
    fn cpus_that_went_offline_and_that_came_online_are_those_of_one_set_only() {
        let mut base = base();
        for (online, gone, come) in
            [("0-2", vec![], vec![0, 1, 2]), ("1-3", vec![0], vec![3]), ("1-3", vec![], vec![])]
        {
            assert_eq!(base.set_online(&online.parse().unwrap()), (gone, come), "{online}");
        }
    }

    #[test]
    fn the_cgroups_above_a_path_are_the_known_ones_from_the_nearest_to_the_root() {
        let mut base = base();
        let cgroup =
            |id: u64, path: &str| Subject::Cgroup(Arc::new(Cgroup { id: CgroupId(id), ..Cgroup::at(path) }));
        let above = |base: &Base, path: &str| base.above(path).collect::<Vec<_>>();
        let all = [(1, "/"), (2, "/a"), (3, "/a/b/c"), (4, "/x")].map(|(id, path)| cgroup(id, path));
        all.iter().for_each(|cgroup| base.know_path(cgroup));
        let [root, a, c, _] = all.each_ref().map(Subject::key);
        assert_eq!(above(&base, "/a/b/c/d"), [c, a, root]);
        assert_eq!(above(&base, "/a/b/c"), [a, root], "a cgroup is not above itself");
        assert_eq!(above(&base, "/"), []);
        // The cgroup was created again before its end was noticed.
        let again = cgroup(9, "/a");
        base.know_path(&again);
        base.forget_path(&all[1]);
        assert_eq!(above(&base, "/a/b"), [again.key(), root]);
        base.forget_path(&again);
        assert_eq!(above(&base, "/a/b"), [root]);
    }

    #[test]
    fn a_process_gets_the_series_of_its_name_once_its_cgroup_has_room_for_it() {
        let selection = ProcessSelection { by: vec![GroupBy::Comm], ..ProcessSelection::default() };
        let mut base = base_of(Targets::Processes(selection));
        base.series.set_names(1);
        let at = |seconds| Monotonic(Duration::from_secs(seconds));
        let process = |pid: u32, comm: &str| {
            let key = ProcessKey { pid, start_time: 1 };
            let cgroup = Some("/pod".into());
            Subject::Process(Arc::new(Process {
                key,
                comm: comm.into(),
                exe: None,
                cgroup,
                kernel_thread: false,
            }))
        };
        let (first, second) = (process(1, "first"), process(2, "second"));
        let [of_first, of_second] = [&first, &second].map(|subject| base.enter(subject, at(0)));
        assert_eq!(base.enter_again(of_second, &second, at(60)), None, "the cgroup has its one name");
        base.series.leave(of_first, at(60));
        for seconds in [61, 361] {
            base.series.end_collection(Timestamp(seconds * 1000), at(seconds));
        }
        let named = base.enter_again(of_second, &second, at(361));
        assert!(named.is_some_and(|id| id != of_second), "{named:?}");
    }

    #[test]
    fn only_hardware_events_of_the_stream_wait_to_be_scaled() {
        let group = Group::clone(&base().plan);
        let share = Share::of(&[9, 8], &[100, 100, 100, 50]);
        for (source, kind, waits) in [
            (Source::Stream, Kind::Hardware, true),
            (Source::Stream, Kind::Software, false),
            (Source::Dedicated, Kind::Hardware, false),
        ] {
            let mut group = Group { source, ..group.clone() };
            group.counters[0].event.kind = kind;
            let mut counts = Counts::new(&group);
            // The counter is the second one of the stream.
            counts.attribute(&[1], &share);
            counts.attribute(&[1], &share);
            let total = |counts: &Counts| counts.counters[0].total;
            assert_eq!(total(&counts), if waits { 0 } else { 16 }, "{source:?} {kind:?}");
            counts.scale();
            assert_eq!(total(&counts), if waits { 32 } else { 16 }, "{source:?} {kind:?}");
            counts.attribute(&[7], &share);
            counts.totals_mut().for_each(|total| *total += 1);
            assert_eq!(total(&counts), if waits { 33 } else { 17 }, "the stream has no such counter");
        }
    }

    /// Returns a group of hardware events of the stream.
    fn hardware(counters: usize) -> Group {
        let mut group = Group { source: Source::Stream, ..Group::clone(&base().plan) };
        group.counters[0].event.kind = Kind::Hardware;
        group.counters = vec![group.counters[0].clone(); counters];
        group
    }

    /// Returns totals after scaling, and the start of each counter in a series that starts at `start`.
    fn scaled(mut counts: Counts, start: Timestamp) -> Vec<(u64, Timestamp)> {
        counts.scale();
        let totals: Vec<u64> = counts.totals_mut().map(|total| *total).collect();
        totals.into_iter().enumerate().map(|(counter, total)| (total, counts.start(counter, start))).collect()
    }

    #[test]
    fn counts_that_are_not_scaled_yet_continue_in_their_places_and_an_added_counter_begins_now() {
        let mut old = Counts::new(&hardware(2));
        old.attribute(&[0, 1], &Share::of(&[9, 8], &[100, 100, 100, 50]));
        old.totals_mut().for_each(|total| *total = 1000);
        let new = old.continued(&hardware(2), &[Some(1), None], Timestamp(5));
        let [early, late] = [Timestamp(3), Timestamp(7)];
        assert_eq!(scaled(new.clone(), early), [(1016, early), (0, Timestamp(5))]);
        assert_eq!(scaled(new, late), [(1016, late), (0, late)], "in a newer series");
    }

    #[test]
    fn counters_of_two_groups_come_together_with_their_own_starts_and_the_counts_that_are_not_scaled_yet() {
        let group = hardware(2);
        let share = Share::of(&[9, 8], &[100, 100, 100, 50]);
        let (mut counts, mut from) = (Counts::new(&group), Counts::new(&hardware(1)));
        counts.attribute(&[0, 7], &share);
        from.attribute(&[1], &share);
        counts.add_counters(Timestamp(10), (&from, Timestamp(20)), &[None, Some(0)]);
        assert_eq!(scaled(counts.clone(), Timestamp(2)), [(9, Timestamp(10)), (16, Timestamp(20))]);
        // Both are in one series now, and a later merge leaves their starts.
        counts.add_counters(Timestamp(2), (&from, Timestamp(30)), &[None, None]);
        assert_eq!(scaled(counts, Timestamp(2)), [(9, Timestamp(10)), (16, Timestamp(20))]);
    }

    #[test]
    fn a_total_that_continues_a_kept_one_begins_with_it() {
        let begin = Timestamp(30);
        let mut kept = counts(&[Count { total: 7, counted: true, begin, ..Count::default() }]);
        let mut counts = counts(&[Count::default()]);
        counts.absorb(&mut kept);
        assert_eq!([10, 40].map(|start| counts.start(0, Timestamp(start))), [begin, Timestamp(40)]);
    }

    #[test]
    fn a_collection_begins_without_states_and_ranks_series_by_their_time_in_it() {
        let mut base = base();
        let cgroup = |path: &str| Subject::Cgroup(Arc::new(Cgroup::at(path)));
        assert_eq!(["/a", "/"].map(|path| base.selects(&cgroup(path))), [true, false]);
        let id = base.enter(&cgroup("/a"), Monotonic::default());
        base.states.insert((0, Verdict::Counting), 1);
        let series = base.series.get_mut(id).unwrap();
        series.total.interval = Interval { enabled: 7, running: 3 };
        base.note_activity();
        let found = |base: &mut Base| {
            let series = base.series.get_mut(id).unwrap();
            (series.active, series.total.interval.enabled)
        };
        assert_eq!(found(&mut base), (7, 7));
        base.begin_collection();
        assert_eq!((found(&mut base), base.states.len()), ((7, 0), 0));
    }
}
