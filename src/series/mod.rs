//! Tables of series: totals by label set that never decrease and never jump.
//!
//! Each table publishes at most `limit` series with labels of their own, those with the most recent activity (`rank`).
//! Counts of the other series are added to aggregated series, usually with the label value `other`:
//!
//! - An aggregated series receives the increments of series without labels of their own, and nothing else. A total that was
//!   published elsewhere is never added to it.
//! - A series that loses its labels is published until a minute after its last activity, so that every scraper sees its last value. Then it
//!   is absent, and goes stale in Prometheus. Its total is kept, and is continued if the series regains its labels.
//! - A series is absent five minutes after its last target ended. Its total is dropped from all published series.
//!
//! A new series counts from the previous collection, and its created timestamp is the time of that collection. A series that gains labels
//! is published with its previous total, or zero, before it counts.
//!
//! So the increase of all series together equals the counted events, in any interval, also for a scraper that sees only some of the
//! publications.

mod continuation;
mod names;
mod rank;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Monotonic, Timestamp};
use crate::metrics::{Kind, Labels, Metadata, NameError};
pub use names::{NameLimiter, OwnName};

/// Creates the metadata of the number of [aggregations](Table::aggregated), which all publishers of series share.
///
/// # Errors
/// When the name is invalid: a bug.
pub(crate) fn aggregated_metadata() -> Result<Arc<Metadata>, NameError> {
    let help = "Number of times that a series was aggregated into the series \"other\": the table was full, or a cgroup \
                had too many process names.";
    Metadata::new("perf_series_aggregated", help, "", Kind::Counter)
}

/// How long a series is published after its last target ended, so that every scraper sees its final value: Prometheus
/// considers a series stale after the same time.
pub(crate) const RETENTION: Duration = Duration::from_secs(5 * 60);

/// What a series counts.
pub trait Total: Clone + Debug {
    /// Adds `from`, which is empty afterwards.
    fn absorb(&mut self, from: &mut Self);

    /// Resets the values that apply to one collection only.
    fn begin_collection(&mut self) {}

    /// Approximate number of bytes on the heap.
    fn bytes(&self) -> usize {
        0
    }
}

impl Total for u64 {
    fn absorb(&mut self, from: &mut Self) {
        *self = self.saturating_add(std::mem::take(from));
    }
}

/// Number of series in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeriesCount {
    /// Series in the last publication.
    pub published: usize,
    /// Series without labels of their own, which are aggregated into the series `other`.
    pub in_other: usize,
}

/// Identifier of a series, valid while the series is in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(u64);

/// Labels of a series and of the series into which it is aggregated.
#[derive(Debug, Clone)]
pub struct Naming<I = ()> {
    /// Labels of its own.
    pub labels: Arc<Labels>,
    /// Labels of the aggregated series that counts for it while it has no labels of its own.
    pub rest: Arc<Labels>,
    /// Label value chosen by a process, and the fallback series if its cgroup has too many such values.
    pub own: Option<Own<I>>,
    /// Data of the caller.
    pub info: I,
}

/// Label value chosen by a process.
#[derive(Debug, Clone)]
pub struct Own<I = ()> {
    /// Name, and the cgroup whose names are limited.
    pub name: OwnName,
    /// Labels without the name.
    pub labels: Arc<Labels>,
    /// Data of the caller for the series with these labels.
    pub info: I,
}

/// One label set and its total.
#[derive(Debug, Clone)]
pub struct Series<T, I = ()> {
    /// Counts: since its creation if it has labels of its own, otherwise since the previous collection.
    pub total: T,
    /// Data of the caller.
    pub info: I,
    /// Activity in this collection, in units of the caller.
    pub active: u64,
    labels: Arc<Labels>,
    rest: Arc<Labels>,
    start: Timestamp,
    /// Activity in recent collections; see `rank`.
    activity: u64,
    /// Time of the last collection with activity.
    last_active: Option<Monotonic>,
    /// Total that was published before it lost its labels.
    kept: Option<Box<T>>,
    /// Without labels: `kept` is published until the first collection after this time.
    leaves: Option<Monotonic>,
    /// Whether [`Table::aggregated`] includes it.
    aggregated: bool,
    targets: usize,
    ended: Option<End>,
    own: Option<OwnName>,
    /// Whether it is the fallback of series whose names were rejected.
    of_refused: bool,
}

/// The end of the last target of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    at: Monotonic,
    /// The number of collections before it.
    collections: u64,
}

/// A series as it is published.
#[derive(Debug)]
pub struct Published<'a, T, I = ()> {
    /// Its labels.
    pub labels: &'a Arc<Labels>,
    /// Its total.
    pub total: &'a T,
    /// Start time of the counts, not later than the first count.
    pub start: Timestamp,
    /// Data of the caller.
    pub info: &'a I,
}

