//! Loads that are demanding for counting by cgroup or process: many context switches, many short processes, many short-lived cgroups.
//!
//! Workers run them, so a load runs in any place where a worker can run.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use perf_exporter::host::{list, read_text};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::calls;
use super::cgroup::TestCgroup;
use super::eventually;
use super::worker::{Worker, cpu_time, nothing};

/// Number of processes of a storm that run at a time.
const PARALLEL: u64 = 4;

/// Two processes on one CPU, each in its own cgroup, that send one byte back and forth. Each round trip is two context switches and almost
/// nothing else.
#[derive(Debug)]
pub(crate) struct PingPong {
    ping: Worker,
    pong: Worker,
    pipes: tempfile::TempDir,
}

/// Result of a [`PingPong`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switches {
    /// Number of context switches.
    pub(crate) count: u64,
    /// Elapsed wall-clock time.
    pub(crate) elapsed: Duration,
    /// CPU time of both processes. On an otherwise idle CPU it equals the elapsed time. On a shared CPU it is the cost of the switches: the
    /// kernel charges the work of a switch to the incoming task.
    pub(crate) cpu: Duration,
}

impl Switches {
    /// Returns the CPU time of one switch, in nanoseconds.
    pub(crate) fn nanoseconds(self) -> f64 {
        self.cpu.as_nanos() as f64 / self.count as f64
    }
}

impl PingPong {
    /// Starts the two processes, named `ping` and `pong`.
    pub(crate) fn between(one: &TestCgroup, other: &TestCgroup) -> Self {
        let (ping, pong) = (Worker::start("ping"), Worker::start("pong"));
        one.take(ping.pid());
        other.take(pong.pid());
        let pipes = tempfile::tempdir().unwrap();
        for name in ["there", "back"] {
            mkfifoat(CWD, pipes.path().join(name), Mode::RUSR | Mode::WUSR).unwrap();
        }
        Self { ping, pong, pipes }
    }

    /// Runs this many round trips on a CPU.
    pub(crate) fn run(&mut self, cpu: usize, trips: u64) -> Switches {
        self.begin(cpu, trips);
        self.finish()
    }

    /// Begins this many round trips on a CPU.
    pub(crate) fn begin(&mut self, cpu: usize, trips: u64) {
        self.begin_on([cpu, cpu], trips);
    }

    /// Begins this many round trips, each process on its own CPU.
    pub(crate) fn begin_on(&mut self, [ping, pong]: [usize; 2], trips: u64) {
        let pipes = self.pipes.path().display();
        self.ping.begin(&format!("ping {ping} {trips} {pipes}"));
        self.pong.begin(&format!("pong {pong} {trips} {pipes}"));
    }

    /// Waits until the round trips are done.
    pub(crate) fn finish(&mut self) -> Switches {
        let [ping, pong] = [&mut self.ping, &mut self.pong].map(Worker::finish);
        let &[trips, elapsed, cpu] = &ping[..] else { panic!("unexpected report of ping: {ping:?}") };
        Switches {
            count: 2 * trips,
            elapsed: Duration::from_nanos(elapsed),
            cpu: Duration::from_nanos(cpu + pong[2]),
        }
    }
}

/// Starts processes that exit at once, some at a time.
#[derive(Debug)]
pub(crate) struct Storm {
    worker: Worker,
    program: PathBuf,
}

impl Storm {
    /// Starts a worker for processes named `comm`.
    pub(crate) fn of(comm: &str) -> Self {
        let worker = Worker::start("stormy");
        let program = worker.program(comm);
        Self { worker, program }
    }

    /// Returns the pid of the parent.
    pub(crate) fn pid(&self) -> u32 {
        self.worker.pid()
    }

    /// Begins to start this many processes; a multiple of four.
    pub(crate) fn begin(&mut self, processes: u64) {
        assert!(processes.is_multiple_of(PARALLEL), "{processes} is not a multiple of {PARALLEL}");
        self.worker.begin(&format!("storm {processes} {}", self.program.display()));
    }

    /// Waits until all of them have exited. Returns the page faults that the kernel added to their parent's account of children.
    pub(crate) fn finish(&mut self) -> u64 {
        self.worker.finish()[0]
    }
}

