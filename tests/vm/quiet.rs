//! A quiet hour: ordinary services, and the built-in comparison of their figures with their own past. The clock of the guest follows the
//! executed instructions, and idle time is skipped, so the hour takes some minutes and nothing else runs in it:
//! `VM_LIMIT=4500 tests/vm/run.sh --arch arm64 -- --ignored quiet:: --nocapture`.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use perf_exporter::clock::Clock;

use crate::alone;
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, lacks};

/// The built-in anomalies, with the figures that the built-in configuration does not measure. Thread names and processes, which the
/// emulated machine would spend most of its time on, are left out.
const CONFIGURATION: &str = "\
limits: {cpu: 100%}
counters:
  core: {events: [cycles, instructions], per: [cgroup]}
  os: {events: [task-clock, context-switches, page-faults, major-faults], per: [cgroup]}
syscalls: {per: [cgroup]}
";

/// Time with the same work.
const HOUR: Duration = Duration::from_secs(3600);

/// A service that does its work in a rhythm.
struct Rhythm {
    worker: Worker,
    _cgroup: TestCgroup,
    /// The work, and how often it is done.
    works: Vec<(Work, Duration)>,
}

impl Rhythm {
    fn new(name: &'static str, works: &[(Work, Duration)]) -> Self {
        let (worker, cgroup) = (Worker::start(name), TestCgroup::new(name));
        cgroup.take(worker.pid());
        Self { worker, _cgroup: cgroup, works: works.to_vec() }
    }

    /// Does the work for this time.
    fn play(&mut self, length: Duration) {
        let clock = Clock::system();
        let begin = clock.monotonic();
        let mut due: Vec<Duration> = self.works.iter().map(|(_, period)| *period).collect();
        while let Some((next, place)) = due.iter().enumerate().map(|(place, due)| (*due, place)).min()
            && next < length
        {
            thread::sleep(next.saturating_sub(clock.monotonic().since(begin)));
            let (work, period) = self.works[place];
            self.worker.does(work);
            due[place] += period;
        }
    }
}

/// Returns the anomalies since the start, by entry.
fn anomalies(scrape: &Exposition) -> BTreeMap<String, f64> {
    scrape.by("perf_anomalies_total", "kind").map(|(kind, total)| (kind.to_owned(), total)).collect()
}

#[test]
#[ignore = "an hour of the guest, which takes minutes"]
fn in_a_quiet_hour_figures_are_judged_and_none_is_an_anomaly() {
    if lacks(Feature::Pmu) {
        return;
    }
    let _alone = alone();
    let ms = Duration::from_millis;
    let mut services = [
        Rhythm::new(
            "web",
            &[(Work::Burn(30), ms(100)), (Work::Getppid(500), ms(250)), (Work::Naps(20), ms(500))],
        ),
        Rhythm::new("store", &[(Work::Burn(4), ms(100)), (Work::Faults(256), ms(60_000))]),
        Rhythm::new("jobs", &[(Work::Burn(1500), ms(300_000)), (Work::Children(20), ms(60_000))]),
    ];
    let service = Service::start(CONFIGURATION);
    let play = |services: &mut [Rhythm], length: Duration| {
        thread::scope(|scope| {
            for rhythm in services.iter_mut() {
                scope.spawn(|| rhythm.play(length));
            }
        });
    };
    for part in 1..=6 {
        play(&mut services, HOUR / 6);
        let scrape = service.metrics();
        eprintln!("after {} minutes: {:?}", part * 10, anomalies(&scrape));
    }
    let scrape = service.metrics();
    let judged = scrape.sum("perf_anomaly_cgroups", &[("kind", "cpi"), ("result", "normal")]);
    assert!(anomalies(&scrape).values().all(|total| *total == 0.0), "{:?}", anomalies(&scrape));
    assert!(judged >= 1.0, "cycles per instruction were judged: {scrape:?}");
}
