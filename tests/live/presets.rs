//! Presets on the kernel of this machine, each compared with work that causes its events.

use std::fs;
use std::net::TcpStream;
use std::process::Command;

use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::program::Program;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually, lacks};
use crate::traces::LoopDevice;

/// Starts a service with this list of presets and no other traces.
fn with_presets(presets: &str, more: &str) -> Service {
    Service::start_fresh(&format!(
        "counters: {{os: {{events: [context-switches], per: [cpu]}}}}\npresets: [{presets}]\n{more}"
    ))
}

/// Creates a cgroup with a worker in it. The text is the configuration that selects only this cgroup.
fn in_a_cgroup(name: &str) -> (TestCgroup, Worker, String) {
    let cgroup = TestCgroup::new(name);
    let worker = Worker::start(name);
    cgroup.take(worker.pid());
    let selection = format!("cgroups: {{include: [\"{}\"]}}\n", cgroup.path());
    (cgroup, worker, selection)
}

#[test]
fn forks_executions_and_exits_of_a_cgroup_are_counted_exactly() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Cgroup) {
        return;
    }
    for attribution in ["dedicated", "stream"] {
        if attribution == "stream" && lacks(Feature::Stream) {
            continue;
        }
        let (cgroup, mut worker, selection) = in_a_cgroup("starts");
        let selection = selection.replace("]}", &format!("], attribution: {attribution}}}"));
        let service = with_presets("forks", &selection);
        worker.does(Work::Children(37));
        worker.does(Work::Children(5));
        // The last exit belongs to a task for which its parent may not be able to wait. Where the kernel writes no records of switches from
        // an idle CPU, the stream leaves its counts unattributed.
        let counts = |metrics: &Exposition| {
            ["forks", "execs", "exits"].map(|name| {
                let labels = [("cgroup", cgroup.path())];
                let own = metrics.value(&format!("perf_cgroup_{name}_total"), &labels).unwrap_or_default();
                let nobodys =
                    metrics.sum(&format!("perf_unattributed_{name}_total"), &[("reason", "unrecorded")]);
                (own, own + nobodys)
            })
        };
        let counted = eventually(attribution, || {
            let counted = counts(&service.metrics());
            counted.iter().all(|&(_, all)| all >= 42.0).then_some(counted)
        });
        assert!(counted.iter().all(|&(own, _)| own > 0.0 && own <= 42.0), "{counted:?}");
        if attribution == "dedicated" {
            assert_eq!(counted.map(|(own, _)| own), [42.0; 3]);
        }
    }
}

#[test]
fn page_faults_of_a_cgroup_are_those_of_its_programs() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Cgroup) {
        return;
    }
    if !fs::exists("/sys/kernel/tracing/events/exceptions/page_fault_user").is_ok_and(|there| there) {
        // The test below checks the message in this case.
        return;
    }
    let (cgroup, mut worker, selection) = in_a_cgroup("faults");
    let service = with_presets("page-faults", &selection);
    let faults = |metrics: &Exposition| {
        metrics.value("perf_cgroup_page_faults_user_total", &[("cgroup", cgroup.path())]).unwrap_or_default()
    };
    let before = faults(&service.metrics());
    worker.does(Work::Faults(20 * Work::PAGES_AT_ONCE));
    let metrics = service.metrics();
    let (pages, counted) = (20.0 * Work::PAGES_AT_ONCE as f64, faults(&metrics) - before);
    assert!((pages..pages * 1.02 + 20.0).contains(&counted), "{counted} of {pages}");
    let all = metrics.value("perf_tracepoint_page_faults_user_total", &[]).unwrap_or_default();
    assert!(all >= counted, "{all} are counted on the host");
    assert!(metrics.value("perf_tracepoint_page_faults_kernel_total", &[]).is_some(), "{metrics:?}");
}

