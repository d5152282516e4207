use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1 as proto;
use proptest::prelude::*;
use prost::Message as _;
use proto::metric::Data as Decoded;
use proto::number_data_point::Value as Number;

use super::super::Payload;
use super::super::attribute::{Attribute, SCHEMA_URL};
use super::*;
use crate::metrics::{Buckets as Bounds, Labels, Metadata, fit_name};

const BEGAN: Timestamp = Timestamp(1_000);
const START: Timestamp = Timestamp(2_000);
const TAKEN: Timestamp = Timestamp(10_000);
const CONTAINER: &str = "4f0cdeadbeef00112233445566778899aabbccddeeff00112233445566778899";

fn options() -> Options {
    Options {
        temporality: Temporality::Cumulative,
        histograms: Histograms::Exponential,
        limit: 1 << 20,
        began: BEGAN,
    }
}

fn delta() -> Encoder {
    Encoder::new(Options { temporality: Temporality::Delta, ..options() })
}

fn resource() -> Resource {
    Resource::new([Attribute::text("service.name", "test")])
}

fn point(labels: &[(&str, &str)], value: Value) -> Point {
    Point { labels: Labels::new(labels.iter().copied()), value, start: START }
}

fn family(name: &str, unit: &str, kind: Kind, points: Vec<Point>) -> Family {
    Family::new(Metadata::new(name, "Some help.", unit, kind).unwrap(), points)
}

fn snapshot(taken: Timestamp, families: impl IntoIterator<Item = Family>) -> Arc<Snapshot> {
    let snapshot = Snapshot::new(taken, families);
    assert_eq!(snapshot.conflicts(), []);
    Arc::new(snapshot)
}

fn counter(value: Value) -> Family {
    family("perf_cpu_cycles", "", Kind::Counter, vec![point(&[("cpu", "0")], value)])
}

fn histogram(buckets: &Bounds, values: &[f64]) -> Histogram {
    let mut histogram = Histogram::of(buckets);
    values.iter().for_each(|&value| histogram.observe(value));
    histogram
}

fn distribution(histogram: Histogram) -> Family {
    let value = Value::Histogram(Arc::new(histogram));
    family("perf_x_seconds", "seconds", Kind::Histogram, vec![point(&[], value)])
}

/// Decodes a payload, asserts that it has no unknown fields, and returns its metrics.
fn decode(payload: &Payload) -> Vec<proto::Metric> {
    let request = ExportMetricsServiceRequest::decode(&*payload.bytes).unwrap();
    assert_eq!(request.encoded_len(), payload.bytes.len(), "all of it was understood");
    let [of_resource] = &request.resource_metrics[..] else { panic!("not one resource") };
    let [of_scope] = &of_resource.scope_metrics[..] else { panic!("not one scope") };
    assert_eq!((&*of_resource.schema_url, &*of_scope.schema_url), (SCHEMA_URL, SCHEMA_URL));
    assert_eq!(of_resource.resource.as_ref().unwrap().attributes[0].key, "service.name");
    assert_eq!(of_scope.scope.as_ref().unwrap().name, "perf-exporter");
    assert_eq!(of_scope.metrics.iter().map(points).sum::<usize>() as u64, payload.items);
    of_scope.metrics.clone()
}

fn points(metric: &proto::Metric) -> usize {
    match metric.data.as_ref().unwrap() {
        Decoded::Gauge(gauge) => gauge.data_points.len(),
        Decoded::Sum(sum) => sum.data_points.len(),
        Decoded::Histogram(histogram) => histogram.data_points.len(),
        Decoded::ExponentialHistogram(histogram) => histogram.data_points.len(),
        Decoded::Summary(_) => panic!("nothing is a summary"),
    }
}

fn encode(encoder: &mut Encoder, snapshot: &Arc<Snapshot>) -> Vec<proto::Metric> {
    let encoded = encoder.encode(snapshot, &resource());
    assert_eq!(encoded.left_out, 0);
    encoded.payloads.iter().flat_map(decode).collect()
}

