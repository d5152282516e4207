//! Sampled stacks of programs whose functions take known shares of their time.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use perf_exporter::clock::Clock;
use serde_json::Value;

use crate::support::folded::Folded;
use crate::support::program::{Program, Running};
use crate::support::service::{Service, get_path};
use crate::support::{Feature, eventually, lacks};

/// High enough for many samples per second, and not a multiple of the kernel's timer frequencies.
const FREQUENCY: u64 = 499;

pub(crate) fn lacks_profiles() -> bool {
    lacks(Feature::Compiler) || lacks(Feature::Software)
}

pub(crate) fn profiling(entry: &str) -> Service {
    Service::start_fresh(&format!(
        "counters: {{os: {{events: [context-switches], per: [cpu]}}}}\nprofiles: {{{entry}}}\n"
    ))
}

/// Starts a service that samples on-CPU stacks with this kind of unwinding.
fn on_cpu(unwind: &str) -> Service {
    // The program's stack is small, and smaller copies lose fewer records.
    let stack = if unwind == "fp" { "" } else { ", stack: 2KiB" };
    profiling(&format!(
        "cpu: {{event: cpu-clock, frequency: {FREQUENCY}, unwind: {unwind}{stack}, window: 600s}}"
    ))
}

/// Options for a frame pointer in every function. With optimization, an innermost function without calls has none, and its caller would be
/// skipped.
pub(crate) const FRAME_POINTERS: [&str; 2] = ["-O0", "-fno-omit-frame-pointer"];

#[track_caller]
fn assert_share(folded: &Folded, functions: &[&str], expected: f64, within: f64) {
    let share = folded.share(functions);
    assert!((share - expected).abs() < within, "{share:.3} of {expected} in {functions:?}: {folded:#?}");
}

/// With this many samples, the error of a share is below 0.07 in all but one of a million cases.
const ENOUGH: f64 = 1000.0;

/// Lets the program spin until it has [`ENOUGH`] samples. On a loaded machine, records are lost while unwind tables are read for the first
/// time. Returns the stacks and the seconds of CPU time.
fn spin(service: &Service, running: &mut Running, query: &str) -> (Folded, f64) {
    for seconds in 1..=10 {
        running.does("spins 1000");
        let folded = Folded::of(service, query);
        if folded.total() / 1e9 * FREQUENCY as f64 >= ENOUGH {
            return (folded, f64::from(seconds));
        }
    }
    panic!("too few samples of {query}: {:#?}", service.metrics());
}

/// Asserts that every function of the program, from `main` to the innermost, has its share.
fn functions_have_their_shares(name: &str, options: &[&str], unwind: &str) {
    if lacks_profiles() {
        return;
    }
    let program = Program::compile_hot(name, options);
    let service = on_cpu(unwind);
    let mut running = program.start();
    let query = format!("type=cpu&pid={}", running.pid());
    let (folded, spun) = spin(&service, &mut running, &query);
    assert_share(&folded, &["spins", "three_quarters", "burns"], 0.75, 0.07);
    assert_share(&folded, &["spins", "one_quarter", "burns"], 0.25, 0.07);
    assert!(folded.share(&["main"]) > 0.97, "{folded:#?}");
    let samples = folded.total() / 1e9 * FREQUENCY as f64;
    let metrics = service.metrics();
    let lost = metrics.sum("perf_lost_records_total", &[("ring", "samples")]);
    let expected = spun * FREQUENCY as f64;
    assert!(
        samples < 1.15 * expected && samples + lost > 0.85 * expected,
        "{samples} of {expected} samples, and {lost} lost"
    );
    let published = metrics.sum("perf_samples_total", &[("comm", name), ("profile", "cpu")]);
    assert!(published >= samples.floor(), "the metric contains {published} of {samples} samples");
}

#[test]
fn functions_with_frame_pointers_have_their_shares_without_a_copy_of_the_stack() {
    functions_have_their_shares("pointers", &FRAME_POINTERS, "fp");
}

#[test]
fn functions_with_frame_pointers_have_their_shares_by_dwarf() {
    functions_have_their_shares("both", &FRAME_POINTERS, "dwarf");
}

#[test]
fn functions_without_frame_pointers_have_their_shares_by_dwarf() {
    functions_have_their_shares("tables", &["-fomit-frame-pointer"], "auto");
}

#[test]
fn functions_without_tables_to_unwind_by_have_their_shares_by_frame_pointers() {
    let no_tables = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    functions_have_their_shares("neither", &[&FRAME_POINTERS[..], &no_tables].concat(), "auto");
}

