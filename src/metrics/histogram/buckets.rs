//! Bucket bounds of histograms, validated once: bounds that a scraper would reject cannot become [`Buckets`].

use std::sync::Arc;

use super::exponential;

/// Maximum number of bounds. In the text formats each bound is a series of its own for every label set.
const MAX_BOUNDS: usize = 128;

/// Bucket bounds. Cheap to clone; shared by all histograms created from them.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    /// Inclusive upper bounds of the classic buckets, ascending and finite.
    bounds: Arc<[f64]>,
    /// Whether values are counted in exponential buckets, from which the buckets of [`Self::bounds`] are derived. The bounds are then
    /// powers of two, which are bounds of exponential buckets of every resolution.
    exponential: bool,
}

/// Reason why a list of bounds is invalid.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BucketsError {
    /// An empty list.
    #[error("no bounds: a histogram needs at least one")]
    None,
    /// More than 128 bounds.
    #[error("{0} bounds are too many: each bound is a series of its own, the maximum is {MAX_BOUNDS}")]
    TooMany(usize),
    /// NaN or infinity.
    #[error(
        "{0} is not a valid bound: bounds must be finite, the bucket up to infinity is added automatically"
    )]
    NotFinite(f64),
    /// A bound that is not above the previous one.
    #[error("the bound {bound} follows {before}: bounds must be in ascending order")]
    NotAscending {
        /// The previous bound.
        before: f64,
        /// The rejected bound.
        bound: f64,
    },
    /// A bound inside of an exponential bucket.
    #[error("{0} is not a power of two (…, 0.25, 0.5, 1, 2, 4, …), as required for exponential buckets")]
    NotPowerOfTwo(f64),
}

impl Buckets {
    /// Creates buckets with these inclusive upper bounds and a last bucket up to infinity.
    ///
    /// # Errors
    /// Returns an error unless the bounds are finite, ascending, and 1 to 128 in number.
    pub fn listed(bounds: &[f64]) -> Result<Self, BucketsError> {
        check(bounds)?;
        Ok(Self { bounds: bounds.into(), exponential: false })
    }

    /// Creates exponential buckets. Native histograms have a relative error of at most 4.4 % over the whole range of numbers. The text
    /// formats show classic buckets that suit the base unit. For `seconds` their bounds are a microsecond to a minute by factors of two,
    /// for `bytes` up to a gibibyte by factors of four. For other units they are powers of two up to a million.
    pub fn exponential(unit: &str) -> Self {
        let exponents = match unit {
            "seconds" => (-20..=6).step_by(1),
            "bytes" => (0..=30).step_by(2),
            _ => (0..=20).step_by(1),
        };
        Self { bounds: exponents.map(|exponent| 2_f64.powi(exponent)).collect(), exponential: true }
    }

    /// Creates exponential buckets with these classic bounds in the text formats.
    ///
    /// # Errors
    /// Returns the errors of [`listed`](Self::listed), and an error for a bound that is not a power of two of at least 2⁻¹²⁸.
    pub fn exponential_with(bounds: &[f64]) -> Result<Self, BucketsError> {
        check(bounds)?;
        match bounds.iter().find(|&&bound| !exponential::is_end(bound)) {
            Some(&bound) => Err(BucketsError::NotPowerOfTwo(bound)),
            None => Ok(Self { bounds: bounds.into(), exponential: true }),
        }
    }

    /// Returns the finite upper bounds of the classic buckets, ascending.
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Reports whether values are counted in exponential buckets.
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
            (&[1.0; 129], "129 bounds are too many: each bound is a series of its own, the maximum is 128"),
            (
                &[1.0, f64::INFINITY],
                "inf is not a valid bound: bounds must be finite, the bucket up to infinity is added automatically",
            ),
            (
                &[f64::NAN],
                "NaN is not a valid bound: bounds must be finite, the bucket up to infinity is added automatically",
            ),
            (&[1.0, 3.0, 2.0], "the bound 2 follows 3: bounds must be in ascending order"),
            (&[-0.0, 0.0], "the bound 0 follows -0: bounds must be in ascending order"),
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
