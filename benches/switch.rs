//! Overhead of attribution: time added to a context switch, CPU time of the exporter for a switch, memory and descriptors for a cgroup. The
//! switch stream is compared with `perf stat --for-each-cgroup` and with a BPF program. For perf, the kernel changes counters at each
//! switch; the BPF program does the same as the stream.
//!
//! `cargo bench --bench switch` takes about three minutes; `-- switches`, `-- records` or `-- memory` runs one part. Requires root,
//! cgroups, and two CPUs. The switching processes run alone on CPU 1, as far as the machine allows, and everything else runs on CPU 0.
//! Goals are not checked as tests: a missed goal is only printed.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod bpf;
#[expect(dead_code, reason = "it belongs to the tests, which use all of it")]
#[path = "../tests/live/perf.rs"]
mod perf;
#[expect(
    dead_code,
    unused_imports,
    clippy::print_stderr,
    clippy::explicit_write,
    reason = "it belongs to the tests, which use all of it, may print and have their output captured"
)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use perf_exporter::host::{Facts, Roots, read_text};
use rustix::thread::{CpuSet, sched_setaffinity};

use bpf::Bpf;
use perf::PerfStat;
use support::cgroup::TestCgroup;
use support::load::{Churn, PingPong};
use support::service::Service;
use support::{Feature, lacks};

const EVENTS: [&str; 4] = ["cpu-clock", "page-faults", "context-switches", "cpu-migrations"];
/// CPU of the two switching processes.
const SWITCHING: usize = 1;
/// Number of rounds of the first part. Each round has one turn for each case.
const ROUNDS: usize = 9;
/// Number of round trips in a turn; each is two switches.
const TRIPS: u64 = 100_000;
/// Pause until the stream has read all counts.
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

/// The service's way of attribution.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attribution {
    Stream,
    Dedicated,
}

impl Attribution {
    fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Dedicated => "dedicated",
        }
    }

    /// Starts the service with the four events in one group, for the cgroups of a pattern and the two of the switching processes.
    fn serve(self, per: &str, cgroups: &str) -> Service {
        // A program without this setting uses event descriptors of each target.
        let known = support::can_choose_attribution();
        let how = if known { format!(", attribution: {}", self.name()) } else { String::new() };
        let events = EVENTS.join(", ");
        Service::start(&format!(
            "collection: {{interval: 10m, freshness: 0s}}\n\
             counters: {{four: {{events: [{events}], per: [{per}]}}}}\n\
             cgroups: {{include: [\"{cgroups}\"]{how}}}\n\
             processes: {{include: [{{comm: ping}}, {{comm: pong}}], by: [comm]{how}}}\n"
        ))
    }
}

/// The tool that counts during a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counter {
    Nothing,
    Perf,
    Bpf,
    /// The service, with this value of `per`.
    Ours(&'static str),
}

impl Counter {
    const ALL: [Self; 6] = [
        Self::Nothing,
        Self::Perf,
        Self::Ours("cgroup"),
        Self::Bpf,
        Self::Ours("process"),
        Self::Ours("cgroup, process"),
    ];

    fn name(self) -> String {
        match self {
            Self::Nothing => "no counting".to_owned(),
            Self::Perf => "perf stat --for-each-cgroup".to_owned(),
            Self::Bpf => "the BPF program".to_owned(),
            Self::Ours(per) => format!("switch stream per {per}"),
        }
    }
}

/// Two switching processes, and the tools that count them.
struct Ring<'a> {
    top: &'a TestCgroup,
    first: &'a TestCgroup,
    second: &'a TestCgroup,
    switching: PingPong,
    bpf: Option<Bpf>,
    /// Share of each turn in which the two processes had their CPU.
    undisturbed: Vec<f64>,
}

