use std::collections::BTreeMap;

use proptest::prelude::*;

use super::exponential::{ZERO_THRESHOLD, key};
use super::*;

/// The constants of the module, used here to compute bucket bounds as Prometheus does.
const BOUNDS: [f64; 8] = [
    0.5,
    0.5452538663326288,
    0.5946035575013605,
    0.6484197773255048,
    0.7071067811865475,
    0.7711054127039704,
    0.8408964152537144,
    0.9170040432046711,
];

/// Returns the upper bound of a bucket: `base^index`.
fn end(schema: i32, index: i32) -> f64 {
    let eighths = index << (3 - schema);
    let (octave, part) = (eighths.div_euclid(8), eighths.rem_euclid(8) as usize);
    // In two steps, because 2^1024 is not representable in an f64.
    BOUNDS[part] * 2.0 * 2_f64.powi(octave / 2) * 2_f64.powi(octave - octave / 2)
}

/// Returns the bucket of a value according to the bounds, searched near the estimate from logarithms.
fn index(schema: i32, value: f64) -> i32 {
    if value == f64::INFINITY {
        return (1 << (10 + schema)) + 1;
    }
    let near = (value.log2() * f64::from(1 << schema)) as i32;
    (near - 2..near + 3).find(|&index| value <= end(schema, index)).unwrap()
}

fn native(values: impl IntoIterator<Item = f64>) -> Histogram {
    let mut histogram = Histogram::of(&Buckets::exponential(""));
    values.into_iter().for_each(|value| histogram.observe(value));
    histogram
}

fn positive(histogram: &Histogram) -> Vec<(i32, u64)> {
    histogram.native().unwrap().positive().collect()
}

fn negative(histogram: &Histogram) -> Vec<(i32, u64)> {
    histogram.native().unwrap().negative().collect()
}

fn schema(histogram: &Histogram) -> i32 {
    histogram.native().unwrap().schema()
}

#[test]
fn a_value_on_a_boundary_belongs_to_the_bucket_that_ends_there() {
    for buckets in [Buckets::listed(&[1.0, 2.0]).unwrap(), Buckets::exponential_with(&[1.0, 2.0]).unwrap()] {
        let mut histogram = Histogram::of(&buckets);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.observe(value);
        }
        let buckets: Vec<_> = histogram.cumulative().collect();
        assert_eq!(buckets, [(1.0, 2), (2.0, 3), (f64::INFINITY, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 12.0));
    }
}

#[test]
fn bounds_that_a_scraper_would_refuse_are_left_out() {
    let histogram = Histogram::new(&[2.0, 1.0, f64::INFINITY, 2.0, f64::NAN]);
    assert_eq!(histogram.bounds(), [1.0, 2.0]);
}

#[test]
fn nan_is_not_a_value() {
    for mut histogram in [Histogram::new(&[1.0]), native([])] {
        histogram.observe(f64::NAN);
        assert_eq!((histogram.count(), histogram.sum()), (0, 0.0));
    }
}

#[test]
fn counts_from_elsewhere_must_grow_with_their_bounds() {
    let histogram = Histogram::from_cumulative(&[1.0, 2.0], &[2, 3], 4, 12.0).unwrap();
    let buckets: Vec<_> = histogram.cumulative().collect();
    assert_eq!(buckets, [(1.0, 2), (2.0, 3), (f64::INFINITY, 4)]);
    assert_eq!(Histogram::from_cumulative(&[1.0, 2.0], &[3, 2], 4, 12.0), None);
    assert_eq!(Histogram::from_cumulative(&[1.0], &[], 4, 12.0), None);
    assert_eq!(Histogram::from_cumulative(&[2.0, 1.0], &[2, 3], 4, 12.0), None);
}

#[test]
fn every_bucket_of_the_finest_schema_begins_right_behind_the_one_before() {
    for index in -1023..=8191 {
        let end = end(3, index);
        assert_eq!(positive(&native([end])), [(index, 1)], "{end:e}");
        assert_eq!(positive(&native([end.next_up()])), [(index + 1, 1)], "behind {end:e}");
    }
    assert_eq!(positive(&native([f64::MAX])), [(8192, 1)]);
    assert_eq!(positive(&native([f64::INFINITY])), [(8193, 1)]);
}

