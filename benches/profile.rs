//! Cost of continuous profiling, compared with `perf record` of the same stacks and `perf script` of its file; the slowdown of programs
//! that always use a CPU; and memory.
//!
//! `cargo bench --bench profile` takes about ten minutes. Arguments after `--` (`beside-perf`, `slowdown`, `memory`) select parts. Requires
//! root. Goals are not checked as tests: a missed goal is only printed.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

#[expect(
    dead_code,
    unused_imports,
    clippy::print_stderr,
    clippy::explicit_write,
    reason = "it belongs to the tests, which use all of it, may print and have their output captured"
)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use perf_exporter::host::read_text;
use perf_exporter::sys::usage;
use rustix::process::{Pid, Signal, kill_process};

use support::program::{Program, Running};
use support::service::{Service, get_path};
use support::{Feature, lacks};

/// Duration of each measurement in a round, in seconds.
const SECONDS: u64 = 5;
/// Number of rounds. Each round has one turn for each case.
const ROUNDS: usize = 5;
/// Number of rounds of the slowdown part, which has the shortest turns and the smallest differences.
const SLOWDOWN_ROUNDS: usize = 60;
/// Samples per second.
const FREQUENCY: u32 = 99;

/// Prints a line of the result.
fn line(what: &str, figure: &str, goal: Option<(&str, bool)>) {
    let (goal, met) = goal.map_or(("", ""), |(goal, met)| (goal, if met { "met" } else { "missed" }));
    println!("{}", format!("{what:<62} {figure:>14}   {goal:<16} {met}").trim_end());
}

fn median(figures: Vec<f64>) -> f64 {
    middle(figures, 1.0).0
}

fn configuration(entry: &str) -> String {
    format!(
        "collection: {{interval: 10s, freshness: 0s}}\n\
         counters: {{os: {{events: [context-switches], per: [cpu]}}}}\n\
         profiles: {{{entry}}}\n"
    )
}

fn serve(entry: &str) -> Service {
    Service::start(&configuration(entry))
}

fn sampled() -> String {
    format!("cpu: {{event: cpu-clock, frequency: {FREQUENCY}}}")
}

