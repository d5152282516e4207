//! Threads on kernels and machines other than the build machine: run time and switches compared with the kernel's statistics, and system
//! calls by the names of the architecture.

use std::path::PathBuf;

use perf_exporter::host::{list, read_text};

use crate::support::cgroup::TestCgroup;
use crate::support::cpu_times::CpuTimes;
use crate::support::exposition::Exposition;
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
        "{ALWAYS_FRESH}counters: {{os: {{events: [context-switches, task-clock], per: [{counted}]}}}}\nprofiles: {{}}\n\
         scheduler: {{per: [host, cgroup]}}\nsyscalls: {{per: [host, cgroup], include: [getppid]}}\n\
         cgroups: {{include: [\"{}\"]}}\nlimits: {{cpu: off}}\n",
        cgroup.path()
    ));
    // Afterwards the exporter has detected whether CPUs must report the incoming task.
    for _ in 0..2 {
        worker.does(Work::Naps(1100));
        service.metrics();
    }
    // Unless the worker has moved to a CPU that it has not used before: some kernels write no record of a switch from an idle CPU, and the
    // exporter detects that at a collection, when it has missed some.
    let mut measured = Measured::of(&service, &mut worker, &cgroup);
    for _ in 0..3 {
        if measured.missed + measured.lost > 0.0 {
            measured = Measured::of(&service, &mut worker, &cgroup);
        }
    }
    measured.assert_agrees();
}

/// What the exporter and the kernel report of the same work.
struct Measured {
    /// Seconds on a CPU.
    ran: [f64; 2],
    /// Seconds of all CPUs that interrupts and the host used.
    taken: f64,
    /// Seconds that the switch stream attributes to no thread, because there is no record of a switch.
    unrecorded: f64,
    switches: [f64; 2],
    delays: f64,
    /// Switches to a thread without the record of its wakeup, switches without a record, and lost records.
    unwoken: f64,
    missed: f64,
    lost: f64,
    calls: [f64; 2],
}

impl Measured {
    fn of(service: &Service, worker: &mut Worker, cgroup: &TestCgroup) -> Self {
        let own = ("cgroup", cgroup.path());
        let (before, theirs_before, taken_before) = (service.metrics(), figures(worker.pid()), taken());
        worker.does(Work::Burn(500));
        worker.does(Work::Naps(500));
        worker.does(Work::Getppid(4321));
        let (after, theirs) = (service.metrics(), figures(worker.pid()));
        let taken = taken() - taken_before;
        let increase = |name: &str, labels: &[(&str, &str)]| advance(&before, &after, name, labels);
        let switches = |kind| increase("perf_cgroup_sched_switches_total", &[own, ("kind", kind)]);
        // Only the switch stream has the series.
        let unrecorded = |metrics: &Exposition| {
            metrics.sum("perf_unattributed_task_clock_seconds_total", &[("reason", "unrecorded")])
        };
        let untracked =
            |reason| increase("perf_untracked_events_total", &[("section", "scheduler"), ("reason", reason)]);
        Self {
            ran: [increase("perf_cgroup_sched_run_seconds_total", &[own]), theirs[0] - theirs_before[0]],
            taken,
            unrecorded: unrecorded(&after) - unrecorded(&before),
            switches: [switches("voluntary") + switches("involuntary"), theirs[1] - theirs_before[1]],
            delays: increase("perf_cgroup_sched_runqueue_latency_seconds_count", &[own]),
            unwoken: untracked("missed_wakeup"),
            missed: untracked("missed_switch"),
            lost: untracked("lost"),
            calls: [
                increase("perf_syscalls_total", &[("syscall", "getppid")]),
                increase("perf_cgroup_syscalls_total", &[own, ("syscall", "getppid")]),
            ],
        }
    }

    fn assert_agrees(&self) {
        let Self { ran: [ours, ran], taken, unrecorded, lost, .. } = self;
        // On a slow emulated machine the two readings are some time apart.
        let most = ran * 1.1 + taken;
        assert!(
            *ours <= most && ours + unrecorded >= ran * 0.9,
            "{ours} s on a CPU, the kernel reports {ran} s; interrupts and the host used {taken} s; {unrecorded} s and {lost} \
             records lost"
        );
        let [ours, switches] = self.switches;
        assert!((ours - switches).abs() <= 4.0, "{ours} switches, the kernel reports {switches}");
        // A wakeup or a switch without a record has no delay, and is counted.
        let Self { delays, unwoken, missed, .. } = self;
        assert!(
            *delays <= switches + 4.0 && delays + unwoken + missed >= switches - 4.0,
            "{delays} delays of {switches} switches, {unwoken} switches without a wakeup, {missed} without a record"
        );
        let [of_all, own] = self.calls;
        assert!(
            own == 4321.0 && of_all >= own,
            "{own} calls of getppid, {of_all} with those of other programs"
        );
    }
}
