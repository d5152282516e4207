//! The past of one quantity: its increments in steps of each length.

use super::grid::Grid;
use super::number::Small;
use super::track::Track;

/// Number of lengths of steps.
pub(super) const LENGTHS: usize = 2;

/// Length of a long step in milliseconds.
pub(super) const LONG: u64 = 10_000;

/// Time between two collections above which increments are not spread, because nothing is known about their distribution: the machine was
/// suspended, or the exporter was stopped.
const LONGEST_GAP: u64 = 120_000;

/// Long steps of the time that counts as recent: five minutes.
pub(super) const RECENT: u64 = 30;

/// A length of steps in milliseconds, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Length {
    pub(super) step: u64,
    pub(super) steps: u64,
}

/// The past of one quantity.
#[derive(Debug)]
pub(super) struct Series {
    /// Amount since the last collection.
    pub(super) pending: f64,
    /// Begin of the time in which this amount happened, in milliseconds.
    from: u64,
    tracks: [Steps; LENGTHS],
}

/// Steps of one length.
#[derive(Debug)]
pub(super) struct Steps {
    track: Track,
    /// Amount in the step that is not complete, and what the last one was rounded by: the sum of many steps has the error of one.
    open: f64,
}

/// An amount, and the time in milliseconds in which it was measured.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) amount: f64,
    pub(super) time: u64,
}

impl Series {
    pub(super) fn new(from: u64, lengths: &[Length; LENGTHS]) -> Self {
        Self { pending: 0.0, from, tracks: lengths.map(|length| Steps::new(from, length)) }
    }

    /// Ends a collection: spreads what is pending. If the quantity was not measured, the steps that end have no value.
    pub(super) fn record(&mut self, now: u64, last: u64, is_measured: bool, lengths: &[Length; LENGTHS]) {
        // The first amount of a new series may have begun earlier.
        let from = std::mem::replace(&mut self.from, now).min(last);
        let amount = std::mem::take(&mut self.pending);
        for (steps, length) in self.tracks.iter_mut().zip(lengths) {
            if is_measured {
                steps.record(amount, from, now, length.step);
            } else {
                steps.skip(now / length.step);
            }
        }
    }

    /// Adds up the complete steps between `begin` and the next step of the grid.
    pub(super) fn sum(&self, begin: u64, grid: &Grid) -> Sum {
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
    pub(super) fn recent(&self) -> f64 {
        self.tracks[LENGTHS - 1].recent()
    }

    /// Reports whether all values are zero.
    pub(super) fn is_zero(&self) -> bool {
        self.tracks.iter().all(|steps| steps.track.is_zero())
    }

    /// Returns the memory of the steps in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.tracks.iter().map(Steps::bytes).sum()
    }
}

impl Steps {
    /// Creates steps that begin with the one that contains this time, in milliseconds.
    pub(super) fn new(from: u64, Length { step, steps }: Length) -> Self {
        Self { track: Track::new(from / step, steps), open: 0.0 }
    }

    /// Spreads an amount evenly over the time in which it happened, in milliseconds.
    pub(super) fn record(&mut self, amount: f64, from: u64, now: u64, step: u64) {
        let current = now / step;
        if now.saturating_sub(from) > LONGEST_GAP {
            return self.skip(current);
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

    /// Ends all steps before `current` without a value.
    fn skip(&mut self, current: u64) {
        if self.track.next() < current {
            self.track.extend(current, Small::NONE);
            self.open = 0.0;
        }
    }

    /// Adds steps that were recorded up to the same time. The sum of many steps still has the error of one.
    pub(super) fn merge(&mut self, more: &Self) {
        self.open += more.open + self.track.add(&more.track);
    }

    /// Returns the sum of recorded steps, by their numbers.
    pub(super) fn sum(&self, steps: impl Iterator<Item = u64>) -> f64 {
        steps.filter_map(|step| self.track.get(step)).sum()
    }

    /// Returns the sum of all steps before the one that is not complete, at most so many.
    pub(super) fn sum_of_last(&self, steps: u64) -> f64 {
        let next = self.track.next();
        self.sum(next.saturating_sub(steps)..next)
    }

    /// Returns the amount in the step that is not complete.
    pub(super) fn open(&self) -> f64 {
        self.open
    }

    /// Returns the amount in the last five minutes.
    pub(super) fn recent(&self) -> f64 {
        self.sum_of_last(RECENT) + self.open
    }

    /// Reports whether nothing happened in the recorded time.
    pub(super) fn is_zero(&self) -> bool {
        self.track.is_zero() && self.open < 0.5
    }

    /// Returns the memory of the steps in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.track.bytes()
    }
}
