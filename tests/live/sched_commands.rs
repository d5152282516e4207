//! `perf-exporter sched`: what it says of a program and what perf says, of the same seconds.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use perf_exporter::host::read_text;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::cgroup::TestCgroup;
use crate::support::program::Program;
use crate::support::{Feature, eventually, lacks};

const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// How often the program hands over.
const TIMES: &str = "3000";

/// What the threads of the program are called.
const THREADS: [&str; 3] = ["ping", "pong", "spins"];

fn lacks_sched() -> bool {
    [Feature::Software, Feature::Tracepoint, Feature::Compiler].into_iter().any(lacks)
}

fn ours(arguments: &[&str]) -> Command {
    let mut command = Command::new(PERF_EXPORTER);
    command.arg("sched").args(arguments).stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// What ours prints while perf records the same with these options: its record, and what it printed. Both have the same clock. perf comes
/// before all others to its buffers, so that they do not run over on a machine with more to do than CPUs. The names of the threads end
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
        .args([
            "-k",
            "CLOCK_MONOTONIC",
            "--realtime",
            "1",
            "-m",
            "4M",
            "-a",
            "-o",
            &data,
            "--",
            PERF_EXPORTER,
            "sched",
        ])
        .args(arguments);
    command.args(["-a", "--"]).arg(program.path()).args(["relay", TIMES, suffix]);
    let printed = output(command.stdin(Stdio::null()));
    let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with("[ perf record")).collect();
    (data, lines.join("\n"))
}

/// A row of the table of delays.
#[derive(Debug, Clone, Copy)]
struct Delays {
    pid: u32,
    runtime: f64,
    count: f64,
    average: f64,
    longest: f64,
    /// From when to when that was, in seconds.
    at: (f64, f64),
}

/// The rows of the program's threads, by name without `suffix`. Perf's and ours look alike.
fn delays<'t>(table: &'t str, suffix: &str) -> BTreeMap<&'t str, Delays> {
    let row = |line: &'_ str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let figure = |at: usize| {
            let words = cells.get(at)?.trim_start_matches(|c: char| !c.is_ascii_digit());
            words.split(' ').next()?.parse::<f64>().ok()
        };
        let pid = cells.first()?.rsplit(':').next()?.parse().ok()?;
        let (runtime, count, average, longest) = (figure(1)?, figure(2)?, figure(3)?, figure(4)?);
        Some(Delays { pid, runtime, count, average, longest, at: (figure(5)?, figure(6)?) })
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
    // We reckon with wakings, and perf before 6.12 with wake-ups: some microseconds later, or milliseconds where the other CPU
    // does not run.
    let events = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_stat_runtime,\
                  sched:sched_migrate_task,sched:sched_process_fork,sched:sched_process_exec";
    let perf = ["record", "-q", "-R", "-c", "1", "-e", events];
    let (data, printed) = beside_perf(dir.path(), &perf, &["latency", "--pids"], &program, "-d");
    let theirs = output(Command::new("perf").args(["sched", "latency", "-p", "-i", &data]));
    let script = output(Command::new("perf").args(["script", "-i", &data, "-F", "time,event,trace"]));
    let lost = output(Command::new("perf").args(["report", "--stats", "-i", &data]));
    let lost: Vec<&str> = lost.lines().filter(|line| line.contains("LOST")).collect();
    let (ours, theirs) = (delays(&printed, "-d"), delays(&theirs, "-d"));
    assert_eq!((ours.len(), theirs.len()), (3, 3), "{printed}\n{ours:?}\n{theirs:?}");
    for name in THREADS {
        let (ours, theirs) = (ours[name], theirs[name]);
        let waits = &Waits::of(&script, ours.pid);
        // The first thread was forked, waited and ran for some tenths of a millisecond before we looked: at the latest when it executed
        // the program, which may have ended one more wait.
        let is_exec = |line: &&str| {
            line.contains(" sched:sched_process_exec: ") && line.contains(&format!(" pid={} ", ours.pid))
        };
        let before: Vec<&str> = script.lines().take_while(|line| !is_exec(line)).collect();
        let unseen = if name == "ping" { Waits::of(&before.join("\n"), ours.pid).all.len() + 1 } else { 0 };
        let ran = if name == "ping" { 0.3 } else { 0.01 };
        let what = |figure: &str| {
            let then = around(&script, ours.pid, ours.at);
            format!(
                "{figure} of {name}, {ours:?} {theirs:?} {waits:?} {lost:?}\nwhile it waited longest:\n{then}"
            )
        };
        assert_close(&what("runtime"), ours.runtime, theirs.runtime, (0.02, ran));
        let (all, seen) = (&waits.all[..], waits.all.get(unseen..).unwrap_or_default());
        // Whether a waking came before or after its thread left the CPU depends on who writes the time: perf's events and ours
        // write their own, one after the other.
        let (doubtful, missed) = (&waits.doubtful[..], &waits.missed[..]);
        let assert_between = |figure, of: fn(&[f64]) -> f64, ours, more| {
            let (least, most) = (of(seen) - of(doubtful) - more, of(all) + of(missed) + more);
            assert!((least..=most).contains(&ours), "{}", what(figure));
        };
        let number = |waits: &[f64]| waits.len() as f64;
        assert_between("number of waits", number, ours.count, 1.0);
        // Averages are rounded to a microsecond.
        let sum = |waits: &[f64]| waits.iter().sum();
        let more = 0.01 * sum(seen) + (0.001 + WRITTEN_APART) * ours.count;
        assert_between("sum of waits", sum, ours.count * ours.average, more);
        let longest = |waits: &[f64]| waits.iter().copied().fold(0.0, f64::max);
        let most = longest(all).max(longest(missed)) + 0.05;
        assert!(
            (longest(seen) - longest(doubtful) - 0.05..=most).contains(&ours.longest),
            "{}",
            what("longest wait")
        );
        // `perf sched latency` 6.1 reads `R+`, of a thread that the kernel preempted, as a sleep.
        let counted = number(all) - waits.preempted as f64;
        assert_close(&what("perf's number of waits"), theirs.count, counted, (0.01, 2.0));
    }
}

