//! The series of one group: totals that only grow, whatever comes and goes behind them.
//!
//! At most `limit` label sets are published under their names: the busiest. The others are *hidden*: what they count
//! goes into the series `other` at the end of each collection, and they are at zero again. So a series can get a name
//! or lose it without any total falling: with a name it begins anew, and without one its total goes where its later
//! counts will go. The sum of all totals is what was counted, at all times.

mod names;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Monotonic, Timestamp};
use crate::health::Interval;
use crate::metrics::{Labels, NameLimiter, OwnName};

/// How long a series is kept under its own name after its last target ended, so that every scraper sees its final
/// value: the time after which Prometheus forgets a series.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// A series of the table, for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SeriesId(u64);

/// The labels that a target counts under.
#[derive(Debug, Clone)]
pub(super) struct Naming {
    pub labels: Arc<Labels>,
    /// The name in them that a process chose, and the labels in case that it has too many.
    pub own: Option<(OwnName, Arc<Labels>)>,
}

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
    /// Nanoseconds of CPU time that it used lately; see `names`.
    activity: u64,
    /// It is part of `other`, and `folded` has counted it, unless it is called the same and so lost no name.
    folded: bool,
    targets: usize,
    ended: Option<Monotonic>,
    /// The name in its labels that a process chose.
    own: Option<OwnName>,
    /// Targets are in it because their names were refused.
    of_refused: bool,
}

