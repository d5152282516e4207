//! The series of one entry: totals that only grow, by label sets that come and go.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::aggregate::{Cell, Dropped, Taken};
use super::naming::{Named, Names, OwnerLabels};
use super::owners::Round;
use super::values::ValueId;
use crate::clock::{Monotonic, Timestamp};
use crate::metrics::{Family, Histogram, Labels, NameLimiter, OwnName, Point, Value};
use crate::plan::{Amount, Output, Trace};

/// How long a series is kept under its own name after its owner ended: the time after which Prometheus forgets one.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// How many collections the largest of late is looked for in at most: one a second.
const MOST_LATE: usize = 64;

/// What stands for owners and values that have no name of their own.
const OTHER: &str = "other";

/// The totals of one label set.
#[derive(Debug, Clone)]
struct Series {
    owner: OwnerLabels,
    /// The name in them that a process chose.
    own: Option<OwnName>,
    /// The texts of the labels.
    values: Box<[Arc<str>]>,
    event: Option<Arc<str>>,
    total: Cell,
    /// Of the largest of late: what was told when, the latest last.
    late: VecDeque<(Monotonic, Cell)>,
    start: Timestamp,
    /// The collection in which it was added to last.
    used: Monotonic,
    /// Since when its owner is not there.
    ended: Option<Monotonic>,
}

/// The series of one output.
#[derive(Debug, Default)]
struct Page {
    series: BTreeMap<Arc<Labels>, Series>,
    /// What stands in no series, by reason.
    rest: BTreeMap<&'static str, Cell>,
    folded: u64,
}

/// Everything that an entry has counted.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) trace: Arc<Trace>,
    pages: Vec<Page>,
    /// For each label the text of each value.
    texts: Vec<FxHashMap<ValueId, Arc<str>>>,
    limit: usize,
    names: NameLimiter,
    pub(super) unpaired: Vec<(&'static str, u64)>,
    pub(super) waiting: usize,
    pub(super) dropped: Dropped,
    pub(super) start: Timestamp,
}