/// Returns the only metric of a snapshot of one family.
fn one(encoder: &mut Encoder, taken: Timestamp, family: Family) -> proto::Metric {
    let [metric] = &encode(encoder, &snapshot(taken, [family]))[..] else { panic!("not one metric") };
    metric.clone()
}

/// Returns the only point of a metric of numbers. For sums, also returns whether it is monotonic, and its temporality.
fn number(metric: proto::Metric) -> (proto::NumberDataPoint, Option<(bool, i32)>) {
    let (points, sum) = match metric.data.unwrap() {
        Decoded::Gauge(gauge) => (gauge.data_points, None),
        Decoded::Sum(sum) => (sum.data_points, Some((sum.is_monotonic, sum.aggregation_temporality))),
        other => panic!("{other:?}"),
    };
    let [point] = &points[..] else { panic!("not one point") };
    (point.clone(), sum)
}

fn exponential(metric: proto::Metric) -> proto::ExponentialHistogramDataPoint {
    let Decoded::ExponentialHistogram(histogram) = metric.data.unwrap() else { panic!("not exponential") };
    let [point] = &histogram.data_points[..] else { panic!("not one point") };
    point.clone()
}

fn explicit(metric: proto::Metric) -> proto::HistogramDataPoint {
    let Decoded::Histogram(histogram) = metric.data.unwrap() else { panic!("not explicit") };
    let [point] = &histogram.data_points[..] else { panic!("not one point") };
    point.clone()
}

/// Converts attributes to text and asserts that no key is duplicated.
fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| match pair.value.clone().unwrap().value.unwrap() {
        any_value::Value::StringValue(text) => format!("{text:?}"),
        any_value::Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let map: BTreeMap<_, _> = pairs.iter().map(|pair| (pair.key.clone(), text(pair))).collect();
    assert_eq!(map.len(), pairs.len(), "a key comes twice in {pairs:?}");
    map
}

#[test]
fn a_counter_is_a_monotonic_sum_of_integers_since_its_start() {
    let metric = one(&mut Encoder::new(options()), TAKEN, counter(Value::Integer(1 << 60)));
    assert_eq!(
        (&*metric.name, &*metric.unit, &*metric.description),
        ("perf.cpu.cycles", "{cycle}", "Some help.")
    );
    let (point, sum) = number(metric);
    assert_eq!(sum, Some((true, 2)));
    assert_eq!(point.value, Some(Number::AsInt(1 << 60)));
    assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (2_000_000_000, 10_000_000_000));
    assert_eq!(attributes(&point.attributes), BTreeMap::from([("cpu.logical_number".into(), "0".into())]));
}

#[test]
fn what_is_measured_is_a_double_even_when_it_is_whole_and_so_is_what_no_integer_holds() {
    let clock =
        |value| family("perf_cpu_task_clock_seconds", "seconds", Kind::Counter, vec![point(&[], value)]);
    let value = |family| number(one(&mut Encoder::new(options()), TAKEN, family)).0.value;
    assert_eq!(value(clock(Value::Integer(3))), Some(Number::AsDouble(3.0)));
    assert_eq!(value(clock(Value::Float(0.5))), Some(Number::AsDouble(0.5)));
    assert_eq!(value(counter(Value::Integer(u64::MAX))), Some(Number::AsDouble(u64::MAX as f64)));
}

#[test]
fn gauges_are_as_they_are_and_have_no_start() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1.5] {
        let gauge =
            family("perf_event_running_ratio", "ratio", Kind::Gauge, vec![point(&[], Value::Float(value))]);
        let (point, sum) = number(one(&mut Encoder::new(options()), TAKEN, gauge));
        assert_eq!((sum, point.start_time_unix_nano), (None, 0));
        let Some(Number::AsDouble(told)) = point.value else { panic!("no double") };
        assert_eq!(told.to_bits(), value.to_bits());
    }
}

