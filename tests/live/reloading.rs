//! Reloads of the running service under load: no count is lost, no total falls, and no scrape fails.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use perf_exporter::host::read_text;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::load::PingPong;
use crate::support::service::{Service, TEXT, get};
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually, lacks};

/// Rounds of the load, and page faults of each.
const ROUNDS: usize = 60;
const FAULTS: u64 = 512;

/// Time between two rounds, two reloads and two scrapes.
const ROUND: Duration = Duration::from_millis(75);
const RELOAD: Duration = Duration::from_millis(25);
const SCRAPE: Duration = Duration::from_millis(100);

/// The time in which no stream is open on a CPU, at each reload that opens it again, is far less than a hundredth of the reload's interval.
const GAP: f64 = 0.01;

/// The part of the counts of a process that may be unattributed. If a stream is replaced while the process is on a CPU, the counts since the
/// last record have no owner. A round has less than 2 % of all counts.
const UNATTRIBUTED: f64 = 0.05;

/// Metrics that both configurations have, and the scope of each.
const KEPT: [&str; 4] = [
    "perf_cpu_page_faults_total",
    "perf_process_page_faults_total",
    "perf_cgroup_minor_faults_total",
    "perf_unattributed_page_faults_total",
];

/// Returns the page faults of a process as the kernel accounts them.
fn faults_of(pid: u32) -> f64 {
    let stat = read_text(Path::new(&format!("/proc/{pid}/stat"))).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // Fields 10 and 12 of the file; the first field here is number 3.
    [fields[7], fields[9]].iter().map(|field| field.parse::<f64>().unwrap()).sum()
}

/// Returns the kept totals of a scrape by series.
fn totals(scrape: &Exposition) -> BTreeMap<String, f64> {
    let kept = scrape.all().filter(|(name, _)| KEPT.contains(name));
    kept.map(|(name, labels)| {
        let all: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (&**key, &**value)).collect();
        // A series may have fewer labels than another of its metric, so the sum over equal labels is this series.
        (format!("{name}{labels:?}"), scrape.value(name, &all).unwrap_or_default())
    })
    .collect()
}

/// Adds and removes the event `extra` at each reload, forty times a second under load.
fn nothing_is_lost_in_a_storm(name: &str, extra: &str) {
    static MACHINE: Mutex<()> = Mutex::new(());
    if [Feature::Stream, Feature::Cgroup, Feature::Tracepoint].into_iter().any(lacks) {
        return;
    }
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let top = TestCgroup::new(name);
    let [faulting, ping, pong] = ["faulting", "ping", "pong"].map(|name| top.below(name));
    let mut worker = Worker::start("stormed");
    faulting.take(worker.pid());
    let mut switching = PingPong::between(&ping, &pong);
    let configuration = |extra: &str| {
        format!(
            "counters:\n  os: {{events: [page-faults{extra}], per: [cpu, process]}}\n  \
               own: {{events: [minor-faults{extra}], per: [cgroup]}}\n\
             processes: {{include: [{{comm: \"*\"}}], by: [comm], attribution: stream}}\n\
             cgroups: {{include: [\"{}/*\"], attribution: dedicated}}\n",
            top.path()
        )
    };
    let both = [configuration(""), configuration(&format!(", {extra}"))];
    let mut service = Service::start_fresh(&both[0]);
    let before = (service.metrics(), faults_of(worker.pid()));
    let (ended, pid, address) = (AtomicBool::new(false), worker.pid(), service.address.clone());
    let (scrapes, reloads) = thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let (mut last, mut scrapes) = (BTreeMap::new(), 0);
            while !ended.load(Ordering::Relaxed) {
                let now = totals(&Exposition::parse(&get(&address, TEXT).1).unwrap());
                for (series, total) in &last {
                    let new = now.get(series);
                    assert!(new.is_some_and(|new| new >= total), "{series} fell from {total} to {new:?}");
                }
                (last, scrapes) = (now, scrapes + 1);
                thread::sleep(SCRAPE);
            }
            scrapes
        });
        switching.begin(0, 50_000);
        let load = scope.spawn(|| {
            for _ in 0..ROUNDS {
                worker.does(Work::Faults(FAULTS));
                thread::sleep(ROUND);
            }
        });
        let mut reloads = 0;
        while !load.is_finished() {
            reloads += 1;
            service.rewrite(&both[reloads % 2]);
            kill_process(Pid::from_child(&service.child), Signal::HUP).unwrap();
            thread::sleep(RELOAD);
        }
        switching.finish();
        ended.store(true, Ordering::Relaxed);
        (scraper.join().unwrap(), reloads)
    });
    let faults = faults_of(pid) - before.1;
    // Signals that arrive during a reload are merged into one.
    let loaded =
        |scrape: &Exposition| scrape.value("perf_exporter_config_last_reload_success_timestamp_seconds", &[]);
    let after = eventually("the last reload is applied", || {
        let first = service.metrics();
        thread::sleep(10 * RELOAD);
        let second = service.metrics();
        (loaded(&first) == loaded(&second)).then_some(second)
    });
    let grown = |name: &str, labels: &[(&str, &str)]| after.sum(name, labels) - before.0.sum(name, labels);
    let applied = service.log().matches("configuration reloaded").count();
    assert!(applied > 10 && scrapes > 5, "{applied} of {reloads} reloads and {scrapes} scrapes");

    let path = faulting.path().to_owned();
    let own = grown("perf_cgroup_minor_faults_total", &[("cgroup", &path)]);
    let process = grown("perf_process_page_faults_total", &[("comm", "stormed")]);
    // Of all processes.
    let reasons = ["ended", "lost", "unknown", "unrecorded"].map(|reason| {
        grown("perf_unattributed_page_faults_total", &[("scope", "process"), ("reason", reason)])
    });
    let accounted: f64 = reasons.iter().sum();
    let state = format!(
        "{faults} faults; cgroup {own}, process {process}, ended, lost, unknown, unrecorded {reasons:?}, {applied} of {reloads} reloads, {scrapes} scrapes"
    );
    eprintln!("{name}: {state}");
    let lost = faults * GAP;
    assert!(own <= faults && own >= faults - lost, "{state}");
    assert!(process <= faults && process + accounted >= faults - lost, "{state}");
    assert!(process >= faults * (1.0 - UNATTRIBUTED), "{state}");
    assert!(!service.log().contains("panicked"), "{}", service.log());
}

#[test]
fn a_storm_of_reloads_that_adds_and_removes_a_software_event_loses_no_count_and_no_scrape() {
    nothing_is_lost_in_a_storm("storm-software", "cpu-migrations");
}

#[test]
fn a_storm_of_reloads_that_opens_the_stream_again_each_time_accounts_for_all_counts_and_loses_no_scrape() {
    nothing_is_lost_in_a_storm("storm-tracepoint", "\"sched:sched_process_fork\"");
}
