//! All subjects, and how collections become steps.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::amounts::Amounts;
use super::figure::{Figure, Formula, Rate, quantile_of};
use super::grid::{Grid, Window};
use super::lists::{Listed, Lists, Names};
use super::quantity::{COUNTERS_MAX, Found, Quantity, Reading, Scope, bits_of_sources, found};
use super::series::{LENGTHS, Length, Series, Sum};
use crate::clock::Timestamp;
use crate::metrics::{Family, Labels, Point, Snapshot};

/// Time that is kept in short steps, in milliseconds.
const DETAIL: u64 = 300_000;

/// Length of a long step in milliseconds.
const LONG: u64 = 10_000;

/// Collections between two removals of subjects without any activity.
const SWEEP_EVERY: u64 = 60;

/// The past of the machine, of cgroups and of programs.
#[derive(Debug)]
pub struct History {
    subjects: [FxHashMap<Box<str>, Subject>; Scope::COUNT],
    /// The last collection, for increments.
    last: Option<Arc<Snapshot>>,
    /// Time of the collection before it.
    before_last: Timestamp,
    /// Time of the first collection.
    first: Timestamp,
    /// Number of collections.
    observed: u64,
    lengths: [Length; LENGTHS],
    /// Maximum memory in bytes.
    limit: usize,
    /// Number of subjects that were forgotten because of the limit.
    forgotten: u64,
    /// Names of the lines of lists.
    names: Names,
    /// Families of cgroups that are recorded as well.
    counters: Arc<[Arc<str>]>,
}

/// Something with a past.
#[derive(Debug)]
pub struct Subject {
    /// Labels of one of its series, with the names of its pod and container.
    labels: Arc<Labels>,
    /// Sorted by quantity.
    series: Vec<(Quantity, Series)>,
    /// `None` if they were dropped because of the limit.
    lists: Option<Lists>,
    /// The sources of which a series was in an earlier collection, and in this one, as bits.
    known: u32,
    seen: u32,
}

/// What the history covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// Begin of the oldest recorded step.
    pub from: Timestamp,
    /// Time of the last collection.
    pub to: Timestamp,
}

impl History {
    /// Creates an empty history of `kept` milliseconds in at most `limit` bytes. Its shortest step is `step` milliseconds, at least one
    /// second.
    pub fn new(kept: u64, step: u64, limit: usize) -> Self {
        let step = step.clamp(1000, LONG);
        let lengths = [
            Length { step, steps: DETAIL.min(kept).div_ceil(step) },
            Length { step: LONG, steps: kept.div_ceil(LONG) },
        ];
        Self {
            subjects: Default::default(),
            last: None,
            before_last: Timestamp::default(),
            first: Timestamp::default(),
            observed: 0,
            lengths,
            limit,
            forgotten: 0,
            names: Names::default(),
            counters: Arc::default(),
        }
    }

    /// Sets the families of cgroups that are recorded in addition to the fixed quantities, at most [`COUNTERS_MAX`]. If they change, their past
    /// is forgotten.
    pub fn set_counters(&mut self, counters: &Arc<[Arc<str>]>) {
        if *counters == self.counters {
            return;
        }
        self.counters = Arc::clone(counters);
        for subject in self.subjects.iter_mut().flat_map(|subjects| subjects.values_mut()) {
            subject.series.retain(|(quantity, _)| !matches!(quantity, Quantity::Counter(_)));
            subject.known &= bits_of_sources();
        }
    }

    /// Returns the rate of a counter; `None` if it is not recorded.
    pub fn counter(&self, family: &str) -> Option<Rate> {
        let number = self.counters.iter().take(COUNTERS_MAX).position(|counter| &**counter == family)?;
        u8::try_from(number).ok().map(Rate::Counter)
    }

    /// Sets the maximum memory in bytes from the next collection on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Records a collection. Returns the memory in bytes.
    pub fn observe(&mut self, snapshot: &Arc<Snapshot>) -> usize {
        let now = snapshot.taken();
        self.observed += 1;
        let Some(last) = self.last.replace(Arc::clone(snapshot)) else {
            self.first = now;
            self.before_last = now;
            return 0;
        };
        if now <= last.taken() {
            // The clock was set back. What was recorded has times of the future.
            self.subjects = Default::default();
            (self.first, self.before_last) = (now, now);
            return 0;
        }
        let mut measured = [0; Scope::COUNT];
        let counters = Arc::clone(&self.counters);
        for found in found(snapshot, &counters) {
            measured[found.scope as usize] |= found.bit;
            self.read(&found, &last);
        }
        self.before_last = last.taken();
        for (subjects, measured) in self.subjects.iter_mut().zip(measured) {
            let record =
                |subject: &mut Subject| subject.record(now.0, last.taken().0, measured, &self.lengths);
            subjects.values_mut().for_each(record);
        }
        if self.observed.is_multiple_of(SWEEP_EVERY) {
            self.sweep(now);
        }
        self.forget()
    }

