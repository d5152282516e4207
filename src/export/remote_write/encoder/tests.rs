use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::metrics::{Histogram, Metadata};

#[path = "../../../../tests/support/remote_write.rs"]
mod remote_write;

use remote_write::{Sample as Read, WriteRequest, read, stored};

fn options() -> Options {
    let external = [("instance", "n1"), ("Zone", "z")];
    let external = external.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    Options { external: external.collect(), limit: 1 << 20 }
}

fn requests(encoded: &Encoded) -> Vec<WriteRequest> {
    let requests: Vec<_> = encoded.payloads.iter().map(|payload| read(&payload.bytes)).collect();
    for (request, payload) in requests.iter().zip(&encoded.payloads) {
        let samples: usize = request.timeseries.iter().map(|series| series.samples.len()).sum();
        assert_eq!(samples as u64, payload.items);
        assert!(payload.items <= SAMPLES);
    }
    requests
}

fn family(name: &str, kind: Kind, points: Vec<Point>) -> Family {
    Family::new(Metadata::new(name, "help", "", kind).unwrap(), points)
}

fn point(label: &str, value: Value, start: u64) -> Point {
    Point { labels: Labels::new([("cpu", label)]), value, start: Timestamp(start) }
}

fn counter(points: &[(&str, u64, u64)]) -> Family {
    let points = points.iter().map(|&(label, value, start)| point(label, Value::Integer(value), start));
    family("a", Kind::Counter, points.collect())
}

fn snapshot(taken: u64, families: impl IntoIterator<Item = Family>) -> Arc<Snapshot> {
    Arc::new(Snapshot::new(Timestamp(taken), families))
}

/// Returns the samples that a receiver has after these snapshots. `None` is a stale marker.
fn after(snapshots: &[Arc<Snapshot>]) -> BTreeMap<String, Vec<(i64, Option<f64>)>> {
    let mut encoder = Encoder::new(options());
    let all: Vec<_> = snapshots.iter().flat_map(|snapshot| requests(&encoder.encode(snapshot))).collect();
    let told = |sample: &Read| (sample.timestamp, (!sample.is_stale()).then_some(sample.value));
    stored(&all).iter().map(|(name, samples)| (name.clone(), samples.iter().map(told).collect())).collect()
}

