//! What a hit of a tracepoint or a probe costs: time added to whom it happens to, beside `perf record` of the same
//! event; our CPU time and memory for a million hits, and how many of them are lost.
//!
//! `cargo bench --bench trace` takes about two minutes; `-- hits` or `-- records` runs a part. Needs root and two CPUs:
//! what is hit has CPU 1 for itself, as far as the machine lets it, and everything else here runs on CPU 0. The goals
//! are no tests: a figure that misses its goal is printed like any other.

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

/// Where the hits are.
const HIT: usize = 1;
/// Rounds of the first part, in each of which everyone has a turn.
const ROUNDS: usize = 11;
/// Hits in a turn.
const HITS: u64 = 200_000;
/// How long to wait until everything else has come to rest.
const SETTLE: Duration = Duration::from_millis(300);

/// A line of the result.
fn line(what: &str, figure: &str, goal: Option<(&str, bool)>) {
    let (goal, met) = goal.map_or(("", ""), |(goal, met)| (goal, if met { "met" } else { "missed" }));
    println!("{}", format!("{what:<62} {figure:>14}   {goal:<16} {met}").trim_end());
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A function that is hit by a probe.
#[inline(never)]
extern "C" fn probed(a: u64, b: u64) -> u64 {
    black_box(a ^ b)
}

/// The file that this program runs from, and where in it [`probed`] begins.
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

/// What is hit.
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

    /// Hits it so often; gives the CPU time that it took.
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

/// An event that both perf and the service know by this name, and two of its fields.
struct Subject {
    target: Target,
    event: String,
    labels: &'static str,
}

/// Who watches while it is hit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watcher {
    Nobody,
    /// The service, which only counts.
    Counter,
    Perf,
    /// The service, with two fields as labels.
    Labels,
}

impl Watcher {
    const ALL: [Self; 4] = [Self::Nobody, Self::Counter, Self::Perf, Self::Labels];

    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody watches",
            Self::Counter => "our counter",
            Self::Perf => "perf record",
            Self::Labels => "our two labels",
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

/// A `perf record` that is recording, to nowhere.
struct PerfRecord {
    child: Child,
    _orders: ChildStdin,
}

impl PerfRecord {
    fn start(event: &str) -> Self {
        let mut command = Command::new("perf");
        // Delay -1 starts disabled; orders come on descriptor 0 and are acknowledged on 1.
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
        assert_eq!(said.next().as_deref(), Some("ack"), "perf record was told to enable");
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
    /// A turn: nanoseconds for a hit.
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
            assert!(seen >= HITS as f64, "{seen} hits were seen of {HITS}");
            figure
        };
        let (event, labels) = (&self.event, self.labels);
        match watcher {
            Watcher::Nobody => run(),
            Watcher::Counter => watched(&format!("{{event: '{event}'}}")),
            Watcher::Labels => watched(&format!("{{event: '{event}', labels: {labels}}}")),
            Watcher::Perf => {
                let _recording = PerfRecord::start(event);
                run()
            }
        }
    }

    /// The first part: what each adds to a hit.
    fn compare(&self) {
        let perf = !lacks(Feature::Perf);
        let watchers: Vec<Watcher> =
            Watcher::ALL.into_iter().filter(|watcher| perf || *watcher != Watcher::Perf).collect();
        // The first run warms up.
        self.turn(Watcher::Nobody);
        let rounds: Vec<Vec<f64>> =
            (0..ROUNDS).map(|_| watchers.iter().map(|watcher| self.turn(*watcher)).collect()).collect();
        let name = self.target.name();
        let bare = median(rounds.iter().map(|round| round[0]).collect());
        line(&format!("a {name}, nobody watches"), &format!("{bare:.0} ns"), None);
        // Each is held against nobody in the same round: what else the machine does comes and goes.
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

/// Records that found no room in their ring.
fn lost(scrape: &Exposition) -> f64 {
    // The sum of nothing is -0.
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

/// The second part: our own CPU time, memory and losses for a million hits.
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
            "pairs by thread (two records a hit)",
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
                // Rings begin small, and a collection makes those larger that ran over.
                first = lost(&end);
            }
            costs.push(used(&end) - begin);
        }
        let cost = median(costs) * 1e9 / MILLION as f64;
        let goal = ("at most 100 ns", cost <= 100.0);
        line(
            &format!("our CPU time for a hit, {name}"),
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

/// KiB.
fn resident(service: &Service) -> u64 {
    let status = read_text(&PathBuf::from(format!("/proc/{}/status", service.child.id()))).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse().unwrap()
}

fn main() {
    let online = Facts::read(&Roots::default()).online;
    if !(online.contains(0) && online.contains(HIT as u32)) {
        println!("not measured: needs the CPUs 0 and {HIT}, and {online} are online");
        return;
    }
    // Inherited by all that is started from here.
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
