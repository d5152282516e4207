//! Processes that end while the events of their target are opened.

use std::process::{Child, Command, Stdio};

use crate::support::program::Program;
use crate::support::{Feature, eventually, lacks};

const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// A user without other processes.
const USER: u32 = 65_531;

/// A program that is killed at the end of the test.
struct Storm(Child);

impl Drop for Storm {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Starts the program, of which many children end each millisecond.
fn storm(program: &Program) -> Storm {
    let user = USER.to_string();
    let mut command = Command::new(program.path());
    let storm = Storm(command.args(["storm", &user]).stdin(Stdio::null()).spawn().unwrap());
    let listed = || Command::new("pgrep").args(["-u", &user]).output().unwrap().stdout;
    eventually("the children run", || (listed().split(|&byte| byte == b'\n').count() > 30).then_some(()));
    storm
}

#[test]
fn processes_of_a_user_that_end_before_they_are_opened_are_skipped() {
    let features = [Feature::Software, Feature::Tracepoint, Feature::Compiler];
    if features.into_iter().any(lacks) || !rustix::process::geteuid().is_root() {
        return;
    }
    let (program, dir) = (Program::compile_scheduled(), tempfile::tempdir().unwrap());
    let user = USER.to_string();
    let storm = storm(&program);
    let recording = dir.path().join("recording.data").to_str().unwrap().to_owned();
    for arguments in [
        &["trace", "-s"][..],
        &["sched", "latency"],
        &["stat", "-e", "context-switches"],
        &["record", "-e", "cpu-clock", "-o", &recording],
    ] {
        let mut command = Command::new(PERF_EXPORTER);
        command.args(arguments).args(["-u", &user, "--", "sleep", "0.3"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    drop(storm);
    // The children that the program left end by themselves.
    eventually("the user has no process", || {
        let pgrep = Command::new("pgrep").args(["-u", &user]).output().unwrap();
        pgrep.stdout.is_empty().then_some(())
    });
    let arguments = ["trace", "-u", &user, "--time-limit", "1"];
    let output = Command::new(PERF_EXPORTER).args(arguments).stdin(Stdio::null()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains(&format!("user {user} has no process")), "{message}");
}
