//! The summary of `perf-exporter trace`: calls, durations and errors by thread.

use rustc_hash::FxHashMap;

use crate::cli::follow::{Merge, Row, Rows, Spread, milliseconds, shown};
use crate::sched::Thread;
use crate::syscall::{Call, CompletedCall};

/// Maximum number of distinct calls per thread. Unknown numbers could otherwise use unbounded memory.
const MAX: usize = 1024;

/// Heading above the calls of a thread.
const HEADING: &str = concat!(
    "   syscall             calls  errors     total       min       avg       max     stddev\n",
    "                                        (msec)    (msec)    (msec)    (msec)        (%)\n",
    "   ---------------- --------  ------ --------- --------- --------- ---------     ------\n",
);

/// Statistics of a thread.
#[derive(Debug, Clone, PartialEq, Default)]
struct Sum {
    /// Entries and exits, as perf counts events.
    events: u64,
    major_faults: u64,
    minor_faults: u64,
    calls: FxHashMap<Call, Calls>,
}

/// Statistics of one system call.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Calls {
    times: Spread,
    errors: u64,
}

impl Merge for Sum {
    fn merge(&mut self, other: Self) {
        self.events += other.events;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
        for (call, calls) in other.calls {
            let sum = self.calls.entry(call).or_default();
            sum.times.merge(&calls.times);
            sum.errors += calls.errors;
        }
    }
}

/// Statistics by thread.
#[derive(Debug)]
pub(super) struct Summary {
    rows: Rows<Sum>,
}

impl Summary {
    pub(super) fn new() -> Self {
        Self { rows: Rows::new(true) }
    }

    /// Counts an entry or an exit.
    pub(super) fn event(&mut self, thread: &Thread) {
        self.rows.of(thread).events += 1;
    }

    /// Counts a page fault.
    pub(super) fn fault(&mut self, thread: &Thread, major: bool) {
        let sum = self.rows.of(thread);
        sum.events += 1;
        *if major { &mut sum.major_faults } else { &mut sum.minor_faults } += 1;
    }

    pub(super) fn add(&mut self, ended: &CompletedCall) {
        let sum = self.rows.of(&ended.thread);
        if sum.calls.len() >= MAX && !sum.calls.contains_key(&ended.call) {
            return;
        }
        let calls = sum.calls.entry(ended.call).or_default();
        calls.times.add(ended.took);
        calls.errors += u64::from(ended.error().is_some());
    }

    pub(super) fn end(&mut self, tid: u32) {
        self.rows.end(tid);
    }

    /// Returns the tables of perf, the busiest threads first.
    pub(super) fn text(self) -> String {
        let (mut rows, others) = self.rows.finish();
        rows.retain(|row| row.sum.events > 0);
        rows.sort_by_key(|row| (std::cmp::Reverse(row.sum.events), row.thread.tid, row.thread.comm));
        let all = rows.iter().chain(&others).map(|row| row.sum.events).sum::<u64>().max(1);
        let mut text = String::from("\n Summary of events:\n");
        for row in &rows {
            let name = format!("{} ({})", shown(row.thread.comm.bytes()), row.thread.tid);
            write_table(&mut text, &name, row, all);
        }
        others.iter().for_each(|row| write_table(&mut text, "(others)", row, all));
        text.push('\n');
        text
    }
}

fn write_table(text: &mut String, name: &str, row: &Row<Sum>, all: u64) {
    let events = row.sum.events;
    let share = 100.0 * events as f64 / all as f64;
    text.push_str(&format!("\n {name}, {events} events, {share:.1}%"));
    for (faults, what) in [(row.sum.major_faults, "majfaults"), (row.sum.minor_faults, "minfaults")] {
        if faults > 0 {
            text.push_str(&format!(", {faults} {what}"));
        }
    }
    text.push_str(&format!("\n\n{HEADING}"));
    let mut calls: Vec<_> = row.sum.calls.iter().collect();
    calls.sort_by_key(|(call, calls)| (std::cmp::Reverse(calls.times.total), **call));
    for (call, Calls { times, errors }) in calls {
        text.push_str(&format!(
            "   {:<16} {:>8}  {errors:>6} {:>9.3} {:>9.3} {:>9.3} {:>9.3}     {:>5.2}%\n",
            call.to_string(),
            times.of.count,
            milliseconds(times.total),
            milliseconds(times.least),
            times.of.mean / 1e6,
            milliseconds(times.most),
            times.of.relative_error()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Comm;
    use crate::syscall::Abi;

    #[test]
    fn the_tables_are_as_recorded() {
        let mut summary = Summary::new();
        let thread = |tid, name: &[u8]| Thread { tid, pid: tid, comm: Comm::new(name), ..Thread::default() };
        let (ls, hostile) = (thread(812, b"ls"), thread(813, b"\x1b]0;x\x07"));
        for (thread, number, took, result) in [
            (ls, 257, 21_000, 3),
            (ls, 257, 39_000, -2),
            (ls, 35, 100_161_000, 0),
            (ls, 4000, 1_000, -38),
            (hostile, 0, 500, 7),
        ] {
            summary.event(&thread);
            summary.event(&thread);
            let call = Call { abi: Abi::X86_64, number };
            summary.add(&CompletedCall { thread, call, time: 0, took, result });
        }
        for major in [true, false, false] {
            summary.fault(&ls, major);
        }
        summary.end(813);
        insta::assert_snapshot!(summary.text());
    }
}
