//! Cost of building OTLP requests.
//!
//! `cargo bench --bench otlp` ends with a table: time, its ratio to the Prometheus text of the same data, bytes, and the increase of peak
//! resident memory. The memory is measured in a child process and includes the returned requests.

#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]
#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use criterion::Criterion;

/// Returns the shortest of seven runs.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn best<T>(mut run: impl FnMut() -> T) -> Duration {
    let timed = |_| {
        let start = Instant::now();
        let result = black_box(run());
        let took = start.elapsed();
        drop(result);
        took
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
fn print_peak<T>(encode: impl FnOnce() -> T) {
    // `5` resets the peak to the current value (proc(5), since Linux 4.0).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    black_box(encode());
    println!("{}", status("VmHWM").saturating_sub(before));
}

/// Returns the peak of one case in MB, measured in a child process.
fn peak(way: &str) -> f64 {
    let output = Command::new(std::env::current_exe().unwrap()).args(["--peak", way]).output().unwrap();
    let kib: f64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    kib * 1024.0 / 1e6
}

/// Prints a row of the table. `text` is the time of the Prometheus text of the same data, if there is one.
fn row(way: &str, took: Duration, text: Option<Duration>, bytes: usize) {
    let (milliseconds, megabytes, peak) = (took.as_secs_f64() * 1e3, bytes as f64 / 1e6, peak(way));
    let ratio = text
        .map_or_else(String::new, |text| format!("× {:.1} of text", took.as_secs_f64() / text.as_secs_f64()));
    let times = peak / megabytes;
    println!(
        "{way:<26} {milliseconds:>7.1} ms  {ratio:<15} {megabytes:>6.1} MB  peak + {peak:>6.1} MB, × {times:.2}"
    );
}

/// A hundred thousand series.
mod metrics {
    use std::hint::black_box;
    use std::sync::Arc;

    use criterion::Criterion;
    use perf_exporter::clock::Timestamp;
    use perf_exporter::export::otlp::Encoded;
    use perf_exporter::export::otlp::attribute::{Attribute, Resource};
    use perf_exporter::export::otlp::metrics::{Encoder, Histograms, Options, Temporality};
    use perf_exporter::export::prometheus::{self, Format};
    use perf_exporter::metrics::{
        Buckets, Family, Histogram, Kind, Labels, Metadata, Point, Snapshot, Value,
    };

    use super::{best, print_peak, row};

    /// Total of all families.
    const SERIES: usize = 100_000;
    /// Maximum message size that a gRPC server accepts by default.
    const LIMIT: usize = 4 << 20;

    fn labels(series: usize) -> Arc<Labels> {
        let pod = format!("checkout-{:05x}", series * 7919 % 0xf_ffff);
        let cgroup = format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{series:08x}_0011_2233_4455_66778899aabb.slice/\
             cri-containerd-{series:064x}.scope"
        );
        Labels::new([
            ("cgroup", &*cgroup),
            ("container", &format!("server-{}", series % 7)),
            ("cpu", &(series % 64).to_string()),
            ("namespace", &format!("team-{}", series % 23)),
            ("node", "node-17"),
            ("pod", &pod),
        ])
    }

    /// Returns this many counters of this many cgroups.
    fn counters(families: usize, taken: u64) -> Arc<Snapshot> {
        let labels: Vec<_> = (0..SERIES / families).map(labels).collect();
        let families = (0..families).map(|family| {
            let name = format!("perf_cgroup_events{family}");
            let points = labels.iter().enumerate().map(|(series, labels)| Point {
                labels: Arc::clone(labels),
                value: Value::Integer(taken * 1_000_003 * (series as u64 + 1)),
                start: Timestamp(1),
            });
            let metadata = Metadata::new(&name, "Events of a cgroup", "", Kind::Counter).unwrap();
            Family::new(metadata, points.collect())
        });
        Arc::new(Snapshot::new(Timestamp(taken), families))
    }

    /// Returns ten thousand histograms of latency with forty buckets.
    fn histograms() -> Arc<Snapshot> {
        let mut histogram = Histogram::of(&Buckets::exponential("seconds"));
        (0..40_u32).for_each(|at| histogram.observe_many(1e-6 * 1.25_f64.powi(at as i32), 1_000));
        let value = Value::Histogram(Arc::new(histogram));
        let point = |series| Point { labels: labels(series), value: value.clone(), start: Timestamp(1) };
        let metadata = Metadata::new("perf_cgroup_latency_seconds", "Latency", "seconds", Kind::Histogram);
        let family = Family::new(metadata.unwrap(), (0..SERIES / 10).map(point).collect());
        Arc::new(Snapshot::new(Timestamp(2), [family]))
    }

    fn resource() -> Resource {
        Resource::new([Attribute::text("service.name", "perf-exporter"), Attribute::text("host.name", "n")])
    }

    fn encoder(temporality: Temporality) -> Encoder {
        let histograms = Histograms::Exponential;
        Encoder::new(Options { temporality, histograms, limit: LIMIT, began: Timestamp(1) })
    }

    fn otlp(snapshot: &Arc<Snapshot>) -> Encoded {
        encoder(Temporality::Cumulative).encode(snapshot, &resource())
    }

    fn text(snapshot: &Arc<Snapshot>) -> usize {
        let mut encoder = prometheus::Encoder::new(Arc::clone(snapshot), Format::Text);
        let (mut piece, mut total) = (Vec::new(), 0);
        while encoder.next_chunk(&mut piece) {
            total += black_box(&piece).len();
            piece.clear();
        }
        total
    }

    fn length(encoded: &Encoded) -> usize {
        encoded.payloads.iter().map(|payload| payload.bytes.len()).sum()
    }

    /// A case: its name and its data.
    type Way = (&'static str, fn() -> Arc<Snapshot>);

    const WAYS: [Way; 3] = [
        ("metrics, shared labels", || counters(10, 2)),
        ("metrics, own labels", || counters(1, 2)),
        ("metrics, 10 000 histograms", histograms),
    ];

    pub(super) fn compare(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("otlp");
        group.sample_size(20);
        for (way, snapshot) in WAYS {
            let snapshot = snapshot();
            group.bench_function(way, |bencher| bencher.iter(|| otlp(&snapshot)));
        }
        group.finish();
    }

    pub(super) fn summary() {
        for (way, snapshot) in WAYS {
            let snapshot = snapshot();
            let (took, text) = (best(|| otlp(&snapshot)), best(|| text(&snapshot)));
            row(way, took, Some(text), length(&otlp(&snapshot)));
        }
        let (before, snapshot) = (counters(10, 2), counters(10, 3));
        let mut bytes = 0;
        let took = best(|| {
            let mut encoder = encoder(Temporality::Delta);
            encoder.encode(&before, &resource());
            let encoded = encoder.encode(&snapshot, &resource());
            bytes = length(&encoded);
            encoded
        });
        let whole = best(|| otlp(&before));
        row(DELTA, took.saturating_sub(whole), Some(best(|| text(&snapshot))), bytes);
    }

    const DELTA: &str = "metrics, deltas";

    /// Measures the case if it is one of these. Returns `false` otherwise.
    pub(super) fn peak(way: &str) -> bool {
        if way == DELTA {
            let (before, snapshot) = (counters(10, 2), counters(10, 3));
            let mut encoder = encoder(Temporality::Delta);
            encoder.encode(&before, &resource());
            print_peak(|| encoder.encode(&snapshot, &resource()));
            return true;
        }
        let known = WAYS.iter().find(|known| known.0 == way);
        known.iter().for_each(|(_, snapshot)| {
            let snapshot = snapshot();
            print_peak(|| otlp(&snapshot));
        });
        known.is_some()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, way] = &arguments[..]
        && flag == "--peak"
    {
        assert!(metrics::peak(way), "{way} is not a known case");
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    metrics::compare(&mut criterion);
    criterion.final_summary();
    println!();
    metrics::summary();
}
