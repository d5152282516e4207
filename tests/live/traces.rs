//! Tracepoints of the kernel whose fields are labels and sums, compared with known work and with `perf stat`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use perf_exporter::host::read_text;

use crate::agreement::Counts;
use crate::functions::assert_nothing_lost;
use crate::perf::PerfStat;
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::program::Program;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually, lacks};

/// Starts a service with these entries, one per line.
fn tracing(entries: &[&str], more: &str) -> Service {
    let entries: String = entries.iter().map(|entry| format!("  {entry}\n")).collect();
    Service::start_fresh(&format!(
        "counters: {{os: {{events: [context-switches], per: [cpu]}}}}\ntracepoints:\n{entries}{more}"
    ))
}

#[test]
fn forks_and_executions_are_counted_by_who_and_what() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Compiler) {
        return;
    }
    let program = Program::compile();
    let another = program.path().with_file_name("another");
    program.copy_to(&another);
    let mut running = program.start();
    let (pid, parent) = (running.pid().to_string(), format!("forks{}", std::process::id()));
    running.does_with("is_called", parent.as_bytes());
    let service = tracing(
        &[
            "forks: {event: \"sched:sched_process_fork\", labels: {parent: parent_comm}, per: [host, process], \
             values: 10000}",
            "execs: {event: \"sched:sched_process_exec\", labels: [filename], values: 10000}",
            "life: {events: [\"sched:sched_process_fork\", \"sched:sched_process_exec\"], labels: {tid: $tid}, \
             per: [process], values: 10000}",
        ],
        &format!("processes: {{include: [{{pid: {pid}}}], by: [pid]}}\n"),
    );
    running.does("forks 20");
    running.executes(&another);
    running.does("forks 3");
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    let forks = |parent: &str| metrics.value("perf_tracepoint_forks_total", &[("parent", parent)]);
    assert_eq!(forks(&parent), Some(20.0), "{metrics:?}");
    let forks =
        |parent: &str| metrics.value("perf_process_forks_total", &[("pid", &pid), ("parent", parent)]);
    assert_eq!((forks(&parent), forks("another")), (Some(20.0), Some(3.0)), "{metrics:?}");
    let file = another.display().to_string();
    assert_eq!(
        metrics.value("perf_tracepoint_execs_total", &[("filename", &file)]),
        Some(1.0),
        "{metrics:?}"
    );
    let life = |event: &str| {
        let labels = [("pid", &*pid), ("tid", &*pid), ("event", event)];
        metrics.value("perf_process_life_total", &labels)
    };
    let life = ["sched:sched_process_fork", "sched:sched_process_exec"].map(life);
    assert_eq!(life, [Some(23.0), Some(1.0)], "{metrics:?}");
}

#[test]
fn a_process_that_exits_under_a_hostile_name_is_counted_under_it() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Compiler) {
        return;
    }
    let program = Program::compile();
    let service =
        tracing(&["exits: {event: \"sched:sched_process_exit\", labels: [comm], values: 10000}"], "");
    let name = [b"\"\\\n\xff".as_slice(), std::process::id().to_string().as_bytes()].concat();
    let mut running = program.start();
    running.does_with("is_called", &name);
    running.ends();
    let metrics = service.metrics();
    let name = String::from_utf8_lossy(&name);
    assert_eq!(metrics.value("perf_tracepoint_exits_total", &[("comm", &name)]), Some(1.0), "{metrics:?}");
}

#[test]
fn system_calls_are_counted_by_process_and_cgroup_through_records_as_without() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Cgroup) {
        return;
    }
    let cgroup = TestCgroup::new("traces");
    let (mut one, mut other) = (Worker::start("records1"), Worker::start("records2"));
    cgroup.take(one.pid());
    cgroup.take(other.pid());
    let event = "event: \"syscalls:sys_enter_getppid\", per: [process, cgroup]";
    let service = tracing(
        &[&format!("plain: {{{event}}}"), &format!("records: {{{event}, labels: {{number: __syscall_nr}}}}")],
        &format!(
            "processes: {{include: [{{comm: \"records*\"}}], by: [comm], attribution: dedicated}}\n\
             cgroups: {{include: [\"{}\"], attribution: dedicated}}\n",
            cgroup.path()
        ),
    );
    one.does(Work::Getppid(4321));
    other.does(Work::Getppid(1234));
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    for entry in ["plain", "records"] {
        let calls = |comm: &str| metrics.value(&format!("perf_process_{entry}_total"), &[("comm", comm)]);
        assert_eq!(
            [calls("records1"), calls("records2")],
            [Some(4321.0), Some(1234.0)],
            "{entry}: {metrics:?}"
        );
        let calls = metrics.value(&format!("perf_cgroup_{entry}_total"), &[("cgroup", cgroup.path())]);
        assert_eq!(calls, Some(5555.0), "{entry}: {metrics:?}");
    }
    let labels = [("comm", "records1"), ("number", &*libc::SYS_getppid.to_string())];
    assert_eq!(metrics.value("perf_process_records_total", &labels), Some(4321.0), "{metrics:?}");
}

