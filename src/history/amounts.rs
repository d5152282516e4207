//! The increments of series between two collections.

use std::sync::Arc;

use crate::metrics::{Histogram, Value};

/// The increments between two values of a series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amounts<'v> {
    /// The value in the last collection; `None` if the series was not in it.
    pub(super) earlier: Option<&'v Value>,
    pub(super) now: &'v Value,
}

impl Amounts<'_> {
    /// Returns the increment of a counter, or of the count of a histogram. Never negative.
    pub(super) fn total(self) -> f64 {
        let number = |value: &Value| match value {
            Value::Histogram(histogram) => Some(histogram.count() as f64),
            value => value.number(),
        };
        let earlier = self.earlier.and_then(number).unwrap_or(0.0);
        // Totals never fall; a difference of two fractions may be slightly below zero.
        number(self.now).map_or(0.0, |now| (now - earlier).max(0.0))
    }

    /// Calls `add` with the increment of each bucket of a histogram that has grown, and the binary logarithm of its bound, rounded up.
    pub(super) fn buckets(self, mut add: impl FnMut(i8, f64)) {
        let Value::Histogram(now) = self.now else { return };
        let earlier = match self.earlier {
            Some(Value::Histogram(earlier)) if Arc::ptr_eq(earlier, now) => return,
            Some(Value::Histogram(earlier)) => Some(&**earlier),
            _ => None,
        };
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
                add(exponent, (count - count_earlier) as f64);
            }
        }
    }
}
