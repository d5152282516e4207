//! With all features enabled, no series has a label that docs/metrics.md does not list.

use crate::references::row_of;
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};

/// A configuration with everything that this kernel supports, for the whole host, by cgroup and by process.
const EVERYTHING: &str = "
counters:
  os: {events: [task-clock, context-switches, cpu-migrations, page-faults, major-faults], per: [cpu, cgroup, process]}
presets: [block-io, irq, softirq, page-faults, forks, kworkers]
scheduler: {per: [host, cgroup, process]}
syscalls: {per: [host, cgroup, process], include: [read, write, nanosleep, clock_nanosleep, futex]}
profiles: {cpu: {event: cpu-clock, frequency: 19}}
";

/// Labels that any series may have: those of buckets and containers.
const ANYWHERE: [&str; 5] = ["le", "namespace", "pod", "container", "service"];

/// Returns the name of a metric from the name of one of its samples.
fn metric(sample: &str) -> &str {
    let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| sample.strip_suffix(suffix));
    histogram
        .filter(|name| {
            row_of(name).is_some_and(|row| row.name.ends_with("_seconds") || row.name.ends_with("_bytes"))
        })
        .unwrap_or(sample)
}

#[test]
fn every_series_has_the_labels_that_the_reference_says() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Cgroup) {
        return;
    }
    let service = Service::start(EVERYTHING);
    let metrics = eventually("every section has produced series", || {
        let metrics = service.metrics();
        let parts = [
            "perf_cgroup_sched_switches_total",
            "perf_process_syscalls_total",
            "perf_samples_total",
            "perf_process_task_clock_seconds_total",
        ];
        parts.iter().all(|part| metrics.series(part).next().is_some()).then_some(metrics)
    });
    let mut seen = 0;
    for (sample, labels) in metrics.all() {
        let name = metric(sample);
        let row = row_of(name).unwrap_or_else(|| panic!("{sample} has no row in docs/metrics.md"));
        // The labels of these metrics are those of their entries.
        if name.starts_with("perf_tracepoint_") {
            continue;
        }
        for label in labels.keys().map(String::as_str) {
            assert!(
                row.labels.contains(&label) || ANYWHERE.contains(&label) || name.starts_with("process_"),
                "{sample}: {label} of {}",
                row.name
            );
        }
        seen += 1;
    }
    assert!(seen > 100, "{seen} series");
}
