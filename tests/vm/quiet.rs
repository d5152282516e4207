//! A quiet hour: ordinary services, and the built-in comparison of their figures with their own past. The clock of the guest follows the
//! executed instructions, and idle time is skipped, so the hour takes some minutes and nothing else runs in it.

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

/// Time in which an anomaly is found.
const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// A service that does its work in a rhythm.
struct Rhythm {
    worker: Worker,
    cgroup: TestCgroup,
    /// The work, and how often it is done.
    works: Vec<(Work, Duration)>,
}

impl Rhythm {
    fn new(name: &'static str, works: &[(Work, Duration)]) -> Self {
        let (worker, cgroup) = (Worker::start(name), TestCgroup::new(name));
        cgroup.take(worker.pid());
        Self { worker, cgroup, works: works.to_vec() }
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
fn a_quiet_hour_raises_no_anomaly_and_forks_and_a_neighbor_after_it_do() {
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

    let mut neighbors: Vec<Rhythm> =
        (0..6).map(|_| Rhythm::new("neighbor", &[(Work::Burn(1000), ms(1000))])).collect();
    let forks = Rhythm::new("forks", &[(Work::Children(60), ms(1000))]);
    // A cgroup without a past is compared after ten minutes. The one of the jobs has a past.
    services[2].cgroup.take(forks.worker.pid());
    thread::scope(|scope| {
        let (mut all, mut forks) = (neighbors.iter_mut().collect::<Vec<_>>(), forks);
        all.extend(services.iter_mut());
        for rhythm in all {
            scope.spawn(|| rhythm.play(FIVE_MINUTES));
        }
        scope.spawn(move || forks.play(FIVE_MINUTES));
    });
    let found = anomalies(&service.metrics());
    eprintln!("with a neighbor and forks: {found:?}");
    assert!(found["forks"] >= 1.0, "{found:?}");
    assert!(found["runqueue_latency"] >= 1.0, "{found:?}");
}
