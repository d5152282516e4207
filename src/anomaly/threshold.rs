//! A fixed limit instead of a comparison with the past.

use super::episode::Rule;
use super::robust::Expected;

/// Length of an interval, in milliseconds.
const INTERVAL: u64 = 10_000;

/// A limit that the user chose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// Values above this are outliers. Above zero.
    pub above: f64,
    /// Time for which values are above it, in milliseconds: one interval may be below. An anomaly ends when none was above for as long.
    pub lasting: u64,
}

impl Threshold {
    pub(super) fn rule(&self) -> Rule {
        let intervals = usize::try_from(self.lasting / INTERVAL).unwrap_or(usize::MAX);
        Rule { outliers: intervals.max(1), within: self.lasting }
    }

    /// Returns what a sample is compared with. Nothing is usual, so the score is the ratio of the value and the limit.
    pub(super) fn expected(&self) -> Expected {
        Expected { center: self.above, spread: 0.0, threshold: self.above }
    }
}