#[test]
fn filters_are_the_kernels_and_one_that_it_refuses_is_shown_in_its_words() {
    if [Feature::Tracepoint, Feature::Tracefs, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let (mut running, parent) = (Program::compile().start(), format!("filter{}", std::process::id()));
    running.does_with("is_called", parent.as_bytes());
    let event = "event: \"sched:sched_process_fork\", labels: [parent_comm], values: 10000";
    let mut service = tracing(
        &[
            &format!("by_number: {{{event}, filter: \"parent_pid == {}\"}}", running.pid()),
            &format!("by_name: {{{event}, filter: 'parent_comm == \"{parent}\"'}}"),
            &format!("by_pattern: {{{event}, filter: 'parent_comm ~ \"filter*\" && child_pid > 0'}}"),
            &format!("by_none: {{{event}, filter: \"parent_pid == {} && child_pid < 0\"}}", running.pid()),
            "misspelt: {event: \"sched:sched_process_fork\", filter: \"parent_pidd == 1\"}",
        ],
        "",
    );
    running.does("forks 15");
    let metrics = service.metrics();
    let forks =
        |entry: &str| metrics.value(&format!("perf_tracepoint_{entry}_total"), &[("parent_comm", &*parent)]);
    assert_eq!(["by_number", "by_name", "by_pattern"].map(forks), [Some(15.0); 3], "{metrics:?}");
    assert_eq!(metrics.sum("perf_tracepoint_by_name_total", &[]), 15.0, "{metrics:?}");
    assert_eq!(metrics.sum("perf_tracepoint_by_none_total", &[]), 0.0, "{metrics:?}");
    service.has_logged(&["did you mean parent_pid"]);
    let check = Command::new(env!("CARGO_BIN_EXE_perf-exporter"))
        .args(["check", "--config"])
        .arg(&service.configuration)
        .output()
        .unwrap();
    let said = [check.stdout, check.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let caret = lines.iter().position(|line| *line == "^").unwrap_or_else(|| panic!("no caret: {said}"));
    assert!(lines[caret - 1].contains("parent_pidd == 1"), "{said}");
    assert_eq!(lines[caret + 1], "Field not found", "{said}");
}

#[test]
fn addresses_of_the_kernel_are_functions_in_labels() {
    if lacks(Feature::Tracepoint) {
        return;
    }
    let known: BTreeSet<String> = read_text(Path::new("/proc/kallsyms"))
        .unwrap()
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(2).map(str::to_owned))
        .collect();
    let service = tracing(
        &["work: {event: \"workqueue:workqueue_queue_work\", labels: {function: function}, values: 10000}"],
        "",
    );
    // The kernel itself queues work every second or two.
    let metrics = eventually("a work item was queued", || {
        let metrics = service.metrics();
        (metrics.by("perf_tracepoint_work_total", "function").count() >= 3).then_some(metrics)
    });
    for (function, queued) in metrics.by("perf_tracepoint_work_total", "function") {
        assert!(known.contains(function) && queued >= 1.0, "{function:?} {queued}");
    }
}

/// A loop device on a file, detached when it is dropped.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl LoopDevice {
    pub(crate) fn of(bytes: u64) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { path: String::from_utf8(output.stdout).unwrap().trim_end().into(), _file: file }
    }

    /// Returns its device number, `MAJOR,MINOR`.
    pub(crate) fn numbers(&self) -> String {
        let device = rustix::fs::stat(&self.path).unwrap().st_rdev;
        format!("{},{}", rustix::fs::major(device), rustix::fs::minor(device))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("--detach").arg(&self.path).status());
    }
}