impl Book {
    /// At most `limit` series of each metric have a name of their own.
    pub(super) fn new(trace: Arc<Trace>, limit: usize, start: Timestamp) -> Self {
        Self {
            pages: trace.outputs.iter().map(|_| Page::default()).collect(),
            texts: trace.labels.iter().map(|_| FxHashMap::default()).collect(),
            limit,
            names: NameLimiter::new(usize::MAX),
            unpaired: Vec::new(),
            waiting: 0,
            dropped: Dropped::default(),
            start,
            trace,
        }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Changes how many names the processes of one cgroup may have.
    pub(super) fn set_names(&mut self, per_cgroup: usize) {
        self.names.set_limit(per_cgroup);
    }

    /// Enters what was taken out of the entry's sums.
    pub(super) fn enter(
        &mut self,
        mut taken: Taken,
        round: &Round,
        names: &Names<'_>,
        now: Timestamp,
        monotonic: Monotonic,
    ) {
        self.learn(&mut taken, names);
        let trace = Arc::clone(&self.trace);
        self.forget_before(monotonic);
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
                            self.add(place, owner, (&values, event.as_ref()), &cell, (now, monotonic));
                        }
                    }
                }
            }
            self.follow(place, output, names, now, monotonic);
            self.shrink(place, (now, monotonic));
        }
        self.look_back(monotonic);
        self.forget(&taken.expired, (now, monotonic));
        (self.unpaired, self.waiting, self.dropped) = (taken.unpaired, taken.waiting, taken.dropped);
    }

    /// Drops what of the largest of late is too old, and the series that have nothing else.
    fn forget_before(&mut self, monotonic: Monotonic) {
        let Amount::Most(_, window) = self.trace.measure else { return };
        let names = &mut self.names;
        for page in &mut self.pages {
            page.series.retain(|_, series| {
                series.late.retain(|&(at, _)| !window.is_zero() && monotonic.since(at) < window);
                series.total = Cell::default();
                if series.late.is_empty() {
                    series.own.iter().for_each(|own| names.release(own));
                }
                !series.late.is_empty()
            });
        }
    }

    /// Notes what this collection told, and finds the largest of late.
    fn look_back(&mut self, monotonic: Monotonic) {
        if !matches!(self.trace.measure, Amount::Most(..)) {
            return;
        }
        for series in self.pages.iter_mut().flat_map(|page| page.series.values_mut()) {
            let told = std::mem::take(&mut series.total);
            series.total.hits = told.hits;
            if told.hits > 0 {
                series.late.push_back((monotonic, told));
            }
            if series.late.len() > MOST_LATE {
                series.late.pop_front();
            }
            series.total.sum = series.late.iter().map(|(_, told)| told.sum).max().unwrap_or_default();
        }
    }

    /// Gives texts to the values that are new.
    fn learn(&mut self, taken: &mut Taken, names: &Names<'_>) {
        for (label, fresh) in taken.fresh.iter_mut().enumerate() {
            let Some(texts) = self.texts.get_mut(label) else { continue };
            let fresh = std::mem::take(fresh);
            for (id, text) in names.texts(&self.trace, label, &fresh) {
                texts.insert(id, text);
            }
        }
    }

    fn text(&self, label: usize, id: ValueId) -> Arc<str> {
        match id {
            ValueId::NONE => "".into(),
            id => self
                .texts
                .get(label)
                .and_then(|texts| texts.get(&id))
                .cloned()
                .unwrap_or_else(|| OTHER.into()),
        }
    }

    fn labels(&self, owner: &OwnerLabels, values: &[Arc<str>], event: Option<&Arc<str>>) -> Arc<Labels> {
        let owner = owner.iter().map(|(name, value)| (Arc::from(*name), Arc::clone(value)));
        let values = self.trace.labels.iter().cloned().zip(values.iter().cloned());
        let event = event.map(|event| (Arc::from("event"), Arc::clone(event)));
        Labels::new::<Arc<str>, Arc<str>>(owner.chain(values).chain(event))
    }

    /// Adds to a series, or to that of the others if it would be one too many.
    fn add(
        &mut self,
        place: usize,
        owner: &Named,
        (values, event): (&[Arc<str>], Option<&Arc<str>>),
        cell: &Cell,
        (now, monotonic): (Timestamp, Monotonic),
    ) {
        let labels = self.labels(&owner.labels, values, event);
        let Some(page) = self.pages.get_mut(place) else { return };
        let is_new = !page.series.contains_key(&labels);
        if is_new && page.series.len() >= self.limit {
            page.folded += 1;
            let (other, values) = (other_owner(&owner.labels), other_values(values));
            let labels = self.labels(&other, &values, event);
            return self.add_to(place, labels, (&other, &values, event), cell, (now, monotonic));
        }
        let mut own = None;
        if let Some((name, otherwise)) = owner.own.as_ref().filter(|_| is_new) {
            if !self.names.admit(name, monotonic) {
                page.folded += 1;
                let otherwise = Named::from(otherwise.clone());
                return self.add(place, &otherwise, (values, event), cell, (now, monotonic));
            }
            own = Some(name.clone());
        }
        self.add_to(place, Arc::clone(&labels), (&owner.labels, values, event), cell, (now, monotonic));
        let series = self.pages.get_mut(place).and_then(|page| page.series.get_mut(&labels));
        if let (Some(series), true) = (series, is_new) {
            series.own = own;
        }
    }

    fn add_to(
        &mut self,
        place: usize,
        labels: Arc<Labels>,
        (owner, values, event): (&OwnerLabels, &[Arc<str>], Option<&Arc<str>>),
        cell: &Cell,
        (now, monotonic): (Timestamp, Monotonic),
    ) {
        let most = matches!(self.trace.measure, Amount::Most(..));
        let Some(page) = self.pages.get_mut(place) else { return };
        let series = page.series.entry(labels).or_insert_with(|| Series {
            owner: owner.clone(),
            own: None,
            values: values.into(),
            event: event.cloned(),
            total: Cell::default(),
            late: VecDeque::new(),
            start: now,
            used: monotonic,
            ended: None,
        });
        (series.used, series.ended) = (monotonic, None);
        if most {
            series.total.hits = series.total.hits.saturating_add(cell.hits);
            series.total.sum = series.total.sum.max(cell.sum);
        } else {
            merge(&mut series.total, cell);
        }
    }

    /// Folds the series whose owners have been gone for long.
    fn follow(
        &mut self,
        place: usize,
        output: &Output,
        names: &Names<'_>,
        now: Timestamp,
        monotonic: Monotonic,
    ) {
        let Some(page) = self.pages.get_mut(place) else { return };
        let Some(there) = names.there(&output.targets) else { return };
        let mut old = Vec::new();
        for (labels, series) in &mut page.series {
            if there.contains(&series.owner) || is_other(&series.owner) {
                series.ended = None;
            } else if monotonic.since(*series.ended.get_or_insert(monotonic)) > KEPT {
                old.push(Arc::clone(labels));
            }
        }
        for labels in old {
            let Some(series) = self.pages.get_mut(place).and_then(|page| page.series.remove(&labels)) else {
                continue;
            };
            self.fold(place, &other_owner(&series.owner), &series.values, &series, (now, monotonic));
        }
    }

    /// Folds the series that were used least recently, as many as there are beyond the limit.
    fn shrink(&mut self, place: usize, now: (Timestamp, Monotonic)) {
        let Some(page) = self.pages.get_mut(place).filter(|page| page.series.len() > self.limit) else {
            return;
        };
        let is_rest =
            |series: &Series| is_other(&series.owner) && series.values.iter().all(|value| &**value == OTHER);
        let mut oldest: Vec<(Monotonic, Arc<Labels>)> = page
            .series
            .iter()
            .filter(|(_, series)| !is_rest(series))
            .map(|(labels, series)| (series.used, Arc::clone(labels)))
            .collect();
        oldest.sort_unstable();
        oldest.truncate(oldest.len().saturating_sub(self.limit));
        let folded: Vec<Series> =
            oldest.iter().filter_map(|(_, labels)| page.series.remove(labels)).collect();
        for series in folded {
            self.fold(place, &other_owner(&series.owner), &other_values(&series.values), &series, now);
        }
    }

    /// Folds the series of values whose numbers will stand for others.
    fn forget(&mut self, expired: &[Vec<ValueId>], now: (Timestamp, Monotonic)) {
        for (label, ids) in expired.iter().enumerate() {
            let Some(texts) = self.texts.get_mut(label) else { continue };
            let mut gone: FxHashSet<Arc<str>> = ids.iter().filter_map(|id| texts.remove(id)).collect();
            if gone.is_empty() {
                continue;
            }
            // Values that differ can be called the same.
            let left: FxHashSet<&Arc<str>> = texts.values().collect();
            gone.retain(|text| !left.contains(text));
            for place in 0..self.pages.len() {
                let is_gone =
                    |series: &Series| series.values.get(label).is_some_and(|text| gone.contains(text));
                let old: Vec<Series> = match self.pages.get_mut(place) {
                    Some(page) => take_out(&mut page.series, is_gone),
                    None => Vec::new(),
                };
                for series in old {
                    let mut values = series.values.clone();
                    if let Some(value) = values.get_mut(label) {
                        *value = OTHER.into();
                    }
                    self.fold(place, &series.owner, &values, &series, now);
                }
            }
        }
    }

    fn fold(
        &mut self,
        place: usize,
        owner: &OwnerLabels,
        values: &[Arc<str>],
        series: &Series,
        now: (Timestamp, Monotonic),
    ) {
        series.own.iter().for_each(|own| self.names.release(own));
        let labels = self.labels(owner, values, series.event.as_ref());
        if let Some(page) = self.pages.get_mut(place) {
            page.folded += 1;
        }
        self.add_to(place, labels, (owner, values, series.event.as_ref()), &series.total, now);
    }

    /// The number of series of each of its outputs.
    pub(super) fn tables(&self) -> impl Iterator<Item = usize> {
        self.pages.iter().map(|page| page.series.len())
    }

    /// The number of series of all its outputs.
    pub(super) fn series(&self) -> usize {
        self.tables().sum()
    }

    /// About how many bytes its series take.
    pub(super) fn bytes(&self) -> usize {
        self.pages.iter().flat_map(|page| page.series.values()).map(Series::bytes).sum()
    }

    /// Hits in all series of its first output.
    pub(super) fn hits(&self) -> u64 {
        self.pages.first().map_or(0, |page| page.series.values().map(|series| series.total.hits).sum())
    }

    /// How often a series of an output went into that of the others.
    pub(super) fn folded(&self) -> impl Iterator<Item = (&Output, u64)> {
        self.trace.outputs.iter().zip(&self.pages).map(|(output, page)| (output, page.folded))
    }

    /// The families of its metrics.
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
                start: self.start,
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

