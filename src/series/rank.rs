//! Selection of the series with individual labels: the most active in the last minutes, with hysteresis.

use std::cmp::Reverse;
use std::time::Duration;

use super::{End, Series, SeriesId, Table, Total};
use crate::clock::Monotonic;

/// Maximum number of series that lose their labels to more active ones in one [`TURN`]. Each swap ends a published series of every metric
/// and begins another, which the database must index and store. A thousand new series have labels after ten minutes, the most active
/// first.
const SWAPS: usize = 16;

/// Time between two comparisons of active series. Collections may be more frequent. An idle series loses its labels in any collection.
const TURN: Duration = Duration::from_secs(10);

/// How long the last value of a series is published after its last activity: the longest usual interval of scrapes. A scraper that misses
/// the last value of a series that loses its labels loses the counts since its previous scrape.
pub(super) const LAST_VALUE: Duration = Duration::from_secs(60);

/// Minimum number of remembered series without targets and labels; the limit of the table, if that is higher.
const CANDIDATES: usize = 1024;

impl<T, I> Series<T, I> {
    /// Adds the activity of this collection. Earlier activity decays by an eighth in each turn, so that its half-life is a minute. With a
    /// faster decay, series that are active in every second collection would alternate.
    fn note_activity(&mut self, now: Monotonic, is_turn: bool) {
        if self.active > 0 {
            self.last_active = Some(now);
        }
        let forgotten = if is_turn { self.activity.div_ceil(8) } else { 0 };
        self.activity = (self.activity - forgotten).saturating_add(std::mem::take(&mut self.active));
    }
}

impl<T: Total, I: Clone + Default> Table<T, I> {
    /// Gives labels to the most active series, within the limit. A series that loses its labels is published until a minute after its last
    /// activity, and only then another one gains labels.
    pub(super) fn rank(&mut self, now: Monotonic) {
        let is_turn = self.turn.is_none_or(|last| now.since(last) >= TURN);
        if is_turn {
            self.turn = Some(now);
            self.swaps = SWAPS;
        }
        self.iter_mut().for_each(|series| series.note_activity(now, is_turn));
        self.forget_candidates();
        self.leaving = self.last().count();
        if self.named.len() + self.leaving > self.limit {
            // The limit was lowered, possibly because memory is short.
            self.unnamed
                .values_mut()
                .filter_map(|series| series.leaves.as_mut())
                .for_each(|until| *until = now);
        }
        let candidates: Vec<(Reverse<u64>, SeriesId)> = self
            .unnamed
            .iter()
            .filter(|(_, series)| !series.is_rest() && series.leaves.is_none())
            .map(|(&id, series)| (Reverse(series.activity), id))
            .collect();
        let wanted = self.named.len() + candidates.len();
        if candidates.is_empty() && wanted <= self.limit {
            return;
        }
        let is_lowered = self.named.len() > self.limit;
        self.hide_oldest_ended(wanted.saturating_sub(self.limit), now, is_lowered);

        let excess = self.named.len().saturating_sub(self.limit);
        // Of two equally active series, the older keeps or gets the labels.
        let named = self.named.iter().map(|(&id, series)| (series.activity, Reverse(id))).collect();
        let mut idlest = least(named, excess.saturating_add(self.swaps)).into_iter();
        for (_, Reverse(id)) in idlest.by_ref().take(excess) {
            self.hide(id, now, is_lowered);
        }
        let reserved = self.last().count();
        let mut free = self.limit.saturating_sub(self.named.len() + reserved);
        let busiest = least(candidates, free.saturating_add(reserved).saturating_add(self.swaps));
        // The busiest candidates gain the labels that are free, and those of series that are leaving.
        let others = busiest.iter().skip(free.saturating_add(reserved));
        for ((of_named, Reverse(idle)), &(Reverse(of_unnamed), _)) in idlest.zip(others) {
            let is_due = is_turn || of_named == 0;
            if !is_due || of_unnamed < self.least_activity || !is_clearly_busier(of_unnamed, of_named) {
                break;
            }
            self.swaps -= 1;
            free += usize::from(!self.hide(idle, now, is_lowered));
        }
        for (_, id) in busiest.into_iter().take(free) {
            self.name(id);
        }
        self.leaving = self.last().count();
    }