/// What was recorded of a thread in a time, given in seconds, and a millisecond around it.
fn around(script: &str, pid: u32, (from, to): (f64, f64)) -> String {
    let is_then = |line: &&str| {
        let time = line.trim_start().split(':').next().and_then(|time| time.parse::<f64>().ok());
        time.is_some_and(|time| (from - 0.001..to + 0.001).contains(&time))
            && line.contains(&format!("pid={pid} "))
    };
    script.lines().filter(is_then).collect::<Vec<_>>().join("\n")
}

/// How far apart the times of perf's records and of ours may be for one wait, in milliseconds. At each of its two ends all who
/// follow the event write their records one after the other: perf, ours, and up to two services of tests that run beside. Each
/// takes up to a microsecond.
const WRITTEN_APART: f64 = 0.006;

/// What the events that perf recorded tell of a thread's waits for a CPU.
#[derive(Default)]
struct Waits {
    /// How long each of them took, in milliseconds.
    all: Vec<f64>,
    /// How many of them began when the kernel preempted it.
    preempted: usize,
    /// Those that began within a microsecond after it had left the CPU: a moment earlier, and it would have been awake.
    doubtful: Vec<f64>,
    /// Those whose end or beginning has no record, at most this long: from when it left the CPU, if it was woken before that, and until it
    /// left the CPU again, if the switch to it has no record. Linux 6.18 as a guest writes none where the idle task or a thread of
    /// process 1 goes.
    missed: Vec<f64>,
}

/// The events with which a wait begins.
const WAKINGS: [&str; 2] = ["sched:sched_waking:", "sched:sched_wakeup_new:"];

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, preempted, doubtful, missed } = self;
        let sum: f64 = all.iter().sum();
        let long: Vec<f64> = all.iter().copied().filter(|&wait| wait > 0.5).collect();
        write!(
            f,
            "{} waits of {sum} ms, {preempted} preempted, {doubtful:?}, {missed:?}, long ones {long:?}",
            all.len()
        )
    }
}

impl Waits {
    fn of(script: &str, pid: u32) -> Self {
        let [woken, out, back] = ["pid", "prev_pid", "next_pid"].map(|field| format!(" {field}={pid} "));
        let (mut waits, mut since, mut runs) = (Self::default(), None, false);
        let (mut left, mut woken_early, mut at_once) = (None, false, false);
        for line in script.lines() {
            let time = || {
                let seconds = line.trim_start().split(':').next();
                seconds.and_then(|seconds| seconds.parse::<f64>().ok()).unwrap_or_else(|| panic!("{line}"))
                    * 1e3
            };
            if line.contains(&woken) && WAKINGS.iter().any(|event| line.contains(event)) {
                woken_early |= runs;
                at_once |= !runs && since.is_none() && left.is_some_and(|left| time() - left < 0.001_5);
                since = since.or_else(|| (!runs).then(time));
            } else if line.contains(&out) {
                waits.missed.extend(since.filter(|_| !runs).map(|since| time() - since));
                (runs, since, left) = (false, line.contains(" prev_state=R").then(time), Some(time()));
                waits.preempted += usize::from(line.contains(" prev_state=R+"));
            } else if line.contains(&back) {
                runs = true;
                let wait = since.take().map(|since| time() - since);
                waits.all.extend(wait);
                waits.doubtful.extend(wait.filter(|_| at_once));
                let early = left.filter(|_| wait.is_none() && woken_early);
                waits.missed.extend(early.map(|left| time() - left));
                (woken_early, at_once) = (false, false);
            }
        }
        waits
    }
}