/// Returns the CPU time of a process so far, in seconds.
fn used(child: &Child) -> f64 {
    let stat = read_text(&PathBuf::from(format!("/proc/{}/stat", child.id()))).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// Starts a busy program on each CPU.
fn busy(program: &Program) -> Vec<Running> {
    let cpus = std::thread::available_parallelism().unwrap().get();
    (0..cpus).map(|_| program.start()).collect()
}

fn spin(running: &mut [Running]) {
    for program in running {
        program.told(&format!("spins {}", SECONDS * 1000 + 1500));
    }
    sleep(Duration::from_millis(300));
}

fn done(running: &mut [Running]) {
    for program in running {
        program.answers();
    }
}

/// Returns the CPU time of the exporter for a profile of some seconds, including symbolization.
fn ours(service: &Service) -> f64 {
    let before = used(&service.child);
    let (_, body) = get_path(&service.address, &format!("/folded?type=cpu&seconds={SECONDS}"));
    assert!(body.contains("burns"), "{body}");
    used(&service.child) - before
}

/// Starts perf to record the same samples.
fn perf_record(file: &Path) -> Child {
    let mut record = Command::new("perf");
    // Without build ids (-B), for which perf would read its recording and the files of all processes.
    record.args(["record", "-q", "-a", "-g", "-B", "-e", "cpu-clock", "-F", &FREQUENCY.to_string(), "-o"]);
    record.arg(file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn stop(mut record: Child) {
    kill_process(Pid::from_child(&record), Signal::INT).unwrap();
    record.wait().unwrap();
}

/// Returns the CPU time of perf for the same samples.
fn perfs() -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("perf.data");
    let before = usage::children_cpu_time();
    let record = perf_record(&data);
    sleep(Duration::from_secs(SECONDS));
    stop(record);
    let script = Command::new("perf").args(["script", "-i"]).arg(&data).output().unwrap();
    assert!(String::from_utf8_lossy(&script.stdout).contains("burns"));
    let spent = usage::children_cpu_time().since(before);
    (spent.user + spent.system).as_secs_f64()
}

fn beside_perf(program: &Program) {
    if lacks(Feature::Perf) {
        return;
    }
    let mut running = busy(program);
    let service = serve(&sampled());
    let rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| {
            spin(&mut running);
            let ours = ours(&service);
            done(&mut running);
            spin(&mut running);
            let perfs = perfs();
            done(&mut running);
            (ours, perfs)
        })
        .collect();
    let milliseconds = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
    let what = format!("CPU time for {SECONDS} s of all CPUs at {FREQUENCY} Hz, symbolized:");
    line(&format!("{what} we"), &milliseconds(median(rounds.iter().map(|round| round.0).collect())), None);
    line(
        "  perf record -g and perf script",
        &milliseconds(median(rounds.iter().map(|round| round.1).collect())),
        None,
    );
    let ratio = median(rounds.iter().map(|(ours, perfs)| ours / perfs).collect());
    line("  we / perf", &format!("{ratio:.3}"), Some(("at most 0.2", ratio <= 0.2)));
}

/// Losses of busy programs in a turn, as shares of the time of all CPUs, and the duration of a fixed amount of work.
struct Turn {
    /// Pauses seen by the programs that are at most as long as interrupts.
    paused: f64,
    /// CPU time of the service.
    ours: f64,
    /// Seconds for a fixed amount of work. They include the effect of sampling on caches, and variations of the machine's speed.
    took: f64,
}

/// Measures the time that busy programs lose to sampling. The turns follow each other as A B C D D C B A, so that slow changes affect all
/// of them alike. The four cases are no sampling, the exporter with stack copies, the exporter with frame pointers, and perf.
fn slowdown(program: &Program) {
    let mut running = busy(program);
    let cpus = running.len() as f64;
    let service = serve("");
    let mut turn = |who: usize| {
        let by_frame_pointers = format!("cpu: {{event: cpu-clock, frequency: {FREQUENCY}, unwind: fp}}");
        samples(&service, [String::new(), sampled(), by_frame_pointers, String::new()][who].as_str());
        let perf = (who == 3).then(|| perf_record(Path::new("/dev/null")));
        // perf reads all of /proc before it samples.
        perf.iter().for_each(|_| sleep(Duration::from_secs(1)));
        let (before, start) = (used(&service.child), Instant::now());
        running.iter_mut().for_each(|program| program.told("misses 500"));
        let paused: u64 = running.iter_mut().map(Running::answers).sum();
        let working = Instant::now();
        running.iter_mut().for_each(|program| program.told("works 5000"));
        done(&mut running);
        let took = working.elapsed().as_secs_f64();
        let ours = (used(&service.child) - before) / start.elapsed().as_secs_f64();
        perf.into_iter().for_each(stop);
        Turn { paused: paused as f64 / 500e6 / cpus, ours: ours / cpus, took }
    };
    let everybody = if lacks(Feature::Perf) { 3 } else { 4 };
    let order: Vec<usize> = (0..everybody).chain((0..everybody).rev()).collect();
    turn(0);
    let rounds: Vec<Vec<Turn>> =
        (0..SLOWDOWN_ROUNDS).map(|_| order.iter().map(|&who| turn(who)).collect()).collect();
    // Sums of the two turns that each case has in a round.
    let sums = |who: usize, of: fn(&Turn) -> f64| -> Vec<f64> {
        rounds.iter().map(|round| of(&round[who]) + of(&round[order.len() - 1 - who])).collect()
    };
    let added = |who: usize, of: fn(&Turn) -> f64| -> Vec<f64> {
        sums(who, of).iter().zip(sums(0, of)).map(|(with, without)| with - without).collect()
    };
    let show = |what: &str, (figure, error): (f64, f64), goal: Option<&'static str>| {
        line(what, &format!("{figure:+.2} ±{error:.2} %"), goal.map(|goal| (goal, figure < 0.5)));
    };
    for (who, unwind) in [(1, "auto"), (2, "fp")] {
        let paused = middle(added(who, |turn| turn.paused), 50.0);
        let ours = mean(&added(who, |turn| turn.ours), 50.0);
        let together = (paused.0 + ours.0, paused.1.hypot(ours.1));
        let what = format!("time that busy programs lose at {FREQUENCY} Hz, unwind: {unwind}");
        show(&what, together, Some("below 0.5 %"));
        show("  interrupts", paused, None);
        show("  threads of the service", ours, None);
    }
    if everybody == 4 {
        show("  interrupts of perf record -a -g", middle(added(3, |turn| turn.paused), 50.0), None);
    }
    let ratios = |who: usize| {
        sums(who, |turn| turn.took).iter().zip(sums(0, |turn| turn.took)).map(|(a, b)| a / b - 1.0).collect()
    };
    show("slowdown for the same work, unwind: auto", middle(ratios(1), 100.0), None);
    let noise = rounds.iter().map(|round| round[order.len() - 1].took / round[0].took - 1.0).collect();
    show("  between turns without sampling", middle(noise, 100.0), None);
}

