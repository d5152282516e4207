//! The generator of a fleet (`benches/fleet`): its nodes change as real ones do, and their scrapes are valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use perf_exporter::clock::Timestamp;
use perf_exporter::export::prometheus::{Encoder, Format};
use perf_exporter::host;
use perf_exporter::metrics::{Kind, Snapshot, Value};
use prost::Message as _;

use crate::hostile::{assert_promtool_reads, parse};
use crate::nodes::{Fleet, Shape};
use crate::program::repository;
use crate::recording::Recording;
use crate::requests::NodeEncoder;
use crate::{growth, hardware};

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;
/// Wall clock at the beginning of the simulation.
const EPOCH: Timestamp = Timestamp(1_700_000_000_000);

/// A fleet without any change of containers and exporters.
const STEADY: Shape = Shape {
    nodes: 2,
    containers: 24,
    cpus: 4,
    lifetime: f64::INFINITY,
    rollout: f64::INFINITY,
    restart: f64::INFINITY,
};

fn recorded() -> Recording {
    let file = repository("tests/data/fleet/node.txt");
    let mut recording = Recording::parse(&host::read_text(&file).unwrap()).unwrap();
    hardware::add(&mut recording).unwrap();
    recording
}

fn fleet(shape: Shape) -> Fleet {
    Fleet::new(recorded(), shape).unwrap()
}

/// Total and start time of each counter and histogram, by name and labels.
fn totals(snapshot: &Snapshot) -> BTreeMap<(String, String), (f64, Timestamp)> {
    let mut totals = BTreeMap::new();
    for family in snapshot.families() {
        let name = family.metadata().name();
        for point in family.points() {
            let total = match (&point.value, family.metadata().kind()) {
                (Value::Histogram(histogram), _) => histogram.count() as f64,
                (value, Kind::Counter) => value.number().unwrap(),
                _ => continue,
            };
            totals.insert((name.to_owned(), point.labels.text().to_owned()), (total, point.start));
        }
    }
    totals
}

/// Returns the values of a label of the containers.
fn of_containers(snapshot: &Snapshot, label: &str) -> BTreeSet<String> {
    let points = snapshot.family("perf_container").unwrap().points();
    points.iter().map(|point| point.labels.get(label).unwrap().to_owned()).collect()
}

fn text(snapshot: Arc<Snapshot>, format: Format) -> String {
    let mut encoder = Encoder::new(snapshot, format);
    let mut text = Vec::new();
    while encoder.next_chunk(&mut text) {}
    String::from_utf8(text).unwrap()
}

#[test]
fn totals_fall_only_with_a_newer_start_time() {
    let shape =
        Shape { containers: 12, lifetime: 2.0 * HOUR, rollout: 4.0 * HOUR, restart: 3.0 * HOUR, ..STEADY };
    let fleet = fleet(shape);
    let (mut before, mut restarts) = (totals(&fleet.snapshot(0, 0.0, EPOCH)), 0);
    for at in (1..150).map(|step| f64::from(step) * 127.0) {
        let after = totals(&fleet.snapshot(0, at, EPOCH));
        for (series, (total, start)) in &after {
            if let Some((earlier, earlier_start)) = before.get(series) {
                assert!(total >= earlier || start > earlier_start, "{series:?} at {at}: {earlier}, {total}");
                assert!(start >= earlier_start, "{series:?} at {at}");
                restarts += usize::from(start > earlier_start);
            }
        }
        before = after;
    }
    assert!(restarts > 0);
}

#[test]
fn counters_grow_at_the_recorded_rates() {
    let name = "perf_cpu_context_switches";
    let recording = recorded();
    let family = recording.families.iter().find(|family| family.metadata.name() == name).unwrap();
    let rates = family.series.iter().map(|series| match series.values {
        crate::recording::Values::Counter { rate, .. } => rate,
        _ => 0.0,
    });
    // Each recorded CPU stands for two of the four.
    let expected = 2.0 * rates.sum::<f64>() * DAY;
    let snapshot = fleet(STEADY).snapshot(0, DAY, EPOCH);
    let total: f64 =
        snapshot.family(name).unwrap().points().iter().filter_map(|point| point.value.number()).sum();
    assert!((total / expected - 1.0).abs() < 0.01, "{total} instead of {expected}");
}

#[test]
fn the_rate_of_a_counter_varies_and_its_total_never_falls() {
    let steps: Vec<f64> = (0..200)
        .map(|step| growth::grown(7, f64::from(step + 1)) - growth::grown(7, f64::from(step)))
        .collect();
    assert!(steps.iter().all(|&step| step >= 0.0), "{steps:?}");
    let (least, most) = steps.iter().fold((f64::MAX, 0.0_f64), |(a, b), &step| (a.min(step), b.max(step)));
    assert!(most > 1.2 * least, "{steps:?}");
}

