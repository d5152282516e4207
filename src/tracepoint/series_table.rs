//! The series of one entry: totals that only grow, with label sets that appear and disappear.

mod continuation;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::aggregate::{Cell, Dropped, EntryTotals};
use super::naming::{Named, Names, OwnerLabels};
use super::owners::Round;
use super::values::ValueId;
use crate::clock::{Monotonic, Timestamp};
use crate::metrics::{Family, Histogram, Labels, Point, Value};
use crate::plan::{Amount, Output, Trace};
use crate::series::{Naming, Own, OwnName, Published, SeriesCount, Table, Total};

/// Maximum number of collections in the window of a maximum: one per second.
const MAX_LATE: usize = 64;

/// Label value for owners and values that have no labels of their own.
const OTHER: &str = "other";

/// Recent hits below which a series cannot take over the labels of another.
const MIN_ACTIVITY: u64 = 16;

/// The totals of one label set.
#[derive(Debug, Clone, Default)]
struct Sum {
    cell: Cell,
    /// For a maximum over a window: the maxima of the collections, the latest last.
    window: Option<VecDeque<(Monotonic, Cell)>>,
}

/// The values from which the labels of a series were rendered.
#[derive(Debug, Clone, Default)]
struct Parts {
    owner: OwnerLabels,
    /// The text of each label.
    values: Box<[Arc<str>]>,
}

/// The series of one output.
#[derive(Debug)]
struct Page {
    series: Table<Sum, Parts>,
    /// Hits that are attributed to no series, by reason, since `start`.
    rest: BTreeMap<&'static str, Cell>,
    start: Timestamp,
}