/// The series of one metric, or of several metrics with the same label sets.
#[derive(Debug, Clone)]
pub struct Table<T, I = ()> {
    empty: T,
    limit: usize,
    /// Minimum recent activity of a series that takes the labels of another.
    least_activity: u64,
    /// When the activity of series was last compared.
    turn: Option<Monotonic>,
    /// How many series may still lose their labels to more active ones in this turn.
    swaps: usize,
    named: BTreeMap<SeriesId, Series<T, I>>,
    unnamed: BTreeMap<SeriesId, Series<T, I>>,
    /// Number of series in `unnamed` that are still published, at the end of the last collection.
    leaving: usize,
    /// IDs of named and unnamed series.
    by_labels: HashMap<Arc<Labels>, SeriesId>,
    /// The aggregated series.
    rest: BTreeMap<Arc<Labels>, Series<T, I>>,
    /// The labels of aggregated series that a series refers to, each once.
    rest_labels: HashSet<Arc<Labels>>,
    /// Totals of series that are no longer in the table.
    gone: T,
    names: NameLimiter,
    next: u64,
    start: Timestamp,
    previous: Timestamp,
    collections: u64,
    aggregated: u64,
}

impl<T: Total, I: Clone + Default> Table<T, I> {
    /// Creates an empty table. `empty` is the total of a new series.
    pub fn new(empty: T, limit: usize, least_activity: u64, now: Timestamp) -> Self {
        Self {
            gone: empty.clone(),
            empty,
            limit,
            least_activity,
            turn: None,
            swaps: 0,
            named: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            leaving: 0,
            by_labels: HashMap::new(),
            rest: BTreeMap::new(),
            rest_labels: HashSet::new(),
            names: NameLimiter::new(usize::MAX),
            next: 0,
            start: now,
            previous: now,
            collections: 0,
            aggregated: 0,
        }
    }

    /// Returns the series with these labels.
    pub fn find(&self, labels: &Labels) -> Option<SeriesId> {
        self.by_labels.get(labels).copied()
    }

    /// Returns the series with these labels, creating it if necessary. `naming` is only called for a new series, because it renders further
    /// labels.
    pub fn find_or_insert_with(
        &mut self,
        labels: &Labels,
        monotonic: Monotonic,
        naming: impl FnOnce() -> Naming<I>,
    ) -> SeriesId {
        match self.find(labels) {
            Some(id) => self.resume(id),
            None => self.find_or_insert(naming(), monotonic),
        }
    }

    /// Returns the series with these labels, creating it if necessary. If its cgroup has too many names, returns the series without the
    /// name.
    pub fn find_or_insert(&mut self, naming: Naming<I>, monotonic: Monotonic) -> SeriesId {
        match self.find_or_admit(naming, monotonic) {
            Ok(id) => id,
            Err((own, rest)) => {
                self.aggregated += 1;
                let id = self.find(&own.labels).unwrap_or_else(|| self.insert(own.labels, rest, own.info));
                if let Some(series) = self.get_mut(id) {
                    (series.of_refused, series.ended) = (true, None);
                }
                id
            }
        }
    }

    /// Returns the series with these labels; fails if it is new and its cgroup has too many names.
    fn find_or_admit(
        &mut self,
        Naming { labels, rest, own, info }: Naming<I>,
        monotonic: Monotonic,
    ) -> Result<SeriesId, (Own<I>, Arc<Labels>)> {
        if let Some(id) = self.find(&labels) {
            return Ok(self.resume(id));
        }
        let own = match own {
            Some(own) if !self.names.admit(&own.name, monotonic) => return Err((own, rest)),
            own => own.map(|own| own.name),
        };
        let id = self.insert(labels, rest, info);
        self.get_mut(id).into_iter().for_each(|series| series.own.clone_from(&own));
        Ok(id)
    }

    /// Adds a target to the series with these labels.
    pub fn enter(&mut self, naming: Naming<I>, monotonic: Monotonic) -> SeriesId {
        let id = self.find_or_insert(naming, monotonic);
        self.hold(id);
        id
    }

    /// Adds a target to the series with its name, if the name was rejected before and is now admitted. The target remains in `from`.
    pub fn enter_again(
        &mut self,
        from: SeriesId,
        naming: impl FnOnce() -> Naming<I>,
        monotonic: Monotonic,
    ) -> Option<SeriesId> {
        self.get_mut(from).filter(|series| series.of_refused)?;
        let id = self.find_or_admit(naming(), monotonic).ok()?;
        self.hold(id);
        Some(id)
    }

    /// Marks a series as active again.
    fn resume(&mut self, id: SeriesId) -> SeriesId {
        self.get_mut(id).into_iter().for_each(|series| series.ended = None);
        id
    }