    /// Adds the increments of a family since the last collection.
    fn read(&mut self, found: &Found<'_>, last: &Snapshot) {
        let before = last.family(found.family.metadata().name());
        let mut before = before.map_or(&[][..], Family::points);
        for point in found.family.points() {
            // Both are sorted by labels.
            while let [first, rest @ ..] = before
                && first.labels < point.labels
            {
                before = rest;
            }
            // A series with another start is another one.
            let is_same = |earlier: &&Point| earlier.labels == point.labels && earlier.start == point.start;
            let earlier = before.first().filter(is_same);
            let Some(name) = found.subject(&point.labels) else { continue };
            let began = match earlier {
                Some(_) => Some(last.taken()),
                None => self.began(found, name, point.start, last.taken()),
            };
            let subjects = &mut self.subjects[found.scope as usize];
            if found.creates() && !subjects.contains_key(name) {
                subjects.insert(name.into(), Subject::new(&point.labels));
            }
            let Some(subject) = subjects.get_mut(name) else { continue };
            if found.creates() && !Arc::ptr_eq(&subject.labels, &point.labels) {
                subject.labels = Arc::clone(&point.labels);
            }
            subject.seen |= found.bit;
            let is_counted = began.is_some() && found.counts(&point.labels);
            // Without a begin the total contains counts of an unknown time. Only the series is created.
            let amounts = Amounts { earlier: earlier.map(|earlier| &earlier.value), now: &point.value };
            let (from, counted) = (began.unwrap_or(last.taken()).0, if is_counted { 1.0 } else { 0.0 });
            let mut add =
                |quantity, amount: f64| subject.add(quantity, amount * counted, from, &self.lengths);
            match found.source.reading {
                Reading::Sum(quantity, factor) => add(quantity, amounts.total() * factor),
                Reading::Buckets(quantity) => {
                    amounts.buckets(|exponent, count| add(quantity(exponent), count));
                }
                Reading::Lines => {}
            }
            let amount = if found.is_listed() { amounts.total() * counted } else { 0.0 };
            if amount > 0.0
                && let Some(lists) = &mut subject.lists
                && let Some((list, line)) = found.line(name, &point.labels)
            {
                let (amount, long) = (amount * list.factor(), self.lengths[LENGTHS - 1]);
                lists.add(&mut self.names, (list, line), amount, (from, long));
            }
        }
    }

    /// Returns the begin of the time in which the total of a series was counted that was not in the last collection. `None` if it is
    /// unknown, or if its counts may have been in another series before, whose labels were different.
    fn began(&self, found: &Found<'_>, name: &str, start: Timestamp, last: Timestamp) -> Option<Timestamp> {
        // A series that began with the last collection has an earlier start.
        if start > self.before_last && start > self.first {
            return Some(last);
        }
        let subject = self.subjects[found.scope as usize].get(name);
        let is_known = subject.is_some_and(|subject| subject.known & found.bit != 0);
        (start > self.first && !is_known).then_some(start)
    }

    /// Removes what was not active in the recorded time, and shortens lists. Lists that were dropped begin again if there is room.
    fn sweep(&mut self, now: Timestamp) {
        let Self { subjects, lengths, .. } = self;
        for subjects in subjects.iter_mut() {
            subjects.retain(|name, subject| {
                if let Some(lists) = &mut subject.lists {
                    lists.sweep(lengths[LENGTHS - 1]);
                }
                // The machine has no name.
                name.is_empty() || !subject.is_idle()
            });
        }
        self.names.sweep();
        if self.bytes() < self.limit / 4 * 3 {
            for subject in self.subjects.iter_mut().flat_map(|subjects| subjects.values_mut()) {
                subject.lists.get_or_insert_with(|| Lists::new(now));
            }
        }
    }

    /// Returns what is recorded; `None` before the second collection.
    pub fn observed(&self) -> Option<Observed> {
        let to = self.last.as_ref()?.taken();
        let Length { step, steps } = self.lengths[LENGTHS - 1];
        let from = self.first.max(Timestamp(to.0.saturating_sub(step * steps)));
        (to > self.first).then_some(Observed { from, to })
    }

