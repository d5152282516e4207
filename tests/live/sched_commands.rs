//! `perf-exporter sched`: what it says of a program and what perf says, of the same seconds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use perf_exporter::host::read_text;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::cgroup::TestCgroup;
use crate::support::program::Program;
use crate::support::{Feature, eventually, lacks};

const OURS: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// How often the program hands over.
const TIMES: &str = "3000";

/// What the threads of the program are called.
const THREADS: [&str; 3] = ["ping", "pong", "spins"];

fn lacks_sched() -> bool {
    [Feature::Software, Feature::Tracepoint, Feature::Compiler].into_iter().any(lacks)
}

fn ours(arguments: &[&str]) -> Command {
    let mut command = Command::new(OURS);
    command.arg("sched").args(arguments).stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// What ours prints while perf records the same with these options: its record, and what it printed. perf comes before all
/// others to its buffers, so that they do not run over on a machine with more to do than CPUs. The names of the threads end
/// with `suffix`: the whole machine is recorded, and other tests run the same program.
fn beside_perf(
    dir: &Path,
    perf: &[&str],
    arguments: &[&str],
    program: &Program,
    suffix: &str,
) -> (String, String) {
    let data = dir.join("perf.data").to_str().unwrap().to_owned();
    let mut command = Command::new("perf");
    command
        .args(perf)
        .args(["--realtime", "1", "-m", "4M", "-a", "-o", &data, "--", OURS, "sched"])
        .args(arguments);
    command.args(["-a", "--"]).arg(program.path()).args(["relay", TIMES, suffix]);
    let printed = output(command.stdin(Stdio::null()));
    let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with("[ perf record")).collect();
    (data, lines.join("\n"))
}

/// A row of the table of delays.
#[derive(Debug, Clone, Copy)]
struct Delays {
    runtime: f64,
    count: f64,
    average: f64,
    longest: f64,
}

/// The rows of the program's threads, by name without `suffix`. Perf's and ours look alike.
fn delays<'t>(table: &'t str, suffix: &str) -> BTreeMap<&'t str, Delays> {
    let row = |line: &'_ str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let figure = |at: usize| {
            let words = cells.get(at)?.trim_start_matches(|c: char| !c.is_ascii_digit());
            words.split(' ').next()?.parse::<f64>().ok()
        };
        Some(Delays { runtime: figure(1)?, count: figure(2)?, average: figure(3)?, longest: figure(4)? })
    };
    let rows = table.lines().filter_map(|line| {
        let name = line.trim_start().split(':').next()?.strip_suffix(suffix)?;
        Some((name, row(line)?))
    });
    rows.filter(|(name, _)| THREADS.contains(name)).collect()
}

#[track_caller]
fn assert_close(what: &str, ours: f64, theirs: f64, (share, more): (f64, f64)) {
    assert!(is_close(ours, theirs, (share, more)), "{what}: {ours}, and perf says {theirs}");
}

fn is_close(ours: f64, theirs: f64, (share, more): (f64, f64)) -> bool {
    (ours - theirs).abs() <= theirs * share + more
}

#[test]
fn delays_are_those_of_perf() {
    if lacks_sched() || lacks(Feature::Perf) {
        return;
    }
    let (dir, program) = (tempfile::tempdir().unwrap(), Program::compile_scheduled());
    // Perf before Linux 6.12 records wakings and reckons with wake-ups, which come some microseconds later.
    let events = "sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_stat_runtime,\
                  sched:sched_migrate_task,sched:sched_process_fork";
    let perf = ["record", "-q", "-R", "-c", "1", "-e", events];
    let (mut longest, mut tries) = (BTreeMap::new(), 0..3);
    // On a machine with more to do than CPUs perf passes over the longest of some thousand waits now and then, or we do:
    // once in three times both have it.
    while longest.is_empty() || longest.values().any(|&(ours, theirs)| !is_close(ours, theirs, (0.05, 0.05)))
    {
        assert!(tries.next().is_some(), "waited at most, ours and perf's: {longest:?}");
        longest = compared_delays(dir.path(), &perf, &program);
    }
}

/// Holds the delays of one run against perf's. Gives the longest of each thread, ours and perf's.
fn compared_delays(dir: &Path, perf: &[&str], program: &Program) -> BTreeMap<&'static str, (f64, f64)> {
    let (data, printed) = beside_perf(dir, perf, &["latency", "--pids"], program, "-d");
    let theirs = output(Command::new("perf").args(["sched", "latency", "-p", "-i", &data]));
    let (ours, theirs) = (delays(&printed, "-d"), delays(&theirs, "-d"));
    assert_eq!((ours.len(), theirs.len()), (3, 3), "{printed}\n{ours:?}\n{theirs:?}");
    let compared = |name: &'static str| {
        let (ours, theirs) = (ours[name], theirs[name]);
        // One may have come before perf or we looked, or be on its way at the end.
        assert_close(&format!("{name} came"), ours.count, theirs.count, (0.001, 2.0));
        assert_close(&format!("{name} ran"), ours.runtime, theirs.runtime, (0.02, 0.01));
        assert_close(&format!("{name} waited"), ours.average, theirs.average, (0.05, 0.015));
        (name, (ours.longest, theirs.longest))
    };
    THREADS.into_iter().map(compared).collect()
}

/// What lines of `timehist` say of a thread: how many there are, and the sums of waits and runs.
fn history<'t>(text: &'t str, suffix: &str) -> BTreeMap<&'t str, (f64, f64, f64)> {
    let mut found = BTreeMap::<_, (f64, f64, f64)>::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, cpu, task, wait, _, run, ..] = words[..] else { continue };
        let Some(name) = task.split('[').next().and_then(|name| name.strip_suffix(suffix)) else { continue };
        if !cpu.starts_with('[') || !THREADS.contains(&name) {
            continue;
        }
        let figure = |word: &str| word.parse::<f64>().unwrap_or_default();
        let sums = found.entry(name).or_default();
        *sums = (sums.0 + 1.0, sums.1 + figure(wait), sums.2 + figure(run));
    }
    found
}

