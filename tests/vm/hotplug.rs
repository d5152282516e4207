//! A CPU that goes offline and comes back, again and again, under load. `HOTPLUG_CYCLES` sets how often.

use std::env;
use std::fs;
use std::ops::Range;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::host::{Roots, list, read_text};

use crate::support::cgroup::TestCgroup;
use crate::support::collector::{Growth, RunningCollector};
use crate::support::cpu_times::CpuTimes;
use crate::support::exposition::Exposition;
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};
use crate::{ALWAYS_FRESH, advance, alone, stream_with};

/// How long the CPU is offline in a cycle, on average.
const OFFLINE: Duration = Duration::from_millis(20);

/// How long it is online, where it matters whether counts are lost.
const SHORT: Duration = Duration::from_millis(100);

/// The same where it matters how much time is lost.
const LONG: Duration = Duration::from_millis(1200);

fn cycles() -> u32 {
    env::var("HOTPLUG_CYCLES").map_or(12, |cycles| cycles.parse().expect("a number of cycles"))
}

/// The second CPU of the machine. It is online again when this is dropped.
struct SecondCpu;

impl SecondCpu {
    fn set(online: bool) {
        let path = Roots::default().sys.join("devices/system/cpu/cpu1/online");
        fs::write(&path, if online { "1" } else { "0" }).unwrap();
    }

    /// Takes it offline and brings it back, and returns about so long after that. What `between` does comes while it is offline. Returns
    /// the time in which it came back. The kernel reports it at the end of that.
    fn cycle(&self, number: u32, online: Duration, between: impl FnOnce()) -> Range<Timestamp> {
        // Not in step with anything else.
        let part = |whole: Duration| whole / 2 + whole * (number * 7 % 11) / 10;
        Self::set(false);
        thread::sleep(part(OFFLINE));
        between();
        let clock = Clock::system();
        let begin = clock.now();
        Self::set(true);
        let returned = begin..clock.now();
        thread::sleep(part(online));
        returned
    }
}

impl Drop for SecondCpu {
    fn drop(&mut self) {
        Self::set(true);
    }
}

/// Processes in a cgroup that use as much of the CPUs as they get.
struct Burners {
    children: Vec<Child>,
    cgroup: TestCgroup,
}

impl Burners {
    fn start(name: &str, count: usize) -> Self {
        let cgroup = TestCgroup::new(name);
        let children = (0..count).map(|_| {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
            cgroup.take(child.id());
            child
        });
        Self { children: children.collect(), cgroup }
    }

    /// The time that they have used, as the kernel accounts for it.
    fn used(&self) -> Duration {
        let stat = read_text(&self.cgroup.dir().join("cpu.stat")).unwrap();
        let used = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap();
        Duration::from_micros(used.parse().unwrap())
    }

