//! A load of two cgroups beside other users of the PMU: the counts of the exporter and those of the kernel itself.

use std::env;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use perf_exporter::host::read_text;
use perf_exporter::sys::live::{Live, LiveEvent};
use perf_exporter::sys::{Attr, Event, Kernel, Place, Start};

use crate::support::cgroup::TestCgroup;
use crate::support::collector::{PublishedFamilies, RunningCollector};
use crate::support::worker::{Work, Worker};
use crate::users::Users;

/// A value for each of two cgroups.
pub(crate) type Each<T> = [T; 2];

/// A load as counted by the exporter.
pub(crate) struct Run {
    pub(crate) families: PublishedFamilies,
    pub(crate) paths: Each<String>,
    /// Share of the time in which hardware events were on the PMU, for each cgroup.
    pub(crate) ratios: Each<f64>,
    /// The same from the ratios of the CPUs, each weighted by the cgroup's time on it.
    pub(crate) expected_ratios: Each<f64>,
    pub(crate) records: u64,
    /// Counts of the kernel for each cgroup: page faults, nanoseconds of a `task-clock` event of its own, and nanoseconds in `cpu.stat`,
    /// which omits the time of interrupts.
    pub(crate) truth: [Each<u64>; 3],
    /// Events per nanosecond counted by a watchdog; less than one, because the PMU is stopped while the kernel programs it.
    pub(crate) watchdog: Option<f64>,
    /// Instructions in user space on all CPUs, counted by a pinned event.
    user: Option<u64>,
}

impl Run {
    pub(crate) fn of(&self, metric: &str, cgroup: usize) -> f64 {
        self.families.sum(&format!("perf_cgroup_{metric}"), &[("cgroup", &self.paths[cgroup])]) as f64
    }

    /// Returns the relative difference of a hardware event's rate per nanosecond on a CPU from the rate of the undisturbed run.
    pub(crate) fn error(&self, alone: &Self, metric: &str, cgroup: usize) -> f64 {
        let rate = |run: &Self| run.of(metric, cgroup) / run.of("task_clock_seconds", cgroup);
        rate(self) / rate(alone) - 1.0
    }

    /// Returns the relative difference of the CPUs' user-space instructions from those of a pinned event. The number of instructions of a
    /// load differs between runs: while one CPU of the guest is stopped for another, the emulator keeps counting.
    pub(crate) fn error_of_user(&self) -> Option<f64> {
        self.user.map(|user| self.families.sum("perf_cpu_instructions_user", &[]) as f64 / user as f64 - 1.0)
    }

    /// Prints a table row: running ratio of each cgroup, and the expected one; for each cgroup page faults, and time divided by that of a
    /// `task-clock` event and by that of `cpu.stat`, and the errors.
    pub(crate) fn print(&self, name: &str, alone: &Self) {
        print!("| {name} |");
        for cgroup in 0..2 {
            print!(" {:.3}, {:.3} |", self.ratios[cgroup], self.expected_ratios[cgroup]);
            let [faults, event, stat] = self.truth.map(|truth| truth[cgroup]);
            let time = self.of("task_clock_seconds", cgroup);
            let (event, stat) = (time / event as f64, time / stat as f64);
            print!(" {}/{faults} | {event:.5}, {stat:.5} |", self.of("page_faults", cgroup));
            for metric in ["cycles", "instructions"] {
                print!(" {:+.2} |", 100.0 * self.error(alone, metric, cgroup));
            }
        }
        let percent = |part: f64| format!("{:+.2}", 100.0 * part);
        let watchdog = self.watchdog.map(|rate| percent(rate - 1.0)).unwrap_or_default();
        println!(
            " {watchdog} | {} | {} |",
            self.error_of_user().map(percent).unwrap_or_default(),
            self.records
        );
    }
}

