//! `perf stat` as an oracle, started and stopped at known moments.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use perf_exporter::host::read_text;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::lines::Lines;

/// A `perf stat` that waits for [`PerfStat::enable`].
#[derive(Debug)]
pub(crate) struct PerfStat {
    child: Child,
    orders: ChildStdin,
    acknowledgements: Lines,
    output: PathBuf,
    _dir: tempfile::TempDir,
}

impl PerfStat {
    /// Opens `events` for those whom `whom` says, in perf's own options.
    pub(crate) fn open(events: &[&str], whom: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("counts");
        // Delay -1 starts disabled; orders come on descriptor 0 and are acknowledged on 1.
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "--delay=-1", "--control=fd:0,1", "-o"]).arg(&output);
        command.args(events.iter().flat_map(|event| ["-e", event])).args(whom);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let acknowledgements = Lines::of(child.stdout.take().unwrap());
        Self { child, orders, acknowledgements, output, _dir: dir }
    }

    /// Starts to count, and returns when it does.
    pub(crate) fn enable(&mut self) {
        self.order("enable");
    }

    /// Stops, and returns when it has.
    pub(crate) fn disable(&mut self) {
        self.order("disable");
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        // perf ends its lines with "\n\0".
        let said = self.acknowledgements.next();
        let acknowledged = said.as_deref().is_some_and(|line| line.trim_start_matches('\0') == "ack");
        assert!(acknowledged, "perf stat was told to {order} and said {said:?}");
    }

    /// What it counted.
    pub(crate) fn counts(mut self) -> PerfCounts {
        // It writes its counts when it is interrupted, and then dies by that signal.
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap();
        PerfCounts(read_text(&self.output).unwrap())
    }
}

impl Drop for PerfStat {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The output of `perf stat -x,`.
#[derive(Debug)]
pub(crate) struct PerfCounts(String);

impl PerfCounts {
    /// What was counted of an event, added up over CPUs. Milliseconds are given as seconds.
    ///
    /// # Panics
    /// If perf did not count it.
    pub(crate) fn of(&self, event: &str) -> f64 {
        self.sum(event, |_| true)
    }

    /// The same for one of the cgroups of `--for-each-cgroup`, by the name that perf was given.
    ///
    /// # Panics
    /// If perf did not count it.
    pub(crate) fn of_cgroup(&self, event: &str, cgroup: &str) -> f64 {
        self.sum(event, |behind| behind == Some(&cgroup))
    }

    /// Adds up the lines of an event for which holds what the field behind its name says.
    fn sum(&self, event: &str, wanted: impl Fn(Option<&&str>) -> bool) -> f64 {
        let counted = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            // value, unit, event, cgroup if there are several, …; with -A the CPU stands in front.
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
