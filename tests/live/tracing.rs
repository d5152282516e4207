//! `perf-exporter trace`: calls of a program that makes known calls, with exact counts and times.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::support::cgroup::TestCgroup;
use crate::support::program::Program;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually, lacks};

const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

fn lacks_tracing() -> bool {
    [Feature::Software, Feature::Tracepoint, Feature::Compiler].into_iter().any(lacks)
}

fn trace(arguments: &[&str]) -> Command {
    let mut command = Command::new(PERF_EXPORTER);
    // The loader would search for libraries in each directory of this variable.
    command.env_remove("LD_LIBRARY_PATH");
    command.arg("trace").args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
    command
}

/// Returns the output for the program that makes known calls.
fn of_calls(arguments: &[&str], program: &Program) -> String {
    let output = trace(arguments).arg("--").arg(program.path()).arg("calls").output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Parses a summary: calls, errors and milliseconds of each call.
fn summary(text: &str) -> BTreeMap<&str, (u64, u64, f64)> {
    let row = |line: &'_ str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, calls, errors, total, ..] = words[..] else { return None };
        Some((calls.parse().ok()?, errors.parse().ok()?, total.parse().ok()?))
    };
    text.lines().filter_map(|line| Some((line.split_whitespace().next()?, row(line)?))).collect()
}

/// Returns the same from `strace -c`, without times.
fn strace(program: &Program) -> Option<BTreeMap<String, (u64, u64)>> {
    let mut command = Command::new("strace");
    command
        .env_remove("LD_LIBRARY_PATH")
        .args(["-c", "-f", "--"])
        .arg(program.path())
        .arg("calls")
        .stdin(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stderr).ok()?;
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, figures) = words.split_last()?;
        let number = |at: usize| figures.get(at).map_or(Some(0), |word| word.parse().ok());
        let calls = figures.get(3)?.parse().ok()?;
        (*name != "total").then_some(((*name).to_owned(), (calls, number(4)?)))
    });
    Some(rows.collect())
}

#[test]
fn calls_errors_and_times_of_a_program_are_what_it_did() {
    if lacks_tracing() {
        return;
    }
    let program = Program::compile_scheduled();
    let text = of_calls(&["-s"], &program);
    let found = summary(&text);
    assert_eq!(found["getppid"].0, 1000, "{text}");
    assert_eq!(found["openat"].1, 100, "{text}");
    let slept = text.lines().find_map(|line| line.strip_prefix("slept ")).unwrap();
    let slept = slept.parse::<f64>().unwrap() / 1e6;
    let (naps, _, total) = found.get("clock_nanosleep").or_else(|| found.get("nanosleep")).unwrap();
    assert_eq!(*naps, 20);
    assert!(*total <= slept && *total >= slept * 0.95, "{total} of {slept} ms");
}

#[test]
fn every_call_is_counted_that_strace_counts() {
    if lacks_tracing() {
        return;
    }
    let program = Program::compile_scheduled();
    let Some(mut theirs) = strace(&program) else {
        eprintln!("skipped: there is no strace, or it may not trace");
        return;
    };
    // This call is made before tracing begins, and the program exits like every other program.
    theirs.remove("execve");
    let text = of_calls(&["-s"], &program);
    let ours: BTreeMap<String, (u64, u64)> = summary(&text)
        .into_iter()
        .map(|(name, (calls, errors, _))| (name.to_owned(), (calls, errors)))
        .filter(|(name, _)| name != "slept")
        .collect();
    assert_eq!(ours, theirs, "{text}");
}

#[test]
fn only_the_calls_are_shown_that_were_asked_for() {
    if lacks_tracing() {
        return;
    }
    let program = Program::compile_scheduled();
    let calls = |arguments: &[&str]| -> Vec<String> {
        let text = of_calls(arguments, &program);
        text.lines().filter(|line| line.contains(" ms): ")).map(str::to_owned).collect()
    };
    let failed = calls(&["-e", "open*", "--failure"]);
    assert_eq!(failed.len(), 100);
    let expected = |line: &String| {
        line.contains(": scheduled/")
            && line.contains(" openat(dfd: CWD, filename: 0x")
            && line.ends_with(" = -1 ENOENT (No such file or directory)")
    };
    assert!(failed.iter().all(expected), "{:?}", failed.first());
    assert_eq!(calls(&["-e", "getppid"]).len(), 1000);
    let long = calls(&["--duration", "4.9"]);
    assert_eq!(long.iter().filter(|line| line.contains("nanosleep(")).count(), 20, "{long:?}");
    let others = calls(&["-e", "!getppid,*sleep"]);
    assert!(others.iter().any(|line| line.contains(" openat(")));
    assert!(!others.iter().any(|line| line.contains(" getppid(") || line.contains("sleep(")));
}

