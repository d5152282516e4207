//! A machine that is suspended to idle, and goes on later.

use std::fs;

use perf_exporter::host::{Roots, read_text};

use crate::support::Feature;
use crate::support::cgroup::TestCgroup;
use crate::support::collector::{Growth, RunningCollector};
use crate::support::worker::{Work, Worker};
use crate::{agree, stream_with};

const COUNTERS: &str = "counters: {all: {events: [cycles, instructions, task-clock, context-switches, page-faults], \
     per: [cpu, cgroup, process]}}\n\
    cgroups: {include: [\"/**\"], exclude: [], attribution: stream}\n\
    processes: {include: [{comm: \"*\"}], by: [comm], attribution: stream}\n";

const METRICS: [&str; 5] =
    ["cycles", "instructions", "task_clock_seconds", "context_switches", "page_faults"];

/// How long a worker burns, in milliseconds, before and after.
const BURN: u64 = 500;

/// Suspends the machine until its clock wakes it, some seconds later.
fn suspend() {
    let sys = Roots::default().sys;
    let alarm = sys.join("class/rtc/rtc0/wakealarm");
    fs::write(&alarm, "0").unwrap();
    fs::write(&alarm, "+3").unwrap();
    fs::write(sys.join("power/state"), "freeze").unwrap();
}

/// How often the kernel has suspended the machine.
fn suspended() -> u64 {
    let count = read_text(&Roots::default().sys.join("power/suspend_stats/success")).unwrap();
    count.trim().parse().unwrap()
}

#[test]
fn a_machine_that_was_suspended_goes_on_without_falls_and_every_count_is_attributed() {
    let Some(_counters) = stream_with(Feature::Emulated) else { return };
    let cgroup = TestCgroup::new("suspended");
    let mut worker = Worker::start("burner");
    cgroup.take(worker.pid());
    let mut accountant = RunningCollector::of(COUNTERS);
    assert_eq!(accountant.refusals(), [""; 0]);
    let (mut growth, before) = (Growth::default(), suspended());
    worker.does(Work::Burn(BURN));
    growth.take(&accountant.collect());
    suspend();
    assert_eq!(suspended(), before + 1, "the machine was suspended");
    growth.take(&accountant.collect());
    worker.does(Work::Burn(BURN));
    let families = accountant.finish();
    growth.take(&families);
    for scope in ["cgroup", "process"] {
        for metric in METRICS {
            let balance = families.balance(scope, metric);
            balance.assert_exact();
            // Where the CPU has no idle state for it, clocks go on during the suspension, and fill the rings that no thread can read.
            assert_eq!(["rotated", "unrecorded"].map(|reason| balance.of(reason)), [0; 2], "{balance:?}");
        }
    }
    // The time of the suspension is not attributed to it.
    let used = families.sum("perf_cgroup_task_clock_seconds", &[("cgroup", cgroup.path())]) as f64;
    assert!(agree(used, 2.0 * BURN as f64 * 1e6, 0.1), "{used} ns of {} ms", 2 * BURN);
}