    /// Gives labels to a series. Its counts of this collection were aggregated before, so it is published with its previous total, or zero.
    fn name(&mut self, id: SeriesId) {
        let Some(mut series) = self.unnamed.remove(&id) else { return };
        match series.kept.take() {
            Some(mut kept) => series.total.absorb(&mut kept),
            // Earlier counts are in the aggregated series, up to this collection.
            None => series.start = self.previous,
        }
        series.aggregated = false;
        self.named.insert(id, series);
    }

    /// Removes the labels of a series. If the series was active in the last minute, its total is published until the end of this minute, or
    /// only once with `is_lowered`. Returns whether that is so.
    fn hide(&mut self, id: SeriesId, now: Monotonic, is_lowered: bool) -> bool {
        let Some(mut series) = self.named.remove(&id) else { return false };
        let until = series.last_active.map(|at| at.after(LAST_VALUE)).filter(|&until| until > now);
        series.leaves = until.map(|until| if is_lowered { now } else { until });
        series.kept = Some(Box::new(std::mem::replace(&mut series.total, self.empty.clone())));
        self.unnamed.insert(id, series);
        until.is_some()
    }

    /// Removes the labels of up to `number` ended series, the oldest first.
    fn hide_oldest_ended(&mut self, number: usize, now: Monotonic, is_lowered: bool) {
        let ended = self.named.iter().filter_map(|(&id, series)| Some((series.ended?, id)));
        let oldest: Vec<(End, SeriesId)> = least(ended.collect(), number);
        for (_, id) in oldest {
            self.hide(id, now, is_lowered);
        }
    }

    /// Removes the least active series without labels and targets, if there are too many.
    fn forget_candidates(&mut self) {
        let held = |series: &Series<T, I>| series.targets > 0 || series.is_rest() || series.leaves.is_some();
        let candidates = self.unnamed.iter().filter(|(_, series)| !held(series));
        let candidates: Vec<(u64, SeriesId)> =
            candidates.map(|(&id, series)| (series.activity, id)).collect();
        let excess = candidates.len().saturating_sub(self.limit.max(CANDIDATES));
        let idle = candidates.iter().filter(|&&(activity, _)| activity == 0).count();
        least(candidates, excess.max(idle)).into_iter().for_each(|(_, id)| self.remove(id));
    }
}

/// Reports whether a series is at least twice as active. Otherwise two similar series would exchange the labels repeatedly.
fn is_clearly_busier(unnamed: u64, named: u64) -> bool {
    unnamed / 2 >= named
}

