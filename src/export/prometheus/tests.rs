use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;
use crate::metrics::{Build, Labels, Point, SelfMetrics, Usage};

const FORMATS: [Format; 3] = [Format::Text, Format::OpenMetrics001, Format::OpenMetrics100];

fn family(name: &str, help: &str, unit: &str, kind: Kind, points: Vec<(&[(&str, &str)], Value)>) -> Family {
    let points = points.into_iter().map(|(labels, value)| Point {
        labels: Labels::new(labels.iter().copied()),
        value,
        start: Timestamp(1_700_000_000_000),
    });
    Family::new(Metadata::new(name, help, unit, kind).unwrap(), points.collect())
}

fn histogram(bounds: &[f64], values: &[f64]) -> Value {
    let mut histogram = Histogram::new(bounds);
    values.iter().for_each(|&value| histogram.observe(value));
    Value::Histogram(Arc::new(histogram))
}

/// One family of each kind, with all values and strings that the formats encode specially.
fn example() -> Arc<Snapshot> {
    let integer = Value::Integer;
    let cycles = vec![
        (&[("cpu", "0")][..], integer(u64::MAX)),
        (&[("cpu", "1")], integer(0)),
        (&[("cpu", "a\"b\\c\nd"), ("pmu", "cpu_\u{e4}tom")], integer(7)),
    ];
    let ratios = vec![
        (&[("event", "a")][..], Value::Float(f64::NAN)),
        (&[("event", "b")], Value::Float(f64::INFINITY)),
        (&[("event", "c")], Value::Float(f64::NEG_INFINITY)),
        (&[("event", "d")], Value::Float(-0.25)),
        (&[("event", "e")], Value::Float(1e-9)),
    ];
    let latency = [
        (&[][..], histogram(&[1e-5, 0.001, 1.0, 1e6], &[1e-6, 0.5, 0.5, 2e6])),
        (&[("cgroup", "/a")], histogram(&[0.001], &[0.001])),
    ];
    let help = "Of \"running\" and enabled: C:\\\nnext line";
    let families = [
        family("perf_cpu_cycles", "Cycles", "", Kind::Counter, cycles),
        family("perf_event_running_ratio", help, "ratio", Kind::Gauge, ratios),
        family(
            "perf_task_clock_seconds",
            "CPU time",
            "seconds",
            Kind::Counter,
            vec![(&[], Value::Float(1.5))],
        ),
        family("perf_exporter_build", "Build", "", Kind::Info, vec![(&[("version", "1.0.0")], integer(1))]),
        family("perf_latency_seconds", "Latency", "seconds", Kind::Histogram, latency.into()),
        family("perf_nothing", "A family without series", "", Kind::Gauge, vec![]),
    ];
    Arc::new(Snapshot::new(Timestamp(1_700_000_001_000), families))
}

fn encode(snapshot: &Arc<Snapshot>, format: Format) -> String {
    let mut encoder = Encoder::new(Arc::clone(snapshot), format);
    let mut out = Vec::new();
    while encoder.next_chunk(&mut out) {}
    String::from_utf8(out).unwrap()
}

/// `INSTA_UPDATE=always cargo test` accepts the current output.
#[test]
fn the_text_format_is_as_recorded() {
    insta::assert_snapshot!(encode(&example(), Format::Text));
}

#[test]
fn the_openmetrics_format_is_as_recorded() {
    insta::assert_snapshot!(encode(&example(), Format::OpenMetrics100));
}

#[test]
fn both_versions_of_openmetrics_are_one_text() {
    assert_eq!(encode(&example(), Format::OpenMetrics001), encode(&example(), Format::OpenMetrics100));
}

#[test]
fn created_timestamps_stand_directly_behind_the_samples_with_the_same_labels() {
    let text = encode(&example(), Format::OpenMetrics100.with_created());
    let mut behind = "";
    let mut created = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.rsplit_once(' ').map_or(line, |(name, _)| name);
        if let Some((family, labels)) = name.split_once("_created") {
            created += 1;
            let samples = ["_total", "_count"].map(|suffix| format!("{family}{suffix}{labels}"));
            assert!(samples.iter().any(|sample| sample == behind), "{line} stands behind {behind}");
            assert!(line.ends_with(" 1700000000.000"), "{line}");
        }
        behind = name;
    }
    assert_eq!(created, 6, "counters and histograms have one each, gauges and infos none");
    let without: String = text.split_inclusive('\n').filter(|line| !line.contains("_created")).collect();
    assert_eq!(without, encode(&example(), Format::OpenMetrics100));
    assert_eq!(Format::Text.with_created(), Format::Text);
}