#[test]
fn a_replaced_container_has_new_names_and_starts_at_zero() {
    let fleet = fleet(Shape { lifetime: HOUR, ..STEADY });
    let (before, after) = (fleet.snapshot(0, DAY, EPOCH), fleet.snapshot(0, DAY + HOUR, EPOCH));
    for label in ["cgroup", "pod", "pod_uid", "container_id"] {
        let (old, new) = (of_containers(&before, label), of_containers(&after, label));
        assert_eq!((old.len(), new.len()), (STEADY.containers, STEADY.containers), "{label}");
        assert!(old.is_disjoint(&new), "{label}");
    }
    assert_eq!(of_containers(&before, "workload"), of_containers(&after, "workload"));
    let young = EPOCH.0 + (DAY * 1e3) as u64;
    let clock = after.family("perf_cgroup_task_clock_seconds").unwrap();
    let in_containers = clock.points().iter().filter(|point| point.labels.get("pod").is_some());
    assert!(in_containers.clone().count() == STEADY.containers);
    assert!(in_containers.clone().all(|point| point.start.0 >= young));
}

#[test]
fn a_share_of_the_containers_is_replaced_in_a_share_of_their_lifetime() {
    let fleet = fleet(Shape { containers: 400, lifetime: DAY, ..STEADY });
    let of = |at: f64| of_containers(&fleet.snapshot(0, at, EPOCH), "pod");
    let kept = of(3.0 * DAY).intersection(&of(3.0 * DAY + 6.0 * HOUR)).count();
    assert!((250..350).contains(&kept), "{kept} of 400 instead of three quarters");
}

#[test]
fn a_rollout_replaces_all_containers_of_a_deployment_on_all_nodes() {
    let fleet = fleet(Shape { rollout: DAY, ..STEADY });
    let pods = |at: f64| {
        let mut pods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in 0..2 {
            let snapshot = fleet.snapshot(node, at, EPOCH);
            for point in snapshot.family("perf_container").unwrap().points() {
                let label = |name| point.labels.get(name).unwrap().to_owned();
                pods.entry(label("workload")).or_default().insert(label("pod"));
            }
        }
        pods
    };
    let (before, after) = (pods(DAY), pods(1.5 * DAY));
    let mut rolled_out = 0;
    for (workload, old) in &before {
        let kept = old.intersection(&after[workload]).count();
        assert!(kept == 0 || kept == old.len(), "{workload}: {kept} of {} are kept", old.len());
        rolled_out += usize::from(kept == 0);
    }
    assert!(rolled_out > 0 && before.values().any(|pods| pods.len() > 1));
}

#[test]
fn nodes_have_containers_and_values_of_their_own() {
    let fleet = fleet(STEADY);
    let (first, second) = (fleet.snapshot(0, DAY, EPOCH), fleet.snapshot(1, DAY, EPOCH));
    assert!(of_containers(&first, "cgroup").is_disjoint(&of_containers(&second, "cgroup")));
    assert_eq!((fleet.len(), first.series()), (2, second.series()));
    let switches = |snapshot: &Snapshot| {
        totals(snapshot)[&("perf_cpu_context_switches".to_owned(), "cpu=\"0\"".to_owned())].0
    };
    assert!(switches(&first) != switches(&second));
}

#[test]
fn more_cpus_and_containers_add_series_of_each() {
    let series = |shape| fleet(shape).snapshot(0, DAY, EPOCH).series();
    let (small, wide) = (series(STEADY), series(Shape { cpus: 8, ..STEADY }));
    // Five counters of the operating system, four hardware events, two running ratios.
    assert_eq!(wide - small, 4 * 11);
    let crowded = series(Shape { containers: 48, ..STEADY });
    assert!(crowded - small > 24 * 15, "{small}, {crowded}");
}

#[test]
fn scrapes_of_a_node_are_valid() {
    let snapshot = fleet(Shape { lifetime: HOUR, ..STEADY }).snapshot(1, 2.3 * DAY, EPOCH);
    assert_eq!(snapshot.conflicts(), []);
    let text = text(snapshot, Format::Text);
    let series: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit_once(' ')?.0))
        .collect();
    assert_eq!(series.len(), parse(&text).len(), "each series is there once");
    assert_promtool_reads(&text);
}

#[test]
fn a_push_of_a_node_has_all_of_its_series_and_its_name() {
    let fleet = fleet(STEADY);
    for node in 0..2 {
        let snapshot = fleet.snapshot(node, DAY, EPOCH);
        let encoded = NodeEncoder::new(node, EPOCH).encode(&snapshot);
        let points: u64 = encoded.payloads.iter().map(|payload| payload.items).sum();
        assert_eq!((points, encoded.left_out), (snapshot.series() as u64, 0));
        for payload in encoded.payloads {
            let request = ExportMetricsServiceRequest::decode(&*payload.bytes).unwrap();
            let resource = request.resource_metrics[0].resource.as_ref().unwrap();
            let instance = resource.attributes.iter().find(|pair| pair.key == "service.instance.id").unwrap();
            let name = instance.value.as_ref().unwrap().value.clone();
            assert_eq!(name, Some(AnyValue::StringValue(format!("node-0000{node}"))));
        }
    }
}