/// Creates cgroups that exist as long as one short process.
#[derive(Debug)]
pub(crate) struct Churn {
    worker: Worker,
    program: PathBuf,
    dir: PathBuf,
}

impl Churn {
    /// Starts a worker for cgroups below `top` with processes named `comm`.
    pub(crate) fn below(top: &TestCgroup, comm: &str) -> Self {
        let worker = Worker::start("churning");
        let program = worker.program(comm);
        top.take(worker.pid());
        Self { worker, program, dir: top.dir().to_owned() }
    }

    /// Begins to create and remove this many cgroups, named `0` and up.
    pub(crate) fn begin(&mut self, cgroups: u64) {
        self.order("churn", cgroups);
    }

    /// Runs a short process in each of this many existing cgroups, named `0` and up.
    pub(crate) fn visit(&mut self, cgroups: u64) {
        self.order("visit", cgroups);
        self.finish();
    }

    fn order(&mut self, name: &str, cgroups: u64) {
        let (program, dir) = (self.program.display(), self.dir.display());
        self.worker.begin(&format!("{name} {cgroups} {program} {dir}"));
    }

    /// Waits until all cgroups are removed again.
    pub(crate) fn finish(&mut self) {
        self.worker.finish();
    }
}

/// Runs an order in the worker and returns the figures that it reports. Returns `None` if the order is unknown.
pub(super) fn run(order: &str, arguments: &[&str]) -> Option<Vec<u64>> {
    match (order, arguments) {
        ("ping", [cpu, trips, pipes]) => Some(ping_pong(cpu, trips, Path::new(pipes), true)),
        ("pong", [cpu, trips, pipes]) => Some(ping_pong(cpu, trips, Path::new(pipes), false)),
        ("storm", [processes, program]) => Some(vec![storm(number(processes), Path::new(program))]),
        ("churn", [cgroups, program, dir]) => {
            churn(number(cgroups), Path::new(program), Path::new(dir), true);
            Some(Vec::new())
        }
        ("visit", [cgroups, program, dir]) => {
            churn(number(cgroups), Path::new(program), Path::new(dir), false);
            Some(Vec::new())
        }
        ("write_together", [threads, times, file]) => {
            write_together(number(threads), number(times), Path::new(file));
            Some(Vec::new())
        }
        _ => calls::run(order, arguments).then(Vec::new),
    }
}

pub(super) fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Makes the round trips. Returns their elapsed time and the CPU time of this thread, in nanoseconds. The thread stays on the CPU.
fn ping_pong(cpu: &str, trips: &str, pipes: &Path, first: bool) -> Vec<u64> {
    let mut only = CpuSet::new();
    only.set(number(cpu).try_into().unwrap());
    sched_setaffinity(None, &only).unwrap();
    let trips = number(trips);
    // Opening a pipe blocks until the other end is opened, so both processes open the pipes in the same order.
    let write = |name: &str| File::options().write(true).open(pipes.join(name)).unwrap();
    let read = |name: &str| File::open(pipes.join(name)).unwrap();
    let (mut to, mut from) = if first {
        let to = write("there");
        (to, read("back"))
    } else {
        let from = read("there");
        (write("back"), from)
    };
    let mut byte = [0];
    if first {
        to.write_all(&byte).unwrap();
    }
    // After the first byte both processes run on this CPU.
    from.read_exact(&mut byte).unwrap();
    let (start, used) = (now(), cpu_time());
    for _ in 0..trips {
        to.write_all(&byte).unwrap();
        from.read_exact(&mut byte).unwrap();
    }
    let figures = vec![trips, nanoseconds(now() - start), nanoseconds(cpu_time() - used)];
    if !first {
        // Answers the byte that was sent before the first round trip.
        to.write_all(&byte).unwrap();
    }
    figures
}

/// Returns the minor page faults of all processes together.
fn storm(processes: u64, program: &Path) -> u64 {
    let before = faults_of_children();
    thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| (0..processes / PARALLEL).for_each(|_| run_briefly(program)));
        }
    });
    faults_of_children() - before
}

