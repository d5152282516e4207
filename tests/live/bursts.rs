//! More hits than anybody can read: what is lost is counted, and memory stays where it is.

use std::fs;
use std::path::PathBuf;

use perf_exporter::host::{Facts, Roots, read_text};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::exposition::Exposition;
use crate::support::program::{Program, Running};
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};

/// The smallest rings that a file may ask for.
const TINY: &str = "limits: {ring_memory: 256KiB}\n";

/// What a service may grow by. The records of the larger bursts here would take several times as much.
const GROWTH: u64 = 8 << 20;

/// A service that counts the same calls without records and with them; and the caller.
struct Storm {
    service: Service,
    running: Running,
}

impl Storm {
    /// `records` is what the entry that takes records has besides its event, and `more` what the file has.
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

    fn pause(&self, paused: bool) {
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.service.child), signal).unwrap();
    }

    /// What is known once everything that was lost has been told: the kernel does so in front of the next record that
    /// finds room.
    fn settled(&mut self) -> Exposition {
        self.service.metrics();
        self.running.does("asks 1");
        self.service.metrics()
    }

    /// The most memory that the service ever had, in bytes.
    fn peak(&self) -> u64 {
        let status = read_text(&PathBuf::from(format!("/proc/{}/status", self.service.child.id()))).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

fn lost(metrics: &Exposition) -> f64 {
    metrics.sum("perf_lost_records_total", &[("ring", "tracepoints")])
}

/// Calls that left a record that was read, and those whose record was lost, against those that there were.
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
    assert!(after < before + GROWTH, "{before} bytes, and then {after}");
}

#[test]
fn what_nobody_reads_is_lost_and_counted() {
    let Some(mut storm) = Storm::with("per: [host]", TINY) else { return };
    storm.pause(true);
    storm.running.does("asks 50000");
    storm.pause(false);
    let metrics = storm.settled();
    assert_all_accounted(&metrics, 50_001.0);
    // The ring holds a few thousand.
    assert!(lost(&metrics) > 40_000.0, "{} were lost", lost(&metrics));
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
    assert!(after > before, "{before} bytes, and then {after}");
}

/// The kernel tells what was lost in front of the next record, and there may be none for long.
#[test]
fn what_was_lost_is_told_although_nobody_calls_again() {
    let Some(mut storm) = Storm::with("per: [host]", TINY) else { return };
    storm.pause(true);
    storm.running.does("asks 50000");
    storm.pause(false);
    // What is being written while the one looks is known to the other.
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
    eventually("the new entry is there", || {
        storm.running.does("forks 1");
        (storm.service.metrics().sum("perf_tracepoint_forks_total", &[]) > 0.0).then_some(())
    });
    assert_all_accounted(&storm.settled(), 50_001.0);
}

/// In the rings of what is told by process there are other records as well, and those can be lost too: so there may be
/// more of them than calls that are missing.
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
    assert!(after < before + GROWTH, "{before} bytes, and then {after}");
}
