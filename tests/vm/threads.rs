//! Threads on kernels and machines other than the build machine: run time and switches compared with the kernel's statistics, and system
//! calls by the names of the architecture.

use std::path::PathBuf;

use perf_exporter::host::{list, read_text};

use crate::support::cgroup::TestCgroup;
use crate::support::cpu_times::CpuTimes;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, lacks};
use crate::{ALWAYS_FRESH, advance, alone};

/// Returns the seconds on a CPU and the number of switches off a CPU, of all threads of a process, as the kernel reports them.
fn figures(pid: u32) -> [f64; 2] {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let each = list(&tasks).unwrap().into_iter().map(|task| {
        let dir = tasks.join(task);
        let ran = read_text(&dir.join("schedstat")).unwrap();
        let ran = ran.split_ascii_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9;
        let status = read_text(&dir.join("status")).unwrap();
        let switches = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
        let switches: f64 = switches.map(|(_, count)| count.trim().parse::<f64>().unwrap()).sum();
        [ran, switches]
    });
    each.fold([0.0; 2], |[ran, switches], one| [ran + one[0], switches + one[1]])
}

/// Returns the seconds of all CPUs that interrupts and the host used. The kernel excludes them from a thread's run time, but the thread's
/// clock includes them.
fn taken() -> f64 {
    let times = CpuTimes::of_all_cpus();
    (times.interrupted + times.stolen).as_secs_f64()
}

#[test]
fn threads_run_and_switch_as_the_kernel_says_and_call_it_by_name() {
    run_and_switch("cpu");
}

/// A stream of processes has a record of each switch, which contains the thread ids.
#[test]
fn the_switch_stream_tells_the_same_of_threads() {
    if !lacks(Feature::Stream) {
        run_and_switch("process");
    }
}

fn run_and_switch(counted: &str) {
    if lacks(Feature::Tracepoint) || lacks(Feature::Tracefs) || lacks(Feature::Cgroup) {
        return;
    }
    let _alone = alone();
    let (cgroup, mut worker) = (TestCgroup::new("threads"), Worker::start("threads"));
    cgroup.take(worker.pid());
    let service = Service::start(&format!(
        "{ALWAYS_FRESH}counters: {{os: {{events: [context-switches], per: [{counted}]}}}}\nprofiles: {{}}\n\
         scheduler: {{per: [host, cgroup]}}\nsyscalls: {{per: [host, cgroup], include: [getppid]}}\n\
         cgroups: {{include: [\"{}\"]}}\nlimits: {{cpu: off}}\n",
        cgroup.path()
    ));
    let own = ("cgroup", cgroup.path());
    // Afterwards the exporter has detected whether CPUs must report the incoming task.
    for _ in 0..2 {
        worker.does(Work::Naps(1100));
        service.metrics();
    }
    let (before, theirs_before, taken_before) = (service.metrics(), figures(worker.pid()), taken());
    worker.does(Work::Burn(500));
    worker.does(Work::Naps(500));
    worker.does(Work::Getppid(4321));
    let (after, theirs) = (service.metrics(), figures(worker.pid()));
    let [ran, switches] = [theirs[0] - theirs_before[0], theirs[1] - theirs_before[1]];
    let ours = advance(&before, &after, "perf_cgroup_sched_run_seconds_total", &[own]);
    let taken = taken() - taken_before;
    let lost = advance(
        &before,
        &after,
        "perf_untracked_events_total",
        &[("section", "scheduler"), ("reason", "lost")],
    );
    // On a slow emulated machine the two readings are some time apart.
    let most = ran * 1.1 + taken;
    assert!(
        (ran * 0.9..=most).contains(&ours),
        "{ours} s on a CPU, the kernel reports {ran} s; interrupts and the host used {taken} s; {lost} records lost"
    );
    let of = |kind| advance(&before, &after, "perf_cgroup_sched_switches_total", &[own, ("kind", kind)]);
    let ours = of("voluntary") + of("involuntary");
    assert!((ours - switches).abs() <= 4.0, "{ours} switches, the kernel reports {switches}");
    let delays = advance(&before, &after, "perf_cgroup_sched_runqueue_latency_seconds_count", &[own]);
    // Some kernels write no record when an interrupt of an idle CPU wakes a thread. Such a wakeup has no delay and is counted.
    let unwoken = advance(
        &before,
        &after,
        "perf_untracked_events_total",
        &[("section", "scheduler"), ("reason", "missed_wakeup")],
    );
    assert!(
        delays <= switches + 4.0 && delays + unwoken >= switches - 4.0,
        "{delays} delays of {switches} switches, {unwoken} switches without a wakeup"
    );
    for scope in ["perf_syscalls_total", "perf_cgroup_syscalls_total"] {
        let labels: &[_] =
            if scope.contains("cgroup") { &[own, ("syscall", "getppid")] } else { &[("syscall", "getppid")] };
        assert_eq!(advance(&before, &after, scope, labels), 4321.0, "{scope}: {after:?}");
    }
}