#[test]
fn series_have_the_names_and_labels_of_the_text_format_and_external_labels() {
    let mut histogram = Histogram::new(&[0.5, 1.0, 1e6]);
    [0.25, 0.75, 3.0].iter().for_each(|&value| histogram.observe(value));
    let families = [
        counter(&[("0", 7, 0)]),
        family("b", Kind::Gauge, vec![point("0", Value::Float(-1.5), 0)]),
        family("c", Kind::Info, vec![point("0", Value::Integer(1), 0)]),
        family("d", Kind::Histogram, vec![point("0", Value::Histogram(Arc::new(histogram)), 0)]),
        family(
            "e",
            Kind::Gauge,
            vec![Point {
                labels: Labels::new([("instance", "own"), ("zone", "\"x\"\n")]),
                value: Value::Integer(2),
                start: Timestamp(0),
            }],
        ),
    ];
    let stored = after(&[snapshot(1000, families)]);
    let all = |value| vec![(1000, Some(value))];
    let expected = [
        (r#"a_total{Zone="z",cpu="0",instance="n1"}"#, all(7.0)),
        (r#"b{Zone="z",cpu="0",instance="n1"}"#, all(-1.5)),
        (r#"c_info{Zone="z",cpu="0",instance="n1"}"#, all(1.0)),
        (r#"d_bucket{Zone="z",cpu="0",instance="n1",le="+Inf"}"#, all(3.0)),
        (r#"d_bucket{Zone="z",cpu="0",instance="n1",le="0.5"}"#, all(1.0)),
        (r#"d_bucket{Zone="z",cpu="0",instance="n1",le="1.0"}"#, all(2.0)),
        (r#"d_bucket{Zone="z",cpu="0",instance="n1",le="1e+06"}"#, all(3.0)),
        (r#"d_count{Zone="z",cpu="0",instance="n1"}"#, all(3.0)),
        (r#"d_sum{Zone="z",cpu="0",instance="n1"}"#, all(4.0)),
        (r#"e{Zone="z",instance="own",zone="\"x\"\n"}"#, all(2.0)),
    ];
    assert_eq!(stored, expected.map(|(name, samples)| (name.to_owned(), samples)).into());
}

#[test]
fn a_series_that_ends_has_one_stale_marker_whatever_it_is() {
    let histogram = |bounds: &[f64]| {
        let mut histogram = Histogram::new(bounds);
        histogram.observe(1.0);
        Value::Histogram(Arc::new(histogram))
    };
    let h = |bounds| family("h", Kind::Histogram, vec![point("0", histogram(bounds), 0)]);
    let stored = after(&[
        snapshot(1000, [counter(&[("0", 1, 0), ("1", 1, 0)]), h(&[1.0, 2.0])]),
        snapshot(2000, [counter(&[("1", 2, 0)]), h(&[2.0])]),
        snapshot(3000, [counter(&[("1", 3, 0)])]),
        snapshot(4000, [family("a", Kind::Gauge, vec![])]),
    ]);
    let of = |name: &str, labels: &str| stored[&format!("{name}{{Zone=\"z\",cpu={labels}}}")].clone();
    assert_eq!(of("a_total", r#""0",instance="n1""#), [(1000, Some(1.0)), (2000, None)]);
    let other = [(1000, Some(1.0)), (2000, Some(2.0)), (3000, Some(3.0)), (4000, None)];
    assert_eq!(of("a_total", r#""1",instance="n1""#), other);
    assert_eq!(of("h_bucket", r#""0",instance="n1",le="1.0""#), [(1000, Some(1.0)), (2000, None)]);
    let ended = [(1000, Some(1.0)), (2000, Some(1.0)), (3000, None)];
    for (name, le) in
        [("h_bucket", r#",le="2.0""#), ("h_bucket", r#",le="+Inf""#), ("h_count", ""), ("h_sum", "")]
    {
        assert_eq!(of(name, &format!(r#""0",instance="n1"{le}"#)), ended, "{name} {le}");
    }
}

#[test]
fn a_counter_that_begins_between_two_snapshots_begins_with_a_zero() {
    let stored = after(&[
        snapshot(1000, [counter(&[("old", 9, 500)])]),
        snapshot(2000, [counter(&[("old", 9, 500), ("between", 5, 1500), ("back", 5, 900)])]),
        // As in a real table of series, the start is slightly earlier than the previous snapshot.
        snapshot(3000, [counter(&[("old", 9, 500), ("before", 5, 1990)])]),
        snapshot(4000, [counter(&[("between", 6, 1500), ("back", 1, 2995)])]),
    ]);
    let of = |label: &str| stored[&format!(r#"a_total{{Zone="z",cpu="{label}",instance="n1"}}"#)].clone();
    assert_eq!(of("old")[0], (1000, Some(9.0)), "nobody knows what was there before");
    assert_eq!(of("before"), [(2001, Some(0.0)), (3000, Some(5.0)), (4000, None)]);
    let between = [(1500, Some(0.0)), (2000, Some(5.0)), (3000, None), (4000, Some(6.0))];
    assert_eq!(of("between"), between, "what is back with its total has no zero");
    let back = [(2000, Some(5.0)), (3000, None), (3001, Some(0.0)), (4000, Some(1.0))];
    assert_eq!(of("back"), back, "what began anew has one, after its end");
}

#[test]
fn requests_are_bounded_and_what_fits_none_is_counted() {
    let points = |name: &str, number: usize| -> Vec<Point> {
        (0..number).map(|at| point(&format!("{name}{at}"), Value::Integer(at as u64), 0)).collect()
    };
    let taken = snapshot(1000, [family("a", Kind::Gauge, points("", 4500))]);
    let encoded = Encoder::new(options()).encode(&taken);
    let items: Vec<u64> = encoded.payloads.iter().map(|payload| payload.items).collect();
    assert_eq!((items, encoded.left_out), (vec![2000, 2000, 500], 0));
    let long = "x".repeat(2000);
    let taken = snapshot(1000, [family("a", Kind::Gauge, [points("", 20), points(&long, 3)].concat())]);
    let encoded = Encoder::new(Options { limit: 500, ..options() }).encode(&taken);
    assert_eq!(encoded.left_out, 3);
    assert!(encoded.payloads.len() > 1 && encoded.payloads.iter().all(|payload| payload.bytes.len() <= 500));
    assert_eq!(stored(&requests(&encoded)).len(), 20);
}

#[test]
fn other_external_labels_are_other_series() {
    let mut encoder = Encoder::new(options());
    encoder.encode(&snapshot(1000, [counter(&[("0", 1, 0)])]));
    encoder.set_options(Options { limit: 9999, ..options() });
    let empty = snapshot(2000, []);
    let encoded = encoder.encode(&empty);
    assert_eq!(encoded.payloads.iter().map(|payload| payload.items).sum::<u64>(), 1, "a stale marker");
    assert_eq!(encoder.encode(&empty), Encoded::default(), "it was encoded");
    encoder.encode(&snapshot(3000, [counter(&[("0", 1, 0)])]));
    encoder.set_options(Options { external: vec![], ..options() });
    assert_eq!(encoder.encode(&snapshot(4000, [])), Encoded::default());
}

/// Counters by name and label, with their values and start times.
type Counters = BTreeMap<(u8, u8), (u64, u64)>;

/// One snapshot per second.
fn snapshots() -> impl Strategy<Value = Vec<Counters>> {
    // The start time is a fraction of a second before the snapshot, or long ago.
    let counter = (0_u64..1000, prop_oneof![1_u64..2500, Just(u64::MAX)]);
    let keys = (0_u8..3, 0_u8..4);
    proptest::collection::vec(proptest::collection::btree_map(keys, counter, 0..8), 1..8)
}

proptest! {
    #[test]
    fn a_receiver_has_each_value_and_each_end_once(snapshots in snapshots(), limit in 150_usize..2000) {
        let mut encoder = Encoder::new(Options { limit, ..options() });
        let mut all = Vec::new();
        for (number, counters) in (1_u64..).zip(&snapshots) {
            let taken = number * 1000;
            let mut families: BTreeMap<u8, Vec<Point>> = BTreeMap::new();
            for (&(name, label), &(value, ago)) in counters {
                let point = point(&label.to_string(), Value::Integer(value), taken.saturating_sub(ago));
                families.entry(name).or_default().push(point);
            }
            let families = families.into_iter();
            let families = families.map(|(name, points)| family(&format!("m{name}"), Kind::Counter, points));
            let encoded = encoder.encode(&snapshot(taken, families));
            prop_assert_eq!(encoded.left_out, 0);
            prop_assert!(encoded.payloads.iter().all(|payload| payload.bytes.len() <= limit));
            all.extend(requests(&encoded));
        }
        // Also asserts that times increase.
        let stored = stored(&all);
        let keys: BTreeSet<(u8, u8)> = snapshots.iter().flat_map(|counters| counters.keys().copied()).collect();
        prop_assert_eq!(stored.len(), keys.len());
        for (name, label) in keys {
            let samples = &stored[&format!(r#"m{name}_total{{Zone="z",cpu="{label}",instance="n1"}}"#)];
            let mut rest = samples.iter().peekable();
            let mut present = false;
            for (number, counters) in (1_i64..).zip(&snapshots) {
                let counter = counters.get(&(name, label));
                let zero = rest.next_if(|sample| sample.timestamp < number * 1000);
                prop_assert!(zero.is_none_or(|zero| zero.value == 0.0 && !present && counter.is_some()));
                match counter {
                    Some(&(value, _)) => {
                        let sample = rest.next().unwrap();
                        prop_assert_eq!((sample.timestamp, sample.value), (number * 1000, value as f64));
                    }
                    None if present => {
                        let sample = rest.next().unwrap();
                        prop_assert!(sample.is_stale() && sample.timestamp == number * 1000, "{:?}", samples);
                    }
                    None => {}
                }
                present = counter.is_some();
            }
            prop_assert!(rest.next().is_none());
        }
    }
}