    /// Returns steps that cover the recorded part of a range, at most `most` of them.
    pub fn grid(&self, window: Window, most: usize) -> Grid {
        let last = self.last.as_ref().map_or(self.first, |last| last.taken());
        let from = window.from.max(self.first);
        let reaches = |length: &Length| from.0 + length.step * length.steps >= last.0;
        let fits = |length: &Length| window.step.is_none_or(|step| step >= length.step);
        let length =
            self.lengths.iter().position(|length| reaches(length) && fits(length)).unwrap_or(LENGTHS - 1);
        let shortest = self.lengths[length].step;
        let end = window.to.min(last).0;
        let span = end.saturating_sub(from.0);
        let least = span.div_ceil(most.max(1) as u64);
        let step = window.step.unwrap_or(shortest).max(least).max(1).next_multiple_of(shortest);
        let begin = from.0 / step * step;
        // The last step is complete.
        let count = (end.saturating_sub(begin) / step) as usize;
        Grid { from: Timestamp(begin), step, count, length, recorded: shortest }
    }

    /// Returns the recorded part of a range as a single step, for totals.
    pub fn span(&self, from: Timestamp, to: Timestamp) -> Grid {
        self.grid(Window { from, to, step: None }, usize::MAX).whole()
    }

    /// Returns the range of the lists that covers the recorded part of a range: whole steps of ten seconds.
    pub fn list_range(&self, window: Window) -> Grid {
        let to = Timestamp(window.to.0.next_multiple_of(LONG));
        self.grid(Window { from: window.from, to, step: Some(LONG) }, usize::MAX).whole()
    }

    /// Returns the subjects of a scope with their names.
    pub fn subjects(&self, scope: Scope) -> impl Iterator<Item = (&str, &Subject)> {
        self.subjects[scope as usize].iter().map(|(name, subject)| (&**name, subject))
    }

    /// Returns a subject.
    pub fn subject(&self, scope: Scope, name: &str) -> Option<&Subject> {
        self.subjects[scope as usize].get(name)
    }

    /// Returns the number of subjects that were forgotten because of the memory limit.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the memory in bytes.
    pub fn bytes(&self) -> usize {
        let subjects = self.subjects.iter().flatten();
        subjects.map(|(name, subject)| name.len() + subject.bytes()).sum::<usize>() + self.names.bytes()
    }

    /// Drops the lists of the least active cgroups and programs, and then forgets the least active ones, until the rest fits into the limit.
    /// Returns the memory in bytes.
    fn forget(&mut self) -> usize {
        let bytes = self.bytes();
        if bytes <= self.limit {
            return bytes;
        }
        let mut all: Vec<(f64, usize, usize, Box<str>)> = Vec::new();
        for scope in [Scope::Cgroup, Scope::Program] {
            let subjects = self.subjects[scope as usize].iter();
            all.extend(subjects.map(|(name, subject)| {
                (subject.activity(), scope as usize, name.len() + subject.bytes(), name.clone())
            }));
        }
        all.sort_by(|one, other| one.0.total_cmp(&other.0));
        // A tenth more than necessary, so that this is rare.
        let mut excess = bytes - self.limit + self.limit / 10;
        for (_, scope, bytes, name) in &mut all {
            if excess == 0 {
                break;
            }
            let lists = self.subjects[*scope].get_mut(name).and_then(|subject| subject.lists.take());
            let freed = lists.map_or(0, |lists| lists.bytes());
            *bytes -= freed;
            excess = excess.saturating_sub(freed);
        }
        for (_, scope, bytes, name) in all {
            if excess == 0 {
                break;
            }
            self.subjects[scope].remove(&name);
            self.forgotten += 1;
            excess = excess.saturating_sub(bytes);
        }
        self.names.sweep();
        self.bytes()
    }
}

impl Subject {
    fn new(labels: &Arc<Labels>) -> Self {
        let lists = Some(Lists::new(Timestamp::default()));
        Self { labels: Arc::clone(labels), series: Vec::new(), lists, known: 0, seen: 0 }
    }

    /// Ends a collection: spreads what is pending. `measured` are the sources that were measured, as bits.
    fn record(&mut self, now: u64, last: u64, measured: u32, lengths: &[Length; LENGTHS]) {
        for (quantity, series) in &mut self.series {
            let is_measured = measured & quantity.bit() != 0;
            series.record(now, last, is_measured, lengths);
        }
        if let Some(lists) = &mut self.lists {
            lists.record(now, last, lengths[LENGTHS - 1]);
        }
        self.known |= std::mem::take(&mut self.seen);
    }

