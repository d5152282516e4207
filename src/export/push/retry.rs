//! Retry delays.

use std::time::Duration;

/// The first delay.
const FIRST: Duration = Duration::from_secs(1);
/// Maximum delay without a request of the receiver.
const LONGEST: Duration = Duration::from_secs(30);
/// Maximum delay that a receiver may request.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// Delays that double, with jitter, so that the exporters of a fleet do not retry simultaneously.
#[derive(Debug)]
pub(super) struct Backoff {
    attempts: u32,
    /// State of a random number generator (xorshift64). Quality does not matter, but nodes must differ.
    random: u64,
}

impl Backoff {
    /// Creates a backoff. `seed` should differ between nodes.
    pub(super) fn new(seed: u64) -> Self {
        // Spread over all bits, because seeds of two nodes may differ in a single bit.
        let random = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1;
        Self { attempts: 0, random }
    }

    /// Returns the delay after another failure: half to all of a delay that doubles each time. If the receiver requests a longer delay,
    /// returns that delay plus up to a quarter. A receiver may always request a delay of zero.
    pub(super) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let part = self.random_part();
        let pause = FIRST.saturating_mul(1 << self.attempts.min(10)).min(LONGEST);
        self.attempts = self.attempts.saturating_add(1);
        let asked = asked.unwrap_or_default().min(LONGEST_ASKED);
        pause.mul_f64(0.5 + part / 2.0).max(asked.mul_f64(1.0 + part / 4.0))
    }

    /// Resets the delay after a success.
    pub(super) fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Returns a random number from 0 up to, but not including, 1.
    pub(super) fn random_part(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(7);
        for longest in [1, 2, 4, 8, 16, 30, 30] {
            let (pause, longest) = (backoff.next(None), Duration::from_secs(longest));
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?} of {longest:?}");
        }
        backoff.reset();
        assert!(backoff.next(None) <= FIRST);
    }

    #[test]
    fn a_receiver_has_the_time_that_it_asks_for_within_reason() {
        let mut backoff = Backoff::new(7);
        let asked = Duration::from_secs(8);
        let pause = backoff.next(Some(asked));
        assert!(pause >= asked && pause <= asked * 5 / 4, "{pause:?}");
        assert!(backoff.next(Some(Duration::MAX)) <= LONGEST_ASKED * 5 / 4);
    }

    #[test]
    fn a_receiver_that_asks_for_no_pause_is_not_asked_again_at_once() {
        let mut backoff = Backoff::new(7);
        let pauses: Vec<Duration> = (0..6).map(|_| backoff.next(Some(Duration::ZERO))).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[5] >= LONGEST / 2, "{pauses:?}");
    }

    #[test]
    fn two_nodes_wait_for_different_times() {
        assert_ne!(Backoff::new(2).next(None), Backoff::new(4).next(None));
    }
}