    fn end(mut self) {
        for mut child in std::mem::take(&mut self.children) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

const COUNTERS: &str = "counters: {all: {events: [task-clock, context-switches, page-faults], per: [cpu, cgroup, process]}}\n\
    cgroups: {include: [\"/**\"], exclude: [], attribution: stream}\n\
    processes: {include: [{comm: \"*\"}], by: [comm], attribution: stream}\n";

const METRICS: [&str; 3] = ["task_clock_seconds", "context_switches", "page_faults"];

/// What is in the series of a scope, and what has no owner there.
fn accounted(scrape: &Exposition, scope: &str, metric: &str) -> f64 {
    let rest = scrape.sum(&format!("perf_unattributed_{metric}_total"), &[("scope", scope)]);
    scrape.sum(&format!("perf_{scope}_{metric}_total"), &[]) + rest
}

#[test]
fn every_count_is_attributed_once_however_often_a_cpu_goes_and_comes() {
    if lacks(Feature::Hotplug) || lacks(Feature::Stream) || lacks(Feature::Cgroup) {
        return;
    }
    let _alone = alone();
    conserve(COUNTERS, &METRICS);
}

#[test]
fn every_count_of_a_hardware_event_is_attributed_once_however_often_a_cpu_goes_and_comes() {
    let Some(_counters) = stream_with(Feature::Emulated) else { return };
    let counters = COUNTERS.replace("[task-clock", "[cycles, instructions, task-clock");
    conserve(&counters, &[&["cycles", "instructions"], &METRICS[..]].concat());
}

fn conserve(counters: &str, metrics: &[&str]) {
    let (cpu, burners) = (SecondCpu, Burners::start("conserved", 3));
    let mut accountant = RunningCollector::of(counters);
    assert_eq!(accountant.refusals(), [""; 0]);
    let mut growth = Growth::default();
    for cycle in 0..cycles() {
        // The exporter looks while the CPU is offline, or between two collections, or only after it is back, or not at all.
        match cycle % 4 {
            0 => cpu.cycle(cycle, SHORT, || growth.take(&accountant.collect())),
            1 => cpu.cycle(cycle, SHORT, || accountant.follow_cpus()),
            _ => cpu.cycle(cycle, SHORT, || {}),
        };
        match cycle % 8 {
            0..=2 => accountant.follow_cpus(),
            3..=5 => growth.take(&accountant.collect()),
            _ => {}
        }
        assert_eq!(accountant.refusals(), [""; 0], "in cycle {cycle}");
    }
    let families = accountant.finish();
    growth.take(&families);
    for scope in ["cgroup", "process"] {
        for metric in metrics {
            let balance = families.balance(scope, metric);
            balance.assert_exact();
            println!("{balance:?}");
        }
    }
    assert!(
        families.sum("perf_cgroup_task_clock_seconds", &[("cgroup", burners.cgroup.path())]) > 0,
        "{families:?}"
    );
    burners.end();
}

/// Returns the time of each line of a log that says that the events of both CPUs are open.
fn reopened(log: &str) -> Vec<Timestamp> {
    let lines = log.lines().filter(|line| line.contains("online CPUs changed online=0-1 "));
    lines.map(|line| line.split(' ').find_map(Timestamp::parse).expect(line)).collect()
}

/// Returns how many milliseconds the events of a CPU were closed after it had come back.
fn closed_after(returned: &Range<Timestamp>, reopened: &[Timestamp]) -> u64 {
    let after = reopened.iter().filter(|&&time| time >= returned.start).min();
    after.expect("the service opens the events again").0.saturating_sub(returned.end.0)
}

/// How long that takes depends on the machine: an emulated CPU needs 15 to 40 ms, others one.
#[test]
fn burners_lose_only_the_time_until_the_events_of_a_returned_cpu_are_open() {
    if lacks(Feature::Hotplug) || lacks(Feature::Stream) || lacks(Feature::Cgroup) {
        return;
    }
    let _alone = alone();
    let (cpu, burners) = (SecondCpu, Burners::start("burners", 3));
    let mut service = Service::start(&format!("{ALWAYS_FRESH}{COUNTERS}"));
    let path = burners.cgroup.path().to_owned();
    let measure = || (service.metrics(), burners.used(), CpuTimes::of_all_cpus());
    let (before, used, times) = measure();
    let mut last = service.metrics();
    let mut returns = Vec::new();
    for cycle in 0..cycles() {
        returns.push(cpu.cycle(cycle, LONG, || {}));
        if cycle % 10 == 9 {
            let now = service.metrics();
            for (metric, scope) in
                METRICS.into_iter().flat_map(|metric| [(metric, "cgroup"), (metric, "process")])
            {
                let counted = now.sum(&format!("perf_cpu_{metric}_total"), &[]);
                let accounted = [&last, &now].map(|scrape| accounted(scrape, scope, metric));
                assert!(
                    accounted[0] <= accounted[1] && accounted[1] <= counted * (1.0 + 1e-9),
                    "{metric}: {accounted:?} {counted}"
                );
            }
            last = now;
        }
    }
    let (after, used_after, times_after) = measure();
    let counted = advance(&before, &after, "perf_cgroup_task_clock_seconds_total", &[("cgroup", &path)]);
    let used = (used_after - used).as_secs_f64();
    // A clock also runs in interrupts and while the host has the CPU, for which the kernel does not account to a cgroup.
    let taken = |times: &CpuTimes| (times.interrupted + times.stolen).as_secs_f64();
    let taken = taken(&times_after) - taken(&times);
    let log = service.log();
    let reopened = reopened(&log);
    let closed: u64 = returns.iter().map(|returned| closed_after(returned, &reopened)).sum();
    let closed = closed as f64 / 1e3;
    println!(
        "{counted} s counted, {used} s used, {taken} s taken by interrupts and the host, {closed} s without events"
    );
    assert!(
        counted + closed > used * 0.995 && counted < used * 1.01 + taken,
        "{counted} {used} {taken} {closed}"
    );
    assert!(!log.contains("ERROR") && !log.contains(" cannot "), "{log}");
    burners.end();
}

/// Tracepoints, the scheduler, system calls and profiles have rings of their own.
#[test]
fn all_rings_are_read_again_from_a_cpu_that_came_back() {
    if lacks(Feature::Hotplug)
        || lacks(Feature::Stream)
        || lacks(Feature::Tracefs)
        || lacks(Feature::Tracepoint)
    {
        return;
    }
    let _alone = alone();
    let (cpu, burners) = (SecondCpu, Burners::start("rings", 3));
    let mut service = Service::start(&format!(
        "{ALWAYS_FRESH}{COUNTERS}profiles: {{cpu: {{event: cpu-clock, frequency: 99}}}}\n\
         scheduler: {{per: [host, cgroup]}}\n\
         tracepoints: {{waking: {{event: \"sched:sched_waking\", per: [cpu], labels: [target_cpu]}}}}\n"
    ));
    // The service opens files such as `/proc/kallsyms` for a short time.
    let descriptors = |service: &Service| {
        let fds = Roots::default().proc.join(format!("{}/fd", service.child.id()));
        let links = list(&fds).unwrap().into_iter().filter_map(|fd| fs::read_link(fds.join(fd)).ok());
        links.filter(|link| link.as_os_str().as_encoded_bytes().starts_with(b"anon_inode:")).count()
    };
    service.metrics();
    let open = descriptors(&service);
    assert!(open > 0);
    let mut last = service.metrics();
    for cycle in 0..4 {
        cpu.cycle(cycle, SHORT, || {});
        let now = service.metrics();
        for name in ["perf_ring_records_total", "perf_lost_records_total", "perf_samples_total"] {
            let both = [&last, &now].map(|scrape| scrape.sum(name, &[]));
            assert!(both[0] <= both[1], "{name} falls: {both:?}");
        }
        last = now;
    }
    eventually("as many events, signals and pollers are open as before", || {
        service.metrics();
        (descriptors(&service) == open).then_some(())
    });
    let before = service.metrics();
    thread::sleep(Duration::from_secs(1));
    let after = service.metrics();
    for ring in ["switches", "tracepoints", "samples"] {
        assert!(advance(&before, &after, "perf_ring_records_total", &[("ring", ring)]) > 0.0, "{ring}");
    }
    let of_cpu = advance(&before, &after, "perf_cpu_task_clock_seconds_total", &[("cpu", "1")]);
    let ran =
        after.sum("perf_sched_run_seconds_total", &[]) - before.sum("perf_sched_run_seconds_total", &[]);
    assert!(of_cpu > 0.5 && ran > 1.2, "{of_cpu} s counted on the CPU, {ran} s of threads");
    assert!(!service.log().contains("ERROR"), "{}", service.log());
    burners.end();
}
