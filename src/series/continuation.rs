//! Continuation of a table after the counted events or the selected targets changed.

use std::sync::Arc;

use super::rank::LAST_VALUE;
use super::{Series, Table, Total, rest_of};
use crate::clock::{Monotonic, Timestamp};

impl<T: Total, I: Clone + Default> Table<T, I> {
    /// Removes all targets. Series whose targets are not added again end as if their targets had ended now.
    pub fn remove_targets(&mut self, now: Monotonic) {
        let end = self.end(now);
        for series in self.iter_mut().filter(|series| series.ended.is_none()) {
            (series.targets, series.ended) = (0, Some(end));
        }
    }

    /// Replaces every total by what `convert` makes of it, and the data of the caller by its default. `empty` is the total of a new series
    /// from now on.
    pub fn convert(&mut self, empty: T, convert: impl Fn(&T) -> T) {
        self.empty = empty;
        self.gone = convert(&self.gone);
        for series in self.all_mut() {
            series.info = I::default();
            series.total = convert(&series.total);
            series.kept.iter_mut().for_each(|kept| **kept = convert(kept));
        }
    }

    /// Adds the series and totals of another table with the same labels, whose events are not in this one. Published totals stay published,
    /// in the series with the same labels. `add` adds a total to another; both come with the start times of their series.
    pub fn merge(
        &mut self,
        mut other: Self,
        now: Monotonic,
        add: impl Fn((&mut T, Timestamp), (&T, Timestamp)),
    ) {
        other.empty_unnamed();
        (self.aggregated, self.start) = (self.aggregated + other.aggregated, self.start.min(other.start));
        add((&mut self.gone, Timestamp::default()), (&other.gone, Timestamp::default()));
        for (labels, from) in std::mem::take(&mut other.rest) {
            let to = rest_of(&mut self.rest, &labels, &self.empty, self.previous);
            add((&mut to.total, to.start), (&from.total, from.start));
            to.start = to.start.min(from.start);
        }
        let named = std::mem::take(&mut other.named).into_values().map(|series| (series, true));
        let unnamed = std::mem::take(&mut other.unnamed).into_values().map(|series| (series, false));
        for (from, is_named) in named.chain(unnamed) {
            self.merge_series(from, is_named, now, &add);
        }
    }

    fn merge_series(
        &mut self,
        from: Series<T, I>,
        is_named: bool,
        now: Monotonic,
        add: &impl Fn((&mut T, Timestamp), (&T, Timestamp)),
    ) {
        let published = if is_named { Some(&from.total) } else { from.kept.as_deref() };
        let end = self.end(now);
        let id = match self.find(&from.labels) {
            Some(id) => id,
            None => {
                let id = self.insert(Arc::clone(&from.labels), Arc::clone(&from.rest), I::default());
                if let Some(series) = self.get_mut(id) {
                    (series.ended, series.activity) = (Some(end), from.activity);
                    (series.last_active, series.of_refused) = (from.last_active, from.of_refused);
                    series.aggregated = from.aggregated;
                }
                id
            }
        };
        let Some(published) = published else { return };
        if let Some(to) = self.named.get_mut(&id) {
            add((&mut to.total, to.start), (published, from.start));
            to.start = to.start.min(from.start);
        } else if let Some(to) = self.unnamed.get_mut(&id) {
            let kept = to.kept.get_or_insert_with(|| Box::new(self.empty.clone()));
            add((&mut **kept, to.start), (published, from.start));
            to.start = to.start.min(from.start);
            let until = if is_named { Some(now.after(LAST_VALUE)) } else { from.leaves };
            to.leaves = to.leaves.max(until);
        }
    }

    /// Adds the counts of series without labels of their own to the aggregated series, without a new collection.
    fn empty_unnamed(&mut self) {
        for series in self.unnamed.values_mut() {
            let rest = rest_of(&mut self.rest, &series.rest, &self.empty, self.previous);
            rest.total.absorb(&mut series.total);
        }
    }
}
