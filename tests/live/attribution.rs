//! The two ways of attribution, event descriptors of each target and the switch stream, compared with independent counts: `perf stat`, the
//! parent of many processes, and the CPUs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use perf_exporter::host::{CpuSet, Facts, Roots};

use crate::perf::{PerfCounts, PerfStat};
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::load::{Churn, PingPong, Storm};
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, can_choose_attribution, lacks};

/// Counted events: the names that perf uses, and the names of the metrics without their scope.
const EVENTS: [(&str, &str); 3] = [
    ("task-clock", "task_clock_seconds"),
    ("context-switches", "context_switches"),
    ("page-faults", "page_faults"),
];

/// A way of attribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attribution {
    Dedicated,
    Stream,
}

impl Attribution {
    /// Returns the setting, to be appended to other settings.
    fn setting(self) -> &'static str {
        match self {
            Self::Stream => ", attribution: stream",
            Self::Dedicated if can_choose_attribution() => ", attribution: dedicated",
            Self::Dedicated => "",
        }
    }
}

/// Locks the machine for one test at a time, because the stream records all switches on the machine and the loads are demanding. Returns
/// `None` if the machine lacks one of `features`, or the program this way of attribution.
fn machine_with(features: &[Feature], attribution: Attribution) -> Option<MutexGuard<'static, ()>> {
    static MACHINE: Mutex<()> = Mutex::new(());
    let stream = (attribution == Attribution::Stream).then_some(&Feature::Stream);
    let lacking = features.iter().chain(stream).any(|feature| lacks(*feature));
    // A failed test leaves no process behind, because all its processes are killed.
    (!lacking).then(|| MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts the service for these events. `rest` is the configuration of the targets.
fn service(per: &str, rest: &str) -> Service {
    let events = EVENTS.map(|(event, _)| event).join(", ");
    Service::start(&format!(
        "collection: {{interval: 10m, freshness: 0s}}\nhistory: {{for: 0s}}\n\
         counters: {{os: {{events: [{events}], per: [{per}]}}}}\n{rest}"
    ))
}

/// Makes a scrape that contains all counts of tasks that wait by now. The stream is at most a tenth of a second behind.
fn settled(service: &Service) -> Exposition {
    thread::sleep(Duration::from_millis(300));
    service.metrics()
}

/// The increase from one scrape to another.
#[derive(Clone, Copy)]
struct Interval<'a>(&'a Exposition, &'a Exposition);

impl Interval<'_> {
    fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        self.1.sum(metric, labels) - self.0.sum(metric, labels)
    }

    /// Returns the increase of one cgroup or process.
    fn of(&self, scope: &str, metric: &str, target: &str) -> f64 {
        let label = if scope == "cgroup" { "cgroup" } else { "comm" };
        self.sum(&format!("perf_{scope}_{metric}_total"), &[(label, target)])
    }
}

/// Runs `load` while the service and perf count. Both count from before its start until after its end.
fn beside_perf(
    service: &Service,
    whom: &[&str],
    load: impl FnOnce(),
) -> (Exposition, Exposition, PerfCounts) {
    let mut perf = PerfStat::open(&EVENTS.map(|(event, _)| event), whom);
    let before = settled(service);
    perf.enable();
    load();
    perf.disable();
    let after = settled(service);
    (before, after, perf.counts())
}

