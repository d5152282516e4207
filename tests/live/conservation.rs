//! The switch stream loses no count. The counts of the CPUs equal the counts attributed to cgroups and processes plus the unattributed
//! counts, to the last nanosecond and page fault, under any load.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use perf_exporter::host::{Facts, Roots, list, read_text};

use crate::support::cgroup::TestCgroup;
use crate::support::collector::{Growth, PublishedFamilies, RunningCollector};
use crate::support::cpu_times::CpuTimes;
use crate::support::load::PingPong;
use crate::support::mixed::{Amounts, Mixed};
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually, lacks};

const EVENTS: &str =
    "task-clock, context-switches, page-faults, cpu-migrations, \"sched:sched_process_fork\"";

/// Metrics of these events, without their scope.
const METRICS: [&str; 5] =
    ["task_clock_seconds", "context_switches", "page_faults", "cpu_migrations", "sched_sched_process_fork"];

/// Period of the stream's clock records and their maximum delay, in nanoseconds.
const CLOCK_PERIOD: u64 = 100_000_000;
const LATE_TICK: u64 = 20_000_000;

/// About ten seconds on two CPUs.
const LOAD: Amounts = Amounts { bursts: 80, burn: 4000, processes: 1000, cgroups: 500 };

/// Locks the machine for one test at a time, because the stream records all switches on the machine and the loads are demanding. Returns
/// `None` if the machine has no stream.
fn machine() -> Option<MutexGuard<'static, ()>> {
    static MACHINE: Mutex<()> = Mutex::new(());
    let lacking = [Feature::Stream, Feature::Cgroup, Feature::Tracepoint].into_iter().any(lacks);
    (!lacking).then(|| MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns a configuration that counts all events for all targets.
fn configuration(scopes: &[&str]) -> String {
    let mut file = format!("counters: {{os: {{events: [{EVENTS}], per: [cpu, {}]}}}}\n", scopes.join(", "));
    for scope in scopes {
        file += match *scope {
            "cgroup" => "cgroups: {include: [\"/**\"], exclude: [], attribution: stream}\n",
            _ => "processes: {include: [{comm: \"*\"}], by: [comm], attribution: stream}\n",
        };
    }
    file
}

/// Counts a load from before its start until after its end.
fn nothing_is_lost(name: &str, scopes: &[&str]) {
    let Some(_machine) = machine() else { return };
    let top = TestCgroup::new(name);
    let mut load = Mixed::below(&top, LOAD);
    let mut accountant = RunningCollector::of(&configuration(scopes));
    assert_eq!(accountant.refusals(), [""; 0]);
    let mut growth = Growth::default();
    // Other work on this machine may also switch faster than the reader can follow. The rings grow after a loss.
    let before = (0..3).find_map(|_| {
        let before = accountant.collect();
        load.run(|| growth.take(&accountant.collect()));
        let after = accountant.collect();
        growth.take(&after);
        (after.lost_records() == before.lost_records()).then_some(before)
    });
    let state = accountant.stream();
    let before = before.unwrap_or_else(|| panic!("records were lost in every attempt: {state:?}"));
    let cpus = state.cpus as u64;
    let families = load.while_switching(|| accountant.finish());
    growth.take(&families);

    for scope in scopes {
        for metric in METRICS {
            families.balance(scope, metric).assert_exact();
        }
        let clock = families.balance(scope, METRICS[0]);
        let earlier = before.balance(scope, METRICS[0]);
        // The last record of a closed CPU is that of its last incoming task. It may also be a clock record of the stream, at most a tenth
        // of a second old. If other tasks never leave their CPU, this part is not negligible.
        let ended = clock.of("ended");
        assert!(ended < cpus * (CLOCK_PERIOD + LATE_TICK), "a record is missing at the end: {clock:?}");
        let failed = clock.failed() - earlier.failed() - (ended - earlier.of("ended"));
        let counted = clock.counted - earlier.counted;
        assert!(
            failed * 1000 < counted,
            "more than one in a thousand is unattributed: {earlier:?} then {clock:?}"
        );
    }
    if scopes.contains(&"process") {
        // Each of these processes leaves a CPU at least once, when it exits.
        let switches = families.by("perf_process_context_switches", "comm", &[]);
        for (comm, processes) in [(Mixed::SHORT, LOAD.processes), (Mixed::BRIEF, LOAD.cgroups)] {
            let counted = switches.get(comm).copied().unwrap_or(0);
            assert!(counted >= processes, "{counted} switches of {processes} processes named {comm}");
        }
    }
    let clocks = families.by("perf_cgroup_task_clock_seconds", "cgroup", &[]);
    let below = format!("{}/", load.churned());
    let used = clocks.iter().filter(|&(path, &clock)| path.starts_with(&below) && clock > 0);
    // Where the kernel hides its own threads, counts next to such a thread are unattributed.
    let hidden = families.balance(scopes[0], METRICS[0]).of("unrecorded") > 0;
    let (used, least) = (used.count() as u64, if hidden { LOAD.cgroups * 9 / 10 } else { LOAD.cgroups });
    assert!(used >= least, "of {} removed cgroups only {used} have CPU time", LOAD.cgroups);
}

#[test]
fn what_cgroups_are_charged_with_is_what_the_cpus_counted() {
    nothing_is_lost("conserved-by-cgroup", &["cgroup"]);
}

#[test]
fn what_cgroups_and_processes_are_charged_with_is_what_the_cpus_counted() {
    nothing_is_lost("conserved-by-process", &["cgroup", "process"]);
}

#[test]
fn what_a_numa_node_counted_is_what_its_cpus_counted() {
    let Some(_machine) = machine() else { return };
    // The stream counts all three events, so that one reading of a CPU contains all of them.
    let mut accountant = RunningCollector::of(&format!(
        "counters: {{os: {{events: [{EVENTS}], per: [cpu, numa, cgroup]}}}}\n\
         cgroups: {{include: [\"/**\"], attribution: stream}}\n"
    ));
    assert_eq!(accountant.refusals(), [""; 0]);
    let nodes = Facts::read(&Roots::default()).nodes;
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(50));
        let families = accountant.collect();
        for metric in METRICS {
            let mut by_node: BTreeMap<String, u64> = BTreeMap::new();
            for (cpu, count) in families.by(&format!("perf_cpu_{metric}"), "cpu", &[]) {
                *by_node.entry(nodes.cpu(cpu.parse().unwrap()).node.to_string()).or_default() += count;
            }
            assert_eq!(families.by(&format!("perf_numa_{metric}"), "numa_node", &[]), by_node, "{metric}");
            assert!(metric != METRICS[0] || by_node.values().sum::<u64>() > 0, "a clock has advanced");
        }
    }
}

