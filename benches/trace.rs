//! Cost of a hit of a tracepoint or a probe: time added to the program, compared with `perf record` of the same event; CPU time and memory
//! of the exporter for a million hits, and the number of lost hits.
//!
//! `cargo bench --bench trace` takes about two minutes; `-- hits` or `-- records` runs one part. Requires root and two CPUs. The program
//! runs alone on CPU 1, as far as the machine allows, and everything else runs on CPU 0. Goals are not checked as tests: a missed goal is
//! only printed.

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

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use perf_exporter::host::{Facts, Roots, read_text};
use perf_exporter::probe::argument::{Arch, Argument};
use perf_exporter::probe::tracefs::{Line, Probes};
use rustix::process::{Pid, Signal, getppid, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use support::exposition::Exposition;
use support::lines::Lines;
use support::service::Service;
use support::{Feature, lacks};

/// CPU on which the hits occur.
const HIT: usize = 1;
/// Number of rounds of the first part. Each round has one turn for each case.
const ROUNDS: usize = 11;
/// Number of hits in a turn.
const HITS: u64 = 200_000;
/// Pause before a turn, until other work has finished.
const SETTLE: Duration = Duration::from_millis(300);

/// Prints a line of the result.
fn line(what: &str, figure: &str, goal: Option<(&str, bool)>) {
    let (goal, met) = goal.map_or(("", ""), |(goal, met)| (goal, if met { "met" } else { "missed" }));
    println!("{}", format!("{what:<62} {figure:>14}   {goal:<16} {met}").trim_end());
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A function with a probe.
#[inline(never)]
extern "C" fn probed(a: u64, b: u64) -> u64 {
    black_box(a ^ b)
}

/// Returns the file of this program and the offset of [`probed`] in it.
fn place_of_probed() -> (PathBuf, u64) {
    let address = probed as *const () as u64;
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let maps = read_text(Path::new("/proc/self/maps")).unwrap();
    let place = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = fields[0].split_once('-')?;
        let inside = (hex(start)..hex(end)).contains(&address);
        inside.then(|| (PathBuf::from(fields[5]), address - hex(start) + hex(fields[2])))
    };
    maps.lines().find_map(place).unwrap()
}

/// The place that is hit.
#[derive(Clone, Copy)]
enum Target {
    /// The entry of the cheapest system call.
    SystemCall,
    /// A function of this program.
    Function,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::SystemCall => "system call",
            Self::Function => "function",
        }
    }

    /// Hits it this many times, and returns the CPU time.
    fn hit(self, hits: u64) -> Duration {
        let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let run = move || {
            let mut only = CpuSet::new();
            only.set(HIT);
            sched_setaffinity(None, &only).unwrap();
            let before = used();
            for n in 0..hits {
                match self {
                    Self::SystemCall => drop(black_box(getppid())),
                    Self::Function => drop(black_box(probed(black_box(n % 16), 7))),
                }
            }
            used() - before
        };
        thread::spawn(run).join().unwrap()
    }
}

/// An event that has this name in both perf and the service, and two of its fields.
struct Subject {
    target: Target,
    event: String,
    labels: &'static str,
}

/// The tool that records during a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watcher {
    Nothing,
    /// The service with a counter only.
    Counter,
    Perf,
    /// The service with two fields as labels.
    Labels,
}

impl Watcher {
    const ALL: [Self; 4] = [Self::Nothing, Self::Counter, Self::Perf, Self::Labels];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no recording",
            Self::Counter => "a counter of perf-exporter",
            Self::Perf => "perf record",
            Self::Labels => "two labels of perf-exporter",
        }
    }
}

/// Starts the service with one entry.
fn serve(entry: &str) -> Service {
    Service::start(&format!(
        "collection: {{interval: 10m, freshness: 0s}}\n\
         counters: {{os: {{events: [context-switches], per: [cpu]}}}}\n\
         processes: {{include: [{{comm: '*'}}], by: [comm]}}\n\
         tracepoints: {{hit: {entry}}}\n"
    ))
}