impl Ring<'_> {
    /// Runs a turn. Returns nanoseconds per switch, or `None` if the tool did not count.
    fn turn(&mut self, counter: Counter) -> Option<f64> {
        let (path, other) = (self.first.path(), self.second.path());
        let mut run = || {
            let switches = self.switching.run(SWITCHING, TRIPS);
            self.undisturbed.push(switches.cpu.as_secs_f64() / switches.elapsed.as_secs_f64());
            switches.nanoseconds()
        };
        let (figure, counted) = match counter {
            Counter::Nothing => {
                // For a second after the last event is closed, the kernel still checks for events at each switch.
                sleep(Duration::from_millis(1300));
                return Some(run());
            }
            Counter::Perf => {
                let names = format!("{},{}", &path[1..], &other[1..]);
                let mut perf = PerfStat::open(&EVENTS, &["-a", "--for-each-cgroup", &names]);
                perf.enable();
                let figure = run();
                perf.disable();
                (figure, perf.counts().of_cgroup("context-switches", &path[1..]))
            }
            Counter::Bpf => {
                let counting = self.bpf.as_ref()?.start();
                let counting = counting.map_err(|error| println!("the BPF program: {error}")).ok()?;
                let figure = run();
                (figure, counting.context_switches(self.first.dir().metadata().unwrap().ino()))
            }
            Counter::Ours(per) => {
                let service = Attribution::Stream.serve(per, &format!("{}/*", self.top.path()));
                let figure = run();
                sleep(SETTLE);
                let scrape = service.metrics();
                let (metric, label) = match per {
                    "process" => ("perf_process_context_switches_total", ("comm", "ping")),
                    _ => ("perf_cgroup_context_switches_total", ("cgroup", path)),
                };
                (figure, scrape.value(metric, &[label]).unwrap_or_default())
            }
        };
        (counted >= 0.9 * TRIPS as f64).then_some(figure)
    }
}

