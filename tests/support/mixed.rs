//! Loads of every kind at once.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use perf_exporter::host::{Facts, Roots};

use super::cgroup::TestCgroup;
use super::load::{Churn, PingPong, Storm};
use super::worker::{Work, Worker};

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts {
    /// How often two cgroups on the first CPU send a byte [`Amounts::BURST`] times to and fro, with a rest after it.
    pub(crate) bursts: u64,
    /// Milliseconds of CPU time that a process in a cgroup of its own uses.
    pub(crate) burn: u64,
    /// Processes that end at once; a multiple of four.
    pub(crate) processes: u64,
    /// Cgroups that are made, used by one process, and removed.
    pub(crate) cgroups: u64,
}

impl Amounts {
    /// Few enough for the smallest ring, and far apart enough for a reader that has to wait for a CPU, and does all
    /// that an unoptimised program does.
    const BURST: u64 = 500;
    const REST: Duration = Duration::from_millis(100);
}

/// Everybody who makes the load, each in a cgroup. They wait until they are told to begin.
#[derive(Debug)]
pub(crate) struct Mixed {
    amounts: Amounts,
    switching: PingPong,
    hog: Worker,
    storm: Storm,
    churn: Churn,
    /// One couple for each CPU.
    at_the_end: Vec<(usize, PingPong)>,
    // Behind those who are in them: they are dropped first.
    cgroups: [TestCgroup; 5],
}

impl Mixed {
    /// The name of the processes that end at once.
    pub(crate) const SHORT: &str = "squall";
    /// The name of those in cgroups that are made for them.
    pub(crate) const BRIEF: &str = "brief";

    /// In cgroups below `top`.
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

    /// Where cgroups are made and removed.
    pub(crate) fn churned(&self) -> &str {
        self.cgroups[4].path()
    }

    /// Has them do everything once, and calls back about every second until it is done.
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

    /// Calls back while every CPU goes from one cgroup to another all the time, and so has counted hardly anything
    /// since its last record.
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
