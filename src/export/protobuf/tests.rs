use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::export::prometheus::CHUNK;
use crate::metrics::{Buckets, Labels, without_controls};

/// Messages of `io.prometheus.client`, as declared in client_model's `metrics.proto`.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct MetricFamily {
        #[prost(string, optional, tag = "1")]
        pub(super) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) help: Option<String>,
        #[prost(enumeration = "MetricType", optional, tag = "3")]
        pub(super) r#type: Option<i32>,
        #[prost(message, repeated, tag = "4")]
        pub(super) metric: Vec<Metric>,
        #[prost(string, optional, tag = "5")]
        pub(super) unit: Option<String>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub(super) enum MetricType {
        Counter = 0,
        Gauge = 1,
        Summary = 2,
        Untyped = 3,
        Histogram = 4,
        GaugeHistogram = 5,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Metric {
        #[prost(message, repeated, tag = "1")]
        pub(super) label: Vec<LabelPair>,
        #[prost(message, optional, tag = "2")]
        pub(super) gauge: Option<Gauge>,
        #[prost(message, optional, tag = "3")]
        pub(super) counter: Option<Counter>,
        #[prost(message, optional, tag = "7")]
        pub(super) histogram: Option<Histogram>,
        #[prost(int64, optional, tag = "6")]
        pub(super) timestamp_ms: Option<i64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LabelPair {
        #[prost(string, optional, tag = "1")]
        pub(super) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) value: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Gauge {
        #[prost(double, optional, tag = "1")]
        pub(super) value: Option<f64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Counter {
        #[prost(double, optional, tag = "1")]
        pub(super) value: Option<f64>,
        #[prost(message, optional, tag = "3")]
        pub(super) created_timestamp: Option<Timestamp>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Timestamp {
        #[prost(int64, tag = "1")]
        pub(super) seconds: i64,
        #[prost(int32, tag = "2")]
        pub(super) nanos: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Histogram {
        #[prost(uint64, optional, tag = "1")]
        pub(super) sample_count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        pub(super) sample_sum: Option<f64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) bucket: Vec<Bucket>,
        #[prost(sint32, optional, tag = "5")]
        pub(super) schema: Option<i32>,
        #[prost(double, optional, tag = "6")]
        pub(super) zero_threshold: Option<f64>,
        #[prost(uint64, optional, tag = "7")]
        pub(super) zero_count: Option<u64>,
        #[prost(message, repeated, tag = "9")]
        pub(super) negative_span: Vec<BucketSpan>,
        #[prost(sint64, repeated, tag = "10")]
        pub(super) negative_delta: Vec<i64>,
        #[prost(message, repeated, tag = "12")]
        pub(super) positive_span: Vec<BucketSpan>,
        #[prost(sint64, repeated, tag = "13")]
        pub(super) positive_delta: Vec<i64>,
        #[prost(message, optional, tag = "15")]
        pub(super) created_timestamp: Option<Timestamp>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Bucket {
        #[prost(uint64, optional, tag = "1")]
        pub(super) cumulative_count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        pub(super) upper_bound: Option<f64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct BucketSpan {
        #[prost(sint32, optional, tag = "1")]
        pub(super) offset: Option<i32>,
        #[prost(uint32, optional, tag = "2")]
        pub(super) length: Option<u32>,
    }
}

const START: Timestamp = Timestamp(1_700_000_000_250);

fn family(name: &str, unit: &str, kind: Kind, points: Vec<(&[(&str, &str)], Value)>) -> Family {
    let points = points.into_iter().map(|(labels, value)| Point {
        labels: Labels::new(labels.iter().copied()),
        value,
        start: START,
    });
    Family::new(Metadata::new(name, "Some \"help\"\n\\", unit, kind).unwrap(), points.collect())
}

fn histogram(buckets: &Buckets, values: &[f64]) -> Histogram {
    let mut histogram = Histogram::of(buckets);
    values.iter().for_each(|&value| histogram.observe(value));
    histogram
}

fn encode(families: impl IntoIterator<Item = Family>) -> Vec<u8> {
    let mut encoder = Encoder::new(Arc::new(Snapshot::new(START, families)));
    let mut out = Vec::new();
    while encoder.next_chunk(&mut out) {}
    out
}

/// Decodes the families and asserts that they have no unknown fields: the re-encoded length is equal.
fn decode(mut bytes: &[u8]) -> Vec<proto::MetricFamily> {
    let (length, mut families) = (bytes.len(), Vec::new());
    while !bytes.is_empty() {
        families.push(proto::MetricFamily::decode_length_delimited(&mut bytes).unwrap());
    }
    assert_eq!(
        families.iter().map(|family| family.encode_length_delimited_to_vec().len()).sum::<usize>(),
        length
    );
    families
}

/// Returns the only family and its only metric.
fn one(families: Family) -> (proto::MetricFamily, proto::Metric) {
    let [family] = &decode(&encode([families]))[..] else { panic!("not one family") };
    let [metric] = &family.metric[..] else { panic!("not one metric") };
    (family.clone(), metric.clone())
}

fn created() -> Option<proto::Timestamp> {
    Some(proto::Timestamp { seconds: 1_700_000_000, nanos: 250_000_000 })
}

#[test]
fn a_counter_has_its_name_with_total_its_unit_and_its_start() {
    let labels = [("cgroup", "/a\"b\\c\nd\u{e4}"), ("cpu", "0")];
    let points = vec![(&labels[..], Value::Integer(3))];
    let (family, metric) = one(family("perf_task_clock_seconds", "seconds", Kind::Counter, points));
    assert_eq!(family.name(), "perf_task_clock_seconds_total");
    assert_eq!((family.help(), family.unit()), ("Some \"help\"\n\\", "seconds"));
    assert_eq!(family.r#type(), proto::MetricType::Counter);
    assert!(metric.label.iter().map(|pair| (pair.name(), pair.value())).eq(labels));
    let counter = metric.counter.unwrap();
    assert_eq!((counter.value, counter.created_timestamp), (Some(3.0), created()));
    assert_eq!((metric.gauge, metric.timestamp_ms), (None, None));
}

#[test]
fn gauges_and_infos_are_gauges_and_zero_is_written() {
    let points = vec![(&[][..], Value::Float(0.0))];
    let (ratio, metric) = one(family("perf_running_ratio", "ratio", Kind::Gauge, points));
    assert_eq!((ratio.name(), ratio.r#type()), ("perf_running_ratio", proto::MetricType::Gauge));
    assert_eq!((metric.gauge.unwrap().value, metric.counter), (Some(0.0), None));

    let points = vec![(&[("version", "1")][..], Value::Integer(1))];
    let (build, metric) = one(family("perf_exporter_build", "", Kind::Info, points));
    assert_eq!((build.name(), build.r#type()), ("perf_exporter_build_info", proto::MetricType::Gauge));
    assert_eq!((metric.gauge.unwrap().value, build.unit), (Some(1.0), None));
}

#[test]
fn listed_buckets_are_cumulative_and_make_no_native_histogram() {
    let value = histogram(&Buckets::listed(&[0.0, 0.3]).unwrap(), &[-1.0, 0.2, 0.3, 7.0]);
    let points = vec![(&[][..], Value::Histogram(Arc::new(value)))];
    let (family, metric) = one(family("perf_latency_seconds", "seconds", Kind::Histogram, points));
    assert_eq!((family.name(), family.r#type()), ("perf_latency_seconds", proto::MetricType::Histogram));
    let expected = proto::Histogram {
        sample_count: Some(4),
        sample_sum: Some(6.5),
        bucket: vec![
            proto::Bucket { cumulative_count: Some(1), upper_bound: Some(0.0) },
            proto::Bucket { cumulative_count: Some(3), upper_bound: Some(0.3) },
        ],
        created_timestamp: created(),
        ..proto::Histogram::default()
    };
    assert_eq!(metric.histogram, Some(expected));
}

#[test]
fn exponential_buckets_stand_beside_the_classic_ones() {
    let buckets = Buckets::exponential_with(&[1.0, 4.0]).unwrap();
    let value = histogram(&buckets, &[-2.0, 0.0, 1.0, 1.0, 1.1, 1.3, 1.5, 100.0]);
    let points = vec![(&[][..], Value::Histogram(Arc::new(value)))];
    let (_, metric) = one(family("perf_sizes", "", Kind::Histogram, points));
    let span = |offset, length| proto::BucketSpan { offset: Some(offset), length: Some(length) };
    let expected = proto::Histogram {
        sample_count: Some(8),
        sample_sum: Some(103.9),
        bucket: vec![
            proto::Bucket { cumulative_count: Some(4), upper_bound: Some(1.0) },
            proto::Bucket { cumulative_count: Some(7), upper_bound: Some(4.0) },
        ],
        schema: Some(3),
        zero_threshold: Some(2_f64.powi(-128)),
        zero_count: Some(1),
        negative_span: vec![span(8, 1)],
        negative_delta: vec![1],
        // Buckets 0, 2, 4 and 5 (with 1 and 3 filled in), and the distant bucket 54.
        positive_span: vec![span(0, 6), span(48, 1)],
        positive_delta: vec![2, -2, 1, -1, 1, 0, 0],
        created_timestamp: created(),
    };
    assert_eq!(metric.histogram, Some(expected));
}

#[test]
fn an_empty_native_histogram_is_still_native() {
    let value = histogram(&Buckets::exponential("seconds"), &[]);
    let points = vec![(&[][..], Value::Histogram(Arc::new(value)))];
    let (_, metric) = one(family("perf_sizes", "", Kind::Histogram, points));
    let histogram = metric.histogram.unwrap();
    // Prometheus treats it as a classic histogram unless it has spans, a zero count or a threshold.
    assert!(histogram.zero_threshold() > 0.0 && histogram.positive_span.is_empty());
    assert_eq!((histogram.schema, histogram.bucket.len()), (Some(3), 27));
}

#[test]
fn nothing_is_written_of_a_family_without_series() {
    assert!(encode([]).is_empty());
    assert!(encode([family("perf_nothing", "", Kind::Gauge, vec![])]).is_empty());
}

#[test]
fn pieces_are_bounded_and_make_up_the_whole() {
    let labels: Vec<_> = (0..5_000).map(|n| Labels::new([("cgroup", format!("/slice/{n:05}"))])).collect();
    let families = (0..3).map(|n| {
        let metadata = Metadata::new(&format!("perf_event{n}"), "help", "", Kind::Counter).unwrap();
        let points = labels.iter().map(|labels| Point {
            labels: Arc::clone(labels),
            value: Value::Integer(n),
            start: START,
        });
        Family::new(metadata, points.collect())
    });
    let mut encoder = Encoder::new(Arc::new(Snapshot::new(START, families)));
    let (mut whole, mut pieces, mut piece) = (Vec::new(), 0, Vec::new());
    while encoder.next_chunk(&mut piece) {
        assert!((1..CHUNK + 200).contains(&piece.len()), "{}", piece.len());
        whole.append(&mut piece);
        pieces += 1;
    }
    assert!(pieces > 5);
    assert!(!encoder.next_chunk(&mut piece) && piece.is_empty(), "there is nothing behind the end");
    let families = decode(&whole);
    assert_eq!(families.iter().map(|family| family.metric.len()).collect::<Vec<_>>(), [5_000; 3]);
}

/// Decodes spans and deltas as a scraper does: a count for each non-empty bucket.
fn counts(spans: &[proto::BucketSpan], deltas: &[i64]) -> BTreeMap<i32, i64> {
    let (mut index, mut count, mut deltas) = (0, 0, deltas.iter());
    let mut counts = BTreeMap::new();
    for span in spans {
        index += span.offset();
        for _ in 0..span.length() {
            count += deltas.next().unwrap();
            counts.insert(index, count);
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None, "as many deltas as buckets");
    counts.retain(|_, count| *count != 0);
    counts
}

proptest! {
    #[test]
    fn native_buckets_are_read_as_they_were_counted(
        values in prop::collection::vec((-12.0..12.0, any::<bool>(), 1..=u64::MAX >> 8), 0..60)
    ) {
        let mut value = Histogram::of(&Buckets::exponential(""));
        for (logarithm, minus, count) in values {
            value.observe_many(f64::exp2(logarithm) * if minus { -1.0 } else { 1.0 }, count);
        }
        let value = Arc::new(value);
        let points = vec![(&[][..], Value::Histogram(Arc::clone(&value)))];
        let read = one(family("perf_sizes", "", Kind::Histogram, points)).1.histogram.unwrap();
        let native = value.native().unwrap();
        let counted = |buckets: Vec<(i32, u64)>| -> BTreeMap<i32, i64> {
            buckets.into_iter().map(|(index, count)| (index, i64::try_from(count).unwrap())).collect()
        };
        prop_assert_eq!(counts(&read.positive_span, &read.positive_delta), counted(native.positive().collect()));
        prop_assert_eq!(counts(&read.negative_span, &read.negative_delta), counted(native.negative().collect()));
        let classic = read.bucket.iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
        prop_assert!(classic.chain([(f64::INFINITY, read.sample_count())]).eq(value.cumulative()));
    }

    #[test]
    fn names_values_and_numbers_are_read_as_they_were_written(
        text in any::<String>(), float in any::<f64>(), help in "\\PC{1,200}"
    ) {
        prop_assume!(!help.trim().is_empty() && !text.is_empty());
        let metadata = Metadata::new("perf_any", &help, "", Kind::Gauge).unwrap();
        let point = Point { labels: Labels::new([("a", text.as_str())]), value: Value::Float(float), start: START };
        let (family, metric) = one(Family::new(metadata, vec![point]));
        prop_assert_eq!(family.help(), help);
        prop_assert_eq!(metric.label[0].value(), without_controls(&text));
        prop_assert_eq!(metric.gauge.unwrap().value().to_bits(), float.to_bits());
    }
}