/// Text of a goal, and the condition for meeting it.
type Goal = (&'static str, fn(f64) -> bool);

/// First part: measures the time that each tool adds to a switch.
fn switches() {
    let top = TestCgroup::new("switch");
    let (first, second) = (top.below("first"), top.below("second"));
    let switching = PingPong::between(&first, &second);
    let bpf = Bpf::build().map_err(|error| println!("the BPF program is skipped: {error}")).ok();
    let counters = Counter::ALL.into_iter().filter(|counter| match counter {
        Counter::Perf => !lacks(Feature::Perf),
        Counter::Bpf => bpf.is_some(),
        Counter::Nothing | Counter::Ours(_) => true,
    });
    let counters: Vec<Counter> = counters.collect();
    let mut ring =
        Ring { top: &top, first: &first, second: &second, switching, bpf, undisturbed: Vec::new() };
    // The first run warms up.
    ring.turn(Counter::Nothing);
    let rounds: Vec<Vec<Option<f64>>> =
        (0..ROUNDS).map(|_| counters.iter().map(|counter| ring.turn(*counter)).collect()).collect();
    // Each turn is compared with the turn without counting in the same round, because other activity on the machine varies.
    let added = |counter: Counter| -> Option<f64> {
        let at = counters.iter().position(|other| *other == counter)?;
        let figures: Vec<f64> = rounds.iter().filter_map(|round| Some(round[at]? - round[0]?)).collect();
        (figures.len() > ROUNDS / 2).then(|| median(figures))
    };
    let bare = median(rounds.iter().filter_map(|round| round[0]).collect());
    line("a switch between two cgroups, without counting", &format!("{bare:.0} ns"), None);
    for counter in counters.iter().skip(1) {
        let figure = added(*counter).map_or("did not count".to_owned(), |added| format!("{added:+.0} ns"));
        line(&format!("added by {}", counter.name()), &figure, None);
    }
    let undisturbed = format!("{:.0} %", 100.0 * median(ring.undisturbed));
    line("share of time in which the two had their CPU (noise if low)", &undisturbed, None);
    let compare = |one: Counter, other: Counter, goal: Option<Goal>| {
        let ratio = added(one).zip(added(other)).map(|(one, other)| one / other);
        let figure = ratio.map_or("not measured".to_owned(), |ratio| format!("{ratio:.2}"));
        let goal = goal.map(|(goal, meets)| (goal, ratio.is_some_and(meets)));
        line(&format!("{} / {}", one.name(), other.name()), &figure, goal);
    };
    compare(Counter::Ours("cgroup"), Counter::Perf, Some(("at most 0.55", |ratio| ratio <= 0.55)));
    compare(Counter::Ours("process"), Counter::Perf, Some(("at most 0.7", |ratio| ratio <= 0.7)));
    compare(Counter::Ours("cgroup, process"), Counter::Perf, None);
    compare(
        Counter::Ours("cgroup"),
        Counter::Bpf,
        Some(("0.9 to 1.1", |ratio| (0.9..=1.1).contains(&ratio))),
    );
}

/// Second part: measures the exporter's CPU time for a million switches.
fn records() {
    const MILLION_TRIPS: u64 = 500_000;
    let top = TestCgroup::new("records");
    let (first, second) = (top.below("first"), top.below("second"));
    let mut switching = PingPong::between(&first, &second);
    for (per, goal, most) in [("cgroup", "at most 40 ms", 40.0), ("process", "at most 60 ms", 60.0)] {
        let service = Attribution::Stream.serve(per, &format!("{}/*", top.path()));
        let used = || service.metrics().value("perf_exporter_cpu_seconds_total", &[]).unwrap();
        let lost = || {
            service
                .metrics()
                .sum("perf_unattributed_context_switches_total", &[("scope", per), ("reason", "lost")])
        };
        let (mut costs, lost_before) = (Vec::new(), lost());
        for _ in 0..3 {
            // Other activity on this machine causes records too, which are part of the idle rate.
            let (start, begin) = (Instant::now(), used());
            sleep(Duration::from_secs(3));
            let (idle_for, idle) = (start.elapsed().as_secs_f64(), used());
            let start = Instant::now();
            switching.run(SWITCHING, MILLION_TRIPS);
            sleep(SETTLE);
            let busy = used() - idle;
            let at_rest = (idle - begin) / idle_for * start.elapsed().as_secs_f64();
            costs.push((busy - at_rest) * 1e3);
        }
        let lost = (lost() - lost_before) / costs.len() as f64;
        let cost = median(costs);
        let what = format!("CPU time of perf-exporter for 1 M switches, per {per}");
        line(&what, &format!("{cost:.1} ms"), Some((goal, cost <= most)));
        line(
            &format!("records lost of 1 M switches, per {per}"),
            &format!("{lost:.0}"),
            Some(("0", lost == 0.0)),
        );
    }
}

/// Resources of the service for a number of cgroups.
struct Footprint {
    cgroups: usize,
    descriptors: f64,
    /// Bytes.
    resident: f64,
}

fn footprint(attribution: Attribution, cgroups: usize) -> Footprint {
    let top = TestCgroup::new("memory");
    let all: Vec<TestCgroup> = (0..cgroups).map(|name| top.below(&name.to_string())).collect();
    let mut churn = Churn::below(&top, "brief");
    let service = attribution.serve("cgroup", &format!("{}/*", top.path()));
    churn.visit(cgroups as u64);
    sleep(SETTLE);
    let scrape = service.metrics();
    let counted = |cgroup: &&TestCgroup| {
        let faults = scrape.value("perf_cgroup_page_faults_total", &[("cgroup", cgroup.path())]);
        faults.is_some_and(|faults| faults > 0.0)
    };
    let counted = all.iter().filter(counted).count();
    if counted < cgroups {
        println!("only {counted} of {cgroups} cgroups have counts");
    }
    let descriptors = scrape.value("perf_exporter_open_descriptors", &[]).unwrap();
    let status = read_text(&PathBuf::from(format!("/proc/{}/status", service.child.id()))).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: f64 = kib.trim().trim_end_matches(" kB").parse().unwrap();
    let name = attribution.name();
    line(&format!("descriptors with {cgroups} cgroups, {name}"), &format!("{descriptors}"), None);
    line(&format!("resident with {cgroups} cgroups, {name}"), &format!("{kib:.0} KiB"), None);
    Footprint { cgroups, descriptors, resident: kib * 1024.0 }
}

/// Third part: measures the resources for cgroups.
fn memory() {
    for (attribution, sizes) in
        [(Attribution::Stream, &[10, 100, 1000][..]), (Attribution::Dedicated, &[10, 100][..])]
    {
        let footprints: Vec<Footprint> = sizes.iter().map(|size| footprint(attribution, *size)).collect();
        let [.., fewer, more] = &footprints[..] else { unreachable!("two sizes at least") };
        let further = (more.cgroups - fewer.cgroups) as f64;
        let bytes = (more.resident - fewer.resident) / further / EVENTS.len() as f64;
        let descriptors = (more.descriptors - fewer.descriptors) / further;
        let stream = attribution == Attribution::Stream;
        let name = attribution.name();
        let what = format!("bytes for each further cgroup and event, {name}");
        line(&what, &format!("{bytes:.0}"), stream.then_some(("below 1024", bytes < 1024.0)));
        let what = format!("descriptors for each further cgroup, {name}");
        line(&what, &format!("{descriptors}"), stream.then_some(("0", descriptors == 0.0)));
    }
}

fn main() {
    if support::worker::is_child() {
        return;
    }
    if lacks(Feature::Cgroup) {
        return;
    }
    let online = Facts::read(&Roots::default()).online;
    if !(online.contains(0) && online.contains(SWITCHING as u32)) {
        println!("not measured: requires the CPUs 0 and {SWITCHING}; online: {online}");
        return;
    }
    // All processes started from here inherit the affinity.
    let mut only = CpuSet::new();
    only.set(0);
    sched_setaffinity(None, &only).unwrap();
    if lacks(Feature::Stream) {
        println!("so the figures of the switch stream below are those of descriptors for each target");
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, part) in [("switches", switches as fn()), ("records", records), ("memory", memory)] {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part();
        }
    }
}