/// All counts of one event in one scope.
struct Account {
    attributed: f64,
    /// Unattributed by design: idle time, and tasks outside the selection.
    left_out: f64,
    /// Unattributed because of a failure, by reason.
    failed: [(&'static str, f64); 3],
    /// Unattributed because the kernel wrote no record of a switch, as some kernels do for threads that they hide. Included in `left_out`.
    unrecorded: f64,
}

impl Account {
    fn of(interval: Interval<'_>, scope: &str, metric: &str) -> Self {
        let unattributed = |reason: &[(&str, &str)]| {
            let labels = [&[("scope", scope)], reason].concat();
            interval.sum(&format!("perf_unattributed_{metric}_total"), &labels)
        };
        let failed =
            ["lost", "rotated", "unknown"].map(|reason| (reason, unattributed(&[("reason", reason)])));
        Self {
            attributed: interval.sum(&format!("perf_{scope}_{metric}_total"), &[]),
            left_out: unattributed(&[]) - sum(failed),
            failed,
            unrecorded: unattributed(&[("reason", "unrecorded")]),
        }
    }
}

fn sum(counts: [(&str, f64); 3]) -> f64 {
    counts.iter().map(|(_, count)| count).sum()
}

/// Asserts that the exporter and perf counted the same for a target of a scope, within one percent.
fn assert_same(interval: Interval<'_>, (scope, target): (&str, &str), perfs: impl Fn(&str) -> f64) {
    for (event, metric) in EVENTS {
        let (ours, theirs) = (interval.of(scope, metric, target), perfs(event));
        let Account { failed, unrecorded, .. } = Account::of(interval, scope, metric);
        // Perf counts the time from the moment when a task is on the CPU; the stream counts from the end of the outgoing task, some
        // microseconds earlier. Perf prints times in hundredths of milliseconds.
        let switching = if event == "task-clock" { 1e-5 * (1.0 + perfs("context-switches")) } else { 0.0 };
        // Unattributed counts may belong to the target: on a loaded machine, the counts of lost records. Otherwise there are none.
        let nobodys = sum(failed) + unrecorded;
        assert!(
            theirs > 0.0 && (ours - theirs).abs() <= 0.01 * theirs + switching + nobodys,
            "{event} of {target}: the exporter counted {ours}, perf {theirs}; unattributed {failed:?}, {unrecorded} unrecorded"
        );
    }
}

fn two_cgroups_are_counted_as_perf_counts_them(attribution: Attribution) {
    let Some(_machine) = machine_with(&[Feature::Perf, Feature::Cgroup], attribution) else { return };
    let top = TestCgroup::new(&format!("beside-perf-{attribution:?}"));
    let (one, other) = (top.below("one"), top.below("other"));
    let mut workers = [Worker::start("one"), Worker::start("other")];
    one.take(workers[0].pid());
    other.take(workers[1].pid());
    let mut switching = PingPong::between(&one, &other);
    let (path, how) = (top.path(), attribution.setting());
    let service = service("cgroup", &format!("cgroups: {{include: [\"{path}/*\"]{how}}}\n"));
    let names = [&one, &other].map(|cgroup| &cgroup.path()[1..]);
    let (before, after, perf) = beside_perf(&service, &["-a", "--for-each-cgroup", &names.join(",")], || {
        workers[0].does(Work::Burn(600));
        workers[1].does(Work::Burn(1200));
        workers[0].does(Work::Faults(8 * 1024));
        workers[1].does(Work::Faults(4 * 1024));
        // Few enough that no ring overflows.
        switching.run(0, 1000);
    });
    for (cgroup, name) in [&one, &other].into_iter().zip(names) {
        assert_same(Interval(&before, &after), ("cgroup", cgroup.path()), |event| {
            perf.of_cgroup(event, name)
        });
    }
}

#[test]
fn two_cgroups_with_descriptors_of_their_own_are_counted_as_perf_counts_them() {
    two_cgroups_are_counted_as_perf_counts_them(Attribution::Dedicated);
}

#[test]
fn two_cgroups_in_the_switch_stream_are_counted_as_perf_counts_them() {
    two_cgroups_are_counted_as_perf_counts_them(Attribution::Stream);
}

#[test]
fn a_cgroup_that_comes_and_goes_unseen_counts_for_those_above_it_as_well() {
    let Some(_machine) = machine_with(&[Feature::Cgroup], Attribution::Stream) else { return };
    let top = TestCgroup::new("above-passing");
    let path = top.path().to_owned();
    let service = service(
        "cgroup",
        &format!(
            "cgroups: {{include: [\"{path}\", \"{path}/**\"], descendants: true, attribution: stream}}\n"
        ),
    );
    let before = settled(&service);
    let passing = top.below("passing");
    let mut worker = Worker::start("passing");
    passing.take(worker.pid());
    worker.does(Work::Faults(4 * 1024));
    drop(worker);
    let name = passing.path().to_owned();
    drop(passing);
    let after = settled(&service);
    let interval = Interval(&before, &after);
    let own = interval.of("cgroup", "page_faults", &name);
    let above = interval.of("cgroup", "page_faults", &path);
    // Counts next to a thread that the kernel hides are unattributed.
    let hidden = interval.sum("perf_unattributed_page_faults_total", &[("reason", "unrecorded")]);
    assert!(
        own + hidden >= 4096.0 && above >= own,
        "{own} page faults of the child, {above} of the parent, before {before:?}, after {after:?}"
    );
}

fn a_command_is_counted_as_perf_counts_its_process(attribution: Attribution) {
    let Some(_machine) = machine_with(&[Feature::Perf, Feature::Software], attribution) else { return };
    let comm = format!("by-{attribution:?}");
    let mut worker = Worker::start(&comm);
    let (pid, how) = (worker.pid().to_string(), attribution.setting());
    let service =
        service("process", &format!("processes: {{include: [{{comm: \"{comm}\"}}], by: [comm]{how}}}\n"));
    let (before, after, perf) = beside_perf(&service, &["-p", &pid], || {
        [Work::Burn(1000), Work::Faults(8 * 1024), Work::Naps(1000)]
            .into_iter()
            .for_each(|work| worker.does(work));
    });
    assert_same(Interval(&before, &after), ("process", &comm), |event| perf.of(event));
}

#[test]
fn a_command_with_descriptors_of_its_own_is_counted_as_perf_counts_its_process() {
    a_command_is_counted_as_perf_counts_its_process(Attribution::Dedicated);
}

#[test]
fn a_command_in_the_switch_stream_is_counted_as_perf_counts_its_process() {
    a_command_is_counted_as_perf_counts_its_process(Attribution::Stream);
}

#[test]
fn a_thousand_processes_that_end_at_once_are_counted_under_their_name() {
    let Some(_machine) = machine_with(&[Feature::Software], Attribution::Stream) else { return };
    let mut storm = Storm::of("thousand");
    let service =
        service("process", "processes: {include: [{comm: thousand}], by: [comm], attribution: stream}\n");
    let before = settled(&service);
    storm.begin(1000);
    let theirs = storm.finish() as f64;
    let after = settled(&service);
    let interval = Interval(&before, &after);
    let ours = interval.of("process", "page_faults", "thousand");
    let failed = Account::of(interval, "process", "page_faults").failed;
    // The parent's account includes faults that are no events under this name: those before execve, when the process still had its parent's
    // name, and those in which the kernel writes the arguments to the new stack. It excludes retried faults, which are one event for each
    // attempt. Both are few compared with the faults of loading a program. Unattributed faults may belong to these processes as well.
    assert!(theirs > 50_000.0, "{theirs} page faults are too few for a thousand processes");
    assert!(
        (0.95 * theirs - sum(failed)..=1.02 * theirs).contains(&ours),
        "{ours} page faults, {theirs} in the account of the parent; unattributed {failed:?}"
    );
    let Account { failed, .. } = Account::of(interval, "process", "context_switches");
    let switches = interval.of("process", "context_switches", "thousand");
    assert!(
        switches + sum(failed) >= 1000.0,
        "each process left a CPU at least once, but only {switches} switches were counted; unattributed {failed:?}"
    );
}

/// Runs all kinds of load at once, for some seconds. Benchmarks measure the maximum rate of switches: here the program is not optimized,
/// and other tests run beside it.
fn mixed_load(top: &TestCgroup, switching: &mut PingPong) {
    let (third, churned) = (top.below("third"), top.below("churned"));
    let mut busy = Worker::start("busy");
    third.take(busy.pid());
    let mut churn = Churn::below(&churned, "brief");
    let mut storm = Storm::of("squall");
    switching.begin(0, 30_000);
    busy.begin(&Work::Burn(1500).to_string());
    churn.begin(150);
    storm.begin(600);
    switching.finish();
    busy.finish();
    churn.finish();
    storm.finish();
}

/// Asserts that the parts add up to the whole between the second and the third of four scrapes. The load runs only in this middle interval.
/// Returns an error with the losses if they exceed one in a thousand.
fn conserved([earlier, before, after, later]: [&Exposition; 4], online: &CpuSet) -> Result<(), String> {
    let mut losses = Vec::new();
    for (event, metric) in EVENTS {
        let cpus = |interval: Interval<'_>| interval.sum(&format!("perf_cpu_{metric}_total"), &[]);
        let counted = cpus(Interval(before, after));
        // Counts between the last record of a CPU and a scrape are missing at the end, and are too many at the start. For time the bound is
        // the longest interval without a record: a tenth of a second for each CPU. Faults and switches come in bursts, from other work on
        // the machine and from the scrape itself. At each end their bound is the count of the adjacent third of a second, which contains
        // one scrape and no load.
        let tail = match event {
            "task-clock" => 0.1 * online.len() as f64,
            _ => cpus(Interval(earlier, before)) + cpus(Interval(after, later)),
        };
        for scope in ["cgroup", "process"] {
            let Account { attributed, left_out, failed, .. } =
                Account::of(Interval(before, after), scope, metric);
            let missing = counted - attributed - left_out - sum(failed);
            assert!(
                attributed > 0.0 && missing.abs() <= 0.01 * counted + tail,
                "{event} by {scope}: {attributed} attributed, {left_out} left out, {failed:?} failed, \
                 of {counted} counted, within {tail}",
            );
            if sum(failed) > 0.001 * counted {
                losses.push(format!("{event} by {scope}: of {counted} nobody's are {failed:?}"));
            }
        }
    }
    if losses.is_empty() { Ok(()) } else { Err(losses.join("\n")) }
}

#[test]
fn what_is_attributed_and_what_cannot_be_is_together_what_the_cpus_counted() {
    let Some(_machine) = machine_with(&[Feature::Cgroup], Attribution::Stream) else { return };
    let top = TestCgroup::new("conserved");
    let (one, other) = (top.below("one"), top.below("other"));
    let mut switching = PingPong::between(&one, &other);
    let service = service(
        "cpu, cgroup, process",
        "cgroups: {include: [\"/**\"], exclude: [], attribution: stream}\n\
         processes: {include: [{comm: \"*\"}], by: [comm], attribution: stream}\n",
    );
    let online = Facts::read(&Roots::default()).online;
    let scrape = |switching: &mut PingPong| {
        thread::sleep(Duration::from_millis(300));
        // Counts of a CPU are attributed at its next switch, so all CPUs switch here to reduce the missing counts.
        for cpu in online.iter() {
            switching.run(cpu as usize, 10);
        }
        service.metrics()
    };
    // On a loaded machine the program may read its rings too late. It then enlarges them, so that the same load is counted completely
    // later. The sums must be right at once.
    let mut losses = String::new();
    for _ in 0..4 {
        let (earlier, before) = (scrape(&mut switching), scrape(&mut switching));
        mixed_load(&top, &mut switching);
        let (after, later) = (scrape(&mut switching), scrape(&mut switching));
        match conserved([&earlier, &before, &after, &later], &online) {
            Ok(()) => return,
            Err(lost) => losses = lost,
        }
    }
    panic!("counts were lost in every attempt, in the last one\n{losses}");
}
