//! Bursts of hits that are too fast for any reader: lost hits are counted, and memory stays bounded.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use perf_exporter::host::{Facts, Roots, list, read_text};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::exposition::Exposition;
use crate::support::program::{Program, Running};
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};

/// The smallest ring memory that a configuration accepts.
const TINY: &str = "limits: {ring_memory: 256KiB}\n";

/// Maximum growth of a service, in bytes. The records of the larger bursts here would need several times as much.
const GROWTH: u64 = 8 << 20;

/// A service that counts the same calls with and without records, and the program that makes the calls.
struct Storm {
    service: Service,
    running: Running,
}

impl Storm {
    /// `records` are the additional settings of the entry with records, and `more` is appended to the configuration.
    fn with(records: &str, more: &str) -> Option<Self> {
        if lacks(Feature::Compiler) || lacks(Feature::Tracepoint) {
            return None;
        }
        let mut running = Program::compile().start();
        // On one CPU, so that all records are in the same ring.
        let cpu = Facts::read(&Roots::default()).online.iter().next().unwrap();
        running.does(&format!("moves {cpu} {cpu}"));
        let event =
            format!("event: \"syscalls:sys_enter_getpriority\", filter: \"who == {}\"", running.pid());
        let service = Service::start_fresh(&format!(
            "counters: {{os: {{events: [context-switches], per: [cpu]}}}}\n\
             tracepoints:\n  plain: {{{event}}}\n  records: {{{event}, labels: [which], {records}}}\n{more}"
        ));
        Some(Self { service, running })
    }

    /// Stops or continues the service. The signal reaches its threads one after another, and a running one reads rings until then.
    fn pause(&self, paused: bool) {
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.service.child), signal).unwrap();
        while paused && self.states().contains(|state| state != 'T') {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the letter of the state of each thread of the service.
    fn states(&self) -> String {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.service.child.id()));
        let threads = list(&tasks).unwrap();
        let stats = threads.iter().filter_map(|thread| read_text(&tasks.join(thread).join("stat")).ok());
        stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next()).collect()
    }

    /// Makes one more call and a scrape, so that all losses are reported: the kernel reports a loss in front of the next record that fits
    /// into the ring.
    fn settled(&mut self) -> Exposition {
        self.service.metrics();
        self.running.does("asks 1");
        self.service.metrics()
    }

    /// Returns the peak memory of the service, in bytes.
    fn peak(&self) -> u64 {
        let status = read_text(&PathBuf::from(format!("/proc/{}/status", self.service.child.id()))).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

fn lost(metrics: &Exposition) -> f64 {
    metrics.sum("perf_lost_records_total", &[("ring", "tracepoints")])
}

/// Compares read and lost records with the number of calls.
#[track_caller]
fn assert_all_accounted(metrics: &Exposition, calls: f64) {
    assert_eq!(metrics.value("perf_tracepoint_plain_total", &[]), Some(calls));
    let read = metrics.sum("perf_tracepoint_records_total", &[]);
    assert_eq!(read + lost(metrics), calls, "{read} and {} lost: {metrics:?}", lost(metrics));
}

#[test]
fn a_million_calls_at_once_are_counted_or_counted_as_lost_in_the_same_memory() {
    let Some(mut storm) = Storm::with("per: [host]", TINY) else { return };
    storm.running.does("asks 1000");
    storm.service.metrics();
    let before = storm.peak();
    storm.running.does("asks 1000000");
    let metrics = storm.settled();
    assert_all_accounted(&metrics, 1_001_001.0);
    let after = storm.peak();
    assert!(after < before + GROWTH, "memory grew from {before} to {after} bytes");
}

#[test]
fn what_nobody_reads_is_lost_and_counted() {
    let Some(mut storm) = Storm::with("per: [host]", TINY) else { return };
    storm.pause(true);
    storm.running.does("asks 50000");
    storm.pause(false);
    let metrics = storm.settled();
    assert_all_accounted(&metrics, 50_001.0);
    // The ring holds a few thousand records.
    assert!(lost(&metrics) > 40_000.0, "only {} records were lost", lost(&metrics));
    assert_eq!(metrics.value("perf_ring_bytes", &[("ring", "tracepoints")]), Some(262_144.0));
}

#[test]
fn rings_that_ran_over_are_made_larger_and_no_call_is_forgotten_on_the_way() {
    let Some(mut storm) = Storm::with("per: [host]", "") else { return };
    let bytes = |metrics: &Exposition| metrics.value("perf_ring_bytes", &[("ring", "tracepoints")]).unwrap();
    let before = bytes(&storm.service.metrics());
    for round in 1..=3 {
        storm.pause(true);
        storm.running.does("asks 100000");
        storm.pause(false);
        assert_all_accounted(&storm.settled(), f64::from(round) * 100_001.0);
    }
    let after = bytes(&storm.service.metrics());
    assert!(after > before, "memory grew from {before} to {after} bytes");
}

/// The kernel reports a loss in front of the next record, which may not come for a long time.
#[test]
fn what_was_lost_is_told_although_nobody_calls_again() {
    let Some(mut storm) = Storm::with("per: [host]", TINY) else { return };
    storm.pause(true);
    storm.running.does("asks 50000");
    storm.pause(false);
    // A record that is being written during one scrape is accounted in the next scrape.
    storm.service.metrics();
    assert_all_accounted(&storm.service.metrics(), 50_000.0);
    assert_all_accounted(&storm.settled(), 50_001.0);
}

#[test]
fn a_reload_after_a_burst_forgets_no_loss() {
    let Some(mut storm) = Storm::with("per: [host]", TINY) else { return };
    storm.pause(true);
    storm.running.does("asks 50000");
    storm.pause(false);
    storm.service.metrics();
    let configuration = read_text(&storm.service.configuration).unwrap();
    let more = "tracepoints:\n  forks: {event: \"sched:sched_process_fork\", labels: [child_pid]}\n";
    fs::write(&storm.service.configuration, configuration.replace("tracepoints:\n", more)).unwrap();
    kill_process(Pid::from_child(&storm.service.child), Signal::HUP).unwrap();
    eventually("the new entry has a series", || {
        storm.running.does("forks 1");
        (storm.service.metrics().sum("perf_tracepoint_forks_total", &[]) > 0.0).then_some(())
    });
    assert_all_accounted(&storm.settled(), 50_001.0);
}

/// Rings of entries by process contain other records as well, and those can be lost too. So there may be more lost records than missing
/// calls.
#[test]
fn calls_by_process_are_counted_or_lost_and_memory_stays_where_it_is() {
    let more = format!("processes: {{include: [{{comm: \"**\"}}], by: [pid]}}\n{TINY}");
    let Some(mut storm) = Storm::with("per: [process]", &more) else { return };
    let pid = storm.running.pid().to_string();
    storm.running.does("asks 1000");
    storm.service.metrics();
    let before = storm.peak();
    storm.running.does("asks 300000");
    storm.pause(true);
    storm.running.does("asks 50000");
    storm.pause(false);
    let metrics = storm.settled();
    assert_eq!(metrics.value("perf_tracepoint_plain_total", &[]), Some(351_001.0));
    let read = metrics.sum("perf_process_records_total", &[("pid", &pid)]);
    assert!(read <= 351_001.0 && read + lost(&metrics) >= 351_001.0, "{read}: {metrics:?}");
    assert!(read >= 1001.0 && lost(&metrics) > 40_000.0, "{read}: {metrics:?}");
    let after = storm.peak();
    assert!(after < before + GROWTH, "memory grew from {before} to {after} bytes");
}
