//! All subjects, and how collections become steps.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::additional::{Additional, COUNTERS_MAX, LATENCIES_MAX, Latency};
use super::amounts::Amounts;
use super::figure::{Rate, Times};
use super::grid::{Grid, Window};
use super::hardware::{self, CpuTypes};
use super::lists::{Lists, Names};
use super::quantity::{BIT_OF_RUNNING, BITS_OF_SOURCES, Found, Quantity, Reading, Scope, found};
use super::series::{LENGTHS, LONG, Length};
use super::subject::Subject;
use crate::clock::Timestamp;
use crate::metrics::{Family, Point, Snapshot};

/// Time that is kept in short steps, in milliseconds.
const DETAIL: u64 = 300_000;

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
    /// What is recorded of cgroups as well.
    additional: Additional,
    cpu_types: CpuTypes,
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
            additional: Additional::default(),
            cpu_types: CpuTypes::default(),
        }
    }

    /// Sets what is recorded of cgroups in addition to the fixed quantities. If it changes, the past of everything additional is forgotten.
    pub fn set_additional(&mut self, additional: &Additional) {
        if *additional == self.additional {
            return;
        }
        self.additional = additional.clone();
        for subject in self.subjects.iter_mut().flat_map(|subjects| subjects.values_mut()) {
            subject.series.retain(|(quantity, _)| quantity.bit() & BITS_OF_SOURCES != 0);
            subject.known &= BITS_OF_SOURCES;
            subject.present &= BITS_OF_SOURCES;
        }
    }

    /// Returns the rate of a counter; `None` if it is not recorded.
    pub fn counter(&self, family: &str) -> Option<Rate> {
        let mut all = self.additional.counters.iter().take(COUNTERS_MAX);
        let number = all.position(|counter| &**counter == family)?;
        u8::try_from(number).ok().map(Rate::Counter)
    }

    /// Returns the times of a distribution; `None` if it is not recorded.
    pub fn times(&self, latency: &Latency) -> Option<Times> {
        let mut all = self.additional.latencies.iter().take(LATENCIES_MAX);
        let number = all.position(|known| known == latency)?;
        u8::try_from(number).ok().map(Times)
    }

    /// Returns the fraction of the time in which the events of a family of a cgroup were on the PMU, in the last step of a grid. `None` if they
    /// were there all the time, or it is not recorded.
    pub fn running_ratio(&self, subject: &Subject, family: &str, grid: &Grid) -> Option<f64> {
        hardware::running_ratio(&self.additional, subject, family, grid)
    }

    /// Returns the type of CPU on which most events of a family of a cgroup happened in the last step of a grid, and their share. `None` if the
    /// machine has one type of CPU, or it is not recorded.
    pub fn cpu_type(&self, subject: &Subject, family: &str, grid: &Grid) -> Option<(&Arc<str>, f64)> {
        self.cpu_types.most(&self.additional, subject, family, grid)
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
        let additional = self.additional.clone();
        for found in found(snapshot, &additional) {
            measured[found.scope as usize] |= found.bit;
            self.read(&found, &last);
        }
        measured[Scope::Cgroup as usize] |= BIT_OF_RUNNING;
        self.read_running_ratios(snapshot, last.taken());
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
        for point in found.family.points().iter().filter(|point| found.reads(&point.labels)) {
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
            // Other series of the same source may begin at any time: those of further calls, errors and causes.
            let is_first = subject.present & found.bit == 0;
            if earlier.is_none()
                && (is_first || before.first().is_some_and(|last| last.labels == point.labels))
            {
                subject.beginning |= found.bit;
            }
            subject.seen |= found.bit;
            let is_counted = began.is_some() && found.counts(&point.labels);
            // Without a begin the total contains counts of an unknown time. Only the series is created.
            let amounts = Amounts { earlier: earlier.map(|earlier| &earlier.value), now: &point.value };
            let (from, counted) = (began.unwrap_or(last.taken()).0, if is_counted { 1.0 } else { 0.0 });
            let mut add =
                |quantity, amount: f64| subject.add(quantity, amount * counted, from, &self.lengths);
            match found.source.reading {
                Reading::Sum(quantity, factor) => {
                    add(quantity, amounts.total() * factor);
                    if let Some((events, cpu_type)) =
                        quantity.typed().zip(self.cpu_types.number(&point.labels))
                    {
                        add(Quantity::OnType(events, cpu_type), amounts.total());
                    }
                }
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

    /// Adds the time in which events were not on the PMU since the last collection.
    fn read_running_ratios(&mut self, snapshot: &Snapshot, last: Timestamp) {
        let family = snapshot.family(hardware::RUNNING).filter(|_| !self.additional.events.is_empty());
        let time = (snapshot.taken().0 - last.0) as f64 * 1000.0;
        for point in family.map_or(&[][..], Family::points) {
            let label = |name| point.labels.get(name);
            let entry = label("counters").and_then(|entry| self.additional.entry(entry));
            let cgroup = label("cgroup").filter(|_| label("scope") == Some("cgroup"));
            let subject = cgroup.and_then(|name| self.subjects[Scope::Cgroup as usize].get_mut(name));
            if let (Some(entry), Some(subject), Some(ratio)) = (entry, subject, point.value.number()) {
                let waiting = time * (1.0 - ratio.clamp(0.0, 1.0));
                subject.wait(entry, (waiting, time), last.0, &self.lengths);
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

#[cfg(test)]
mod tests;
