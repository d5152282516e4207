//! The series of one group: totals that only grow, whatever comes and goes behind them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Monotonic, Timestamp};
use crate::health::Interval;
use crate::metrics::Labels;

/// How long a series is kept under its own name after its last target ended, so that every scraper sees its final
/// value: the time after which Prometheus forgets a series.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// A series of the table, for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SeriesId(u64);

/// One label set with a total per counter of the group.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub labels: Arc<Labels>,
    /// The same, with what tells this group's series from those of others in families about all groups.
    pub quality_labels: Arc<Labels>,
    pub totals: Box<[u64]>,
    /// Which of the totals have ever been counted: the others are not zero but unknown.
    pub counted: Box<[bool]>,
    /// Which are not to be believed at the moment.
    pub doubted: Box<[bool]>,
    /// Since when it counts.
    pub start: Timestamp,
    /// The last interval, over all that it is made of.
    pub interval: Interval,
    targets: usize,
    ended: Option<Monotonic>,
}

/// All series of one group. At most `limit` have a name of their own; what is beyond them adds to `other`.
#[derive(Debug)]
pub(super) struct SeriesTable {
    counters: usize,
    /// What the quality labels have besides the series' own.
    group: Vec<(Arc<str>, Arc<str>)>,
    limit: usize,
    by_id: BTreeMap<SeriesId, Series>,
    by_labels: HashMap<Arc<Labels>, SeriesId>,
    other: SeriesId,
    next: u64,
    folded: u64,
}

impl SeriesTable {
    /// An empty table for a group of `counters` that is told from other groups by the labels `group`. `other` are the
    /// labels of the series that takes the rest.
    pub(super) fn new(
        counters: usize,
        group: Vec<(Arc<str>, Arc<str>)>,
        limit: usize,
        other: Arc<Labels>,
        now: Timestamp,
    ) -> Self {
        let mut table = Self {
            counters,
            group,
            limit,
            by_id: BTreeMap::new(),
            by_labels: HashMap::new(),
            other: SeriesId(0),
            next: 0,
            folded: 0,
        };
        table.other = table.insert(other, now);
        table
    }

    /// The series with these labels, with one more target in it: an old one that goes on, a new one, or `other` if
    /// there are too many.
    pub(super) fn enter(&mut self, labels: Arc<Labels>, now: Timestamp) -> SeriesId {
        let id = match self.by_labels.get(&labels).copied() {
            Some(id) => id,
            // `other` itself is not counted against the limit.
            None if self.by_id.len() <= self.limit || self.fold_oldest_ended() => self.insert(labels, now),
            None => {
                self.folded += 1;
                self.other
            }
        };
        if let Some(series) = self.by_id.get_mut(&id) {
            series.targets += 1;
            series.ended = None;
        }
        id
    }

    /// Takes one target out of a series. The last one leaves its totals there for five minutes.
    pub(super) fn leave(&mut self, id: SeriesId, now: Monotonic) {
        if let Some(series) = self.by_id.get_mut(&id) {
            series.targets = series.targets.saturating_sub(1);
            if series.targets == 0 {
                series.ended = Some(now);
            }
        }
    }

    /// Folds into `other` what ended long ago.
    pub(super) fn expire(&mut self, now: Monotonic) {
        let old = |series: &Series| series.ended.is_some_and(|ended| now.since(ended) > KEPT);
        let expired: Vec<SeriesId> = self
            .by_id
            .iter()
            .filter(|&(&id, series)| id != self.other && old(series))
            .map(|(&id, _)| id)
            .collect();
        for id in expired {
            self.fold(id);
        }
    }

