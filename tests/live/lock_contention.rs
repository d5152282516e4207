//! `perf-exporter lock contention`: waits for locks of the kernel, beside `perf lock contention` in the same seconds.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::perf_tables::waits as rows;
use crate::support::program::Program;
use crate::support::{Feature, lacks};

const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// Threads that map and unmap memory, and how often each does.
const CONTEND: [&str; 3] = ["contend", "8", "1500"];

fn lacks_locks() -> bool {
    let lacks_features =
        [Feature::Software, Feature::Tracepoint, Feature::Compiler, Feature::Perf].into_iter().any(lacks);
    // The tracepoints exist since Linux 5.19.
    lacks_features || !Path::new("/sys/kernel/tracing/events/lock/contention_begin").exists()
}

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn waits_for_the_lock_of_the_mappings_are_those_of_perf() {
    if lacks_locks() {
        return;
    }
    let (dir, program) = (tempfile::tempdir().unwrap(), Program::compile_scheduled());
    let data = dir.path().join("perf.data").to_str().unwrap().to_owned();
    // perf also records perf-exporter, which waits rarely.
    let mut command = Command::new("perf");
    command.args([
        "lock",
        "record",
        "-m",
        "4M",
        "-o",
        &data,
        "--",
        PERF_EXPORTER,
        "lock",
        "contention",
        "--",
    ]);
    let printed = output(command.arg(program.path()).args(CONTEND));
    // perf prints this table to standard error.
    let table = Command::new("perf").args(["lock", "contention", "--stack-skip", "0", "-i", &data]).output();
    let (ours, theirs) = (rows(&printed), rows(&String::from_utf8(table.unwrap().stderr).unwrap()));
    let mut compared = 0.0;
    for (row, (contended, total)) in &ours {
        if !row.starts_with("rwsem:") {
            continue;
        }
        let (of_perf, total_of_perf) = theirs.get(row).copied().unwrap_or_default();
        assert!((contended - of_perf).abs() <= of_perf * 0.1 + 3.0, "{row}:\n{printed}\nperf: {theirs:?}");
        assert!(
            (total - total_of_perf).abs() <= total_of_perf * 0.05 + 5.0,
            "{row}:\n{printed}\nperf: {theirs:?}"
        );
        compared += contended;
    }
    assert!(compared >= 10.0, "the threads did not wait: {printed}");
}

#[test]
fn the_lock_of_the_mappings_is_one_row_and_each_thread_waits() {
    if lacks_locks() {
        return;
    }
    let program = Program::compile_scheduled();
    let table = |option: &str, sort: &[&str]| {
        let mut command = Command::new(PERF_EXPORTER);
        command.args(["lock", "contention", option]).args(sort).args(["-Y", "rwsem", "--"]);
        rows(&output(command.arg(program.path()).args(CONTEND)))
    };
    let locks = table("-l", &["-E", "1"]);
    let (lock, (contended, _)) = locks.iter().next().expect("a lock");
    assert!(lock.starts_with("0xffff") && *contended >= 5.0, "{locks:?}");
    let threads = table("--threads", &["-k", "contended"]);
    assert!(threads.len() >= 4 && threads.keys().all(|row| row.ends_with("scheduled")), "{threads:?}");
    let stacks = table("-v", &[]);
    assert!(stacks.keys().any(|row| row.contains("munmap+0x")), "{stacks:?}");
}

#[test]
fn a_kernel_without_the_tracepoints_is_an_error_with_the_reason() {
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/hosts/vm");
    let command = Command::new(PERF_EXPORTER)
        .args(["--host-root", host, "lock", "contention", "--time-limit", "1"])
        .output()
        .unwrap();
    assert_eq!(command.status.code(), Some(1));
    let message = String::from_utf8(command.stderr).unwrap();
    assert!(message.contains("lock:contention_begin, lock:contention_end"), "{message}");
    assert!(message.contains("absent: this kernel has no tracepoint system lock"), "{message}");
}
