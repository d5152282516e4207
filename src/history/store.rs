//! All subjects, and how collections become steps.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::figure::{Figure, Formula, quantile_of};
use super::number::Small;
use super::quantity::{Quantity, Reading, SOURCES, Scope, Source};
use super::track::Track;
use crate::clock::Timestamp;
use crate::metrics::{Family, Histogram, Labels, Snapshot, Value};

/// Number of lengths of steps.
const LENGTHS: usize = 2;

/// Time that is kept in short steps, in milliseconds.
const DETAIL: u64 = 300_000;

/// Length of a long step in milliseconds.
const LONG: u64 = 10_000;

/// Time between two collections above which increments are not spread, because nothing is known about their distribution: the machine was
/// suspended, or the exporter was stopped.
const LONGEST_GAP: u64 = 120_000;

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
}

/// A length of steps in milliseconds, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Length {
    step: u64,
    steps: u64,
}

/// Something with a past.
#[derive(Debug)]
pub struct Subject {
    /// Labels of one of its series, with the names of its pod and container.
    labels: Arc<Labels>,
    /// Sorted by quantity.
    series: Vec<(Quantity, Series)>,
}

/// The past of one quantity.
#[derive(Debug)]
struct Series {
    /// Amount since the last collection.
    pending: f64,
    /// Begin of the time in which this amount happened, in milliseconds.
    from: u64,
    tracks: [Steps; LENGTHS],
}

/// Steps of one length.
#[derive(Debug)]
struct Steps {
    track: Track,
    /// Amount in the step that is not complete, and what the last one was rounded by: the sum of many steps has the error of one.
    open: f64,
}

/// A range of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// Length of a step in milliseconds; `None` = the shortest that is recorded for the whole range.
    pub step: Option<u64>,
}

/// Equal steps that cover a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Begin of the first step.
    pub from: Timestamp,
    /// Length of a step in milliseconds.
    pub step: u64,
    /// Number of steps.
    pub count: usize,
    /// Index of the recorded steps that are added up, and their length in milliseconds, of which `step` is a multiple.
    length: usize,
    recorded: u64,
}

impl Grid {
    /// Returns the end of the last step.
    pub fn to(&self) -> Timestamp {
        Timestamp(self.from.0 + self.step * self.count as u64)
    }

    /// Returns the same range as a single step.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { step: self.step * self.count.max(1) as u64, count: 1, ..self }
    }

    /// Returns the begin of each step in milliseconds.
    fn begins(self) -> impl Iterator<Item = u64> {
        (0..self.count as u64).map(move |at| self.from.0 + at * self.step)
    }
}

