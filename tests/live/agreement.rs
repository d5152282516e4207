//! Counts of the exporter compared with those of `perf stat`, over the same work.
//!
//! Other work on the machine never stops, and two programs never start at the same instant. So the exporter is read twice at each end.
//! perf's interval lies within the outer interval of the exporter, and the inner interval within perf's; the counts must be in the same
//! order. The worker waits at both ends, so for the worker alone all three counts must be equal.

use std::fmt;

use perf_exporter::clock::Clock;
use perf_exporter::host::{Facts, Roots};

use crate::counting::{Collected, Counting};
use crate::perf::PerfStat;
use crate::support::cgroup::TestCgroup;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, lacks};

/// Counted events: the names that perf uses, and the names of the metrics without their scope.
const EVENTS: [(&str, &str); 3] = [
    ("context-switches", "context_switches"),
    ("page-faults", "page_faults"),
    ("task-clock", "task_clock_seconds"),
];

const WORK: [Work; 3] = [Work::Naps(300), Work::Faults(4096), Work::Spin(20_000_000)];

/// Three counts of one event.
pub(crate) struct Counts {
    pub(crate) event: &'static str,
    /// Count of the exporter in an interval within perf's.
    pub(crate) inner: f64,
    pub(crate) perf: f64,
    /// Count of the exporter in an interval around perf's.
    pub(crate) outer: f64,
}

impl Counts {
    /// Reports whether the counts are in order, within perf's rounding: perf prints times in hundredths of milliseconds.
    pub(crate) fn are_in_order(&self) -> bool {
        self.inner <= self.perf + 1e-5 && self.perf <= self.outer + 1e-5
    }

    /// Reports whether perf and the exporter differ by at most `tolerance`, a relative difference.
    pub(crate) fn agree_to(&self, tolerance: f64) -> bool {
        (self.inner - self.perf).abs() <= tolerance * self.perf
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, inner, perf, outer } = self;
        write!(
            f,
            "{event}: perf counted {perf}, the exporter {inner} within perf's interval and {outer} around it"
        )
    }
}

/// Lets the worker work while the exporter and perf count. `value` returns the exporter's count of a metric that is named without its
/// scope.
fn compare(
    worker: &mut Worker,
    mut counting: Counting,
    whom: &[&str],
    value: impl Fn(&Collected, &str) -> f64,
) -> [Counts; 3] {
    let mut perf = PerfStat::open(&EVENTS.map(|(event, _)| event), whom);
    let mut readings = vec![counting.collect()];
    perf.enable();
    readings.push(counting.collect());
    WORK.into_iter().for_each(|work| worker.does(work));
    readings.push(counting.collect());
    perf.disable();
    readings.push(counting.collect());
    let perf = perf.counts();
    let difference = |metric: &str, begin: usize, end: usize| {
        value(&readings[end], metric) - value(&readings[begin], metric)
    };
    let counts = |(event, metric)| Counts {
        event,
        inner: difference(metric, 1, 2),
        perf: perf.of(event),
        outer: difference(metric, 0, 3),
    };
    EVENTS.map(counts)
}

fn assert_for_each(counts: &[Counts; 3], holds: impl Fn(&Counts) -> bool) {
    let [switches, faults, time] = counts;
    // A nap causes no switch if its time is over before the CPU is released, for instance in a guest that was paused meanwhile.
    let worked = switches.inner >= 100.0 && faults.inner >= 4096.0 && time.inner > 0.0;
    assert!(worked && counts.iter().all(holds), "\n{switches}\n{faults}\n{time}");
}

#[test]
fn a_process_is_counted_as_perf_counts_it() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let mut worker = Worker::start("agreed");
    let pid = worker.pid().to_string();
    let counting = Counting::of(&format!(
        "counters: {{os: {{events: [context-switches, page-faults, task-clock], per: [process]}}}}\n\
         processes: {{include: [{{pid: {pid}}}], by: [comm]}}\n"
    ));
    let value = |collected: &Collected, metric: &str| {
        collected.value(&format!("perf_process_{metric}"), ("comm", "agreed")).unwrap_or(0.0)
    };
    let counts = compare(&mut worker, counting, &["-p", &pid], value);
    assert_for_each(&counts, |counts| counts.are_in_order() && counts.agree_to(0.01));
}

#[test]
fn a_cgroup_is_counted_as_perf_counts_it() {
    if lacks(Feature::Perf) || lacks(Feature::Cgroup) {
        return;
    }
    let cgroup = TestCgroup::new("agreement");
    let mut worker = Worker::start("agreed");
    cgroup.take(worker.pid());
    let path = cgroup.path();
    let counting = Counting::of(&format!(
        "counters: {{os: {{events: [context-switches, page-faults, task-clock], per: [cgroup]}}}}\n\
         cgroups: {{include: [\"{path}\"]}}\n"
    ));
    let value = |collected: &Collected, metric: &str| {
        collected.value(&format!("perf_cgroup_{metric}"), ("cgroup", path)).unwrap_or(0.0)
    };
    // perf requires the cgroup once for each event, and the path without the first slash.
    let name = &path[1..];
    let counts = compare(&mut worker, counting, &["-a", "-G", &[name; EVENTS.len()].join(",")], value);
    assert_for_each(&counts, |counts| counts.are_in_order() && counts.agree_to(0.01));
}

#[test]
fn the_whole_machine_is_counted_as_perf_counts_it() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let mut worker = Worker::start("agreed");
    let counting =
        Counting::of("counters: {os: {events: [context-switches, page-faults, task-clock], per: [cpu]}}\n");
    let value = |collected: &Collected, metric: &str| collected.sum(&format!("perf_cpu_{metric}"));
    let counts = compare(&mut worker, counting, &["-a"], value);
    assert_for_each(&counts, Counts::are_in_order);
}

/// The time-stamp counters of all CPUs run at the same rate, so equal increases show that all CPUs are read over the same time.
#[test]
fn the_time_stamp_counters_of_all_cpus_advance_alike() {
    if lacks(Feature::Tsc) {
        return;
    }
    let mut worker = Worker::start("clocked");
    let mut counting = Counting::of("counters: {clock: {events: [msr/tsc/], per: [cpu]}}\n");
    // CPUs are read one after the other, and on a loaded machine the reader may be preempted in between.
    let clock = Clock::system();
    let begin = clock.monotonic();
    let before = counting.collect();
    let first = clock.monotonic();
    worker.does(Work::Spin(50_000_000));
    let last = clock.monotonic();
    let after = counting.collect();
    let (longest, shortest) = (clock.monotonic().since(begin), last.since(first));
    let advanced: Vec<f64> = Facts::read(&Roots::default())
        .online
        .iter()
        .map(|cpu| {
            let of = |collected: &Collected| {
                collected.value("perf_cpu_msr_tsc", ("cpu", &cpu.to_string())).unwrap()
            };
            of(&after) - of(&before)
        })
        .collect();
    let (least, most) =
        advanced.iter().fold((f64::MAX, 0.0_f64), |(least, most), &n| (least.min(n), most.max(n)));
    let apart = longest.as_secs_f64() / shortest.as_secs_f64();
    assert!(
        least > 0.0 && most <= least * apart.max(1.05),
        "increases by CPU: {advanced:?}, between {shortest:?} and {longest:?} apart"
    );
}
