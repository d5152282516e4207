//! Scheduler metrics compared with the kernel's own statistics of each thread: `/proc/PID/task/TID/schedstat` and `status`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perf_exporter::host::read_text;
use rustix::time::{ClockId, clock_gettime};

use crate::support::cgroup::TestCgroup;
use crate::support::cpu_times::CpuTimes;
use crate::support::exposition::Exposition;
use crate::support::program::{Program, Running};
use crate::support::service::{Service, get_path};
use crate::support::{Feature, eventually, lacks};

/// Asserts that times differ by at most 2 % or a tick of the slowest kernels, plus the steal time of a guest. The kernel's statistics
/// exclude steal time, but its clock includes it.
#[track_caller]
fn assert_about(what: &str, ours: f64, theirs: f64, stolen: f64) {
    let allowed = (theirs * 0.02).max(0.01) + stolen;
    assert!((ours - theirs).abs() <= allowed, "{what}: the exporter reports {ours} s, the kernel {theirs} s");
}

/// Kernel statistics of a process.
#[derive(Debug, Clone, Copy)]
struct Figures {
    ran: f64,
    delayed: f64,
    voluntary: f64,
    involuntary: f64,
    /// Steal time of all CPUs of this guest.
    stolen: f64,
    /// CPU time that the switch stream could not attribute, because the kernel wrote no record of some switches. The run time of a thread
    /// that came in at such a switch is unknown.
    unrecorded: f64,
}

impl Figures {
    fn of(running: &Running) -> Self {
        let pid = running.pid();
        let file = |name: &str| read_text(&PathBuf::from(format!("/proc/{pid}/task/{pid}/{name}"))).unwrap();
        let times = file("schedstat");
        let mut times = times.split_ascii_whitespace().map(|time| time.parse::<f64>().unwrap() / 1e9);
        let status = file("status");
        let count = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse::<f64>().unwrap()
        };
        Self {
            ran: times.next().unwrap(),
            delayed: times.next().unwrap(),
            voluntary: count("voluntary_ctxt_switches:"),
            involuntary: count("nonvoluntary_ctxt_switches:"),
            stolen: CpuTimes::of_all_cpus().stolen.as_secs_f64(),
            unrecorded: 0.0,
        }
    }

    /// Returns the metrics of a process.
    fn told(metrics: &Exposition, pid: &str) -> Self {
        let pid = [("pid", pid)];
        let switches = |kind| metrics.sum("perf_process_sched_switches_total", &[pid[0], ("kind", kind)]);
        Self {
            ran: metrics.sum("perf_process_sched_run_seconds_total", &pid),
            delayed: metrics.sum("perf_process_sched_runqueue_latency_seconds_sum", &pid),
            voluntary: switches("voluntary"),
            involuntary: switches("involuntary"),
            stolen: 0.0,
            unrecorded: metrics
                .sum("perf_unattributed_task_clock_seconds_total", &[("reason", "unrecorded")]),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            ran: self.ran - before.ran,
            delayed: self.delayed - before.delayed,
            voluntary: self.voluntary - before.voluntary,
            involuntary: self.involuntary - before.involuntary,
            stolen: self.stolen - before.stolen,
            unrecorded: self.unrecorded - before.unrecorded,
        }
    }

    /// Asserts that both agree. The current stay on a CPU, which the kernel has not added yet, is at most a tick.
    #[track_caller]
    fn assert_is(self, theirs: Self) {
        assert_about(
            "on a CPU",
            self.ran + self.unrecorded.min((theirs.ran - self.ran).max(0.0)),
            theirs.ran,
            theirs.stolen,
        );
        assert_about("ready", self.delayed, theirs.delayed, theirs.stolen);
        for (kind, ours, theirs) in [
            ("voluntary", self.voluntary, theirs.voluntary),
            ("involuntary", self.involuntary, theirs.involuntary),
        ] {
            // One switch at the start and one at the end may be on either side.
            let allowed = (theirs * 0.001).max(2.0);
            assert!((ours - theirs).abs() <= allowed, "{kind}: {ours} and {theirs}: {self:?}");
        }
    }
}