#[test]
fn an_info_is_a_gauge_of_1() {
    let info =
        family("perf_exporter_build", "", Kind::Info, vec![point(&[("version", "1")], Value::Float(1.0))]);
    let metric = one(&mut Encoder::new(options()), TAKEN, info);
    assert_eq!(metric.name, "perf.exporter.build_info");
    let (point, sum) = number(metric);
    assert_eq!((sum, point.value), (None, Some(Number::AsInt(1))));
    assert_eq!(attributes(&point.attributes)["version"], "\"1\"");
}

#[test]
fn the_memory_of_the_process_is_a_sum_that_may_fall_in_either_temporality() {
    let memory = |value| {
        let points = vec![point(&[], Value::Integer(value))];
        family("process_resident_memory_bytes", "bytes", Kind::Gauge, points)
    };
    let mut encoder = delta();
    one(&mut encoder, TAKEN, memory(700));
    let metric = one(&mut encoder, Timestamp(11_000), memory(500));
    assert_eq!((&*metric.name, &*metric.unit), ("process.memory.usage", "By"));
    let (point, sum) = number(metric);
    assert_eq!((point.value, sum), (Some(Number::AsInt(500)), Some((false, 2))));
}

#[test]
fn a_series_without_a_start_counts_since_the_process_began_and_none_begins_after_it_ends() {
    let started = |start| {
        let mut point = point(&[], Value::Integer(1));
        point.start = start;
        let family = family("perf_ring_records", "", Kind::Counter, vec![point]);
        number(one(&mut Encoder::new(options()), TAKEN, family)).0.start_time_unix_nano
    };
    assert_eq!(started(Timestamp(0)), 1_000_000_000);
    assert_eq!(started(Timestamp(11_000)), 10_000_000_000);
}

#[test]
fn empty_families_are_left_out_and_an_empty_snapshot_is_no_request() {
    let empty = family("perf_cpu_cycles", "", Kind::Counter, Vec::new());
    let encoded = Encoder::new(options()).encode(&snapshot(TAKEN, [empty]), &resource());
    assert_eq!(encoded, Encoded::default());
}

#[test]
fn values_are_within_the_exponential_buckets_that_count_them() {
    for value in [1e-30, 0.001, 0.005, 1.0, 1.09, 2.0, 3.0, 1e18] {
        let counted = histogram(&Bounds::exponential("seconds"), &[value]);
        let point = exponential(one(&mut Encoder::new(options()), TAKEN, distribution(counted)));
        let side = point.positive.unwrap();
        assert_eq!((side.bucket_counts.as_slice(), point.negative, point.zero_count), (&[1][..], None, 0));
        let base = 2_f64.powf(2_f64.powi(-point.scale));
        let (above, up_to) = (base.powi(side.offset), base.powi(side.offset + 1));
        let inaccuracy = 1.0 + 1e-12;
        assert!(above < value * inaccuracy && value <= up_to * inaccuracy, "{above} {value} {up_to}");
        assert_eq!((point.count, point.sum, point.scale), (1, Some(value), 3));
    }
}

#[test]
fn values_of_either_sign_and_zero_have_buckets_and_then_there_is_no_sum() {
    let counted = histogram(&Bounds::exponential(""), &[0.0, 1e-300, -1.0, -2.0, -2.0, 4.0]);
    let point = exponential(one(&mut Encoder::new(options()), TAKEN, distribution(counted)));
    let (positive, negative) = (point.positive.unwrap(), point.negative.unwrap());
    assert_eq!((positive.offset, positive.bucket_counts), (15, vec![1]));
    assert_eq!((negative.offset, negative.bucket_counts), (-1, vec![1, 0, 0, 0, 0, 0, 0, 0, 2]));
    assert_eq!((point.zero_count, point.count, point.sum), (2, 6, None));
    assert_eq!(point.zero_threshold, 2_f64.powi(-128));
}

#[test]
fn values_far_apart_are_told_at_a_lower_resolution_with_all_counts() {
    let counted = histogram(&Bounds::exponential(""), &[1e-30, 1.0, f64::MAX, f64::INFINITY]);
    let point = exponential(one(&mut Encoder::new(options()), TAKEN, distribution(counted)));
    let side = point.positive.unwrap();
    assert!(side.bucket_counts.len() <= 320, "{}", side.bucket_counts.len());
    assert_eq!((point.scale, point.count), (-2, 4));
    assert_eq!(side.bucket_counts.iter().sum::<u64>(), 4);
    assert_eq!(side.offset, (1e-30_f64.log2() / 4.0).floor() as i32);
}

