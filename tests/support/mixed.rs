//! Loads of all kinds at the same time.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use perf_exporter::host::{Facts, Roots};

use super::cgroup::TestCgroup;
use super::load::{Churn, PingPong, Storm};
use super::worker::{Work, Worker};

/// Amount of each kind of work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts {
    /// Number of bursts. In each burst two cgroups on the first CPU send a byte [`Amounts::BURST`] times back and forth, and then rest.
    pub(crate) bursts: u64,
    /// CPU time in milliseconds that a process in its own cgroup uses.
    pub(crate) burn: u64,
    /// Number of processes that exit at once; a multiple of four.
    pub(crate) processes: u64,
    /// Number of cgroups that are created, used by one process, and removed.
    pub(crate) cgroups: u64,
}

impl Amounts {
    /// Round trips of one burst. They fit into the smallest ring, and the rests are long enough for a reader that waits for a CPU and runs
    /// unoptimized code.
    const BURST: u64 = 500;
    const REST: Duration = Duration::from_millis(100);
}

/// All workers of the load, each in its own cgroup. They wait for an order.
#[derive(Debug)]
pub(crate) struct Mixed {
    amounts: Amounts,
    switching: PingPong,
    hog: Worker,
    storm: Storm,
    churn: Churn,
    /// One pair of processes for each CPU.
    at_the_end: Vec<(usize, PingPong)>,
    // Declared after the workers, because fields are dropped in order of declaration.
    cgroups: [TestCgroup; 5],
}

impl Mixed {
    /// Name of the processes that exit at once.
    pub(crate) const SHORT: &str = "squall";
    /// Name of the processes in the short-lived cgroups.
    pub(crate) const BRIEF: &str = "brief";

    /// Starts the workers in cgroups below `top`.
    pub(crate) fn below(top: &TestCgroup, amounts: Amounts) -> Self {
        let cgroups = ["ping", "pong", "hog", "storm", "churn"].map(|name| top.below(name));
        let [ping, pong, alone, stormy, churned] = &cgroups;
        let hog = Worker::start("hog");
        alone.take(hog.pid());
        let storm = Storm::of(Self::SHORT);
        stormy.take(storm.pid());
        let online = Facts::read(&Roots::default()).online;
        Self {
            amounts,
            switching: PingPong::between(ping, pong),
            hog,
            storm,
            churn: Churn::below(churned, Self::BRIEF),
            at_the_end: online.iter().map(|cpu| (cpu as usize, PingPong::between(ping, pong))).collect(),
            cgroups,
        }
    }

    /// Returns the path of the cgroup in which cgroups are created and removed.
    pub(crate) fn churned(&self) -> &str {
        self.cgroups[4].path()
    }

    /// Runs every load once, and calls `each_second` about every second until all are done.
    pub(crate) fn run(&mut self, mut each_second: impl FnMut()) {
        let Self { amounts, switching, hog, storm, churn, .. } = self;
        hog.begin(&Work::Burn(amounts.burn).to_string());
        storm.begin(amounts.processes);
        churn.begin(amounts.cgroups);
        thread::scope(|scope| {
            let (done, finished) = channel();
            scope.spawn(move || {
                for _ in 0..amounts.bursts {
                    switching.run(0, Amounts::BURST);
                    thread::sleep(Amounts::REST);
                }
                hog.finish();
                storm.finish();
                churn.finish();
                done.send(())
            });
            while finished.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                each_second();
            }
        });
    }

    /// Calls `act` while every CPU switches between cgroups continuously, so that each CPU has counted very little since its last record.
    pub(crate) fn while_switching<T>(&mut self, act: impl FnOnce() -> T) -> T {
        for (cpu, couple) in &mut self.at_the_end {
            couple.begin(*cpu, 4 * Amounts::BURST);
        }
        thread::sleep(Duration::from_millis(5));
        let result = act();
        for (_, couple) in &mut self.at_the_end {
            couple.finish();
        }
        result
    }
}