/// As in production, where a burst of switches may exceed a ring; here a smaller burst is enough.
#[test]
fn what_rings_lose_is_counted_as_lost_and_nothing_else_is() {
    let Some(_machine) = machine() else { return };
    let top = TestCgroup::new("overrun");
    let mut load = Mixed::below(&top, LOAD);
    let scopes = ["cgroup", "process"];
    let mut accountant = RunningCollector::with_rings_of(Some(1), &configuration(&scopes));
    let page = rustix::param::page_size();
    let rings = |accountant: &RunningCollector| accountant.stream().ring_bytes;
    assert_eq!(rings(&accountant), (page * accountant.stream().cpus) as u64, "each ring has one page");
    let mut growth = Growth::default();
    eventually("a ring has overflowed", || {
        load.while_switching(|| ());
        let families = accountant.collect();
        growth.take(&families);
        (families.lost_records() > 0).then_some(())
    });
    load.while_switching(|| growth.take(&accountant.collect()));
    assert_eq!(
        rings(&accountant),
        (page * accountant.stream().cpus) as u64,
        "the rings must not grow beyond the limit"
    );
    let families = accountant.finish();
    growth.take(&families);
    for scope in scopes {
        for metric in METRICS {
            families.balance(scope, metric).assert_exact();
        }
        for metric in &METRICS[..2] {
            let balance = families.balance(scope, metric);
            assert!(balance.of("lost") > 0, "{balance:?}");
        }
    }
}