/// Returns the `number` smallest elements, in order.
fn least<T: Ord>(mut all: Vec<T>, number: usize) -> Vec<T> {
    if number < all.len() {
        all.select_nth_unstable(number);
        all.truncate(number);
    }
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Timestamp;
    use crate::metrics::Labels;
    use crate::series::Naming;

    /// Creates a table with a target for each name.
    fn table<const N: usize>(limit: usize, names: [&str; N]) -> (Table<u64>, [SeriesId; N]) {
        let mut table = Table::new(0, limit, 10, Timestamp(0));
        let labels = |name| Labels::new([("comm", name)]);
        let naming = |name| Naming { labels: labels(name), rest: labels("other"), own: None, info: () };
        let ids = names.map(|name| table.enter(naming(name), Monotonic::default()));
        (table, ids)
    }

    fn collect<const N: usize>(table: &mut Table<u64>, ids: [SeriesId; N], counts: [u64; N]) {
        for (id, count) in ids.into_iter().zip(counts) {
            table.get_mut(id).into_iter().for_each(|series| series.count(count));
        }
        // Each collection is a turn.
        let now = Monotonic(TURN * u32::try_from(table.collections).unwrap());
        table.end_collection(Timestamp(0), now);
    }

    /// Returns the series with labels of their own.
    fn named<const N: usize>(table: &Table<u64>, ids: [SeriesId; N]) -> [bool; N] {
        ids.map(|id| table.named.contains_key(&id))
    }

    #[test]
    fn activity_decays_by_an_eighth_per_turn_rounded_up() {
        let (mut table, ids) = table(1, ["a"]);
        for (count, activity) in [(800, 800), (0, 700), (0, 612), (8, 543)] {
            collect(&mut table, ids, [count]);
            assert_eq!(table.get_mut(ids[0]).unwrap().activity, activity);
        }
    }

    #[test]
    fn a_series_that_is_twice_as_active_takes_the_labels() {
        for (activity, takes) in [(199, false), (200, true)] {
            let (mut table, ids) = table(1, ["a", "b"]);
            collect(&mut table, ids, [100, activity]);
            assert_eq!(named(&table, ids), [!takes, false], "{activity}");
            if takes {
                // The last value of the other one was published for a minute.
                table.end_collection(Timestamp(0), Monotonic(Duration::from_secs(60)));
                assert_eq!(named(&table, ids), [false, true]);
            }
        }
    }

    #[test]
    fn frequent_collections_exchange_labels_no_faster() {
        let (mut table, ids) = table(1, ["a", "b"]);
        collect(&mut table, ids, [100, 0]);
        for second in 1..10 {
            table.get_mut(ids[1]).unwrap().count(100);
            table.end_collection(Timestamp(0), Monotonic(Duration::from_secs(second)));
            assert_eq!(named(&table, ids), [true, false], "{second}");
            assert_eq!(table.get_mut(ids[0]).unwrap().activity, 100);
        }
        table.end_collection(Timestamp(0), Monotonic(TURN));
        assert_eq!(named(&table, ids), [false, false], "the last value of the first one is still published");
    }

    #[test]
    fn an_idle_series_loses_its_labels_to_an_active_one_at_the_next_collection() {
        let mut table = Table::new(0, SWAPS + 4, 10, Timestamp(0));
        let ids: Vec<SeriesId> = (0..2 * SWAPS + 8)
            .map(|number| {
                let labels = |name: String| Labels::new([("comm", name)]);
                let name = labels(format!("{number}"));
                table.enter(
                    Naming { labels: name, rest: labels("other".into()), own: None, info: () },
                    Monotonic::default(),
                )
            })
            .collect();
        let (named, unnamed) = ids.split_at(SWAPS + 4);
        table.end_collection(Timestamp(0), Monotonic::default());
        let with_labels =
            |table: &Table<u64>| unnamed.iter().filter(|&id| table.named.contains_key(id)).count();
        for (second, number) in [(1, SWAPS), (2, SWAPS), (10, SWAPS + 4)] {
            unnamed.iter().for_each(|&id| table.get_mut(id).unwrap().count(100));
            table.end_collection(Timestamp(0), Monotonic(Duration::from_secs(second)));
            assert_eq!(with_labels(&table), number, "{second}");
        }
        assert!(named.iter().all(|&id| table.get_mut(id).unwrap().activity == 0));
    }

    #[test]
    fn the_least_active_series_loses_its_labels_to_the_most_active_one() {
        let (mut table, ids) = table(3, ["a", "b", "c", "d", "e"]);
        collect(&mut table, ids, [400, 0, 300, 100, 1000]);
        // The second swap would be 100 instead of 300.
        assert_eq!(named(&table, ids), [true, false, true, false, true]);
    }

    #[test]
    fn all_series_have_labels_once_the_limit_allows_it() {
        let (mut table, ids) = table(1, ["a", "b", "c"]);
        collect(&mut table, ids, [0; 3]);
        assert_eq!(named(&table, ids), [true, false, false]);
        table.set_limit(4);
        collect(&mut table, ids, [0; 3]);
        assert_eq!(named(&table, ids), [true; 3]);
    }

    #[test]
    fn only_as_many_ended_series_as_necessary_lose_their_labels() {
        let (mut table, ids) = table(3, ["a", "b", "c", "d"]);
        collect(&mut table, ids, [0; 4]);
        for (id, second) in [(ids[1], 1), (ids[0], 2)] {
            table.leave(id, Monotonic(Duration::from_secs(second)));
        }
        table.end_collection(Timestamp(0), Monotonic(Duration::from_secs(3)));
        assert_eq!(named(&table, ids), [true, false, true, true], "the first that ended");
    }
}
