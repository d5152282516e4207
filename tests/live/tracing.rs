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

/// A call as both print it: its name, its arguments by name, and its result.
type Printed<'t> = (&'t str, BTreeMap<&'t str, &'t str>, &'t str);

/// Parses the lines of a trace, in the order in which the calls began.
fn calls(text: &str) -> Vec<Printed<'_>> {
    text.lines().filter_map(call).collect()
}

fn call(line: &str) -> Option<Printed<'_>> {
    let (_, rest) = line.split_once(" ms): ").or_else(|| line.split_once("(         ): "))?;
    let (call, result) =
        rest.split_once(") ").and_then(|(call, rest)| Some((call, rest.rsplit_once("= ")?.1)))?;
    let (name, arguments) = call.split_once(' ').unwrap_or(("", call)).1.split_once('(')?;
    let arguments = arguments.split(", ").filter_map(|argument| argument.split_once(": ")).collect();
    Some((name, arguments, result.trim()))
}

/// Reports whether an argument or result means the same.
fn is_same(own: &str, perf: &str) -> bool {
    let number = |text: &str| {
        let text = text.split('<').next().unwrap_or_default();
        match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
            (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
            (_, Some(digits)) => u64::from_str_radix(digits, 8).ok(),
            _ => text.parse().ok(),
        }
    };
    let words = |text: &str| {
        let is_word = |word: &str| word.starts_with(|letter: char| letter.is_ascii_uppercase());
        let mut words: Vec<String> = text.split('|').map(str::to_owned).collect();
        words.sort_unstable();
        text.split('|').all(is_word).then_some(words)
    };
    match (number(own), number(perf)) {
        // Perf prints the lower half of some addresses, and those of two runs differ.
        (Some(own), Some(perf)) => own == perf || own > 0xffff && perf > 0xffff,
        // Some flags have words here only.
        (None, Some(_)) => words(own).is_some(),
        // Modes have words in perf only.
        (Some(_), None) => own.starts_with("0o") && perf.starts_with("IR"),
        // Perf prints no text for some, and others in another order.
        (None, None) => perf.is_empty() || own == perf || words(own).is_some() && words(own) == words(perf),
    }
}