/// What the history covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        }
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
        for source in &SOURCES {
            for (scope, names) in Scope::ALL.into_iter().zip(source.families) {
                let Some(family) = names.iter().find_map(|name| snapshot.family(name)) else { continue };
                let before = last.family(family.metadata().name());
                self.read(scope, source, before, family, last.taken());
            }
        }
        self.before_last = last.taken();
        for subject in self.subjects.iter_mut().flat_map(|subjects| subjects.values_mut()) {
            subject
                .series
                .iter_mut()
                .for_each(|(_, series)| series.record(now.0, last.taken().0, &self.lengths));
        }
        if self.observed.is_multiple_of(SWEEP_EVERY) {
            self.subjects[1..]
                .iter_mut()
                .for_each(|subjects| subjects.retain(|_, subject| !subject.is_idle()));
        }
        self.forget()
    }

    /// Adds the increments of a family since the last collection.
    fn read(
        &mut self,
        scope: Scope,
        source: &Source,
        before: Option<&Family>,
        family: &Family,
        last: Timestamp,
    ) {
        let reading = source.reading;
        let is_read =
            |labels: &Labels| source.only.is_none_or(|(label, value)| labels.get(label) == Some(value));
        let mut before = before.map_or(&[][..], Family::points);
        for point in family.points().iter().filter(|point| is_read(&point.labels)) {
            // Both are sorted by labels.
            while let [first, rest @ ..] = before
                && first.labels < point.labels
            {
                before = rest;
            }
            let earlier = before.first().filter(|earlier| earlier.labels == point.labels);
            let Some(name) = scope.label().map_or(Some(""), |label| point.labels.get(label)) else {
                continue;
            };
            let began = match earlier {
                Some(_) => Some(last),
                None => self.began(scope, name, reading, point.start, last),
            };
            let subjects = &mut self.subjects[scope as usize];
            if !subjects.contains_key(name) {
                subjects.insert(name.into(), Subject::new(&point.labels));
            }
            let Some(subject) = subjects.get_mut(name) else { continue };
            if !Arc::ptr_eq(&subject.labels, &point.labels) {
                subject.labels = Arc::clone(&point.labels);
            }
            // Without a begin the total contains counts of an unknown time. Only the series is created.
            let amounts = Amounts { earlier: earlier.map(|earlier| &earlier.value), now: &point.value };
            let (from, factor) = (began.unwrap_or(last).0, if began.is_some() { 1.0 } else { 0.0 });
            amounts.each(reading, |quantity, amount| {
                subject.add(quantity, amount * factor, from, &self.lengths);
            });
        }
    }

    /// Returns the begin of the time in which the total of a series was counted that was not in the last collection. `None` if it is
    /// unknown, or if its counts may have been in another series before, whose labels were different.
    fn began(
        &self,
        scope: Scope,
        name: &str,
        reading: Reading,
        start: Timestamp,
        last: Timestamp,
    ) -> Option<Timestamp> {
        if start >= self.before_last && start > self.first {
            return Some(last);
        }
        let is_known = self.subjects[scope as usize].get(name).is_some_and(|subject| subject.has(reading));
        (start > self.first && !is_known).then_some(start)
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
        self.subjects.iter().flatten().map(|(name, subject)| name.len() + subject.bytes()).sum()
    }

    /// Forgets the least active cgroups and programs until the others fit into the limit. Returns the memory in bytes.
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
        for (_, scope, bytes, name) in all {
            if excess == 0 {
                break;
            }
            self.subjects[scope].remove(&name);
            self.forgotten += 1;
            excess = excess.saturating_sub(bytes);
        }
        self.bytes()
    }
}

/// The increments between two values of a series.
struct Amounts<'v> {
    earlier: Option<&'v Value>,
    now: &'v Value,
}

impl Amounts<'_> {
    fn each(&self, reading: Reading, mut add: impl FnMut(Quantity, f64)) {
        match (reading, self.now) {
            (Reading::Sum(quantity, factor), now) => {
                let (Some(now), earlier) = (now.number(), self.earlier.and_then(Value::number)) else {
                    return;
                };
                // Totals never fall; a difference of two fractions may be slightly below zero.
                add(quantity, (now - earlier.unwrap_or(0.0)).max(0.0) * factor);
            }
            (Reading::Buckets(quantity), Value::Histogram(now)) => {
                let earlier = match self.earlier {
                    Some(Value::Histogram(earlier)) if Arc::ptr_eq(earlier, now) => return,
                    Some(Value::Histogram(earlier)) => Some(&**earlier),
                    _ => None,
                };
                buckets(earlier, now, |exponent, count| add(quantity(exponent), count as f64));
            }
            (Reading::Buckets(_), _) => {}
        }
    }
}

/// Calls `add` with the increment of each bucket that has grown, and the binary logarithm of its bound, rounded up.
fn buckets(earlier: Option<&Histogram>, now: &Histogram, mut add: impl FnMut(i8, u64)) {
    let mut earlier = earlier.map(Histogram::cumulative);
    let (mut below_now, mut below_earlier) = (0, 0);
    for (bound, up_to) in now.cumulative() {
        let up_to_earlier = match earlier.as_mut().map(Iterator::next) {
            Some(Some((_, up_to))) => up_to,
            _ => below_earlier,
        };
        let (count, count_earlier) = (up_to - below_now, up_to_earlier - below_earlier);
        (below_now, below_earlier) = (up_to, up_to_earlier);
        if count > count_earlier {
            let exponent = bound.log2().ceil().clamp(f64::from(i8::MIN), f64::from(i8::MAX)) as i8;
            add(exponent, count - count_earlier);
        }
    }
}

impl Subject {
    fn new(labels: &Arc<Labels>) -> Self {
        Self { labels: Arc::clone(labels), series: Vec::new() }
    }

