//! Token buckets: limits of rates that allow bursts.

use std::time::Duration;

use crate::clock::Monotonic;

/// A token bucket. It starts full.
#[derive(Debug, Clone)]
pub(super) struct TokenBucket {
    /// Time in which one token is added.
    interval: Duration,
    burst: u32,
    /// The bucket is full from this time on. Each token taken moves it by `interval`.
    full: Monotonic,
}

impl TokenBucket {
    pub(super) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, full: Monotonic(Duration::ZERO) }
    }

    /// Takes a token, and reports whether there was one.
    pub(super) fn take(&mut self, now: Monotonic) -> bool {
        if self.wait(now) > Duration::ZERO {
            return false;
        }
        self.full = Monotonic(self.full.0.max(now.0).saturating_add(self.interval));
        true
    }

    /// Returns a token that was taken.
    pub(super) fn put_back(&mut self) {
        self.full = Monotonic(self.full.0.saturating_sub(self.interval));
    }

    /// Returns the time until there is a token.
    pub(super) fn wait(&self, now: Monotonic) -> Duration {
        let room = self.interval.saturating_mul(self.burst.saturating_sub(1));
        self.full.0.saturating_sub(now.0).saturating_sub(room)
    }

    /// Reports whether the bucket is full.
    pub(super) fn is_full(&self, now: Monotonic) -> bool {
        self.full.0 <= now.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_one_token_per_interval() {
        let at = |milliseconds| Monotonic(Duration::from_millis(milliseconds));
        let mut bucket = TokenBucket::new(Duration::from_millis(100), 3);
        assert_eq!([0, 0, 0, 0].map(|now| bucket.take(at(now))), [true, true, true, false]);
        assert_eq!(bucket.wait(at(40)), Duration::from_millis(60));
        assert_eq!([99, 100, 100].map(|now| bucket.take(at(now))), [false, true, false]);
        bucket.put_back();
        assert_eq!([100, 100].map(|now| bucket.take(at(now))), [true, false]);
        assert!(!bucket.is_full(at(399)) && bucket.is_full(at(400)));
        assert_eq!([9000, 9000, 9000, 9000].map(|now| bucket.take(at(now))), [true, true, true, false]);
    }
}