/// A running `perf record` whose output is discarded.
struct PerfRecord {
    child: Child,
    _orders: ChildStdin,
}

impl PerfRecord {
    fn start(event: &str) -> Self {
        let mut command = Command::new("perf");
        // Delay -1 starts disabled. Orders are read from descriptor 0 and acknowledged on 1.
        command.args([
            "record",
            "-q",
            "-a",
            "-e",
            event,
            "-o",
            "/dev/null",
            "--delay=-1",
            "--control=fd:0,1",
        ]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut orders = child.stdin.take().unwrap();
        let said = Lines::of(child.stdout.take().unwrap());
        writeln!(orders, "enable").unwrap();
        assert_eq!(said.next().as_deref(), Some("ack"), "perf record acknowledges enable");
        Self { child, _orders: orders }
    }
}

impl Drop for PerfRecord {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        drop(self.child.wait());
    }
}

impl Subject {
    /// Runs a turn, and returns nanoseconds per hit.
    fn turn(&self, watcher: Watcher) -> f64 {
        let run = || {
            sleep(SETTLE);
            self.target.hit(HITS).as_nanos() as f64 / HITS as f64
        };
        let watched = |entry: &str| {
            let service = serve(entry);
            let figure = run();
            sleep(SETTLE);
            let scrape = service.metrics();
            let seen = scrape.sum("perf_tracepoint_hit_total", &[]) + lost(&scrape);
            assert!(seen >= HITS as f64, "{seen} of {HITS} hits were counted");
            figure
        };
        let (event, labels) = (&self.event, self.labels);
        match watcher {
            Watcher::Nothing => run(),
            Watcher::Counter => watched(&format!("{{event: '{event}'}}")),
            Watcher::Labels => watched(&format!("{{event: '{event}', labels: {labels}}}")),
            Watcher::Perf => {
                let _recording = PerfRecord::start(event);
                run()
            }
        }
    }

    /// First part: measures the time that each tool adds to a hit.
    fn compare(&self) {
        let perf = !lacks(Feature::Perf);
        let watchers: Vec<Watcher> =
            Watcher::ALL.into_iter().filter(|watcher| perf || *watcher != Watcher::Perf).collect();
        // The first run warms up.
        self.turn(Watcher::Nothing);
        let rounds: Vec<Vec<f64>> =
            (0..ROUNDS).map(|_| watchers.iter().map(|watcher| self.turn(*watcher)).collect()).collect();
        let name = self.target.name();
        let bare = median(rounds.iter().map(|round| round[0]).collect());
        line(&format!("a {name}, without recording"), &format!("{bare:.0} ns"), None);
        // Each turn is compared with the turn without recording in the same round, because other activity on the machine varies.
        let added = |watcher: Watcher| -> Option<Vec<f64>> {
            let at = watchers.iter().position(|other| *other == watcher)?;
            Some(rounds.iter().map(|round| round[at] - round[0]).collect())
        };
        for watcher in watchers.iter().skip(1) {
            let figure = median(added(*watcher).unwrap());
            line(&format!("added to a {name} by {}", watcher.name()), &format!("{figure:+.0} ns"), None);
        }
        let (Some(ours), Some(perf)) = (added(Watcher::Labels), added(Watcher::Perf)) else { return };
        let ratio = median(ours.iter().zip(&perf).map(|(ours, perf)| ours / perf).collect());
        let what = format!("{} / {}, {name}", Watcher::Labels.name(), Watcher::Perf.name());
        line(&what, &format!("{ratio:.2}"), Some(("at most 1", ratio <= 1.0)));
    }
}

/// Returns the number of records lost because a ring was full.
fn lost(scrape: &Exposition) -> f64 {
    // The sum of an empty list is -0.
    scrape.sum("perf_lost_records_total", &[("ring", "tracepoints")]) + 0.0
}

