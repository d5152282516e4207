//! The rate limit for reading symbol tables.

use std::time::Duration;

use crate::clock::{Allowance, Monotonic};

/// The most bytes to read a second on average: a few percent of a CPU.
const RATE: u64 = 64 << 20;
/// The most bytes to read at once: some hundred passes over the tables of compilers.
const BURST: u64 = 1 << 30;

/// The bytes that may still be read. Programs determine the size of their tables and the executed addresses. This limit bounds the CPU time
/// that any program can cause, and the delay for other programs to a second.
#[derive(Debug)]
pub(super) struct Work {
    allowance: Allowance,
    now: Monotonic,
}

impl Default for Work {
    fn default() -> Self {
        let now = Monotonic::default();
        Self { allowance: Allowance::new(BURST, RATE, Duration::from_secs(1), now), now }
    }
}

impl Work {
    /// Adds the allowance for the time since the last call.
    pub(super) fn refill(&mut self, now: Monotonic) {
        self.now = now;
    }

    /// Spends bytes. Returns `false` if nothing was left before.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let is_left = !self.is_spent();
        self.allowance.spend(bytes);
        is_left
    }

    /// Reports whether nothing is left.
    pub(super) fn is_spent(&mut self) -> bool {
        self.allowance.left(self.now) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_in_the_long_run_is_bounded_and_comes_back_with_time() {
        let at = |seconds| Monotonic(Duration::from_secs(seconds));
        let mut work = Work::default();
        work.refill(at(5));
        let passes = (0..1000).filter(|_| work.take(256 << 20)).count();
        assert_eq!(passes, 4);
        assert!(work.is_spent());
        work.refill(at(6));
        assert!(work.take(1) && !work.is_spent());
        work.refill(at(1000));
        assert_eq!((0..1000).filter(|_| work.take(256 << 20)).count(), 4);
    }
}