#[test]
fn requests_to_a_block_device_have_latency_and_size() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Loop) {
        return;
    }
    let device = LoopDevice::of(4 << 20);
    let written = || {
        let service = with_presets("block-io", "");
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=8192", "count=100", "oflag=direct", "status=none"]);
        assert!(dd.arg(format!("of={}", device.path.display())).status().unwrap().success());
        service.metrics()
    };
    // All block requests of the host use the same rings, and other processes may cause too many.
    let lost = |metrics: &Exposition| metrics.sum("perf_lost_records_total", &[("ring", "tracepoints")]);
    let metrics = (0..5)
        .map(|_| written())
        .find(|metrics| lost(metrics) == 0.0)
        .expect("an attempt without lost records");
    let writes = [("device", &*device.numbers()), ("op", "WS")];
    let value = |name: &str| metrics.value(&format!("perf_tracepoint_block_{name}"), &writes);
    assert_eq!(value("latency_seconds_count"), Some(100.0), "{metrics:?}");
    assert!(value("latency_seconds_sum").is_some_and(|seconds| seconds > 0.0));
    assert_eq!(value("size_bytes_count"), Some(100.0));
    assert_eq!(value("size_bytes_sum"), Some(819_200.0));
    assert_eq!(value("errors_total"), None, "an event failed: {metrics:?}");
}

#[test]
fn softirqs_and_work_of_the_kernel_have_their_times() {
    if lacks(Feature::Tracepoint) {
        return;
    }
    let service = with_presets("softirq, irq, kworkers", "");
    let histograms = ["softirq_latency", "softirq_run", "kworker_run", "kworker_delay"];
    let metrics = eventually("timers have fired and work items were executed", || {
        let metrics = service.metrics();
        let grown = |name: &&str| metrics.sum(&format!("perf_tracepoint_{name}_seconds_count"), &[]) >= 3.0;
        histograms.iter().all(grown).then_some(metrics)
    });
    // Some kernels count events while a CPU is idle and write no record of them, so lost records are not checked here.
    let softirqs: Vec<&str> =
        metrics.by("perf_tracepoint_softirq_run_seconds_count", "softirq").map(|(vec, _)| vec).collect();
    assert!(
        softirqs.contains(&"TIMER") || softirqs.contains(&"RCU"),
        "unexpected names of softirqs: {softirqs:?}"
    );
    for name in histograms {
        let of = |end: &str| metrics.sum(&format!("perf_tracepoint_{name}_seconds_{end}"), &[]);
        let mean = of("sum") / of("count");
        assert!((0.0..10.0).contains(&mean), "{name}: {mean} s");
    }
    // A machine may have no device interrupts just now, but its kernel has the tracepoint.
    assert_eq!(metrics.sum("perf_event_state", &[("state", "absent")]), 0.0, "{metrics:?}");
}

#[test]
fn connections_that_fail_and_waits_for_locks_are_counted() {
    if [Feature::Tracepoint, Feature::Cgroup, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let program = Program::compile_scheduled();
    let service = with_presets("locks, tcp, oom, reclaim", "metrics: {level: full}");
    let failed = |metrics: &Exposition| {
        let labels = [("from", "TCP_SYN_SENT"), ("to", "TCP_CLOSE")];
        metrics.value("perf_tracepoint_tcp_transitions_total", &labels).unwrap_or_default()
    };
    let before = failed(&service.metrics());
    for _ in 0..5 {
        // No program listens on this port.
        assert!(TcpStream::connect("127.0.0.1:1").is_err());
    }
    assert!(Command::new(program.path()).args(["contend", "8", "800"]).status().unwrap().success());
    let metrics = service.metrics();
    // Other tests may fail to connect as well.
    assert!(failed(&metrics) - before >= 5.0, "{metrics:?}");
    let of = |end: &str| {
        metrics
            .value(&format!("perf_tracepoint_lock_wait_seconds_{end}"), &[("type", "WRITE")])
            .unwrap_or_default()
    };
    assert!(of("count") >= 3.0 && of("sum") > 0.0, "{metrics:?}");
    assert!(of("sum") / of("count") < 10.0, "{metrics:?}");
    assert!(metrics.value("perf_tracepoint_oom_kills_total", &[]).is_some(), "{metrics:?}");
    assert_eq!(metrics.sum("perf_event_state", &[("state", "absent")]), 0.0, "{metrics:?}");
}

#[test]
fn a_preset_that_this_kernel_lacks_is_refused_by_its_name() {
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/hosts/arm");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "presets: [page-faults]\n").unwrap();
    let check = Command::new(env!("CARGO_BIN_EXE_perf-exporter"))
        .args(["--host-root", host, "check", "--no-open", "--config"])
        .arg(file.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(said.contains("  absent: this kernel has no tracepoint system exceptions"), "{said}");
    assert!(
        said.contains("page-faults per host: exceptions:page_fault_user, exceptions:page_fault_kernel"),
        "{said}"
    );
    assert!(said.contains("Presets:\n  page-faults: page_faults_user, page_faults_kernel"), "{said}");
}
