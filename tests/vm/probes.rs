//! Probes of kernel functions: counts, sums and durations are compared with the known calls of a worker.

mod life;
mod moments;
mod refusals;

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::sync::MutexGuard;
use std::thread;

use perf_exporter::host::{Roots, list, read_text};

use crate::support::calls::Calls;
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, lacks};
use crate::{ALWAYS_FRESH, advance, counters_with};

/// The function behind a system call that only the worker makes.
pub(crate) const GETPPID: &str =
    if cfg!(target_arch = "aarch64") { "__arm64_sys_getppid" } else { "__x64_sys_getppid" };

/// Locks kernel probes for one test at a time, because other tests would add hits. Returns `None` if this machine lacks them.
fn kprobes() -> Option<MutexGuard<'static, ()>> {
    if lacks(Feature::Tracefs) { None } else { counters_with(Feature::Kprobe) }
}

/// Starts a service with tracepoints and probes, and almost nothing else.
fn service(entries: &str, targets: &str) -> Service {
    Service::start(&configuration(entries, targets))
}

fn configuration(entries: &str, targets: &str) -> String {
    format!(
        "{ALWAYS_FRESH}counters: {{os: {{events: [context-switches], per: [cpu]}}}}\n{targets}{entries}\n"
    )
}

/// Selects the workers as processes, and the cgroup as the only cgroup.
fn targets(workers: &[&Worker], cgroup: &TestCgroup) -> String {
    let pids: Vec<String> = workers.iter().map(|worker| format!("{{pid: {}}}", worker.pid())).collect();
    format!(
        "processes: {{include: [{}], by: [comm]}}\ncgroups: {{include: [\"{}\"]}}\n",
        pids.join(", "),
        cgroup.path()
    )
}

/// Returns the probes in tracefs that the service defined.
fn defined_by(service: &Service) -> Vec<String> {
    let all = read_text(&Roots::default().tracing.join("dynamic_events")).unwrap();
    let group = format!("perf_exporter_{}_", service.child.id());
    all.lines().filter(|line| line.contains(&group)).map(str::to_owned).collect()
}

/// Returns the number of hits missing from a count: lost or malformed records, and dropped hits. A late record is counted; it comes from a
/// CPU that the host stopped while it wrote the record.
fn lost(scrape: &Exposition) -> f64 {
    let names = ["perf_lost_records_total", "perf_dropped_hits_total"];
    let all: f64 = names.iter().map(|name| scrape.sum(name, &[])).sum();
    all - scrape.sum(names[0], &[("reason", "late")])
}

#[test]
fn calls_of_a_function_are_counted_exactly_for_everybody_and_without_a_definition() {
    let Some(_counters) = kprobes() else { return };
    let cgroup = TestCgroup::new("asks");
    let (mut worker, mut other) = (Worker::start("asks"), Worker::start("asks_too"));
    cgroup.take(worker.pid());
    let service = service(
        &format!(
            "probes:\n  asks: {{kprobe: {GETPPID}, per: [host, cpu, cgroup, process]}}\n  \
             answers: {{kretprobe: {GETPPID}}}\n"
        ),
        &targets(&[&worker], &cgroup),
    );
    let before = service.metrics();
    worker.does(Work::Getppid(4321));
    other.does(Work::Getppid(777));
    let after = service.metrics();
    let advance = |name: &str, labels: &[(&str, &str)]| advance(&before, &after, name, labels);
    assert_eq!(advance("perf_probe_asks_total", &[]), 5098.0);
    assert_eq!(advance("perf_probe_answers_total", &[]), 5098.0);
    let of_cpus = |scrape: &Exposition| scrape.sum("perf_cpu_asks_total", &[]);
    assert_eq!(of_cpus(&after) - of_cpus(&before), 5098.0);
    assert_eq!(advance("perf_process_asks_total", &[("comm", "asks")]), 4321.0);
    assert_eq!(advance("perf_cgroup_asks_total", &[("cgroup", cgroup.path())]), 4321.0);
    assert_eq!(after.sum("perf_ring_records_total", &[("ring", "tracepoints")]), 0.0, "records were written");
    assert_eq!(defined_by(&service), [""; 0], "probes were defined in tracefs");
}