/// Some kernels write no samples of switches away from idle. The stream detects it and enables records of switches on such CPUs.
#[test]
fn who_wakes_up_on_an_idle_cpu_is_charged_although_no_sample_tells_that_idle_left() {
    let Some(_machine) = machine() else { return };
    let (one, other) = (TestCgroup::new("ping"), TestCgroup::new("pong"));
    let mut switching = PingPong::between(&one, &other);
    let scopes = ["cgroup", "process"];
    let mut accountant = RunningCollector::of(&configuration(&scopes));
    let mut trade = || {
        let before = accountant.collect();
        switching.begin_on([0, 1], 5_000);
        switching.finish();
        let after = accountant.collect();
        let since = |value: &dyn Fn(&PublishedFamilies) -> u64| value(&after) - value(&before);
        let all = since(&|families| families.sum("perf_cpu_context_switches", &[]));
        let unrecorded =
            scopes.map(|scope| since(&|families| families.balance(scope, METRICS[1]).of("unrecorded")));
        (unrecorded, all, before, after)
    };
    // Records of switches are enabled on a CPU after it was seen to hide switches. This can take longer on some CPUs.
    let mut seen = Vec::new();
    let (before, after) = loop {
        let (unrecorded, all, before, after) = trade();
        if unrecorded.iter().all(|count| count * 1000 <= all) {
            break (before, after);
        }
        seen.push((unrecorded, all));
        assert!(seen.len() < 6, "unattributed switches by cgroup and by process, and all switches: {seen:?}");
    };
    for cgroup in [&one, &other] {
        let switches = |families: &PublishedFamilies| {
            families.sum("perf_cgroup_context_switches", &[("cgroup", cgroup.path())])
        };
        let (before, after) = (switches(&before), switches(&after));
        assert!(after - before >= 4_950, "process {} left the CPU {} times", cgroup.path(), after - before);
    }
}

/// The clock of the stream ends a slice at least ten times per second.
#[test]
fn a_process_that_never_leaves_its_cpu_is_charged_soon() {
    let Some(_machine) = machine() else { return };
    const LATE: Duration = Duration::from_millis(110);
    let cgroup = TestCgroup::new("hog");
    let mut hog = Worker::start("hog");
    cgroup.take(hog.pid());
    let scopes = ["cgroup", "process"];
    let mut accountant = RunningCollector::of(&configuration(&scopes));
    let before = cpu_time_of(hog.pid());
    // Unattributed time may belong to the hog, for example next to threads that the kernel hides.
    let nobodys = |families: &PublishedFamilies, scope| {
        let balance = families.balance(scope, METRICS[0]);
        balance.failed() + balance.of("unrecorded")
    };
    let families = accountant.collect();
    let nobodys_before = scopes.map(|scope| nobodys(&families, scope));
    hog.begin(&Work::Burn(3000).to_string());
    let (mut charged_while_it_ran, mut late) = (0, Vec::new());
    for look in 1..=20 {
        // Waits by the hog's own CPU time, because other tasks may use most of that CPU.
        let used = eventually("the hog has used enough CPU time", || {
            let used = cpu_time_of(hog.pid()) - before;
            (used >= look * Duration::from_millis(70)).then_some(used)
        });
        each_cpu_ticks();
        let families = accountant.collect();
        let labels = [("cgroup", cgroup.path()), ("comm", "hog")];
        for ((scope, label), nobodys_before) in scopes.into_iter().zip(labels).zip(nobodys_before) {
            let accounted = families.sum(&format!("perf_{scope}_task_clock_seconds"), &[label]);
            let accounted = Duration::from_nanos(accounted);
            let failed = Duration::from_nanos(nobodys(&families, scope) - nobodys_before);
            if accounted + failed + LATE < used {
                late.push(format!(
                    "{scope}: {accounted:?} of {used:?} are attributed to the hog, {failed:?} unattributed"
                ));
            }
            charged_while_it_ran += u32::from(accounted > LATE);
        }
    }
    hog.finish();
    assert!(late.is_empty(), "{late:#?}");
    assert!(
        charged_while_it_ran > 20,
        "only {charged_while_it_ran} of 40 collections attributed new time to the running hog"
    );
}