/// Checks that a program makes the same calls with the same arguments and results in both. Returns their number.
fn traces_as_perf(program: &[&str]) -> usize {
    let run = |mut command: Command| {
        let output =
            command.args(["-e", "!brk,futex,rt_sigreturn,wait4", "--"]).args(program).output().unwrap();
        assert!(output.status.success(), "{program:?}: {output:?}");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let mut ours = trace(&["-o", "/dev/stderr"]);
    ours.stderr(Stdio::piped());
    let mut perf = Command::new("perf");
    perf.env_remove("LD_LIBRARY_PATH").arg("trace").stdin(Stdio::null());
    let (ours, perf) = (run(ours), run(perf));
    let (own, theirs) = (calls(&ours), calls(&perf));
    // Perf splits calls that are interrupted by others, and its first line is the end of the execve that starts the program.
    let is_whole = |(name, _, result): &&Printed<'_>| !name.ends_with("execve") && !result.contains("...");
    let (own, theirs): (Vec<_>, Vec<_>) =
        (own.iter().filter(is_whole).collect(), theirs.iter().filter(is_whole).collect());
    // The end of a call that perf split has no arguments.
    let continued = |name: &str| name.trim_start().strip_prefix("... [continued]: ").map(str::to_owned);
    let name = |(name, ..): &&Printed<'_>| continued(name).unwrap_or_else(|| (*name).to_owned());
    let names = |calls: &[&Printed<'_>]| calls.iter().map(name).collect::<Vec<_>>();
    assert_eq!(names(&own), names(&theirs), "{program:?}");
    let mut different = Vec::new();
    for ((name, own, result), (of_name, perf, of_perf)) in own.iter().zip(&theirs) {
        if *name != "set_tid_address" && !is_same(result, of_perf) {
            different.push(format!("{name} {own:?}: {result} instead of {of_perf}"));
        }
        if continued(of_name).is_some() {
            continue;
        }
        for (argument, value) in perf {
            let written = own.get(argument).copied().unwrap_or_default();
            if !is_same(written, value) {
                different.push(format!("{name} {argument}: {written} instead of {value}"));
            }
        }
        // Perf omits arguments that are 0, and those that a call does not use.
        for (argument, value) in own.iter().filter(|(argument, _)| !perf.contains_key(*argument)) {
            let zeros =
                ["0", "0x0", "0o0", "RDONLY", "NONE", "F", "SET", "HUP", "UNSPEC", "REALTIME", "BLOCK"];
            let is_unused = ["mmap fd", "fcntl arg"].contains(&&*format!("{name} {argument}"));
            if !is_unused && !zeros.contains(value) {
                different.push(format!("{name} {argument}: {value} is missing in perf"));
            }
        }
    }
    assert!(different.is_empty(), "{program:?}: {different:#?}");
    theirs.len()
}

#[test]
fn calls_of_twenty_programs_are_those_of_perf_trace() {
    if lacks_tracing() || lacks(Feature::Perf) {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "b 2\na 1\n").unwrap();
    let path = file.path().to_str().unwrap();
    let programs: [&[&str]; 20] = [
        &["true"],
        &["ls", "/"],
        &["cat", path],
        &["head", "-n", "1", path],
        &["tail", "-n", "1", path],
        &["sort", path],
        &["uniq", path],
        &["wc", path],
        &["cut", "-d", " ", "-f", "1", path],
        &["tr", "a", "b"],
        &["grep", "a", path],
        &["sed", "-n", "1p", path],
        &["touch", path],
        &["stat", path],
        &["chmod", "600", path],
        &["md5sum", path],
        &["dd", "if=/dev/zero", "of=/dev/null", "bs=4k", "count=4", "status=none"],
        &["id", "-u"],
        &["uname", "-a"],
        &["sleep", "0.01"],
    ];
    let calls: usize = programs.into_iter().map(traces_as_perf).sum();
    assert!(calls > 400, "{calls}");
    println!("{calls} calls");
}

#[test]
fn descriptors_have_their_path_where_it_is_certain() {
    if lacks_tracing() {
        return;
    }
    // The loader reads libraries by descriptor 3 and closes it at once. The same number is then the file, which stays open.
    let command = ["timeout", "0.6", "tail", "-f", "/etc/passwd"];
    let output = trace(&["-e", "read", "--"]).args(command).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let of_tail = || text.lines().filter(|line| line.contains(": tail/"));
    let (known, unknown): (Vec<&str>, Vec<&str>) = of_tail().partition(|line| line.contains("(fd: 3<"));
    assert!(
        !known.is_empty() && known.iter().all(|line| line.contains("(fd: 3</etc/passwd>, buf: ")),
        "{text}"
    );
    assert!(unknown.iter().any(|line| line.contains("(fd: 3, buf: ")), "{text}");
    assert!(!text.contains(" close("), "{text}");
}

#[test]
fn tracepoints_are_shown_beside_calls_and_alone_and_the_number_of_lines_is_limited() {
    if lacks_tracing() {
        return;
    }
    let text = |arguments: &[&str], command: &[&str]| {
        let output = trace(arguments).arg("--").args(command).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let beside = text(&["-e", "exit_group,sched:sched_process_e*"], &["true"]);
    let marks = [
        " sched:sched_process_exec(filename=/",
        " exit_group(error_code: 0)",
        " sched:sched_process_exit(comm=true pid=",
    ];
    assert!(marks.iter().all(|mark| beside.contains(mark)), "{beside}");
    let alone = text(&["-e", "sched:sched_process_exit"], &["true"]);
    assert_eq!((alone.lines().count(), alone.contains(" ms)")), (1, false), "{alone}");
    let limited = text(&["-e", "network,file", "--max-events", "3"], &["sh", "-c", "ls /; exec sleep 100"]);
    assert_eq!(limited.lines().filter(|line| line.contains(" ms): ")).count(), 3, "{limited}");
}
