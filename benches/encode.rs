//! Cost of a scrape of 100 000 series: the exporter's encoder, a naive encoder and that of the `prometheus` crate.
//!
//! `cargo bench --bench encode` prints the time of each and the ratio to the exporter's encoder. It also prints the memory that each needs
//! above the encoded state, measured in a separate process.

#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use flate2::Compression;
use flate2::write::GzEncoder;
use perf_exporter::clock::Timestamp;
use perf_exporter::export::prometheus::{Encoder, Format};
use perf_exporter::export::protobuf;
use perf_exporter::metrics::{Family, Kind, Labels, Metadata, Point, Snapshot, Value};
use prometheus::proto;

const FAMILIES: usize = 10;
const SERIES: usize = 10_000;

/// Returns the labels of a container on a busy node.
fn labels(series: usize) -> [(&'static str, String); 6] {
    let pod = format!("checkout-{:05x}", series * 7919 % 0xf_ffff);
    [
        ("cgroup", format!("/kubepods.slice/kubepods-burstable.slice/pod{series:08x}.slice")),
        ("container", format!("server-{}", series % 7)),
        ("cpu", (series % 64).to_string()),
        ("namespace", format!("team-{}", series % 23)),
        ("node", "node-17".to_owned()),
        ("pod", pod),
    ]
}

fn name(family: usize) -> String {
    format!("perf_cgroup_event{family}")
}

fn value(family: usize, series: usize) -> u64 {
    (family as u64 + 1) * 1_000_003 * (series as u64 + 1)
}

fn snapshot() -> Arc<Snapshot> {
    let labels: Vec<_> = (0..SERIES).map(|series| Labels::new(labels(series))).collect();
    let families = (0..FAMILIES).map(|family| {
        let metadata = Metadata::new(&name(family), "Events of a cgroup", "", Kind::Counter).unwrap();
        let points = labels.iter().enumerate().map(|(series, labels)| Point {
            labels: Arc::clone(labels),
            value: Value::Integer(value(family, series)),
            start: Timestamp(0),
        });
        Family::new(metadata, points.collect())
    });
    Arc::new(Snapshot::new(Timestamp(0), families))
}

/// Encodes as the server does: one piece at a time, none kept. Returns the total length.
fn ours(snapshot: &Arc<Snapshot>, format: Format) -> usize {
    let mut encoder = Encoder::new(Arc::clone(snapshot), format);
    let (mut piece, mut total) = (Vec::new(), 0);
    while encoder.next_chunk(&mut piece) {
        total += black_box(&piece).len();
        piece.clear();
    }
    total
}

fn ours_protobuf(snapshot: &Arc<Snapshot>) -> usize {
    let mut encoder = protobuf::Encoder::new(Arc::clone(snapshot));
    let (mut piece, mut total) = (Vec::new(), 0);
    while encoder.next_chunk(&mut piece) {
        total += black_box(&piece).len();
        piece.clear();
    }
    total
}

fn ours_compressed(snapshot: &Arc<Snapshot>) -> usize {
    let mut encoder = Encoder::new(Arc::clone(snapshot), Format::Text);
    let mut compressor = GzEncoder::new(Vec::new(), Compression::fast());
    let (mut piece, mut total) = (Vec::new(), 0);
    while encoder.next_chunk(&mut piece) {
        std::io::Write::write_all(&mut compressor, &piece).unwrap();
        total += std::mem::take(compressor.get_mut()).len();
        piece.clear();
    }
    total + compressor.finish().unwrap().len()
}

/// The naive encoder: escapes and formats the labels for each line, into one buffer.
fn naive(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    for family in snapshot.families() {
        let (name, help) = (family.metadata().name(), family.metadata().help());
        writeln!(out, "# HELP {name}_total {help}\n# TYPE {name}_total counter").unwrap();
        for point in family.points() {
            write!(out, "{name}_total{{").unwrap();
            for (at, (label, value)) in point.labels.pairs().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                write!(out, "{comma}{label}=\"{value}\"").unwrap();
            }
            let Value::Integer(value) = point.value else { continue };
            writeln!(out, "}} {value}").unwrap();
        }
    }
    out
}

