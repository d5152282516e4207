//! Overhead of scheduler metrics: time added to programs that switch all the time, compared with `perf sched record`; records per second
//! that one core can process; memory for ten thousand threads.
//!
//! `cargo bench --bench sched` takes some five minutes; `-- memory`, `-- records` or `-- slowdown` runs one part. Requires root and two
//! CPUs. The pipe runs alone on CPU 1, as far as the machine allows, and everything else runs on CPU 0; messaging runs on both. Goals are
//! not checked as tests: a missed goal is only printed.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]

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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;
use perf_exporter::event::format::Format;
use perf_exporter::host::{Facts, Roots, read_text};
use perf_exporter::metrics::Buckets;
use perf_exporter::ring::Record;
use perf_exporter::sched::{Layout, SchedFact, Sums, Timeline};
use perf_exporter::sys::Fields;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use support::lines::Lines;
use support::service::Service;
use support::{Feature, lacks};

/// CPU of the pipe.
const PIPE: &str = "1";
/// Number of rounds. Each round has one turn for each case.
const ROUNDS: usize = 9;
/// An added share below this cannot be distinguished from noise.
const NOISE: f64 = 0.02;
/// Pause before a turn, until other work has finished.
const SETTLE: Duration = Duration::from_millis(500);
/// Configuration of the service: only the measured part, without a limit of CPU time.
const SCHEDULER: &str = "collection: {interval: 10s, freshness: 0s}\ncounters: {}\nlimits: {cpu: off}\n\
                         scheduler: {per: [host, cgroup]}\n";

/// Prints a line of the result.
fn line(what: &str, figure: &str, goal: Option<(&str, bool)>) {
    let (goal, met) = goal.map_or(("", ""), |(goal, met)| (goal, if met { "met" } else { "missed" }));
    println!("{}", format!("{what:<66} {figure:>14}   {goal:<18} {met}").trim_end());
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A program that switches all the time, and reports its duration in seconds.
struct Load {
    name: &'static str,
    command: &'static [&'static str],
}

const LOADS: [Load; 2] = [
    Load {
        name: "pipe, on one CPU",
        command: &["taskset", "-c", PIPE, "perf", "bench", "-f", "simple", "sched", "pipe", "-l", "200000"],
    },
    Load {
        // One group through pipes, the mode with the most switches.
        name: "messaging, on all CPUs",
        command: &[
            "taskset",
            "-c",
            "0,1",
            "perf",
            "bench",
            "-f",
            "simple",
            "sched",
            "messaging",
            "-g",
            "1",
            "-p",
            "-l",
            "2000",
        ],
    },
];

/// The tool that records during a turn.
#[derive(Clone, Copy)]
enum Watcher {
    Nothing,
    Perf,
    Ours,
}

/// Duration of a load, and figures of the service during it.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    seconds: f64,
    /// CPU seconds.
    cpu: f64,
    /// Records that were read, and records that were lost.
    read: f64,
    lost: f64,
}

/// A running `perf sched record` whose output is discarded.
struct PerfSched {
    child: Child,
    _orders: ChildStdin,
}

