//! System calls of a program that makes known calls, compared with its own report and with `strace`.

use std::path::PathBuf;
use std::process::Command;

use perf_exporter::host::read_text;

use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::program::{Program, Running};
use crate::support::service::{Service, get_path};
use crate::support::{Feature, eventually, lacks};

fn lacks_any() -> bool {
    [Feature::Tracepoint, Feature::Tracefs, Feature::Compiler].into_iter().any(lacks)
}

/// Starts a service that traces the system calls of a process.
fn calling(running: &Running, section: &str, more: &str) -> Service {
    Service::start_fresh(&format!(
        "counters: {{os: {{events: [context-switches], per: [cpu]}}}}\nprofiles: {{}}\nscheduler: {{per: []}}\n\
         syscalls: {{{section}}}\nprocesses: {{include: [{{pid: {}}}], by: [pid]}}\nlimits: {{cpu: off}}\n{more}",
        running.pid()
    ))
}

#[test]
fn calls_and_their_errors_are_counted_to_the_last_one_by_process_and_cgroup() {
    if lacks_any() || lacks(Feature::Cgroup) {
        return;
    }
    let (program, cgroup) = (Program::compile_threads("caller"), TestCgroup::new("syscalls"));
    let mut worker = program.start();
    cgroup.take(worker.pid());
    let service = calling(
        &worker,
        "per: [host, cgroup, process], include: [getppid, \"open*\", close]",
        &format!("cgroups: {{include: [\"{}\"]}}\n", cgroup.path()),
    );
    let before = service.metrics();
    worker.does("calls 5000");
    worker.does("fails 300");
    let metrics = service.metrics();
    let pid = worker.pid().to_string();
    for (scope, who) in [("process", ("pid", &*pid)), ("cgroup", ("cgroup", cgroup.path()))] {
        let grew = |name: &str, labels: &[(&str, &str)]| {
            let (name, labels) = (format!("perf_{scope}_{name}"), [&[who], labels].concat());
            metrics.sum(&name, &labels) - before.sum(&name, &labels)
        };
        let calls = |call| grew("syscalls_total", &[("syscall", call)]);
        assert_eq!(
            [calls("getppid"), calls("openat"), calls("close")],
            [5000.0, 300.0, 300.0],
            "{metrics:?}"
        );
        let errors = |call, errno| grew("syscall_errors_total", &[("syscall", call), ("errno", errno)]);
        assert_eq!([errors("openat", "ENOENT"), errors("close", "EBADF")], [300.0, 300.0], "{metrics:?}");
        assert_eq!(grew("syscall_duration_seconds_count", &[("syscall", "getppid")]), 5000.0);
        assert_eq!(grew("syscalls_total", &[("syscall", "write")]), 0.0, "this call is not included");
    }
    assert!(metrics.sum("perf_syscalls_total", &[("syscall", "getppid")]) >= 5000.0);
    assert_eq!(metrics.sum("perf_syscalls_total", &[("syscall", "write")]), 0.0);
}

#[test]
fn a_sleep_lasts_as_long_as_it_was_asked_for() {
    if lacks_any() {
        return;
    }
    let program = Program::compile_threads("sleeps");
    let mut worker = program.start();
    let service = calling(&worker, "per: [process], include: [\"*nanosleep\"]", "");
    let delayed = |pid: u32| {
        let schedstat = read_text(&PathBuf::from(format!("/proc/{pid}/schedstat"))).unwrap();
        schedstat.split_ascii_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1e9
    };
    let before = delayed(worker.pid());
    worker.does("sleeps 40 25000");
    // A woken thread may have to wait for a CPU.
    let delayed = delayed(worker.pid()) - before;
    let metrics = service.metrics();
    // The C library uses one of two calls to sleep, depending on the machine.
    let of = |name: &str| {
        let calls = ["nanosleep", "clock_nanosleep"];
        calls.iter().map(|call| metrics.sum(name, &[("syscall", call)])).sum::<f64>()
    };
    assert_eq!(of("perf_process_syscall_duration_seconds_count"), 40.0, "{metrics:?}");
    let slept = of("perf_process_syscall_duration_seconds_sum");
    assert!(
        (1.0..1.05 + delayed).contains(&slept),
        "40 sleeps of 25 ms are not {slept} s, of which {delayed} s were runqueue latency"
    );
}

