//! A distribution of values in few bytes, of which old values can be forgotten.

use super::wire::{Reader, Writer};

/// Ratio of the bounds of two neighbouring buckets. Quantiles have a relative error of at most 0.5%.
const RATIO: f64 = 1.01;

/// Maximum number of buckets. The lowest ones are merged above it.
const MAX: usize = 512;

/// Values at and below this are zero.
const SMALLEST: f64 = 1e-9;

/// A distribution of non-negative values, by buckets whose bounds grow by 1%, as in DDSketch (Masson, Rim, Lee, VLDB 2019).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sketch {
    /// Weight of zero.
    zero: f64,
    /// Number and weight of each bucket, ascending. Bucket `n` contains values above `RATIO`ⁿ⁻¹ and up to `RATIO`ⁿ.
    buckets: Vec<(i16, f32)>,
}

/// Returns the bucket of a positive value.
fn bucket(value: f64) -> i16 {
    (value.ln() / RATIO.ln()).ceil() as i16
}

/// Returns the value that represents a bucket: the one with the same relative error towards both bounds.
fn middle(bucket: i16) -> f64 {
    2.0 * RATIO.powi(i32::from(bucket)) / (1.0 + RATIO)
}

impl Sketch {
    /// Adds a value. Values that are not finite are ignored, negative ones are zero.
    pub fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        if value <= SMALLEST {
            self.zero += 1.0;
            return;
        }
        self.add_to(bucket(value), 1.0);
    }

    /// Adds the values of another distribution.
    pub fn merge(&mut self, other: &Self) {
        self.zero += other.zero;
        for &(number, weight) in &other.buckets {
            self.add_to(number, weight);
        }
    }

    /// Adds a weight to a bucket. Above the maximum number of buckets, the lowest ones are merged.
    fn add_to(&mut self, number: i16, weight: f32) {
        match self.buckets.binary_search_by_key(&number, |bucket| bucket.0) {
            Ok(found) => self.buckets[found].1 += weight,
            Err(place) => self.buckets.insert(place, (number, weight)),
        }
        if self.buckets.len() > MAX {
            let (_, weight) = self.buckets.remove(0);
            self.buckets[0].1 += weight;
        }
    }

    /// Multiplies all weights by `factor`. Buckets that become insignificant are removed.
    pub fn age(&mut self, factor: f64) {
        self.zero *= factor;
        self.buckets.iter_mut().for_each(|bucket| bucket.1 *= factor as f32);
        self.buckets.retain(|bucket| bucket.1 >= 0.01);
    }

    /// Returns the memory of the buckets, in bytes.
    pub fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<(i16, f32)>()
    }

    /// Returns the weight of all values: their number, if none has aged.
    pub fn weight(&self) -> f64 {
        self.zero + self.buckets.iter().map(|bucket| f64::from(bucket.1)).sum::<f64>()
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.float(self.zero);
        out.length(self.buckets.len());
        for (number, weight) in &self.buckets {
            out.bytes(number.to_le_bytes());
            out.bytes(weight.to_le_bytes());
        }
    }

    /// Reads a distribution; `None` if it is not one.
    pub(super) fn read(bytes: &mut Reader<'_>) -> Option<Self> {
        let zero = bytes.float()?;
        let length = bytes.length().filter(|&length| length <= MAX)?;
        let bucket = |_| {
            let number = i16::from_le_bytes(bytes.bytes()?);
            let weight = f32::from_le_bytes(bytes.bytes()?);
            (weight.is_finite() && weight >= 0.0).then_some((number, weight))
        };
        let buckets: Vec<_> = (0..length).map(bucket).collect::<Option<_>>()?;
        buckets.is_sorted_by(|one, other| one.0 < other.0).then_some(Self { zero, buckets })
    }

    /// Returns values and weights, ascending.
    fn values(&self) -> impl Iterator<Item = (f64, f64)> {
        let rest = self.buckets.iter().map(|&(number, weight)| (middle(number), f64::from(weight)));
        std::iter::once((0.0, self.zero)).chain(rest).filter(|value| value.1 > 0.0)
    }

    /// Returns the median. `None` without values.
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// Returns a quantile, from 0 to 1. `None` without values.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        quantile_of(self.values(), quantile * self.weight())
    }

    /// Returns the median of the absolute deviations from `center`. `None` without values.
    pub fn deviation(&self, center: f64) -> Option<f64> {
        let mut deviations: Vec<_> =
            self.values().map(|(value, weight)| ((value - center).abs(), weight)).collect();
        deviations.sort_by(|one, other| one.0.total_cmp(&other.0));
        quantile_of(deviations.into_iter(), 0.5 * self.weight())
    }
}

/// Returns the first of values with weights, in ascending order, up to which there is this weight.
fn quantile_of(values: impl Iterator<Item = (f64, f64)>, weight: f64) -> Option<f64> {
    let mut below = 0.0;
    let mut last = None;
    for (value, own) in values {
        below += own;
        last = Some(value);
        if below >= weight {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = f64>) -> Sketch {
        let mut sketch = Sketch::default();
        values.into_iter().for_each(|value| sketch.add(value));
        sketch
    }

    fn near(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!((found - expected).abs() <= expected * 0.021, "{found} instead of {expected}");
    }

    #[test]
    fn median_and_deviation_are_within_two_percent() {
        let sketch = of((1..=1001).map(f64::from));
        near(sketch.median(), 501.0);
        assert!((sketch.deviation(501.0).unwrap() - 250.0).abs() < 0.04 * 501.0);
        near(of([1e-6, 2e-6, 5e4]).median(), 2e-6);
    }

    #[test]
    fn a_distribution_without_values_has_no_median() {
        assert_eq!(Sketch::default().median(), None);
        assert_eq!(Sketch::default().deviation(1.0), None);
        assert_eq!(of([f64::NAN, f64::INFINITY]).median(), None);
    }

    #[test]
    fn merged_distributions_have_the_values_of_both() {
        let mut both = of((1..=600).map(f64::from));
        both.merge(&of((601..=1000).map(f64::from).chain([0.0])));
        assert_eq!(both.weight(), 1001.0);
        near(both.median(), 500.0);
        near(both.quantile(0.9), 900.0);
        let mut wide = of((0..400).map(|n| 1.02_f64.powi(n)));
        wide.merge(&of((400..800).map(|n| 1.02_f64.powi(n))));
        assert!(wide.buckets.len() <= MAX);
    }

    #[test]
    fn zeros_and_negative_values_are_zero() {
        let sketch = of([0.0, -3.0, 0.0, 7.0]);
        assert_eq!(sketch.median(), Some(0.0));
        assert_eq!(sketch.deviation(0.0), Some(0.0));
    }

    #[test]
    fn aged_values_lose_against_new_ones() {
        let mut sketch = of([1.0; 100]);
        sketch.age(0.5);
        assert_eq!(sketch.weight(), 50.0);
        [10.0; 60].into_iter().for_each(|value| sketch.add(value));
        near(sketch.median(), 10.0);
        (0..60).for_each(|_| sketch.age(0.5));
        assert_eq!(sketch.weight(), 0.0);
    }

    #[test]
    fn its_memory_is_bounded_whatever_the_values() {
        let sketch = of((0..100_000).map(|n| 1.001_f64.powi(n)));
        assert!(sketch.buckets.len() <= MAX);
        assert_eq!(
            sketch.weight(),
            100_000.0 - (0..100_000).filter(|&n| !1.001_f64.powi(n).is_finite()).count() as f64
        );
    }
}