    fn hold(&mut self, id: SeriesId) {
        self.get_mut(id).into_iter().for_each(|series| series.targets += 1);
    }

    /// Removes a target from a series.
    pub fn leave(&mut self, id: SeriesId, now: Monotonic) {
        let end = self.end(now);
        let Some(series) = self.get_mut(id) else { return };
        series.targets = series.targets.saturating_sub(1);
        if series.targets == 0 {
            series.ended = Some(end);
        }
    }

    /// Marks the series for which `is_there` returns false as ended, for tables without target counts.
    pub fn follow(&mut self, now: Monotonic, is_there: impl Fn(&Series<T, I>) -> bool) {
        let end = self.end(now);
        for series in self.iter_mut() {
            series.ended = (!is_there(series)).then(|| series.ended.unwrap_or(end));
        }
    }

    /// Removes the series for which `goes` returns true, with their totals.
    pub fn remove_where(&mut self, goes: impl Fn(&Series<T, I>) -> bool) {
        let going: Vec<SeriesId> = self
            .named
            .iter()
            .chain(&self.unnamed)
            .filter(|(_, series)| goes(series))
            .map(|(&id, _)| id)
            .collect();
        going.into_iter().for_each(|id| self.remove(id));
        self.rest.retain(|_, series| {
            let goes = goes(series);
            if goes {
                self.gone.absorb(&mut series.total);
            }
            !goes
        });
    }

    /// Begins a collection: resets the values of each series that apply to one collection only.
    pub fn begin_collection(&mut self) {
        for series in self.all_mut() {
            series.total.begin_collection();
            series.kept.iter_mut().for_each(|kept| kept.begin_collection());
        }
    }

    /// Ends a collection after all counts were added: aggregates the counts of series without labels, and decides which series have labels
    /// in the next collection.
    pub fn end_collection(&mut self, now: Timestamp, monotonic: Monotonic) {
        self.drop_ended(monotonic);
        self.aggregate(monotonic);
        (self.previous, self.collections) = (now, self.collections + 1);
        self.rank(monotonic);
    }

    /// Returns a series that is in the table.
    pub fn get_mut(&mut self, id: SeriesId) -> Option<&mut Series<T, I>> {
        self.named.get_mut(&id).or_else(|| self.unnamed.get_mut(&id))
    }