#[test]
fn explicit_buckets_are_those_of_the_text_format_and_taken_where_there_are_no_others() {
    let values = [0.5, 1.0, 1.5, 2.0, 100.0];
    let listed = Bounds::listed(&[1.0, 2.0]).unwrap();
    let both = Bounds::exponential_with(&[1.0, 2.0]).unwrap();
    let wants_explicit = Options { histograms: Histograms::Explicit, ..options() };
    for (buckets, options) in [(listed, options()), (both, wants_explicit)] {
        let metric = one(&mut Encoder::new(options), TAKEN, distribution(histogram(&buckets, &values)));
        let point = explicit(metric);
        assert_eq!(point.explicit_bounds, [1.0, 2.0]);
        assert_eq!(point.bucket_counts, [2, 2, 1]);
        assert_eq!((point.count, point.sum), (5, Some(105.0)));
    }
    let negative = Bounds::listed(&[-1.0, 0.0]).unwrap();
    let metric = one(&mut Encoder::new(options()), TAKEN, distribution(histogram(&negative, &[-3.0, 1.0])));
    assert_eq!(explicit(metric).sum, None);
}

#[test]
fn a_family_with_listed_buckets_in_one_series_has_explicit_ones_in_all() {
    let value = |buckets: &Bounds| Value::Histogram(Arc::new(histogram(buckets, &[1.0])));
    let points = vec![
        point(&[("a", "1")], value(&Bounds::listed(&[2.0]).unwrap())),
        point(&[("a", "2")], value(&Bounds::exponential("seconds"))),
    ];
    let metric = one(
        &mut Encoder::new(options()),
        TAKEN,
        family("perf_x_seconds", "seconds", Kind::Histogram, points),
    );
    let Some(Decoded::Histogram(histogram)) = metric.data else { panic!("not explicit") };
    assert_eq!(histogram.data_points.len(), 2);
}

#[test]
fn a_cgroup_tells_its_container_and_its_pod() {
    let pod = "0a1b2c3d-0011-2233-4455-66778899aabb";
    let path = format!(
        "/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{CONTAINER}.scope",
        pod.replace('-', "_")
    );
    let labels = [("cgroup", &*path), ("container", "web"), ("namespace", "shop"), ("pod", "web-1")];
    let family = family("perf_cgroup_cycles", "", Kind::Counter, vec![point(&labels, Value::Integer(1))]);
    let (point, _) = number(one(&mut Encoder::new(options()), TAKEN, family));
    let expected = [
        ("container.id", CONTAINER),
        ("k8s.container.name", "web"),
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "web-1"),
        ("k8s.pod.uid", pod),
        ("perf.cgroup", &path),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), format!("{value:?}")));
    assert_eq!(attributes(&point.attributes), BTreeMap::from(expected));
}