/// Returns the same state as messages of the `prometheus` crate.
fn messages() -> Vec<proto::MetricFamily> {
    let message = |family: usize| {
        let metric = |series: usize| {
            let pairs = labels(series).map(|(label, text)| {
                let mut pair = proto::LabelPair::default();
                pair.set_name(label.to_owned());
                pair.set_value(text);
                pair
            });
            let mut counter = proto::Counter::default();
            counter.set_value(value(family, series) as f64);
            let mut metric = proto::Metric::from_label(pairs.into());
            metric.set_counter(counter);
            metric
        };
        let mut message = proto::MetricFamily::default();
        message.set_name(name(family) + "_total");
        message.set_help("Events of a cgroup".to_owned());
        message.set_field_type(proto::MetricType::COUNTER);
        message.set_metric((0..SERIES).map(metric).collect());
        message
    };
    (0..FAMILIES).map(message).collect()
}

fn crate_text(messages: &[proto::MetricFamily]) -> String {
    prometheus::TextEncoder::new().encode_to_string(messages).unwrap()
}

/// Returns the shortest of seven runs.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn best<T>(mut run: impl FnMut() -> T) -> Duration {
    let timed = |_| {
        let start = Instant::now();
        let _result = black_box(run());
        start.elapsed()
    };
    (0..7).map(timed).min().unwrap_or_default()
}

/// Returns a field of `/proc/self/status`, in KiB.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs on the real machine")]
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Runs `encode` once and prints the increase of peak resident memory, in KiB.
fn print_peak(encode: impl FnOnce() -> usize) {
    // `5` resets the peak to the current value (proc(5), since Linux 4.0).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let state = status("VmRSS");
    black_box(encode());
    println!("{}", status("VmHWM").saturating_sub(state));
}

/// Returns the peak of one encoder, measured in a child process.
fn peak(way: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap()).args(["--peak", way]).output().unwrap();
    let kib: f64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    format!("{:.1} MiB", kib / 1024.0)
}

fn summary() {
    let (snapshot, messages) = (snapshot(), messages());
    let length = ours(&snapshot, Format::Text);
    assert_eq!(length, naive(&snapshot).len(), "the outputs have the same length");
    let time = best(|| ours(&snapshot, Format::Text));
    println!("\n{} series, {:.1} MB of text", FAMILIES * SERIES, length as f64 / 1e6);
    let row = |way: &str, took: Duration, peak: String| {
        let ratio = took.as_secs_f64() / time.as_secs_f64();
        println!("{way:<28} {:>8.2} ms  × {ratio:<6.1} peak + {peak}", took.as_secs_f64() * 1e3);
    };
    row("perf-exporter", time, peak("ours"));
    row("perf-exporter, protobuf", best(|| ours_protobuf(&snapshot)), peak("protobuf"));
    let compressed = best(|| ours_compressed(&snapshot));
    row("perf-exporter, gzip", compressed, peak("compressed"));
    row("naive write!", best(|| naive(&snapshot)), peak("naive"));
    row("prometheus::TextEncoder", best(|| crate_text(&messages)), peak("crate"));
}

fn compare(criterion: &mut Criterion) {
    let (snapshot, messages) = (snapshot(), messages());
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements((FAMILIES * SERIES) as u64)).sample_size(20);
    group.bench_function("text", |bencher| bencher.iter(|| ours(&snapshot, Format::Text)));
    group.bench_function("openmetrics", |bencher| bencher.iter(|| ours(&snapshot, Format::OpenMetrics100)));
    group.bench_function("protobuf", |bencher| bencher.iter(|| ours_protobuf(&snapshot)));
    group.bench_function("naive", |bencher| bencher.iter(|| naive(&snapshot)));
    group.bench_function("crate", |bencher| bencher.iter(|| crate_text(&messages)));
    group.finish();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--peak", "ours"] => {
            let snapshot = snapshot();
            print_peak(|| ours(&snapshot, Format::Text));
        }
        ["--peak", "protobuf"] => {
            let snapshot = snapshot();
            print_peak(|| ours_protobuf(&snapshot));
        }
        ["--peak", "compressed"] => {
            let snapshot = snapshot();
            print_peak(|| ours_compressed(&snapshot));
        }
        ["--peak", "naive"] => {
            let snapshot = snapshot();
            print_peak(|| naive(&snapshot).len());
        }
        ["--peak", "crate"] => {
            let messages = messages();
            print_peak(|| crate_text(&messages).len());
        }
        _ => {
            let mut criterion = Criterion::default().configure_from_args();
            compare(&mut criterion);
            criterion.final_summary();
            // `cargo test --benches` only checks that everything runs.
            if arguments.iter().any(|argument| argument == "--bench") {
                summary();
            }
        }
    }
}