    /// Returns all series that can have targets, with and without labels of their own.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Series<T, I>> {
        self.named.values_mut().chain(self.unnamed.values_mut())
    }

    /// Returns all series, including aggregated series.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Series<T, I>> {
        let rest = self.rest.values_mut();
        rest.chain(self.named.values_mut()).chain(self.unnamed.values_mut())
    }

    /// Returns the published series, after [`end_collection`](Self::end_collection).
    pub fn iter(&self) -> impl Iterator<Item = Published<'_, T, I>> {
        let whole = self.rest.values().chain(self.named.values()).map(|series| (series, &series.total));
        whole.chain(self.last()).map(|(series, total)| Published {
            labels: &series.labels,
            total,
            start: series.start,
            info: &series.info,
        })
    }

    /// Returns the published series without labels of their own, with their last totals.
    fn last(&self) -> impl Iterator<Item = (&Series<T, I>, &T)> {
        let leaving = self.unnamed.values().filter(|series| series.leaves.is_some());
        leaving.filter_map(|series| Some((series, series.kept.as_deref()?)))
    }

    /// Returns all totals, published or not; their sum is the number of all counted events.
    pub fn accounts(&self) -> impl Iterator<Item = &T> {
        let series = self.rest.values().chain(self.named.values()).chain(self.unnamed.values());
        let all =
            series.flat_map(|series| [Some(&series.total), series.kept.as_deref()].into_iter().flatten());
        all.chain([&self.gone])
    }

    /// Sets the maximum number of series with labels of their own, from the next collection on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Sets the maximum number of names of the processes of one cgroup.
    pub fn set_names(&mut self, per_cgroup: usize) {
        self.names.set_limit(per_cgroup);
    }

    /// Returns the number of series with labels of their own in the last publication.
    pub fn published(&self) -> usize {
        self.named.len() + self.last().count()
    }

    /// Returns the number of series in the last publication.
    pub fn count(&self) -> SeriesCount {
        SeriesCount { published: self.published(), in_other: self.unnamed() }
    }

    /// Returns the approximate size in bytes. Series without labels of their own are bounded by the number of targets.
    pub fn bytes(&self) -> usize {
        /// Bytes of the labels and of the entries in two maps.
        const EACH: usize = 320;
        let totals = self.rest.values().chain(self.named.values()).map(|series| &series.total);
        let totals = totals.chain(self.last().map(|(_, total)| total));
        totals.map(|total| size_of::<Series<T, I>>() + EACH + total.bytes()).sum()
    }

    /// Returns the creation time of the table.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// Returns the time of the last collection, or of the creation of the table.
    pub fn previous(&self) -> Timestamp {
        self.previous
    }

    /// Returns how often a series began to be aggregated, because the table was full or its cgroup had too many names.
    pub fn aggregated(&self) -> u64 {
        self.aggregated
    }

    /// Returns the number of series with targets that are currently aggregated.
    pub fn unnamed(&self) -> usize {
        self.unnamed.values().filter(|series| !series.is_rest() && series.ended.is_none()).count()
    }

    const fn end(&self, at: Monotonic) -> End {
        End { at, collections: self.collections }
    }

    fn insert(&mut self, labels: Arc<Labels>, rest: Arc<Labels>, info: I) -> SeriesId {
        let id = SeriesId(self.next);
        self.next += 1;
        let rest = self.rest_labels.get(&rest).cloned().unwrap_or_else(|| {
            self.rest_labels.insert(Arc::clone(&rest));
            rest
        });
        let series = Series::new(self.empty.clone(), Arc::clone(&labels), rest, info, self.previous);
        let has_labels = self.named.len() + self.leaving < self.limit && !series.is_rest();
        if has_labels { &mut self.named } else { &mut self.unnamed }.insert(id, series);
        self.by_labels.insert(labels, id);
        id
    }

    fn remove(&mut self, id: SeriesId) {
        let Some(mut series) = self.named.remove(&id).or_else(|| self.unnamed.remove(&id)) else { return };
        self.by_labels.remove(&series.labels);
        series.own.iter().for_each(|own| self.names.release(own));
        self.gone.absorb(&mut series.total);
        series.kept.iter_mut().for_each(|kept| self.gone.absorb(kept));
    }

    /// Drops the series whose last targets ended long ago.
    fn drop_ended(&mut self, now: Monotonic) {
        // The counts up to the end have been published.
        let collections = self.collections;
        let is_old = |series: &Series<T, I>| {
            series.ended.is_some_and(|end| now.since(end.at) > RETENTION && end.collections < collections)
        };
        let old: Vec<SeriesId> =
            self.named.iter().filter(|(_, series)| is_old(series)).map(|(&id, _)| id).collect();
        old.into_iter().for_each(|id| self.remove(id));
        self.rest_labels.retain(|labels| Arc::strong_count(labels) > 1);
    }

    /// Adds the counts of series without labels to the aggregated series, and drops those that have ended.
    fn aggregate(&mut self, now: Monotonic) {
        let mut ended = Vec::new();
        for (&id, series) in &mut self.unnamed {
            series.leaves = series.leaves.filter(|&until| until > now);
            let rest = rest_of(&mut self.rest, &series.rest, &self.empty, self.previous);
            rest.total.absorb(&mut series.total);
            // The counts of an ended series that was published have been published with it.
            let was_published = series.ended.is_some() && series.kept.is_some();
            if !std::mem::replace(&mut series.aggregated, true) && !was_published && !series.is_rest() {
                self.aggregated += 1;
            }
            ended.extend(series.ended.filter(|_| series.leaves.is_none()).map(|_| id));
        }
        ended.into_iter().for_each(|id| self.remove(id));
    }
}

/// Returns the aggregated series with these labels, creating it if necessary. A new one has the total `empty` and counts from `start`.
fn rest_of<'t, T: Clone, I: Default>(
    rest: &'t mut BTreeMap<Arc<Labels>, Series<T, I>>,
    labels: &Arc<Labels>,
    empty: &T,
    start: Timestamp,
) -> &'t mut Series<T, I> {
    let new = || Series::new(empty.clone(), Arc::clone(labels), Arc::clone(labels), I::default(), start);
    rest.entry(Arc::clone(labels)).or_insert_with(new)
}

impl<I> Series<u64, I> {
    /// Adds counts to the total and to the activity.
    pub fn count(&mut self, count: u64) {
        self.total = self.total.saturating_add(count);
        self.active = self.active.saturating_add(count);
    }
}

impl<T, I> Series<T, I> {
    fn new(empty: T, labels: Arc<Labels>, rest: Arc<Labels>, info: I, start: Timestamp) -> Self {
        Self {
            total: empty,
            info,
            active: 0,
            labels,
            rest,
            start,
            activity: 0,
            last_active: None,
            kept: None,
            leaves: None,
            aggregated: false,
            targets: 0,
            ended: None,
            own: None,
            of_refused: false,
        }
    }

    /// Returns its own labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Reports whether the series has the labels of the aggregated series.
    fn is_rest(&self) -> bool {
        self.labels == self.rest
    }
}
