//! Selection of the series with individual labels: the most active in the last minutes, with hysteresis.

use std::cmp::Reverse;

use super::{End, Series, SeriesId, Table, Total};

/// Maximum number of series that take the labels of less active ones at one collection. Each swap ends a published series of every metric
/// and begins another, which the database must index and store. At four collections per minute, a thousand new series have labels after a
/// quarter of an hour, the most active first.
const SWAPS: usize = 16;

/// Minimum number of remembered series without targets and labels; the limit of the table, if that is higher.
const CANDIDATES: usize = 1024;

impl<T, I> Series<T, I> {
    /// Adds the activity of this collection. Earlier activity decays by an eighth per collection, so that its half-life is five
    /// collections. With a faster decay, series that are active in every second collection would alternate.
    fn note_activity(&mut self) {
        let forgotten = self.activity.div_ceil(8);
        self.activity = (self.activity - forgotten).saturating_add(std::mem::take(&mut self.active));
    }
}

impl<T: Total, I: Clone + Default> Table<T, I> {
    /// Gives labels to the most active series, within the limit. Series that lose their labels are published once more. Series that gain
    /// labels are published from the next collection on.
    pub(super) fn rank(&mut self) {
        self.named.values_mut().for_each(|series| series.changed = false);
        self.iter_mut().for_each(Series::note_activity);
        self.forget_candidates();
        let candidates: Vec<(Reverse<u64>, SeriesId)> = self
            .unnamed
            .iter()
            .filter(|(_, series)| !series.is_rest())
            .map(|(&id, series)| (Reverse(series.activity), id))
            .collect();
        let wanted = self.named.len() + candidates.len();
        if candidates.is_empty() && wanted <= self.limit {
            return;
        }
        self.hide_oldest_ended(wanted.saturating_sub(self.limit));

        let excess = self.named.len().saturating_sub(self.limit);
        let free = self.limit.saturating_sub(self.named.len());
        // Of two equally active series, the older keeps or gets the labels.
        let named = self.named.iter().map(|(&id, series)| (series.activity, Reverse(id))).collect();
        let mut idlest = least(named, excess.saturating_add(SWAPS)).into_iter();
        let mut busiest = least(candidates, free.saturating_add(SWAPS)).into_iter();
        for (_, Reverse(id)) in idlest.by_ref().take(excess) {
            self.hide(id);
        }
        for (_, id) in busiest.by_ref().take(free) {
            self.name(id);
        }
        for ((of_named, Reverse(idle)), (Reverse(of_unnamed), busy)) in idlest.zip(busiest) {
            if of_unnamed < self.least_activity || !is_clearly_busier(of_unnamed, of_named) {
                break;
            }
            self.hide(idle);
            self.name(busy);
        }
    }

    /// Gives labels to a series whose counts of this collection were aggregated.
    fn name(&mut self, id: SeriesId) {
        let Some(mut series) = self.unnamed.remove(&id) else { return };
        match series.kept.take() {
            Some(mut kept) => series.total.absorb(&mut kept),
            // Earlier counts are in the aggregated series, up to this collection.
            None => series.start = self.previous,
        }
        (series.changed, series.aggregated) = (true, false);
        self.named.insert(id, series);
    }

    /// Removes the labels of a series.
    fn hide(&mut self, id: SeriesId) {
        let Some(mut series) = self.named.remove(&id) else { return };
        series.kept = Some(Box::new(std::mem::replace(&mut series.total, self.empty.clone())));
        series.changed = true;
        self.unnamed.insert(id, series);
    }

    /// Removes the labels of up to `number` ended series, the oldest first.
    fn hide_oldest_ended(&mut self, number: usize) {
        let ended = self.named.iter().filter_map(|(&id, series)| Some((series.ended?, id)));
        let oldest: Vec<(End, SeriesId)> = least(ended.collect(), number);
        oldest.into_iter().for_each(|(_, id)| self.hide(id));
    }

    /// Removes the least active series without labels and targets, if there are too many.
    fn forget_candidates(&mut self) {
        let held = |series: &Series<T, I>| series.targets > 0 || series.is_rest();
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