    /// Returns the labels of one of its series, with the names of its pod and container.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    fn get(&self, quantity: Quantity) -> Option<&Series> {
        let place = self.series.binary_search_by(|(of, _)| of.cmp(&quantity)).ok()?;
        self.series.get(place).map(|(_, series)| series)
    }

    fn has(&self, reading: Reading) -> bool {
        match reading {
            Reading::Sum(quantity, _) => self.get(quantity).is_some(),
            Reading::Buckets(quantity) => self.buckets(quantity).next().is_some(),
        }
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
            Formula::Rate(quantity, factor) => {
                let series = self.get(quantity)?;
                let rate = |begin| {
                    let Sum { amount, time } = series.sum(begin, grid);
                    (time > 0).then(|| amount * factor * 1000.0 / time as f64)
                };
                Some(grid.begins().map(rate).collect())
            }
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

    /// Returns the activity by which subjects are forgotten: CPU time and switches in the last five minutes.
    fn activity(&self) -> f64 {
        let of = |quantity| self.get(quantity).map_or(0.0, Series::recent);
        // A switch counts as a microsecond.
        of(Quantity::Cpu) + of(Quantity::Switches)
    }

    /// Reports whether nothing happened in the recorded time.
    fn is_idle(&self) -> bool {
        self.series.iter().all(|(_, series)| series.tracks.iter().all(|steps| steps.track.is_zero()))
    }

    fn bytes(&self) -> usize {
        let series = self.series.iter().map(|(_, series)| series.bytes()).sum::<usize>();
        size_of::<Self>() + self.series.capacity() * size_of::<(Quantity, Series)>() + series
    }
}

/// An amount, and the time in milliseconds in which it was measured.
#[derive(Debug, Default)]
struct Sum {
    amount: f64,
    time: u64,
}

impl Series {
    fn new(from: u64, lengths: &[Length; LENGTHS]) -> Self {
        let tracks =
            lengths.map(|Length { step, steps }| Steps { track: Track::new(from / step, steps), open: 0.0 });
        Self { pending: 0.0, from, tracks }
    }

    fn record(&mut self, now: u64, last: u64, lengths: &[Length; LENGTHS]) {
        // The first amount of a new series may have begun earlier.
        let from = std::mem::replace(&mut self.from, now).min(last);
        let amount = std::mem::take(&mut self.pending);
        for (steps, length) in self.tracks.iter_mut().zip(lengths) {
            steps.record(amount, from, now, length.step);
        }
    }

    /// Adds up the complete steps between `begin` and the next step of the grid.
    fn sum(&self, begin: u64, grid: &Grid) -> Sum {
        let mut sum = Sum::default();
        let track = &self.tracks[grid.length].track;
        for step in begin / grid.recorded..(begin + grid.step) / grid.recorded {
            if let Some(amount) = track.get(step) {
                sum.amount += amount;
                sum.time += grid.recorded;
            }
        }
        sum
    }

    /// Returns the amount in the last five minutes.
    fn recent(&self) -> f64 {
        let Steps { track, open } = &self.tracks[LENGTHS - 1];
        let before = (1..=30).filter_map(|back| track.get(track.next().checked_sub(back)?));
        before.sum::<f64>() + open
    }

    fn bytes(&self) -> usize {
        self.tracks.iter().map(|steps| steps.track.bytes()).sum()
    }
}

impl Steps {
    /// Spreads an amount evenly over the time in which it happened, in milliseconds.
    fn record(&mut self, amount: f64, from: u64, now: u64, step: u64) {
        let current = now / step;
        if now.saturating_sub(from) > LONGEST_GAP {
            self.track.extend(current, Small::NONE);
            self.open = 0.0;
            return;
        }
        let rate = amount / now.saturating_sub(from).max(1) as f64;
        let mut from = from;
        while self.track.next() < current {
            let end = (self.track.next() + 1) * step;
            self.open += rate * end.saturating_sub(from) as f64;
            let rounded = Small::of(self.open);
            self.track.extend(self.track.next() + 1, rounded);
            (self.open, from) = (self.open - rounded.value().unwrap_or(0.0), end.max(from));
        }
        self.open += rate * now.saturating_sub(from) as f64;
    }
}

#[cfg(test)]
mod tests;