#[test]
fn requests_to_a_block_device_are_counted_by_size_and_each_has_its_time() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Loop) {
        return;
    }
    let device = LoopDevice::of(4 << 20);
    let written = || {
        let service = tracing(
            &[
                "written: {event: \"block:block_rq_issue\", labels: {device: dev, op: rwbs}, \
                 histogram: {of: bytes, unit: bytes, buckets: [4096, 8192, 16384]}}",
                "sectors: {event: \"block:block_rq_complete\", labels: {device: dev, op: rwbs}, \
                 sum: {of: nr_sector, unit: sectors}}",
                "latency: {from: \"block:block_rq_issue\", to: \"block:block_rq_complete\", key: [dev, sector], \
                 labels: {device: dev, op: from.rwbs}}",
            ],
            "",
        );
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=8192", "count=100", "oflag=direct", "status=none"]);
        assert!(dd.arg(format!("of={}", device.path.display())).status().unwrap().success());
        // A hit that the kernel counted without a record is known to be lost at the next collection.
        service.metrics();
        service.metrics()
    };
    // All block requests of the host use the same rings, and other processes may cause too many.
    let lost = |metrics: &Exposition| metrics.sum("perf_lost_records_total", &[("ring", "tracepoints")]);
    let metrics = (0..5)
        .map(|_| written())
        .find(|metrics| lost(metrics) == 0.0)
        .expect("an attempt without lost records");
    assert_nothing_lost(&metrics);
    // Other processes may read from a new device, but only the test writes to it synchronously.
    let writes = [("device", &*device.numbers()), ("op", "WS")];
    let value = |name: &str| metrics.value(&format!("perf_tracepoint_{name}"), &writes);
    assert_eq!(value("written_bytes_count"), Some(100.0), "{metrics:?}");
    assert_eq!(value("written_bytes_sum"), Some(819_200.0));
    let buckets = metrics.by_with("perf_tracepoint_written_bytes_bucket", &writes, "le");
    assert_eq!(
        buckets.collect::<Vec<_>>(),
        [("+Inf", 100.0), ("16384.0", 100.0), ("4096.0", 0.0), ("8192.0", 100.0)]
    );
    assert_eq!(value("sectors_total"), Some(100.0));
    assert_eq!(value("sectors_bytes_total"), Some(819_200.0));
    assert_eq!(value("latency_seconds_count"), Some(100.0), "{metrics:?}");
    assert!(value("latency_seconds_sum").is_some_and(|seconds| seconds > 0.0));
}

/// Events that are compared with perf, and the entry that decodes them.
const AGREED: [(&str, &str); 3] = [
    ("sched:sched_switch", "switches"),
    ("sched:sched_process_fork", "forks"),
    ("syscalls:sys_enter_getppid", "asks"),
];

const ENTRIES: [&str; 3] = [
    "switches: {event: \"sched:sched_switch\", labels: {state: prev_state}, per: [cpu, process]}",
    "forks: {event: \"sched:sched_process_fork\", labels: [parent_comm], per: [cpu, process]}",
    "asks: {event: \"syscalls:sys_enter_getppid\", labels: {nr: __syscall_nr}, per: [cpu, process]}",
];

/// Reads twice at each end, as in [`agreement`](crate::agreement), while `work` runs.
fn compare(
    service: &Service,
    whom: &[&str],
    value: impl Fn(&Exposition, &str) -> f64,
    work: impl FnOnce(),
) -> [Counts; 3] {
    let mut perf = PerfStat::open(&AGREED.map(|(event, _)| event), whom);
    let mut readings = vec![service.metrics()];
    perf.enable();
    readings.push(service.metrics());
    work();
    readings.push(service.metrics());
    perf.disable();
    readings.push(service.metrics());
    assert_nothing_lost(&readings[3]);
    let perf = perf.counts();
    AGREED.map(|(event, entry)| {
        let between =
            |begin: usize, end: usize| value(&readings[end], entry) - value(&readings[begin], entry);
        Counts { event, inner: between(1, 2), perf: perf.of(event), outer: between(0, 3) }
    })
}

#[test]
fn tracepoints_of_a_process_are_counted_as_perf_counts_them() {
    if lacks(Feature::Perf) || lacks(Feature::Tracepoint) {
        return;
    }
    let mut worker = Worker::start("agreed");
    let pid = worker.pid().to_string();
    let service = tracing(&ENTRIES, &format!("processes: {{include: [{{pid: {pid}}}], by: [comm]}}\n"));
    let value = |metrics: &Exposition, entry: &str| metrics.sum(&format!("perf_process_{entry}_total"), &[]);
    let counts = compare(&service, &["-p", &pid], value, || {
        worker.does(Work::Naps(300));
        worker.does(Work::Getppid(1000));
        (0..3).for_each(|_| worker.starts_thread());
    });
    let [switches, forks, asks] = &counts;
    let worked = switches.inner >= 200.0 && forks.inner >= 3.0 && asks.inner >= 1000.0;
    let agree = |counts: &Counts| counts.are_in_order() && counts.agree_to(0.01);
    assert!(worked && counts.iter().all(agree), "\n{switches}\n{forks}\n{asks}");
}

#[test]
fn tracepoints_of_the_whole_machine_are_counted_as_perf_counts_them() {
    if lacks(Feature::Perf) || lacks(Feature::Tracepoint) {
        return;
    }
    let mut worker = Worker::start("agreed");
    let service = tracing(&ENTRIES, "processes: {include: [{comm: nobody}], by: [comm]}\n");
    let value = |metrics: &Exposition, entry: &str| metrics.sum(&format!("perf_cpu_{entry}_total"), &[]);
    let counts = compare(&service, &["-a"], value, || {
        worker.does(Work::Naps(300));
        worker.does(Work::Getppid(1000));
        worker.does(Work::Children(10));
    });
    let [switches, forks, asks] = &counts;
    let worked = switches.inner >= 200.0 && forks.inner >= 10.0 && asks.inner >= 1000.0;
    assert!(worked && counts.iter().all(Counts::are_in_order), "\n{switches}\n{forks}\n{asks}");
}