#[test]
fn processes_that_have_ended_have_names_for_their_functions() {
    if lacks_profiles() {
        return;
    }
    let program = Program::compile_hot("ended", &[]);
    let service = on_cpu("auto");
    let mut running = program.start();
    // Symbols are requested only after the process has exited and the file is deleted.
    let samples = |service: &Service| {
        service.metrics().sum("perf_samples_total", &[("comm", "ended"), ("profile", "cpu")])
    };
    let enough = (0..10).any(|_| {
        running.does("forks 50");
        samples(&service) >= ENOUGH
    });
    running.ends();
    assert!(enough, "{} samples", samples(&service));
    drop(program);
    let folded = Folded::of(&service, "type=cpu&comm=ended");
    assert_share(&folded, &["forks", "spins", "three_quarters", "burns"], 0.72, 0.08);
}

#[test]
fn a_program_in_a_container_has_names_for_its_functions() {
    if lacks_profiles() || lacks(Feature::Mounts) {
        return;
    }
    let program = Program::compile_hot("contained", &[]);
    let mount = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs none \"$0\" && cp \"$1\" \"$0/contained\" && exec \"$0/contained\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "sh", "-c", script]).arg(mount.path()).arg(program.path());
    let service = on_cpu("auto");
    let mut contained = Running::by(&mut unshare);
    assert!(!mount.path().join("contained").exists(), "its file is not visible outside its mount namespace");
    let (folded, _) = spin(&service, &mut contained, "type=cpu&comm=contained");
    assert_share(&folded, &["spins", "three_quarters", "burns"], 0.75, 0.07);
}

#[test]
fn a_profile_of_some_seconds_has_what_happened_in_them_alone() {
    if lacks_profiles() {
        return;
    }
    let program = Program::compile_hot("seconds", &[]);
    let service = on_cpu("auto");
    let mut running = program.start();
    running.does("spins 1000");
    let folded = Folded::of(&service, &format!("type=cpu&seconds=1&pid={}", running.pid()));
    assert!(folded.total() < 2e7, "the stacks contain sleep: {folded:#?}");
    running.told("spins 3000");
    let folded = Folded::of(&service, &format!("type=cpu&seconds=1&pid={}", running.pid()));
    let seen = folded.total() / 1e9;
    assert!((0.02..2.5).contains(&seen), "{seen} s of its four seconds of CPU time: {folded:#?}");
    running.answers();
}

/// Returns the Unix time in milliseconds.
fn now() -> u64 {
    Clock::system().now().0
}

#[test]
fn a_range_of_the_past_has_what_ran_then_also_if_it_has_ended() {
    if lacks_profiles() {
        return;
    }
    let service = on_cpu("auto");
    let ran = ["earlier", "later"].map(|name| {
        let program = Program::compile_hot(name, &[]);
        let mut running = program.start();
        let begin = now();
        running.does("spins 1000");
        let end = now();
        running.ends();
        std::thread::sleep(Duration::from_millis(500));
        (name, begin, end)
    });
    let folded = |begin: u64, end: u64| {
        let seconds = |time: u64| time as f64 / 1e3;
        Folded::of(&service, &format!("type=cpu&from={:.3}&to={:.3}", seconds(begin), seconds(end)))
    };
    for (name, other, (_, begin, end)) in [("earlier", "later", ran[0]), ("later", "earlier", ran[1])] {
        let folded = folded(begin, end);
        assert_eq!(folded.share(&[other]), 0.0, "{name}: {folded:#?}");
        let seen = folded.share(&[name]) * folded.total() / 1e9;
        assert!((0.5..1.5).contains(&seen), "{seen} s of one: {folded:#?}");
        let burns = folded.share(&["burns"]) / folded.share(&[name]);
        assert!(burns > 0.9, "{burns} of {name} has names: {folded:#?}");
    }
    let between = folded(ran[0].2 + 100, ran[0].2 + 300);
    assert!(between.share_of(|stack| ["earlier", "later"].contains(&&*stack[0])) < 0.5, "{between:#?}");
}