#[test]
fn a_line_for_each_run_says_what_perf_says() {
    if lacks_sched() || lacks(Feature::Perf) {
        return;
    }
    let (dir, program) = (tempfile::tempdir().unwrap(), Program::compile_scheduled());
    let (data, printed) =
        beside_perf(dir.path(), &["sched", "record", "-q"], &["timehist", "--state"], &program, "-h");
    let theirs = output(Command::new("perf").args(["sched", "timehist", "-i", &data]));
    let (ours, theirs) = (history(&printed, "-h"), history(&theirs, "-h"));
    assert_eq!((ours.len(), theirs.len()), (3, 3), "{ours:?}\n{theirs:?}");
    for name in THREADS {
        let (ours, theirs) = (ours[name], theirs[name]);
        assert_close(&format!("runs of {name}"), ours.0, theirs.0, (0.001, 2.0));
        assert_close(&format!("waits of {name}"), ours.1, theirs.1, (0.02, 1.0));
        assert_close(&format!("times of {name}"), ours.2, theirs.2, (0.05, 1.0));
    }
}

#[test]
fn of_a_command_only_its_own_threads_are_shown() {
    if lacks_sched() {
        return;
    }
    let program = Program::compile_scheduled();
    let mut command = ours(&["timehist", "-s", "--"]);
    let summary = output(command.arg(program.path()).args(["relay", "500"]));
    let names: Vec<&str> =
        summary.lines().filter_map(|line| line.trim_start().split_once('[').map(|(name, _)| name)).collect();
    assert!(THREADS.iter().all(|name| names.contains(name)), "{summary}");
    let own = |name: &&str| THREADS.contains(name) || ["scheduled", "perf-exporter", "spawn"].contains(name);
    assert!(names.iter().all(own), "{summary}");
}

#[test]
fn of_a_cgroup_only_its_own_threads_are_shown_whatever_they_are_called() {
    if lacks_sched() || lacks(Feature::Cgroup) {
        return;
    }
    let cgroup = TestCgroup::new("sched");
    let inner = cgroup.below("inner");
    let program = Program::compile_scheduled();
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec {} relay 500",
        inner.dir().display(),
        program.path().display()
    );
    let summary = output(&mut ours(&["timehist", "-s", "-G", cgroup.path(), "--", "sh", "-c", &script]));
    let names: Vec<&str> =
        summary.lines().filter_map(|line| line.trim_start().split_once('[').map(|(name, _)| name)).collect();
    assert!(THREADS.iter().all(|name| names.contains(name)), "{summary}");
    let own = |name: &&str| THREADS.contains(name) || ["scheduled", "sh"].contains(name);
    assert!(names.iter().all(own), "{summary}");
}

/// The slices of a trace, by the name of the process that is their track.
fn slices(path: &Path) -> BTreeMap<String, Vec<serde_json::Value>> {
    let trace: serde_json::Value = serde_json::from_str(&read_text(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = events.iter().filter(|event| event["ph"] == "M" && event["name"] == "process_name");
    let names: BTreeMap<u64, &str> = named
        .map(|event| (event["pid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
        .collect();
    let mut found = BTreeMap::<String, Vec<_>>::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        assert!(event["ts"].is_number() && event["dur"].is_number() && event["tid"].is_number(), "{event}");
        let pid = event["pid"].as_u64().unwrap();
        let name = names.get(&pid).map_or_else(|| pid.to_string(), |name| (*name).to_owned());
        found.entry(name).or_default().push(event.clone());
    }
    found
}

#[test]
fn a_trace_has_a_track_for_each_thread_and_for_each_cpu() {
    if lacks_sched() {
        return;
    }
    let (dir, program) = (tempfile::tempdir().unwrap(), Program::compile_scheduled());
    let path = dir.path().join("trace.json");
    let mut command = ours(&["timehist", "--json", path.to_str().unwrap(), "--"]);
    let printed = output(command.arg(program.path()).args(["relay", "300"]));
    assert_eq!(printed, "");
    let slices = slices(&path);
    for name in THREADS {
        let own = &slices[name];
        assert!(own.iter().any(|slice| slice["name"] == "runs"), "{own:?}");
    }
    let cpus = slices.iter().filter(|(name, _)| name.starts_with("CPU "));
    let on_cpus = cpus.flat_map(|(_, slices)| slices).filter(|slice| slice["name"] == "ping").count();
    let own = slices["ping"].iter().filter(|slice| slice["name"] == "runs").count();
    assert!(own >= 300 && on_cpus >= 300, "{own} {on_cpus}");
}

fn interrupted(mut child: Child, ready: impl Fn() -> bool) {
    eventually("it writes something", || ready().then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait().unwrap();
}

#[test]
fn a_trace_that_is_interrupted_is_a_whole_one() {
    if lacks_sched() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let child = ours(&["timehist", "-a", "--json", path.to_str().unwrap()]).spawn().unwrap();
    interrupted(child, || fs::metadata(&path).is_ok_and(|found| found.len() > 1000));
    assert!(slices(&path).keys().any(|name| name.starts_with("CPU ")));
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    if lacks_sched() {
        return;
    }
    for view in ["latency", "timehist"] {
        let code = |words: &[&str]| {
            let mut command = ours(&[&[view, "--"], words].concat());
            command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code()
        };
        assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
        assert_eq!(code(&["/nowhere/at/all"]), Some(127));
    }
}
