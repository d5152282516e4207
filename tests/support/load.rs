//! Loads that are hard on whoever counts by cgroup or process: many switches, many short processes, many short cgroups.
//!
//! Workers do them, so each load runs wherever a worker does.

use std::fs::{self, File};
use std::io::{self, Read, Write};
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

/// How many processes of a storm run at a time.
const PARALLEL: u64 = 4;

/// Two processes on one CPU, each in a cgroup of its own, that send one byte to and fro: two switches for a round trip,
/// and hardly anything else.
#[derive(Debug)]
pub(crate) struct PingPong {
    ping: Worker,
    pong: Worker,
    pipes: tempfile::TempDir,
}

/// What a [`PingPong`] took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switches {
    /// How many there were.
    pub(crate) count: u64,
    /// By the clock on the wall.
    pub(crate) elapsed: Duration,
    /// CPU time of the two. On a CPU of their own it is all that elapsed; on a shared one it is what switches cost, for
    /// what the kernel does at a switch is on the account of the process that comes next.
    pub(crate) cpu: Duration,
}

impl Switches {
    /// CPU time for one, in nanoseconds.
    pub(crate) fn nanoseconds(self) -> f64 {
        self.cpu.as_nanos() as f64 / self.count as f64
    }
}

impl PingPong {
    /// Starts the two, called `ping` and `pong`.
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

    /// Has them do so many round trips on a CPU.
    pub(crate) fn run(&mut self, cpu: usize, trips: u64) -> Switches {
        self.begin(cpu, trips);
        self.finish()
    }

    /// Has them begin with it.
    pub(crate) fn begin(&mut self, cpu: usize, trips: u64) {
        self.begin_on([cpu, cpu], trips);
    }

    /// Has each begin with it on a CPU of its own.
    pub(crate) fn begin_on(&mut self, [ping, pong]: [usize; 2], trips: u64) {
        let pipes = self.pipes.path().display();
        self.ping.begin(&format!("ping {ping} {trips} {pipes}"));
        self.pong.begin(&format!("pong {pong} {trips} {pipes}"));
    }

    /// Waits until they have done it.
    pub(crate) fn finish(&mut self) -> Switches {
        let [ping, pong] = [&mut self.ping, &mut self.pong].map(Worker::finish);
        let &[trips, elapsed, cpu] = &ping[..] else { panic!("ping reports {ping:?}") };
        Switches {
            count: 2 * trips,
            elapsed: Duration::from_nanos(elapsed),
            cpu: Duration::from_nanos(cpu + pong[2]),
        }
    }
}

/// Starts processes that end at once, some at a time.
#[derive(Debug)]
pub(crate) struct Storm {
    worker: Worker,
    program: PathBuf,
}

impl Storm {
    /// Of processes that are called `comm`.
    pub(crate) fn of(comm: &str) -> Self {
        let worker = Worker::start("stormy");
        let program = worker.program(comm);
        Self { worker, program }
    }

    /// Who starts them.
    pub(crate) fn pid(&self) -> u32 {
        self.worker.pid()
    }

    /// Has it begin with so many processes; a multiple of four.
    pub(crate) fn begin(&mut self, processes: u64) {
        assert!(processes.is_multiple_of(PARALLEL), "{processes} processes, {PARALLEL} at a time");
        self.worker.begin(&format!("storm {processes} {}", self.program.display()));
    }

    /// Waits until all of them have ended, and gives the page faults that the kernel put on their parent's account.
    pub(crate) fn finish(&mut self) -> u64 {
        self.worker.finish()[0]
    }
}

/// Makes cgroups that live as long as one short process.
#[derive(Debug)]
pub(crate) struct Churn {
    worker: Worker,
    program: PathBuf,
    dir: PathBuf,
}

impl Churn {
    /// Below a cgroup, of processes that are called `comm`.
    pub(crate) fn below(top: &TestCgroup, comm: &str) -> Self {
        let worker = Worker::start("churning");
        let program = worker.program(comm);
        top.take(worker.pid());
        Self { worker, program, dir: top.dir().to_owned() }
    }

    /// Has it begin to make and remove so many, `0` and up.
    pub(crate) fn begin(&mut self, cgroups: u64) {
        self.order("churn", cgroups);
    }

    /// Runs a short process in so many that are there, `0` and up.
    pub(crate) fn visit(&mut self, cgroups: u64) {
        self.order("visit", cgroups);
        self.finish();
    }

    fn order(&mut self, name: &str, cgroups: u64) {
        let (program, dir) = (self.program.display(), self.dir.display());
        self.worker.begin(&format!("{name} {cgroups} {program} {dir}"));
    }

    /// Waits until all are gone again.
    pub(crate) fn finish(&mut self) {
        self.worker.finish();
    }
}

/// The side of the worker: what it was told, and the figures that it replies. `None` if nobody knows that order.
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
        _ => calls::run(order, arguments).then(Vec::new),
    }
}

pub(super) fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Gives the round trips, and how long they took: elapsed and CPU time of this thread, in nanoseconds. The thread stays
/// on the CPU.
fn ping_pong(cpu: &str, trips: &str, pipes: &Path, first: bool) -> Vec<u64> {
    let mut only = CpuSet::new();
    only.set(number(cpu).try_into().unwrap());
    sched_setaffinity(None, &only).unwrap();
    let trips = number(trips);
    // To open a pipe is to wait for the other end, so both open them in the same order.
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
    // Both have come to this CPU once the first byte is here.
    from.read_exact(&mut byte).unwrap();
    let (start, used) = (now(), cpu_time());
    for _ in 0..trips {
        to.write_all(&byte).unwrap();
        from.read_exact(&mut byte).unwrap();
    }
    let figures = vec![trips, nanoseconds(now() - start), nanoseconds(cpu_time() - used)];
    if !first {
        // The answer to the byte that came before the first round trip.
        to.write_all(&byte).unwrap();
    }
    figures
}

/// Gives the minor page faults of all processes together.
fn storm(processes: u64, program: &Path) -> u64 {
    let before = faults_of_children();
    thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| (0..processes / PARALLEL).for_each(|_| run_briefly(program)));
        }
    });
    faults_of_children() - before
}

/// Minor page faults of the children of this process that ended: the eleventh field of `/proc/PID/stat`, which is what
/// `getrusage` says of children.
fn faults_of_children() -> u64 {
    let stat = read_text(Path::new("/proc/self/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    number(after_name.split(' ').nth(8).unwrap())
}

fn run_briefly(program: &Path) {
    let mut command = nothing(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().unwrap();
    assert!(status.success(), "{} ended with {status}", program.display());
}

/// Goes into each cgroup itself to start a process there, for what a process starts is where it is.
fn churn(cgroups: u64, program: &Path, dir: &Path, make: bool) {
    for name in 0..cgroups {
        let cgroup = dir.join(name.to_string());
        if make {
            fs::create_dir(&cgroup).unwrap();
        }
        enter(&cgroup).unwrap();
        run_briefly(program);
        // The stream gives what a CPU counted to the cgroup that is there at the next switch to another. This process
        // must not take the child's counts along because it leaves before there was one.
        thread::sleep(Duration::from_micros(100));
        enter(dir).unwrap();
        if make {
            eventually("a cgroup is empty", || fs::remove_dir(&cgroup).ok());
        }
    }
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

/// How often CPUs switched from the threads of a process to others.
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
        assert!(there("0"), "one that was only visited stays");
        drop(kept);
        churn.begin(5);
        churn.finish();
        assert!((0..5).all(|name| !there(&name.to_string())));
    }
}
