//! Values as pure functions of time. Totals only grow, at a rate that differs between series and over time.

/// Seconds between two points at which the rate of a counter changes.
const KNOT: f64 = 5.0;

/// Maximum share of such a period by which a counter can be ahead. Below 1, so that totals never fall.
const AHEAD: f64 = 0.9;

/// Returns a pseudo-random number of these two.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns a pseudo-random number from 0 to 1.
pub(crate) fn fraction(a: u64, b: u64) -> f64 {
    (mix(a, b) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns the seconds that a counter has grown for, after `elapsed` seconds. It is near `elapsed` and never falls.
pub(crate) fn grown(seed: u64, elapsed: f64) -> f64 {
    let at = elapsed.max(0.0) / KNOT;
    let number = at.floor();
    let knot = |number: f64| {
        let ahead = if number == 0.0 { 0.0 } else { AHEAD * fraction(seed, number as u64) };
        number + ahead
    };
    let (before, after) = (knot(number), knot(number + 1.0));
    KNOT * (before + (after - before) * (at - number))
}

/// Generation of an object that is replaced all `period` seconds, and the time at which this generation began. The phase depends on the
/// seed. An infinite period has one generation, which began at 0.
pub(crate) fn generation(seed: u64, period: f64, at: f64) -> (u64, f64) {
    if !period.is_finite() {
        return (0, 0.0);
    }
    let phase = fraction(seed, 0);
    let number = (at / period + phase).floor();
    (number as u64, ((number - phase) * period).max(0.0))
}