impl PerfSched {
    fn start() -> Self {
        // Delay -1 starts disabled. Orders are read from descriptor 0 and acknowledged on 1.
        let mut child = Command::new("perf")
            .args(["sched", "record", "-o", "/dev/null", "--delay=-1", "--control=fd:0,1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut orders = child.stdin.take().unwrap();
        let said = Lines::of(child.stdout.take().unwrap());
        writeln!(orders, "enable").unwrap();
        assert_eq!(said.next().as_deref(), Some("ack"), "perf sched record acknowledges enable");
        Self { child, _orders: orders }
    }
}

impl Drop for PerfSched {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        drop(self.child.wait());
    }
}

impl Load {
    /// Runs the load, and returns its duration in seconds.
    fn run(&self) -> f64 {
        sleep(SETTLE);
        let output = Command::new(self.command[0]).args(&self.command[1..]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    }

    /// Runs a turn with this tool.
    fn turn(&self, watcher: Watcher) -> Turn {
        match watcher {
            Watcher::Nothing => Turn { seconds: self.run(), ..Turn::default() },
            Watcher::Perf => {
                let _recording = PerfSched::start();
                Turn { seconds: self.run(), ..Turn::default() }
            }
            Watcher::Ours => {
                let service = Service::start(SCHEDULER);
                let sums = || {
                    let metrics = service.metrics();
                    let names = ["exporter_cpu_seconds", "ring_records", "lost_records"];
                    names.map(|name| metrics.sum(&format!("perf_{name}_total"), &[]))
                };
                let before = sums();
                let seconds = self.run();
                let after = sums();
                let [cpu, read, lost] = [0, 1, 2].map(|place: usize| after[place] - before[place]);
                Turn { seconds, cpu, read, lost }
            }
        }
    }

    /// Measures the time that each tool adds.
    fn compare(&self) {
        let name = self.name;
        // The first run warms up.
        self.turn(Watcher::Nothing);
        let turns = [Watcher::Nothing, Watcher::Perf, Watcher::Ours];
        let rounds: Vec<[Turn; 3]> = (0..ROUNDS).map(|_| turns.map(|watcher| self.turn(watcher))).collect();
        let of = |figure: fn(&[Turn; 3]) -> f64| median(rounds.iter().map(figure).collect());
        let say = |what: &str, figure: &str, goal| line(&format!("{name}: {what}"), figure, goal);
        say("without recording", &format!("{:.3} s", of(|round| round[0].seconds)), None);
        // Each turn is compared with the turn without recording in the same round, because other activity on the machine varies.
        let perf = of(|round| round[1].seconds / round[0].seconds - 1.0);
        let ours = of(|round| round[2].seconds / round[0].seconds - 1.0);
        say("added by perf sched record", &format!("{:+.1} %", perf * 100.0), None);
        say("added by perf-exporter", &format!("{:+.1} %", ours * 100.0), None);
        let what = "time added by perf-exporter / by perf sched record";
        if perf > NOISE {
            let ratio = ours / perf;
            say(what, &format!("{ratio:.2}"), Some(("at most 0.5", ratio <= 0.5)));
        } else {
            say(what, "within noise", None);
        }
        say("CPU time of perf-exporter", &format!("{:.2} s", of(|round| round[2].cpu)), None);
        let [read, lost] = [of(|round| round[2].read), of(|round| round[2].lost)];
        say("records that perf-exporter read, and lost", &format!("{read:.0}, {lost:.0}"), None);
    }
}

fn slowdown() {
    if lacks(Feature::Perf) || lacks(Feature::Tracepoint) {
        return;
    }
    LOADS.iter().for_each(Load::compare);
}

/// Fields with which the events of the scheduler are opened.
const FIELDS: Fields =
    Fields { identifier: true, tid: true, time: true, raw: true, cgroup: true, ..Fields::NONE };

/// Identifier in the records of each event.
const SWITCH: u64 = 1;
const WAKING: u64 = 2;

/// Format as in the kernel, with a shortened print format.
const WAKING_FORMAT: &str = "name: sched_waking\nID: 371\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\
    \tfield:int prio;\toffset:28;\tsize:4;\tsigned:1;\n\
    \tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n\n\
    print fmt: \"comm=%s pid=%d prio=%d target_cpu=%03d\", REC->comm, REC->pid, REC->prio, REC->target_cpu\n";

/// Returns the layouts of both events.
fn layouts() -> [Layout; 2] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats/sched:sched_switch");
    let texts = [read_text(&path).unwrap(), WAKING_FORMAT.to_owned()];
    texts.map(|text| Layout::of(&Format::parse(&text).unwrap()).unwrap())
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A thread with its name and its cgroup. Ten programs in each of a hundred cgroups have threads.
#[derive(Clone, Copy)]
struct Thread(u32);

impl Thread {
    fn comm(self) -> [u8; 16] {
        let mut comm = [0; 16];
        let name = format!("program-{}", self.0 % 10);
        comm[..name.len()].copy_from_slice(name.as_bytes());
        comm
    }

    fn cgroup(self) -> u64 {
        1000 + u64::from(self.0 / 10 % 100)
    }

    /// Returns the bytes of the pid and the priority.
    fn numbers(self) -> [u8; 8] {
        (120 << 32 | u64::from(self.0)).to_ne_bytes()
    }

    /// Returns the record of an event that happens while this thread runs.
    fn sample(self, event: u64, number: u16, time: u64, fields: &[u8]) -> Vec<u8> {
        let raw = [&u64::from(number).to_ne_bytes()[..], fields].concat();
        // The size and the bytes together are a multiple of eight bytes.
        let length = (4 + raw.len()).next_multiple_of(8) - 4;
        let mut body = words(&[event, u64::from(self.0) << 32 | u64::from(self.0), time]);
        body.extend((length as u32).to_ne_bytes());
        body.extend(&raw);
        body.resize(body.len() + length - raw.len(), 0);
        body.extend(words(&[self.cgroup()]));
        let size = u16::try_from(8 + body.len()).unwrap();
        [&PERF_RECORD_SAMPLE.to_ne_bytes()[..], &[0, 0], &size.to_ne_bytes(), &body].concat()
    }

    /// Returns the record of a switch from this thread to another.
    fn leaves(self, state: u64, next: Self, time: u64) -> Vec<u8> {
        let fields = [&self.comm()[..], &self.numbers(), &state.to_ne_bytes(), &next.comm(), &next.numbers()];
        self.sample(SWITCH, 372, time, &fields.concat())
    }