/// Counts two cgroups that alternate on the CPUs, one of which spends part of its time in the kernel, beside other users of the PMU.
pub(crate) fn beside(entries: &str, users: impl FnOnce(Users) -> Users) -> Run {
    // About three seconds on two CPUs: in one second, the kernel may by chance rotate the group onto the PMU while the same cgroup runs.
    let rounds = env::var("FOREIGN_SECONDS")
        .map_or(18, |seconds| seconds.parse().expect("FOREIGN_SECONDS is a number of seconds"));
    let busy = ["shared-one", "shared-two"].map(TestCgroup::new);
    // More workers than CPUs.
    let mut workers: Vec<(usize, Worker, Work)> = Vec::new();
    for number in [0, 1, 0, 1] {
        let work = [Work::Spin(4_000_000), Work::Getppid(60_000)][number];
        let worker = Worker::start("shared");
        busy[number].take(worker.pid());
        workers.push((number, worker, work));
    }
    let clocks = busy.each_ref().map(clocks);
    let elapsed = || clocks.each_ref().map(|clocks| clocks.each_ref().map(elapsed));
    let truth = |workers: &[(usize, Worker, Work)]| {
        let faults = [0, 1].map(|cgroup| {
            let its = workers.iter().filter(|(number, ..)| *number == cgroup);
            its.map(|(_, worker, _)| faults(worker.pid())).sum::<u64>()
        });
        [faults, busy.each_ref().map(usage)]
    };
    let users = users(Users::default());
    let (before, earlier_times) = (truth(&workers), elapsed());
    let mut accountant = RunningCollector::of(&format!(
        "counters: {entries}\ncgroups: {{include: [\"{}\", \"{}\"], attribution: stream}}\n",
        busy[0].path(),
        busy[1].path()
    ));
    assert_eq!(accountant.refusals(), [""; 0]);
    let pinned = || [(0, ""), (1, "u")].map(|event| users.pinned(event));
    let earlier = pinned();
    for (_, worker, work) in &mut workers {
        for order in (0..rounds).flat_map(|_| [*work, Work::Faults(Work::PAGES_AT_ONCE)]) {
            worker.begin(&order.to_string());
        }
    }
    workers.iter_mut().for_each(|(_, worker, _)| (0..2 * rounds).for_each(|_| drop(worker.finish())));
    let last = accountant.collect();
    let records = accountant.stream().losses.records;
    assert_eq!(last.lost_records(), 0, "{last:?}");
    let later = pinned();
    let families = accountant.finish();
    let (after, later_times) = (truth(&workers), elapsed());
    users.assert_counted();
    let ratio = |label: &str, value: &str| last.gauge("perf_event_running_ratio", &[(label, value)]).unwrap();
    let paths = busy.each_ref().map(|cgroup| cgroup.path().to_owned());
    let ratios = paths.each_ref().map(|path| ratio("cgroup", path));
    let of_cpus = ["0", "1"].map(|cpu| ratio("cpu", cpu));
    let times = [0, 1].map(|cgroup| [0, 1].map(|cpu| later_times[cgroup][cpu] - earlier_times[cgroup][cpu]));
    let expected_ratios =
        times.map(|[one, two]| (one as f64 * of_cpus[0] + two as f64 * of_cpus[1]) / (one + two) as f64);
    let [faults, usage] = [0, 1].map(|what| [0, 1].map(|cgroup| after[what][cgroup] - before[what][cgroup]));
    let truth = [faults, times.map(|[one, two]| one + two), usage];
    let [cycles, user] = [0, 1].map(|event| {
        let (before, after) = earlier[event].zip(later[event])?;
        Some([after[0] - before[0], after[1] - before[1]])
    });
    let watchdog = cycles.map(|[cycles, nanoseconds]| cycles as f64 / nanoseconds as f64);
    Run {
        families,
        paths,
        ratios,
        expected_ratios,
        records,
        truth,
        watchdog,
        user: user.map(|[count, _]| count),
    }
}

/// Returns the number of page faults of a process so far.
fn faults(pid: u32) -> u64 {
    let stat = read_text(format!("/proc/{pid}/stat").as_ref()).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    [fields[7], fields[9]].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}

/// `PERF_COUNT_SW_TASK_CLOCK`.
const TASK_CLOCK: u64 = 1;

/// Opens a `task-clock` event of a cgroup on each of two CPUs.
fn clocks(cgroup: &TestCgroup) -> [LiveEvent; 2] {
    let dir: OwnedFd = File::open(cgroup.dir()).unwrap().into();
    [0, 1].map(|cpu| {
        let place = Place::Cgroup { dir: dir.as_fd(), cpu };
        let event = Live.open(&Attr::software(TASK_CLOCK, None, Start::Later), place, None).unwrap();
        event.enable().unwrap();
        event
    })
}

/// Returns the nanoseconds that a `task-clock` event has counted.
fn elapsed(clock: &LiveEvent) -> u64 {
    let mut words = [0; 4];
    assert_eq!(clock.read(&mut words).unwrap(), words.len());
    words[3]
}

/// Returns the CPU time of a cgroup so far in `cpu.stat`, in nanoseconds.
fn usage(cgroup: &TestCgroup) -> u64 {
    let stat = read_text(&cgroup.dir().join("cpu.stat")).unwrap();
    let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap();
    usage.parse::<u64>().unwrap() * 1000
}