#[test]
fn arguments_that_are_named_as_in_the_source_are_labels_sums_and_histograms() {
    let Some(_counters) = kprobes() else { return };
    let cgroup = TestCgroup::new("reads");
    let (mut worker, mut other) = (Worker::start("reads"), Worker::start("reads_too"));
    cgroup.take(worker.pid());
    let service = service(
        "probes:\n  \
         reads:\n    {kprobe: vfs_read, arguments: [count], filter: count == 7717 || count == 77170,\n     \
         labels: {size: count}, per: [host, cgroup, process]}\n  \
         asked_bytes:\n    {kprobe: vfs_read, arguments: [count], filter: count == 7717 || count == 77170,\n     \
         sum: {of: count, unit: bytes}, per: [host, cgroup]}\n  \
         size:\n    {kprobe: vfs_read, arguments: [\"n=$arg3:u64\"], filter: n == 7717 || n == 77170,\n     \
         histogram: {of: n, unit: bytes, buckets: [7716, 7717, 100000]}}\n  \
         got_bytes:\n    {kretprobe: vfs_read, arguments: [\"n=$retval:s64\"], filter: n == 77170,\n     \
         sum: {of: n, unit: bytes}}\n",
        &targets(&[&worker], &cgroup),
    );
    worker.calls(Calls::Read(7717), 300);
    worker.calls(Calls::Read(77_170), 40);
    other.calls(Calls::Read(7717), 11);
    let scrape = service.metrics();
    let value = |name: &str, labels: &[(&str, &str)]| {
        scrape.value(name, labels).unwrap_or_else(|| panic!("{name} {labels:?} is missing: {scrape:?}"))
    };
    assert_eq!(lost(&scrape), 0.0, "{scrape:?}");
    let own = ("cgroup", cgroup.path());
    assert_eq!(value("perf_probe_reads_total", &[("size", "7717")]), 311.0);
    assert_eq!(value("perf_probe_reads_total", &[("size", "77170")]), 40.0);
    assert_eq!(value("perf_cgroup_reads_total", &[("size", "7717"), own]), 300.0);
    assert_eq!(value("perf_process_reads_total", &[("size", "7717"), ("comm", "reads")]), 300.0);
    assert_eq!(value("perf_probe_asked_total", &[]), 351.0);
    assert_eq!(value("perf_probe_asked_bytes_total", &[]), 311.0 * 7717.0 + 40.0 * 77_170.0);
    assert_eq!(value("perf_cgroup_asked_bytes_total", &[own]), 300.0 * 7717.0 + 40.0 * 77_170.0);
    let below = |bound: &str| value("perf_probe_size_bytes_bucket", &[("le", bound)]);
    assert_eq!(["7716.0", "7717.0", "100000.0", "+Inf"].map(below), [0.0, 311.0, 351.0, 351.0]);
    assert_eq!(value("perf_probe_size_bytes_sum", &[]), 311.0 * 7717.0 + 40.0 * 77_170.0);
    assert_eq!(value("perf_probe_got_bytes_total", &[]), 40.0 * 77_170.0);
    assert_eq!(defined_by(&service).len(), 4, "{:?}", defined_by(&service));
}

#[test]
fn what_a_function_returns_is_a_label_with_its_sign() {
    let Some(_counters) = kprobes() else { return };
    let cgroup = TestCgroup::new("fails");
    let mut worker = Worker::start("fails");
    let service = service(
        "probes:\n  \
         failed: {kretprobe: do_sys_openat2, arguments: [\"error=$retval:s64\"], filter: error < 0, \
         labels: [error], per: [process]}\n  \
         open: {kprobe: do_sys_openat2, histogram: seconds, arguments: [\"path=filename\", \"code=$retval:s32\"], \
         labels: [code], per: [process]}\n",
        &targets(&[&worker], &cgroup),
    );
    worker.calls(Calls::Open(b"/nowhere"), 123);
    worker.calls(Calls::Open(b"/dev/null/nowhere"), 45);
    let scrape = service.metrics();
    // ENOENT and ENOTDIR.
    for (code, times) in [("-2", 123.0), ("-20", 45.0)] {
        let failed = scrape.value("perf_process_failed_total", &[("comm", "fails"), ("error", code)]);
        assert_eq!(failed, Some(times), "{scrape:?}");
        let timed = scrape.value("perf_process_open_seconds_count", &[("comm", "fails"), ("code", code)]);
        assert_eq!(timed, Some(times), "{scrape:?}");
    }
    assert_eq!(lost(&scrape), 0.0, "{scrape:?}");
}