/// What lines of `timehist` say of a thread: how many there are, the sums of waits and runs, and the longest wait and run, in milliseconds.
#[derive(Debug, Default, Clone, Copy)]
struct Runs {
    count: f64,
    waits: f64,
    times: f64,
    longest_wait: f64,
    longest: f64,
}

fn history<'t>(text: &'t str, suffix: &str) -> BTreeMap<&'t str, Runs> {
    let mut found = BTreeMap::<_, Runs>::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, cpu, task, wait, _, run, ..] = words[..] else { continue };
        let Some(name) = task.split('[').next().and_then(|name| name.strip_suffix(suffix)) else { continue };
        if !cpu.starts_with('[') || !THREADS.contains(&name) {
            continue;
        }
        let figure = |word: &str| word.parse::<f64>().unwrap_or_default();
        let runs = found.entry(name).or_default();
        let (wait, run) = (figure(wait), figure(run));
        runs.count += 1.0;
        runs.waits += wait;
        runs.times += run;
        runs.longest_wait = runs.longest_wait.max(wait);
        runs.longest = runs.longest.max(run);
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
        assert_close(&format!("runs of {name}"), ours.count, theirs.count, (0.001, 2.0));
        // Two runs with their waits may be missing, at the begin and the end of a recording: on a busy machine each may last some
        // milliseconds. There, perf's waits also begin later: at the wake-up, which the other CPU does when it runs, and not at the waking.
        let two_waits = 2.0 * ours.longest_wait.max(theirs.longest_wait);
        assert_close(&format!("waits of {name}"), ours.waits, theirs.waits, (0.02, two_waits.max(1.0)));
        let two_runs = 2.0 * ours.longest.max(theirs.longest);
        assert_close(&format!("times of {name}"), ours.times, theirs.times, (0.05, two_runs.max(1.0)));
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

/// Returns how often each of these threads came onto a CPU, by the lines of a map.
fn arrivals(text: &str, threads: &BTreeMap<String, &'static str>) -> BTreeMap<&'static str, usize> {
    let (mut names, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        let Some((before, legend)) = line.split_once(" secs ") else { continue };
        // A thread has the name that it had when it came first.
        if let Some((short, tid)) = legend
            .trim()
            .split_once(" => ")
            .zip(legend.trim().rsplit_once(':'))
            .map(|((short, _), (_, tid))| (short, tid))
        {
            names.insert(short.to_owned(), tid.to_owned());
        }
        let short = before.split_once('*').and_then(|(_, rest)| rest.split_whitespace().next());
        let tid = short.and_then(|short| names.get(short));
        if let Some(thread) = tid.and_then(|tid| threads.get(tid)) {
            *counts.entry(*thread).or_default() += 1;
        }
    }
    counts
}

#[test]
fn a_map_has_the_arrivals_of_threads_that_perf_has() {
    if lacks_sched() || lacks(Feature::Perf) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = Program::compile_scheduled();
    let (data, printed) = beside_perf(dir.path(), &["sched", "record", "-q"], &["map"], &program, "-m");
    let theirs = output(Command::new("perf").args(["sched", "map", "-i", &data]));
    let threads = output(Command::new("perf").args(["script", "-F", "comm,tid", "-i", &data]));
    let thread = |line: &str| {
        let (comm, tid) = line.trim().rsplit_once(' ')?;
        let name = THREADS.into_iter().find(|name| comm.trim() == format!("{name}-m"))?;
        Some((tid.to_owned(), name))
    };
    let threads: BTreeMap<String, &str> = threads.lines().filter_map(thread).collect();
    let (ours, theirs) = (arrivals(&printed, &threads), arrivals(&theirs, &threads));
    assert_eq!((ours.len(), theirs.len()), (3, 3), "{ours:?} {theirs:?}");
    for (thread, count) in &theirs {
        // Perf lacks the arrivals on idle CPUs of which the kernel writes no sched_switch.
        let own = ours[thread];
        assert!(own + 2 + count / 1000 >= *count, "{thread}: {ours:?} {theirs:?}");
    }
    assert!(ours["ping"] >= 1000 && theirs["ping"] >= 1000, "{ours:?} {theirs:?}");
}
