//! Numbers of 16 bits.

/// A number that is not negative, in 16 bits: 6 bits of exponent, 10 bits of fraction. Integers below 2048 are exact, others have an error of
/// at most 1/2048 (0.05 %), up to 2^72. Larger numbers are that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Small(u16);

/// Bits of the fraction.
const FRACTION: u32 = 10;

/// The largest exponent. All numbers with the next one mean "none".
const LARGEST: u32 = 62;

impl Small {
    /// No number: nothing was measured.
    pub(super) const NONE: Self = Self(u16::MAX);

    /// Returns the nearest number.
    pub(super) fn of(value: f64) -> Self {
        let rounded = value.round();
        if rounded.is_nan() || rounded <= 0.0 {
            return Self(0);
        }
        let one = 1_u64 << FRACTION;
        if rounded < one as f64 {
            return Self(rounded as u16);
        }
        // 1 ≤ value / 2^exponent < 2, in units of 2^-FRACTION.
        let mut exponent = rounded.log2().floor();
        let mut fraction = (value / (exponent - f64::from(FRACTION)).exp2()).round();
        if fraction >= 2.0 * one as f64 {
            exponent += 1.0;
            fraction = one as f64;
        }
        let exponent = exponent as u32 - FRACTION + 1;
        if exponent > LARGEST {
            return Self(((LARGEST << FRACTION) as u16) | (one as u16 - 1));
        }
        Self(((exponent << FRACTION) as u16) | (fraction as u64 - one) as u16)
    }

    /// Returns the number; `None` if nothing was measured.
    pub(super) fn value(self) -> Option<f64> {
        let (exponent, fraction) = (u32::from(self.0) >> FRACTION, u32::from(self.0) & ((1 << FRACTION) - 1));
        match exponent {
            _ if exponent > LARGEST => None,
            0 => Some(f64::from(fraction)),
            _ => Some(f64::from(fraction + (1 << FRACTION)) * f64::from(exponent - 1).exp2()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_integers_are_exact() {
        for value in 0..=2048 {
            assert_eq!(Small::of(f64::from(value)).value(), Some(f64::from(value)));
        }
    }

    #[test]
    fn what_is_no_number_is_told_apart_from_zero() {
        assert_eq!(Small::NONE.value(), None);
        assert_eq!(Small::default().value(), Some(0.0));
        for value in [f64::NAN, -1.0, -0.0, 0.4] {
            assert_eq!(Small::of(value).value(), Some(0.0), "{value}");
        }
        for value in [f64::INFINITY, f64::MAX, 2_f64.powi(80)] {
            let largest = Small::of(value).value().unwrap();
            assert!(largest > 2_f64.powi(71), "{value}: {largest}");
        }
    }

    proptest! {
        #[test]
        fn any_number_has_an_error_of_a_two_thousandth_at_most(value in 0.5_f64..1e21) {
            let stored = Small::of(value).value().unwrap();
            let error = (stored - value).abs();
            prop_assert!(error <= 0.5 || error / value <= 1.0 / 2048.0 + 1e-9, "{value}: {stored}");
        }

        #[test]
        fn larger_numbers_are_stored_as_larger_ones(one in 0.0_f64..1e15, more in 0.0_f64..1e15) {
            let [one, both] = [one, one + more].map(|value| Small::of(value).value().unwrap());
            prop_assert!(one <= both);
        }
    }
}
