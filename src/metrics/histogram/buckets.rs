//! Where the buckets of a histogram end, checked once: bounds that a scraper would refuse cannot become [`Buckets`].

use std::sync::Arc;

use super::exponential;

/// How many bounds there may be. Each is a series of its own in the text formats, for every label set.
const MAX_BOUNDS: usize = 128;

/// Where buckets end. Cheap to clone, and shared by all histograms made from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    /// Ascending and finite; the classic buckets, which end here (inclusive).
    bounds: Arc<[f64]>,
    /// Whether values are counted in exponential buckets, which [`Self::bounds`] only sum up. Then the bounds are
    /// powers of two, where exponential buckets of every resolution end.
    exponential: bool,
}

/// Why a list of bounds makes no buckets.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BucketsError {
    /// None at all.
    #[error("no bounds: a histogram needs at least one")]
    None,
    /// More than a scraper should be asked to store.
    #[error("{0} bounds are too many: each is a series of its own, so {MAX_BOUNDS} is the most")]
    TooMany(usize),
    /// NaN or an infinity.
    #[error("{0} cannot be a bound: bounds are finite, and a last bucket without end is added by itself")]
    NotFinite(f64),
    /// A bound that is not above the one before it.
    #[error("the bound {bound} comes after {before}, but bounds must ascend")]
    NotAscending {
        /// The one before.
        before: f64,
        /// The bound.
        bound: f64,
    },
    /// A bound within an exponential bucket.
    #[error(
        "{0} is not a power of two (…, 0.25, 0.5, 1, 2, 4, …), and only there do exponential buckets end"
    )]
    NotPowerOfTwo(f64),
}

impl Buckets {
    /// Buckets that end at these bounds (inclusive), and a last one without end.
    ///
    /// # Errors
    /// Unless the bounds are finite, ascending, and neither none nor too many.
    pub fn listed(bounds: &[f64]) -> Result<Self, BucketsError> {
        check(bounds)?;
        Ok(Self { bounds: bounds.into(), exponential: false })
    }

    /// Exponential buckets: values are counted with an error of 4.4 % at most over the whole range of numbers, which
    /// those see who read native histograms. Text shows classic buckets that suit the base unit: for `seconds` from a
    /// microsecond to a minute by factors of two, for `bytes` to a gibibyte by factors of four, for all else to a
    /// million by factors of two.
    pub fn exponential(unit: &str) -> Self {
        let exponents = match unit {
            "seconds" => (-20..=6).step_by(1),
            "bytes" => (0..=30).step_by(2),
            _ => (0..=20).step_by(1),
        };
        Self { bounds: exponents.map(|exponent| 2_f64.powi(exponent)).collect(), exponential: true }
    }

    /// Exponential buckets of which text shows these bounds.
    ///
    /// # Errors
    /// As for [`listed`](Self::listed), and where a bound is not a power of two of at least 2⁻¹²⁸.
    pub fn exponential_with(bounds: &[f64]) -> Result<Self, BucketsError> {
        check(bounds)?;
        match bounds.iter().find(|&&bound| !exponential::is_end(bound)) {
            Some(&bound) => Err(BucketsError::NotPowerOfTwo(bound)),
            None => Ok(Self { bounds: bounds.into(), exponential: true }),
        }
    }

    /// Where the classic buckets end, ascending, without the last one's infinity.
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Whether values are counted in exponential buckets.
    pub fn is_exponential(&self) -> bool {
        self.exponential
    }

    pub(super) fn shared_bounds(&self) -> Arc<[f64]> {
        Arc::clone(&self.bounds)
    }
}

fn check(bounds: &[f64]) -> Result<(), BucketsError> {
    if bounds.is_empty() {
        return Err(BucketsError::None);
    }
    if bounds.len() > MAX_BOUNDS {
        return Err(BucketsError::TooMany(bounds.len()));
    }
    if let Some(&bound) = bounds.iter().find(|bound| !bound.is_finite()) {
        return Err(BucketsError::NotFinite(bound));
    }
    match bounds.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(BucketsError::NotAscending { before: pair[0], bound: pair[1] }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_a_scraper_would_refuse_are_refused() {
        let table: [(&[f64], &str); 6] = [
            (&[], "no bounds: a histogram needs at least one"),
            (&[1.0; 129], "129 bounds are too many: each is a series of its own, so 128 is the most"),
            (
                &[1.0, f64::INFINITY],
                "inf cannot be a bound: bounds are finite, and a last bucket without end is added by itself",
            ),
            (
                &[f64::NAN],
                "NaN cannot be a bound: bounds are finite, and a last bucket without end is added by itself",
            ),
            (&[1.0, 3.0, 2.0], "the bound 2 comes after 3, but bounds must ascend"),
            (&[-0.0, 0.0], "the bound 0 comes after -0, but bounds must ascend"),
        ];
        for (bounds, message) in table {
            assert_eq!(Buckets::listed(bounds).unwrap_err().to_string(), message);
            assert_eq!(Buckets::exponential_with(bounds).unwrap_err().to_string(), message);
        }
        assert_eq!(Buckets::listed(&[-1.0, 0.0, 0.1]).unwrap().bounds(), [-1.0, 0.0, 0.1]);
    }

    #[test]
    fn exponential_buckets_show_bounds_only_where_buckets_end() {
        let lowest = 2_f64.powi(-128);
        assert!(Buckets::exponential_with(&[lowest, 0.5, 1.0, 2_f64.powi(1023)]).is_ok());
        for bound in [0.0, -2.0, 3.0, lowest / 2.0, f64::from_bits(1), 1.0_f64.next_up()] {
            assert_eq!(Buckets::exponential_with(&[bound]), Err(BucketsError::NotPowerOfTwo(bound)));
        }
    }

    #[test]
    fn the_bounds_that_are_shown_suit_the_unit() {
        let ends = |unit| {
            let buckets = Buckets::exponential(unit);
            assert_eq!(Buckets::exponential_with(buckets.bounds()).as_ref(), Ok(&buckets));
            (buckets.bounds().len(), buckets.bounds()[0], buckets.bounds()[buckets.bounds().len() - 1])
        };
        assert_eq!(ends("seconds"), (27, 9.5367431640625e-7, 64.0));
        assert_eq!(ends("bytes"), (16, 1.0, f64::from(1 << 30)));
        assert_eq!(ends(""), (21, 1.0, f64::from(1 << 20)));
    }
}