    /// Changes the limit; series that exist keep their names.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn get_mut(&mut self, id: SeriesId) -> Option<&mut Series> {
        self.by_id.get_mut(&id)
    }

    /// Every series that has something to say: `other` only once something was folded into it.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Series> {
        let silent = |id: SeriesId, series: &Series| {
            id == self.other && series.targets == 0 && !series.counted.contains(&true)
        };
        self.by_id.iter().filter(move |&(&id, series)| !silent(id, series)).map(|(_, series)| series)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Series> {
        self.by_id.values_mut()
    }

    /// What tells the group of this table from others in families about all groups.
    pub(super) fn group_labels(&self) -> &[(Arc<str>, Arc<str>)] {
        &self.group
    }

    /// When counting began.
    pub(super) fn start(&self) -> Timestamp {
        self.by_id.get(&self.other).map_or_else(Timestamp::default, |other| other.start)
    }

    /// How many targets and ended series went into `other` so far.
    pub(super) fn folded(&self) -> u64 {
        self.folded
    }

    fn insert(&mut self, labels: Arc<Labels>, start: Timestamp) -> SeriesId {
        let id = SeriesId(self.next);
        self.next += 1;
        let own = labels.pairs().iter().cloned();
        let series = Series {
            labels: Arc::clone(&labels),
            quality_labels: Labels::new(own.chain(self.group.iter().cloned())),
            totals: vec![0; self.counters].into(),
            counted: vec![false; self.counters].into(),
            doubted: vec![false; self.counters].into(),
            start,
            interval: Interval::default(),
            targets: 0,
            ended: None,
        };
        self.by_id.insert(id, series);
        self.by_labels.insert(labels, id);
        id
    }

    /// Makes room by folding the series that ended first. `false` if all have targets.
    fn fold_oldest_ended(&mut self) -> bool {
        let ended = self.by_id.iter().filter(|&(&id, _)| id != self.other);
        let oldest = ended.filter_map(|(&id, series)| Some((series.ended?, id))).min();
        if let Some((_, id)) = oldest {
            self.fold(id);
        }
        oldest.is_some()
    }

    fn fold(&mut self, id: SeriesId) {
        let Some(series) = self.by_id.remove(&id) else { return };
        self.by_labels.remove(&series.labels);
        self.folded += 1;
        let Some(other) = self.by_id.get_mut(&self.other) else { return };
        for (total, more) in other.totals.iter_mut().zip(&series.totals) {
            *total = total.saturating_add(*more);
        }
        for (counted, more) in other.counted.iter_mut().zip(&series.counted) {
            *counted |= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(comm: &str) -> Arc<Labels> {
        Labels::new([("comm", comm)])
    }

    fn table(limit: usize) -> SeriesTable {
        SeriesTable::new(1, Vec::new(), limit, labels("other"), Timestamp(0))
    }

    fn count(table: &mut SeriesTable, id: SeriesId, n: u64) {
        let series = table.get_mut(id).unwrap();
        series.totals[0] += n;
        series.counted[0] = true;
    }

    fn totals(table: &SeriesTable) -> Vec<(String, u64)> {
        table.iter().map(|series| (series.labels.get("comm").unwrap().to_owned(), series.totals[0])).collect()
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    #[test]
    fn a_series_goes_on_where_its_predecessor_stopped() {
        let mut table = table(10);
        let id = table.enter(labels("nginx"), Timestamp(0));
        count(&mut table, id, 5);
        table.leave(id, at(1));
        table.expire(at(300));
        assert_eq!(table.enter(labels("nginx"), Timestamp(9)), id);
        table.expire(at(9999));
        assert_eq!(totals(&table), [("nginx".into(), 5)]);
    }

    #[test]
    fn what_ended_long_ago_is_folded_and_the_sum_stays() {
        let mut table = table(10);
        for comm in ["a", "b"] {
            let id = table.enter(labels(comm), Timestamp(0));
            count(&mut table, id, 5);
            table.leave(id, at(0));
        }
        table.expire(at(301));
        assert_eq!(totals(&table), [("other".into(), 10)]);
        assert_eq!(table.folded(), 2);
    }

    #[test]
    fn over_the_limit_the_oldest_ended_series_makes_room_and_else_other_takes_the_target() {
        let mut table = table(2);
        let a = table.enter(labels("a"), Timestamp(0));
        count(&mut table, a, 1);
        table.enter(labels("b"), Timestamp(0));
        let c = table.enter(labels("c"), Timestamp(0));
        count(&mut table, c, 10);
        assert_eq!(totals(&table), [("other".into(), 10), ("a".into(), 1), ("b".into(), 0)]);
        table.leave(a, at(1));
        table.enter(labels("d"), Timestamp(0));
        assert_eq!(totals(&table), [("other".into(), 11), ("b".into(), 0), ("d".into(), 0)]);
    }
}