/// Starts a service with scheduler metrics, and waits until it has detected whether CPUs must report the incoming task.
fn following(running: &mut Running, way: Way, more: &str) -> Service {
    let per = if way == Way::Stream { "cpu, process" } else { "cpu" };
    let service = Service::start_fresh(&format!(
        "counters: {{os: {{events: [context-switches, task-clock], per: [{per}]}}}}\nprofiles: {{}}\n\
         scheduler: {{per: [host, cgroup, process]}}\nprocesses: {{by: [pid]}}\nlimits: {{cpu: off}}\n{more}"
    ));
    // Two collections, because the first may reopen all events.
    for _ in 0..2 {
        running.does("sleeps 700 50");
        service.metrics();
    }
    service
}

/// Returns the statistics of the exporter and of the kernel for work of some programs, which is repeated as in [`detected`].
fn both<const N: usize>(
    (service, way): (&Service, Way),
    mut running: [&mut Running; N],
    mut meanwhile: impl FnMut(&mut [&mut Running; N]),
) -> [(Figures, Figures); N] {
    detected(service, way, || both_at_once(service, &mut running, &mut meanwhile))
}

/// Returns the result of some work, which is repeated while the service detects how the kernel reports switches.
///
/// Some kernels write no record of a switch from an idle CPU or from some threads. The service detects this when it has missed some
/// switches, which can be long after the start. Then CPUs report the incoming task, and in-flight state is lost once. From then on
/// nothing may be missing. The switch stream attributes nothing for such switches before, and counts their time as unrecorded; without it,
/// the service has missed eight switches at most.
fn detected<R>(service: &Service, way: Way, mut work: impl FnMut() -> R) -> R {
    let undetected = || {
        let metrics = service.metrics();
        let untracked = |reason| {
            metrics.sum("perf_untracked_events_total", &[("section", "scheduler"), ("reason", reason)])
        };
        let lost = untracked("lost");
        (lost, if way == Way::Tracepoint && lost == 0.0 { untracked("missed_switch") } else { 0.0 })
    };
    for _ in 0..8 {
        let before = undetected();
        let result = work();
        if undetected() == before {
            return result;
        }
    }
    work()
}

fn both_at_once<const N: usize>(
    service: &Service,
    running: &mut [&mut Running; N],
    meanwhile: &mut impl FnMut(&mut [&mut Running; N]),
) -> [(Figures, Figures); N] {
    let look = |running: &[&mut Running; N]| {
        running.iter().for_each(|running| wait_for_sleep(running));
        let metrics = service.metrics();
        let lost = metrics.sum("perf_lost_records_total", &[("ring", "scheduler"), ("reason", "ring_full")]);
        let both = std::array::from_fn::<_, N, _>(|at| {
            (Figures::told(&metrics, &running[at].pid().to_string()), Figures::of(running[at]))
        });
        (both, lost)
    };
    let (before, lost) = look(running);
    meanwhile(running);
    // In-flight time is reported up to the last switch.
    running.iter_mut().for_each(|running| assert_eq!(running.does("sleeps 1 1000"), 1));
    let (after, lost_by_now) = look(running);
    assert_eq!(lost_by_now, lost, "records were lost");
    std::array::from_fn(|at| (after[at].0.since(before[at].0), after[at].1.since(before[at].1)))
}

/// Waits until a program waits for orders. When its answer arrives, it may still be on a CPU or wait for one.
fn wait_for_sleep(running: &Running) {
    let stat = PathBuf::from(format!("/proc/{}/stat", running.pid()));
    eventually("the program waits for orders", || {
        let line = read_text(&stat).unwrap();
        line.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('S')).then_some(())
    });
}

/// Lets two programs use CPU time in the same interval of this many milliseconds, which begins when both have their orders.
fn meet(first: &mut Running, second: &mut Running, milliseconds: u64) {
    let begin = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap() + Duration::from_secs(1);
    let order = format!("meets {} {milliseconds}", begin.as_millis());
    first.told(&order);
    second.told(&order);
    first.answers();
    second.answers();
}