impl Series {
    /// About how many bytes it takes.
    fn bytes(&self) -> usize {
        /// Its labels, the texts that only it has, and its place in the map.
        const TEXTS: usize = 320;
        let cells = self.late.iter().map(|(_, cell)| cell).chain([&self.total]);
        let histograms: usize = cells.filter_map(|cell| cell.histogram.as_ref()).map(Histogram::bytes).sum();
        size_of::<Self>() + TEXTS + self.late.capacity() * size_of::<(Monotonic, Cell)>() + histograms
    }
}

impl Page {
    fn points(&self, value: impl Fn(&Cell) -> Option<Value>) -> Vec<Point> {
        let point = |(labels, series): (&Arc<Labels>, &Series)| {
            Some(Point { labels: Arc::clone(labels), value: value(&series.total)?, start: series.start })
        };
        self.series.iter().filter_map(point).collect()
    }
}

/// A sum in another unit. A thousandth is divided by: there is no number that is exactly that.
fn times(sum: u64, factor: f64) -> f64 {
    let part = factor.recip().round();
    let is_part = factor < 1.0 && (part * factor - 1.0).abs() < 1e-9;
    if is_part { sum as f64 / part } else { sum as f64 * factor }
}

/// Removes the series for which `old` holds, and gives them.
fn take_out(series: &mut BTreeMap<Arc<Labels>, Series>, old: impl Fn(&Series) -> bool) -> Vec<Series> {
    let labels: Vec<Arc<Labels>> =
        series.iter().filter(|(_, series)| old(series)).map(|(labels, _)| Arc::clone(labels)).collect();
    labels.iter().filter_map(|labels| series.remove(labels)).collect()
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
