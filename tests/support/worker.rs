//! A child process that does known amounts of work on order and waits in between. A test can attach to it or read counters during a wait,
//! without missing work or counting other work.
//!
//! It is the running test binary, started with [`does_what_it_is_told`] as the only test, because guests contain no other program. A
//! benchmark has no test harness and calls [`is_child`] first.

use std::fmt;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::calls::Calls;
use super::lines::Lines;
use super::load;

/// Name of the test that runs as a worker.
const WORKER: &str = "does_what_it_is_told";

/// A filter that matches no test.
const NOTHING: &str = "nothing";

/// Work that a worker can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Writes to this many pages of memory for the first time; a multiple of [`Work::PAGES_AT_ONCE`].
    Faults(u64),
    /// Calls `getppid` this many times, a system call that no other part of the process makes.
    Getppid(u64),
    /// Yields the CPU this many times.
    Naps(u64),
    /// Starts this many child processes, one after the other.
    Children(u64),
    /// Runs this many iterations of a loop without calls.
    Spin(u64),
    /// Uses this many milliseconds of CPU time.
    Burn(u64),
    /// Uses the same time, three quarters of it in a function `three_quarters` and one in `one_quarter`.
    Quarters(u64),
}

impl Work {
    /// Large enough that the allocator maps each block separately.
    pub(crate) const PAGES_AT_ONCE: u64 = 256;

    fn parse(name: &str, amount: u64) -> Option<Self> {
        let known =
            [Self::Faults, Self::Getppid, Self::Naps, Self::Children, Self::Spin, Self::Burn, Self::Quarters];
        known.into_iter().map(|work| work(amount)).find(|work| work.parts().0 == name)
    }

    fn parts(self) -> (&'static str, u64) {
        match self {
            Self::Faults(amount) => ("faults", amount),
            Self::Getppid(amount) => ("getppid", amount),
            Self::Naps(amount) => ("naps", amount),
            Self::Children(amount) => ("children", amount),
            Self::Spin(amount) => ("spin", amount),
            Self::Burn(amount) => ("burn", amount),
            Self::Quarters(amount) => ("quarters", amount),
        }
    }

    fn run(self) {
        match self {
            Self::Faults(pages) => (0..pages / Self::PAGES_AT_ONCE).for_each(|_| touch_new_pages()),
            Self::Getppid(times) => (0..times).for_each(|_| {
                black_box(rustix::process::getppid());
            }),
            Self::Naps(times) => (0..times).for_each(|_| thread::sleep(Duration::from_micros(20))),
            Self::Children(times) => {
                (0..times).for_each(|_| assert!(Command::new("true").status().unwrap().success()));
            }
            Self::Spin(times) => spin(times),
            Self::Burn(milliseconds) => burn(milliseconds, || spin(10_000)),
            Self::Quarters(milliseconds) => burn(milliseconds, || {
                three_quarters();
                one_quarter();
            }),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, amount) = self.parts();
        write!(f, "{name} {amount}")
    }
}

/// Repeats `step` until this much CPU time is used.
fn burn(milliseconds: u64, step: impl Fn()) {
    let end = cpu_time() + Duration::from_millis(milliseconds);
    while cpu_time() < end {
        step();
    }
}

#[inline(never)]
fn three_quarters() {
    spin(black_box(9_000));
}

#[inline(never)]
fn one_quarter() {
    spin(black_box(3_000));
}

fn spin(times: u64) {
    let mut left = times;
    while black_box(left) > 0 {
        left -= 1;
    }
}

/// Returns the CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn touch_new_pages() {
    let page = rustix::param::page_size();
    // Leaked, because freed memory would be reused without a page fault.
    let memory = vec![0u8; page * Work::PAGES_AT_ONCE as usize].leak();
    memory.iter_mut().step_by(page).for_each(|byte| *byte = 1);
    black_box(memory);
}

/// The child. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    replies: Lines,
    dir: tempfile::TempDir,
}

impl Worker {
    /// Starts a worker named `comm`.
    pub(crate) fn start(comm: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut child = command(&program(dir.path(), comm))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take();
        let replies = Lines::of(child.stderr.take().unwrap());
        let worker = Self { child, orders, replies, dir };
        worker.expect("ready");
        worker
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Orders work and waits until it is done. The second thread of the process does it; the first thread only waits, as in every test
    /// harness.
    pub(crate) fn does(&mut self, work: Work) {
        self.order(&work.to_string(), "done");
    }

    /// Orders this many calls, and waits until they are done.
    #[allow(dead_code, reason = "not every target makes system calls by workers")]
    pub(crate) fn calls(&mut self, call: Calls<'_>, times: u64) {
        self.order(&call.times(times), "done");
    }

    /// Starts a thread in the worker, which waits for work.
    pub(crate) fn starts_thread(&mut self) {
        self.order("thread", "done");
    }

    /// Orders work of the thread that was started last, and waits until it is done.
    pub(crate) fn does_in_thread(&mut self, work: Work) {
        self.order(&format!("thread {work}"), "done");
    }

    /// Orders the worker to execute a program named `comm` that continues as the same worker.
    pub(crate) fn executes(&mut self, comm: &str) {
        let program = self.program(comm);
        self.order(&format!("execute {}", program.display()), "ready");
    }

    /// Orders work and an exit, and waits for both.
    pub(crate) fn ends_after(mut self, work: Work) {
        self.does(work);
        self.orders = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "a worker exited with {status}");
    }

