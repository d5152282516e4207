//! Ranges of time, and their steps.

use crate::clock::Timestamp;

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
    pub(super) length: usize,
    pub(super) recorded: u64,
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
    pub(super) fn begins(self) -> impl Iterator<Item = u64> {
        (0..self.count as u64).map(move |at| self.from.0 + at * self.step)
    }
}
