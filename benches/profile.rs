//! What continuous profiling costs, beside `perf record` of the same stacks and `perf script` of what it wrote; what it
//! adds to a program that uses a CPU all the time; and memory.
//!
//! `cargo bench --bench profile` takes about three minutes; words behind `--` (`beside-perf`, `slowdown`, `memory`) run
//! parts. Needs root. The goals are no tests: a figure that misses its goal is printed like any other.

#![expect(clippy::print_stdout, reason = "the figures are for the person who asked for them")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure should stop")]
#![expect(clippy::disallowed_methods, reason = "a benchmark's time is the real one")]

#[expect(
    dead_code,
    unused_imports,
    clippy::print_stderr,
    clippy::explicit_write,
    reason = "it is the tests', which use all of it, may print and have their output caught"
)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use perf_exporter::host::read_text;
use perf_exporter::sys::usage;
use rustix::process::{Pid, Signal, kill_process};

use support::program::{Program, Running};
use support::service::{Service, get_path};
use support::{Feature, lacks};

/// How long each is measured in a round.
const SECONDS: u64 = 5;
/// Rounds, in each of which everyone has a turn.
const ROUNDS: usize = 5;
/// Samples a second.
const FREQUENCY: u32 = 99;

/// A line of the result.
fn line(what: &str, figure: &str, goal: Option<(&str, bool)>) {
    let (goal, met) = goal.map_or(("", ""), |(goal, met)| (goal, if met { "met" } else { "missed" }));
    println!("{}", format!("{what:<62} {figure:>14}   {goal:<16} {met}").trim_end());
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn serve(entry: &str) -> Service {
    Service::start(&format!(
        "collection: {{interval: 10s, freshness: 0s}}\n\
         counters: {{os: {{events: [context-switches], per: [cpu]}}}}\n\
         profiles: {{{entry}}}\n"
    ))
}

fn sampled() -> String {
    format!("cpu: {{event: cpu-clock, frequency: {FREQUENCY}}}")
}

/// CPU time of a process so far, in seconds.
fn used(child: &Child) -> f64 {
    let stat = read_text(&PathBuf::from(format!("/proc/{}/stat", child.id()))).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// A busy program on each CPU.
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

/// CPU time of us for a profile of some seconds, names and all.
fn ours(service: &Service) -> f64 {
    let before = used(&service.child);
    let (_, body) = get_path(&service.address, &format!("/folded?type=cpu&seconds={SECONDS}"));
    assert!(body.contains("three_quarters"), "{body}");
    used(&service.child) - before
}

/// CPU time of perf for the same.
fn perfs() -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("perf.data");
    let before = usage::children_cpu_time();
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", &FREQUENCY.to_string(), "-o"]);
    let mut record = record.arg(&data).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    sleep(Duration::from_secs(SECONDS));
    kill_process(Pid::from_child(&record), Signal::INT).unwrap();
    record.wait().unwrap();
    let script = Command::new("perf").args(["script", "-i"]).arg(&data).output().unwrap();
    assert!(String::from_utf8_lossy(&script.stdout).contains("three_quarters"));
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
    let what = format!("CPU time for {SECONDS} s of all CPUs at {FREQUENCY} Hz with names:");
    line(&format!("{what} we"), &milliseconds(median(rounds.iter().map(|round| round.0).collect())), None);
    line(
        "  perf record -g and perf script",
        &milliseconds(median(rounds.iter().map(|round| round.1).collect())),
        None,
    );
    let ratio = median(rounds.iter().map(|(ours, perfs)| ours / perfs).collect());
    line("  we / perf", &format!("{ratio:.3}"), Some(("at most 0.2", ratio <= 0.2)));
}

/// How much longer a program takes for the same work.
fn slowdown(program: &Program) {
    let mut running = busy(program);
    let mut turn = || {
        let start = Instant::now();
        running.iter_mut().for_each(|program| program.told("works 60000"));
        done(&mut running);
        start.elapsed().as_secs_f64()
    };
    turn();
    let rounds: Vec<[f64; 3]> = (0..4 * ROUNDS)
        .map(|_| {
            let bare = turn();
            let service = serve(&sampled());
            let sampled = turn();
            drop(service);
            [bare, sampled, turn()]
        })
        .collect();
    let part = |figures: Vec<f64>| median(figures) * 100.0;
    let added =
        part(rounds.iter().map(|[bare, sampled, again]| sampled / ((bare + again) / 2.0) - 1.0).collect());
    let noise = part(rounds.iter().map(|[bare, _, again]| (again / bare - 1.0).abs()).collect());
    let what = format!("slowdown of a busy program on each CPU at {FREQUENCY} Hz");
    line(&what, &format!("{added:+.2} %"), Some(("below 0.5 %", added < 0.5)));
    line("  between two turns without", &format!("{noise:.2} %"), None);
}

/// Resident memory with many processes, names looked up.
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