/// Locks the CPUs for tests that measure how a CPU is shared.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lacks_any(way: Way) -> bool {
    let stream = (way == Way::Stream).then_some(Feature::Stream);
    [Feature::Tracepoint, Feature::Tracefs, Feature::Compiler].into_iter().chain(stream).any(lacks)
}

/// Source of switch records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A record of `sched:sched_switch` for each switch.
    Tracepoint,
    /// The switch stream, which also counts for processes.
    Stream,
}

/// Defines tests that must pass with either source of switch records.
macro_rules! either_way {
    ($($test:ident),* $(,)?) => {
        mod by_tracepoint {
            $(#[test] fn $test() { super::$test(super::Way::Tracepoint); })*
        }
        mod by_stream {
            $(#[test] fn $test() { super::$test(super::Way::Stream); })*
        }
    };
}

either_way!(
    who_sleeps_and_burns_is_told_as_the_kernel_has_it,
    two_who_share_a_cpu_preempt_one_another_and_each_is_told_by_whom,
    who_is_nicer_gets_less_and_both_are_told_as_the_kernel_has_it,
    threads_that_trade_bytes_switch_as_often_as_the_kernel_counts,
    who_has_used_up_its_quota_is_throttled,
    the_page_names_who_waited_longest,
    first_waits_of_processes_are_counted_in_the_cgroup_that_they_are_started_in,
);

fn who_sleeps_and_burns_is_told_as_the_kernel_has_it(way: Way) {
    if lacks_any(way) {
        return;
    }
    let _alone = alone();
    let program = Program::compile_threads("sleeper");
    let mut worker = program.start();
    let service = following(&mut worker, way, "");
    let pid = worker.pid().to_string();
    let waited = |service: &Service, state: &str| {
        let labels = [("pid", &*pid), ("state", state)];
        service.metrics().sum("perf_process_sched_wait_seconds_total", &labels)
    };
    let now = || Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    let (mut begin, mut before) = (now(), [0.0; 2]);
    let [(ours, theirs)] = both((&service, way), [&mut worker], |[worker]| {
        begin = now();
        // Its sleep before this order is reported with it.
        worker.does("sleeps 1 1000");
        before = ["sleeping", "preempted"].map(|state| waited(&service, state));
        worker.does("sleeps 50 10000");
        worker.does("spins 300");
    });
    ours.assert_is(theirs);
    assert!(theirs.ran >= 0.3, "{theirs:?}");
    let [slept, preempted] = [("sleeping", before[0]), ("preempted", before[1])]
        .map(|(state, before)| waited(&service, state) - before);
    let elapsed = (now() - begin).as_secs_f64();
    assert!(slept >= 0.5, "it slept 50 times for 10 ms, the exporter reports {slept} s");
    // It also sleeps until it has its orders, but not while it is on a CPU or preempted. The runqueue latency after a wakeup is part of the
    // wait.
    let most = elapsed - theirs.ran - preempted + 0.01;
    assert!(slept <= most, "{slept} s of sleep reported in {elapsed} s: {preempted} s preempted, {theirs:?}");
    assert!(preempted <= theirs.delayed + 0.01, "{preempted} s: {theirs:?}");
}

fn two_who_share_a_cpu_preempt_one_another_and_each_is_told_by_whom(way: Way) {
    if lacks_any(way) || lacks(Feature::Cgroup) {
        return;
    }
    let _alone = alone();
    let program = Program::compile_threads("spinner");
    let (one, other) = (TestCgroup::new("sched-one"), TestCgroup::new("sched-other"));
    let (mut first, mut second) = (program.start(), program.start());
    one.take(first.pid());
    other.take(second.pid());
    first.does("pins 0");
    second.does("pins 0");
    // Higher priority than all other tasks on that CPU.
    first.does("nice -20");
    second.does("nice -20");
    let service = following(
        &mut first,
        way,
        &format!("cgroups: {{include: [\"{}\", \"{}\"]}}\n", one.path(), other.path()),
    );
    second.does("sleeps 3 1000");
    let before = service.metrics();
    meet(&mut first, &mut second, 1000);
    first.does("sleeps 1 1000");
    second.does("sleeps 1 1000");
    let metrics = service.metrics();
    for (running, cgroup, culprit) in [(&first, &one, &other), (&second, &other, &one)] {
        let pid = running.pid().to_string();
        let theirs = Figures::of(running);
        let grew = |name: &str, labels: &[(&str, &str)]| metrics.sum(name, labels) - before.sum(name, labels);
        let mine = ("cgroup", cgroup.path());
        let by = |by: &str| grew("perf_cgroup_sched_preemptions_total", &[mine, ("by", by)]);
        let involuntary =
            grew("perf_process_sched_switches_total", &[("pid", &pid), ("kind", "involuntary")]);
        let told = ["own", "other", "kernel", "throttled", "unknown"].map(|who| (who, by(who)));
        assert!(
            by("other") >= involuntary * 0.3 && by("other") > 10.0,
            "{told:?} of {involuntary}: {theirs:?}"
        );
        assert!(by("own") <= 2.0, "{metrics:?}");
        let of_all: f64 = ["own", "other", "kernel", "throttled", "unknown"].into_iter().map(by).sum();
        assert_eq!(of_all, grew("perf_cgroup_sched_switches_total", &[mine, ("kind", "involuntary")]));
        let named = [mine, ("by_cgroup", culprit.path())];
        let named = grew("perf_cgroup_sched_preempted_by_cgroup_total", &named);
        assert!(named > by("other") * 0.3, "{named} of {}", by("other"));
        let preempted = grew("perf_cgroup_sched_wait_seconds_total", &[mine, ("state", "preempted")]);
        assert!(
            (0.3..0.9).contains(&preempted),
            "the other program had half of one second of the CPU, but {preempted} s of preemption are reported"
        );
        let longest = metrics.value("perf_cgroup_sched_runqueue_latency_max_seconds", &[mine]).unwrap();
        assert!((0.0005..1.0).contains(&longest), "{longest}");
    }
}

fn who_is_nicer_gets_less_and_both_are_told_as_the_kernel_has_it(way: Way) {
    if lacks_any(way) {
        return;
    }
    let _alone = alone();
    let program = Program::compile_threads("nice");
    let (mut first, mut second) = (program.start(), program.start());
    let service = following(&mut first, way, "");
    first.does("pins 0");
    second.does("pins 0");
    // Higher priority than all other tasks on that CPU.
    first.does("nice -20");
    second.does("nice -15");
    second.does("sleeps 3 1000");
    let [(ours, theirs), (nice, kernels)] =
        both((&service, way), [&mut first, &mut second], |[first, second]| {
            meet(first, second, 1500);
        });
    ours.assert_is(theirs);
    nice.assert_is(kernels);
    // By the kernel's weights of nice -20 and -15: 88761 to 29154.
    let ratio = ours.ran / nice.ran;
    assert!((2.0..4.5).contains(&ratio), "{ratio}: {ours:?} {nice:?}");
}

fn threads_that_trade_bytes_switch_as_often_as_the_kernel_counts(way: Way) {
    if lacks_any(way) {
        return;
    }
    let _alone = alone();
    let program = Program::compile_threads("trader");
    let mut worker = program.start();
    worker.does("pins 1");
    let service = following(&mut worker, way, "");
    let switches = |service: &Service, worker: &mut Running| {
        let ours = Figures::told(&service.metrics(), &worker.pid().to_string());
        (ours.voluntary + ours.involuntary, worker.does("switches") as f64)
    };
    let before = switches(&service, &mut worker);
    worker.does("trades 4000");
    let after = switches(&service, &mut worker);
    let (ours, theirs) = (after.0 - before.0, after.1 - before.1);
    assert!(theirs >= 8000.0, "{theirs}");
    assert!((ours - theirs).abs() <= theirs * 0.001, "the exporter reports {ours}, the kernel {theirs}");
}

fn who_has_used_up_its_quota_is_throttled(way: Way) {
    if lacks_any(way) || lacks(Feature::Cgroup) {
        return;
    }
    let _alone = alone();
    let Some(quota) = Quota::new("throttled") else {
        eprintln!("skipped: there is no CPU controller of cgroups with quotas");
        return;
    };
    let program = Program::compile_threads("throttled");
    let cgroup = quota.cgroup();
    let mut worker = program.start();
    cgroup.iter().for_each(|cgroup| cgroup.take(worker.pid()));
    let service = following(&mut worker, way, "");
    quota.take(worker.pid());
    let pid = worker.pid().to_string();
    let by = |metrics: &Exposition, by: &str| {
        metrics.sum("perf_process_sched_preemptions_total", &[("pid", &pid), ("by", by)])
    };
    let told = |metrics: &Exposition| ["throttled", "other", "kernel", "unknown"].map(|who| by(metrics, who));
    let (before, throttled) = (told(&service.metrics()), quota.throttled());
    let idle_before = CpuTimes::of_all_cpus().idle;
    // Where another task wants the CPU at that moment, the incoming task is that one.
    for round in 1..=5 {
        worker.does("lasts 2000");
        worker.does("sleeps 1 1000");
        let now = told(&service.metrics());
        let theirs = quota.throttled() - throttled;
        let ours: [f64; 4] = std::array::from_fn(|at| now[at] - before[at]);
        assert!(
            theirs >= 10.0,
            "a fifth of a CPU for 2 s in periods of 100 ms, but throttled only {theirs} times"
        );
        assert!(
            ours.iter().sum::<f64>() >= theirs * 0.9,
            "the exporter reports {ours:?}, the kernel throttled {theirs} times"
        );
        if ours[0] >= 1.0 {
            return;
        }
        eprintln!("round {round}: other tasks wanted the CPU each time: {ours:?}");
    }
    let idle = (CpuTimes::of_all_cpus().idle - idle_before).as_secs_f64();
    assert!(
        idle < 0.5,
        "the kernel throttled the cgroup, but no throttling was reported; CPUs were idle for {idle} s"
    );
}

/// A cgroup with a quota of a fifth of a CPU and a higher priority than all other tasks.
struct Quota {
    dir: PathBuf,
    /// Used where perf events see another hierarchy.
    own: Option<TestCgroup>,
}

impl Quota {
    fn new(name: &str) -> Option<Self> {
        let v1 = PathBuf::from(format!("/sys/fs/cgroup/cpu/perf-exporter-{name}-{}", std::process::id()));
        let own = TestCgroup::new(name);
        let unified = own.dir().join("cpu.max");
        if fs::write(&unified, "20000 100000").is_ok() {
            fs::write(own.dir().join("cpu.weight"), "10000").unwrap();
            return Some(Self { dir: own.dir().to_owned(), own: Some(own) });
        }
        fs::create_dir(&v1).ok()?;
        let quota = Self { dir: v1, own: Some(own) };
        fs::write(quota.dir.join("cpu.cfs_period_us"), "100000").ok()?;
        fs::write(quota.dir.join("cpu.cfs_quota_us"), "20000").ok()?;
        fs::write(quota.dir.join("cpu.shares"), "262144").unwrap();
        Some(quota)
    }

    fn cgroup(&self) -> Option<&TestCgroup> {
        self.own.as_ref()
    }

    fn take(&self, pid: u32) {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Returns how often the kernel has throttled it.
    fn throttled(&self) -> f64 {
        let stat = read_text(&self.dir.join("cpu.stat")).unwrap();
        let line = stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap();
        line.parse().unwrap()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        if self.own.as_ref().is_some_and(|own| own.dir() != self.dir) {
            // Its processes exited a moment ago.
            eventually("the cgroup is empty when it is removed", || fs::remove_dir(&self.dir).ok());
        }
    }
}

fn the_page_names_who_waited_longest(way: Way) {
    if lacks_any(way) {
        return;
    }
    let _alone = alone();
    let program = Program::compile_threads("latecomer");
    let (mut first, mut second) = (program.start(), program.start());
    let service = following(&mut first, way, "");
    first.does("pins 0");
    second.does("pins 0");
    // The process with the highest nice value waits longest, repeatedly, until it has used its CPU time.
    second.does("nice 19");
    detected(&service, way, || {
        first.told("lasts 700");
        second.told("spins 10");
        first.answers();
        second.answers();
    });
    let (_, status) = get_path(&service.address, "/api/v1/status");
    assert!(status.contains("\"comm\": \"latecomer\""), "{status}");
    let (_, page) = get_path(&service.address, "/status");
    assert!(page.contains("latecomer"), "{page}");
}

/// The kernel counts each wait for a CPU in `schedstat`, including the first one.
fn first_waits_of_processes_are_counted_in_the_cgroup_that_they_are_started_in(way: Way) {
    if lacks_any(way) || lacks(Feature::Cgroup) {
        return;
    }
    let _alone = alone();
    let program = Program::compile_threads("parent");
    let (own, other) = (TestCgroup::new("sched-parent"), TestCgroup::new("sched-child"));
    if !other.dir().join("cgroup.controllers").exists() {
        eprintln!("skipped: a process can be started in a cgroup of version 2 alone");
        return;
    }
    let mut forks = program.start();
    let mut clones = Running::by(Command::new(program.path()).arg(other.dir()));
    own.take(forks.pid());
    let service = following(
        &mut clones,
        way,
        &format!("cgroups: {{include: [\"{}\", \"{}\"]}}\n", own.path(), other.path()),
    );
    for (sleeps, forker) in [(0, false), (3, false), (0, true), (3, true)] {
        let (parent, cgroup) = if forker { (&mut forks, &own) } else { (&mut clones, &other) };
        // As in `detected`, one restart is allowed.
        let held = (0..2).any(|_| first_waits_hold(&service, parent, cgroup, sleeps));
        assert!(held, "in-flight state was lost twice");
    }
}

/// Lets a process start others in a cgroup, which may be its own, and compares their waits with the kernel's count. Returns `false` if
/// in-flight state was lost meanwhile.
fn first_waits_hold(service: &Service, parent: &mut Running, cgroup: &TestCgroup, sleeps: u32) -> bool {
    let pid = parent.pid();
    let members = read_text(&cgroup.dir().join("cgroup.procs")).unwrap();
    let is_member = members.lines().any(|line| line == pid.to_string());
    let of_parent = || if is_member { waits(pid) } else { 0.0 };
    wait_for_sleep(parent);
    let (before, first) = (service.metrics(), of_parent());
    let of_children = parent.does(&format!("bears 40 {sleeps}")) as f64;
    wait_for_sleep(parent);
    let (after, theirs) = (service.metrics(), of_children + of_parent() - first);
    let grew = |name: &str, labels: &[(&str, &str)]| after.sum(name, labels) - before.sum(name, labels);
    let untold =
        |reason| grew("perf_untracked_events_total", &[("section", "scheduler"), ("reason", reason)]);
    let ours = grew("perf_cgroup_sched_runqueue_latency_seconds_count", &[("cgroup", cgroup.path())]);
    let (lost, unwoken, unseen) = (untold("lost"), untold("missed_wakeup"), untold("missed_switch"));
    let said = format!(
        "{sleeps} sleeps, in the cgroup of the parent: {is_member}; {ours} waits, the kernel counts {theirs}, \
         {unwoken} without a recorded wakeup, {unseen} switches without a record"
    );
    eprintln!("{said}, {lost} lost");
    if lost > 0.0 {
        return false;
    }
    assert!(ours <= theirs + 1.0, "{said}");
    // Some kernels do not record wakeups by the timer of an idle CPU. After a switch without a record, a wait has no end.
    let missing = unseen + if sleeps == 0 { 1.0 } else { unwoken + 1.0 };
    assert!(ours >= theirs - missing, "{said}");
    true
}

/// Returns how often a single-threaded process has waited for a CPU, as counted by the kernel.
fn waits(pid: u32) -> f64 {
    let times = read_text(&PathBuf::from(format!("/proc/{pid}/schedstat"))).unwrap();
    times.split_ascii_whitespace().nth(2).unwrap().parse().unwrap()
}
