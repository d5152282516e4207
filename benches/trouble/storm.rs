//! `--storm`: on each CPU, two processes in separate cgroups send a byte back and forth, and six busy loops run at the same time. With
//! `--hog`, a loop under `SCHED_FIFO` with priority 50 runs on the last CPU. The exporter is started right before. Prints the read and the
//! lost records, in the first second and in total.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use rustix::process::nice;

use crate::exporter::Exporter;
use crate::janitor::Janitor;
use crate::load::inside;
use crate::report::{grown, line, percent};
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::http::ask;
use crate::support::load::PingPong;
use crate::{Options, configuration};

/// Number of busy loops.
const BUSY: usize = 6;
/// Nice value of the switching processes. They switch some 250 000 times per second on each CPU.
const FIRST: i32 = -4;
/// More round trips than can be made.
const ENDLESS: u64 = 1 << 40;
/// Timeout of a scrape.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum expected loss in percent, without a hog and with one.
const GOALS: [f64; 2] = [0.1, 1.0];

/// Counts up to one moment.
struct Moment {
    metrics: Exposition,
    /// Context switches of all CPUs since boot, as counted by the kernel.
    switches: f64,
}

impl Moment {
    /// A scrape shortly after a collection returns the previous one, so the third scrape is used.
    fn now(exporter: &Exporter) -> Self {
        let answers = [(); 3].map(|()| {
            let answer = ask(&exporter.address, "GET", "/metrics", PATIENCE).unwrap();
            assert_eq!(answer.code, 200, "{}", answer.body);
            sleep(Duration::from_millis(300));
            answer.body
        });
        let metrics = Exposition::parse(&answers[2]).unwrap();
        Self { metrics, switches: switches() }
    }
}

fn switches() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    text.lines().find_map(|line| line.strip_prefix("ctxt ")).unwrap().trim().parse().unwrap()
}

pub(crate) fn run(options: &Options) {
    let janitor = Janitor::start();
    let cpus = available_parallelism().unwrap().get();
    let cgroup = |name: &str, cpu| TestCgroup::new(&format!("{name}{cpu}"));
    let cgroups: Vec<(TestCgroup, TestCgroup)> =
        (0..cpus).map(|cpu| (cgroup("ping", cpu), cgroup("pong", cpu))).collect();
    // Before the busy loops, which share the remaining CPU time.
    nice(FIRST).unwrap();
    let mut pairs: Vec<PingPong> = cgroups.iter().map(|(one, other)| PingPong::between(one, other)).collect();
    nice(-FIRST).unwrap();
    let load = janitor.cgroup("load");
    let mut exporter = Exporter::start(&options.program, &configuration(options, &janitor), &janitor);
    let before = Moment::now(&exporter);
    let mut beside: Vec<Child> =
        (0..BUSY).map(|_| starts(&load, &["sh", "-c", "while :; do :; done"])).collect();
    if options.hog {
        let last = (cpus - 1).to_string();
        let hog = ["chrt", "-f", "50", "taskset", "-c", &last, "sh", "-c", "while :; do :; done"];
        beside.push(starts(&load, &hog));
    }
    pairs.iter_mut().enumerate().for_each(|(cpu, pair)| pair.begin(cpu, ENDLESS));
    sleep(Duration::from_secs(1));
    let first = Moment::now(&exporter);
    sleep(Duration::from_secs_f64(options.minutes * 60.0));
    let last = Moment::now(&exporter);
    drop(pairs);
    for child in &mut beside {
        drop(child.kill());
        drop(child.wait());
    }
    exporter.terminate();
    println!("\n{}", options.program.display());
    println!("{BUSY} busy loops, a hog: {}, {} minutes\n", options.hog, options.minutes);
    print("first second", &before, &first, options.hog);
    print("afterwards", &first, &last, options.hog);
}

fn starts(cgroup: &Path, arguments: &[&str]) -> Child {
    inside(cgroup, arguments).spawn().unwrap()
}

fn print(when: &str, from: &Moment, to: &Moment, hog: bool) {
    line(&format!("{when}: switches"), &format!("{:.0}", to.switches - from.switches), None);
    let goal = GOALS[usize::from(hog)];
    let of = |name, labels: &[&str]| grown(&from.metrics, &to.metrics, name, labels);
    for (ring, read) in of("perf_ring_records_total", &["ring"]) {
        let lost: Vec<(String, f64)> = of("perf_lost_records_total", &["ring", "reason"])
            .into_iter()
            .filter_map(|(key, count)| Some((key.strip_prefix(&format!("{ring} "))?.to_owned(), count)))
            .collect();
        let all = lost.iter().fold(0.0, |sum, (_, count)| sum + count);
        let met = all / (read + all) * 100.0 < goal;
        let figure = format!("{all:.0} of {:.0}, {}", read + all, percent(all, read + all));
        line(&format!("  {ring}: records lost"), &figure, Some((&format!("< {goal} %"), met)));
        for (reason, count) in lost {
            line(&format!("    {reason}"), &format!("{count:.0}"), None);
        }
    }
}
