//! Reproducible random numbers.

use std::f64::consts::TAU;

/// A generator of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number from 0 to 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number with a standard normal distribution.
    pub(crate) fn normal(&mut self) -> f64 {
        let (one, other) = (self.uniform().max(f64::MIN_POSITIVE), self.uniform());
        (-2.0 * one.ln()).sqrt() * (TAU * other).cos()
    }
}