    /// Returns the labels of one of its series, with the names of its pod and container.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    fn get(&self, quantity: Quantity) -> Option<&Series> {
        let place = self.series.binary_search_by(|(of, _)| of.cmp(&quantity)).ok()?;
        self.series.get(place).map(|(_, series)| series)
    }

    fn buckets(&self, quantity: fn(i8) -> Quantity) -> impl Iterator<Item = (i8, &Series)> {
        let all = quantity(i8::MIN)..=quantity(i8::MAX);
        self.series.iter().filter(move |(of, _)| all.contains(of)).filter_map(|(of, series)| match *of {
            Quantity::Runqueue(exponent) | Quantity::Block(exponent) => Some((exponent, series)),
            _ => None,
        })
    }

    /// Adds an amount that happened since `from`.
    fn add(&mut self, quantity: Quantity, amount: f64, from: u64, lengths: &[Length; LENGTHS]) {
        let place = match self.series.binary_search_by(|(of, _)| of.cmp(&quantity)) {
            Ok(place) => place,
            Err(place) => {
                self.series.insert(place, (quantity, Series::new(from, lengths)));
                place
            }
        };
        if let Some((_, series)) = self.series.get_mut(place) {
            series.pending += amount;
        }
    }

    /// Returns the values of a figure in each step; `None` where it was not measured. Returns `None` if it is not measured for this
    /// subject. `quantile` is from 0 to 1, for figures that are quantiles.
    pub fn values(&self, figure: Figure, quantile: f64, grid: &Grid) -> Option<Vec<Option<f64>>> {
        match figure.formula() {
            Formula::Rate(quantity, factor) => self.rate_of(quantity, factor, grid),
            Formula::Ratio(over, under, factor) => {
                let (over, under) = (self.get(over)?, self.get(under)?);
                let ratio = |begin| {
                    let under = under.sum(begin, grid).amount;
                    (under > 0.0).then(|| over.sum(begin, grid).amount / under * factor)
                };
                Some(grid.begins().map(ratio).collect())
            }
            Formula::Quantile(quantity) => {
                let all: Vec<(i8, &Series)> = self.buckets(quantity).collect();
                if all.is_empty() {
                    return None;
                }
                let of_step = |begin| {
                    let counts =
                        all.iter().map(|(exponent, series)| (*exponent, series.sum(begin, grid).amount));
                    quantile_of(&counts.collect::<Vec<_>>(), quantile)
                };
                Some(grid.begins().map(of_step).collect())
            }
        }
    }

    /// Returns a rate in each step; `None` where it was not measured. Returns `None` if it is not measured for this subject.
    pub fn rates(&self, rate: Rate, grid: &Grid) -> Option<Vec<Option<f64>>> {
        let (quantity, factor) = rate.quantity();
        self.rate_of(quantity, factor, grid)
    }

    fn rate_of(&self, quantity: Quantity, factor: f64, grid: &Grid) -> Option<Vec<Option<f64>>> {
        let series = self.get(quantity)?;
        let rate = |begin| {
            let Sum { amount, time } = series.sum(begin, grid);
            (time > 0).then(|| amount * factor * 1000.0 / time as f64)
        };
        Some(grid.begins().map(rate).collect())
    }

    /// Reports whether a figure is measured for this subject.
    pub fn measures(&self, figure: Figure) -> bool {
        match figure.formula() {
            Formula::Rate(quantity, _) => self.get(quantity).is_some(),
            Formula::Ratio(over, under, _) => self.get(over).is_some() && self.get(under).is_some(),
            Formula::Quantile(quantity) => self.buckets(quantity).next().is_some(),
        }
    }

    /// Returns the value of a figure over the whole range.
    pub fn value(&self, figure: Figure, quantile: f64, grid: &Grid) -> Option<f64> {
        self.values(figure, quantile, &grid.whole())?.pop().flatten()
    }

    /// Returns its lists over a range of [`History::list_range`].
    pub fn lists(&self, range: &Grid) -> Vec<Listed> {
        self.lists.as_ref().map_or_else(Vec::new, |lists| lists.over(range, LONG))
    }

    /// Returns the time from which on its lists are complete: zero if nothing was dropped. `None` if they are not recorded, because the memory is
    /// used up.
    pub fn lists_since(&self) -> Option<Timestamp> {
        self.lists.as_ref().map(Lists::since)
    }

    /// Returns the activity by which subjects are forgotten: CPU time and switches in the last five minutes.
    fn activity(&self) -> f64 {
        let of = |quantity| self.get(quantity).map_or(0.0, Series::recent);
        // A switch counts as a microsecond.
        of(Quantity::Cpu) + of(Quantity::Switches)
    }

    /// Reports whether nothing happened in the recorded time.
    fn is_idle(&self) -> bool {
        self.series.iter().all(|(_, series)| series.is_zero())
            && self.lists.as_ref().is_none_or(Lists::is_idle)
    }

    fn bytes(&self) -> usize {
        let series = self.series.iter().map(|(_, series)| series.bytes()).sum::<usize>();
        let lists = self.lists.as_ref().map_or(0, Lists::bytes);
        size_of::<Self>() + self.series.capacity() * size_of::<(Quantity, Series)>() + series + lists
    }
}

#[cfg(test)]
mod tests;
