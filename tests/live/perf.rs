//! perf as a reference, started and stopped at known moments: counts of `perf stat` and samples of `perf record`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use perf_exporter::host::read_text;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::cgroup::TestCgroup;
use crate::support::folded::Folded;
use crate::support::lines::Lines;

/// A perf process that waits for orders before it counts or samples.
#[derive(Debug)]
struct Controlled {
    child: Child,
    orders: ChildStdin,
    acknowledgements: Lines,
}

impl Controlled {
    /// Starts perf with its events.
    fn start(command: &mut Command) -> Self {
        // Delay -1 starts disabled. Orders are read from descriptor 0 and acknowledged on 1.
        command.args(["--delay=-1", "--control=fd:0,1"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let acknowledgements = Lines::of(child.stdout.take().unwrap());
        Self { child, orders, acknowledgements }
    }

    /// Sends an order, and returns when it is acknowledged.
    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        // perf ends its lines with "\n\0".
        let said = self.acknowledgements.next();
        let acknowledged = said.as_deref().is_some_and(|line| line.trim_start_matches('\0') == "ack");
        assert!(acknowledged, "perf replied {said:?} to the order {order}");
    }

    /// Waits until perf has written its output and exited.
    fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A `perf stat` that waits for [`PerfStat::enable`].
#[derive(Debug)]
pub(crate) struct PerfStat {
    perf: Controlled,
    output: PathBuf,
    _dir: tempfile::TempDir,
}

impl PerfStat {
    /// Opens `events` for the targets given by `whom`, as options of perf.
    pub(crate) fn open(events: &[&str], whom: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("counts");
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-o"]).arg(&output);
        command.args(events.iter().flat_map(|event| ["-e", event])).args(whom);
        Self { perf: Controlled::start(&mut command), output, _dir: dir }
    }

    /// Starts to count, and returns when perf has acknowledged it.
    pub(crate) fn enable(&mut self) {
        self.perf.order("enable");
    }

    /// Stops to count, and returns when perf has acknowledged it.
    pub(crate) fn disable(&mut self) {
        self.perf.order("disable");
    }

    /// Returns the counts.
    pub(crate) fn counts(self) -> PerfCounts {
        // perf writes its counts when it is interrupted, and then terminates by that signal.
        kill_process(Pid::from_child(&self.perf.child), Signal::INT).unwrap();
        self.perf.end();
        PerfCounts(read_text(&self.output).unwrap())
    }
}

/// The output of `perf stat -x,`.
#[derive(Debug)]
pub(crate) struct PerfCounts(String);

impl PerfCounts {
    /// Returns the count of an event, summed over CPUs. Milliseconds are converted to seconds.
    ///
    /// # Panics
    /// If perf did not count it.
    pub(crate) fn of(&self, event: &str) -> f64 {
        self.sum(event, |_| true)
    }

    /// Returns the count for one of the cgroups of `--for-each-cgroup`, by the name that was passed to perf.
    ///
    /// # Panics
    /// If perf did not count it.
    pub(crate) fn of_cgroup(&self, event: &str, cgroup: &str) -> f64 {
        self.sum(event, |behind| behind == Some(&cgroup))
    }

    /// Adds up the lines of an event for whose following field `wanted` returns true.
    fn sum(&self, event: &str, wanted: impl Fn(Option<&&str>) -> bool) -> f64 {
        let counted = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            // value, unit, event, cgroup if there are several, …; with -A the CPU comes first.
            let at = fields.iter().position(|field| *field == event)?;
            wanted(fields.get(at + 1)).then_some(())?;
            let value: f64 = fields[at.checked_sub(2)?].parse().ok()?;
            Some(if fields[at - 1] == "msec" { value / 1e3 } else { value })
        };
        let counts: Vec<f64> = self.0.lines().filter_map(counted).collect();
        assert!(!counts.is_empty(), "perf stat did not count {event}: {}", self.0);
        counts.iter().sum()
    }
}

/// A `perf record` of call chains in a cgroup, on all CPUs, that waits for [`PerfRecord::enable`].
#[derive(Debug)]
pub(crate) struct PerfRecord {
    perf: Controlled,
    output: PathBuf,
    _dir: tempfile::TempDir,
}

impl PerfRecord {
    /// Samples `event` at this frequency per second. Call chains are found by frame pointers.
    pub(crate) fn open(event: &str, frequency: u64, cgroup: &TestCgroup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("perf.data");
        let mut command = Command::new("perf");
        // perf requires the cgroup's path without the first slash. Collecting build ids of all files (-B disables it) would take seconds.
        command.args(["record", "-a", "-g", "-B", "-e", event, "-F", &frequency.to_string()]);
        command.args(["-G", &cgroup.path()[1..], "-o"]).arg(&output);
        Self { perf: Controlled::start(&mut command), output, _dir: dir }
    }

    /// Starts to sample, and returns when perf has acknowledged it.
    pub(crate) fn enable(&mut self) {
        self.perf.order("enable");
    }

    /// Returns the samples of a process so far, and the number of records lost because a ring was full.
    pub(crate) fn samples_of(mut self, pid: u32) -> (Folded, u64) {
        self.perf.order("disable");
        self.perf.order("stop");
        let status = self.perf.end();
        assert!(status.success(), "perf record exited with {status}");
        let mut script = Command::new("perf");
        // perf finds inlined functions with a program that takes minutes.
        script.args(["script", "--show-lost-events", "--no-inline", "-F", "pid,ip,sym", "-i"]);
        let output = script.arg(&self.output).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "perf script exited with {}: {said}", output.status);
        samples(&String::from_utf8_lossy(&output.stdout), pid)
    }
}

/// Parses paragraphs of `perf script`: a line with the process, and one line for each frame, innermost first:
///
/// ```text
///  4711
///         ffffffff81304da3 do_syscall_64
///                     1761 part_6
/// ```
///
/// Lost records have their own line: `… PERF_RECORD_LOST lost 12`.
fn samples(script: &str, pid: u32) -> (Folded, u64) {
    let (mut stacks, mut lost) = (Vec::new(), 0);
    for paragraph in script.split("\n\n") {
        let mut lines = paragraph.lines().filter(|line| {
            let figure = line.split_once("PERF_RECORD_LOST lost ").map(|(_, figure)| figure.trim());
            lost += figure.map_or(0, |figure| figure.parse::<u64>().unwrap());
            figure.is_none() && !line.is_empty()
        });
        if lines.next().is_some_and(|line| line.trim() == pid.to_string()) {
            let frame = |line: &str| line.trim().split_once(' ').map_or("", |(_, name)| name).to_owned();
            let mut stack: Vec<String> = lines.map(frame).collect();
            stack.reverse();
            stacks.push((stack, 1));
        }
    }
    (stacks.into_iter().collect(), lost)
}