/// All series of one group.
#[derive(Debug)]
pub(super) struct SeriesTable {
    counters: usize,
    /// What the quality labels have besides the series' own.
    group: Vec<(Arc<str>, Arc<str>)>,
    limit: usize,
    /// Those that are published, but for `other`; they stay for a while when they have no targets any more.
    named: BTreeMap<SeriesId, Series>,
    /// Those that are counted in `other`. All have targets, so there are never more of them than of those.
    hidden: BTreeMap<SeriesId, Series>,
    by_labels: HashMap<Arc<Labels>, SeriesId>,
    /// What was counted without a name. No target is in it directly.
    other: Series,
    names: NameLimiter,
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
        let mut other = Series::new(counters, other, now);
        other.quality_labels = quality_labels(&other.labels, &group);
        Self {
            counters,
            group,
            limit,
            named: BTreeMap::new(),
            hidden: BTreeMap::new(),
            by_labels: HashMap::new(),
            other,
            names: NameLimiter::new(usize::MAX),
            next: 0,
            folded: 0,
        }
    }

    /// As [`enter`](Self::enter), if the process may have its name; or else the series that takes the rest of its cgroup,
    /// or of all.
    pub(super) fn enter_as(&mut self, naming: Naming, now: Timestamp, monotonic: Monotonic) -> SeriesId {
        let Naming { labels, own } = naming;
        let Some((own, otherwise)) = own else { return self.enter(labels, now) };
        if let Some(id) = self.enter_admitted(labels, own, now, monotonic) {
            return id;
        }
        self.folded += 1;
        let id = self.enter(otherwise, now);
        if let Some(series) = self.get_mut(id) {
            series.of_refused = true;
        }
        id
    }

    /// Enters a target into the series with its name, if the name was refused before and is admitted now. The target is still
    /// in `from`.
    pub(super) fn enter_again(
        &mut self,
        from: SeriesId,
        naming: impl FnOnce() -> Naming,
        now: Timestamp,
        monotonic: Monotonic,
    ) -> Option<SeriesId> {
        self.get_mut(from).filter(|series| series.of_refused)?;
        let Naming { labels, own } = naming();
        self.enter_admitted(labels, own?.0, now, monotonic)
    }

    fn enter_admitted(
        &mut self,
        labels: Arc<Labels>,
        own: OwnName,
        now: Timestamp,
        monotonic: Monotonic,
    ) -> Option<SeriesId> {
        if self.by_labels.contains_key(&labels) {
            return Some(self.enter(labels, now));
        }
        if !self.names.admit(&own, monotonic) {
            return None;
        }
        let id = self.enter(labels, now);
        match self.get_mut(id) {
            Some(series) => series.own = Some(own),
            None => self.names.release(&own),
        }
        Some(id)
    }

    /// The series with these labels, with one more target in it: an old one that goes on, or a new one. If there is
    /// no name left for it, [`end_collection`](Self::end_collection) decides whether it is worth one.
    pub(super) fn enter(&mut self, labels: Arc<Labels>, now: Timestamp) -> SeriesId {
        let id = match self.by_labels.get(&labels).copied() {
            Some(id) => id,
            None => self.insert(labels, now),
        };
        if let Some(series) = self.get_mut(id) {
            series.targets += 1;
            series.ended = None;
        }
        id
    }

    /// Takes one target out of a series. Under a name the last one leaves its totals there for five minutes; what has
    /// none is forgotten, for its totals are in `other` anyway.
    pub(super) fn leave(&mut self, id: SeriesId, now: Monotonic) {
        let Some(series) = self.get_mut(id) else { return };
        series.targets = series.targets.saturating_sub(1);
        if series.targets == 0 {
            series.ended = Some(now);
            if let Some(series) = self.hidden.remove(&id) {
                self.fold(series);
            }
        }
    }

    /// Folds into `other` what ended long ago. Call it before [`end_collection`](Self::end_collection), so that the
    /// names go to others at once.
    pub(super) fn expire(&mut self, now: Monotonic) {
        let old = |series: &Series| series.ended.is_some_and(|ended| now.since(ended) > KEPT);
        let expired: Vec<SeriesId> =
            self.named.iter().filter(|(_, series)| old(series)).map(|(&id, _)| id).collect();
        for id in expired {
            self.fold_named(id);
        }
    }

    /// Ends a collection, once every interval and every count of it has been entered: gives the names to the busiest,
    /// and adds what the rest counted to `other`. Only here do series lose their names, so that every label set that
    /// begins anew was absent from at least one collection.
    pub(super) fn end_collection(&mut self, now: Timestamp) {
        for series in self.iter_mut() {
            series.note_activity();
        }
        self.rebalance();
        self.pour_into_other(now);
    }

    /// Changes how many names the processes of one cgroup may have.
    pub(super) fn set_names(&mut self, per_cgroup: usize) {
        self.names.set_limit(per_cgroup);
    }

    /// The number of series with labels of their own.
    pub(super) fn len(&self) -> usize {
        self.named.len()
    }

    /// The approximate number of bytes of the series with labels of their own. Hidden series belong to targets; this table
    /// does not limit the number of targets.
    pub(super) fn bytes(&self) -> usize {
        /// A text of labels, and the place in two maps.
        const EACH: usize = 320;
        let series = self.len() + 1;
        series * (size_of::<Series>() + EACH + self.counters * (size_of::<u64>() + 2))
    }

    /// Changes the limit. With the next collection, names are given or taken accordingly.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn get_mut(&mut self, id: SeriesId) -> Option<&mut Series> {
        self.named.get_mut(&id).or_else(|| self.hidden.get_mut(&id))
    }

    /// Every series to be published: `other`, once there is something in it, and those with a name. Of `other` it is
    /// what [`end_collection`](Self::end_collection) left.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Series> {
        let silent = self.hidden.is_empty() && !self.other.counted.contains(&true);
        Some(&self.other).filter(|_| !silent).into_iter().chain(self.named.values())
    }

    /// Every series that can have targets, with a name or without.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Series> {
        self.named.values_mut().chain(self.hidden.values_mut())
    }

    /// What tells the group of this table from others in families about all groups.
    pub(super) fn group_labels(&self) -> &[(Arc<str>, Arc<str>)] {
        &self.group
    }

    /// When counting began.
    pub(super) fn start(&self) -> Timestamp {
        self.other.start
    }

    /// How often a series went into `other` so far: because there was no name for it, because a busier one got its
    /// name, or because it ended. Targets that join it there are not counted again.
    pub(super) fn folded(&self) -> u64 {
        self.folded
    }

    /// How many series with targets are in `other` now, for want of a name of their own.
    pub(super) fn hidden(&self) -> usize {
        self.hidden.values().filter(|series| series.labels != self.other.labels).count()
    }

    fn insert(&mut self, labels: Arc<Labels>, start: Timestamp) -> SeriesId {
        let id = SeriesId(self.next);
        self.next += 1;
        // Something may be called `other` itself, and what is counted for the whole host has no labels either. It has no
        // name but that one.
        let folded = labels == self.other.labels;
        let series = Series { folded, ..Series::new(self.counters, Arc::clone(&labels), start) };
        self.hidden.insert(id, series);
        if self.named.len() < self.limit && !folded {
            self.name(id);
        }
        self.by_labels.insert(labels, id);
        id
    }

    /// Folds a series that has a name, for good.
    fn fold_named(&mut self, id: SeriesId) {
        if let Some(series) = self.named.remove(&id) {
            self.fold(series);
        }
    }

    /// Adds a series that is not in the table any more to `other`.
    fn fold(&mut self, mut series: Series) {
        self.by_labels.remove(&series.labels);
        if let Some(own) = series.own.take() {
            self.names.release(&own);
        }
        self.folded += u64::from(!series.folded);
        self.other.take_totals(&mut series);
    }

    /// Adds what was counted without a name since the last time to `other`.
    ///
    /// A counter of `other` is doubted if all that could be said of it in this collection is doubtful. One hidden
    /// series that is doubted does not take away what all others counted, as it does to those with which it shares a
    /// name: a name stands for one thing that its reader can look into, `other` for a thousand. Nothing wrong gets
    /// into the total, for what is doubted adds nothing, and `perf_event_state` says in how many places it is.
    fn pour_into_other(&mut self, now: Timestamp) {
        self.other.interval = Interval::default();
        self.other.doubted.fill(false);
        let mut believed = vec![false; self.counters];
        for series in self.hidden.values_mut() {
            let Interval { enabled, running } = &mut self.other.interval;
            *enabled = enabled.saturating_add(series.interval.enabled);
            *running = running.saturating_add(series.interval.running);
            // Since the last time it began anew, so what is counted was counted in this collection.
            for ((believed, counted), doubted) in
                believed.iter_mut().zip(&series.counted).zip(&series.doubted)
            {
                *believed |= counted & !doubted;
            }
            for (doubted, more) in self.other.doubted.iter_mut().zip(&series.doubted) {
                *doubted |= more;
            }
            self.folded += u64::from(!std::mem::replace(&mut series.folded, true));
            self.other.take_totals(series);
            series.start = now;
        }
        for (doubted, believed) in self.other.doubted.iter_mut().zip(believed) {
            *doubted &= !believed;
        }
    }
}

impl Series {
    /// Without a name, and so without labels that only names need.
    fn new(counters: usize, labels: Arc<Labels>, start: Timestamp) -> Self {
        Self {
            quality_labels: Arc::clone(&labels),
            labels,
            totals: vec![0; counters].into(),
            counted: vec![false; counters].into(),
            doubted: vec![false; counters].into(),
            start,
            interval: Interval::default(),
            activity: 0,
            folded: false,
            targets: 0,
            ended: None,
            own: None,
            of_refused: false,
        }
    }

    /// Takes over all that `from` counted; of that one nothing is known any more.
    fn take_totals(&mut self, from: &mut Self) {
        for (total, more) in self.totals.iter_mut().zip(&mut from.totals) {
            *total = total.saturating_add(std::mem::take(more));
        }
        for (counted, more) in self.counted.iter_mut().zip(&mut from.counted) {
            *counted |= std::mem::take(more);
        }
    }
}

/// The labels of a series in families about all groups.
fn quality_labels(own: &Labels, group: &[(Arc<str>, Arc<str>)]) -> Arc<Labels> {
    Labels::new(own.pairs().chain(group.iter().map(|(name, value)| (&**name, &**value))))
}