fn hits() {
    let calls = Subject {
        target: Target::SystemCall,
        event: "syscalls:sys_enter_getppid".to_owned(),
        labels: "{call: __syscall_nr, thread: common_pid}",
    };
    if !lacks(Feature::Tracepoint) {
        calls.compare();
    }
    if lacks(Feature::Tracefs) || lacks(Feature::Uprobe) {
        return;
    }
    let (path, offset) = place_of_probed();
    let arguments = ["a=$arg1", "b=$arg2"];
    let arguments = arguments.iter().zip(1..).map(|(text, place)| Argument::parse_nth(text, place).unwrap());
    let arguments: Vec<Argument> = arguments.collect();
    let probe = Line::user(&path, offset, None, false, &arguments, Arch::HOST).unwrap();
    let mut probes = Probes::new(&Roots::default(), std::process::id());
    let added = probes.add("probed", &probe).unwrap();
    let event = format!("{}:{}", added.system, added.event);
    Subject { target: Target::Function, event, labels: "[a, b]" }.compare();
}

/// Second part: measures CPU time, memory and losses of the exporter for a million hits.
fn records() {
    const MILLION: u64 = 1_000_000;
    if lacks(Feature::Tracepoint) {
        return;
    }
    let enter = "syscalls:sys_enter_getppid";
    let labels = "labels: {call: __syscall_nr, thread: common_pid}";
    for (name, entry) in [
        ("counted only", format!("{{event: '{enter}'}}")),
        ("two labels", format!("{{event: '{enter}', {labels}}}")),
        ("histogram", format!("{{event: '{enter}', histogram: {{of: __syscall_nr}}}}")),
        ("two labels, per process", format!("{{event: '{enter}', {labels}, per: [process]}}")),
        (
            "pairs by thread (two records per hit)",
            format!("{{from: '{enter}', to: 'syscalls:sys_exit_getppid', key: [$tid], histogram: seconds}}"),
        ),
    ] {
        let service = serve(&entry);
        let used =
            |scrape: &Exposition| scrape.value("perf_exporter_cpu_seconds_total", &[]).unwrap_or_default();
        let before = resident(&service);
        let (mut costs, mut rates, mut first) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..5 {
            let begin = used(&service.metrics());
            let start = Instant::now();
            Target::SystemCall.hit(MILLION);
            rates.push(MILLION as f64 / start.elapsed().as_secs_f64());
            sleep(SETTLE);
            let end = service.metrics();
            if costs.is_empty() {
                // Rings start small, and a collection enlarges rings that have overflowed.
                first = lost(&end);
            }
            costs.push(used(&end) - begin);
        }
        let cost = median(costs) * 1e9 / MILLION as f64;
        let goal = ("at most 100 ns", cost <= 100.0);
        line(
            &format!("CPU time of perf-exporter for a hit, {name}"),
            &format!("{cost:.0} ns"),
            (name == "two labels").then_some(goal),
        );
        let later = lost(&service.metrics()) - first;
        let rate = median(rates) / 1e6;
        line(
            &format!("  lost of the first million, of four more; at {rate:.2} M hits/s"),
            &format!("{first:.0}, {later:.0}"),
            None,
        );
        let after = resident(&service);
        line("  resident before and after", &format!("{before}, {after} KiB"), None);
    }
}

/// Returns the resident memory of the service, in KiB.
fn resident(service: &Service) -> u64 {
    let status = read_text(&PathBuf::from(format!("/proc/{}/status", service.child.id()))).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse().unwrap()
}

fn main() {
    let online = Facts::read(&Roots::default()).online;
    if !(online.contains(0) && online.contains(HIT as u32)) {
        println!("not measured: requires the CPUs 0 and {HIT}; online: {online}");
        return;
    }
    // All processes started from here inherit the affinity.
    let mut only = CpuSet::new();
    only.set(0);
    sched_setaffinity(None, &only).unwrap();
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, part) in [("hits", hits as fn()), ("records", records)] {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part();
        }
    }
}