    /// Sends an order without waiting. [`Worker::finish`] waits for it.
    pub(crate) fn begin(&mut self, order: &str) {
        let orders = self.orders.as_mut().unwrap();
        writeln!(orders, "{order}")
            .unwrap_or_else(|error| panic!("the order {order:?} could not be sent to a worker: {error}"));
    }

    /// Waits until the order is done, and returns the figures that the worker reports.
    pub(crate) fn finish(&mut self) -> Vec<u64> {
        let said = self.replies.next().expect("a worker replies to an order");
        let figures =
            said.strip_prefix("done").unwrap_or_else(|| panic!("unexpected reply of a worker: {said:?}"));
        figures.split_ascii_whitespace().map(|figure| figure.parse().unwrap()).collect()
    }

    /// Returns a path of the program; a process that executes it is named `comm`. The path exists as long as the worker.
    pub(crate) fn program(&self, comm: &str) -> PathBuf {
        program(self.dir.path(), comm)
    }

    fn order(&mut self, order: &str, reply: &str) {
        self.begin(order);
        self.expect(reply);
    }

    fn expect(&self, reply: &str) {
        let said = self.replies.next();
        assert_eq!(said.as_deref(), Some(reply), "unexpected reply of a worker");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Links this test binary under another name, because the kernel names a process after the executed path.
fn program(dir: &Path, comm: &str) -> PathBuf {
    let path = dir.join(comm);
    symlink(std::env::current_exe().unwrap(), &path).unwrap();
    path
}

/// Returns the command that runs the program as a worker.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments());
    command
}

/// Returns the arguments with which the test binary is a worker that takes its orders from stdin.
pub(crate) fn arguments() -> [String; 4] {
    let (_crate, module) = module_path!().split_once("::").unwrap();
    ["--ignored".into(), "--exact".into(), "--nocapture".into(), format!("{module}::{WORKER}")]
}

/// Returns the command that runs the program as a process that exits at once.
pub(super) fn nothing(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", NOTHING]);
    command
}

/// Reports whether this process was started as a worker or as a process that exits at once, and has finished. For programs without a test
/// harness, which would select the test.
#[allow(dead_code, reason = "benchmarks call it")]
pub(crate) fn is_child() -> bool {
    match std::env::args().next_back() {
        Some(last) if last.ends_with(WORKER) => serve(),
        Some(last) if last == NOTHING => {}
        _ => return false,
    }
    true
}

#[test]
#[ignore = "the child process of other tests"]
fn does_what_it_is_told() {
    serve();
}

/// Runs the worker. Orders arrive on stdin; replies go to stderr, because the test harness writes to stdout.
fn serve() {
    let mut threads: Vec<(Sender<Work>, Receiver<()>)> = Vec::new();
    // Without huge pages, one page is one fault.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    reply("ready");
    for order in io::stdin().lock().lines() {
        let order = order.unwrap();
        match order.split(' ').collect::<Vec<_>>()[..] {
            ["thread"] => threads.push(start_thread()),
            ["thread", name, amount] => {
                let (work, done) = threads.last().unwrap();
                work.send(Work::parse(name, amount.parse().unwrap()).unwrap()).unwrap();
                done.recv().unwrap();
            }
            ["execute", program] => panic!("{program}: {}", command(Path::new(program)).exec()),
            [name, amount] => Work::parse(name, amount.parse().unwrap()).unwrap().run(),
            [name, ref arguments @ ..] => {
                let figures = load::run(name, arguments).unwrap_or_else(|| panic!("unknown order: {order}"));
                reply(&figures.iter().fold("done".to_owned(), |said, figure| format!("{said} {figure}")));
                continue;
            }
            [] => unreachable!("a split line has at least one part"),
        }
        reply("done");
    }
}

fn start_thread() -> (Sender<Work>, Receiver<()>) {
    let (orders, received) = channel::<Work>();
    let (done, finished) = channel();
    thread::spawn(move || {
        // One-time work of a thread, such as the creation of a malloc arena, thus belongs to its start.
        done.send(()).unwrap();
        for work in received {
            work.run();
            done.send(()).unwrap();
        }
    });
    finished.recv().unwrap();
    (orders, finished)
}

fn reply(text: &str) {
    writeln!(io::stderr(), "{text}").unwrap();
}