/// Waits until each CPU has handled timer ticks, which `/proc/stat` counts.
///
/// While the host of a guest runs other tasks on a CPU, the clock of that CPU ends no slice. The CPU time of its thread still grows,
/// because a wakeup onto that CPU updates it from another CPU.
fn each_cpu_ticks() {
    let ticks = || CpuTimes::of_each_cpu().iter().map(CpuTimes::all).collect::<Vec<_>>();
    let before = ticks();
    eventually("each CPU has handled timer ticks", || {
        ticks().iter().zip(&before).all(|(now, before)| *now >= *before + 2 * CpuTimes::TICK).then_some(())
    });
}

/// Returns the CPU time of the threads of a process, up to the last tick of running ones: the first field of `schedstat`.
fn cpu_time_of(pid: u32) -> Duration {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let of_thread = |thread: &String| -> u64 {
        let schedstat = read_text(&tasks.join(thread).join("schedstat")).unwrap();
        schedstat.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(list(&tasks).unwrap().iter().map(of_thread).sum())
}

/// The kernel counts idle time in the root cgroup, like all other time outside of child cgroups.
#[test]
fn idle_time_is_not_charged_to_the_root_cgroup() {
    let Some(_machine) = machine() else { return };
    let mut accountant = RunningCollector::of(&format!(
        "counters: {{os: {{events: [{EVENTS}], per: [cpu, cgroup]}}}}\n\
         cgroups: {{include: [\"/\", \"/**\"], exclude: [], attribution: stream}}\n"
    ));
    let mut look = || {
        // The order of the readings is the same at both ends, so that the delay between them counts once.
        let families = accountant.collect();
        let clock = families.balance("cgroup", METRICS[0]);
        let root = families.sum("perf_cgroup_task_clock_seconds", &[("cgroup", "/")]);
        let accounted = [clock.of("idle"), clock.of("unrecorded"), root].map(Duration::from_nanos);
        let times: Vec<Duration> = accounted.into_iter().chain(times_of_all_cpus()).collect();
        (times, Duration::from_nanos(clock.waiting()))
    };
    let (before, waited) = look();
    thread::sleep(Duration::from_secs(3));
    let (after, waiting) = look();
    let advanced: Vec<Duration> = after.iter().zip(before).map(|(after, before)| *after - before).collect();
    let &[idle, unrecorded, root, slept, worked] = &advanced[..] else { panic!("{advanced:?}") };
    // Each CPU may have a tenth of a second that is not accounted yet, and the kernel rounds to ticks.
    let slack = Duration::from_millis(250) * Facts::read(&Roots::default()).online.len() as u32;
    let told = format!(
        "{idle:?} idle, {unrecorded:?} unrecorded, {waited:?} then {waiting:?} not accounted yet, and {root:?} in the root cgroup; \
         the kernel reports {slept:?} idle and {worked:?} in all cgroups"
    );
    // Where the kernel hides its own threads, idle time next to such a thread is unattributed as well. Where the kernel stops the timer of
    // an idle CPU, the idle time is accounted when the CPU runs a task again.
    assert!(idle + unrecorded + waiting + slack >= slept && idle <= slept + waited + slack, "{told}");
    assert!(root <= worked + slack, "{told}");
}

/// Returns the idle time and the busy time of all CPUs since boot.
fn times_of_all_cpus() -> [Duration; 2] {
    let times = CpuTimes::of_all_cpus();
    let idle = times.idle + times.iowait;
    [idle, times.all() - idle]
}