/// The series of an entry.
#[derive(Debug)]
pub(super) struct SeriesTable {
    pub(super) trace: Arc<Trace>,
    pages: Vec<Page>,
    /// For each label: the text of each value.
    texts: Vec<FxHashMap<ValueId, Arc<str>>>,
    pub(super) unpaired: Vec<(&'static str, u64)>,
    pub(super) waiting: usize,
    pub(super) dropped: Dropped,
    /// The part of `unpaired` and `dropped` from before the entry changed.
    earlier: (Vec<(&'static str, u64)>, Dropped),
    pub(super) start: Timestamp,
    /// Whether a collection has ended, and no hits were added since.
    ended: bool,
}

impl SeriesTable {
    /// Returns a series table without series. At most `limit` series of each metric have labels of their own.
    pub(super) fn new(trace: Arc<Trace>, limit: usize, start: Timestamp) -> Self {
        let window = matches!(trace.measure, Amount::Most(..)).then(VecDeque::new);
        let empty = Sum { cell: Cell::default(), window };
        let page = |_: &Output| Page {
            series: Table::new(empty.clone(), limit, MIN_ACTIVITY, start),
            rest: BTreeMap::new(),
            start,
        };
        Self {
            pages: trace.outputs.iter().map(page).collect(),
            texts: trace.labels.iter().map(|_| FxHashMap::default()).collect(),
            unpaired: Vec::new(),
            waiting: 0,
            dropped: Dropped::default(),
            earlier: (Vec::new(), Dropped::default()),
            start,
            ended: true,
            trace,
        }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.pages.iter_mut().for_each(|page| page.series.set_limit(limit));
    }

    /// Limits the number of process names per cgroup.
    pub(super) fn set_names(&mut self, per_cgroup: usize) {
        self.pages.iter_mut().for_each(|page| page.series.set_names(per_cgroup));
    }

    /// Adds the sums of one round to the series.
    pub(super) fn enter(
        &mut self,
        mut taken: EntryTotals,
        round: &Round,
        names: &Names<'_>,
        monotonic: Monotonic,
    ) {
        self.store_texts(&mut taken, names);
        if std::mem::take(&mut self.ended) {
            self.pages.iter_mut().for_each(|page| page.series.begin_collection());
        }
        let trace = Arc::clone(&self.trace);
        for (place, cells) in taken.tables.into_iter().enumerate() {
            let Some(output) = trace.outputs.get(place) else { continue };
            let mut owners = FxHashMap::default();
            for ((owner, source, values), cell) in cells {
                let labels =
                    owners.entry(owner).or_insert_with(|| names.owner(&output.targets, owner, round));
                match labels {
                    Err(reason) => {
                        if let Some(page) = self.pages.get_mut(place) {
                            merge(page.rest.entry(reason).or_default(), &cell);
                        }
                    }
                    Ok(all) => {
                        let values: Box<[Arc<str>]> =
                            values.iter().enumerate().map(|(label, &id)| self.text(label, id)).collect();
                        let source = trace.sources.get(source as usize).filter(|_| trace.event_label);
                        let event = source.map(|source| Arc::clone(&source.event.name));
                        for owner in all.iter() {
                            self.add(place, owner, (&values, event.as_ref()), &cell, monotonic);
                        }
                    }
                }
            }
            if let (Some(there), Some(page)) = (names.existing(&output.targets), self.pages.get_mut(place)) {
                page.series.follow(monotonic, |series| {
                    there.contains(&series.info.owner) || is_other(&series.info.owner)
                });
            }
        }
        self.forget(&taken.expired);
        self.waiting = taken.waiting;
        self.note_losses(taken.unpaired, taken.dropped);
    }

    /// Ends a collection. Hits that were added since the last one are published.
    pub(super) fn end_collection(&mut self, now: Timestamp, monotonic: Monotonic) {
        self.pages.iter_mut().for_each(|page| page.series.end_collection(now, monotonic));
        self.update_windows(monotonic);
        self.ended = true;
    }

    /// Records the maxima of this collection, computes those of the window, and removes series without any.
    fn update_windows(&mut self, monotonic: Monotonic) {
        let Amount::Most(_, window) = self.trace.measure else { return };
        for page in &mut self.pages {
            page.series.all_mut().for_each(|series| series.total.update_windows(monotonic, window));
            page.series.remove_where(|series| series.total.window.as_ref().is_some_and(VecDeque::is_empty));
        }
    }

    /// Stores the texts of new values.
    fn store_texts(&mut self, taken: &mut EntryTotals, names: &Names<'_>) {
        for (label, fresh) in taken.fresh.iter_mut().enumerate() {
            let Some(texts) = self.texts.get_mut(label) else { continue };
            let fresh = std::mem::take(fresh);
            for (id, text) in names.texts(&self.trace, label, &fresh) {
                texts.insert(id, text);
            }
        }
    }

    fn text(&self, label: usize, id: ValueId) -> Arc<str> {
        let known = self.texts.get(label).and_then(|texts| texts.get(&id)).cloned();
        known.unwrap_or_else(|| if id == ValueId::NONE { "".into() } else { OTHER.into() })
    }

    /// Adds a cell to the series of an owner.
    fn add(
        &mut self,
        place: usize,
        owner: &Named,
        (values, event): (&[Arc<str>], Option<&Arc<str>>),
        cell: &Cell,
        monotonic: Monotonic,
    ) {
        let (trace, Some(page)) = (&self.trace, self.pages.get_mut(place)) else { return };
        let render = |owner: &OwnerLabels, values: &[Arc<str>]| labels(trace, owner, values, event);
        let parts = |owner: &OwnerLabels| Parts { owner: owner.clone(), values: values.into() };
        let own = |(name, otherwise): &(OwnName, OwnerLabels)| Own {
            name: name.clone(),
            labels: render(otherwise, values),
            info: parts(otherwise),
        };
        let labels = render(&owner.labels, values);
        let id = page.series.find_or_insert_with(&labels, monotonic, || Naming {
            labels: Arc::clone(&labels),
            rest: render(&other_owner(&owner.labels), &other_values(values)),
            own: owner.own.as_ref().map(own),
            info: parts(&owner.labels),
        });
        if let Some(series) = page.series.get_mut(id) {
            series.total.add(cell);
            series.active = series.active.saturating_add(cell.hits);
        }
    }

    /// Removes the series of values whose numbers will be reused for other values.
    fn forget(&mut self, expired: &[Vec<ValueId>]) {
        for (label, ids) in expired.iter().enumerate() {
            let Some(texts) = self.texts.get_mut(label) else { continue };
            let mut gone: FxHashSet<Arc<str>> = ids.iter().filter_map(|id| texts.remove(id)).collect();
            // Different values can have the same text.
            let left: FxHashSet<&Arc<str>> = texts.values().collect();
            gone.retain(|text| !left.contains(text));
            if gone.is_empty() {
                continue;
            }
            for page in &mut self.pages {
                page.series.remove_where(|series| {
                    series.info.values.get(label).is_some_and(|text| gone.contains(text))
                });
            }
        }
    }

    /// Returns the number of series of each of its outputs.
    pub(super) fn tables(&self) -> impl Iterator<Item = usize> {
        self.pages.iter().map(|page| page.series.published())
    }

    /// Returns the series counts of each output.
    pub(super) fn series(&self) -> impl Iterator<Item = SeriesCount> {
        self.pages.iter().map(|page| page.series.count())
    }

    /// Returns the approximate size of its series, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.series.bytes()).sum()
    }

    /// Returns the number of hits in all series of its first output.
    pub(super) fn hits(&self) -> u64 {
        self.pages.first().map_or(0, |page| page.series.accounts().map(|sum| sum.cell.hits).sum())
    }

    /// Returns the number of times that a series of each output was aggregated into `other`, and since when.
    pub(super) fn aggregated(&self) -> impl Iterator<Item = (&Output, u64, Timestamp)> {
        let of = |(output, page): (_, &Page)| (output, page.series.aggregated(), page.start);
        self.trace.outputs.iter().zip(&self.pages).map(of)
    }

    /// Returns the families of its metrics.
    pub(super) fn publish(&self) -> Vec<Family> {
        let mut families = Vec::new();
        for (output, page) in self.trace.outputs.iter().zip(&self.pages) {
            if let Some(hits) = &output.hits {
                let hit = |total: &Cell| Some(Value::Integer(total.hits));
                families.push(Family::new(Arc::clone(hits), page.points(hit)));
            }
            if let Some(amount) = &output.amount {
                let value = |total: &Cell| self.amount(total);
                families.push(Family::new(Arc::clone(amount), page.points(value)));
            }
            let Some(unattributed) = &output.unattributed else { continue };
            let seconds = output.amount.as_ref().filter(|_| unattributed.unit() == "seconds");
            let rest = page.rest.iter().map(|(&reason, rest)| Point {
                labels: Labels::new([("scope", output.targets.scope().as_str()), ("reason", reason)]),
                value: seconds.and_then(|_| self.amount(rest)).unwrap_or(Value::Integer(rest.hits)),
                start: page.start,
            });
            families.push(Family::new(Arc::clone(unattributed), rest.collect()));
        }
        families
    }

    fn amount(&self, total: &Cell) -> Option<Value> {
        match &self.trace.measure {
            Amount::Hits => None,
            Amount::Most(factor, _) => Some(Value::Float(times(total.sum, *factor))),
            Amount::Sum(factor) if *factor == 1.0 => Some(Value::Integer(total.sum)),
            Amount::Sum(factor) => Some(Value::Float(times(total.sum, *factor))),
            Amount::Histogram(..) | Amount::Elapsed(_) => {
                total.histogram.clone().map(|h| Value::Histogram(Arc::new(h)))
            }
        }
    }
}

impl Sum {
    fn add(&mut self, cell: &Cell) {
        if self.window.is_some() {
            self.cell.hits = self.cell.hits.saturating_add(cell.hits);
            self.cell.sum = self.cell.sum.max(cell.sum);
        } else {
            merge(&mut self.cell, cell);
        }
    }

    /// Records the maximum of this collection, and computes that of the window.
    fn update_windows(&mut self, now: Monotonic, window: Duration) {
        let Some(maxima) = &mut self.window else { return };
        maxima.retain(|&(at, _)| now.since(at) < window);
        if self.cell.hits > 0 {
            maxima.push_back((now, std::mem::take(&mut self.cell)));
        }
        if maxima.len() > MAX_LATE {
            maxima.pop_front();
        }
        self.cell.hits = maxima.back().filter(|&&(at, _)| at == now).map_or(0, |(_, cell)| cell.hits);
        self.cell.sum = maxima.iter().map(|(_, cell)| cell.sum).max().unwrap_or_default();
    }
}

impl Total for Sum {
    fn absorb(&mut self, from: &mut Self) {
        self.add(&std::mem::take(&mut from.cell));
    }

    fn begin_collection(&mut self) {
        if self.window.is_some() {
            self.cell = Cell::default();
        }
    }

    fn bytes(&self) -> usize {
        let window = self.window.iter().flatten().map(|(_, cell)| cell);
        let histograms =
            window.chain([&self.cell]).filter_map(|cell| cell.histogram.as_ref()).map(Histogram::bytes);
        let window = self.window.as_ref().map_or(0, VecDeque::capacity);
        window * size_of::<(Monotonic, Cell)>() + histograms.sum::<usize>()
    }
}

impl Page {
    fn points(&self, value: impl Fn(&Cell) -> Option<Value>) -> Vec<Point> {
        let point = |series: Published<'_, Sum, Parts>| {
            let value = value(&series.total.cell)?;
            Some(Point { labels: Arc::clone(series.labels), value, start: series.start })
        };
        self.series.iter().filter_map(point).collect()
    }
}

/// Converts a sum to another unit. Divides by the reciprocal if the factor is a fraction such as a thousandth, which has no exact
/// floating-point value.
fn times(sum: u64, factor: f64) -> f64 {
    let part = factor.recip().round();
    let is_part = factor < 1.0 && (part * factor - 1.0).abs() < 1e-9;
    if is_part { sum as f64 / part } else { sum as f64 * factor }
}

fn labels(trace: &Trace, owner: &OwnerLabels, values: &[Arc<str>], event: Option<&Arc<str>>) -> Arc<Labels> {
    let owner = owner.iter().map(|(name, value)| (Arc::from(*name), Arc::clone(value)));
    let values = trace.labels.iter().cloned().zip(values.iter().cloned());
    let event = event.map(|event| (Arc::from("event"), Arc::clone(event)));
    Labels::new::<Arc<str>, Arc<str>>(owner.chain(values).chain(event))
}

fn other_owner(owner: &OwnerLabels) -> OwnerLabels {
    owner.iter().map(|&(name, _)| (name, OTHER.into())).collect()
}

fn other_values(values: &[Arc<str>]) -> Box<[Arc<str>]> {
    values.iter().map(|_| OTHER.into()).collect()
}

fn is_other(owner: &OwnerLabels) -> bool {
    owner.iter().all(|(_, value)| &**value == OTHER)
}

fn merge(total: &mut Cell, cell: &Cell) {
    total.hits = total.hits.saturating_add(cell.hits);
    total.sum = total.sum.saturating_add(cell.sum);
    match (&mut total.histogram, &cell.histogram) {
        (Some(total), Some(more)) => total.merge(more),
        (total @ None, Some(more)) => *total = Some(Histogram::clone(more)),
        (_, None) => {}
    }
}