    /// Returns the record of a wakeup of another thread.
    fn wakes(self, other: Self, time: u64) -> Vec<u8> {
        self.sample(WAKING, 371, time, &[&other.comm()[..], &other.numbers(), &[0; 4]].concat())
    }
}

/// Returns the records of one CPU on which this many threads alternate. Each wakes the second next thread and goes to sleep; one in four is
/// preempted.
fn stream(threads: u32, switches: u32, wakes: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut time = 1_000_000;
    for turn in 0..switches {
        let [now, next, later] = [0, 1, 2].map(|ahead| Thread(1 + (turn + ahead) % threads));
        if wakes {
            bytes.extend(now.wakes(later, time));
        }
        let state = if turn % 4 == 0 { 0 } else { 1 };
        bytes.extend(now.leaves(state, next, time + 1_500));
        time += 2_500;
    }
    bytes
}

/// Sums of times: of all threads together, and of each cgroup.
type Owners = Sums<u64>;

fn sums() -> Owners {
    Sums::new(Buckets::exponential("seconds"))
}

/// Processes all records.
fn take_in(bytes: &[u8], layouts: &[Layout; 2], timeline: &mut Timeline, sums: &mut Owners) {
    let mut rest = bytes;
    while let Some(header) = rest.first_chunk::<8>() {
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let (record, after) = rest.split_at(size);
        rest = after;
        let Ok(Record::Sample(sample)) = Record::parse(record, &FIELDS) else { panic!("not a sample") };
        let layout = &layouts[usize::from(sample.identifier == WAKING)];
        let event = layout.read(sample.raw).unwrap();
        let of = (sample.pid, sample.cgroup);
        timeline.enter(
            (0, sample.time),
            of,
            event,
            &mut |who: &perf_exporter::sched::Thread, told: SchedFact| {
                sums.add(0, who, &told);
                sums.add(who.cgroup, who, &told);
            },
        );
    }
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// Second part: measures the number of records per second that one core can process.
fn records() {
    const SWITCHES: u32 = 200_000;
    let layouts = layouts();
    for (name, threads, wakes) in [
        ("switches of 16 threads", 16, false),
        ("switches of 1000 threads", 1000, false),
        ("switches of 1000 threads, each with a wakeup", 1000, true),
        ("switches of 10000 threads, each with a wakeup", 10_000, true),
    ] {
        let bytes = stream(threads, SWITCHES, wakes);
        let round = || {
            let (mut timeline, mut sums) = (Timeline::default(), sums());
            let begin = cpu_time();
            take_in(&bytes, &layouts, &mut timeline, &mut sums);
            black_box(sums.take());
            (cpu_time() - begin).as_secs_f64() / f64::from(SWITCHES)
        };
        round();
        let cost = median((0..11).map(|_| round()).collect());
        let millions = 1e-6 / cost;
        let figure = format!("{millions:.2} M/s");
        line(
            &format!("{name}, {:.0} ns each", cost * 1e9),
            &figure,
            Some(("at least 2 M/s", millions >= 2.0)),
        );
    }
}

/// Third part: measures the memory for ten thousand threads.
fn memory() {
    const THREADS: u32 = 10_000;
    let layouts = layouts();
    let (mut timeline, mut sums) = (Timeline::default(), sums());
    let small = |first: u32| {
        let [one, next] = [Thread(first), Thread(first + 1)];
        [one.wakes(next, u64::from(first) * 1000), one.leaves(1, next, u64::from(first) * 1000 + 500)]
            .concat()
    };
    // Allocations that happen once are made before the measurement.
    take_in(&small(THREADS * 2), &layouts, &mut timeline, &mut sums);
    let before = resident("self");
    (1..=THREADS).for_each(|first| take_in(&small(first), &layouts, &mut timeline, &mut sums));
    let grown = (resident("self") - before) as f64 / 1024.0;
    assert!(timeline.len() >= THREADS as usize);
    let goal = ("under 20 MiB", grown < 20.0);
    line(
        "resident for 10000 threads: timeline, and sums of 100 cgroups",
        &format!("{grown:.1} MiB"),
        Some(goal),
    );
    black_box((&timeline, &sums));
    if lacks(Feature::Tracepoint) {
        return;
    }
    let service = Service::start(SCHEDULER);
    let before = resident(&service.child.id().to_string());
    let ended = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let ended = Arc::clone(&ended);
            let doze = move || {
                while !ended.load(Ordering::Relaxed) {
                    sleep(Duration::from_secs(1));
                }
            };
            thread::Builder::new().stack_size(64 << 10).spawn(doze).unwrap()
        })
        .collect();
    sleep(Duration::from_secs(5));
    service.metrics();
    let grown = (resident(&service.child.id().to_string()).saturating_sub(before)) as f64 / 1024.0;
    let goal = ("under 20 MiB", grown < 20.0);
    line("additional resident memory for 10000 threads: the service", &format!("{grown:.1} MiB"), Some(goal));
    line("  total resident memory", &format!("{:.1} MiB", before as f64 / 1024.0 + grown), None);
    ended.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Returns the resident memory of a process, in KiB.
fn resident(process: &str) -> u64 {
    let status = read_text(&PathBuf::from(format!("/proc/{process}/status"))).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse().unwrap()
}

fn main() {
    let online = Facts::read(&Roots::default()).online;
    if !(online.contains(0) && online.contains(1)) {
        println!("not measured: requires the CPUs 0 and 1; online: {online}");
        return;
    }
    // All processes started from here inherit the affinity.
    let mut only = CpuSet::new();
    only.set(0);
    sched_setaffinity(None, &only).unwrap();
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, part) in [("memory", memory as fn()), ("records", records), ("slowdown", slowdown)] {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part();
        }
    }
}