#[test]
fn a_call_that_never_ends_is_shown_without_a_result() {
    if lacks_tracing() {
        return;
    }
    let text = of_calls(&["-e", "exit_group"], &Program::compile_scheduled());
    let line = text.lines().find(|line| line.contains("exit_group(")).unwrap();
    assert!(line.contains("(         ): ") && line.ends_with(" = ?"), "{line}");
}

/// Returns the summary for `whom`, while the worker makes a thousand calls that no other process makes.
fn of_the_worker(whom: &[&str], worker: &mut Worker) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (begun, done) = (dir.path().join("begun"), dir.path().join("done"));
    // The command starts when tracing is enabled, and exits when the work is done.
    let script = format!("touch {} && until [ -e {} ]; do sleep 0.05; done", begun.display(), done.display());
    let arguments = [&["-s"], whom, &["--", "sh", "-c", &script]].concat();
    let child = trace(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    eventually("tracing is enabled", || begun.exists().then_some(()));
    worker.does(Work::Getppid(1000));
    std::fs::write(done, "").unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn a_process_is_followed_and_nobody_else() {
    if lacks_tracing() {
        return;
    }
    let (mut worker, mut other) = (Worker::start("traced"), Worker::start("untraced"));
    let pid = worker.pid().to_string();
    other.does(Work::Getppid(7));
    let text = of_the_worker(&["-p", &pid], &mut worker);
    assert_eq!(summary(&text)["getppid"].0, 1000, "{text}");
    assert_eq!(text.matches(" events, ").count(), 1, "the calls of exactly one thread are expected: {text}");
}

#[test]
fn a_cgroup_is_followed_and_nobody_else() {
    if lacks_tracing() || lacks(Feature::Cgroup) {
        return;
    }
    let cgroup = TestCgroup::new("traced");
    {
        let mut worker = Worker::start("traced_too");
        cgroup.take(worker.pid());
        let text = of_the_worker(&["-G", cgroup.path()], &mut worker);
        assert_eq!(summary(&text)["getppid"].0, 1000, "{text}");
        assert_eq!(text.matches(" events, ").count(), 1, "{text}");
    }
}

#[test]
fn the_exit_code_is_that_of_the_command_and_2_for_a_call_that_is_none() {
    if lacks_tracing() {
        return;
    }
    let code = |arguments: &[&str]| {
        trace(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code()
    };
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["--", "/nowhere/at/all"]), Some(127));
    assert_eq!(code(&["-e", "opennat", "--", "true"]), Some(2));
}

/// Returns the flags and constants of the calls of a trace that map and open files, in their order.
fn words(text: &str) -> Vec<String> {
    let calls = ["openat(", "mmap(", "mprotect(", "access(", "ioctl("];
    let lines = text.lines().filter(|line| calls.iter().any(|call| line.contains(call)));
    let argument = |argument: &&str| {
        ["flags: ", "prot: ", "mode: R", "cmd: "].iter().any(|name| argument.starts_with(name))
    };
    let arguments = |line: &str| -> Vec<String> {
        let (_, rest) = line.split_once('(').unwrap().1.split_once('(').unwrap();
        let written = rest.split(')').next().unwrap();
        written.split(", ").filter(argument).map(str::to_owned).collect()
    };
    lines.flat_map(arguments).collect()
}

#[test]
fn flags_and_constants_have_the_words_of_perf_trace() {
    if lacks_tracing() || lacks(Feature::Perf) {
        return;
    }
    let ours = trace(&["--", "ls", "/"]).output().unwrap();
    let mut perf = Command::new("perf");
    perf.env_remove("LD_LIBRARY_PATH").args(["trace", "--", "ls", "/"]).stdin(Stdio::null());
    let perf = perf.output().unwrap();
    assert!(ours.status.success() && perf.status.success(), "{perf:?}");
    let [mut ours, perf] = [ours.stdout, perf.stderr].map(|bytes| words(&String::from_utf8(bytes).unwrap()));
    // Perf omits arguments that are 0.
    ours.retain(|argument| argument != "flags: RDONLY");
    assert!(perf.len() > 20, "{perf:?}");
    assert_eq!(ours, perf);
}