#[test]
fn values_near_zero_share_one_bucket_and_negative_ones_have_mirrored_buckets() {
    let lowest = f64::from_bits(1);
    let histogram = native([0.0, -0.0, lowest, -lowest, ZERO_THRESHOLD, -ZERO_THRESHOLD]);
    assert_eq!(histogram.native().unwrap().zero_count(), 6);
    assert_eq!((positive(&histogram), negative(&histogram)), (vec![], vec![]));
    assert_eq!(ZERO_THRESHOLD, 2_f64.powi(-128));

    let histogram = native([-1.0, -2.0, -2.0, 1.0, ZERO_THRESHOLD.next_up(), f64::NEG_INFINITY]);
    assert_eq!(positive(&histogram), [(-1023, 1), (0, 1)]);
    assert_eq!(negative(&histogram), [(0, 1), (8, 2), (8193, 1)]);
    assert_eq!(histogram.cumulative().next(), Some((1.0, 6)));
}

#[test]
fn keys_are_ordered_as_values_are() {
    let values = [f64::NEG_INFINITY, -1e300, -1.0, -1e-30, 0.0, 1e-30, 0.9, 1.0, 1.1, 1e300, f64::INFINITY];
    assert!(values.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
}

#[test]
fn the_resolution_is_halved_when_buckets_become_too_many() {
    let mut histogram = native((0..320).map(|index| end(3, index)));
    assert_eq!((schema(&histogram), positive(&histogram).len()), (3, 320));
    histogram.observe(end(3, 320));
    // Buckets 0 … 320 become 0 … 160: two each, except for the bucket that ends at 1, which has no neighbor.
    assert_eq!(schema(&histogram), 2);
    let expected: Vec<_> = (0..=160).map(|index| (index, if index == 0 { 1 } else { 2 })).collect();
    assert_eq!(positive(&histogram), expected);
    assert_eq!(histogram.count(), 321);
}

#[test]
fn values_over_the_whole_range_of_numbers_stay_within_a_bound() {
    let all = (-1074..1024).flat_map(|exponent| {
        let value = 2_f64.powi(exponent / 2) * 2_f64.powi(exponent - exponent / 2);
        [value, -value, value * 1.7, -value * 1.7]
    });
    let histogram = native(all.chain([f64::INFINITY, f64::NEG_INFINITY]));
    let Store::Exponential(exponential) = &histogram.store else { panic!("not exponential") };
    assert_eq!((schema(&histogram), exponential.counts().len()), (0, 2307));
    assert_eq!(exponential.counts().iter().sum::<u64>(), histogram.count());
}

#[test]
fn classic_bounds_stay_exact_when_the_resolution_is_not() {
    let bounds: Vec<f64> = (-40..=40).map(|exponent| 2_f64.powi(exponent)).collect();
    let mut fine = Histogram::of(&Buckets::exponential_with(&bounds).unwrap());
    let mut listed = Histogram::of(&Buckets::listed(&bounds).unwrap());
    for exponent in -300..300 {
        for value in [1.0, 1.3, -1.5].map(|mantissa| mantissa * 2_f64.powi(exponent)) {
            fine.observe(value);
            listed.observe(value);
        }
    }
    assert_eq!(schema(&fine), 0);
    assert!(fine.cumulative().eq(listed.cumulative()));
}

#[test]
fn a_full_histogram_takes_in_nothing_more() {
    for mut histogram in [Histogram::new(&[1.0]), native([])] {
        histogram.observe_many(0.5, u64::MAX);
        histogram.observe_many(f64::INFINITY, u64::MAX);
        let other = histogram.clone();
        histogram.merge(&other);
        assert_eq!(
            (histogram.count(), histogram.cumulative().last()),
            (MAX_COUNT, Some((f64::INFINITY, MAX_COUNT)))
        );
        assert!(histogram.sum().is_finite());
    }
}

#[test]
fn a_value_met_many_times_is_that_many_values() {
    for mut histogram in [Histogram::new(&[1.0]), native([])] {
        let mut one_by_one = histogram.clone();
        histogram.observe_many(3.0, 5);
        histogram.observe_many(7.0, 0);
        (0..5).for_each(|_| one_by_one.observe(3.0));
        assert_eq!(histogram, one_by_one);
    }
}

#[test]
fn merging_what_has_other_buckets_loses_no_value() {
    let mut histogram = Histogram::new(&[1.0, 10.0]);
    histogram.merge(&native([0.7, 3.0, 1e9]));
    let buckets: Vec<_> = histogram.cumulative().collect();
    assert_eq!(buckets, [(1.0, 1), (10.0, 2), (f64::INFINITY, 3)]);
    assert_eq!(histogram.sum(), 0.7 + 3.0 + 1e9);

    let mut histogram = native([0.7]);
    histogram.merge(&Histogram::from_cumulative(&[4.0], &[2], 3, 50.0).unwrap());
    assert_eq!(positive(&histogram), [(-4, 1), (16, 2), (8193, 1)]);
}

/// Values of typical measurements, including bucket bounds, and occasionally arbitrary values.
fn values() -> impl Strategy<Value = Vec<f64>> {
    let end = (-400..400).prop_map(|index| end(3, index));
    let measured = (-30.0..40.0).prop_map(f64::exp2);
    let whatever = any::<f64>().prop_filter("NaN is not a value", |value| !value.is_nan());
    let value = prop_oneof![4 => measured, 2 => end, 1 => whatever, 1 => Just(0.0)];
    prop::collection::vec(
        (value, any::<bool>()).prop_map(|(value, minus)| if minus { -value } else { value }),
        0..900,
    )
}

proptest! {
    // Each case has hundreds of values: as many as needed to exceed the maximum number of buckets.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_value_lies_in_its_bucket(values in values()) {
        let histogram = native(values.iter().copied());
        let view = histogram.native().unwrap();
        let (mut zero, mut expected) = (0, [BTreeMap::new(), BTreeMap::new()]);
        for value in values {
            if value.abs() <= ZERO_THRESHOLD {
                zero += 1;
            } else {
                let side = &mut expected[usize::from(value < 0.0)];
                *side.entry(index(view.schema(), value.abs())).or_insert(0) += 1;
            }
        }
        prop_assert_eq!(view.zero_count(), zero);
        prop_assert!(view.positive().eq(expected[0].clone()));
        prop_assert!(view.negative().eq(expected[1].clone()));
    }

    #[test]
    fn classic_bounds_are_exact(values in values()) {
        let histogram = native(values.iter().copied());
        for (bound, below) in histogram.cumulative() {
            prop_assert_eq!(below, values.iter().filter(|&&value| value <= bound).count() as u64);
        }
    }

    #[test]
    fn fewer_bounds_have_the_counts_that_they_had(values in values()) {
        let mut listed = Histogram::new(&[0.5, 1.0, 2.0, 64.0]);
        values.iter().for_each(|&value| listed.observe(value));
        for histogram in [listed, native(values.iter().copied())] {
            let fewer = histogram.with_fewer_bounds(|bound| bound >= 1.0);
            prop_assert!(fewer.cumulative().eq(histogram.cumulative().filter(|(bound, _)| *bound >= 1.0)));
            prop_assert_eq!((fewer.count(), fewer.sum().to_bits()), (histogram.count(), histogram.sum().to_bits()));
        }
    }

    #[test]
    fn merged_is_as_if_one_had_seen_all(first in values(), second in values()) {
        let mut merged = native(first.iter().copied());
        merged.merge(&native(second.iter().copied()));
        let whole = native(first.iter().chain(&second).copied());
        prop_assert_eq!(merged.count(), whole.count());
        prop_assert!(merged.cumulative().eq(whole.cumulative()));
        // The order of the values affects only the time of halving.
        prop_assert_eq!(schema(&merged), schema(&whole));
        prop_assert_eq!(positive(&merged), positive(&whole));
        prop_assert_eq!(negative(&merged), negative(&whole));
    }
}