#[test]
fn a_heat_map_shows_a_burst_at_its_offset() {
    if lacks_profiles() {
        return;
    }
    let program = Program::compile_hot("burst", &[]);
    let service = on_cpu("fp");
    let mut running = program.start();
    let begin = now();
    let bursts: [(u64, u64); 4] = std::array::from_fn(|_| {
        // At 0.3 s of the next second.
        std::thread::sleep(Duration::from_millis(1300 - now() % 1000));
        let begin = now();
        running.does("spins 300");
        (begin, now())
    });
    let (from, to) = (begin as f64 / 1e3, now() as f64 / 1e3);
    let path = format!("/api/v1/heatmap?type=cpu&comm=burst&rows=50&from={from:.3}&to={to:.3}");
    let (_, json) = get_path(&service.address, &path);
    let map: Value = serde_json::from_str(&json).unwrap();
    let (mut seen, mut between) = (0, 0);
    for (second, rows) in (map["from"].as_u64().unwrap()..).zip(map["counts"].as_array().unwrap()) {
        for (row, count) in (0..).zip(rows.as_array().unwrap()) {
            let (count, time) = (count.as_u64().unwrap(), second * 1000 + row * 20);
            // A millisecond is the resolution of all clocks here.
            let during = bursts.iter().any(|&(begin, end)| begin < time + 22 && time < end + 2);
            *(if during { &mut seen } else { &mut between }) += count;
        }
    }
    // After its greeting and after each answer, the program runs on until it waits for the next order. On a busy machine that is later.
    assert!(between <= 1 + bursts.len() as u64, "{between} samples outside of {bursts:?}: {json}");
    // 1.2 s of CPU time.
    let expected = FREQUENCY * 12 / 10;
    assert!((expected / 2..expected * 3 / 2).contains(&seen), "{seen} of {expected} samples: {json}");
}

#[test]
fn threads_that_sleep_have_the_stack_that_they_sleep_in_and_how_long() {
    if lacks_profiles() || lacks(Feature::Tracepoint) {
        return;
    }
    let program = Program::compile_hot("sleeps", &[]);
    let service = profiling(
        "off_cpu: {threshold: 1ms, limit: 5000, unwind: auto, stack: 1KiB, processes: {include: [{comm: sleeps}]}}",
    );
    let mut running = program.start();
    running.does("naps 200 5");
    let folded = Folded::of(&service, &format!("type=off_cpu&pid={}&mode=sleeping", running.pid()));
    let slept = folded.share(&["naps", "waits_a_while"]) * folded.total() / 1e9;
    // Two hundred sleeps of five milliseconds, plus the wakeup latency. Some sampled waits represent others.
    assert!((0.4..10.0).contains(&slept), "{slept} s asleep: {folded:#?}");
}

#[test]
fn page_faults_have_the_stacks_that_they_happen_in() {
    if lacks_profiles() {
        return;
    }
    let program = Program::compile_hot("faults", &FRAME_POINTERS);
    // Thousands of faults occur within a few milliseconds. Without stack copies the ring holds their samples. Samples of other processes,
    // which may be many, are discarded by a filter.
    let service = profiling(
        "faults: {event: page-faults, period: 1, unwind: fp, processes: {include: [{comm: faults}]}}",
    );
    let mut running = program.start();
    // Where the faults of other processes overflow the ring, the work is repeated until enough samples arrive.
    for ordered in (1..=20).map(|times| f64::from(3000 * times)) {
        running.does("faults 3000");
        let folded = Folded::of(&service, &format!("type=faults&pid={}", running.pid()));
        let total = folded.total();
        let touched = if total > 0.0 { folded.share(&["obeys", "touches"]) * total } else { 0.0 };
        let lost = service.metrics().sum("perf_lost_records_total", &[("ring", "samples")]);
        assert!(
            touched < 1.0034 * ordered && touched + lost >= ordered,
            "{touched} of {ordered} faults, {lost} lost: {folded:#?}"
        );
        if touched > 1000.0 {
            return;
        }
    }
    panic!("too few of its faults are sampled: {:#?}", service.metrics());
}

/// A program that runs until it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Reports whether a program is installed.
fn is_installed(program: &str) -> bool {
    let dirs = std::env::var("PATH").unwrap_or_default();
    dirs.split(':').any(|dir| Path::new(dir).join(program).exists())
}

#[test]
fn functions_that_are_made_at_run_time_have_the_names_of_their_perf_map() {
    if lacks_profiles() {
        return;
    }
    if !is_installed("node") {
        eprintln!("skipped: needs node");
        return;
    }
    let script = "function hotInJavaScript(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s; }\n\
                  for (;;) hotInJavaScript(1e5);";
    // Code generated by node keeps frame pointers.
    let service = on_cpu("fp");
    // node writes a log into its working directory.
    let dir = tempfile::tempdir().unwrap();
    let mut node = Command::new("node");
    let node = node.args(["--perf-basic-prof", "-e", script]).current_dir(dir.path());
    let _node = Ended(node.spawn().unwrap());
    eventually("a fifth of node's samples are in the named function", || {
        let folded = Folded::of(&service, "type=cpu&comm=node*");
        let named = folded.share_of(|stack| stack.iter().any(|name| name.contains("hotInJavaScript")));
        (folded.total() > 0.0 && named > 0.2).then_some(())
    });
}
