//! Tracepoints count each event exactly once, regardless of the process that causes it.

use crate::counting::Counting;
use crate::support::cgroup::TestCgroup;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, lacks};

#[test]
fn every_system_call_of_a_process_is_counted_and_none_of_another() {
    if lacks(Feature::Tracepoint) {
        return;
    }
    let (mut worker, mut other) = (Worker::start("asks"), Worker::start("asks_too"));
    let mut counting = Counting::of(&format!(
        "counters: {{calls: {{events: [\"syscalls:sys_enter_getppid\"], per: [process]}}}}\n\
         processes: {{include: [{{pid: {}}}], by: [comm]}}\n",
        worker.pid()
    ));
    worker.does(Work::Getppid(12_345));
    other.does(Work::Getppid(777));
    let collected = counting.collect();
    assert_eq!(collected.value("perf_process_syscalls_sys_enter_getppid", ("comm", "asks")), Some(12_345.0));
    assert_eq!(collected.sum("perf_process_syscalls_sys_enter_getppid"), 12_345.0, "{collected:?}");
}

#[test]
fn every_fork_is_counted_where_it_was_made() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Cgroup) {
        return;
    }
    let cgroup = TestCgroup::new("forks");
    let mut worker = Worker::start("forks");
    cgroup.take(worker.pid());
    let mut counting = Counting::of(&format!(
        "counters: {{forks: {{events: [\"sched:sched_process_fork\"], per: [cpu, cgroup, process]}}}}\n\
         processes: {{include: [{{pid: {}}}], by: [comm]}}\n\
         cgroups: {{include: [\"{}\"]}}\n",
        worker.pid(),
        cgroup.path()
    ));
    worker.does(Work::Children(20));
    worker.starts_thread();
    let collected = counting.collect();
    let name = |scope: &str| format!("perf_{scope}_sched_sched_process_fork");
    // A fork includes the creation of a thread.
    assert_eq!(collected.value(&name("process"), ("comm", "forks")), Some(21.0), "events by process");
    assert_eq!(collected.value(&name("cgroup"), ("cgroup", cgroup.path())), Some(21.0), "events by cgroup");
    assert!(collected.sum(&name("cpu")) >= 21.0, "events by CPU: {}", collected.sum(&name("cpu")));
}