#[test]
fn bounds_are_printed_as_prometheus_normalises_them() {
    let table = [
        (0.0, "0.0"),
        (1.0, "1.0"),
        (-1.0, "-1.0"),
        (2.5, "2.5"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (0.000025, "2.5e-05"),
        (1e-10, "1e-10"),
        (100_000.0, "100000.0"),
        (1e6, "1e+06"),
        (1_234_567.0, "1.234567e+06"),
        (1e100, "1e+100"),
    ];
    for (bound, text) in table {
        assert_eq!(bound_text(bound), text);
    }
}

#[test]
fn an_empty_snapshot_is_empty_text_and_an_end_in_openmetrics() {
    let empty = Arc::new(Snapshot::default());
    assert_eq!(encode(&empty, Format::Text), "");
    assert_eq!(encode(&empty, Format::OpenMetrics100), "# EOF\n");
}

#[test]
fn histograms_of_different_bounds_stand_side_by_side() {
    let points = vec![
        (&[("a", "1")][..], histogram(&[], &[3.0])),
        (&[("a", "2")], histogram(&[1.0], &[3.0])),
        (&[("a", "3")], histogram(&[], &[3.0])),
    ];
    let snapshot = Snapshot::new(Timestamp(0), [family("h", "h", "", Kind::Histogram, points)]);
    let text = encode(&Arc::new(snapshot), Format::Text);
    let buckets: Vec<_> = text.lines().filter(|line| line.contains("_bucket")).collect();
    assert_eq!(
        buckets,
        [
            r#"h_bucket{a="1",le="+Inf"} 1"#,
            r#"h_bucket{a="2",le="1.0"} 0"#,
            r#"h_bucket{a="2",le="+Inf"} 1"#,
            r#"h_bucket{a="3",le="+Inf"} 1"#,
        ]
    );
}

/// Creates 3 families × `series` series, large enough for several pieces.
fn large(series: usize) -> Arc<Snapshot> {
    let labels: Vec<_> = (0..series).map(|n| Labels::new([("cgroup", format!("/slice/{n:05}"))])).collect();
    let families = (0..3).map(|n| {
        let metadata = Metadata::new(&format!("perf_cgroup_event{n}"), "help", "", Kind::Counter).unwrap();
        let points = labels.iter().map(|labels| Point {
            labels: Arc::clone(labels),
            value: Value::Integer(n),
            start: Timestamp(0),
        });
        Family::new(metadata, points.collect())
    });
    Arc::new(Snapshot::new(Timestamp(0), families))
}

#[test]
fn no_piece_is_larger_than_it_may_be_and_none_is_empty() {
    for format in FORMATS {
        let mut encoder = Encoder::new(large(5_000), format);
        let mut chunks = Vec::new();
        let mut chunk = Vec::new();
        while encoder.next_chunk(&mut chunk) {
            assert!((1..CHUNK + 200).contains(&chunk.len()), "{}", chunk.len());
            chunks.push(std::mem::take(&mut chunk));
        }
        assert!(chunks.len() > 5);
        assert!(!encoder.next_chunk(&mut chunk), "there is nothing behind the end");
        let text = String::from_utf8(chunks.concat()).unwrap();
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 15_000);
        assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE")).count(), 3);
    }
}

/// Returns the complaints of `promtool check metrics` about a text. Returns nothing if promtool is unavailable and not required.
fn faults(text: &str) -> String {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match promtool {
        Ok(promtool) => promtool,
        Err(error) => {
            let required = std::env::var("PERF_EXPORTER_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|what| what == "promtool"), "promtool cannot be run: {error}");
            eprintln!("skipped: promtool (Debian package: prometheus) cannot be run: {error}");
            return String::new();
        }
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn promtool_finds_no_fault() {
    assert_eq!(faults(&encode(&example(), Format::Text)), "");
}

#[test]
fn promtool_finds_no_fault_in_what_the_exporter_tells_of_itself() {
    let build = Build { version: "1.0.0".to_owned(), revision: "3fce3b5b".to_owned() };
    let metrics = SelfMetrics::new(&build, Timestamp(0)).unwrap();
    let snapshot = Snapshot::new(Timestamp(0), metrics.families(Usage::default()));
    let text = encode(&Arc::new(snapshot), Format::Text);
    assert!(
        text.contains("perf_exporter_build_info{") && text.contains("process_resident_memory_bytes "),
        "{text}"
    );
    assert_eq!(faults(&text), "");
}

proptest! {
    #[test]
    fn no_text_makes_a_line_of_its_own(help in "\\PC{1,20}\n?\\PC{0,20}", value in any::<String>()) {
        prop_assume!(!help.trim().is_empty());
        let labels = [("a", value.as_str())];
        let points = vec![(&labels[..], Value::Integer(1))];
        let snapshot = Arc::new(Snapshot::new(Timestamp(0), [family("m", &help, "", Kind::Gauge, points)]));
        for (format, lines) in [(Format::Text, 3), (Format::OpenMetrics100, 4)] {
            let text = encode(&snapshot, format);
            prop_assert_eq!(text.matches('\n').count(), lines);
            prop_assert!(text.ends_with(" 1\n") || text.ends_with(" 1\n# EOF\n"));
        }
    }

    #[test]
    fn floats_come_back_as_they_were(value in any::<f64>()) {
        let mut out = Vec::new();
        write_float_sample("m", "", b"", value, &mut out);
        let text = String::from_utf8(out).unwrap();
        let read: f64 = text.trim_start_matches("m ").trim_end().parse().unwrap();
        prop_assert!(read == value || (read.is_nan() && value.is_nan()));
    }

    #[test]
    fn bounds_come_back_as_they_were(bound in any::<f64>().prop_filter("finite", |bound| bound.is_finite())) {
        prop_assert_eq!(bound_text(bound).parse::<f64>().unwrap(), bound);
    }
}