#[test]
fn who_is_stuck_is_told_in_which_call_and_for_how_long() {
    if lacks_any() {
        return;
    }
    let program = Program::compile_threads("stuck");
    let mut worker = program.start();
    let service = calling(&worker, "per: [host, process], include: [pause, ppoll], stuck: 200ms", "");
    let tid = worker.does("sticks");
    // On machines without `pause`, the C library uses `ppoll`.
    let calls = ["pause", "ppoll"];
    let of = |metrics: &Exposition, name: &str| {
        calls.iter().map(|call| metrics.sum(name, &[("syscall", call)])).sum::<f64>()
    };
    let metrics = eventually("a thread is in a call", || {
        let metrics = service.metrics();
        (of(&metrics, "perf_process_syscalls_stuck") > 0.0).then_some(metrics)
    });
    assert_eq!(of(&metrics, "perf_process_syscalls_stuck"), 1.0, "{metrics:?}");
    let longest = of(&metrics, "perf_process_syscalls_stuck_longest_seconds");
    assert!((0.2..30.0).contains(&longest), "{longest}");
    let (_, status) = get_path(&service.address, "/api/v1/status");
    assert!(status.contains(&format!("\"tid\": {tid}")), "{status}");
    drop(worker);
    let metrics = service.metrics();
    assert_eq!(metrics.sum("perf_process_syscalls_stuck", &[]), 0.0, "{metrics:?}");
}

#[test]
fn programs_of_32_bits_have_numbers_of_their_own_and_the_same_names() {
    if lacks_any() {
        return;
    }
    let Some(program) = Program::compile_narrow() else {
        eprintln!("skipped: this machine cannot run 32-bit programs");
        return;
    };
    let mut worker = program.start();
    let service = calling(&worker, "per: [process], include: [getppid, semget]", "");
    worker.does("calls");
    let metrics = service.metrics();
    let calls = |call| metrics.sum("perf_process_syscalls_total", &[("syscall", call)]);
    // 64 is getppid in 32-bit programs, and semget in others.
    assert_eq!([calls("getppid"), calls("semget")], [100.0, 0.0], "{metrics:?}");
}

#[test]
fn calls_that_the_filter_leaves_out_lack_no_beginning() {
    if lacks_any() {
        return;
    }
    let program = Program::compile_threads("filtered");
    let mut worker = program.start();
    // The number of read in 32-bit programs is that of close in others.
    let service = calling(&worker, "per: [process], include: [read, clone, clone3]", "");
    let unbegun = |metrics: &Exposition| {
        metrics.sum("perf_untracked_events_total", &[("section", "syscalls"), ("reason", "no_begin")])
    };
    let before = unbegun(&service.metrics());
    worker.does("fails 1000");
    worker.does("bears 100 0");
    let metrics = service.metrics();
    let calls = |call| metrics.sum("perf_process_syscalls_total", &[("syscall", call)]);
    assert_eq!((calls("close"), calls("clone") + calls("clone3")), (0.0, 100.0), "{metrics:?}");
    // Other programs may have been in a call when the service started to trace.
    let grown = unbegun(&metrics) - before;
    assert!(grown < 50.0, "{grown} calls without an entry");
}

#[test]
fn strace_counts_the_same() {
    if lacks_any() || lacks(Feature::Strace) {
        return;
    }
    let program = Program::compile_threads("straced");
    let mut worker = program.start();
    let service = calling(&worker, "per: [process]", "");
    let pid = worker.pid().to_string();
    let report = std::env::temp_dir().join(format!("strace-{pid}"));
    let mut strace =
        Command::new("strace").args(["-c", "-f", "-p", &pid, "-o"]).arg(&report).spawn().unwrap();
    let traced = PathBuf::from(format!("/proc/{pid}/status"));
    eventually("strace has attached", || {
        let status = read_text(&traced).ok()?;
        (!status.contains("TracerPid:\t0\n")).then_some(())
    });
    let before = service.metrics();
    worker.does("calls 700");
    worker.does("fails 90");
    let metrics = service.metrics();
    let stop = rustix::process::Pid::from_raw(strace.id() as i32).unwrap();
    rustix::process::kill_process(stop, rustix::process::Signal::INT).unwrap();
    strace.wait().unwrap();
    let table = read_text(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    for call in ["getppid", "openat", "close"] {
        let line =
            table.lines().find(|line| line.split_ascii_whitespace().next_back() == Some(call)).unwrap();
        let theirs: f64 = line.split_ascii_whitespace().nth(3).unwrap().parse().unwrap();
        let name = "perf_process_syscalls_total";
        let ours = metrics.sum(name, &[("syscall", call)]) - before.sum(name, &[("syscall", call)]);
        assert_eq!(ours, theirs, "{call}: {table}");
    }
}