/// Enables sampling by this entry, or disables it if the entry is empty.
fn samples(service: &Service, entry: &str) {
    service.rewrite(&configuration(entry));
    kill_process(Pid::from_child(&service.child), Signal::HUP).unwrap();
    let samples = || service.metrics().sum("perf_ring_bytes", &[("ring", "samples")]) > 0.0;
    let patience = Instant::now();
    while samples() == entry.is_empty() {
        assert!(patience.elapsed() < Duration::from_secs(10), "sampling did not start or stop");
        sleep(Duration::from_millis(50));
    }
}

/// Returns the median times a factor, and its standard error, as of a normal distribution with these quartiles.
fn middle(mut figures: Vec<f64>, times: f64) -> (f64, f64) {
    figures.sort_by(f64::total_cmp);
    let at = |part: f64| figures[((figures.len() - 1) as f64 * part).round() as usize];
    let deviation = (at(0.75) - at(0.25)) / 1.349;
    (at(0.5) * times, 1.253 * deviation * times / (figures.len() as f64).sqrt())
}

/// Returns the mean times a factor, and its standard error. For values whose steps are too large for a median.
fn mean(figures: &[f64], times: f64) -> (f64, f64) {
    let many = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / many;
    let variance = figures.iter().map(|figure| (figure - mean).powi(2)).sum::<f64>() / (many - 1.0);
    (mean * times, (variance / many).sqrt() * times)
}

/// Measures resident memory with many symbolized processes.
fn memory(program: &Program) {
    let mut running: Vec<Running> = (0..100).map(|_| program.start()).collect();
    let service = serve(&sampled());
    for program in &mut running {
        program.told("spins 50");
    }
    done(&mut running);
    let (_, body) = get_path(&service.address, "/folded?type=cpu");
    assert!(body.contains("three_quarters"), "{body}");
    let status = read_text(&PathBuf::from(format!("/proc/{}/status", service.child.id()))).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let mib = kib.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0;
    line("resident with 100 processes", &format!("{mib:.1} MiB"), Some(("below 60 MB", mib < 57.2)));
}

fn main() {
    if lacks(Feature::Compiler) || lacks(Feature::Software) {
        return;
    }
    let program = Program::compile_hot("hot", &["-fno-omit-frame-pointer"]);
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let parts = [("beside-perf", beside_perf as fn(&Program)), ("slowdown", slowdown), ("memory", memory)];
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part(&program);
        }
    }
}