/// Returns the minor page faults of the reaped children of this process: field 11 of `/proc/PID/stat`, the same value as in `getrusage`.
fn faults_of_children() -> u64 {
    let stat = read_text(Path::new("/proc/self/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    number(after_name.split(' ').nth(8).unwrap())
}

fn run_briefly(program: &Path) {
    let mut command = nothing(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().unwrap();
    assert!(status.success(), "{} exited with {status}", program.display());
}

/// Enters each cgroup itself to start a process there, because a child starts in the cgroup of its parent.
fn churn(cgroups: u64, program: &Path, dir: &Path, make: bool) {
    for name in 0..cgroups {
        let cgroup = dir.join(name.to_string());
        if make {
            fs::create_dir(&cgroup).unwrap();
        }
        enter(&cgroup).unwrap();
        run_briefly(program);
        // The stream attributes counts of a CPU to the cgroup that is current at the next switch between cgroups. This process must not
        // carry the counts of the child along by leaving before such a switch.
        thread::sleep(Duration::from_micros(100));
        enter(dir).unwrap();
        if make {
            eventually("a cgroup is empty when it is removed", || fs::remove_dir(&cgroup).ok());
        }
    }
}

/// Bytes of one write by a thread of [`write_together`]. The kernel holds the lock of the file for some tenths of a millisecond.
const AT_ONCE: usize = 1 << 20;

/// Lets threads write to the same part of a file, this many times each. The kernel locks the file for each write, so the threads wait for
/// one another.
fn write_together(threads: u64, times: u64, path: &Path) {
    let (file, bytes) = (File::create(path).unwrap(), vec![1; AT_ONCE]);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..times).for_each(|_| file.write_all_at(&bytes, 0).unwrap()));
        }
    });
}

/// Moves this process into a cgroup.
fn enter(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap()
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap()
}

/// Returns the number of context switches away from the threads of a process.
pub(crate) fn switches_from(pid: u32) -> u64 {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let of_thread = |thread: &String| {
        let status = read_text(&tasks.join(thread).join("status")).unwrap();
        let lines = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
        lines.map(|(_, switches)| number(switches.trim())).sum::<u64>()
    };
    list(&tasks).unwrap().iter().map(of_thread).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{Feature, lacks};

    #[test]
    fn each_of_two_that_send_a_byte_to_and_fro_is_switched_once_for_a_round_trip() {
        if lacks(Feature::Cgroup) {
            return;
        }
        let (one, other) = (TestCgroup::new("ping"), TestCgroup::new("pong"));
        let mut switching = PingPong::between(&one, &other);
        let before = [&switching.ping, &switching.pong].map(|worker| switches_from(worker.pid()));
        let switches = switching.run(0, 1000);
        let after = [&switching.ping, &switching.pong].map(|worker| switches_from(worker.pid()));
        assert_eq!(switches.count, 2000);
        assert!(switches.elapsed > Duration::ZERO && switches.cpu > Duration::ZERO, "{switches:?}");
        for (before, after) in before.into_iter().zip(after) {
            assert!(after - before >= 1000, "{before} then {after}");
        }
    }

    #[test]
    fn a_storm_is_as_many_processes_as_it_should_be() {
        let mut storm = Storm::of("gust");
        let mut faults = |processes: u64| {
            storm.begin(processes);
            storm.finish() as f64
        };
        let (few, many) = (faults(8), faults(32));
        assert!(
            few > 8.0 && (few / 8.0 - many / 32.0).abs() < few / 8.0 * 0.1,
            "{few} and {many} page faults"
        );
    }

    #[test]
    fn cgroups_that_were_made_for_a_moment_are_gone() {
        if lacks(Feature::Cgroup) {
            return;
        }
        let top = TestCgroup::new("churned");
        let there = |name: &str| list(top.dir()).unwrap().contains(&name.to_owned());
        let kept = top.below("0");
        let mut churn = Churn::below(&top, "brief");
        churn.visit(1);
        assert!(there("0"), "a cgroup that was only visited is not removed");
        drop(kept);
        churn.begin(5);
        churn.finish();
        assert!((0..5).all(|name| !there(&name.to_string())));
    }
}
