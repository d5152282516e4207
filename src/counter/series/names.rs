//! Who has a name: the busiest, with some reluctance to change.

use std::cmp::Reverse;

use super::{Series, SeriesId, SeriesTable, quality_labels};
use crate::clock::Monotonic;

/// How many busier series take the names of less busy ones at one collection. Each ends a published series of every
/// counter and begins another, which the database behind has to index and to keep. At four collections a minute a
/// thousand newcomers have their names after a quarter of an hour, and the busiest of them at once.
const SWAPS: usize = 16;

/// Nanoseconds of activity below which nobody takes a name from another. Of those that only wake up now and then some
/// always did so last, and would take turns.
const WORTH_A_NAME: u64 = 1_000_000;

impl Series {
    /// Takes the CPU time of this collection into account. Of what was known an eighth is forgotten, so that half is
    /// forgotten after five collections: with less memory, those that run in every other one would take turns.
    pub(super) fn note_activity(&mut self) {
        let forgotten = self.activity.div_ceil(8);
        self.activity = (self.activity - forgotten).saturating_add(self.interval.enabled);
    }
}

impl SeriesTable {
    /// Brings the names into step with the limit, and gives them to the busiest.
    pub(super) fn rebalance(&mut self) {
        let candidates: Vec<(Reverse<u64>, SeriesId)> = self
            .hidden
            .iter()
            .filter(|(_, series)| series.labels != self.other.labels)
            .map(|(&id, series)| (Reverse(series.activity), id))
            .collect();
        let wanted = self.named.len() + candidates.len();
        if candidates.is_empty() && wanted <= self.limit {
            return;
        }
        self.fold_oldest_ended(wanted.saturating_sub(self.limit));

        let excess = self.named.len().saturating_sub(self.limit);
        let free = self.limit.saturating_sub(self.named.len());
        // Of two that are equally busy the older keeps its name, or gets it.
        let named = self.named.iter().map(|(&id, series)| (series.activity, Reverse(id))).collect();
        let mut idlest = least(named, excess.saturating_add(SWAPS)).into_iter();
        let mut busiest = least(candidates, free.saturating_add(SWAPS)).into_iter();
        for (_, Reverse(id)) in idlest.by_ref().take(excess) {
            self.hide(id);
        }
        for (_, id) in busiest.by_ref().take(free) {
            self.name(id);
        }
        for ((of_named, Reverse(idle)), (Reverse(of_hidden), busy)) in idlest.zip(busiest) {
            if !is_clearly_busier(of_hidden, of_named) {
                break;
            }
            self.hide(idle);
            self.name(busy);
        }
    }

    /// Gives a name to a hidden series. What it counted since it was last poured into `other` is its beginning.
    pub(super) fn name(&mut self, id: SeriesId) {
        let Some(mut series) = self.hidden.remove(&id) else { return };
        series.quality_labels = quality_labels(&series.labels, &self.group);
        series.folded = false;
        self.named.insert(id, series);
    }

    /// Takes its name from a series. It is poured into `other` with its whole total.
    fn hide(&mut self, id: SeriesId) {
        if let Some(series) = self.named.remove(&id) {
            self.hidden.insert(id, series);
        }
    }

    /// Folds up to `number` series that have no targets any more: nobody is waiting for their names longer.
    fn fold_oldest_ended(&mut self, number: usize) {
        let ended = self.named.iter().filter_map(|(&id, series)| Some((series.ended?, id)));
        let oldest: Vec<(Monotonic, SeriesId)> = least(ended.collect(), number);
        for (_, id) in oldest {
            self.fold_named(id);
        }
    }
}

/// Twice as busy, or else two of a kind would take the name from each other for ever.
fn is_clearly_busier(hidden: u64, named: u64) -> bool {
    hidden >= WORTH_A_NAME && hidden / 2 >= named
}

/// The `number` least of `all`, in order.
fn least<T: Ord>(mut all: Vec<T>, number: usize) -> Vec<T> {
    if number < all.len() {
        all.select_nth_unstable(number);
        all.truncate(number);
    }
    all.sort_unstable();
    all
}