#[test]
fn strings_of_a_program_and_its_name_are_labels_whatever_is_in_them() {
    let Some(_counters) = kprobes() else { return };
    let cgroup = TestCgroup::new("opens");
    let mut worker = Worker::start("opens");
    // The test harness names the thread.
    let task = list(Path::new(&format!("/proc/{}/task", worker.pid()))).unwrap().pop().unwrap();
    let comm = read_text(Path::new(&format!("/proc/{task}/comm"))).unwrap();
    let service = service(
        "probes:\n  \
         by_type: {kprobe: do_sys_openat2, arguments: [\"path=+0($arg2):ustring\", $comm], \
         filter: path ~ \"/nowhere/*\", labels: [path, arg2]}\n  \
         by_name: {kprobe: do_sys_openat2, arguments: [\"path=filename\", \"who=$comm\"], \
         filter: path ~ \"/nowhere/*\", labels: [path, who]}\n",
        &targets(&[&worker], &cgroup),
    );
    worker.calls(Calls::Open(b"/nowhere/to \"be\"\n\\seen"), 21);
    worker.calls(Calls::Open(b"/nowhere/\xff"), 12);
    worker.calls(Calls::Open(b"/elsewhere"), 5);
    let scrape = service.metrics();
    for (name, label) in [("perf_probe_by_type_total", "arg2"), ("perf_probe_by_name_total", "who")] {
        for (path, times) in [("/nowhere/to \"be\"\n\\seen", 21.0), ("/nowhere/\u{fffd}", 12.0)] {
            let labels = [("path", path), (label, &*comm)];
            assert_eq!(scrape.value(name, &labels), Some(times), "{name} {labels:?} {scrape:?}");
        }
        assert_eq!(scrape.sum(name, &[]), 33.0, "{name} {scrape:?}");
    }
}

#[test]
fn bytes_sent_over_tcp_are_added_up_by_port_and_cgroup() {
    let Some(_counters) = kprobes() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sink = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap()
    });
    let cgroup = TestCgroup::new("sends");
    let mut worker = Worker::start("sends");
    cgroup.take(worker.pid());
    let service = service(
        "probes:\n  \
         sent_bytes: {kprobe: tcp_sendmsg, arguments: [size, \"port=sk->__sk_common.skc_dport\"], \
         labels: [port], sum: {of: size, unit: bytes}, per: [host, cgroup]}\n",
        &targets(&[&worker], &cgroup),
    );
    worker.calls(Calls::Send(port, 70_001), 64);
    assert_eq!(sink.join().unwrap(), 64 * 70_001);
    let scrape = service.metrics();
    // In network byte order.
    let port = port.to_be().to_string();
    for (scope, owner) in [("probe", ("port", &*port)), ("cgroup", ("cgroup", cgroup.path()))] {
        let value =
            |name: &str| scrape.value(&format!("perf_{scope}_{name}"), &[("port", &port), owner]).unwrap();
        assert_eq!(value("sent_total"), 64.0, "{scrape:?}");
        assert_eq!(value("sent_bytes_total"), 64.0 * 70_001.0, "{scrape:?}");
    }
    assert_eq!(lost(&scrape), 0.0, "{scrape:?}");
}

/// Both workers sleep at the same time, on any CPU. Each return must be paired with the call of the same thread.
#[test]
fn the_time_in_a_function_is_that_of_the_thread_that_called_it() {
    let Some(_counters) = kprobes() else { return };
    let cgroup = TestCgroup::new("sleeps");
    let mut workers = [("long", 200, 10), ("short", 10, 100)]
        .map(|(comm, milliseconds, times)| (Worker::start(comm), comm, milliseconds, times));
    let service = service(
        "probes:\n  \
         sleep: {kprobe: hrtimer_nanosleep, per: [process], histogram: {unit: seconds, buckets: [0.009, 0.19]}}\n",
        &targets(&workers.each_ref().map(|(worker, ..)| worker), &cgroup),
    );
    for (worker, _, milliseconds, times) in &mut workers {
        worker.begin(&Calls::Sleep(*milliseconds).times(*times));
    }
    for (worker, ..) in &mut workers {
        worker.finish();
    }
    let scrape = service.metrics();
    for (_, comm, milliseconds, times) in &workers {
        let value = |name: &str, labels: &[(&str, &str)]| {
            let labels = [&[("comm", *comm)], labels].concat();
            scrape.value(&format!("perf_process_sleep_seconds_{name}"), &labels).unwrap_or_default()
        };
        let (times, milliseconds) = (*times as f64, *milliseconds as f64);
        assert_eq!(value("count", &[]), times, "{comm} {scrape:?}");
        // No sleep is shorter than requested, but two clocks may differ slightly.
        assert!(value("sum", &[]) > 0.95 * times * milliseconds / 1e3, "{comm} {scrape:?}");
        assert_eq!(value("bucket", &[("le", "0.009")]), 0.0, "{comm} {scrape:?}");
        if *comm == "long" {
            assert_eq!(value("bucket", &[("le", "0.19")]), 0.0, "{comm} {scrape:?}");
        }
    }
    assert_eq!(lost(&scrape), 0.0, "{scrape:?}");
}