#[test]
fn labels_without_a_convention_keep_their_names_and_numbers_are_numbers() {
    let labels = [
        ("comm", "nginx"),
        ("cpu", "other"),
        ("exe", "/bin/x"),
        ("mine", "a\"\n"),
        ("pid", "7"),
        ("tid", "08"),
    ];
    let family = family("perf_process_cycles", "", Kind::Counter, vec![point(&labels, Value::Integer(1))]);
    let (point, _) = number(one(&mut Encoder::new(options()), TAKEN, family));
    let expected = [
        ("cpu", r#""other""#),
        ("mine", r#""a\"\n""#),
        ("perf.comm", r#""nginx""#),
        ("process.executable.name", r#""x""#),
        ("process.executable.path", r#""/bin/x""#),
        ("process.pid", "7"),
        ("tid", r#""08""#),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(attributes(&point.attributes), BTreeMap::from(expected));
}

/// Creates a snapshot with `series` series in each of three families.
fn many(series: usize) -> Arc<Snapshot> {
    let value = |at: usize| Value::Integer(at as u64);
    let points = || (0..series).map(|at| point(&[("cgroup", &format!("/a/{at}"))], value(at))).collect();
    let names = ["perf_cgroup_cycles", "perf_cgroup_faults", "perf_cgroup_instructions"];
    snapshot(TAKEN, names.map(|name| family(name, "", Kind::Counter, points())))
}

#[test]
fn requests_are_split_where_they_would_be_too_large_and_nothing_is_lost_or_told_twice() {
    let snapshot = many(500);
    for limit in [400, 1_000, 10_000, 1 << 20] {
        let encoded = Encoder::new(Options { limit, ..options() }).encode(&snapshot, &resource());
        assert_eq!(encoded.left_out, 0);
        let mut told = BTreeSet::new();
        for payload in &encoded.payloads {
            assert!(payload.bytes.len() <= limit, "{} is more than {limit}", payload.bytes.len());
            for metric in decode(payload) {
                let Some(Decoded::Sum(sum)) = metric.data else { panic!("no sum") };
                for point in sum.data_points {
                    let cgroup = attributes(&point.attributes)["perf.cgroup"].clone();
                    assert!(told.insert((metric.name.clone(), cgroup)), "told twice");
                }
            }
        }
        assert_eq!(told.len(), 1_500);
        // All requests are full, except for the last.
        let least = encoded.payloads.iter().rev().skip(1).map(|payload| payload.bytes.len()).min();
        assert!(least.is_none_or(|least| least + 200 > limit), "{least:?} of {limit}");
    }
}

#[test]
fn a_series_that_fits_into_no_request_is_left_out_and_counted() {
    let long = "x".repeat(1_000);
    let points = ["a", &*long, "z"].map(|path| point(&[("cgroup", path)], Value::Integer(1)));
    let snapshot = snapshot(TAKEN, [family("perf_cgroup_cycles", "", Kind::Counter, points.into())]);
    let encoded = Encoder::new(Options { limit: 600, ..options() }).encode(&snapshot, &resource());
    assert_eq!(encoded.left_out, 1);
    assert_eq!(encoded.payloads.iter().map(|payload| payload.items).sum::<u64>(), 2);
    let none = Encoder::new(Options { limit: 10, ..options() }).encode(&snapshot, &resource());
    assert_eq!(none, Encoded { payloads: Vec::new(), left_out: 3 });
}

#[test]
fn a_delta_is_what_came_since_the_snapshot_before() {
    let mut encoder = delta();
    let mut next = |taken, value| {
        let (point, sum) = number(one(&mut encoder, Timestamp(taken), counter(value)));
        assert_eq!((sum, point.time_unix_nano), (Some((true, 1)), taken * 1_000_000));
        (point.start_time_unix_nano / 1_000_000, point.value.unwrap())
    };
    assert_eq!(next(10_000, Value::Integer(7)), (2_000, Number::AsInt(7)), "all since its start");
    assert_eq!(next(11_000, Value::Integer(10)), (10_000, Number::AsInt(3)));
    assert_eq!(next(12_000, Value::Integer(10)), (11_000, Number::AsInt(0)));
    assert_eq!(next(13_000, Value::Integer(4)), (12_000, Number::AsInt(4)), "it fell: it began anew");
    assert_eq!(next(14_000, Value::Float(4.5)), (13_000, Number::AsDouble(0.5)));
}

#[test]
fn a_series_that_began_anew_or_was_not_there_tells_all_it_has() {
    let mut encoder = delta();
    let started = |start, value| {
        let mut point = point(&[], Value::Integer(value));
        point.start = Timestamp(start);
        family("perf_cpu_cycles", "", Kind::Counter, vec![point])
    };
    let mut next = |taken, family| {
        let metrics = encode(&mut encoder, &snapshot(Timestamp(taken), [family]));
        let (point, _) = number(metrics.into_iter().next()?);
        Some((point.start_time_unix_nano / 1_000_000, point.value?))
    };
    assert_eq!(next(10_000, started(2_000, 5)), Some((2_000, Number::AsInt(5))));
    assert_eq!(next(12_000, started(11_000, 6)), Some((11_000, Number::AsInt(6))));
}

#[test]
fn a_series_that_was_away_goes_on_from_where_it_was_until_it_is_forgotten() {
    let mut encoder = delta();
    let one = |cpu, value| point(&[("cpu", cpu)], Value::Integer(value));
    let mut next = |taken, points: Vec<Point>| {
        let family = family("perf_cpu_cycles", "", Kind::Counter, points);
        let metrics = encode(&mut encoder, &snapshot(Timestamp(taken), [family]));
        let Some(Decoded::Sum(sum)) = metrics.into_iter().next()?.data else { panic!("no sum") };
        let point = sum.data_points.into_iter().next_back()?;
        Some((point.start_time_unix_nano / 1_000_000, point.value?))
    };
    next(10_000, vec![one("0", 1), one("1", 5)]);
    next(11_000, vec![one("0", 1)]);
    next(12_000, vec![one("0", 1)]);
    assert_eq!(next(13_000, vec![one("0", 1), one("1", 7)]), Some((10_000, Number::AsInt(2))));
    assert_eq!(next(14_000, vec![one("0", 1), one("1", 8)]), Some((13_000, Number::AsInt(1))));
    next(15_000, vec![one("0", 1)]);
    next(400_000, vec![one("0", 1)]);
    assert_eq!(next(401_000, vec![one("0", 1), one("1", 9)]), Some((2_000, Number::AsInt(9))));
}

#[test]
fn no_more_series_are_remembered_than_there_are() {
    let mut encoder = delta();
    let many = |from: usize, number: usize| {
        let points = (from..from + number).map(|at| point(&[("cpu", &at.to_string())], Value::Integer(1)));
        snapshot(TAKEN, [family("perf_cpu_cycles", "", Kind::Counter, points.collect())])
    };
    (0..20).for_each(|round| drop(encode(&mut encoder, &many(round * 100, 100))));
    assert_eq!(encoder.away.len(), 100);
    encode(&mut encoder, &many(5_000, 1));
    assert_eq!(encoder.away.len(), 100, "those that it has");
}

#[test]
fn deltas_of_histograms_are_exact_although_their_resolution_falls() {
    let mut encoder = delta();
    let buckets = Bounds::exponential("seconds");
    let mut counted = histogram(&buckets, &[1.0, 1.0, 3.0]);
    one(&mut encoder, TAKEN, distribution(counted.clone()));
    counted.observe(3.0);
    let point = exponential(one(&mut encoder, Timestamp(11_000), distribution(counted.clone())));
    assert_eq!((point.count, point.sum, point.start_time_unix_nano), (1, Some(3.0), 10_000_000_000));
    assert_eq!(point.positive.unwrap().bucket_counts, [1]);
    // Enough different values to halve the resolution.
    (0..400).for_each(|at| counted.observe(2_f64.powf(f64::from(at) / 8.0)));
    let point = exponential(one(&mut encoder, Timestamp(12_000), distribution(counted.clone())));
    assert_eq!((point.count, point.scale), (400, 2));
    assert_eq!(point.positive.unwrap().bucket_counts.iter().sum::<u64>(), 400);
    let fewer = histogram(&buckets, &[1.0]);
    let point = exponential(one(&mut encoder, Timestamp(13_000), distribution(fewer)));
    assert_eq!((point.count, point.sum, point.start_time_unix_nano), (1, Some(1.0), 12_000_000_000));
}

#[test]
fn cumulative_points_are_the_same_however_many_requests_were_lost() {
    let (mut one_by_one, mut fresh) = (Encoder::new(options()), Encoder::new(options()));
    one(&mut one_by_one, TAKEN, counter(Value::Integer(7)));
    let later = || (Timestamp(11_000), counter(Value::Integer(9)));
    let (taken, family) = later();
    let seen = one(&mut one_by_one, taken, family);
    let (taken, family) = later();
    assert_eq!(seen, one(&mut fresh, taken, family));
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![any::<u64>().prop_map(Value::Integer), any::<f64>().prop_map(Value::Float)]
}

fn any_histogram() -> impl Strategy<Value = Value> {
    let buckets = prop_oneof![
        Just(Bounds::exponential("seconds")),
        Just(Bounds::listed(&[-1.0, 0.0, 0.25, 10.0]).unwrap()),
    ];
    let values = prop::collection::vec((any::<f64>(), 0_u64..1_000), 0..40);
    (buckets, values).prop_map(|(buckets, values)| {
        let mut histogram = Histogram::of(&buckets);
        values.into_iter().for_each(|(value, count)| histogram.observe_many(value, count));
        Value::Histogram(Arc::new(histogram))
    })
}

/// Arbitrary label names, often ones with a convention.
fn any_labels() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop_oneof![
        prop::sample::select(attributes::KEYS.map(|key| key.0).to_vec()).prop_map(str::to_owned),
        any::<String>(),
    ];
    let value = prop_oneof![any::<String>(), any::<u64>().prop_map(|number| number.to_string())];
    prop::collection::vec((name, value), 0..6)
}

fn any_family() -> impl Strategy<Value = Family> {
    let kind = prop::sample::select(vec![Kind::Counter, Kind::Gauge, Kind::Info, Kind::Histogram]);
    let point = (any_labels(), any_value(), any_histogram(), any::<u64>());
    ("perf_(cpu|cgroup)_[a-z]{3}", kind, prop::collection::vec(point, 0..5)).prop_map(
        |(name, kind, points)| {
            let points = points.into_iter().map(|(labels, number, histogram, start)| Point {
                labels: Labels::new(labels),
                value: if kind == Kind::Histogram { histogram } else { number },
                start: Timestamp(start),
            });
            // Three letters may form a suffix with a special meaning.
            Family::new(Metadata::new(&fit_name(&name), "h", "", kind).unwrap(), points.collect())
        },
    )
}

fn as_number(value: &Value, info: bool) -> Number {
    match *value {
        _ if info => Number::AsInt(1),
        Value::Integer(value) => i64::try_from(value).map_or(Number::AsDouble(value as f64), Number::AsInt),
        Value::Float(value) => Number::AsDouble(value),
        Value::Histogram(_) => panic!("no number"),
    }
}

fn same(a: &Number, b: &Number) -> bool {
    match (a, b) {
        (Number::AsDouble(a), Number::AsDouble(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

fn check_point(metric: &proto::Metric, at: usize, family: &Family) {
    let (point, info) = (&family.points()[at], family.metadata().kind() == Kind::Info);
    match (metric.data.as_ref().unwrap(), &point.value) {
        (
            Decoded::Gauge(proto::Gauge { data_points }) | Decoded::Sum(proto::Sum { data_points, .. }),
            value,
        ) => {
            let told = &data_points[at];
            assert!(same(told.value.as_ref().unwrap(), &as_number(value, info)), "{told:?} is not {value:?}");
            assert_eq!(told.time_unix_nano, TAKEN.0 * 1_000_000);
            assert!(told.start_time_unix_nano <= told.time_unix_nano);
            check_attributes(&told.attributes, &point.labels);
        }
        (Decoded::ExponentialHistogram(told), Value::Histogram(histogram)) => {
            let told = &told.data_points[at];
            let sides = [&told.positive, &told.negative].into_iter().flatten();
            let counts: u64 = sides.flat_map(|side| &side.bucket_counts).sum();
            assert_eq!((told.count, counts + told.zero_count), (histogram.count(), histogram.count()));
            check_attributes(&told.attributes, &point.labels);
        }
        (Decoded::Histogram(told), Value::Histogram(histogram)) => {
            let told = &told.data_points[at];
            let mut below = 0;
            let cumulative = told.bucket_counts.iter().map(|count| {
                below += count;
                below
            });
            assert!(cumulative.eq(histogram.cumulative().map(|bucket| bucket.1)));
            assert_eq!((told.count, &*told.explicit_bounds), (histogram.count(), histogram.bounds()));
            check_attributes(&told.attributes, &point.labels);
        }
        (data, value) => panic!("{data:?} for {value:?}"),
    }
}

/// Asserts that keys are unique and each label is present, with its value as text or number.
fn check_attributes(told: &[KeyValue], labels: &Labels) {
    let told = attributes(told);
    for (name, value) in labels.pairs() {
        let key = attributes::KEYS.iter().find(|known| known.0 == name).map_or(name, |known| known.1);
        let key = if name == "container" && labels.get("pod").is_none() { "container.name" } else { key };
        let told = told.get(key).or_else(|| told.get(name)).unwrap();
        assert!(told == value || *told == format!("{value:?}"), "{told} is not {value:?}");
    }
}

proptest! {
    #[test]
    fn whatever_is_in_a_snapshot_is_told_as_it_is(families in prop::collection::vec(any_family(), 0..6)) {
        let snapshot = Arc::new(Snapshot::new(TAKEN, families));
        let metrics = encode(&mut Encoder::new(Options { limit: 1 << 24, ..options() }), &snapshot);
        let families: Vec<_> = snapshot.families().iter().filter(|family| !family.points().is_empty()).collect();
        prop_assert_eq!(metrics.len(), families.len());
        for (metric, family) in metrics.iter().zip(families) {
            prop_assert_eq!(points(metric), family.points().len());
            (0..family.points().len()).for_each(|at| check_point(metric, at, family));
        }
    }

    #[test]
    fn no_request_is_above_any_limit(families in prop::collection::vec(any_family(), 0..4), limit in 0_usize..3_000) {
        let snapshot = Arc::new(Snapshot::new(TAKEN, families));
        let encoded = Encoder::new(Options { limit, ..options() }).encode(&snapshot, &resource());
        prop_assert!(encoded.payloads.iter().all(|payload| payload.bytes.len() <= limit));
        encoded.payloads.iter().for_each(|payload| drop(decode(payload)));
        let told: u64 = encoded.payloads.iter().map(|payload| payload.items).sum();
        prop_assert_eq!(told + encoded.left_out, snapshot.series() as u64);
    }

    /// The sum of the deltas is the total of the series since its start.
    #[test]
    fn deltas_add_up_to_the_total(steps in prop::collection::vec((0_u64..1 << 40, prop::collection::vec(1e-9..1e9, 0..30)), 1..8)) {
        let mut encoder = delta();
        let (mut total, mut told) = (0, 0);
        let (mut values, mut told_values) = (Histogram::of(&Bounds::exponential("seconds")), BTreeMap::new());
        let mut end = START.0;
        for (step, (added, observed)) in steps.into_iter().enumerate() {
            total += added;
            observed.into_iter().for_each(|value: f64| values.observe(value));
            let taken = Timestamp(3_000 + step as u64);
            let families = [counter(Value::Integer(total)), distribution(values.clone())];
            let metrics = encode(&mut encoder, &snapshot(taken, families));
            let [numbers, distributions] = &metrics[..] else { panic!("not two metrics") };
            let (point, _) = number(numbers.clone());
            prop_assert_eq!(point.start_time_unix_nano, end * 1_000_000);
            end = taken.0;
            let Some(Number::AsInt(delta)) = point.value else { panic!("no integer") };
            told += delta.unsigned_abs();
            let point = exponential(distributions.clone());
            let side = point.positive.unwrap_or_default();
            for (at, count) in side.bucket_counts.iter().enumerate() {
                // At the lowest possible resolution.
                *told_values.entry((side.offset + at as i32) >> point.scale).or_insert(0) += count;
            }
        }
        prop_assert_eq!(told, total);
        told_values.retain(|_, count| *count > 0);
        let native = values.native().unwrap();
        let mut expected = BTreeMap::new();
        native.positive().for_each(|(index, count)| *expected.entry((index - 1) >> native.schema()).or_insert(0) += count);
        prop_assert_eq!(told_values, expected);
    }
}
